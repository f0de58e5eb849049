//! CUBIC: the window follows a cubic curve of time with its plateau at the window of the last loss.
//!
//! signal: segments acknowledged, elapsed time, a loss · model: W(t) = C (t − K)³ + W_max, and the
//! window that Reno would have now · action: grow towards W(t + RTT), or to Reno's window if that is
//! larger; a loss reduces the window to β of it.
//!
//! Sources: RFC 9438; HyStart++ is RFC 9406. `rules = "linux"` is `tcp_cubic.c`: the decrease starts
//! from the window instead of the flight; the window grows by at least 5 % per round before the first
//! loss, and by at least a hundredth of a segment per round later; it comes to Reno's window within a
//! round instead of at once, by half of itself at most; the curve is evaluated one smallest RTT ahead,
//! of which samples within a second of a stage's beginning are no part; a timeout resets W_max and the
//! smallest RTT; slow start adds all that an ACK acknowledges.
//!
//! Deviations:
//! - Time on the curve counts only while the window limits the sender, from ACK to ACK (RFC 9438 section
//!   5.8 requires that for application-limited periods).
//! - RFC 9406 section 4.3 has no L for senders that pace. The law does not know whether its host paces, so L
//!   is 8 in either case; `limit` sets another.
//! - Linux's rounding to whole segments and jiffies is left out, and so is its pause of 31 ms between two
//!   evaluations at the same window.

use libm::cbrt;
use units::{Bytes, Duration, Instant};

use super::hystart::{CSS_GROWTH_DIVISOR, HyStart, Kind, Verdict};
use super::window::{LIMIT, Window, seconds};
use super::{Ack, CongestionControl, Loss, Recovery, Sent, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "cubic";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "cubic curve of time since the last loss, the default of Linux, Windows and Apple";
/// Where it is specified.
pub const SOURCE: &str = "RFC 9438, RFC 9406; Linux net/ipv4/tcp_cubic.c";

choice! {
    /// The specification to follow where RFC and Linux differ.
    pub enum Rules {
        /// The text of RFC 9438.
        Rfc = "rfc",
        /// `tcp_cubic.c` of Linux 6.
        Linux = "linux",
    }
}

config! {
    /// The constants of RFC 9438.
    pub struct Config {
        /// Steepness of the curve, segments per second³ (RFC 9438 section 5.1: 0.4).
        c: f64 = 0.4, 0.001, 100.0;
        /// Share that remains after a loss (RFC 9438 section 4.6: 0.7; Linux 717/1024).
        beta: f64 = 0.7, 0.1, 0.95;
        /// Release bandwidth to new flows: a loss below W_max lowers W_max further (RFC 9438 section 4.7).
        fast_convergence: bool = true;
        /// Never slower than Reno (RFC 9438 section 4.3).
        reno_friendly: bool = true;
        /// Largest growth per round trip (RFC 9438 section 4.2: 1.5).
        clamp: f64 = 1.5, 1.01, 2.0;
        /// How slow start ends without a loss (RFC 9438 section 4.10 recommends RFC 9406).
        hystart: Kind = Kind::PlusPlus;
        /// RFC 9438 or Linux where they differ.
        rules: Rules = Rules::Rfc;
        /// Segments that one ACK may add in slow start (RFC 9406 section 4.3: L = 8); without effect by Linux's rules, which have none.
        limit: u64 = LIMIT, 1, 1000;
    }
}

/// Linux `cubictcp_acked`: RTT samples of the first second of a stage contain what is left of the queue.
const DISCARD: Duration = Duration::from_secs(1);

/// One stage of congestion avoidance: RFC 9438 section 4.1.2.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When the stage began.
    begun: Instant,
    /// Seconds since the stage began, without application-limited time.
    age: f64,
    /// The curve's plateau, in segments.
    origin: f64,
    /// Seconds to the plateau.
    k: f64,
    /// The window that Reno would have now, in segments.
    reno: f64,
}

/// The state that the undo of a spurious decrease restores (RFC 9438 section 4.9).
#[derive(Clone, Copy, Debug)]
struct Curve {
    w_max: Option<f64>,
    prior: f64,
    epoch: Option<Epoch>,
}

/// CUBIC for one connection.
#[derive(Clone, Debug)]
pub struct Cubic {
    config: Config,
    alpha: f64,
    window: Window,
    hystart: HyStart,
    curve: Curve,
    before: Curve,
    /// The last stage ended in a timeout: the next one starts on the plateau (RFC 9438 section 4.8).
    timed_out: bool,
    last: Instant,
    /// By Linux's rules: the smallest RTT since the last timeout (`delay_min`); `Duration::MAX` without a sample.
    delay_min: Duration,
}

impl Cubic {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Cubic {
        let window = Window::new(setup);
        let curve = Curve { w_max: None, prior: window.segments(), epoch: None };
        // RFC 9438 section 4.3: Reno's throughput at CUBIC's decrease.
        let alpha = 3.0 * (1.0 - config.beta) / (1.0 + config.beta);
        let hystart = HyStart::new(config.hystart);
        Cubic {
            config,
            alpha,
            window,
            hystart,
            curve,
            before: curve,
            timed_out: false,
            last: Instant::ZERO,
            delay_min: Duration::MAX,
        }
    }

    fn linux(&self) -> bool {
        self.config.rules == Rules::Linux
    }

    fn begin(&mut self, begun: Instant) -> Epoch {
        let now = self.window.segments();
        // RFC 9438 sections 4.8 and 4.10: after a timeout or a slow start without loss, K is 0 and
        // W_max is the window.
        let origin = self.curve.w_max.filter(|_| !self.timed_out).unwrap_or(now).max(now);
        if self.curve.w_max.is_none() {
            self.curve.prior = now;
        }
        self.timed_out = false;
        // RFC 9438 section 4.2, figure 2.
        Epoch { begun, age: 0.0, origin, k: cbrt((origin - now) / self.config.c), reno: now }
    }

    /// W_cubic at `t` seconds (RFC 9438 section 4.2, figure 1).
    fn curve_at(&self, epoch: &Epoch, t: f64) -> f64 {
        let x = t - epoch.k;
        self.config.c * x * x * x + epoch.origin
    }

    fn avoid(&mut self, now: Instant, acked: f64, ack: &Ack, passed: f64) {
        let linux = self.linux();
        let window = self.window.segments();
        let mut epoch = match self.curve.epoch {
            Some(mut epoch) => {
                epoch.age += passed;
                epoch
            }
            None => self.begin(now),
        };
        let ahead = match (linux, self.delay_min) {
            (true, Duration::MAX) => 0.0,
            (true, min) => min.as_secs_f64(),
            (false, _) => ack.srtt.as_secs_f64(),
        };
        // RFC 9438 section 4.2: the target is between the window and 1.5 of it, reached within one
        // RTT.
        let target =
            self.curve_at(&epoch, epoch.age + ahead).min(self.config.clamp * window).max(window);
        let mut step = target - window;
        // RFC 9438 section 4.3: α is Reno's 1 once the window is back at its old size.
        let restored = !linux && epoch.reno >= self.curve.prior;
        epoch.reno += acked * (if restored { 1.0 } else { self.alpha } / window).min(1.0);
        self.curve.epoch = Some(epoch);
        if linux {
            // bictcp_update: cnt, the segments to acknowledge for one more, is 20 at most before the first
            // loss and 100 windows later, cwnd / (tcp_cwnd - cwnd) below Reno's window, and at least 2.
            let floor = if self.curve.w_max.is_none() { window / 20.0 } else { 0.01 };
            step = step.max(floor);
            if self.config.reno_friendly {
                step = step.max(epoch.reno - window);
            }
            step = step.min(window / 2.0);
        }
        self.window.grow(acked, step);
        if !linux && self.config.reno_friendly && self.curve_at(&epoch, epoch.age) < epoch.reno {
            self.window.set(self.window.segments().max(epoch.reno));
        }
    }

    /// Ends the stage; returns the window after the decrease, in segments.
    fn end_stage(&mut self, in_flight: Bytes) -> f64 {
        self.before = self.curve;
        let window = self.window.segments();
        self.curve.prior = window;
        // RFC 9438 section 4.7: fast convergence.
        let earlier =
            self.curve.w_max.is_some_and(|w_max| window < w_max) && self.config.fast_convergence;
        self.curve.w_max =
            Some(if earlier { window * (1.0 + self.config.beta) / 2.0 } else { window });
        self.curve.epoch = None;
        // RFC 9438 section 4.6: the decrease applies to the flight; Linux's window never exceeds it.
        let base = match self.config.rules {
            Rules::Rfc => self.window.flight(in_flight),
            Rules::Linux => window,
        };
        base * self.config.beta
    }
}

impl CongestionControl for Cubic {
    fn on_sent(&mut self, now: Instant, sent: &Sent, _rng: &mut Rng) {
        if sent.in_flight == Bytes::ZERO {
            // Idle time does not count (RFC 9438 section 5.8).
            self.last = now;
        }
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack, _rng: &mut Rng) {
        let passed = seconds(now, self.last);
        self.last = now;
        let mut seen = *ack;
        if self.linux() {
            // cubictcp_acked: also in recovery.
            let early = |epoch: Epoch| now.since(epoch.begun) < DISCARD;
            if self.curve.epoch.is_some_and(early) {
                seen.rtt = None;
            }
            self.delay_min = self.delay_min.min(seen.rtt.unwrap_or(Duration::MAX));
            seen.min_rtt = self.delay_min;
        }
        if ack.recovery == Recovery::Recovering {
            return;
        }
        let mut divisor = 1.0;
        let watched = self.window.is_first_slow_start()
            || self.hystart.kind() == Kind::Linux && self.window.in_slow_start();
        if watched {
            match self.hystart.on_ack(now, &seen, self.window.segments()) {
                Verdict::Grow => {}
                Verdict::Slow => divisor = CSS_GROWTH_DIVISOR,
                Verdict::Leave => self.window.leave_slow_start(),
            }
        }
        if !ack.window_limited {
            return;
        }
        let mut acked = self.window.count(ack.acked);
        if self.window.in_slow_start() {
            let limit = if self.linux() { f64::INFINITY } else { self.config.limit as f64 };
            acked = self.window.slow_start(acked.min(limit) / divisor, limit);
        }
        if acked > 0.0 && !self.window.in_slow_start() {
            self.avoid(now, acked, ack, passed);
        }
    }

    fn on_loss(&mut self, _now: Instant, loss: &Loss) {
        let left = self.end_stage(loss.in_flight);
        self.window.decrease(left);
        self.timed_out = false;
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        let left = if timeout.count <= 1 { self.end_stage(timeout.in_flight) } else { 0.0 };
        self.window.collapse(left, timeout);
        self.curve.epoch = None;
        self.timed_out = true;
        if self.config.rules == Rules::Linux {
            // bictcp_reset, bictcp_hystart_reset.
            self.curve.w_max = None;
            self.delay_min = Duration::MAX;
            self.hystart = HyStart::new(self.config.hystart);
        }
    }

    fn on_ecn(&mut self, _now: Instant, loss: &Loss) {
        // RFC 9438 section 4.6: a mark may reduce the window to one segment, a loss to two; ssthresh
        // stays at two.
        let left = self.end_stage(loss.in_flight);
        self.window.decrease(left);
        self.window.set(left);
        self.timed_out = false;
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.undo();
        self.curve = self.before;
        self.timed_out = false;
    }

    fn window(&self) -> Bytes {
        self.window.bytes()
    }

    fn state(&self) -> State {
        let phase = match self.curve.epoch {
            Some(epoch)
                if self.config.reno_friendly && self.curve_at(&epoch, epoch.age) < epoch.reno =>
            {
                "reno_friendly"
            }
            Some(epoch) if epoch.age < epoch.k => "concave",
            Some(_) => "convex",
            None => "avoidance",
        };
        self.window.state(phase)
    }
}

#[cfg(test)]
#[path = "cubic_tests.rs"]
mod tests;
