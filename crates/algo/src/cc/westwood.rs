//! Westwood+: Reno with a decrease to the measured bandwidth-delay product.
//!
//! signal: bytes acknowledged per round trip · model: a low-pass filter of that bandwidth · action:
//! after a loss the window is bandwidth · smallest RTT. A random loss then costs little, and an overflow
//! empties the queue.
//!
//! Sources: Mascolo, Casetti, Gerla, Sanadidi, Wang, "TCP Westwood" (MobiCom 2001); Grieco, Mascolo,
//! "Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP congestion control"
//! (CCR 2004); Linux `tcp_westwood.c`. Deviation: a loss before the first bandwidth sample halves the
//! flight (RFC 5681); Linux would reduce the window to two segments.

use units::{Bytes, Duration, Instant};

use super::window::{LIMIT, Window};
use super::{Ack, CongestionControl, Loss, Recovery, Sent, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "westwood";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "Reno that falls back to measured bandwidth times smallest RTT";
/// Where it is specified.
pub const SOURCE: &str =
    "Mascolo et al. (MobiCom 2001), Grieco and Mascolo (CCR 2004); Linux net/ipv4/tcp_westwood.c";

choice! {
    /// The filter that smooths bandwidth samples.
    pub enum Filter {
        /// One pole at 0.9, the mean of two samples: B ← 0.9 B + 0.1 (b + b₋₁) / 2.
        Tustin = "tustin",
        /// The filter of Linux: two of 7/8 in series.
        Linux = "linux",
    }
}

config! {
    /// The constants of the papers and of Linux.
    pub struct Config {
        /// Low-pass filter of the bandwidth (Mascolo 2001, or Linux `westwood_filter`).
        filter: Filter = Filter::Tustin;
        /// Weight of the past in the tustin filter (Grieco 2004: 0.9).
        gain: f64 = 0.9, 0.0, 0.99;
        /// Shortest time over which bandwidth is measured (Linux `TCP_WESTWOOD_RTT_MIN`: 50 ms).
        shortest: Duration = Duration::from_millis(50), Duration::ZERO, Duration::from_secs(10);
    }
}

/// Westwood+ for one connection.
#[derive(Clone, Debug)]
pub struct Westwood {
    config: Config,
    window: Window,
    counted: Bytes,
    /// Start of the current sample; `None` before the first ACK.
    since: Option<Instant>,
    /// Last sample, the first of Linux's two filters, and the result, in bytes per second.
    sample: f64,
    first: f64,
    bandwidth: Option<f64>,
    min_rtt: Duration,
}

impl Westwood {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Westwood {
        Westwood {
            config,
            window: Window::new(setup),
            counted: Bytes::ZERO,
            since: None,
            sample: 0.0,
            first: 0.0,
            bandwidth: None,
            min_rtt: Duration::MAX,
        }
    }

    fn measure(&mut self, now: Instant, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.min_rtt = self.min_rtt.min(rtt);
        }
        let Some(since) = self.since else {
            // The data of the first ACK was sent before the sample began.
            self.since = Some(now);
            return;
        };
        self.counted += ack.acked;
        let span = now.since(since);
        if ack.srtt == Duration::ZERO
            || span < ack.srtt.max(self.config.shortest)
            || span == Duration::ZERO
        {
            return;
        }
        let sample = self.counted.0 as f64 / span.as_secs_f64();
        self.bandwidth = Some(match (self.bandwidth, self.config.filter) {
            (None, _) => {
                self.first = sample;
                sample
            }
            (Some(b), Filter::Tustin) => {
                let gain = self.config.gain;
                gain * b + (1.0 - gain) * (sample + self.sample) / 2.0
            }
            (Some(b), Filter::Linux) => {
                self.first = (7.0 * self.first + sample) / 8.0;
                (7.0 * b + self.first) / 8.0
            }
        });
        self.sample = sample;
        self.counted = Bytes::ZERO;
        self.since = Some(now);
    }

    /// Bandwidth · RTTmin in segments, never more than the window.
    fn left(&self, in_flight: Bytes) -> f64 {
        match self.bandwidth {
            Some(bandwidth) if self.min_rtt != Duration::MAX => {
                let bytes = bandwidth * self.min_rtt.as_secs_f64();
                self.window.count(Bytes(bytes as u64)).min(self.window.segments())
            }
            _ => self.window.flight(in_flight) / 2.0,
        }
    }
}

impl CongestionControl for Westwood {
    fn on_sent(&mut self, now: Instant, sent: &Sent, _rng: &mut Rng) {
        if sent.in_flight == Bytes::ZERO && self.since.is_some() {
            // Idle time is no sign of low bandwidth.
            self.since = Some(now);
            self.counted = Bytes::ZERO;
        }
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack, _rng: &mut Rng) {
        self.measure(now, ack);
        if ack.recovery == Recovery::Recovering || !ack.window_limited {
            return;
        }
        let rest = self.window.slow_start(self.window.count(ack.acked), LIMIT as f64);
        if rest > 0.0 {
            self.window.grow(rest, 1.0);
        }
    }

    fn on_loss(&mut self, _now: Instant, loss: &Loss) {
        self.window.decrease(self.left(loss.in_flight));
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        self.window.collapse(self.left(timeout.in_flight), timeout);
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

    /// ACKs of one segment each `gap_ms`, with an RTT of `rtt_ms`, from `from_ms` on.
    fn feed(cc: &mut Westwood, from_ms: u64, count: u64, gap_ms: u64, rtt_ms: u64) {
        let rtt = Duration::from_millis(rtt_ms);
        for n in 0..count {
            let now = Instant::ZERO + Duration::from_millis(from_ms + n * gap_ms);
            let ack = Ack { acked: Bytes(1448), rtt: Some(rtt), srtt: rtt, ..Ack::default() };
            cc.on_ack(now, &ack, &mut Rng::new(1, "test"));
        }
    }

    #[test]
    fn a_loss_leaves_bandwidth_times_the_smallest_rtt() {
        // One segment per millisecond and a smallest RTT of 50 ms are 50 segments, whatever queue stood there.
        for filter in [Filter::Tustin, Filter::Linux] {
            let config = Config { filter, ..Config::default() };
            let mut cc = Westwood::new(config, &Setup { initial_window: 200, ..Setup::default() });
            feed(&mut cc, 0, 1, 1, 50);
            feed(&mut cc, 1, 4000, 1, 200);
            cc.on_loss(Instant::ZERO, &Loss { lost: Bytes(1448), in_flight: Bytes(200 * 1448) });
            assert!((cc.window.segments() - 50.0).abs() < 0.1, "{}", cc.window.segments());
        }
    }

    #[test]
    fn the_filter_keeps_nine_tenths_of_the_past() {
        let mut cc = Westwood::new(Config::default(), &Setup::default());
        // Samples of 100 ms at 1 segment/ms, then one at half of it.
        feed(&mut cc, 0, 1001, 1, 100);
        let before = cc.bandwidth.unwrap_or(0.0);
        assert!((before - 1_448_000.0).abs() < 1.0, "{before}");
        feed(&mut cc, 1002, 50, 2, 100);
        let after = cc.bandwidth.unwrap_or(0.0);
        assert!((after / before - (0.9 + 0.1 * 0.75)).abs() < 1e-3, "{}", after / before);
    }

    #[test]
    fn a_loss_before_the_first_sample_halves_the_flight() {
        let mut cc = Westwood::new(Config::default(), &Setup::default());
        cc.on_loss(Instant::ZERO, &Loss { lost: Bytes(1448), in_flight: Bytes(10 * 1448) });
        assert_eq!(cc.window(), Bytes(5 * 1448));
    }
}
