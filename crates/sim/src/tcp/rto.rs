//! Smoothed round-trip time and retransmission timeout.
//!
//! signal: RTT samples · model: RFC 6298, with what Linux has beside it (`tcp_rtt_estimator`): the variance term is at least
//! 200 ms (`tcp_rto_min_us`), so that the RTO never comes closer than that to the smoothed RTT. It grows at once, and shrinks
//! by a quarter of the difference per round trip, not per sample. A sample below the smoothed RTT moves the deviation by an
//! eighth of the usual · action: [`Rto::timeout`].

use units::{Duration, Instant};

/// Before the first sample (RFC 6298 section 2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// Smallest variance term (Linux `TCP_RTO_MIN`): four deviations.
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
    /// Mean deviation of the samples.
    deviation: Duration,
    /// Its largest value in this round trip, four times; at least [`FLOOR`].
    widest: Duration,
    /// What the RTO has beyond the smoothed RTT.
    variance: Duration,
    /// The round trip ends when this is acknowledged.
    round_end: u64,
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
            deviation: Duration::ZERO,
            widest: FLOOR,
            variance: FLOOR,
            round_end: 0,
            min: Duration::MAX,
            min_at: Instant::ZERO,
            backoff: 0,
        }
    }
}

impl Rto {
    /// Takes a sample in (RFC 6298 section 2.2 and 2.3), that of an ACK up to `una` while all up to `nxt` is sent.
    #[inline]
    pub fn on_sample(&mut self, now: Instant, rtt: Duration, una: u64, nxt: u64) {
        if self.srtt == Duration::ZERO {
            self.srtt = rtt.max(Duration(1));
            self.deviation = Duration(rtt.0 / 2);
            self.variance = (self.deviation * 4).max(FLOOR);
            self.widest = self.variance;
            self.round_end = nxt;
        } else {
            let error = self.srtt.0.abs_diff(rtt.0);
            let larger = error.saturating_sub(self.deviation.0);
            let gain = if rtt < self.srtt { 32 } else { 4 };
            let smaller = self.deviation.0.saturating_sub(error);
            self.deviation = Duration(self.deviation.0 + larger / gain - smaller / 4);
            self.widest = self.widest.max(self.deviation * 4);
            self.variance = self.variance.max(self.widest);
            if una > self.round_end {
                self.variance.0 -= (self.variance.0 - self.widest.0) / 4;
                (self.round_end, self.widest) = (nxt, FLOOR);
            }
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
        let base = if self.srtt == Duration::ZERO { INITIAL } else { self.srtt + self.variance };
        (base * (1 << self.backoff.min(10))).min(CEILING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_first_sample_sets_the_estimate_and_the_timeout_keeps_its_distance() {
        let mut rto = Rto::default();
        assert_eq!(rto.timeout(), MS(1000));
        rto.on_sample(Instant(0), MS(100), 0, 1);
        // RTTVAR = R / 2, RTO = SRTT + 4 RTTVAR
        assert_eq!(rto.timeout(), MS(300));
        for _ in 0..100 {
            rto.on_sample(Instant(0), MS(100), 0, 1);
        }
        assert_eq!(rto.timeout(), MS(300));
        rto.backoff = 2;
        assert_eq!(rto.timeout(), MS(1200));
    }

    #[test]
    fn a_late_round_trip_lengthens_the_timeout_for_several_others() {
        let mut rto = Rto::default();
        // Ten ACKs per round trip.
        let mut round = |n: u64, rtt_ms: u64| {
            for i in 1..=10 {
                rto.on_sample(Instant(0), MS(rtt_ms), 10 * n + i, 10 * n + 10);
            }
            rto.variance.0 as f64 / 1e6
        };
        assert_eq!(round(0, 100), 200.0);
        let late = round(1, 700);
        assert!(late > 500.0, "{late}");
        let after: Vec<f64> = (2..30).map(|n| round(n, 100)).collect();
        // No round trip takes more than a quarter of what is above the floor; RFC 6298 alone would be there in one.
        assert!(after.windows(2).all(|w| w[1] <= w[0] && w[1] - 200.0 > 0.74 * (w[0] - 200.0)));
        assert!(after[27] < 210.0, "{after:?}");
    }
}
