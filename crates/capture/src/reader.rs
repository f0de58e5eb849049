//! Frames out of a capture file, whatever its format, byte order, resolution and packing.
//!
//! Sources: the pcap and pcapng Internet-Drafts (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).
//! Deviations, because real files need them: a record may be longer than the snap length says; a captured length
//! above the original length raises the latter; packets of an interface that was never described are skipped
//! and counted ([`Reader::skipped`]); simple packets, which carry no time, take that of the frame before them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use thiserror::Error;
use units::Instant;

use crate::buffer::Buffer;
use crate::foreign;
use crate::pcap::Pcap;
use crate::pcapng::Pcapng;
use crate::source::unpack;

/// Longest record that is believed; BIG TCP frames are 512 KiB, USB transfers reach 128 MiB.
pub(crate) const MAX_RECORD: u32 = 256 << 20;
/// Files exceed their own snap length, but not by this; a longer record is a broken length.
pub(crate) const SNAP_SLACK: u32 = 16 << 20;

/// The longest record that a file of this snap length is believed to hold.
pub(crate) fn longest_record(snaplen: u32) -> u32 {
    snaplen.clamp(SNAP_SLACK, MAX_RECORD)
}

/// A network interface that the capture describes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name; empty where the file has none.
    pub name: String,
    /// Its link type (LINKTYPE_ number).
    pub linktype: u16,
    /// Bytes kept of each packet; 0 for no limit.
    pub snaplen: u32,
    /// Packets that the capture program says it dropped.
    pub reported_drops: Option<u64>,
}

/// One captured packet; `data` borrows from the reader's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Nanoseconds since the epoch.
    pub time: Instant,
    /// Index into [`Reader::interfaces`].
    pub interface: u32,
    /// Link type of that interface.
    pub linktype: u16,
    /// Length on the wire in bytes, at least that of `data`.
    pub wire_len: u32,
    /// What was kept of it.
    pub data: &'a [u8],
}

/// Where a frame lies in the buffer.
pub(crate) struct Found {
    pub(crate) time: u64,
    pub(crate) interface: u32,
    pub(crate) linktype: u16,
    pub(crate) wire_len: u32,
    pub(crate) from: usize,
    pub(crate) len: usize,
}

/// Why a file cannot be read at all.
#[derive(Error, Debug)]
pub enum OpenError {
    /// It is something else.
    #[error("not a pcap or pcapng file: looks like {looks_like}")]
    NotACapture {
        /// What it looks like, with its article.
        looks_like: &'static str,
    },
    /// It is a capture, but a version or variant that cannot be read.
    #[error("pcap file of version {major}.{minor}, which cannot be read")]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// It ends within its file header.
    #[error("file header truncated: needed {needed} bytes, got {got}")]
    Truncated {
        /// Bytes of a header.
        needed: u64,
        /// Bytes there are.
        got: u64,
    },
    /// Its file header contradicts itself.
    #[error("file header corrupt: {why}")]
    Corrupt {
        /// What contradicts what.
        why: &'static str,
    },
    /// The system refused.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The packing is damaged from the start.
    #[error("cannot be decompressed: {0}")]
    Decompress(#[source] io::Error),
}

/// Why reading stopped before the end. What came before is good.
#[derive(Error, Debug)]
pub enum ReadError {
    /// The file ends within a record.
    #[error("truncated record at byte {offset}: needed {needed} bytes, got {got}")]
    Truncated {
        /// Where the record begins in the unpacked file.
        offset: u64,
        /// Bytes of the record.
        needed: u64,
        /// Bytes there are.
        got: u64,
    },
    /// A record contradicts itself.
    #[error("corrupt record at byte {offset}: {why}")]
    Corrupt {
        /// Where the record begins in the unpacked file.
        offset: u64,
        /// What contradicts what.
        why: &'static str,
    },
    /// The system refused.
    #[error("read failed at byte {offset}: {source}")]
    Io {
        /// Bytes consumed until then.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The packing is damaged.
    #[error("decompression failed behind byte {offset}: {source}")]
    Decompress {
        /// Unpacked bytes consumed until then.
        offset: u64,
        /// What the decompressor said.
        source: io::Error,
    },
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
    Done,
}

/// Reads frames from a capture.
pub struct Reader<R: Read> {
    buffer: Buffer<R>,
    format: Format,
    interfaces: Vec<Interface>,
    skipped: u64,
}

impl<R: Read> Reader<R> {
    /// Recognises packing and format by the first bytes.
    pub fn new(input: R) -> Result<Self, OpenError> {
        let unpacked = unpack(input).map_err(OpenError::Decompress)?;
        let head = unpacked.head.as_slice();
        let mut interfaces = Vec::new();
        let opened = if Pcapng::recognise(head) {
            Ok(Format::Pcapng(Pcapng::new()))
        } else {
            Pcap::open(head, &mut interfaces).map(Format::Pcap)
        };
        let format = match (opened, unpacked.failure) {
            (Ok(format), failure) => {
                let mut buffer = Buffer::new(unpacked.source, head, unpacked.packed, failure);
                let format = match format {
                    Format::Pcapng(mut ng) => {
                        ng.open(&mut buffer)?;
                        Format::Pcapng(ng)
                    }
                    pcap => {
                        buffer.consume(crate::pcap::FILE_HEADER);
                        pcap
                    }
                };
                return Ok(Reader { buffer, format, interfaces, skipped: 0 });
            }
            (Err(_), Some(failure)) if unpacked.packed => OpenError::Decompress(failure),
            (Err(_), Some(failure)) => OpenError::Io(failure),
            (Err(Some(error)), None) => error,
            (Err(None), None) => OpenError::NotACapture { looks_like: foreign::name(head) },
        };
        Err(format)
    }

    /// The next frame; `None` at the end, and from then on after an error.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        let found = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.buffer),
            Format::Pcapng(ng) => ng.next(&mut self.buffer, &mut self.interfaces, &mut self.skipped),
            Format::Done => Ok(None),
        };
        match found {
            Ok(Some(f)) => Ok(Some(Frame {
                time: Instant(f.time),
                interface: f.interface,
                linktype: f.linktype,
                wire_len: f.wire_len,
                data: self.buffer.bytes.get(f.from..f.from + f.len).unwrap_or_default(),
            })),
            Ok(None) => {
                self.format = Format::Done;
                Ok(None)
            }
            Err(e) => {
                self.format = Format::Done;
                Err(e)
            }
        }
    }

    /// The interfaces described so far; more may follow in a pcapng file.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Bytes of the unpacked input consumed.
    pub fn offset(&self) -> u64 {
        self.buffer.offset()
    }

    /// Packets left out because their interface was never described or their block contradicts itself.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// Opens a capture file.
pub fn open(path: &Path) -> Result<Reader<Box<dyn Read + Send>>, OpenError> {
    let file = File::open(path).map_err(OpenError::Io)?;
    Reader::new(Box::new(file))
}
