//! Decompresses gzip and zstd, recognised by their magic numbers, nested ones too.

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;

/// Nested layers of compression that are removed; more of them are a decompression bomb.
const MAX_NESTING: usize = 4;
/// Bytes looked at to recognise a format: two TSH or ERF records and the longest magic fit.
const PEEK: usize = 512;
/// Compressed bytes fetched at once, so that a file is not read in 8 KiB pieces.
const COMPRESSED_CHUNK: usize = 128 << 10;

/// The input with its layers of compression.
pub(crate) enum Source<R: Read> {
    Raw(R),
    /// Bytes that were read to recognise the format, then the rest.
    Peeked(Vec<u8>, usize, Box<Source<R>>),
    Gzip(Box<MultiGzDecoder<BufReader<Source<R>>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<Source<R>>>>),
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

pub(crate) fn unpack<R: Read>(input: R) -> io::Result<Unpacked<R>> {
    let mut source = Source::Raw(input);
    let mut packed = false;
    for _ in 0..MAX_NESTING {
        let (head, failure) = peek(&mut source);
        let gzip = head.starts_with(&[0x1f, 0x8b, 8]);
        let zstd = is_zstd(&head);
        if failure.is_some() || !(gzip || zstd) {
            return Ok(Unpacked { source, head, packed, failure });
        }
        let whole =
            BufReader::with_capacity(COMPRESSED_CHUNK, Source::Peeked(head, 0, Box::new(source)));
        source = if gzip {
            Source::Gzip(Box::new(MultiGzDecoder::new(whole)))
        } else {
            Source::Zstd(Box::new(zstd::stream::read::Decoder::with_buffer(whole)?))
        };
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
