//! Smoothed round-trip time and retransmission timeout.
//!
//! signal: RTT samples · model: RFC 6298, with Linux's floor: the variance term is at least 200 ms
//! (`tcp_rto_min_us`), so that the RTO never comes closer than that to the smoothed RTT · action:
//! [`Rto::timeout`].

use units::{Duration, Instant};

/// Before the first sample (RFC 6298 section 2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// Smallest variance term (Linux `TCP_RTO_MIN`).
const FLOOR: Duration = Duration::from_millis(200);
/// Largest timeout (Linux `TCP_RTO_MAX`).
const CEILING: Duration = Duration::from_secs(120);
/// Window of Linux's `tcp_min_rtt_wlen`: 300 s.
const MIN_WINDOW: Duration = Duration::from_secs(300);

/// RTT estimate of one sender.
#[derive(Clone, Copy, Debug)]
pub struct Rto {
    /// Smoothed RTT; zero before the first sample.
    pub srtt: Duration,
    variance: Duration,
    /// Smallest RTT of the last 300 s.
    pub min: Duration,
    min_at: Instant,
    /// Timeouts in a row.
    pub backoff: u32,
}

impl Default for Rto {
    fn default() -> Rto {
        Rto {
            srtt: Duration::ZERO,
            variance: Duration::ZERO,
            min: Duration::MAX,
            min_at: Instant::ZERO,
            backoff: 0,
        }
    }
}

impl Rto {
    /// Takes a sample in (RFC 6298 section 2.2 and 2.3).
    #[inline]
    pub fn on_sample(&mut self, now: Instant, rtt: Duration) {
        if self.srtt == Duration::ZERO {
            self.srtt = rtt.max(Duration(1));
            self.variance = Duration(rtt.0 / 2);
        } else {
            let error = self.srtt.0.abs_diff(rtt.0);
            self.variance = Duration(self.variance.0 - self.variance.0 / 4 + error / 4);
            self.srtt = Duration(self.srtt.0 - self.srtt.0 / 8 + rtt.0 / 8).max(Duration(1));
        }
        if rtt <= self.min || now.since(self.min_at) > MIN_WINDOW {
            self.min = rtt;
            self.min_at = now;
        }
        self.backoff = 0;
    }

    /// How long to wait for an ACK, doubled for each timeout in a row (RFC 6298 section 5.5).
    #[inline]
    pub fn timeout(&self) -> Duration {
        let base = if self.srtt == Duration::ZERO {
            INITIAL
        } else {
            self.srtt + Duration(self.variance.0 * 4).max(FLOOR)
        };
        (base * (1 << self.backoff.min(10))).min(CEILING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_sets_the_estimate_and_the_timeout_keeps_its_distance() {
        let mut rto = Rto::default();
        assert_eq!(rto.timeout(), Duration::from_secs(1));
        rto.on_sample(Instant(0), Duration::from_millis(100));
        // RTTVAR = R / 2, RTO = SRTT + 4 RTTVAR
        assert_eq!(rto.timeout(), Duration::from_millis(300));
        for _ in 0..100 {
            rto.on_sample(Instant(0), Duration::from_millis(100));
        }
        assert_eq!(rto.timeout(), Duration::from_millis(300));
        rto.backoff = 2;
        assert_eq!(rto.timeout(), Duration::from_millis(1200));
    }
}
