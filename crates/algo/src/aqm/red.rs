//! RED: random early detection.
//!
//! signal: the average queue length in packets, a slow moving average · model: between two thresholds
//! the drop probability rises linearly, and further with the packets since the last drop, which spaces
//! the drops evenly · action: drop (or mark) arriving packets early; above the upper threshold drop all.
//!
//! Sources: Floyd, Jacobson: "Random Early Detection Gateways for Congestion Avoidance", 1993. `gentle`
//! continues the line from `max_p` at the upper threshold to 1 at twice that (Floyd, "Recommendation on
//! using the gentle_ variant of RED", 2000). `adaptive` changes `max_p` to keep the average half way
//! between the thresholds (Floyd, Gummadi, Shenker: "Adaptive RED", 2001).
//!
//! Deviations: above the thresholds ECN-capable packets are dropped, too (RFC 3168 section 7).
//! Adaptation happens at the first arrival after each half second, as in ns-2, because the average
//! changes only there. The time of a packet on an idle link is an MTU at the link's rate, or, if that is
//! unknown, the last one observed.

use units::{Bytes, Duration, Instant};

use super::fifo::Fifo;
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Capacity, Ecn, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "red";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "drops arrivals with a probability that rises with the average queue length";
/// Where it is specified.
pub const SOURCE: &str = "Floyd and Jacobson 1993";

config! {
    /// Parameters; their defaults are the published values.
    pub struct Config {
        /// Average length below which nothing is dropped, packets: 5 (1993, section 6).
        min: f64 = 5.0, 0.0, 1e9;
        /// Average length from which on all arrivals are dropped, packets: 15, three times `min` (Floyd, "RED: Discussions of
        /// Setting Parameters", 1997).
        max: f64 = 15.0, 0.0, 1e9;
        /// Probability at `max`: 1/50 (1993, section 6).
        max_p: f64 = 0.02, 0.0, 1.0;
        /// Weight of the length at each arrival: 0.002 (1993, section 6).
        weight: f64 = 0.002, 1e-9, 1.0;
        /// Let the probability rise from `max_p` at `max` to 1 at twice `max`.
        gentle: bool = false;
        /// Adapt `max_p` to the load.
        adaptive: bool = false;
        /// Largest queue. 1,000 packets is Linux's default `txqueuelen`.
        limit: Capacity = Capacity::Packets(1_000), Capacity::Packets(1), Capacity::Packets(1 << 40);
        /// Mark packets that can carry a mark instead of dropping them.
        ecn: bool = false;
    }
}

/// The decision about an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Pass,
    /// Early drop; with ECN, a mark instead.
    Signal,
    /// The average is above the upper end of the line.
    Refuse,
}

/// One queue under RED.
#[derive(Clone, Debug)]
pub struct Red {
    config: Config,
    queue: Fifo,
    average: f64,
    max_p: f64,
    /// Packets since the last drop with the average between the thresholds; -1 while it is below.
    since_drop: i64,
    idle_since: Option<Instant>,
    /// Time that a packet needs on the link.
    service: Duration,
    measures_service: bool,
    last_departure: Option<Instant>,
    adapted: Instant,
    marks: u64,
}

/// Adaptive RED section 4: time between adaptations.
const ADAPT_EVERY: Duration = Duration::from_millis(500);
/// Adaptive RED section 4: `max_p` stays between 1 % and 50 %.
const MAX_P_RANGE: (f64, f64) = (0.01, 0.5);
/// Adaptive RED section 4: the additive increase of `max_p`; at most a quarter of it.
const RISE: f64 = 0.01;
/// Adaptive RED section 4: the factor of its decrease.
const FALL: f64 = 0.9;

impl Red {
    /// A new, empty queue.
    pub fn new(config: Config, setup: &Setup) -> Red {
        let service = setup.rate.map(|rate| setup.mtu / rate);
        Red {
            queue: Fifo::default(),
            average: 0.0,
            max_p: config.max_p,
            since_drop: -1,
            idle_since: Some(Instant::ZERO),
            service: service.unwrap_or(Duration::ZERO),
            measures_service: service.is_none(),
            last_departure: None,
            adapted: Instant::ZERO,
            marks: 0,
            config,
        }
    }

    /// 1993, section 4: the moving average. While the queue is empty it falls as if packets had arrived
    /// at an empty queue, as many as the link could have sent.
    #[inline]
    fn measure(&mut self, now: Instant) {
        match self.idle_since.take() {
            Some(since) if self.service > Duration::ZERO => {
                let packets = now.since(since).0 as f64 / self.service.0 as f64;
                self.average *= libm::pow(1.0 - self.config.weight, packets);
            }
            _ => self.average += self.config.weight * (self.queue.len() as f64 - self.average),
        }
    }

    /// Adaptive RED, section 4: adapts `max_p`.
    #[inline]
    fn adapt(&mut self, now: Instant) {
        if now.since(self.adapted) < ADAPT_EVERY {
            return;
        }
        self.adapted = now;
        let span = self.config.max - self.config.min;
        if self.average > self.config.min + 0.6 * span && self.max_p <= MAX_P_RANGE.1 {
            self.max_p += RISE.min(self.max_p / 4.0);
        } else if self.average < self.config.min + 0.4 * span && self.max_p >= MAX_P_RANGE.0 {
            self.max_p *= FALL;
        }
    }

    /// p_b: the probability on the line; `None` above its upper end.
    #[inline]
    fn line(&self) -> Option<f64> {
        let (min, max, average) = (self.config.min, self.config.max, self.average);
        if average < max {
            return Some(self.max_p * (average - min) / (max - min));
        }
        // Floyd 2000: the gentle variant.
        (self.config.gentle && average < 2.0 * max)
            .then(|| self.max_p + (1.0 - self.max_p) * (average - max) / max)
    }

    /// The decision of 1993, section 4 and figure 2.
    #[inline]
    fn judge(&mut self, rng: &mut Rng) -> Verdict {
        if self.average < self.config.min {
            self.since_drop = -1;
            return Verdict::Pass;
        }
        let Some(p) = self.line() else {
            self.since_drop = 0;
            return Verdict::Refuse;
        };
        self.since_drop = self.since_drop.saturating_add(1);
        if rng.chance(even(p, self.since_drop)) {
            self.since_drop = 0;
            Verdict::Signal
        } else {
            Verdict::Pass
        }
    }
}

/// p_a = p_b / (1 − count · p_b): makes the distance between drops uniform in 1 .. 1/p_b instead of geometric (1993,
/// section 7, method 2).
#[inline]
fn even(p: f64, count: i64) -> f64 {
    let left = 1.0 - count as f64 * p;
    if left <= p { 1.0 } else { p / left }
}

impl QueueDiscipline for Red {
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, rng: &mut Rng) {
        packet.enqueued = now;
        self.measure(now);
        if self.config.adaptive {
            self.adapt(now);
        }
        let verdict = self.judge(rng);
        let kept = match verdict {
            Verdict::Pass => true,
            Verdict::Signal => self.config.ecn && packet.ecn.is_capable(),
            Verdict::Refuse => false,
        };
        if !kept {
            dropped.push((packet, Drop::Aqm));
        } else if self.queue.has_space(&packet, self.config.limit) {
            if verdict == Verdict::Signal {
                packet.ecn = Ecn::Marked;
                self.marks += 1;
            }
            self.queue.push(packet);
        } else {
            self.since_drop = 0;
            dropped.push((packet, Drop::Overflow));
        }
        // The average excludes this packet: a queue that is still empty stays idle.
        if self.queue.len() == 0 {
            self.idle_since = Some(now);
        }
    }

    fn dequeue(&mut self, now: Instant, _dropped: &mut Dropped, _rng: &mut Rng) -> Option<Packet> {
        let packet = self.queue.pop()?;
        if self.measures_service {
            if let Some(last) = self.last_departure {
                self.service = now.since(last);
            }
            // The link sets the pace only between two departures of a queue that was never empty.
            self.last_departure = (self.queue.len() > 0).then_some(now);
        }
        if self.queue.len() == 0 {
            self.idle_since = Some(now);
        }
        Some(packet)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn backlog(&self) -> Bytes {
        self.queue.bytes()
    }

    fn state(&self) -> State {
        let probability =
            if self.average < self.config.min { 0.0 } else { self.line().unwrap_or(1.0) };
        State {
            packets: self.queue.len() as u64,
            bytes: self.queue.bytes(),
            probability: Some(probability),
            marks: self.marks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use units::Rate;

    fn red(config: Config) -> Red {
        Red::new(config, &Setup { rate: Some(Rate(12_000_000)), ..Setup::default() })
    }

    fn at(average: f64, config: Config) -> Red {
        Red { average, ..red(config) }
    }

    // 1993, section 4: p_b rises from 0 at min to max_p at max; gentle goes on to 1 at twice max.
    #[test]
    fn the_probability_lies_on_the_published_line() {
        assert_eq!(at(4.9, Config::default()).state().probability, Some(0.0));
        let p = at(10.0, Config::default()).state().probability.expect("RED has one");
        assert!((p - 0.01).abs() < 1e-12);
        assert_eq!(at(15.0, Config::default()).state().probability, Some(1.0));
        let gentle = Config { gentle: true, ..Config::default() };
        let p = at(22.5, gentle.clone()).state().probability.expect("RED has one");
        assert!((p - (0.02 + 0.98 / 2.0)).abs() < 1e-12);
        assert_eq!(at(30.0, gentle).state().probability, Some(1.0));
    }

    // 1993, section 7, method 2: the distance between drops is uniform in 1 .. 1/p_b.
    #[test]
    fn drops_come_at_distances_uniform_between_1_and_the_inverse_of_the_probability() {
        assert_eq!(even(0.02, 0), 0.02);
        assert!((even(0.02, 25) - 0.04).abs() < 1e-12);
        assert!(even(0.02, 49) > 0.999_999);
        assert_eq!(even(0.02, 500), 1.0);
        let (mut rng, mut gap, mut gaps) = (Rng::new(1, "test"), 0, Vec::new());
        // The first distance, from below the threshold, is one longer by definition: count begins at -1.
        let mut queue = Red { since_drop: 0, ..at(10.0, Config::default()) };
        for _ in 0..200_000 {
            gap += 1;
            if queue.judge(&mut rng) == Verdict::Signal {
                gaps.push(gap);
                gap = 0;
            }
        }
        // p_b = 1 %: every distance from 1 to 99, mean 50.
        let mean = gaps.iter().sum::<u32>() as f64 / gaps.len() as f64;
        assert!((mean - 50.0).abs() < 1.5, "{mean}");
        assert_eq!((gaps.iter().min(), gaps.iter().max()), (Some(&1), Some(&99)));
    }

    // 1993, section 4: avg ← (1 − w_q)^m · avg after m packet times of idleness.
    #[test]
    fn an_idle_queue_forgets_at_the_pace_of_the_link() {
        let mut queue = Red { idle_since: Some(Instant::ZERO), ..at(10.0, Config::default()) };
        // 1,500 bytes need 1 ms at 12 Mbit/s.
        queue.measure(Instant(500_000_000));
        assert!((queue.average - 10.0 * 0.998_f64.powi(500)).abs() < 1e-9);
        let before = queue.average;
        queue.queue.push(Packet { bytes: 1_500, ..Packet::default() });
        queue.measure(Instant(500_000_000));
        assert!((queue.average - (0.998 * before + 0.002)).abs() < 1e-12);
    }

    #[test]
    fn without_a_known_rate_the_pace_is_that_of_the_last_departures() {
        let mut queue = Red::new(Config::default(), &Setup::default());
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        for _ in 0..3 {
            queue.enqueue(
                Instant(5),
                Packet { bytes: 1_500, ..Packet::default() },
                &mut dropped,
                &mut rng,
            );
        }
        for t in [10, 25, 40, 90] {
            queue.dequeue(Instant(t), &mut dropped, &mut rng);
        }
        assert_eq!(queue.service, Duration(15));
    }

    // Adaptive RED section 4.
    #[test]
    fn the_adaptive_variant_moves_max_p_towards_the_middle_of_the_thresholds() {
        let mut queue = at(14.0, Config { adaptive: true, ..Config::default() });
        queue.adapt(Instant(499_000_000));
        assert_eq!(queue.max_p, 0.02);
        queue.adapt(Instant(500_000_000));
        assert!((queue.max_p - 0.025).abs() < 1e-12, "a quarter of max_p");
        queue.average = 10.0;
        queue.adapt(Instant(1_000_000_000));
        assert!((queue.max_p - 0.025).abs() < 1e-12, "within 40 to 60 %");
        queue.average = 8.9;
        queue.adapt(Instant(1_500_000_000));
        assert!((queue.max_p - 0.0225).abs() < 1e-12);
    }

    // RFC 3168 section 7.
    #[test]
    fn early_signals_are_marks_with_ecn_and_above_the_upper_threshold_everything_is_dropped() {
        let config = Config { ecn: true, max_p: 1.0, ..Config::default() };
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        let packet = Packet { bytes: 1_500, ecn: Ecn::Capable0, ..Packet::default() };
        let mut queue = at(14.0, Config { weight: 1e-9, ..config });
        queue.idle_since = None;
        for _ in 0..10 {
            queue.enqueue(Instant::ZERO, packet, &mut dropped, &mut rng);
        }
        assert!(dropped.is_empty() && queue.state().marks > 0);
        queue.average = 16.0;
        queue.enqueue(Instant::ZERO, packet, &mut dropped, &mut rng);
        assert_eq!(dropped.len(), 1);
        assert_eq!(dropped[0].1, Drop::Aqm);
    }
}
