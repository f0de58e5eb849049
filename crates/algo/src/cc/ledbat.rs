//! LEDBAT: background transfers that keep the queue at a target delay and yield to other flows.
//!
//! signal: one-way delay above the smallest of the last ten minutes · model: that difference is the
//! queueing delay · action: the window changes in proportion to the distance from the target.
//!
//! Sources: RFC 6817; `form = "plus_plus"` is draft-irtf-iccrg-ledbat-plus-plus: a target of 60 ms by
//! RTT, slower growth on short paths, multiplicative decrease, a slow start that ends at 3/4 of the
//! target, and periodic slowdowns to measure the base delay. Deviations: without timestamps the RTT
//! replaces the one-way delay. The congestion timeout is the sender's.

use libm::ceil;
use units::{Bytes, Duration, Instant};

use super::window::{LIMIT, Window};
use super::{Ack, CongestionControl, Loss, Recovery, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "ledbat";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "background: keeps the queue at a target delay";
/// Where it is specified.
pub const SOURCE: &str = "RFC 6817; draft-irtf-iccrg-ledbat-plus-plus";

choice! {
    /// The version of LEDBAT.
    pub enum Form {
        /// LEDBAT of RFC 6817.
        Rfc = "rfc",
        /// LEDBAT++ of the IRTF draft.
        PlusPlus = "plus_plus",
    }
}

config! {
    /// The constants of RFC 6817.
    pub struct Config {
        /// RFC 6817 or LEDBAT++.
        form: Form = Form::Rfc;
        /// Target of the queueing delay; by default 100 ms (RFC 6817 section 2.5: at most), for LEDBAT++ 60 ms.
        target: Option<Duration> = None, Some(Duration::from_millis(1)), Some(Duration::from_secs(10));
        /// Segments per window at an empty queue (RFC 6817 section 2.5: at most 1).
        gain: f64 = 1.0, 0.001, 1.0;
        /// Segments before the first ACK (RFC 6817 section 2.5: INIT_CWND 2).
        initial: u64 = 2, 1, 100;
        /// Segments that the window may exceed the flight (RFC 6817 section 2.5: ALLOWED_INCREASE 1).
        allowed_increase: u64 = 1, 1, 100;
    }
}

/// RFC 6817 section 2.5: the base delay is the smallest of this many minutes.
const BASE_HISTORY: usize = 10;
/// RFC 6817 section 2.5: the current delay is the smallest of this many samples.
const CURRENT_FILTER: usize = 4;
/// RFC 6817 section 2.5: smallest window in segments, except after a timeout.
const MIN_WINDOW: f64 = 2.0;
/// LEDBAT++: growth on short paths is slower by at most this factor.
const MAX_DIVISOR: f64 = 16.0;
/// LEDBAT++: slow start ends at this share of the target.
const SLOW_START_SHARE: f64 = 0.75;
/// LEDBAT++: round trips before the first slowdown, and at the minimum during each.
const SLOWDOWN_ROUNDS: u64 = 2;
/// LEDBAT++: time between slowdowns in lengths of a slowdown: they take a tenth of the time.
const SLOWDOWN_SPACING: u64 = 9;

/// State of LEDBAT++'s periodic slowdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slowdown {
    /// None is planned before slow start has ended.
    Unplanned,
    /// It begins at this time.
    Due(Instant),
    /// The window is at its minimum.
    Minimum { start: Instant, until: Instant },
    /// Growth back to the window before the slowdown.
    Ramp { start: Instant },
}

/// LEDBAT or LEDBAT++ for one connection.
#[derive(Clone, Debug)]
pub struct Ledbat {
    config: Config,
    target: f64,
    window: Window,
    /// Ring of minima, `minute` the number of the newest.
    base: [Duration; BASE_HISTORY],
    minute: u64,
    /// Ring of samples, `samples` so far.
    current: [Duration; CURRENT_FILTER],
    samples: usize,
    slowdown: Slowdown,
}

impl Ledbat {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Ledbat {
        let default = Duration::from_millis(if config.form == Form::Rfc { 100 } else { 60 });
        Ledbat {
            target: config.target.unwrap_or(default).as_secs_f64().max(1e-9),
            window: Window::new(&Setup { initial_window: config.initial, ..*setup }),
            config,
            base: [Duration::MAX; BASE_HISTORY],
            minute: 0,
            current: [Duration::MAX; CURRENT_FILTER],
            samples: 0,
            slowdown: Slowdown::Unplanned,
        }
    }

    /// RFC 6817 section 2.4.2: update_base_delay and update_current_delay.
    fn sample(&mut self, now: Instant, delay: Duration) {
        let minute = now.0 / Duration::from_secs(60).0;
        // Minutes without a sample have no minimum.
        for _ in 0..minute.saturating_sub(self.minute).min(BASE_HISTORY as u64) {
            self.base.rotate_right(1);
            self.base[0] = Duration::MAX;
        }
        self.minute = minute.max(self.minute);
        self.base[0] = self.base[0].min(delay);
        self.current[self.samples % CURRENT_FILTER] = delay;
        self.samples = self.samples.wrapping_add(1);
    }

    fn smallest(of: &[Duration]) -> Duration {
        of.iter().copied().min().unwrap_or(Duration::MAX)
    }

    /// Queueing delay in seconds; `None` before the first sample.
    fn queue(&self) -> Option<f64> {
        let base = Self::smallest(&self.base);
        (base != Duration::MAX)
            .then(|| Self::smallest(&self.current).saturating_sub(base).as_secs_f64())
    }

    /// RFC 6817 section 2.4.2: the linear controller.
    fn linear(&mut self, queue: f64, ack: &Ack) {
        let window = self.window.segments();
        let off_target = (self.target - queue) / self.target;
        let step = self.config.gain * off_target * self.window.count(ack.acked) / window;
        let step = if ack.window_limited { step } else { step.min(0.0) };
        let allowed = self.window.count(ack.prior_in_flight) + self.config.allowed_increase as f64;
        self.window.set((window + step).min(allowed).max(MIN_WINDOW.min(window + step.max(0.0))));
    }

    /// The controller of LEDBAT++, sections 4.2 to 4.4.
    fn plus_plus(&mut self, now: Instant, queue: f64, ack: &Ack) {
        let base = Self::smallest(&self.base).as_secs_f64().max(1e-9);
        let gain = self.config.gain / ceil(2.0 * self.target / base).clamp(1.0, MAX_DIVISOR);
        self.slow_down(now, ack.srtt);
        if matches!(self.slowdown, Slowdown::Minimum { .. }) {
            return;
        }
        let acked = self.window.count(ack.acked);
        if self.window.in_slow_start() {
            if queue > SLOW_START_SHARE * self.target {
                self.window.leave_slow_start();
            } else if ack.window_limited {
                self.window.slow_start(gain * acked.min(LIMIT as f64), LIMIT as f64);
            }
            return;
        }
        let window = self.window.segments();
        let excess = queue / self.target - 1.0;
        let per_window =
            if excess > 0.0 { (gain - window * excess).max(-window / 2.0) } else { gain };
        if per_window < 0.0 {
            let share = (acked / window).min(1.0);
            self.window.set((window + per_window * share).max(MIN_WINDOW.min(window)));
            self.window.leave_slow_start();
        } else if ack.window_limited {
            self.window.grow(acked, per_window);
        }
    }

    fn slow_down(&mut self, now: Instant, srtt: Duration) {
        let slow_start = self.window.in_slow_start();
        self.slowdown = match self.slowdown {
            Slowdown::Unplanned if !slow_start => Slowdown::Due(now + srtt * SLOWDOWN_ROUNDS),
            Slowdown::Due(at) if now >= at => {
                self.window.aim(self.window.segments());
                self.window.set(MIN_WINDOW.min(self.window.segments()));
                Slowdown::Minimum { start: now, until: now + srtt * SLOWDOWN_ROUNDS }
            }
            Slowdown::Minimum { start, until } if now >= until => Slowdown::Ramp { start },
            Slowdown::Ramp { start } if !slow_start => {
                Slowdown::Due(now + now.since(start) * SLOWDOWN_SPACING)
            }
            same => same,
        };
    }
}

impl CongestionControl for Ledbat {
    fn on_ack(&mut self, now: Instant, ack: &Ack, _rng: &mut Rng) {
        // LEDBAT++ section 4.1: RTT, because not every pair of hosts has good clocks.
        let one_way = ack.one_way.filter(|_| self.config.form == Form::Rfc);
        if let Some(delay) = one_way.or(ack.rtt) {
            self.sample(now, delay);
        }
        let Some(queue) = self.queue() else { return };
        if ack.recovery == Recovery::Recovering {
            return;
        }
        match self.config.form {
            Form::Rfc => self.linear(queue, ack),
            Form::PlusPlus => self.plus_plus(now, queue, ack),
        }
    }

    fn on_loss(&mut self, _now: Instant, _loss: &Loss) {
        // RFC 6817 section 2.4.1: half of the window, at most once per RTT.
        self.window.decrease((self.window.segments() / 2.0).max(MIN_WINDOW));
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        // RFC 6817 section 2.4.2, on CTO: one segment.
        self.window.collapse(self.window.segments() / 2.0, timeout);
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.undo();
    }

    fn window(&self) -> Bytes {
        self.window.bytes()
    }

    fn state(&self) -> State {
        let state = self.window.state("avoidance");
        match (self.config.form, self.slowdown) {
            (Form::Rfc, _) => State { phase: "avoidance", ..state },
            (_, Slowdown::Minimum { .. } | Slowdown::Ramp { .. }) => {
                State { phase: "slowdown", ..state }
            }
            _ => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledbat(form: Form, window: u64) -> Ledbat {
        Ledbat::new(Config { form, initial: window, ..Config::default() }, &Setup::default())
    }

    /// One window of ACKs at this delay.
    fn round(cc: &mut Ledbat, at: Instant, delay_ms: u64) -> f64 {
        let before = cc.window.segments();
        let delay = Duration::from_millis(delay_ms);
        for _ in 0..before as u64 {
            let ack = Ack {
                acked: Bytes(1448),
                rtt: Some(delay),
                srtt: delay,
                one_way: Some(delay),
                window_limited: true,
                prior_in_flight: cc.window(),
                ..Ack::default()
            };
            cc.on_ack(at, &ack, &mut Rng::new(1, "test"));
        }
        cc.window.segments() - before
    }

    #[test]
    fn the_window_moves_in_proportion_to_the_distance_from_the_target() {
        // RFC 6817 section 2.4.2: + GAIN · off_target segments per window.
        for (delay, growth) in [(50, 1.0), (100, 0.5), (150, 0.0), (200, -0.5), (250, -1.0)] {
            let mut cc = ledbat(Form::Rfc, 50);
            cc.base[3] = Duration::from_millis(50);
            let got = round(&mut cc, Instant::ZERO, delay);
            assert!((got - growth).abs() < 0.02, "{delay} ms: {got}");
        }
    }

    #[test]
    fn the_base_delay_is_forgotten_after_ten_minutes() {
        // RFC 6817 section 2.4.2: BASE_HISTORY minima of one minute each.
        let mut cc = ledbat(Form::Rfc, 10);
        cc.sample(Instant::ZERO, Duration::from_millis(20));
        for minute in 1..10 {
            cc.sample(Instant::ZERO + Duration::from_secs(60 * minute), Duration::from_millis(50));
            assert_eq!(Ledbat::smallest(&cc.base), Duration::from_millis(20));
        }
        cc.sample(Instant::ZERO + Duration::from_secs(600), Duration::from_millis(50));
        assert_eq!(Ledbat::smallest(&cc.base), Duration::from_millis(50));
        cc.sample(Instant::ZERO + Duration::from_secs(6000), Duration::from_millis(70));
        assert_eq!(Ledbat::smallest(&cc.base), Duration::from_millis(70));
    }

    #[test]
    fn one_late_packet_among_four_is_noise() {
        let mut cc = ledbat(Form::Rfc, 10);
        for ms in [20, 400, 20, 400] {
            cc.sample(Instant::ZERO, Duration::from_millis(ms));
        }
        assert_eq!(cc.queue(), Some(0.0));
    }

    #[test]
    fn the_window_stays_within_the_flight_and_one_segment() {
        let mut cc = ledbat(Form::Rfc, 20);
        let mut ack = Ack {
            acked: Bytes(1448),
            rtt: Some(Duration::from_millis(20)),
            prior_in_flight: Bytes(10 * 1448),
            ..Ack::default()
        };
        cc.on_ack(Instant::ZERO, &ack, &mut Rng::new(1, "test"));
        assert_eq!(cc.window(), Bytes(11 * 1448));
        ack.prior_in_flight = Bytes::ZERO;
        cc.on_ack(Instant::ZERO, &ack, &mut Rng::new(1, "test"));
        assert_eq!(cc.window(), Bytes(2 * 1448));
    }

    #[test]
    fn ledbat_plus_plus_grows_slower_on_short_paths_and_falls_in_proportion_to_the_window() {
        // LEDBAT++: GAIN = 1 / min(16, ⌈2 · 60 / 20⌉) = 1/6; beyond the target GAIN − W (delay / target − 1).
        let mut cc = ledbat(Form::PlusPlus, 60);
        cc.window.leave_slow_start();
        cc.slowdown = Slowdown::Due(Instant(u64::MAX));
        let growth = round(&mut cc, Instant::ZERO, 20);
        assert!((growth - 1.0 / 6.0).abs() < 0.01, "{growth}");
        let fall = round(&mut cc, Instant::ZERO, 20 + 66);
        assert!((-6.5..-4.5).contains(&fall), "{fall}");
    }

    #[test]
    fn ledbat_plus_plus_slows_down_after_two_round_trips_and_again_after_nine_times_as_long() {
        let mut cc = ledbat(Form::PlusPlus, 60);
        cc.window.leave_slow_start();
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        round(&mut cc, at(0), 100);
        assert_eq!(cc.slowdown, Slowdown::Due(at(200)));
        round(&mut cc, at(200), 100);
        assert_eq!((cc.window.segments(), cc.state().phase), (2.0, "slowdown"));
        let mut ms = 400;
        while matches!(cc.slowdown, Slowdown::Minimum { .. } | Slowdown::Ramp { .. }) {
            round(&mut cc, at(ms), 100);
            ms += 100;
        }
        assert_eq!(cc.slowdown, Slowdown::Due(at((ms - 100) + 9 * (ms - 100 - 200))));
        assert!(cc.window.segments() >= 60.0);
    }
}
