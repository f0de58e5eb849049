//! Quantiles of a delay over time, whatever the number of its samples.
//!
//! signal: RTT samples, with the time at which the sampled segment was sent · model: between two samples the delay was
//! that of the first in one half of the time, that of the second in the other. Time counts as long as the first of the two
//! was in flight: behind that nothing may have been sent · action: a histogram whose weights are times.
//!
//! Without weights the quantiles depend on who acknowledges how often. The receiver of a download samples once per tick
//! of its clock, the sender once per ACK; a queue that grows with the rate is sampled more often while it is long. So one
//! transfer had grade C at one end and B at the other.
//!
//! By time sent, not by time of arrival: after a silence of the link ACKs come in a burst, of segments that were sent one
//! after the other.

use units::{Histogram, Instant, Quantiles};

/// Weights are counted in these: in 10 µs, 32 bits hold 12 h of one delay.
const UNIT_NS: u64 = 10_000;

/// Delays of one stream, in ns.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    held: Histogram,
    count: u64,
    /// When the last sampled segment was sent, and its delay.
    last: Option<(Instant, u64)>,
    /// Time not yet counted, less than two units, ns.
    rest: u64,
}

impl Delays {
    /// A segment sent at `sent` had a delay of `ns`.
    #[inline]
    pub fn record(&mut self, sent: Instant, ns: u64) {
        self.count += 1;
        let Some((before, value)) = self.last else {
            self.held.record(ns);
            self.last = Some((sent, ns));
            return;
        };
        self.rest += sent.since(before).as_nanos().min(value);
        let half = self.rest / (2 * UNIT_NS);
        self.rest %= 2 * UNIT_NS;
        self.held.add(value, half);
        self.held.add(ns, half);
        self.last = Some((sent.max(before), ns));
    }

    /// Smallest sample, exact; `None` without samples.
    #[inline]
    pub fn min(&self) -> Option<u64> {
        self.held.min()
    }

    /// Quantiles over time with the number of samples, times `scale`; smallest and largest are exact.
    pub fn quantiles(&self, scale: f64) -> Option<Quantiles> {
        Some(Quantiles { count: self.count, ..self.held.quantiles(scale)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn of(samples: &[(u64, u64)]) -> Quantiles {
        let mut d = Delays::default();
        for &(sent, delay) in samples {
            d.record(Instant(sent * MS), delay * MS);
        }
        d.quantiles(1e-6).expect("samples")
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected * 0.01
    }

    #[test]
    fn many_samples_of_a_short_time_weigh_as_much_as_few() {
        // 900 ms at 20 ms with a sample every 10 ms, 100 ms at 200 ms with one every millisecond.
        let mut samples: Vec<(u64, u64)> = (0..90).map(|i| (10 * i, 20)).collect();
        samples.extend((900..1000).map(|t| (t, 200)));
        let q = of(&samples);
        assert!(near(q.p50, 20.0) && near(q.p95, 200.0), "{q:?}");
        assert_eq!((q.count, q.min, q.max), (190, 20.0, 200.0));
        samples.extend((1000..2000).step_by(10).map(|t| (t, 20)));
        assert!(near(of(&samples).p95, 200.0));
        samples.extend((2000..4000).step_by(10).map(|t| (t, 20)));
        assert!(near(of(&samples).p95, 20.0), "100 ms of 4 s are 2.5 %");
    }

    #[test]
    fn a_pause_counts_as_long_as_data_was_in_flight_and_a_burst_by_its_ends() {
        let q = of(&[(0, 10), (60_000, 500), (60_000, 400), (60_100, 10)]);
        // 5 ms each at 10 and 500 ms, 50 ms each at 400 and 10 ms.
        assert!(near(q.p50, 10.0) && near(q.p95, 400.0), "{q:?}");
    }

    #[test]
    fn samples_of_one_instant_have_a_value_and_exact_bounds() {
        let q = of(&[(5, 30), (5, 10), (5, 50), (3, 20)]);
        assert_eq!((q.count, q.min, q.max), (4, 10.0, 50.0));
        assert!(near(q.p50, 30.0), "{q:?}");
    }

    #[test]
    fn a_microsecond_at_a_time_adds_up() {
        let mut d = Delays::default();
        for i in 0..100_000u64 {
            d.record(Instant(i * 1_000), if i < 50_000 { MS } else { 9 * MS });
        }
        let q = d.quantiles(1e-6).expect("samples");
        assert!(near(q.p50, 1.0) && near(q.p95, 9.0), "{q:?}");
    }
}
