//! Decompresses gzip and zstd, recognised by their magic numbers, nested ones too, up to a limit if one is given.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

/// Nested layers of compression that are removed; more of them are a decompression bomb.
const MAX_NESTING: usize = 4;
/// Bytes looked at to recognise a format: two TSH or ERF records and the longest magic fit.
const PEEK: usize = 512;
/// Compressed bytes fetched at once, so that a file is not read in 8 KiB pieces.
const COMPRESSED_CHUNK: usize = 128 << 10;

/// How large unpacked input may be. What is larger was made to fill memory or time, which no capture does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Unpacked bytes for each packed one, of each layer of compression.
    pub ratio: u64,
    /// So many unpacked bytes are harmless at any ratio.
    pub harmless: u64,
}

/// A layer of compression is larger than its [`Limit`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("unpacks to more than {0} times its size, which no capture does; stopped")]
pub(crate) struct TooLarge(u64);

/// Whether an error is that of a [`Limit`].
pub(crate) fn is_too_large(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<TooLarge>())
}

/// The input with its layers of compression.
pub(crate) enum Source<R: Read> {
    Raw(R),
    /// Bytes that were read to recognise the format, then the rest.
    Peeked(Vec<u8>, usize, Box<Source<R>>),
    Gzip(Box<MultiGzDecoder<BufReader<Source<R>>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<Source<R>>>>),
    /// What a layer reads, counted.
    Counted(Box<Source<R>>, Arc<AtomicU64>),
    /// What a layer gives, under its limit.
    Limited(Box<Limited<R>>),
}

/// A layer of compression under its limit.
pub(crate) struct Limited<R: Read> {
    source: Source<R>,
    packed: Arc<AtomicU64>,
    unpacked: u64,
    limit: Limit,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(into)?;
        self.unpacked += n as u64;
        let most = self.limit.ratio.saturating_mul(self.packed.load(Ordering::Relaxed));
        if self.unpacked > most.max(self.limit.harmless) {
            return Err(io::Error::other(TooLarge(self.limit.ratio)));
        }
        Ok(n)
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Raw(r) => r.read(into),
            Source::Peeked(head, at, rest) => {
                let left = head.get(*at..).unwrap_or_default();
                if left.is_empty() {
                    return rest.read(into);
                }
                let n = left.len().min(into.len());
                into[..n].copy_from_slice(&left[..n]);
                *at += n;
                Ok(n)
            }
            Source::Gzip(r) => r.read(into),
            Source::Zstd(r) => r.read(into),
            Source::Counted(r, count) => {
                let n = r.read(into)?;
                count.fetch_add(n as u64, Ordering::Relaxed);
                Ok(n)
            }
            Source::Limited(r) => r.read(into),
        }
    }
}

/// The decompressed source, its first bytes (no longer in it), and whether it was compressed.
pub(crate) struct Unpacked<R: Read> {
    pub(crate) source: Source<R>,
    pub(crate) head: Vec<u8>,
    pub(crate) packed: bool,
    /// What ended the reading of `head`, if it was not its length or the end of the input.
    pub(crate) failure: Option<io::Error>,
}

pub(crate) fn unpack<R: Read>(input: R, limit: Option<Limit>) -> io::Result<Unpacked<R>> {
    let mut source = Source::Raw(input);
    let mut packed = false;
    for _ in 0..MAX_NESTING {
        let (head, failure) = peek(&mut source);
        let gzip = head.starts_with(&[0x1f, 0x8b, 8]);
        let zstd = is_zstd(&head);
        if failure.is_some() || !(gzip || zstd) {
            return Ok(Unpacked { source, head, packed, failure });
        }
        let mut below = Source::Peeked(head, 0, Box::new(source));
        let count = Arc::new(AtomicU64::new(0));
        if limit.is_some() {
            below = Source::Counted(Box::new(below), Arc::clone(&count));
        }
        let whole = BufReader::with_capacity(COMPRESSED_CHUNK, below);
        source = if gzip {
            Source::Gzip(Box::new(MultiGzDecoder::new(whole)))
        } else {
            Source::Zstd(Box::new(zstd::stream::read::Decoder::with_buffer(whole)?))
        };
        if let Some(limit) = limit {
            source =
                Source::Limited(Box::new(Limited { source, packed: count, unpacked: 0, limit }));
        }
        packed = true;
    }
    let (head, failure) = peek(&mut source);
    Ok(Unpacked { source, head, packed, failure })
}

/// A zstd frame, or a skippable frame before one (RFC 8878 sections 3.1.1 and 3.1.2).
fn is_zstd(head: &[u8]) -> bool {
    head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        || matches!(head, [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50)
}

fn peek<R: Read>(source: &mut Source<R>) -> (Vec<u8>, Option<io::Error>) {
    let mut head = vec![0; PEEK];
    let mut got = 0;
    let mut failure = None;
    while got < PEEK {
        match source.read(&mut head[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => {
                failure = Some(e);
                break;
            }
        }
    }
    head.truncate(got);
    (head, failure)
}
