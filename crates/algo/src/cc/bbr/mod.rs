//! BBR, version 1: sends at the measured delivery rate, with two bandwidth-delay products in flight.
//!
//! signal: the delivery rate and RTT of every ACK · model: bandwidth = largest rate of the last 10
//! rounds, RTT = smallest of the last 10 s; their product is the flight that fills the path without a
//! queue · action: a pacing rate and a window that are multiples of the model, by state. Startup
//! doubles the rate. Drain empties the queue of Startup. ProbeBW is a cycle of eight phases: a quarter
//! more, a quarter less, then the estimate. ProbeRTT has four segments in flight for 200 ms, to measure
//! the empty path. Loss alone causes one round of packet conservation and no more.
//!
//! Sources: Linux `net/ipv4/tcp_bbr.c`; draft-cardwell-iccrg-bbr-congestion-control-00; Cardwell et
//! al., "BBR: congestion-based congestion control", ACM Queue 14(5), 2016.
//!
//! Parts: `policer` (rate of a token bucket), `aggregation` (bursts of ACKs).
//!
//! Deviations:
//! - Amounts are bytes, and gains are not rounded to 1/256 (2.885 instead of 739/256).
//! - When the 10 s are over, Linux ignores an RTT that contains the receiver's delayed ACK. ACKs have no
//!   such mark here.
//! - Linux subtracts data that waits for its pacing timer (departure times). Here a segment counts as in
//!   flight when it leaves.
//! - During ProbeRTT Linux marks the connection application-limited at the sender. Here the samples of
//!   the same data are marked on arrival.
//! - Before the first RTT the pacing rate assumes 1 ms, as in Linux. Here an ACK without data can carry
//!   the handshake's RTT, so the assumption ends before the first data.

use units::{Bytes, Duration, Instant, Rate};

use self::aggregation::Aggregation;
use self::policer::{Evidence, Policer};
use super::{
    Ack, CongestionControl, Loss, Recovery, Rounds, Sent, Setup, State, Timeout, Windowed, burst,
};
use crate::Rng;

mod aggregation;
mod policer;
#[cfg(test)]
mod tests;

/// Name in the table.
pub const NAME: &str = "bbr";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "BBRv1: paces at the delivered rate, two bandwidth-delay products in flight";
/// Where it is specified.
pub const SOURCE: &str = "Linux tcp_bbr.c, draft-cardwell-iccrg-bbr-congestion-control-00";

config! {
    /// The constants of Linux `tcp_bbr.c`.
    pub struct Config {
        /// Pacing and window gain of Startup: 2 / ln 2, the smallest that doubles the rate per round (`bbr_high_gain`).
        startup_gain: f64 = 2.885, 1.0, 10.0;
        /// Pacing gain of Drain: the inverse, so that one round drains Startup's last (`bbr_drain_gain`).
        drain_gain: f64 = 1.0 / 2.885, 0.01, 1.0;
        /// Window gain of ProbeBW: two bandwidth-delay products tolerate delayed and stretch ACKs (`bbr_cwnd_gain`).
        window_gain: f64 = 2.0, 1.0, 10.0;
        /// Rounds over which the largest rate counts: the gain cycle and two more (`bbr_bw_rtts`).
        bandwidth_rounds: u64 = 10, 1, 1000;
        /// Time over which the smallest RTT counts, and between two ProbeRTTs (`bbr_min_rtt_win_sec`).
        min_rtt_window: Duration = Duration::from_secs(10), Duration::from_millis(100), Duration::from_secs(3600);
        /// Shortest time that ProbeRTT keeps the window small (`bbr_probe_rtt_mode_ms`).
        probe_rtt_time: Duration = Duration::from_millis(200), Duration::from_millis(1), Duration::from_secs(10);
        /// Smallest window in segments: two pairs, for receivers that acknowledge every other (`bbr_cwnd_min_target`).
        min_window: u64 = 4, 1, 1000;
        /// Share by which it paces below the estimate, so that queues shrink (`bbr_pacing_margin_percent`).
        pacing_margin: f64 = 0.01, 0.0, 0.5;
        /// Part of the excess of aggregated ACKs that is added to the window (`bbr_extra_acked_gain`).
        extra_acked_gain: f64 = 1.0, 0.0, 10.0;
        /// Whether token-bucket policers are detected (`lt_bw` in the kernel).
        policer: bool = true;
    }
}

/// The gains of ProbeBW's phases: a quarter more, a quarter less to drain it, then six at the estimate
/// (`bbr_pacing_gain`).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Index of the phase with the higher gain.
const PROBING: usize = 0;
/// Phases that ProbeBW may begin in: all except the one with the lower gain (`bbr_cycle_rand`).
const FIRST_PHASES: u64 = 7;
/// The pipe is full if the estimate grew by less than this factor … (`bbr_full_bw_thresh`)
const FULL_GROWTH: f64 = 1.25;
/// … in this many rounds: the receive window grows, the sender fills it, the rate shows it
/// (`bbr_full_bw_cnt`).
const FULL_ROUNDS: u32 = 3;
/// Upper bound of the aggregation, as a time at the estimated rate (`bbr_extra_acked_max_us`).
const EXTRA_ACKED_TIME: Duration = Duration::from_millis(100);
/// Segments of the largest burst (`bbr_tso_segs_goal`).
const MAX_SEGMENTS: u64 = 127;
/// RTT before the first sample, as in Linux.
const NOMINAL_RTT: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// BBR version 1 for one connection.
#[derive(Clone, Debug)]
pub struct Bbr {
    config: Config,
    mss: Bytes,
    first_window: Bytes,
    mode: Mode,
    window: Bytes,
    /// Window before recovery or ProbeRTT reduced it.
    prior_window: Bytes,
    recovery: Recovery,
    /// Packet conservation: the first round of recovery sends as much as it delivers.
    conserving: bool,
    /// Pacing rate, bytes per second.
    pacing: f64,
    pacing_gain: f64,
    window_gain: f64,
    seen_rtt: bool,
    rounds: Rounds,
    round_start: bool,
    /// Largest delivery rate, bytes per second over rounds.
    max_rate: Windowed<f64>,
    /// Smallest RTT; `Duration::MAX` before the first sample.
    min_rtt: Duration,
    /// Time of the smallest RTT; `None` before the first event.
    min_rtt_at: Option<Instant>,
    probe_rtt_until: Option<Instant>,
    probe_rtt_round_done: bool,
    /// Range of delivered totals: data sent between them counts as application-limited (ProbeRTT's).
    limited: (Bytes, Bytes),
    idle_restart: bool,
    full_rate: f64,
    full_count: u32,
    full: bool,
    phase: usize,
    phase_at: Instant,
    restart_cycle: bool,
    aggregation: Aggregation,
    policer: Policer,
    delivered: Bytes,
    lost: Bytes,
}

impl Bbr {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Bbr {
        let mss = setup.mss.max(Bytes(1));
        let window = setup.first_window().max(mss);
        let mut bbr = Bbr {
            mss,
            first_window: window,
            mode: Mode::Startup,
            window,
            prior_window: Bytes::ZERO,
            recovery: Recovery::Open,
            conserving: false,
            pacing: 0.0,
            pacing_gain: config.startup_gain,
            window_gain: config.startup_gain,
            seen_rtt: false,
            rounds: Rounds::default(),
            round_start: false,
            max_rate: Windowed::new(0, 0.0),
            min_rtt: Duration::MAX,
            min_rtt_at: None,
            probe_rtt_until: None,
            probe_rtt_round_done: false,
            limited: (Bytes(u64::MAX), Bytes::ZERO),
            idle_restart: false,
            full_rate: 0.0,
            full_count: 0,
            full: false,
            phase: PROBING,
            phase_at: Instant::ZERO,
            restart_cycle: false,
            aggregation: Aggregation::new(mss),
            policer: Policer::default(),
            delivered: Bytes::ZERO,
            lost: Bytes::ZERO,
            config,
        };
        bbr.pace_from_rtt(NOMINAL_RTT);
        bbr
    }

    /// The clock starts with the first event, not at zero.
    #[inline]
    fn begin(&mut self, now: Instant) {
        if self.min_rtt_at.is_none() {
            self.min_rtt_at = Some(now);
            self.phase_at = now;
            self.aggregation.restart(now);
        }
    }

    /// The bandwidth in use: the policer's rate, if there is one, else the estimate.
    #[inline]
    fn rate(&self) -> f64 {
        self.policer.rate().unwrap_or_else(|| self.max_rate.get())
    }

    fn min_window(&self) -> Bytes {
        self.mss * self.config.min_window.max(1)
    }

    // ---- pacing ----

    #[inline]
    fn paced(&self, rate: f64, gain: f64) -> f64 {
        rate * gain * (1.0 - self.config.pacing_margin)
    }

    fn pace_from_rtt(&mut self, rtt: Duration) {
        // At least a microsecond, as in the kernel.
        let seconds = rtt.max(Duration::from_micros(1)).as_secs_f64();
        self.pacing = self.paced(self.window.0 as f64 / seconds, self.config.startup_gain);
    }

    fn set_pacing(&mut self, gain: f64, srtt: Duration) {
        if !self.seen_rtt && srtt > Duration::ZERO {
            self.seen_rtt = true;
            self.pace_from_rtt(srtt);
        }
        let rate = self.paced(self.rate(), gain);
        if self.full || rate > self.pacing {
            self.pacing = rate;
        }
    }

    /// Burst that the kernel would pass to the device (`bbr_tso_segs_goal`): the data of a millisecond.
    #[inline]
    fn burst(&self) -> Bytes {
        let rate = Rate((self.pacing * 8.0) as u64);
        let segments = burst::segments(rate, 0, self.mss.0, burst::least_of_bbr(rate));
        self.mss * segments.min(MAX_SEGMENTS)
    }

    // ---- the flight that fills the path ----

    /// `gain` bandwidth-delay products in whole segments, rounded up.
    #[inline]
    fn bdp(&self, rate: f64, gain: f64) -> Bytes {
        if self.min_rtt == Duration::MAX {
            return self.first_window;
        }
        let bytes = (rate * self.min_rtt.as_secs_f64() * gain) as u64;
        self.mss * bytes.div_ceil(self.mss.0)
    }

    /// Adds three bursts (the sender's queue, its device, the receiver's coalescing), rounds up to an
    /// even number of segments, and adds two in the probing phase, to exceed even a tiny product
    /// (`bbr_quantization_budget`).
    #[inline]
    fn with_room(&self, bytes: Bytes) -> Bytes {
        let pair = self.mss * 2;
        let even = pair * (bytes + self.burst() * 3).0.div_ceil(pair.0);
        if self.mode == Mode::ProbeBw && self.phase == PROBING { even + pair } else { even }
    }

    #[inline]
    fn inflight(&self, rate: f64, gain: f64) -> Bytes {
        self.with_room(self.bdp(rate, gain))
    }

    // ---- the model ----

    /// Whether a sample is ProbeRTT's own and does not show the path. Linux marks data sent from the
    /// first ACK of ProbeRTT on, until all data in flight after its last ACK is delivered.
    #[inline]
    fn is_limited(&self, ack: &Ack) -> bool {
        let at_send = ack.rate.prior_delivered;
        ack.rate.app_limited || (at_send >= self.limited.0 && at_send <= self.limited.1)
    }

    fn update_rate(&mut self, now: Instant, ack: &Ack, limited: bool) {
        self.round_start = false;
        if ack.rate.interval == Duration::ZERO {
            return;
        }
        self.round_start = self.rounds.on_ack(ack);
        if self.round_start {
            self.conserving = false;
        }
        if self.config.policer {
            let losing = ack.lost > Bytes::ZERO;
            self.watch_policer(now, losing, limited);
        }
        let rate = ack.rate.delivered.0 as f64 / ack.rate.interval.as_secs_f64();
        if !limited || rate >= self.max_rate.get() {
            self.max_rate.max(self.config.bandwidth_rounds, self.rounds.count(), rate);
        }
    }

    fn watch_policer(&mut self, now: Instant, losing: bool, app_limited: bool) {
        let evidence = Evidence {
            delivered: self.delivered,
            lost: self.lost,
            losing,
            app_limited,
            round_start: self.round_start,
            cycling: self.mode == Mode::ProbeBw,
        };
        self.restart_cycle |= self.policer.on_ack(now, &evidence);
        if self.policer.rate().is_some() {
            self.pacing_gain = self.pacing_gain.min(1.0);
        }
    }

    fn check_full(&mut self, limited: bool) {
        if self.full || !self.round_start || limited {
            return;
        }
        let rate = self.max_rate.get();
        if rate >= self.full_rate * FULL_GROWTH {
            self.full_rate = rate;
            self.full_count = 0;
            return;
        }
        self.full_count += 1;
        self.full = self.full_count >= FULL_ROUNDS;
    }

    // ---- the states ----

    fn enter_probe_bw(&mut self, now: Instant, rng: &mut Rng) {
        self.mode = Mode::ProbeBw;
        let before = CYCLE.len() - 1 - rng.below(FIRST_PHASES) as usize;
        self.phase = (before + 1) % CYCLE.len();
        self.phase_at = now;
    }

    fn cycle(&mut self, now: Instant, ack: &Ack) {
        if self.mode == Mode::ProbeBw && self.phase_ends(now, ack) {
            self.phase = (self.phase + 1) % CYCLE.len();
            self.phase_at = now;
        }
    }

    fn phase_ends(&self, now: Instant, ack: &Ack) -> bool {
        let full_length = now.since(self.phase_at) > self.min_rtt;
        let rate = self.max_rate.get();
        if self.pacing_gain > 1.0 {
            // The probe is done when the larger flight is reached, or a loss shows that it does not fit.
            let in_network = ack.prior_in_flight + self.burst();
            full_length
                && (ack.lost > Bytes::ZERO || in_network >= self.inflight(rate, self.pacing_gain))
        } else if self.pacing_gain < 1.0 {
            full_length || ack.prior_in_flight <= self.inflight(rate, 1.0)
        } else {
            full_length
        }
    }

    fn check_drain(&mut self, now: Instant, ack: &Ack, rng: &mut Rng) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.inflight(self.max_rate.get(), 1.0) {
            self.enter_probe_bw(now, rng);
        }
    }

    fn update_min_rtt(&mut self, now: Instant, ack: &Ack, rng: &mut Rng) {
        let expired = self.min_rtt_at.is_some_and(|at| now.since(at) > self.config.min_rtt_window);
        if let Some(rtt) = ack.rtt {
            // The handshake's RTT may be smaller than that of the first data.
            let rtt = if self.min_rtt == Duration::MAX { rtt.min(ack.min_rtt) } else { rtt };
            if rtt < self.min_rtt || expired {
                self.min_rtt = rtt;
                self.min_rtt_at = Some(now);
            }
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            // In this order, as in Linux: a larger window that was saved before is kept.
            self.mode = Mode::ProbeRtt;
            self.save_window();
            self.probe_rtt_until = None;
            self.limited = (ack.delivered, ack.delivered);
        }
        if self.mode == Mode::ProbeRtt {
            self.limited.1 = ack.delivered + ack.in_flight;
            if self.probe_rtt_until.is_none() {
                if ack.in_flight <= self.min_window() {
                    self.probe_rtt_until = Some(now + self.config.probe_rtt_time);
                    self.probe_rtt_round_done = false;
                    self.rounds.restart(ack.delivered);
                }
            } else {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done {
                    self.check_probe_rtt_done(now, rng);
                }
            }
        }
        if ack.rate.delivered > Bytes::ZERO {
            self.idle_restart = false;
        }
    }

    fn check_probe_rtt_done(&mut self, now: Instant, rng: &mut Rng) {
        if self.probe_rtt_until.is_none_or(|until| now <= until) {
            return;
        }
        self.min_rtt_at = Some(now);
        self.window = self.window.max(self.prior_window);
        if self.full {
            self.enter_probe_bw(now, rng);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn set_gains(&mut self) {
        (self.pacing_gain, self.window_gain) = match self.mode {
            Mode::Startup => (self.config.startup_gain, self.config.startup_gain),
            Mode::Drain => (self.config.drain_gain, self.config.startup_gain),
            Mode::ProbeBw if self.policer.rate().is_some() => (1.0, self.config.window_gain),
            Mode::ProbeBw => (CYCLE[self.phase % CYCLE.len()], self.config.window_gain),
            Mode::ProbeRtt => (1.0, 1.0),
        };
    }

    // ---- the window ----

    fn save_window(&mut self) {
        let good = self.recovery == Recovery::Open && self.mode != Mode::ProbeRtt;
        self.prior_window = if good { self.window } else { self.prior_window.max(self.window) };
    }

    /// True while packets are conserved (`bbr_set_cwnd_to_recover_or_restore`).
    fn recover_or_restore(&mut self, ack: &Ack) -> bool {
        let (before, after) = (self.recovery, ack.recovery);
        if before == Recovery::Open && after != Recovery::Open {
            self.save_window();
        }
        self.window = (self.window - ack.lost).max(self.mss);
        if after == Recovery::Recovering && before != Recovery::Recovering {
            self.conserving = true;
            self.rounds.restart(ack.delivered);
            self.window = (ack.in_flight + ack.acked).max(self.mss);
        } else if before != Recovery::Open && after == Recovery::Open {
            self.restore();
        }
        self.recovery = after;
        if self.conserving {
            self.window = self.window.max(ack.in_flight + ack.acked);
        }
        self.conserving
    }

    fn restore(&mut self) {
        self.window = self.window.max(self.prior_window);
        self.conserving = false;
        self.recovery = Recovery::Open;
        self.cap_in_probe_rtt();
    }

    #[inline]
    fn cap_in_probe_rtt(&mut self) {
        if self.mode == Mode::ProbeRtt {
            self.window = self.window.min(self.min_window());
        }
    }

    fn set_window(&mut self, ack: &Ack) {
        if ack.acked > Bytes::ZERO && !self.recover_or_restore(ack) {
            let rate = self.rate();
            let mut target = self.bdp(rate, self.window_gain);
            if self.full {
                let most = (rate * EXTRA_ACKED_TIME.as_secs_f64()) as u64;
                let extra = (self.aggregation.get().0 as f64 * self.config.extra_acked_gain) as u64;
                target += Bytes(extra.min(most));
            }
            target = self.with_room(target);
            if self.full {
                self.window = (self.window + ack.acked).min(target);
            } else if self.window < target || ack.delivered < self.first_window {
                self.window += ack.acked;
            }
            self.window = self.window.max(self.min_window());
        }
        self.cap_in_probe_rtt();
    }
}

impl CongestionControl for Bbr {
    fn on_sent(&mut self, now: Instant, sent: &Sent, rng: &mut Rng) {
        self.begin(now);
        if sent.in_flight > Bytes::ZERO || !sent.app_limited {
            return;
        }
        self.idle_restart = true;
        self.aggregation.restart(now);
        match self.mode {
            Mode::ProbeBw => self.set_pacing(1.0, Duration::ZERO),
            Mode::ProbeRtt => self.check_probe_rtt_done(now, rng),
            Mode::Startup | Mode::Drain => {}
        }
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack, rng: &mut Rng) {
        self.begin(now);
        self.delivered = self.delivered.max(ack.delivered);
        self.lost += ack.lost;
        let limited = self.is_limited(ack);
        self.update_rate(now, ack, limited);
        if self.restart_cycle {
            self.restart_cycle = false;
            self.enter_probe_bw(now, rng);
        }
        if ack.acked > Bytes::ZERO && ack.rate.interval > Duration::ZERO {
            self.aggregation.on_ack(now, ack.acked, self.rate(), self.round_start, self.window);
        }
        self.cycle(now, ack);
        self.check_full(limited);
        self.check_drain(now, ack, rng);
        self.update_min_rtt(now, ack, rng);
        self.set_gains();
        self.set_pacing(self.pacing_gain, ack.srtt);
        self.set_window(ack);
    }

    fn on_loss(&mut self, _now: Instant, _loss: &Loss) {
        self.save_window();
    }

    fn on_timeout(&mut self, now: Instant, timeout: &Timeout) {
        self.begin(now);
        self.save_window();
        self.recovery = Recovery::Lost;
        // Everything is lost: Linux sets the flight (now zero) and one segment.
        self.window = self.mss;
        self.lost += timeout.in_flight;
        self.full_rate = 0.0;
        // A timeout counts as the end of a round (`bbr_set_state`).
        self.round_start = true;
        if self.config.policer {
            self.watch_policer(now, true, false);
        }
    }

    /// BBRv1 does not react to marks.
    fn on_ecn(&mut self, _now: Instant, _loss: &Loss) {}

    fn on_recovered(&mut self, _now: Instant) {
        if self.recovery != Recovery::Open {
            self.restore();
        }
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.full_rate = 0.0;
        self.full_count = 0;
        self.policer.reset();
        self.restore();
    }

    fn window(&self) -> Bytes {
        self.window
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate(((self.pacing * 8.0) as u64).max(1)))
    }

    fn rules_recovery(&self) -> bool {
        true
    }

    fn state(&self) -> State {
        State {
            window: self.window,
            threshold: None,
            pacing_rate: self.pacing_rate(),
            phase: match self.mode {
                Mode::Startup => "startup",
                Mode::Drain => "drain",
                Mode::ProbeBw => "probe_bw",
                Mode::ProbeRtt => "probe_rtt",
            },
        }
    }
}
