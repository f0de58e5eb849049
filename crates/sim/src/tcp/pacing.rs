//! When a paced sender may send, and how much at once.
//!
//! signal: the pacing rate, the smallest RTT, and the length of each segment · model: Linux. A burst is one buffer that the kernel
//! passes to the device: what a millisecond of the rate allows, and two segments at least (`tcp_tso_autosize`). After a burst its
//! length at the rate passes. A burst that left late makes up for that, up to half of its own time (`tcp_update_skb_after_send`) ·
//! action: the segments of a burst, and the time of the next one.

use algo::cc::burst;
use units::{Bytes, Duration, Instant, Rate};

/// On paths shorter than a few milliseconds a burst is larger: by the largest one, halved for every so many µs of the smallest RTT
/// (`tcp_tso_rtt_log`).
const RTT_SHIFT: u32 = 9;

/// Segments that leave at once at this rate. `modelled`: the rate is a congestion control's own, as BBR's is.
pub fn burst(rate: Rate, min_rtt: Duration, mss: u64, modelled: bool) -> u64 {
    let halvings = (min_rtt.0 / 1000) >> RTT_SHIFT;
    let more = if halvings < 32 { burst::MAX_BURST >> halvings } else { 0 };
    let least = if modelled { burst::least_of_bbr(rate) } else { burst::MIN_SEGMENTS };
    burst::segments(rate, more, mss, least)
}

/// The times of a sender's bursts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// The next burst may leave.
    next: Instant,
    /// The last burst left.
    left: Instant,
    /// So much after it might have.
    late: Duration,
    /// What it has so far.
    bytes: u64,
}

impl Pacer {
    /// Begins a burst, or says when one may.
    #[inline]
    pub fn begin(&mut self, now: Instant) -> Result<(), Instant> {
        if self.next > now {
            return Err(self.next);
        }
        (self.left, self.late, self.bytes) = (now, now.since(self.next), 0);
        self.next = now;
        Ok(())
    }

    /// A segment of this burst leaves.
    #[inline]
    pub fn sent(&mut self, bytes: u64, rate: Rate) {
        self.bytes += bytes;
        let takes = (Bytes(self.bytes) / rate).0;
        self.next = self.left + Duration(takes - self.late.0.min(takes / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1448;

    #[test]
    fn a_burst_has_a_millisecond_of_the_rate_and_two_segments_at_least() {
        let path = Duration::from_millis(50);
        assert_eq!(burst(Rate(2_000_000), path, MSS, true), 2);
        // 100 Mbit/s are 12.2 kB in 1/1024 s.
        assert_eq!(burst(Rate(100_000_000), path, MSS, true), 8);
        assert_eq!(burst(Rate(100_000_000_000), path, MSS, true), 45);
        assert_eq!(burst(Rate(1_000_000), path, MSS, true), 1);
        assert_eq!(burst(Rate(1_000_000), path, MSS, false), 2);
        // 2 ms of RTT: an eighth of the largest burst more.
        assert_eq!(burst(Rate(2_000_000), Duration::from_millis(2), MSS, true), 5);
    }

    #[test]
    fn a_late_burst_makes_up_for_half_of_its_time_at_most() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let rate = Rate(8_000_000);
        let mut pacer = Pacer::default();
        assert_eq!(pacer.begin(at(10)), Ok(()));
        // 2 kB need 2 ms.
        pacer.sent(1000, rate);
        pacer.sent(1000, rate);
        // The first was late by 10 ms.
        assert_eq!(pacer.begin(at(10)), Err(at(11)));
        assert_eq!(pacer.begin(at(11)), Ok(()));
        pacer.sent(2000, rate);
        assert_eq!(pacer.begin(at(12)), Err(at(13)));
        // Late by a quarter.
        assert_eq!(pacer.begin(at(13) + Duration::from_micros(500)), Ok(()));
        pacer.sent(2000, rate);
        assert_eq!(pacer.begin(at(14)), Err(at(15)));
    }
}
