//! BIC: binary search for the window between those before and after the last loss.
//!
//! signal: segments acknowledged, a loss · model: the right window lies between the window after the
//! last loss and the one before it · action: grow by a quarter of the distance each round, at most 16
//! segments. Beyond the old maximum the same steps follow in reverse order.
//!
//! Sources: Xu, Harfoush, Rhee, "Binary increase congestion control for fast, long distance networks"
//! (INFOCOM 2004); Linux `tcp_bic.c` for details that the paper leaves open. Deviation: Linux also
//! multiplies the growth by its estimate of segments per ACK, because it counts ACKs; here segments
//! are counted.

use units::{Bytes, Instant};

use super::window::{LIMIT, Window};
use super::{Ack, CongestionControl, Loss, Recovery, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "bic";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "binary search for the window of the last loss, CUBIC's ancestor";
/// Where it is specified.
pub const SOURCE: &str = "Xu, Harfoush, Rhee (INFOCOM 2004); Linux net/ipv4/tcp_bic.c";

config! {
    /// The constants of the paper and of Linux.
    pub struct Config {
        /// Share that remains after a loss (Linux 819/1024).
        beta: f64 = 0.8, 0.1, 0.95;
        /// Largest growth, in segments per round: the paper's Smax (Linux `max_increment`).
        max_increment: f64 = 16.0, 1.0, 1000.0;
        /// Window below which it behaves as Reno, in segments (Linux `low_window`).
        low_window: f64 = 14.0, 0.0, 10000.0;
        /// One round covers this part of the distance (Linux `BICTCP_B`).
        divisor: f64 = 4.0, 1.0, 100.0;
        /// Rounds from one step below the maximum to it (Linux `smooth_part`).
        smooth: f64 = 20.0, 1.0, 1000.0;
        /// Release bandwidth to new flows: a loss below the maximum lowers the maximum further (the paper's section III).
        fast_convergence: bool = true;
    }
}

/// BIC for one connection.
#[derive(Clone, Debug)]
pub struct Bic {
    config: Config,
    window: Window,
    max: Option<f64>,
    max_before: Option<f64>,
}

impl Bic {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Bic {
        Bic { config, window: Window::new(setup), max: None, max_before: None }
    }

    /// Growth at the current window, in segments per round.
    fn increment(&self) -> f64 {
        let c = &self.config;
        let window = self.window.segments();
        if window <= c.low_window {
            return 1.0;
        }
        let max = self.max.unwrap_or(0.0);
        let gentle = c.divisor / c.smooth;
        let step = if window < max {
            let distance = (max - window) / c.divisor;
            if distance <= 1.0 { gentle } else { distance.min(c.max_increment) }
        } else if window < max + c.divisor {
            gentle
        } else if window < max + c.max_increment * (c.divisor - 1.0) {
            (window - max) / (c.divisor - 1.0)
        } else {
            c.max_increment
        };
        // Linux: before the first loss, at least 5 % per round.
        if self.max.is_none() { step.max(window / 20.0) } else { step }
    }

    fn decrease(&mut self) -> f64 {
        self.max_before = self.max;
        let window = self.window.segments();
        let early = self.max.is_some_and(|max| window < max) && self.config.fast_convergence;
        self.max = Some(if early { window * (1.0 + self.config.beta) / 2.0 } else { window });
        window * if window <= self.config.low_window { 0.5 } else { self.config.beta }
    }
}

impl CongestionControl for Bic {
    fn on_ack(&mut self, _now: Instant, ack: &Ack, _rng: &mut Rng) {
        if ack.recovery == Recovery::Recovering || !ack.window_limited {
            return;
        }
        let rest = self.window.slow_start(self.window.count(ack.acked), LIMIT as f64);
        if rest > 0.0 {
            self.window.grow(rest, self.increment());
        }
    }

    fn on_loss(&mut self, _now: Instant, _loss: &Loss) {
        let left = self.decrease();
        self.window.decrease(left);
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        let left = if timeout.count <= 1 { self.decrease() } else { 0.0 };
        self.window.collapse(left, timeout);
        // Linux bictcp_state: a timeout resets the maximum.
        self.max = None;
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.undo();
        self.max = self.max_before;
    }

    fn window(&self) -> Bytes {
        self.window.bytes()
    }

    fn state(&self) -> State {
        self.window.state(match self.max {
            Some(max) if self.window.segments() < max => "search",
            _ => "probing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1448;

    fn after_loss(at: u64) -> Bic {
        let mut cc = Bic::new(Config::default(), &Setup { initial_window: at, ..Setup::default() });
        cc.on_loss(Instant::ZERO, &Loss { lost: Bytes(MSS), in_flight: Bytes(at * MSS) });
        cc
    }

    #[test]
    fn a_loss_leaves_eight_tenths_and_half_of_a_small_window() {
        assert_eq!(after_loss(1000).window(), Bytes(800 * MSS));
        assert_eq!(after_loss(14).window(), Bytes(7 * MSS));
    }

    #[test]
    fn far_below_the_maximum_the_window_grows_16_segments_per_round() {
        let mut cc = after_loss(1000);
        for _ in 0..800 {
            cc.on_ack(
                Instant::ZERO,
                &Ack { acked: Bytes(MSS), window_limited: true, ..Ack::default() },
                &mut Rng::new(1, "test"),
            );
        }
        assert!((cc.window.segments() - 816.0).abs() < 0.2, "{}", cc.window.segments());
    }

    #[test]
    fn near_the_maximum_it_goes_a_quarter_of_the_way_and_then_a_fifth_of_a_segment() {
        let mut cc = after_loss(1000);
        cc.window.set(980.0);
        assert_eq!(cc.increment(), 5.0);
        cc.window.set(997.0);
        assert_eq!(cc.increment(), 0.2);
        // Beyond it, the mirror image: slowly at first, then a third of the distance, then Smax.
        cc.window.set(1003.0);
        assert_eq!(cc.increment(), 0.2);
        cc.window.set(1030.0);
        assert_eq!(cc.increment(), 10.0);
        cc.window.set(1048.0);
        assert_eq!(cc.increment(), 16.0);
    }

    #[test]
    fn a_loss_before_the_maximum_gives_way() {
        let mut cc = after_loss(1000);
        cc.on_loss(Instant::ZERO, &Loss { lost: Bytes(MSS), in_flight: Bytes(800 * MSS) });
        assert_eq!(cc.max, Some(720.0));
    }
}
