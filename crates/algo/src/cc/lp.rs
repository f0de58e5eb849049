//! TCP-LP: uses only the bandwidth that other flows leave.
//!
//! signal: one-way delay, smoothed by an eighth · model: delay beyond 15 % of the range between the
//! smallest and the largest is early congestion, caused by other flows · action: halve the window and
//! do not grow for three round trips; if the delay is high again in that time, one segment. Otherwise
//! Reno.
//!
//! Sources: Kuzmanovic, Knightly, "TCP-LP: a distributed algorithm for low priority data transfer"
//! (INFOCOM 2003); Linux `tcp_lp.c`.
//!
//! Deviations: after an indication Linux takes the smoothed delay as the smallest and twice that as the
//! largest, which depends on the unknown offset between the two clocks. Here the largest is half a
//! smoothed RTT above the smallest. Halving also ends slow start (the paper increases additively; Linux
//! would double again). Without timestamps the RTT replaces the one-way delay.

use units::{Bytes, Duration, Instant};

use super::window::{LIMIT, Window};
use super::{Ack, CongestionControl, Loss, Recovery, Setup, State, Timeout};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "lp";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "low priority: slows down as soon as one-way delay rises";
/// Where it is specified.
pub const SOURCE: &str = "Kuzmanovic and Knightly (INFOCOM 2003); Linux net/ipv4/tcp_lp.c";

config! {
    /// The constants of the paper and of Linux.
    pub struct Config {
        /// Share of the delay's range that counts as early congestion (Linux: 15 %).
        threshold: f64 = 0.15, 0.01, 1.0;
        /// Weight of a new delay sample (paper: 1/8).
        weight: f64 = 0.125, 0.001, 1.0;
        /// Round trips without growth after an indication (Linux: 3).
        inference: u64 = 3, 0, 100;
    }
}

/// Resolution of the timestamps, in seconds: Linux `LP_RESOL`, 1000 per second.
const TICK: f64 = 0.001;

/// The range of one-way delays, in seconds; the offset between the clocks cancels.
#[derive(Clone, Copy, Debug)]
struct Range {
    min: f64,
    max: f64,
    /// The largest delay ever; `max` is the second largest, so that a single outlier does not count.
    reserve: f64,
    smoothed: f64,
}

/// TCP-LP for one connection.
#[derive(Clone, Debug)]
pub struct Lp {
    config: Config,
    window: Window,
    range: Option<Range>,
    /// One-way delays are available: the RTT is not mixed with them.
    one_way: bool,
    rtt: Duration,
    last_drop: Option<Instant>,
    inferring: bool,
}

impl Lp {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Lp {
        let window = Window::new(setup);
        Lp {
            config,
            window,
            range: None,
            one_way: false,
            rtt: Duration::ZERO,
            last_drop: None,
            inferring: false,
        }
    }

    /// Whether the smoothed delay is beyond the threshold.
    fn congested(&mut self, delay: Duration, srtt: Duration) -> bool {
        let delay = delay.as_secs_f64();
        let Some(range) = &mut self.range else {
            self.range = Some(Range { min: delay, max: delay, reserve: delay, smoothed: delay });
            return false;
        };
        range.min = range.min.min(delay);
        if delay > range.reserve {
            range.max = range.reserve;
            range.reserve = delay;
        } else {
            range.max = range.max.max(delay);
        }
        range.smoothed += (delay - range.smoothed) * self.config.weight;
        let threshold = self.config.threshold * (range.max - range.min);
        // Linux compares whole milliseconds (`LP_RESOL`): less than one tick of the clocks is no
        // delay.
        if range.smoothed <= range.min + threshold.max(TICK) {
            return false;
        }
        range.min = range.smoothed;
        range.max = range.smoothed + srtt.as_secs_f64() / 2.0;
        range.reserve = range.max;
        true
    }
}

impl CongestionControl for Lp {
    fn on_ack(&mut self, now: Instant, ack: &Ack, _rng: &mut Rng) {
        if let Some(rtt) = ack.rtt {
            self.rtt = rtt;
        }
        let phase = self.rtt * self.config.inference;
        self.inferring = self.last_drop.is_some_and(|drop| now.since(drop) < phase);
        if ack.one_way.is_some() && !self.one_way {
            // The handshake's RTT is not comparable with one-way delays.
            self.one_way = true;
            self.range = None;
        }
        if let Some(delay) = if self.one_way { ack.one_way } else { ack.rtt }
            && self.congested(delay, ack.srtt)
        {
            if self.inferring {
                self.window.set(1.0);
            } else {
                self.window.set(self.window.segments() / 2.0);
                self.window.leave_slow_start();
            }
            self.last_drop = Some(now);
            self.inferring = true;
        }
        if self.inferring || ack.recovery == Recovery::Recovering || !ack.window_limited {
            return;
        }
        let rest = self.window.slow_start(self.window.count(ack.acked), LIMIT as f64);
        if rest > 0.0 {
            self.window.grow(rest, 1.0);
        }
    }

    fn on_loss(&mut self, _now: Instant, loss: &Loss) {
        self.window.decrease(self.window.flight(loss.in_flight) / 2.0);
    }

    fn on_timeout(&mut self, _now: Instant, timeout: &Timeout) {
        self.window.collapse(self.window.flight(timeout.in_flight) / 2.0, timeout);
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.undo();
    }

    fn window(&self) -> Bytes {
        self.window.bytes()
    }

    fn state(&self) -> State {
        let state = self.window.state("avoidance");
        State { phase: if self.inferring { "inference" } else { state.phase }, ..state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Ten ACKs within a millisecond at this one-way delay.
    fn feed(cc: &mut Lp, at_ms: u64, one_way_ms: u64) -> f64 {
        for n in 0..10 {
            let ack = Ack {
                acked: Bytes(1448),
                rtt: Some(RTT),
                srtt: RTT,
                one_way: Some(Duration::from_millis(one_way_ms)),
                window_limited: true,
                ..Ack::default()
            };
            let now = Instant::ZERO + Duration::from_millis(at_ms) + Duration::from_micros(n * 100);
            cc.on_ack(now, &ack, &mut Rng::new(1, "test"));
        }
        cc.window.segments()
    }

    /// In congestion avoidance with 100 segments, delays between 50 and 150 ms seen, now at 50.
    fn settled() -> Lp {
        let mut cc = Lp::new(Config::default(), &Setup { initial_window: 100, ..Setup::default() });
        cc.window.leave_slow_start();
        cc.one_way = true;
        cc.range = Some(Range { min: 0.05, max: 0.15, reserve: 0.15, smoothed: 0.05 });
        cc
    }

    #[test]
    fn delay_within_15_percent_of_its_range_is_no_congestion() {
        assert!((feed(&mut settled(), 1000, 60) - 100.1).abs() < 0.01);
        assert!(feed(&mut settled(), 1000, 80) < 51.0);
    }

    #[test]
    fn an_ack_without_a_one_way_delay_does_not_count_with_its_rtt() {
        let mut cc = settled();
        feed(&mut cc, 1000, 50);
        let before = cc.window.segments();
        for n in 0..100 {
            let ack =
                Ack { acked: Bytes(1448), rtt: Some(RTT), window_limited: true, ..Ack::default() };
            cc.on_ack(
                Instant::ZERO + Duration::from_millis(2000 + n),
                &ack,
                &mut Rng::new(1, "test"),
            );
        }
        assert!(cc.window.segments() > before);
    }

    #[test]
    fn a_tick_more_or_less_is_no_congestion() {
        let mut cc = Lp::new(Config::default(), &Setup { initial_window: 100, ..Setup::default() });
        cc.window.leave_slow_start();
        for n in 0..50 {
            feed(&mut cc, 1000 + n, 25 + n % 2);
        }
        assert!(cc.window.segments() > 100.0);
    }

    #[test]
    fn after_halving_nothing_grows_for_three_round_trips() {
        let mut cc = settled();
        feed(&mut cc, 1000, 80);
        let halved = cc.window.segments();
        assert_eq!(cc.state().phase, "inference");
        assert_eq!(feed(&mut cc, 1290, 70), halved);
        assert!(feed(&mut cc, 1310, 70) > halved);
    }

    #[test]
    fn a_second_indication_within_the_inference_phase_leaves_one_segment() {
        let mut cc = settled();
        feed(&mut cc, 1000, 80);
        assert_eq!(feed(&mut cc, 1100, 300), 1.0);
    }

    #[test]
    fn the_offset_between_the_clocks_changes_nothing() {
        let (mut here, mut there) = (Lp::new(Config::default(), &Setup::default()), settled());
        there.window = here.window;
        (there.range, there.one_way) = (None, false);
        for (n, delay) in [50, 52, 60, 90, 70, 50, 50, 120].into_iter().enumerate() {
            let at = 1000 + 150 * n as u64;
            assert_eq!(feed(&mut here, at, delay), feed(&mut there, at, delay + 4096));
        }
    }
}
