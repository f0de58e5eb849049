//! Copa: sends at 1 / (δ · queueing delay), which keeps about 1/δ packets of each flow in the queue.
//!
//! signal: RTT samples. RTTstanding is the smallest of the last srtt/2, RTTmin that of the last 10 s,
//! RTTmax the largest of the last four round trips · model: RTTstanding − RTTmin = d_q is the queueing
//! delay; λ = cwnd / RTTstanding is the current rate, λ_t = 1 / (δ · d_q) the target · action, at every
//! ACK: cwnd moves by v / (δ · cwnd) segments for each one acknowledged, up where λ ≤ λ_t and down
//! elsewhere. Paced at 2 · cwnd / RTTstanding. The velocity v doubles per round trip once the window has
//! moved in one direction for three; a turn resets it to 1. The window doubles per round trip
//! until λ first exceeds λ_t.
//!
//! Mode switching: flows of Copa alone empty their queue at least every five round trips. Without a
//! queue that was nearly empty (d_q below a tenth of RTTmax − RTTmin) for so long, another sender
//! fills the buffer. Competitive mode then adds 1 to 1/δ per round trip and halves it at a loss.
//! Default mode returns with the configured δ, and does not answer losses.
//!
//! Known weakness of these rules: on a path of about 25 packets, a flow alone takes its own slow drain for
//! another sender. In a buffer without loss nothing then ends competitive mode (6 Mbit/s, 50 ms: 240
//! packets in the queue instead of 2.5). `competes = false` avoids that.
//!
//! Source: Arun, Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet", NSDI
//! 2018, sections 2 and 3. Deviations, each with its reason:
//! - Where the target asks for the other direction and v is above 1, v is reset at once, as in Meta's
//!   implementation (mvfst). Until the round trip ended, a v that grew upwards would otherwise take
//!   the window down (measured on 48 Mbit/s: from 300 segments to the floor and back, for ever).
//! - An ACK changes the window by at most the data it acknowledges, and v is at most δ · cwnd: beyond
//!   that it would grow faster than slow start. The paper has no bound.
//! - The window never falls below two segments (except after a timeout), so that delayed ACKs continue.
//! - Timeouts are not in the paper: one segment and slow start again (RFC 5681 section 3.1).
//! - Growth needs a sender that the window limits (RFC 7661), which the paper's senders always are.
//! - With a queue that never varied, d_q and RTTmax − RTTmin are both zero: it counts as nearly empty.

use units::{Bytes, Duration, Instant, Rate};

use super::window::{LIMIT, Window};
use super::{Ack, CongestionControl, Loss, Recovery, Rounds, Setup, State, Timeout, Windowed};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "copa";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "sends at 1 / (δ · queueing delay), with a mode against senders that fill the queue";
/// Where it is specified.
pub const SOURCE: &str = "Arun and Balakrishnan (NSDI 2018)";

config! {
    /// The constants of the paper.
    pub struct Config {
        /// Weight δ of delay against rate in default mode: about 1/δ packets stand in the queue (section 2.1: 0.5).
        delta: f64 = 0.5, 0.001, 10.0;
        /// Whether it competes with senders that fill the queue (section 2.2).
        competes: bool = true;
        /// Time over which the smallest RTT counts (section 2.1: 10 s).
        min_rtt_window: Duration = Duration::from_secs(10), Duration::from_millis(100), Duration::from_secs(3600);
    }
}

/// Section 2.1: the sender paces at this many windows per RTTstanding, so that bursts do not queue.
const PACING: f64 = 2.0;
/// Section 2.1: round trips in one direction before v doubles.
const STEADY_ROUNDS: u64 = 3;
/// Section 2.2: round trips within which Copa alone empties the queue: the period of its oscillation.
const EMPTY_ROUNDS: u64 = 5;
/// Section 2.2: round trips over which the largest RTT counts.
const MAX_ROUNDS: u64 = 4;
/// Section 2.2: share of the delay's oscillation below which the queue is nearly empty.
const NEARLY_EMPTY: f64 = 0.1;
/// Section 2.2: what competitive mode adds to 1/δ per round trip, as Reno does to its window.
const INCREASE: f64 = 1.0;
/// Segments below which delayed ACKs would wait for their timer.
const FLOOR: f64 = 2.0;

/// The direction of the window over a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Up,
    Down,
}

/// Copa for one connection.
#[derive(Clone, Debug)]
pub struct Copa {
    config: Config,
    window: Window,
    rounds: Rounds,
    /// Smallest and largest RTTs, ns; `None` before the first sample.
    min: Option<Windowed<u64>>,
    standing: Windowed<u64>,
    max: Windowed<u64>,
    /// v.
    velocity: f64,
    direction: Option<Direction>,
    /// Round trips in this direction.
    steady: u64,
    /// The window at the begin of the round trip, in segments.
    round_window: f64,
    slow_start: bool,
    /// When the queue was nearly empty last.
    empty_at: Instant,
    /// 1/δ of competitive mode; `None` in default mode.
    competitive: Option<f64>,
    /// A loss in this round trip: 1/δ does not grow in it.
    lossy: bool,
}

impl Copa {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Copa {
        let window = Window::new(setup);
        Copa {
            config,
            round_window: window.segments(),
            window,
            rounds: Rounds::default(),
            min: None,
            standing: Windowed::default(),
            max: Windowed::default(),
            velocity: 1.0,
            direction: None,
            steady: 0,
            slow_start: true,
            empty_at: Instant::ZERO,
            competitive: None,
            lossy: false,
        }
    }

    /// δ of the present mode.
    fn delta(&self) -> f64 {
        self.competitive.map_or(self.config.delta, |inverse| 1.0 / inverse)
    }

    /// RTTmin, RTTstanding and RTTmax in seconds.
    fn sample(&mut self, now: Instant, rtt: Duration, srtt: Duration) {
        let Some(min) = &mut self.min else {
            self.min = Some(Windowed::new(now.0, rtt.0));
            self.standing = Windowed::new(now.0, rtt.0);
            self.max = Windowed::new(now.0, rtt.0);
            self.empty_at = now;
            return;
        };
        min.min(self.config.min_rtt_window.0, now.0, rtt.0);
        self.standing.min(srtt.0 / 2, now.0, rtt.0);
        self.max.max(srtt.0.saturating_mul(MAX_ROUNDS), now.0, rtt.0);
    }

    /// d_q in nanoseconds.
    fn queue(&self) -> u64 {
        let min = self.min.as_ref().map_or(0, Windowed::get);
        self.standing.get().saturating_sub(min)
    }

    /// Whether λ ≤ λ_t. Without a queue the target is infinite.
    fn below_target(&self) -> bool {
        let rate = self.window.segments() / self.standing.get().max(1) as f64;
        rate * self.delta() * self.queue() as f64 <= 1.0
    }

    /// Section 2.2: default or competitive mode.
    fn choose_mode(&mut self, now: Instant, srtt: Duration) {
        let min = self.min.as_ref().map_or(0, Windowed::get);
        let swing = self.max.get().saturating_sub(min) as f64;
        if self.queue() as f64 <= NEARLY_EMPTY * swing {
            self.empty_at = now;
        }
        let filled = now.since(self.empty_at).0 > srtt.0.saturating_mul(EMPTY_ROUNDS);
        if !self.config.competes || !filled {
            self.competitive = None;
        } else if self.competitive.is_none() {
            self.competitive = Some(1.0 / self.config.delta);
        }
    }

    /// Once per round trip: velocity and competitive δ.
    fn begin_round(&mut self) {
        let window = self.window.segments();
        let direction = if window > self.round_window { Direction::Up } else { Direction::Down };
        if self.direction == Some(direction) {
            self.steady += 1;
            if self.steady >= STEADY_ROUNDS {
                self.velocity = (2.0 * self.velocity).min((self.delta() * window).max(1.0));
            }
        } else {
            (self.steady, self.velocity) = (1, 1.0);
        }
        self.direction = Some(direction);
        self.round_window = window;
        if let Some(inverse) = &mut self.competitive
            && !self.lossy
        {
            *inverse += INCREASE;
        }
        self.lossy = false;
    }

    /// A congestion signal: competitive mode halves 1/δ, but δ is never above that of default mode.
    fn answer(&mut self) {
        let least = 1.0 / self.config.delta;
        if let Some(inverse) = &mut self.competitive {
            *inverse = (*inverse / 2.0).max(least);
        }
        self.lossy = true;
    }
}

impl CongestionControl for Copa {
    fn on_ack(&mut self, now: Instant, ack: &Ack, _rng: &mut Rng) {
        if let Some(rtt) = ack.rtt {
            self.sample(now, rtt, ack.srtt);
            self.choose_mode(now, ack.srtt);
        }
        if self.min.is_none() {
            return;
        }
        let round = self.rounds.on_ack(ack);
        let acked = self.window.count(ack.acked);
        let below = self.below_target();
        if self.slow_start {
            if below {
                if ack.window_limited && ack.recovery != Recovery::Recovering {
                    self.window.slow_start(acked, LIMIT as f64);
                }
                return;
            }
            self.slow_start = false;
            self.round_window = self.window.segments();
            (self.direction, self.steady, self.velocity) = (None, 0, 1.0);
        } else if round {
            self.begin_round();
        }
        let wanted = if below { Direction::Up } else { Direction::Down };
        if self.velocity > 1.0 && self.direction != Some(wanted) {
            (self.velocity, self.steady) = (1.0, 0);
        }
        let window = self.window.segments();
        let step = (acked * self.velocity / (self.delta() * window)).min(acked);
        if !below {
            self.window.set((window - step).max(FLOOR.min(window)));
        } else if ack.window_limited {
            self.window.set(window + step);
        }
    }

    fn on_loss(&mut self, _now: Instant, _loss: &Loss) {
        self.answer();
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        self.answer();
        if timeout.count <= 1 {
            self.window.collapse(self.window.segments(), timeout);
            self.window.aim(f64::INFINITY);
        } else {
            self.window.set(1.0);
        }
        self.slow_start = true;
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.undo();
    }

    fn window(&self) -> Bytes {
        self.window.bytes()
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.min?;
        let standing = self.standing.get().max(1) as f64;
        let rate = PACING * self.window().0 as f64 * 8e9 / standing;
        Some(Rate((rate as u64).max(1)))
    }

    fn rules_recovery(&self) -> bool {
        // Default mode does not answer losses, and competitive mode answers through δ.
        true
    }

    fn state(&self) -> State {
        let phase = match (self.slow_start, self.competitive) {
            (true, _) => "slow_start",
            (false, None) => "default",
            (false, Some(_)) => "competitive",
        };
        State { window: self.window(), threshold: None, pacing_rate: self.pacing_rate(), phase }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::testing::{MSS, Path, measure};
    use std::vec::Vec;

    fn copa(delta: f64) -> Copa {
        Copa::new(Config { delta, ..Config::default() }, &Setup::default())
    }

    /// An ACK of one segment at this RTT that ends a round trip.
    fn ack(cc: &mut Copa, at_ms: u64, rtt_ms: u64) {
        let rtt = Duration::from_millis(rtt_ms);
        let ack = Ack {
            acked: Bytes(MSS),
            delivered: Bytes(at_ms * MSS),
            rtt: Some(rtt),
            srtt: Duration::from_millis(100),
            window_limited: true,
            rate: super::super::RateSample {
                prior_delivered: Bytes(u64::MAX),
                ..Default::default()
            },
            ..Ack::default()
        };
        cc.on_ack(Instant(at_ms * 1_000_000), &ack, &mut Rng::new(1, "test"));
    }

    /// A path of 50 ms. Each segment is acknowledged, as in the paper.
    fn path(mbit_s: u64) -> Path {
        let mut path =
            Path::new(Rate(mbit_s * 1_000_000), Duration::from_millis(50), Bytes(3_000_000));
        path.ack_each = true;
        path
    }

    #[test]
    fn the_standing_rtt_is_the_smallest_of_half_a_smoothed_rtt() {
        let mut cc = copa(0.5);
        ack(&mut cc, 1_000, 80);
        ack(&mut cc, 1_010, 60);
        ack(&mut cc, 1_060, 90);
        assert_eq!((cc.standing.get(), cc.queue()), (60_000_000, 0));
        // 51 ms after the sample of 60 ms, srtt/2 being 50 ms.
        ack(&mut cc, 1_061, 95);
        assert_eq!((cc.standing.get(), cc.queue()), (90_000_000, 30_000_000));
    }

    #[test]
    fn the_window_follows_the_target_rate() {
        // λ_t = 1 / (0.5 · 20 ms) = 100 segments per second; λ = cwnd / 100 ms.
        let mut cc = copa(0.5);
        cc.slow_start = false;
        cc.min = Some(Windowed::new(0, 80_000_000));
        cc.standing = Windowed::new(0, 100_000_000);
        for (window, below) in [(9.0, true), (10.0, true), (11.0, false)] {
            cc.window.set(window);
            assert_eq!(cc.below_target(), below, "{window}");
        }
    }

    #[test]
    fn the_velocity_doubles_after_three_round_trips_in_one_direction_and_a_turn_resets_it() {
        let mut cc = copa(0.5);
        cc.window.set(1_000.0);
        let mut seen = Vec::new();
        for round in 0..6 {
            cc.window.set(1_001.0 + f64::from(round));
            cc.begin_round();
            seen.push(cc.velocity);
        }
        assert_eq!(seen, [1.0, 1.0, 2.0, 4.0, 8.0, 16.0]);
        cc.window.set(900.0);
        cc.begin_round();
        assert_eq!((cc.velocity, cc.direction), (1.0, Some(Direction::Down)));
    }

    /// The queue of a flow alone after 15 s, and the period of its oscillation in round trips.
    fn alone(path: &mut Path, delta: f64) -> (Vec<f64>, f64, f64) {
        let config = Config { delta, competes: false, ..Config::default() };
        let mut cc = Copa::new(config, &Setup::default());
        let mut rng = Rng::new(1, "test");
        path.run(Duration::from_secs(15), &mut cc, &mut rng, |_, _| {});
        let per_ms = path.rate.0 as f64 / 12e6;
        let (mut packets, mut rtts, mut turns, mut high) = (Vec::new(), 0.0, 0.0, false);
        let (mut first, mut last) = (None, 0);
        path.run(Duration::from_secs(30), &mut cc, &mut rng, |_, seen| {
            let queue = seen.queue.as_millis_f64() * per_ms;
            // A turn is a fall from above 1.5/δ to below 0.4/δ.
            if queue > 1.5 / delta {
                high = true;
            } else if high && queue < 0.4 / delta {
                (high, turns) = (false, turns + 1.0);
            }
            packets.push(queue);
            rtts += seen.rtt.as_secs_f64();
            first.get_or_insert(seen.delivered);
            last = seen.delivered;
        });
        let goodput = (last - first.unwrap_or(0)) as f64 * 8.0 / 30.0;
        let period = 30.0 / turns / (rtts / packets.len() as f64);
        (packets, period, goodput / path.goodput())
    }

    #[test]
    fn a_flow_alone_oscillates_in_five_round_trips_about_five_quarters_over_delta_packets() {
        // Section 3: a mean of 1.25/δ with that amplitude, so between 0 and 2.5/δ, in 5 RTT. The bounds are a fifth of the
        // mean, one round trip, and a step of 1/δ for the highest.
        for (mbit_s, delta) in [(24, 0.5), (48, 0.5), (96, 0.5), (24, 0.1), (48, 0.1), (96, 0.1)] {
            let case = std::format!("{mbit_s} Mbit/s, {delta}");
            let (packets, period, share) = alone(&mut path(mbit_s), delta);
            let mean = packets.iter().sum::<f64>() / packets.len() as f64;
            let most = packets.iter().copied().fold(0.0, f64::max);
            assert!((1.0..1.5).contains(&(mean * delta)), "{case}: mean of {mean} packets");
            assert!((1.5..3.5).contains(&(most * delta)), "{case}: up to {most} packets");
            assert!((3.9..6.1).contains(&period), "{case}: {period} RTT");
            assert!(share > 0.98, "{case}: {share} of the link");
        }
    }

    #[test]
    fn a_queue_that_another_sender_fills_switches_to_competitive_mode_and_back() {
        let mut cc = copa(0.5);
        cc.slow_start = false;
        ack(&mut cc, 1_000, 100);
        // A standing queue of 100 ms that varies by 20 ms: never below a tenth of 120 ms.
        let mut modes = Vec::new();
        for round in 1..=10 {
            ack(&mut cc, 1_000 + 100 * round, if round % 2 == 0 { 200 } else { 220 });
            modes.push(cc.competitive.is_some());
        }
        // Five round trips of 100 ms after the last empty queue.
        assert_eq!(modes, [false, false, false, false, false, true, true, true, true, true]);
        // It was entered in the sixth round trip with 1/δ = 2 and grew by 1 in each, the sixth included.
        assert_eq!(cc.competitive, Some(7.0));
        cc.on_loss(Instant(2_050_000_000), &Loss { lost: Bytes(MSS), in_flight: Bytes(MSS) });
        assert_eq!(cc.competitive, Some(3.5));
        cc.on_loss(Instant(2_060_000_000), &Loss { lost: Bytes(MSS), in_flight: Bytes(MSS) });
        assert_eq!(cc.competitive, Some(2.0), "δ is at most that of default mode");
        ack(&mut cc, 2_100, 100);
        assert_eq!((cc.competitive, cc.delta()), (None, 0.5));
    }

    #[test]
    fn two_flows_of_a_shared_queue_that_each_empties_stay_in_default_mode() {
        // The same ACKs as above, but the queue is empty in every fifth round trip.
        let mut cc = copa(0.5);
        cc.slow_start = false;
        for round in 0..20 {
            ack(&mut cc, 1_000 + 100 * round, if round % 5 == 0 { 100 } else { 200 });
            assert_eq!(cc.competitive, None, "round trip {round}");
        }
    }

    #[test]
    fn default_mode_does_not_answer_losses() {
        let mut cc = copa(0.5);
        cc.window.set(50.0);
        cc.on_loss(Instant::ZERO, &Loss { lost: Bytes(MSS), in_flight: Bytes(50 * MSS) });
        assert_eq!(cc.window.segments(), 50.0);
        let mut path = path(12);
        path.loss = 0.01;
        let mut cc = copa(0.5);
        let got = measure(&mut path, &mut cc, 5, 20, Rng::new(1, "test"));
        assert!(got.goodput > 0.95 * path.goodput(), "{}", got.goodput);
    }
}
