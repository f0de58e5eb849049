//! NewReno: one segment more per round trip, half the flight on loss.
//!
//! signal: bytes acknowledged, a loss episode, a timeout · model: additive increase, multiplicative
//! decrease · action: the congestion window.
//!
//! Sources: RFC 5681 (window), RFC 6582 (one decrease per episode), RFC 3465 (bytes counted, L = 2),
//! RFC 6928 (initial window). Deviation: the sender's PRR replaces the window inflation by duplicate
//! ACKs (RFC 5681 section 3.2), as in Linux.

use units::{Bytes, Instant};

use super::{Ack, CongestionControl, Loss, Recovery, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "newreno";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "additive increase, halved on loss";
/// Where it is specified.
pub const SOURCE: &str = "RFC 5681, RFC 6582, RFC 3465";

config! {
    /// The constants of RFC 5681.
    pub struct Config {
        /// Share of the flight that remains after a loss (RFC 5681 equation 4).
        beta: f64 = 0.5, 0.1, 0.95;
        /// Segments that one ACK may add in slow start (RFC 3465 section 2.2: L = 2, the ACK of two segments).
        limit: u64 = 2, 1, 64;
    }
}

/// NewReno for one connection.
#[derive(Clone, Debug)]
pub struct NewReno {
    config: Config,
    mss: Bytes,
    window: Bytes,
    threshold: Option<Bytes>,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    counted: Bytes,
    /// Window and threshold before the last decrease, to undo it.
    before: (Bytes, Option<Bytes>),
}

impl NewReno {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> NewReno {
        let window = setup.first_window();
        NewReno {
            config,
            mss: setup.mss,
            window,
            threshold: None,
            counted: Bytes::ZERO,
            before: (window, None),
        }
    }

    fn decrease(&mut self, in_flight: Bytes) -> Bytes {
        self.before = (self.window, self.threshold);
        self.counted = Bytes::ZERO;
        // Data sent beyond the window (limited transmit) does not count.
        let flight = in_flight.min(self.window.max(self.mss * 2));
        let left = Bytes((flight.0 as f64 * self.config.beta) as u64).max(self.mss * 2);
        self.threshold = Some(left);
        left
    }
}

impl CongestionControl for NewReno {
    fn on_ack(&mut self, _now: Instant, ack: &Ack, _rng: &mut Rng) {
        if ack.recovery == Recovery::Recovering || !ack.window_limited {
            return;
        }
        let mut acked = ack.acked;
        if self.threshold.is_none_or(|t| self.window < t) {
            let to_threshold = self.threshold.map_or(Bytes(u64::MAX), |t| t - self.window);
            let step = acked.min(self.mss * self.config.limit).min(to_threshold);
            self.window += step;
            acked = if step == to_threshold { acked - step } else { Bytes::ZERO };
        }
        self.counted += acked;
        if self.counted >= self.window {
            self.counted = self.counted - self.window;
            self.window += self.mss;
        }
    }

    fn on_loss(&mut self, _now: Instant, loss: &Loss) {
        self.window = self.decrease(loss.in_flight);
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        if timeout.count == 1 {
            self.decrease(timeout.in_flight);
        }
        self.window = self.mss;
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window = self.window.max(self.before.0);
        self.threshold = self.before.1;
    }

    fn window(&self) -> Bytes {
        self.window
    }

    fn state(&self) -> State {
        let slow_start = self.threshold.is_none_or(|t| self.window < t);
        State {
            window: self.window,
            threshold: self.threshold,
            pacing_rate: None,
            phase: if slow_start { "slow_start" } else { "avoidance" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(bytes: u64) -> Ack {
        Ack { acked: Bytes(bytes), window_limited: true, ..Ack::default() }
    }

    #[test]
    fn the_window_doubles_per_round_before_the_first_loss() {
        let mut cc = NewReno::new(Config::default(), &Setup::default());
        let mut rng = Rng::new(1, "test");
        for _ in 0..5 {
            cc.on_ack(Instant::ZERO, &ack(2 * 1448), &mut rng);
        }
        assert_eq!(cc.window(), Bytes(20 * 1448));
    }

    #[test]
    fn a_loss_halves_the_flight_and_a_round_then_adds_one_segment() {
        let mut cc = NewReno::new(Config::default(), &Setup::default());
        let mut rng = Rng::new(1, "test");
        for _ in 0..15 {
            cc.on_ack(Instant::ZERO, &ack(2 * 1448), &mut rng);
        }
        cc.on_loss(Instant::ZERO, &Loss { lost: Bytes(1448), in_flight: Bytes(40 * 1448) });
        assert_eq!(cc.window(), Bytes(20 * 1448));
        for _ in 0..10 {
            cc.on_ack(Instant::ZERO, &ack(2 * 1448), &mut rng);
        }
        assert_eq!(cc.window(), Bytes(21 * 1448));
    }

    #[test]
    fn a_decrease_that_was_a_mistake_is_taken_back() {
        let mut cc = NewReno::new(Config::default(), &Setup::default());
        cc.on_timeout(Instant::ZERO, &Timeout { in_flight: Bytes(10 * 1448), count: 1 });
        assert_eq!(cc.window(), Bytes(1448));
        cc.on_spurious(Instant::ZERO);
        assert_eq!(cc.window(), Bytes(10 * 1448));
    }
}
