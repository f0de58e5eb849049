//! Quantiles of a delay over time, whatever the number of its samples.
//!
//! signal: delay samples, with the time at which the sampled segment was sent and how long it was in flight · model:
//! between two samples the delay was that of the first in one half of the time, that of the second in the other. A queue
//! to which nothing is added shortens by a second each second, so a longer delay before a pause lasts for half of its
//! excess, and the rest of the pause has the delay of the second. Time counts as long as the first of the two was in flight:
//! behind that nothing may have been sent · action: a histogram whose weights are times, plus 2 µs for each sample.
//!
//! An ACK that the receiver delayed (RFC 9293 section 3.8.6.3, up to 500 ms; Linux 40 ms) ends a burst that fills the
//! window, and its delay is not the path's. [`DelayedAcks`] recognises it by the number of segments that it acknowledges;
//! such a sample counts, but stands for no time.
//!
//! The analysis and the simulator share this definition, so that a capture of a simulated run has the run's quantiles.
//! The simulator's `queue_ms` takes the time of delivery for the time of sending: see `simulation/frames.rs`.
//!
//! Without weights the quantiles depend on who acknowledges how often. The receiver of a download samples once per tick
//! of its clock, the sender once per ACK; a queue that grows with the rate is sampled more often while it is long. So one
//! transfer had grade C at one end and B at the other.
//!
//! By time sent, not by time of arrival: after a silence of the link ACKs come in a burst, of segments that were sent one
//! after the other.

use crate::{Duration, Histogram, Instant, Quantiles};

/// Weights are counted in these. Each sample has one besides its time, so that a flight sent at one instant has
/// quantiles too, by number: of 10,000 samples a second that is 2 % of the weight. 32 bits hold 2 h 23 min of one delay;
/// beyond that more of it counts no more.
const UNIT_NS: u64 = 2_000;

/// The delay of one segment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    sent: Instant,
    ns: u64,
    in_flight: Duration,
}

/// Delays of one stream, in ns.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    histogram: Histogram,
    count: u64,
    last: Option<Sample>,
    /// Time not yet counted, less than a unit, ns.
    rest: u64,
}

impl Delays {
    /// A segment sent at `sent`, acknowledged `in_flight` later, had a delay of `ns`. `delayed`: its ACK may have been
    /// delayed.
    #[inline]
    pub fn record(&mut self, sent: Instant, ns: u64, in_flight: Duration, delayed: bool) {
        self.count += 1;
        if delayed {
            self.histogram.add(ns, 1);
            return;
        }
        let mut newest = Sample { sent, ns, in_flight };
        let Some(before) = self.last.replace(newest) else {
            self.histogram.add(ns, 1);
            return;
        };
        let span = sent.since(before.sent).min(before.in_flight).0;
        let first = if ns < before.ns { span.min(before.ns - ns) } else { span } / 2 / UNIT_NS;
        let both = (self.rest + span) / UNIT_NS;
        self.rest = (self.rest + span) % UNIT_NS;
        if first > 0 {
            self.histogram.add(before.ns, first);
        }
        self.histogram.add(ns, both - first + 1);
        newest.sent = sent.max(before.sent);
        self.last = Some(newest);
    }

    /// Smallest sample, exact; `None` without samples.
    #[inline]
    pub fn min(&self) -> Option<u64> {
        self.histogram.min()
    }

    /// One quantile over time, in ns; `None` without samples.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        self.histogram.quantile(part)
    }

    /// Quantiles over time with the number of samples, times `scale`; smallest and largest are exact.
    pub fn quantiles(&self, scale: f64) -> Option<Quantiles> {
        Some(Quantiles { count: self.count, ..self.histogram.quantiles(scale)? })
    }
}

/// Which ACKs the receiver may have delayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayedAcks {
    /// The ACK before acknowledged more than one segment.
    several: bool,
}

impl DelayedAcks {
    /// An ACK acknowledges `bytes` more, in segments of `mss`. Returns whether it may have been delayed: one segment
    /// after an ACK of several. A receiver that acknowledges each segment delays none.
    #[inline]
    pub fn ack(&mut self, bytes: u64, mss: u64) -> bool {
        let several = bytes > mss;
        let delayed = self.several && !several && bytes > 0;
        self.several = several || (self.several && bytes == 0);
        delayed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;

    fn of(samples: &[(u64, u64)]) -> Quantiles {
        let mut d = Delays::default();
        for &(sent, delay) in samples {
            d.record(Instant(sent * MS), delay * MS, Duration(delay * MS), false);
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
    fn the_queue_of_a_burst_is_gone_in_the_pause_behind_it() {
        let mut samples = Vec::new();
        for round in 0..50 {
            // Ten segments at once wait for 1 to 10 ms; then nothing for 90 ms.
            samples.extend((0..10).map(|n| (round * 100, 41 + n)));
        }
        let q = of(&samples);
        assert!(near(q.p50, 41.0) && near(q.p95, 50.0), "{q:?}");
        // Half of the 9 ms of excess, of 41 to 50 ms that count of each round.
        let mut longer = samples.clone();
        longer.extend((5_000..6_000).step_by(10).map(|t| (t, 41)));
        assert!(near(of(&longer).p95, 50.0) && near(of(&longer).p50, 41.0));
        longer.extend((6_000..9_000).step_by(10).map(|t| (t, 41)));
        assert!(near(of(&longer).p95, 41.0), "4.5 of 140 ms");
    }

    #[test]
    fn samples_of_one_instant_count_by_number() {
        let q = of(&[(5, 30), (5, 10), (5, 50), (3, 20)]);
        assert_eq!((q.count, q.min, q.max), (4, 10.0, 50.0));
        assert!(near(q.p50, 20.0), "{q:?}");
    }

    #[test]
    fn a_delayed_ack_at_the_end_of_each_burst_is_not_the_delay_of_the_pause_behind_it() {
        let mut d = Delays::default();
        let mut acks = DelayedAcks::default();
        for round in 0..50 {
            // 41 segments of a full window in pairs; the ACK of the last one waits for 40 ms.
            for pair in 0..21 {
                let last = pair == 20;
                let delay = if last { 140 } else { 100 };
                let delayed = acks.ack(if last { 1_448 } else { 2_896 }, 1_448);
                assert_eq!(delayed, last);
                d.record(
                    Instant((round * 100 + pair) * MS),
                    delay * MS,
                    Duration(delay * MS),
                    delayed,
                );
            }
        }
        let q = d.quantiles(1e-6).expect("samples");
        assert!(near(q.p95, 100.0) && near(q.p99, 100.0), "{q:?}");
        assert_eq!(q.max, 140.0);
    }

    #[test]
    fn a_receiver_that_acknowledges_each_segment_delays_none() {
        let mut acks = DelayedAcks::default();
        assert!((0..10).all(|_| !acks.ack(1_448, 1_448)));
        assert!(!acks.ack(2_896, 1_448) && !acks.ack(0, 1_448) && acks.ack(700, 1_448));
        assert!(!acks.ack(700, 1_448), "the second one in turn");
    }

    #[test]
    fn a_microsecond_at_a_time_adds_up() {
        let mut d = Delays::default();
        for i in 0..100_000u64 {
            let ns = if i < 60_000 { MS } else { 9 * MS };
            d.record(Instant(i * 1_000), ns, Duration(ns), false);
        }
        let q = d.quantiles(1e-6).expect("samples");
        assert!(near(q.p50, 1.0) && near(q.p95, 9.0), "{q:?}");
    }
}
