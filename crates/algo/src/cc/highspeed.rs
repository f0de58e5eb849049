//! HighSpeed TCP: larger windows grow faster and decrease less.
//!
//! signal: segments acknowledged, a loss · model: a response function w = 0.12 / p^0.835 that equals
//! Reno's at 38 segments and reaches 83,000 at a loss rate of 10⁻⁷ · action: growth by a(w) segments
//! per round, decrease by the share b(w) on loss.
//!
//! Source: RFC 3649 section 5 and appendix B. Deviations: a(w) and b(w) are computed instead of read
//! from appendix B's table, and again only when the window has changed by a segment. Beyond
//! High_Window b stays at High_Decrease; the formula would fall towards zero.

use libm::{log, pow};
use units::{Bytes, Instant};

use super::window::{LIMIT, Window};
use super::{Ack, CongestionControl, Loss, Recovery, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "highspeed";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "steeper growth and milder decrease for large windows";
/// Where it is specified.
pub const SOURCE: &str = "RFC 3649";

config! {
    /// The constants of RFC 3649 section 5.
    pub struct Config {
        /// Window below which it behaves as Reno, in segments (RFC 3649 section 5: Low_Window).
        low_window: f64 = 38.0, 2.0, 10000.0;
        /// Segments that define the upper end of the response function (RFC 3649 section 5: High_Window).
        high_window: f64 = 83000.0, 20000.0, 1000000.0;
        /// Loss rate at the upper end (RFC 3649 section 5: High_P).
        high_p: f64 = 0.0000001, 0.000000001, 0.0001;
        /// Share by which a loss reduces the window at the upper end (RFC 3649 section 5: High_Decrease).
        high_decrease: f64 = 0.1, 0.01, 0.5;
    }
}

/// HighSpeed TCP for one connection.
#[derive(Clone, Debug)]
pub struct HighSpeed {
    config: Config,
    window: Window,
    /// Exponent of p(w) ∝ w^exponent, between the two ends of the response function.
    exponent: f64,
    /// Loss rate p at Low_Window.
    low_p: f64,
    /// The logarithm ln(High_Window / Low_Window).
    span: f64,
    /// Window that a was computed for, and a.
    computed: (f64, f64),
}

impl HighSpeed {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> HighSpeed {
        let span = log(config.high_window / config.low_window);
        // RFC 3649 section 5: Low_P is Reno's loss rate at Low_Window by w = 1.2 / √p (10⁻³ at 38 segments).
        let low_p = 1.44 / (config.low_window * config.low_window);
        let exponent = log(config.high_p / low_p) / span;
        HighSpeed {
            config,
            window: Window::new(setup),
            exponent,
            low_p,
            span,
            computed: (0.0, 1.0),
        }
    }

    /// Share by which a loss reduces window `w` (RFC 3649 section 5).
    fn b(&self, w: f64) -> f64 {
        if w <= self.config.low_window {
            return 0.5;
        }
        let part = (log(w / self.config.low_window) / self.span).min(1.0);
        0.5 + (self.config.high_decrease - 0.5) * part
    }

    /// Growth in segments per round at window `w`: w² p(w) 2 b / (2 − b) (RFC 3649 section 5).
    fn a(&self, w: f64) -> f64 {
        if w <= self.config.low_window {
            return 1.0;
        }
        let b = self.b(w);
        let p = self.low_p * pow(w / self.config.low_window, self.exponent);
        (w * w * p * 2.0 * b / (2.0 - b)).max(1.0)
    }

    fn left(&self) -> f64 {
        let window = self.window.segments();
        window * (1.0 - self.b(window))
    }
}

impl CongestionControl for HighSpeed {
    fn on_ack(&mut self, _now: Instant, ack: &Ack, _rng: &mut Rng) {
        if ack.recovery == Recovery::Recovering || !ack.window_limited {
            return;
        }
        let rest = self.window.slow_start(self.window.count(ack.acked), LIMIT as f64);
        if rest > 0.0 {
            let window = self.window.segments();
            if libm::fabs(window - self.computed.0) >= 1.0 {
                self.computed = (window, self.a(window));
            }
            self.window.grow(rest, self.computed.1);
        }
    }

    fn on_loss(&mut self, _now: Instant, _loss: &Loss) {
        self.window.decrease(self.left());
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        self.window.collapse(self.left(), timeout);
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.undo();
    }

    fn window(&self) -> Bytes {
        self.window.bytes()
    }

    fn state(&self) -> State {
        let reno = self.window.segments() <= self.config.low_window;
        self.window.state(if reno { "reno" } else { "avoidance" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_and_b_are_those_of_the_table_in_rfc_3649_appendix_b() {
        let cc = HighSpeed::new(Config::default(), &Setup::default());
        // Rows w, a(w), b(w): the window at which a(w) reaches the next whole number.
        for (w, a, b) in [
            (38.0, 1.0, 0.50),
            (118.0, 2.0, 0.44),
            (221.0, 3.0, 0.41),
            (347.0, 4.0, 0.38),
            (495.0, 5.0, 0.37),
            (1058.0, 8.0, 0.33),
            (5036.0, 20.0, 0.25),
            (10661.0, 30.0, 0.21),
            (30975.0, 50.0, 0.15),
            (64851.0, 66.0, 0.11),
        ] {
            // The appendix takes p(w) = 0.078 / w^1.2, rounded from the three points that define it.
            let error: f64 = cc.a(w) / a - 1.0;
            assert!(error.abs() < 0.05, "a({w}) = {} instead of {a}", cc.a(w));
            assert!((cc.b(w) - b).abs() < 0.0075, "b({w}) = {} instead of {b}", cc.b(w));
        }
    }

    #[test]
    fn the_published_loss_rate_carries_83000_segments() {
        // RFC 3649 section 5: w = 83,000 at p = 10⁻⁷.
        let cc = HighSpeed::new(Config::default(), &Setup::default());
        let p = cc.low_p * pow(83000.0 / 38.0, cc.exponent);
        assert!((p / 1e-7 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn small_windows_are_renos() {
        let mut cc =
            HighSpeed::new(Config::default(), &Setup { initial_window: 30, ..Setup::default() });
        cc.on_loss(Instant::ZERO, &Loss { lost: Bytes(1448), in_flight: Bytes(30 * 1448) });
        assert_eq!(cc.window(), Bytes(15 * 1448));
        let ack = Ack { acked: Bytes(15 * 1448), window_limited: true, ..Ack::default() };
        cc.on_ack(Instant::ZERO, &ack, &mut Rng::new(1, "test"));
        assert_eq!(cc.window(), Bytes(16 * 1448));
    }
}
