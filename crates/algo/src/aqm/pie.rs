//! PIE: a proportional integral controller of the queueing delay.
//!
//! signal: the queueing delay, every 15 ms · model: a drop probability that changes with the delay's
//! distance from a target and with its trend · action: drop (or mark) arriving packets with that
//! probability, except while a burst is allowed. Source: RFC 8033, with the options of its section 5 as
//! parameters.
//!
//! The controller needs no timer: its inputs do not change between two packets, so the updates that were
//! due happen at the next packet, with the same result.
//!
//! Deviations: unless `estimate = "rate"`, the delay is the sojourn time of the packet that left last,
//! and zero if the queue is empty, as in Linux (RFC 8033 section 4.3 allows both). MEAN_PKTSIZE is the
//! MTU, as in Linux. Linux's extra 2 % above 250 ms is not in the RFC and not here.

use units::{Bytes, Duration, Instant};

use super::fifo::Fifo;
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Capacity, Ecn, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "pie";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "drops arrivals with a probability that keeps the queueing delay at a target";
/// Where it is specified.
pub const SOURCE: &str = "RFC 8033";

choice! {
    /// The source of the queueing delay (RFC 8033 section 4.3).
    pub enum Estimate {
        /// The sojourn time of the packet that left last.
        Timestamp = "timestamp",
        /// Backlog over the departure rate, measured as in RFC 8033 section 5.2.
        Rate = "rate",
    }
}

config! {
    /// Parameters; their defaults are the published values.
    pub struct Config {
        /// Target of the queueing delay: QDELAY_REF, 15 ms (RFC 8033 section 4.2).
        target: Duration = Duration::from_millis(15), Duration::from_micros(1), Duration::from_secs(60);
        /// Time between updates of the probability: T_UPDATE, 15 ms (RFC 8033 section 4.2).
        update: Duration = Duration::from_millis(15), Duration::from_micros(10), Duration::from_secs(10);
        /// Weight of the distance from the target, per second: 1/8 (RFC 8033 section 4.2).
        alpha: f64 = 0.125, 0.0, 100.0;
        /// Weight of the change since the last update, per second: 1 1/4 (RFC 8033 section 4.2).
        beta: f64 = 1.25, 0.0, 100.0;
        /// Burst that passes without random drops: MAX_BURST, 150 ms (RFC 8033 section 4.4).
        burst: Duration = Duration::from_millis(150), Duration::ZERO, Duration::from_secs(60);
        /// Largest queue. 1,000 packets is Linux's default (`sch_pie.c`).
        limit: Capacity = Capacity::Packets(1_000), Capacity::Packets(1), Capacity::Packets(1 << 40);
        /// Mark packets that can carry a mark instead of dropping them (RFC 8033 section 5.1, optional).
        ecn: bool = false;
        /// Probability above which packets are dropped even with ECN: mark_ecnth, 10 % (RFC 8033 section 5.1).
        ecn_threshold: f64 = 0.1, 0.0, 1.0;
        /// `timestamp`, or `rate`: backlog over a measured departure rate (RFC 8033 section 5.2).
        estimate: Estimate = Estimate::Timestamp;
        /// Spreads drops evenly: none before the probabilities since the last drop add up to 0.85, certainly one at 8.5
        /// (RFC 8033 section 5.4, optional; always on in Linux). The share of drops is then below the probability.
        derandomize: bool = true;
        /// Sleeps until a third of `limit` is used (RFC 8033 section 5.3, optional; Linux does not).
        sleeps: bool = false;
        /// Drops small packets less, in proportion to their size (Linux's `bytemode`).
        bytemode: bool = false;
    }
}

/// The controller without its queue.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Controller {
    probability: f64,
    accumulated: f64,
    burst_left: Duration,
    delay: Duration,
    delay_before: Duration,
}

/// RFC 8033 section 4.2: a small probability changes in small steps. Upper bounds and divisors.
const STEPS: [(f64, f64); 6] =
    [(1e-6, 2_048.0), (1e-5, 512.0), (1e-4, 128.0), (1e-3, 32.0), (1e-2, 8.0), (1e-1, 2.0)];

/// RFC 8033 section 4.2: from this probability on, one step adds at most 2 %.
const CAPPED_FROM: f64 = 0.1;
const MAX_STEP: f64 = 0.02;
/// RFC 8033 section 4.2: factor of the probability at an update without any delay.
const DECAY: f64 = 0.98;
/// RFC 8033 section 5.4: below this sum of probabilities, no packet is dropped.
const MIN_SUM: f64 = 0.85;
/// RFC 8033 section 5.4: at this sum of probabilities, the packet is dropped in any case.
const MAX_SUM: f64 = 8.5;
/// RFC 8033 section 4.1: below this probability, all packets pass if the delay is below half the target.
const SAFE: f64 = 0.2;

impl Controller {
    fn new(burst: Duration) -> Controller {
        Controller {
            probability: 0.0,
            accumulated: 0.0,
            burst_left: burst,
            delay: Duration::ZERO,
            delay_before: Duration::ZERO,
        }
    }

    /// Sections 4.2 and 4.4: one update with the current delay.
    fn update(&mut self, config: &Config) {
        let mut step = config.alpha * (self.delay.as_secs_f64() - config.target.as_secs_f64())
            + config.beta * (self.delay.as_secs_f64() - self.delay_before.as_secs_f64());
        if let Some((_, divisor)) = STEPS.iter().find(|(below, _)| self.probability < *below) {
            step /= divisor;
        }
        if self.probability >= CAPPED_FROM {
            step = step.min(MAX_STEP);
        }
        let mut p = self.probability + step;
        if self.delay == Duration::ZERO && self.delay_before == Duration::ZERO {
            p *= DECAY;
        }
        self.probability = p.clamp(0.0, 1.0);

        let half = config.target / 2;
        if self.probability == 0.0 && self.delay < half && self.delay_before < half {
            self.burst_left = config.burst;
        } else {
            self.burst_left = self.burst_left.saturating_sub(config.update);
        }
        self.delay_before = self.delay;
    }

    /// Whether further updates with the same delay change nothing.
    fn at_rest(&self, config: &Config) -> bool {
        self.probability == 0.0
            && self.delay == Duration::ZERO
            && self.delay_before == Duration::ZERO
            && self.burst_left == config.burst
    }

    /// Sections 4.1, 4.4 and 5.4: whether to drop or mark the arriving packet.
    #[inline]
    fn signals(
        &mut self,
        config: &Config,
        packet: &Packet,
        backlog: Bytes,
        mtu: Bytes,
        rng: &mut Rng,
    ) -> bool {
        if self.burst_left > Duration::ZERO {
            return false;
        }
        if (self.delay_before < config.target / 2 && self.probability < SAFE) || backlog <= mtu * 2
        {
            return false;
        }
        let mut p = self.probability;
        if config.bytemode {
            p *= (f64::from(packet.bytes) / mtu.0.max(1) as f64).min(1.0);
        }
        if config.derandomize {
            self.accumulated = if p > 0.0 { self.accumulated + p } else { 0.0 };
            if self.accumulated < MIN_SUM {
                return false;
            }
            if self.accumulated >= MAX_SUM {
                self.accumulated = 0.0;
                return true;
            }
        }
        let signal = rng.chance(p);
        if signal {
            self.accumulated = 0.0;
        }
        signal
    }
}

/// RFC 8033 section 5.2: bytes of one measurement of the departure rate, DQ_THRESHOLD = 2¹⁴.
const RATE_BYTES: u64 = 16_384;
/// RFC 8033 section 5.2: weight of a new measurement, DQ_THRESHOLD / 2¹⁶.
const RATE_WEIGHT: f64 = 0.25;

/// Section 5.2: the time that [`RATE_BYTES`] need to leave, measured only while the queue is long enough
/// to keep the link busy.
#[derive(Clone, Copy, Debug, Default)]
struct Departures {
    since: Option<Instant>,
    bytes: u64,
    average_ns: f64,
}

impl Departures {
    #[inline]
    fn on_departure(&mut self, now: Instant, bytes: u32, left: Bytes) {
        let Some(since) = self.since else {
            if left.0 >= RATE_BYTES {
                self.since = Some(now);
                self.bytes = 0;
            }
            return;
        };
        self.bytes += u64::from(bytes);
        if self.bytes < RATE_BYTES {
            return;
        }
        // Scaled to RATE_BYTES: whole packets rarely add up to it.
        let took = now.since(since).0 as f64 * RATE_BYTES as f64 / self.bytes as f64;
        self.average_ns = if self.average_ns == 0.0 {
            took
        } else {
            took * RATE_WEIGHT + self.average_ns * (1.0 - RATE_WEIGHT)
        };
        self.since = (left.0 >= RATE_BYTES).then_some(now);
        self.bytes = 0;
    }

    /// The delay; zero before the first measurement.
    #[inline]
    fn delay(&self, backlog: Bytes) -> Duration {
        Duration((backlog.0 as f64 * self.average_ns / RATE_BYTES as f64) as u64)
    }
}

/// One queue under the PIE controller.
#[derive(Clone, Debug)]
pub struct Pie {
    config: Config,
    mtu: Bytes,
    queue: Fifo,
    controller: Controller,
    departures: Departures,
    next_update: Option<Instant>,
    awake: bool,
    marks: u64,
}

impl Pie {
    /// A new, empty queue.
    pub fn new(config: Config, setup: &Setup) -> Pie {
        let update = Duration(config.update.0.max(1));
        let awake = !config.sleeps;
        Pie {
            mtu: setup.mtu,
            queue: Fifo::default(),
            controller: Controller::new(config.burst),
            departures: Departures::default(),
            next_update: None,
            awake,
            marks: 0,
            config: Config { update, ..config },
        }
    }

    /// Carries out the updates that were due since the last packet.
    #[inline]
    fn catch_up(&mut self, now: Instant) {
        match self.next_update {
            None => self.next_update = Some(now + self.config.update),
            Some(at) if now >= at => self.run_updates(now, at),
            Some(_) => {}
        }
    }

    fn run_updates(&mut self, now: Instant, mut at: Instant) {
        while at <= now {
            if self.config.estimate == Estimate::Rate {
                self.controller.delay = self.departures.delay(self.queue.bytes());
            }
            let before = self.controller;
            self.controller.update(&self.config);
            at = at + self.config.update;
            // Section 5.3: the controller sleeps when the congestion is over.
            if self.config.sleeps && self.controller.at_rest(&self.config) {
                self.awake = false;
            }
            // If one update changes nothing, the next does not either: skip hours without a packet.
            if self.controller == before {
                let periods = now.since(at).0 / self.config.update.0;
                at = at + self.config.update * periods;
                if at <= now {
                    at = at + self.config.update;
                }
            }
            // Saturated: the end of time.
            if at == Instant(u64::MAX) {
                break;
            }
        }
        self.next_update = Some(at);
    }

    /// Section 5.3: wakes when a third of the limit is used.
    #[inline]
    fn wake(&mut self) {
        let third = match self.config.limit {
            Capacity::Packets(n) => self.queue.len() as u64 >= n / 3,
            Capacity::Bytes(b) => self.queue.bytes().0 >= b.0 / 3,
        };
        if third {
            self.awake = true;
            self.controller = Controller::new(self.config.burst);
        }
    }
}

impl QueueDiscipline for Pie {
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, rng: &mut Rng) {
        self.catch_up(now);
        packet.enqueued = now;
        if !self.queue.has_space(&packet, self.config.limit) {
            self.controller.accumulated = 0.0;
            dropped.push((packet, Drop::Overflow));
            return;
        }
        if !self.awake {
            self.wake();
        } else if self.controller.signals(&self.config, &packet, self.queue.bytes(), self.mtu, rng)
        {
            // Section 5.1: mark instead of drop.
            if self.config.ecn
                && packet.ecn.is_capable()
                && self.controller.probability <= self.config.ecn_threshold
            {
                packet.ecn = Ecn::Marked;
                self.marks += 1;
            } else {
                dropped.push((packet, Drop::Aqm));
                return;
            }
        }
        self.queue.push(packet);
    }

    fn dequeue(&mut self, now: Instant, _dropped: &mut Dropped, _rng: &mut Rng) -> Option<Packet> {
        self.catch_up(now);
        let packet = self.queue.pop()?;
        match self.config.estimate {
            Estimate::Rate => self.departures.on_departure(now, packet.bytes, self.queue.bytes()),
            Estimate::Timestamp if self.queue.len() == 0 => self.controller.delay = Duration::ZERO,
            Estimate::Timestamp => self.controller.delay = now.since(packet.enqueued),
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
        State {
            packets: self.queue.len() as u64,
            bytes: self.queue.bytes(),
            probability: Some(self.controller.probability),
            marks: self.marks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(probability: f64, delay_ms: u64, before_ms: u64) -> Controller {
        Controller {
            probability,
            delay: Duration::from_millis(delay_ms),
            delay_before: Duration::from_millis(before_ms),
            ..Controller::new(Duration::ZERO)
        }
    }

    // RFC 8033 section 4.2: the table of divisors, at both sides of each bound.
    #[test]
    fn the_step_is_scaled_down_by_the_table_while_the_probability_is_small() {
        // 35 ms after 25 ms: 0.125 · 0.020 + 1.25 · 0.010.
        let full = 0.125 * 0.020 + 1.25 * 0.010;
        let table = [
            (5e-7, 2_048.0),
            (1e-6, 512.0),
            (5e-6, 512.0),
            (1e-5, 128.0),
            (5e-5, 128.0),
            (1e-4, 32.0),
            (5e-4, 32.0),
            (1e-3, 8.0),
            (5e-3, 8.0),
            (1e-2, 2.0),
            (5e-2, 2.0),
            (1e-1, 1.0),
            (5e-1, 1.0),
        ];
        for (p, divisor) in table {
            let mut controller = at(p, 35, 25);
            controller.update(&Config::default());
            let step = controller.probability - p;
            assert!(
                (step - full / divisor).abs() < 1e-12,
                "at {p}: {step}, not {}",
                full / divisor
            );
        }
    }

    // RFC 8033 section 4.2.
    #[test]
    fn a_step_adds_two_per_cent_at_most_once_ten_are_reached() {
        let mut controller = at(0.1, 900, 100);
        controller.update(&Config::default());
        assert!((controller.probability - 0.12).abs() < 1e-12);
        let mut small = at(0.05, 900, 100);
        small.update(&Config::default());
        assert!(small.probability > 0.5, "no cap below");
    }

    // RFC 8033 section 4.2.
    #[test]
    fn without_delay_the_probability_decays_and_stays_a_probability() {
        let mut controller = at(0.5, 0, 0);
        controller.update(&Config::default());
        assert!((controller.probability - (0.5 - 0.125 * 0.015) * 0.98).abs() < 1e-12);
        for _ in 0..5_000 {
            controller.update(&Config::default());
        }
        assert_eq!(controller.probability, 0.0);
        let mut high = at(0.99, 60_000, 0);
        high.update(&Config::default());
        high.update(&Config::default());
        assert_eq!(high.probability, 1.0);
    }

    // RFC 8033 section 4.4: 150 ms without drops, then 15 ms less with each update, and all of it again after rest.
    #[test]
    fn a_burst_passes_for_150_ms_and_the_allowance_comes_back_when_the_queue_has_been_short() {
        let config = Config::default();
        let mut controller =
            Controller { delay: Duration::from_millis(40), ..Controller::new(config.burst) };
        for n in 1..=10_u64 {
            controller.update(&config);
            assert_eq!(controller.burst_left, Duration::from_millis(150 - 15 * n));
        }
        controller.probability = 1.0;
        let (packet, mut rng) = (Packet { bytes: 1_500, ..Packet::default() }, Rng::new(1, "test"));
        let mut signals =
            |c: &mut Controller| c.signals(&config, &packet, Bytes(9_000), Bytes(1_500), &mut rng);
        assert!((0..9).any(|_| signals(&mut controller)), "the allowance is used up");
        controller.burst_left = Duration::from_millis(1);
        assert!((0..9).all(|_| !signals(&mut controller)));
        let mut rested = at(0.0, 7, 7);
        rested.update(&config);
        assert_eq!(rested.burst_left, Duration::from_millis(150));
    }

    // RFC 8033 section 4.1.
    #[test]
    fn a_short_queue_or_a_short_delay_at_low_probability_passes() {
        let config = Config { derandomize: false, ..Config::default() };
        let (packet, mut rng) = (Packet { bytes: 1_500, ..Packet::default() }, Rng::new(1, "test"));
        let mut signals = |c: Controller, backlog| {
            let mut c = c;
            (0..200).any(|_| c.signals(&config, &packet, Bytes(backlog), Bytes(1_500), &mut rng))
        };
        assert!(!signals(at(0.9, 50, 50), 3_000), "two packets");
        assert!(signals(at(0.9, 50, 50), 3_001));
        assert!(!signals(at(0.19, 7, 7), 90_000), "half of the target, below 20 %");
        assert!(signals(at(0.21, 7, 7), 90_000));
    }

    // RFC 8033 section 5.4.
    #[test]
    fn drops_are_never_closer_than_0_85_nor_farther_than_8_5_over_the_probability() {
        let config = Config::default();
        let (packet, mut rng) = (Packet { bytes: 1_500, ..Packet::default() }, Rng::new(1, "test"));
        let (mut controller, mut gap, mut gaps) = (at(0.05, 50, 50), 0_u32, alloc::vec::Vec::new());
        for _ in 0..100_000 {
            gap += 1;
            if controller.signals(&config, &packet, Bytes(90_000), Bytes(1_500), &mut rng) {
                gaps.push(gap);
                gap = 0;
            }
        }
        assert!(gaps.iter().all(|g| (17..=170).contains(g)), "{:?}", gaps.iter().max());
        assert_eq!(gaps.iter().min(), Some(&17));
    }

    fn overload(config: Config, ecn: Ecn, seconds: u64) -> (Pie, u64, u64, u64) {
        // 12 Mbit/s to a link of 10: a packet each ms comes, one each 1.2 ms goes.
        let mut pie = Pie::new(config, &Setup::default());
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        let (mut drops, mut late, mut sent, mut next) = (0, 0, 0, 0);
        for t in 0..seconds * 1_000 {
            let packet = Packet { bytes: 1_500, ecn, ..Packet::default() };
            pie.enqueue(Instant(t * MS), packet, &mut dropped, &mut rng);
            drops += dropped.len() as u64;
            dropped.clear();
            while next <= t * MS {
                if let Some(p) = pie.dequeue(Instant(t * MS), &mut dropped, &mut rng) {
                    sent += 1;
                    late += u64::from(t * MS - p.enqueued.0 > 30 * MS && t > 10_000);
                }
                next += 1_200_000;
            }
        }
        (pie, drops, late, sent)
    }

    #[test]
    fn both_estimates_hold_an_overloaded_queue_near_the_reference() {
        for estimate in [Estimate::Timestamp, Estimate::Rate] {
            // Without section 5.4, under which fewer packets are dropped than the probability says.
            let config = Config { estimate, derandomize: false, ..Config::default() };
            let (pie, drops, late, sent) = overload(config, Ecn::NotCapable, 60);
            let p = pie.state().probability.expect("PIE has one");
            // A sixth is too much.
            assert!((0.12..0.22).contains(&p), "{estimate:?}: {p}");
            assert!(drops > 5_000, "{estimate:?}: {drops}");
            assert!(
                (late as f64) < sent as f64 * 0.05,
                "{estimate:?}: {late} of {sent} waited over 30 ms"
            );
        }
    }

    // RFC 8033 section 5.1: marks up to 10 %, drops beyond, which is where a sixth of overload ends.
    #[test]
    fn with_ecn_packets_are_marked_until_the_probability_passes_the_threshold() {
        let config = Config { ecn: true, ..Config::default() };
        let (pie, drops, ..) = overload(config.clone(), Ecn::Capable0, 60);
        assert!(pie.state().marks > 0 && drops > 0);
        let (pie, drops, ..) = overload(Config { ecn_threshold: 1.0, ..config }, Ecn::Capable0, 2);
        assert!(pie.state().marks > 0);
        assert_eq!(drops, 0);
    }

    // RFC 8033 section 5.3.
    #[test]
    fn asleep_it_leaves_a_queue_alone_that_uses_less_than_a_third() {
        let config = Config { sleeps: true, limit: Capacity::Packets(90), ..Config::default() };
        let mut pie = Pie::new(config, &Setup::default());
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        for n in 0..40 {
            assert_eq!(pie.awake, n > 30, "{n} packets");
            pie.enqueue(
                Instant(0),
                Packet { bytes: 1_500, ..Packet::default() },
                &mut dropped,
                &mut rng,
            );
        }
        while pie.dequeue(Instant(MS), &mut dropped, &mut rng).is_some() {}
        pie.dequeue(Instant(60_000 * MS), &mut dropped, &mut rng);
        assert!(!pie.awake);
    }

    #[test]
    fn updates_made_up_for_after_a_pause_equal_those_of_a_timer() {
        let queue = || {
            let (mut pie, ..) = overload(Config::default(), Ecn::NotCapable, 5);
            let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
            while pie.dequeue(Instant(5_000 * MS), &mut dropped, &mut rng).is_some() {}
            pie
        };
        let (mut lazy, mut timed) = (queue(), queue());
        for ms in 5_000..7_000 {
            timed.catch_up(Instant(ms * MS));
        }
        lazy.catch_up(Instant(6_999 * MS));
        assert_eq!(lazy.controller.probability, timed.controller.probability);
        assert_eq!(lazy.next_update, timed.next_update);
        // Days later the phase of the updates is kept, and it takes no time.
        lazy.catch_up(Instant(500_000_000 * MS));
        let phase = |p: &Pie| p.next_update.expect("running").0 % (15 * MS);
        assert_eq!(phase(&lazy), phase(&timed));
        assert!(lazy.next_update > Some(Instant(500_000_000 * MS)));
        assert_eq!(lazy.controller.burst_left, Duration::from_millis(150));
    }
}
