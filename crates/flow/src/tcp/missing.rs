//! How much data of a stream the capture lacks, and in how much of the time it passed: for `connection/complete.rs`.

use units::{Duration, Instant};

use crate::identity::sequence::Pos;

/// Receive queues of a host that captures are emptied one after the other, each for a jiffy at most
/// (`net.core.netdev_budget_usecs` of Linux is 2 ms), so a packet may stand behind one that was sent later.
const CAPTURE_ORDER: Duration = Duration::from_millis(2);

/// Bytes that an ACK covered before the capture had them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyAck {
    pub from: Pos,
    pub to: Pos,
    pub at: Instant,
}

impl EarlyAck {
    /// Whether data up to `end` that is seen now was only stored late: nothing arrives after its ACK, and a sender repeats
    /// nothing so soon.
    pub fn covers(&self, start: Pos, end: Pos, now: Instant) -> bool {
        start >= self.from && end <= self.to && now.since(self.at) <= CAPTURE_ORDER
    }
}

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
