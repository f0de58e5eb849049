//! H-TCP: the window grows faster the longer the last loss is ago.
//!
//! signal: segments acknowledged, time since the last loss, RTTs, throughput between losses · model: a
//! path without loss for a long time has spare capacity; a decrease by the ratio of smallest to largest
//! RTT just empties the queue · action: growth by α(Δ) segments per round, decrease to the share
//! β = RTTmin / RTTmax on loss.
//!
//! Sources: Leith, Shorten, "H-TCP: TCP for high-speed and long-distance networks" (PFLDnet 2004),
//! draft-leith-tcp-htcp-06; Linux `tcp_htcp.c` for the smoothing. Deviations: exact instead of
//! fixed-point arithmetic; idle time does not lower the throughput.

use units::{Bytes, Duration, Instant};

use super::window::{LIMIT, Window, seconds};
use super::{Ack, CongestionControl, Loss, Recovery, Sent, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "htcp";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "growth rises with the time since the last loss";
/// Where it is specified.
pub const SOURCE: &str = "draft-leith-tcp-htcp-06; Linux net/ipv4/tcp_htcp.c";

config! {
    /// The constants of the draft and of Linux.
    pub struct Config {
        /// Time after a loss in which it behaves as Reno (draft: Δ_L = 1 s).
        delta_low: Duration = Duration::from_secs(1), Duration::ZERO, Duration::from_secs(60);
        /// Smallest share that remains after a loss (draft: 0.5).
        beta_min: f64 = 0.5, 0.1, 0.95;
        /// Largest share that remains after a loss (draft: 0.8).
        beta_max: f64 = 0.8, 0.1, 0.95;
        /// Scale α by the smallest RTT over 100 ms (Linux `use_rtt_scaling` = 1).
        rtt_scaling: bool = true;
        /// Halve when the throughput changed by more than a fifth between two losses (Linux `use_bandwidth_switch` = 1).
        bandwidth_switch: bool = true;
    }
}

/// Linux: the largest RTT grows by at most this per sample, so that one outlier does not count.
const MAX_RTT_STEP: Duration = Duration::from_millis(20);
/// Linux: below this smallest RTT, the ratio of RTTs is noise.
const MIN_RTT_FOR_RATIO: Duration = Duration::from_millis(10);

/// Range of RTT and throughput, and the time at which the last loss recovery ended.
#[derive(Clone, Copy, Debug)]
struct Path {
    loss_end: Instant,
    /// Smallest RTT; zero before the first sample.
    min_rtt: Duration,
    max_rtt: Duration,
    /// Largest throughput since the last loss, and between the two losses before, segments per second.
    max_rate: f64,
    old_max_rate: f64,
}

/// H-TCP for one connection.
#[derive(Clone, Debug)]
pub struct Htcp {
    config: Config,
    window: Window,
    beta: f64,
    alpha: f64,
    path: Path,
    before: Path,
    /// The ratio of RTTs is valid: not at the first loss after a change of throughput.
    adaptive: bool,
    counted: f64,
    counted_since: Instant,
    rate: f64,
}

impl Htcp {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Htcp {
        let path = Path {
            loss_end: Instant::ZERO,
            min_rtt: Duration::ZERO,
            max_rtt: Duration::ZERO,
            max_rate: 0.0,
            old_max_rate: 0.0,
        };
        let beta = config.beta_min;
        Htcp {
            config,
            window: Window::new(setup),
            beta,
            alpha: 1.0,
            path,
            before: path,
            adaptive: false,
            counted: 0.0,
            counted_since: Instant::ZERO,
            rate: 0.0,
        }
    }

    /// Growth in segments per round, `elapsed` seconds after the last loss.
    fn alpha(&self, elapsed: f64) -> f64 {
        // draft section 3: α(Δ) = 1 + 10 (Δ − Δ_L) + ((Δ − Δ_L) / 2)².
        let beyond = (elapsed - self.config.delta_low.as_secs_f64()).max(0.0);
        let mut alpha = 1.0 + 10.0 * beyond + 0.25 * beyond * beyond;
        if self.config.rtt_scaling && self.path.min_rtt > Duration::ZERO {
            // Linux: scaled to rounds of 100 ms; the ratio is in [1/10, 2].
            alpha *= (self.path.min_rtt.as_secs_f64() / 0.1).clamp(0.1, 2.0);
        }
        // draft section 3: a smaller decrease goes with slower growth.
        (2.0 * (1.0 - self.beta) * alpha.max(1.0)).max(1.0)
    }

    fn measure(&mut self, now: Instant, ack: &Ack) {
        let path = &mut self.path;
        if let Some(rtt) = ack.rtt.filter(|rtt| *rtt > Duration::ZERO) {
            if path.min_rtt == Duration::ZERO || rtt < path.min_rtt {
                path.min_rtt = rtt;
            }
            if ack.recovery == Recovery::Open {
                path.max_rtt = path.max_rtt.max(path.min_rtt);
                if rtt > path.max_rtt && rtt <= path.max_rtt + MAX_RTT_STEP {
                    path.max_rtt = rtt;
                }
            }
        }
        if ack.recovery != Recovery::Open {
            self.counted = 0.0;
            self.counted_since = now;
            return;
        }
        self.counted += self.window.count(ack.acked);
        let span = now.since(self.counted_since);
        let round = path.min_rtt > Duration::ZERO && span >= path.min_rtt;
        if round && self.counted >= self.window.segments() - self.alpha {
            let rate = self.counted / span.as_secs_f64();
            if now.since(path.loss_end).0 / path.min_rtt.0 <= 3 {
                // Just after a decrease, earlier rates do not count.
                self.rate = rate;
                path.max_rate = rate;
            } else {
                self.rate = (3.0 * self.rate + rate) / 4.0;
                path.max_rate = path.max_rate.max(self.rate);
            }
            self.counted = 0.0;
            self.counted_since = now;
        }
    }

    fn decrease(&mut self, now: Instant) -> f64 {
        self.before = self.path;
        let path = &mut self.path;
        let old = core::mem::replace(&mut path.old_max_rate, path.max_rate);
        let steady = path.max_rate >= 0.8 * old && path.max_rate <= 1.2 * old;
        self.beta = self.config.beta_min;
        if self.config.bandwidth_switch && !steady {
            self.adaptive = false;
        } else if self.adaptive && path.min_rtt > MIN_RTT_FOR_RATIO && path.max_rtt > Duration::ZERO
        {
            let ratio = path.min_rtt.0 as f64 / path.max_rtt.0 as f64;
            self.beta = ratio.min(self.config.beta_max).max(self.config.beta_min);
        } else {
            self.adaptive = true;
        }
        // Linux: the largest RTT decays, because the route may have changed.
        let spread = path.max_rtt.saturating_sub(path.min_rtt);
        path.max_rtt = path.min_rtt + Duration((spread.0 as f64 * 0.95) as u64);
        path.loss_end = now;
        self.window.segments() * self.beta
    }
}

impl CongestionControl for Htcp {
    fn on_sent(&mut self, now: Instant, sent: &Sent, _rng: &mut Rng) {
        if sent.in_flight == Bytes::ZERO {
            self.counted = 0.0;
            self.counted_since = now;
        }
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack, _rng: &mut Rng) {
        self.measure(now, ack);
        if ack.recovery == Recovery::Recovering || !ack.window_limited {
            return;
        }
        let rest = self.window.slow_start(self.window.count(ack.acked), LIMIT as f64);
        if rest > 0.0 {
            self.alpha = self.alpha(seconds(now, self.path.loss_end));
            self.window.grow(rest, self.alpha);
        }
    }

    fn on_loss(&mut self, now: Instant, _loss: &Loss) {
        let left = self.decrease(now);
        self.window.decrease(left);
    }

    fn on_timeout(&mut self, now: Instant, timeout: &Timeout) {
        let left = if timeout.count <= 1 { self.decrease(now) } else { 0.0 };
        self.window.collapse(left, timeout);
    }

    fn on_recovered(&mut self, now: Instant) {
        // Linux htcp_state: time counts from the end of recovery.
        self.path.loss_end = now;
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.undo();
        self.path = self.before;
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

    fn htcp() -> Htcp {
        Htcp::new(Config::default(), &Setup { initial_window: 100, ..Setup::default() })
    }

    #[test]
    fn alpha_is_renos_for_a_second_and_quadratic_afterwards() {
        // draft section 3, with β = 0.5 so that 2 (1 − β) = 1, and an RTT of 100 ms so that scaling is 1.
        let mut cc = htcp();
        cc.path.min_rtt = Duration::from_millis(100);
        assert_eq!(cc.alpha(0.5), 1.0);
        assert_eq!(cc.alpha(1.0), 1.0);
        assert_eq!(cc.alpha(2.0), 11.25);
        assert_eq!(cc.alpha(11.0), 126.0);
        cc.beta = 0.8;
        assert!((cc.alpha(2.0) - 0.4 * 11.25).abs() < 1e-9);
        // Short paths grow per time what a path of 100 ms does, within a factor of ten.
        cc.beta = 0.5;
        cc.path.min_rtt = Duration::from_millis(50);
        assert_eq!(cc.alpha(11.0), 63.0);
        cc.path.min_rtt = Duration::from_millis(1);
        assert!((cc.alpha(11.0) - 12.6).abs() < 1e-9);
    }

    #[test]
    fn beta_is_the_ratio_of_rtts_from_the_second_loss_on() {
        let mut cc = htcp();
        cc.path.min_rtt = Duration::from_millis(70);
        cc.path.max_rtt = Duration::from_millis(100);
        let loss = Loss { lost: Bytes(1448), in_flight: Bytes(100 * 1448) };
        cc.on_loss(Instant::ZERO, &loss);
        assert_eq!(cc.window(), Bytes(50 * 1448));
        cc.path.max_rtt = Duration::from_millis(100);
        cc.on_loss(Instant::ZERO, &loss);
        assert_eq!(cc.window(), Bytes(35 * 1448));
        cc.path.max_rtt = Duration::from_millis(1000);
        cc.on_loss(Instant::ZERO, &loss);
        assert_eq!(cc.beta, 0.5);
        cc.path.max_rtt = Duration::from_millis(71);
        cc.on_loss(Instant::ZERO, &loss);
        assert_eq!(cc.beta, 0.8);
    }

    #[test]
    fn a_change_of_throughput_by_more_than_a_fifth_halves() {
        let mut cc = htcp();
        cc.path.min_rtt = Duration::from_millis(70);
        cc.path.max_rtt = Duration::from_millis(100);
        cc.adaptive = true;
        (cc.path.max_rate, cc.path.old_max_rate) = (1300.0, 1000.0);
        cc.on_loss(Instant::ZERO, &Loss { lost: Bytes(1448), in_flight: Bytes(1448) });
        assert_eq!(cc.beta, 0.5);
    }
}
