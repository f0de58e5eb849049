//! Leaving slow start before the queue overflows.
//!
//! signal: round-trip times of each round · model: if the smallest RTT of a round is longer than that of
//! the round before, there is a queue · action: [`Verdict`]: grow as in slow start, grow by a quarter
//! of that, or leave slow start.
//!
//! Sources: HyStart++ is RFC 9406; the older HyStart (Ha, Rhee: "Taming the elephants", 2011) is taken
//! from Linux `tcp_cubic.c`, which also measures how long a train of closely spaced ACKs lasts.
//!
//! Deviations: rounds are counted by delivered bytes instead of sequence numbers ([`super::Rounds`]),
//! which is the same without reordering. Linux's allowance for offloads in the ACK train
//! (`hystart_ack_delay`) is its upper bound, 1 ms: the kernel uses that on every path below 2 Gbit/s.

use units::{Duration, Instant};

use super::{Ack, Rounds};

choice! {
    /// How slow start ends without a loss.
    pub enum Kind {
        /// HyStart++ of RFC 9406.
        PlusPlus = "plus_plus",
        /// HyStart of Linux: delay and ACK train.
        Linux = "linux",
        /// Slow start ends only by loss.
        Off = "off",
    }
}

/// How slow start continues after an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Grow as in slow start.
    Grow,
    /// Conservative slow start: grow a [`CSS_GROWTH_DIVISOR`]th.
    Slow,
    /// Congestion avoidance begins at this window.
    Leave,
}

/// RFC 9406 section 4.3: below 4 ms, jitter would end slow start.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
/// RFC 9406 section 4.3: 16 ms of queue are a queue on any path.
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
/// RFC 9406 section 4.3: an eighth of the RTT in between.
const MIN_RTT_DIVISOR: u64 = 8;
/// RFC 9406 section 4.3: samples before the minimum of a round counts.
const N_RTT_SAMPLE: u32 = 8;
/// RFC 9406 section 4.3: growth in conservative slow start.
pub const CSS_GROWTH_DIVISOR: f64 = 4.0;
/// RFC 9406 section 4.3: rounds of conservative slow start before congestion avoidance.
const CSS_ROUNDS: u32 = 5;
/// Linux `hystart_low_window`: below this many segments, the train is too short.
const LOW_WINDOW: f64 = 16.0;
/// Linux `hystart_ack_delta_us`: ACKs closer than this are one train.
const ACK_DELTA: Duration = Duration::from_millis(2);
/// Linux `hystart_ack_delay`, upper bound: see the deviations above.
const ACK_DELAY: Duration = Duration::from_millis(1);

/// The slow-start exit of one connection.
#[derive(Clone, Copy, Debug)]
pub struct HyStart {
    kind: Kind,
    rounds: Rounds,
    /// Smallest RTT of the previous and of this round; `Duration::MAX` before the first sample.
    last_min: Duration,
    current_min: Duration,
    samples: u32,
    /// RTT at which conservative slow start was entered, and rounds begun since; `None` outside of it.
    conservative: Option<(Duration, u32)>,
    round_start: Instant,
    train_end: Instant,
}

impl HyStart {
    /// The state at the beginning of slow start.
    pub fn new(kind: Kind) -> HyStart {
        HyStart {
            kind,
            rounds: Rounds::default(),
            last_min: Duration::MAX,
            current_min: Duration::MAX,
            samples: 0,
            conservative: None,
            round_start: Instant::ZERO,
            train_end: Instant::ZERO,
        }
    }

    /// The kind of exit that this one uses.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Called for each ACK of slow start; `window` in segments.
    #[inline]
    pub fn on_ack(&mut self, now: Instant, ack: &Ack, window: f64) -> Verdict {
        match self.kind {
            Kind::Off => Verdict::Grow,
            Kind::PlusPlus => self.plus_plus(ack),
            Kind::Linux => self.linux(now, ack, window),
        }
    }

    fn begin_round(&mut self) {
        self.last_min = self.current_min;
        self.current_min = Duration::MAX;
        self.samples = 0;
    }

    // RFC 9406 section 4.2.
    fn plus_plus(&mut self, ack: &Ack) -> Verdict {
        if self.rounds.on_ack(ack) {
            self.begin_round();
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                // The round in which conservative slow start began counts, even a part of it.
                if *rounds >= CSS_ROUNDS {
                    return Verdict::Leave;
                }
            }
        }
        if let Some(rtt) = ack.rtt {
            self.current_min = self.current_min.min(rtt);
            self.samples += 1;
        }
        let enough_samples = self.samples >= N_RTT_SAMPLE && self.current_min != Duration::MAX;
        match self.conservative {
            Some((baseline, _)) if enough_samples && self.current_min < baseline => {
                self.conservative = None
            }
            None if enough_samples && self.last_min != Duration::MAX => {
                let thresh =
                    (self.last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if self.current_min >= self.last_min + thresh {
                    self.conservative = Some((self.current_min, 0));
                }
            }
            _ => {}
        }
        if self.conservative.is_some() { Verdict::Slow } else { Verdict::Grow }
    }

    // Linux tcp_cubic.c, hystart_update.
    fn linux(&mut self, now: Instant, ack: &Ack, window: f64) -> Verdict {
        if self.rounds.on_ack(ack) {
            self.begin_round();
            self.round_start = now;
            self.train_end = now;
        }
        let (Some(rtt), true) = (ack.rtt, window >= LOW_WINDOW) else { return Verdict::Grow };
        let smallest = ack.min_rtt.min(rtt);
        if now.since(self.train_end) <= ACK_DELTA {
            self.train_end = now;
            if now.since(self.round_start) > (smallest + ACK_DELAY) / 2 {
                return Verdict::Leave;
            }
        }
        self.current_min = self.current_min.min(rtt);
        if self.samples < N_RTT_SAMPLE {
            self.samples += 1;
            return Verdict::Grow;
        }
        let thresh = (smallest / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        if self.current_min > smallest + thresh { Verdict::Leave } else { Verdict::Grow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    /// Feeds rounds of ten ACKs, each round with one RTT in ms; what came last.
    fn feed(hystart: &mut HyStart, delivered: &mut u64, rtts: &[u64]) -> Verdict {
        let mut verdict = Verdict::Grow;
        for rtt in rtts {
            let before = *delivered;
            for _ in 0..10 {
                *delivered += 1000;
                let mut ack = Ack {
                    acked: Bytes(1000),
                    delivered: Bytes(*delivered),
                    rtt: Some(Duration::from_millis(*rtt)),
                    ..Ack::default()
                };
                ack.rate.prior_delivered = Bytes(before);
                verdict = hystart.on_ack(Instant::ZERO, &ack, 100.0);
                if verdict == Verdict::Leave {
                    return verdict;
                }
            }
        }
        verdict
    }

    #[test]
    fn a_rise_of_an_eighth_begins_conservative_slow_start_and_five_rounds_end_it() {
        // RFC 9406 section 4.2: RttThresh of 80 ms is 10 ms.
        let mut hystart = HyStart::new(Kind::PlusPlus);
        let mut delivered = 0;
        assert_eq!(feed(&mut hystart, &mut delivered, &[80, 89]), Verdict::Grow);
        assert_eq!(feed(&mut hystart, &mut delivered, &[101, 101, 101, 101, 101]), Verdict::Slow);
        assert_eq!(feed(&mut hystart, &mut delivered, &[101]), Verdict::Leave);
    }

    #[test]
    fn slow_start_resumes_when_the_rtt_falls_below_the_baseline() {
        let mut hystart = HyStart::new(Kind::PlusPlus);
        let mut delivered = 0;
        assert_eq!(feed(&mut hystart, &mut delivered, &[80, 100]), Verdict::Slow);
        assert_eq!(feed(&mut hystart, &mut delivered, &[99]), Verdict::Grow);
    }

    #[test]
    fn the_threshold_stays_between_4_and_16_ms() {
        for (base, quiet, loud) in [(8, 11, 12), (400, 415, 416)] {
            let mut delivered = 0;
            let mut hystart = HyStart::new(Kind::PlusPlus);
            assert_eq!(feed(&mut hystart, &mut delivered, &[base, quiet]), Verdict::Grow);
            let mut hystart = HyStart::new(Kind::PlusPlus);
            delivered = 0;
            assert_eq!(feed(&mut hystart, &mut delivered, &[base, loud]), Verdict::Slow);
        }
    }

    #[test]
    fn fewer_than_eight_samples_decide_nothing() {
        let mut hystart = HyStart::new(Kind::PlusPlus);
        let mut delivered = 0;
        feed(&mut hystart, &mut delivered, &[80]);
        let before = delivered;
        for n in 1..=8 {
            delivered += 1000;
            let mut ack = Ack {
                acked: Bytes(1000),
                delivered: Bytes(delivered),
                rtt: Some(Duration::from_millis(200)),
                ..Ack::default()
            };
            ack.rate.prior_delivered = Bytes(before);
            let expected = if n < 8 { Verdict::Grow } else { Verdict::Slow };
            assert_eq!(hystart.on_ack(Instant::ZERO, &ack, 100.0), expected);
        }
    }

    #[test]
    fn linux_leaves_when_a_train_of_acks_lasts_half_the_smallest_rtt() {
        let mut hystart = HyStart::new(Kind::Linux);
        let start = Instant::ZERO + Duration::from_secs(1);
        let mut verdicts = std::vec::Vec::new();
        for n in 0..30u64 {
            let mut ack = Ack {
                acked: Bytes(1000),
                delivered: Bytes(100_000 + n * 1000),
                rtt: Some(Duration::from_millis(39)),
                min_rtt: Duration::from_millis(39),
                ..Ack::default()
            };
            ack.rate.prior_delivered = Bytes(if n == 0 { 100_000 } else { 0 });
            verdicts.push(hystart.on_ack(start + Duration::from_millis(n), &ack, 16.0));
        }
        // (39 ms + 1 ms) / 2, and more than that.
        assert_eq!(verdicts.iter().position(|v| *v == Verdict::Leave), Some(21));
    }
}
