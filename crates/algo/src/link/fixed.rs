//! A link of constant rate.
//!
//! signal: the packet's length · model: bytes / rate · action: the packet leaves when its last bit is
//! sent. Fractions of a nanosecond carry over to the next packet: the long-run rate is exact.

use units::{Bytes, Duration, Instant, Rate};

use super::{Grants, Head, Medium, Setup, Slot, State};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "fixed";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "a constant rate";
/// Where it is specified.
pub const SOURCE: &str = "closed form: bytes / rate";

config! {
    /// The rate of the link.
    pub struct Config {
        /// Bits per second on the IP layer.
        rate: Rate = Rate(10_000_000), Rate(1), Rate(1_000_000_000_000);
    }
}

/// A link of constant rate.
#[derive(Clone, Debug)]
pub struct Fixed {
    rate: u64,
    /// Remainder of the last division, in bit · ns / s.
    carried: u64,
    sent: u64,
}

impl Fixed {
    /// The state of an idle link.
    pub fn new(config: Config, _setup: &Setup) -> Fixed {
        Fixed { rate: config.rate.0.max(1), carried: 0, sent: 0 }
    }
}

impl Medium for Fixed {
    #[inline]
    fn offer(&mut self, now: Instant, head: &Head, _rng: &mut Rng) -> Slot {
        // A packet of 2 GB would overflow 64 bits; packets have at most 64 KiB.
        let work = head.bytes.0 * 8_000_000_000 + self.carried;
        self.carried = work % self.rate;
        self.sent += head.bytes.0;
        Slot::Leaves(now + Duration(work / self.rate))
    }

    fn on_backlog(&mut self, _now: Instant, _backlog: Bytes) {}

    fn take_grants(&mut self, _now: Instant) -> Grants {
        Grants {
            granted: Bytes(core::mem::take(&mut self.sent)),
            padding: Bytes::ZERO,
            waiting: None,
        }
    }

    fn state(&self, _now: Instant) -> State {
        State { rate: Some(Rate(self.rate)), state: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_packets_take_three_times_as_long_to_the_nanosecond() {
        // 1,500 bytes at 7 Mbit/s take 1,714,285.714… ns.
        let mut link = Fixed::new(Config { rate: Rate(7_000_000) }, &Setup::default());
        let mut rng = Rng::new(1, "test");
        let mut now = Instant::ZERO;
        for _ in 0..7 {
            let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
            let Slot::Leaves(at) = link.offer(now, &head, &mut rng) else {
                panic!("a fixed link never waits")
            };
            now = at;
        }
        assert_eq!(now, Instant(12_000_000));
    }
}
