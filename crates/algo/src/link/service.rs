//! Serves a packet's bits at a changing rate, in whole numbers.
//!
//! The remainder of a division carries over to the next packet: the long-run rate is exact.

use units::{Bytes, Duration};

/// When to try a link again that will never send: later than any reaction of a sender (TCP's longest
/// back-off is 120 s on Linux), and so early that sums of times do not saturate.
pub(super) const FAR: Duration = Duration::from_secs(3_600);

/// Nanobits (bits · 10⁹) fit 64 bits up to packets of this many bytes. Larger packets count as this: no
/// IP header can express them, except RFC 2675 jumbograms.
const MAX_PACKET: u64 = 1 << 30;

/// The bytes that one link has sent, and the remainder of its last division.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    carried: u64,
    sent: u64,
}

impl Service {
    /// A packet enters service: its work in nanobits.
    #[inline]
    pub(super) fn start(&mut self, bytes: Bytes) -> u64 {
        self.sent = self.sent.saturating_add(bytes.0);
        bytes.0.min(MAX_PACKET) * 8_000_000_000 + self.carried
    }

    /// Serves `work` at `rate` for at most `span` nanoseconds: `Ok` with the time needed, `Err` with the
    /// remaining work.
    #[inline]
    pub(super) fn run(&mut self, work: u64, rate: u64, span: u64) -> Result<u64, u64> {
        match work.checked_div(rate) {
            Some(needed) if needed <= span => {
                self.carried = work % rate;
                Ok(needed)
            }
            // needed > span, so rate · span < work: no overflow.
            Some(_) => Err(work - rate * span),
            None => Err(work),
        }
    }

    /// Bytes sent since the last call.
    pub(super) fn take_sent(&mut self) -> Bytes {
        Bytes(core::mem::take(&mut self.sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_crosses_a_change_of_rate_is_split_without_a_remainder_lost() {
        let mut service = Service::default();
        let work = service.start(Bytes(1_500));
        // 12,000 bits: 1 ms at 8 Mbit/s sends 8,000; the other 4,000 take 2 ms at 2 Mbit/s
        let left = service.run(work, 8_000_000, 1_000_000);
        assert_eq!(left, Err(4_000_000_000_000));
        assert_eq!(service.run(left.unwrap_err(), 2_000_000, u64::MAX), Ok(2_000_000));
        assert_eq!(service.run(5, 0, u64::MAX), Err(5));
    }
}
