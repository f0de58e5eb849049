//! Why a capture cannot be opened ([`OpenError`]), and why reading stopped early ([`ReadError`]).

use std::io;

use thiserror::Error;

use crate::source::is_too_large;

/// Why a file cannot be read at all.
#[derive(Error, Debug)]
pub enum OpenError {
    /// The file has another format.
    #[error("not a pcap or pcapng file: looks like {looks_like}")]
    NotACapture {
        /// What the content looks like, with its article.
        looks_like: &'static str,
    },
    /// A pcap file of a version or variant that cannot be read.
    #[error("pcap file of version {major}.{minor}, which cannot be read")]
    Version {
        /// Major version in the file header.
        major: u16,
        /// Minor version in the file header.
        minor: u16,
    },
    /// The file ends within its file header.
    #[error("file header truncated: needed {needed} bytes, got {got}")]
    Truncated {
        /// Length of the header, bytes.
        needed: u64,
        /// Number of bytes present.
        got: u64,
    },
    /// The file header contradicts itself.
    #[error("file header corrupt: {why}")]
    Corrupt {
        /// Which fields contradict each other.
        why: &'static str,
    },
    /// A system call failed.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The compressed data is damaged from the start.
    #[error("cannot be decompressed: {0}")]
    Decompress(#[source] io::Error),
}

/// Why reading stopped before the end. All frames before that are valid.
#[derive(Error, Debug)]
pub enum ReadError {
    /// The file ends within a record.
    #[error("truncated record at byte {offset}: needed {needed} bytes, got {got}")]
    Truncated {
        /// Where the record begins in the unpacked file.
        offset: u64,
        /// Length of the record, bytes.
        needed: u64,
        /// Number of bytes present.
        got: u64,
    },
    /// A record contradicts itself.
    #[error("corrupt record at byte {offset}: {why}")]
    Corrupt {
        /// Where the record begins in the unpacked file.
        offset: u64,
        /// Which fields contradict each other.
        why: &'static str,
    },
    /// A system call failed.
    #[error("read failed at byte {offset}: {source}")]
    Io {
        /// Bytes consumed until then.
        offset: u64,
        /// Error of the system call.
        source: io::Error,
    },
    /// The compressed data is damaged.
    #[error("decompression failed behind byte {offset}: {source}")]
    Decompress {
        /// Unpacked bytes consumed until then.
        offset: u64,
        /// Error of the decompressor.
        source: io::Error,
    },
}

impl OpenError {
    /// By how much the first bytes unpacked to more than the limit of the reader; `None` for any other error.
    pub fn too_large(&self) -> Option<&io::Error> {
        match self {
            OpenError::Decompress(source) if is_too_large(source) => Some(source),
            _ => None,
        }
    }
}

impl ReadError {
    /// By how much the input unpacked to more than the limit of the reader; `None` for any other error.
    pub fn too_large(&self) -> Option<&io::Error> {
        match self {
            ReadError::Decompress { source, .. } if is_too_large(source) => Some(source),
            _ => None,
        }
    }
}
