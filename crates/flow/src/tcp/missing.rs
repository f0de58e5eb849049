//! How much data of a stream the capture lacks, and in how much of the time it passed: for `connection/complete.rs`.

use units::{Duration, Instant};

/// Time and bytes of data that the capture lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missing {
    /// Bytes acknowledged but never captured, by the last ACK.
    bytes: u64,
    /// Time between ACKs in which they passed.
    pub time: Duration,
    /// Time of the last ACK.
    last: Option<Instant>,
}

impl Missing {
    /// After each ACK: the capture lacks `bytes` so far, or the ACK ends in data that it lacks (`within`). What is new
    /// passed since the ACK before, or since the first data.
    #[inline]
    pub fn acknowledged(&mut self, bytes: u64, within: bool, first_data: Instant, now: Instant) {
        if bytes > self.bytes || within {
            self.bytes = bytes;
            self.time += now.since(self.last.unwrap_or(first_data));
        }
        self.last = Some(now);
    }
}
