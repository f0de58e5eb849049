//! The read buffer between the file and the frames.
//!
//! Records are parsed in place. Only the part of a record that a refill would cut is copied. For a record
//! longer than the buffer it grows with the bytes that really arrive, so that a forged length costs no memory.

use std::io::{self, Read};

use crate::error::ReadError;
use crate::source::Source;

/// Small enough for the second-level cache, large enough that the cost of system calls does not matter.
const SIZE: usize = 256 << 10;

pub(crate) struct Buffer<R: Read> {
    source: Source<R>,
    packed: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: usize,
    end: usize,
    /// Offset of `bytes[0]` in the unpacked input.
    base: u64,
    ended: bool,
    failure: Option<io::Error>,
}

impl<R: Read> Buffer<R> {
    pub(crate) fn new(
        source: Source<R>,
        head: &[u8],
        packed: bool,
        failure: Option<io::Error>,
    ) -> Self {
        let mut bytes = vec![0; SIZE.max(head.len())];
        bytes[..head.len()].copy_from_slice(head);
        let ended = failure.is_some();
        Buffer { source, packed, bytes, start: 0, end: head.len(), base: 0, ended, failure }
    }

    /// Bytes of unpacked input consumed so far.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Bytes that were read and not yet consumed.
    #[inline]
    pub(crate) fn ready(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Reads until `need` bytes are ready; false if the input ends before.
    #[inline]
    pub(crate) fn has(&mut self, need: usize) -> bool {
        self.end - self.start >= need || self.fill(need)
    }

    #[cold]
    fn fill(&mut self, need: usize) -> bool {
        self.bytes.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        while self.end < need && !self.ended {
            if self.end == self.bytes.len() {
                let grown = (self.bytes.len() * 2).min(need.next_multiple_of(4096));
                self.bytes.resize(grown, 0);
            }
            match self.source.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.failure = Some(e);
                    self.ended = true;
                }
            }
        }
        self.end >= need
    }

    /// Consumes `count` bytes, which must be ready.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Skips `count` bytes, reading more input as needed.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), ReadError> {
        let offset = self.offset();
        let mut left = count;
        loop {
            let step = left.min(self.end - self.start);
            self.consume(step);
            left -= step;
            if left == 0 {
                return Ok(());
            }
            if !self.has(1) {
                return Err(self.short(offset, count, count - left));
            }
        }
    }

    /// Why `needed` bytes are not available at the current offset; `None` at a clean end.
    #[cold]
    pub(crate) fn at_end(&mut self, needed: usize) -> Option<ReadError> {
        let got = self.end - self.start;
        if got == 0 && self.failure.is_none() {
            return None;
        }
        let offset = self.offset();
        Some(self.short(offset, needed, got))
    }

    fn short(&mut self, offset: u64, needed: usize, got: usize) -> ReadError {
        match self.failure.take() {
            Some(source) if self.packed => ReadError::Decompress { offset, source },
            Some(source) => ReadError::Io { offset, source },
            None => ReadError::Truncated { offset, needed: needed as u64, got: got as u64 },
        }
    }
}
