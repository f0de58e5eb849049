//! Vegas: keeps a few packets in the queue.
//!
//! signal: the smallest RTT of each round, and the smallest ever (base RTT) · model: window ·
//! (RTT − base) / RTT packets are in the queue · action: once per round one segment more below α
//! packets, one less above β.
//!
//! Sources: Brakmo, Peterson, "TCP Vegas: end to end congestion avoidance on a global Internet" (JSAC
//! 1995); `form = "linux"` is Linux `tcp_vegas.c`: it divides by the base RTT instead, doubles in every
//! round of slow start and resets the base RTT after idle time.
//!
//! Deviations: the paper's finer retransmission timers belong to the sender; losses halve the flight,
//! as in Linux (the paper reduces it by a quarter at the first retransmission). With fewer than three
//! RTT samples in a round it behaves as Reno, as in Linux.

use units::{Bytes, Duration, Instant};

use super::window::{LIMIT, Window};
use super::{Ack, CongestionControl, Loss, Recovery, Rounds, Sent, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "vegas";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "keeps two to four packets in the queue, by delay";
/// Where it is specified.
pub const SOURCE: &str = "Brakmo and Peterson (JSAC 1995); Linux net/ipv4/tcp_vegas.c";

choice! {
    /// The source to follow where paper and Linux differ.
    pub enum Form {
        /// The paper of Brakmo and Peterson.
        Paper = "paper",
        /// The code of Linux's `tcp_vegas.c`.
        Linux = "linux",
    }
}

config! {
    /// The constants of the paper.
    pub struct Config {
        /// Packets in the queue below which the window grows (paper: 2).
        alpha: f64 = 2.0, 0.0, 1000.0;
        /// Packets in the queue above which it shrinks (paper: 4).
        beta: f64 = 4.0, 0.0, 1000.0;
        /// Packets in the queue that end slow start (paper: 1).
        gamma: f64 = 1.0, 0.0, 1000.0;
        /// The algorithm of the paper, or of Linux.
        form: Form = Form::Paper;
    }
}

/// RTT samples in a round, at least (Linux): two may both be of delayed ACKs.
const MIN_SAMPLES: u32 = 3;

/// Vegas for one connection.
#[derive(Clone, Debug)]
pub struct Vegas {
    config: Config,
    window: Window,
    rounds: Rounds,
    base: Duration,
    round_min: Duration,
    samples: u32,
    /// The current round began before a recovery or an idle time and does not count.
    stale: bool,
    /// The paper's slow start grows in every other round only.
    growing: bool,
}

impl Vegas {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Vegas {
        Vegas {
            config,
            window: Window::new(setup),
            rounds: Rounds::default(),
            base: Duration::MAX,
            round_min: Duration::MAX,
            samples: 0,
            stale: true,
            growing: true,
        }
    }

    fn restart(&mut self) {
        self.round_min = Duration::MAX;
        self.samples = 0;
        self.stale = true;
    }

    /// Packets in the queue, and the window that would have no queue.
    fn queue(&self) -> (f64, f64) {
        let (window, rtt, base) =
            (self.window.segments(), self.round_min.0 as f64, self.base.0 as f64);
        let divisor = if self.config.form == Form::Linux { base } else { rtt };
        (window * (rtt - base) / divisor.max(1.0), window * base / rtt.max(1.0))
    }

    /// The decision once per round.
    fn adjust(&mut self, may_grow: bool) {
        let (queue, target) = self.queue();
        let window = self.window.segments();
        // Two segments, so that ACKs continue; a window below that (after a timeout) stays.
        let floor = window.min(2.0);
        if self.window.in_slow_start() {
            if queue > self.config.gamma {
                // Linux: the window of the actual rate, and one segment for the truncation.
                self.window.set(window.min(target + 1.0).max(floor));
                self.window.leave_slow_start();
            }
        } else if queue > self.config.beta {
            self.window.set((window - 1.0).max(floor));
            self.window.leave_slow_start();
        } else if queue < self.config.alpha && may_grow {
            self.window.set(window + 1.0);
        }
    }
}

impl CongestionControl for Vegas {
    fn on_sent(&mut self, _now: Instant, sent: &Sent, _rng: &mut Rng) {
        if sent.in_flight == Bytes::ZERO {
            self.restart();
            if self.config.form == Form::Linux {
                self.base = Duration::MAX;
            }
        }
    }

    fn on_ack(&mut self, _now: Instant, ack: &Ack, _rng: &mut Rng) {
        if let Some(rtt) = ack.rtt {
            self.base = self.base.min(rtt);
            self.round_min = self.round_min.min(rtt);
            self.samples += 1;
        }
        let round = self.rounds.on_ack(ack);
        if ack.recovery == Recovery::Recovering {
            self.restart();
            return;
        }
        let mut reno = ack.recovery == Recovery::Lost;
        if round {
            let enough = self.samples >= MIN_SAMPLES && !self.stale && !reno;
            if enough {
                self.adjust(ack.window_limited);
                self.growing = self.config.form == Form::Linux || !self.growing;
            }
            reno |= !enough;
            self.round_min = Duration::MAX;
            self.samples = 0;
            self.stale = false;
        }
        if !ack.window_limited {
            return;
        }
        if self.window.in_slow_start() {
            if self.growing || reno {
                self.window.slow_start(self.window.count(ack.acked), LIMIT as f64);
            }
        } else if reno {
            self.window.grow(self.window.count(ack.acked), 1.0);
        }
    }

    fn on_loss(&mut self, _now: Instant, loss: &Loss) {
        self.window.decrease(self.window.flight(loss.in_flight) / 2.0);
        self.restart();
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        self.window.collapse(self.window.flight(timeout.in_flight) / 2.0, timeout);
        self.restart();
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.restart();
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.undo();
    }

    fn window(&self) -> Bytes {
        self.window.bytes()
    }

    fn state(&self) -> State {
        self.window.state("avoidance")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round of ten ACKs of one segment at `rtt_ms`.
    fn round(cc: &mut Vegas, delivered: &mut u64, rtt_ms: u64) -> f64 {
        let from = *delivered;
        for _ in 0..10 {
            *delivered += 1448;
            let mut ack = Ack {
                acked: Bytes(1448),
                delivered: Bytes(*delivered),
                rtt: Some(Duration::from_millis(rtt_ms)),
                window_limited: true,
                ..Ack::default()
            };
            ack.rate.prior_delivered = Bytes(from);
            cc.on_ack(Instant::ZERO, &ack, &mut Rng::new(1, "test"));
        }
        cc.window.segments()
    }

    #[test]
    fn one_segment_per_round_keeps_the_queue_between_alpha_and_beta() {
        let mut cc =
            Vegas::new(Config::default(), &Setup { initial_window: 40, ..Setup::default() });
        let mut delivered = 0;
        cc.window.leave_slow_start();
        round(&mut cc, &mut delivered, 100);
        // A first round without enough samples is Reno's, for one ACK. The queue of a round is judged at the first ACK
        // of the next: without any, one more.
        assert_eq!(round(&mut cc, &mut delivered, 100), 40.0 + 1.0 / 40.0 + 1.0);
        // 41 · 8 / 108 = 3 packets: stay.
        let held = round(&mut cc, &mut delivered, 108);
        assert_eq!(round(&mut cc, &mut delivered, 120), held);
        // 42 · 20 / 120 = 7 packets: one less.
        assert_eq!(round(&mut cc, &mut delivered, 120), held - 1.0);
    }

    #[test]
    fn linux_counts_the_queue_against_the_base_rtt() {
        for (form, expected) in [(Form::Paper, 4.0), (Form::Linux, 8.0)] {
            let config = Config { form, ..Config::default() };
            let mut cc = Vegas::new(config, &Setup { initial_window: 8, ..Setup::default() });
            cc.base = Duration::from_millis(100);
            cc.round_min = Duration::from_millis(200);
            assert_eq!(cc.queue(), (expected, 4.0));
        }
    }

    #[test]
    fn slow_start_ends_at_one_packet_in_the_queue_and_grows_in_every_other_round() {
        let mut cc =
            Vegas::new(Config::default(), &Setup { initial_window: 40, ..Setup::default() });
        let mut delivered = 0;
        let first = round(&mut cc, &mut delivered, 100);
        let second = round(&mut cc, &mut delivered, 100);
        assert_eq!((first, second - first), (50.0, 0.0));
        assert_eq!(round(&mut cc, &mut delivered, 100) - second, 10.0);
        round(&mut cc, &mut delivered, 110);
        round(&mut cc, &mut delivered, 110);
        assert!(cc.state().threshold.is_some());
    }
}
