//! BBR, version 3: version 1's model of the path, plus bounds on rate and flight learned from loss.
//!
//! signal: the delivery rate, RTT and losses of every ACK · model: bandwidth = largest rate of two
//! probing cycles; RTT = smallest of 10 s; a long-term bound on the flight from probes that lost more
//! than 2 %; short-term bounds on rate and flight from other losses, reset at the next probe · action: a
//! pacing rate and a window that are multiples of the model, by state: Startup, Drain, ProbeBW, ProbeRTT
//! (half a bandwidth-delay product for 200 ms). ProbeBW has four phases. Down drains the queue of the
//! probe. Cruise leaves headroom for other flows. Refill fills the pipe. Up sends more as long as the
//! rate grows and few segments are lost.
//!
//! Source: draft-ietf-ccwg-bbr; doc comments name the draft's functions. Parts: `model` (rates, losses,
//! bounds), `probe` (the ProbeBW cycle), `rtt` (smallest RTT, ProbeRTT), `control` (pacing, window).
//!
//! Deviations:
//! - Losses come per ACK, not per packet. All losses that one ACK marks count as one packet, and the
//!   flight at its sending is that of the newest segment delivered.
//! - Startup counts ACKs with losses instead of discontiguous ranges, as Linux's BBRv3 does.
//! - State for undo is saved once per recovery episode.
//! - ProbeRTT marks its rate samples on arrival, not the connection at the sender.
//! - ProbeRTT comes every 5 s and the smallest RTT counts for 10 s, as in the published drafts (later
//!   editor's copies have 10 s for both: set `probe_rtt_interval`). The window of ProbeRTT is fixed when
//!   it begins, as in those copies.
//! - ECN marks have no effect; the draft leaves them out, too. SACK is assumed.
//!
//! Known limit of the published constants: only a finished probe replaces an old rate; a probe waits 2
//! to 3 s and takes four rounds. If the rate falls to a fifth or less and the buffer never overflows,
//! the queue makes rounds so long that ProbeRTT comes before the probe ends. Half of a product that is
//! five times too large does not drain the queue either. A larger RTT then replaces the smallest one,
//! and the queue continues to grow.

use units::{Bytes, Duration, Instant, Rate};

use super::{
    Ack, CongestionControl, Loss, Recovery, Rounds, Sent, Setup, State, Timeout, Windowed,
};
use crate::Rng;

mod control;
mod model;
mod probe;
mod rtt;
#[cfg(test)]
mod tests;

/// Name in the table.
pub const NAME: &str = "bbr3";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "BBRv3: BBR with bounds learned from loss and headroom for others";
/// Where it is specified.
pub const SOURCE: &str = "draft-ietf-ccwg-bbr";

config! {
    /// The constants of draft-ietf-ccwg-bbr.
    pub struct Config {
        /// Pacing gain of Startup: 4 ln 2, the smallest that doubles the rate per round (StartupPacingGain).
        startup_gain: f64 = 2.77, 1.0, 10.0;
        /// Pacing gain of Drain (DrainPacingGain).
        drain_gain: f64 = 0.5, 0.01, 1.0;
        /// Pacing gain of ProbeBW_DOWN: the smallest that still converges to fair shares (ProbeBW_DOWN).
        down_gain: f64 = 0.9, 0.1, 1.0;
        /// Pacing gain of ProbeBW_UP.
        up_gain: f64 = 1.25, 1.0, 4.0;
        /// Window gain of all other states (DefaultCwndGain).
        window_gain: f64 = 2.0, 1.0, 10.0;
        /// Window gain of ProbeBW_UP: space for its pacing gain.
        up_window_gain: f64 = 2.25, 1.0, 10.0;
        /// Share by which it paces below the estimate, so that queues shrink (PacingMarginPercent).
        pacing_margin: f64 = 0.01, 0.0, 0.5;
        /// Share of the flight that a probe may lose (LossThresh).
        loss_threshold: f64 = 0.02, 0.0, 0.5;
        /// Smallest share of a bound that remains after a lossy round (Beta: not below CUBIC's).
        beta: f64 = 0.7, 0.1, 1.0;
        /// Share of the long-term bound that remains for other flows (Headroom).
        headroom: f64 = 0.15, 0.0, 0.9;
        /// Losses in a round that end Startup (StartupFullLossCnt).
        startup_losses: u64 = 6, 1, 1000;
        /// Rounds over which the largest aggregate of ACKs counts (ExtraAckedFilterLen).
        extra_acked_rounds: u64 = 10, 1, 1000;
        /// Time over which the smallest RTT counts (MinRTTFilterLen).
        min_rtt_window: Duration = Duration::from_secs(10), Duration::from_millis(100), Duration::from_secs(3600);
        /// Time between two ProbeRTTs (ProbeRTTInterval).
        probe_rtt_interval: Duration = Duration::from_secs(5), Duration::from_millis(100), Duration::from_secs(3600);
        /// Shortest time that ProbeRTT keeps the window small (ProbeRTTDuration).
        probe_rtt_time: Duration = Duration::from_millis(200), Duration::from_millis(1), Duration::from_secs(10);
        /// Bandwidth-delay products in flight in ProbeRTT (ProbeRTTCwndGain).
        probe_rtt_gain: f64 = 0.5, 0.01, 1.0;
        /// Smallest window in segments (MinPipeCwnd).
        min_window: u64 = 4, 1, 1000;
        /// Shortest time between two probes for bandwidth: the time that Reno needs for 25 Mbit/s at 30 ms (IsTimeToProbeBW).
        probe_wait: Duration = Duration::from_secs(2), Duration::from_millis(10), Duration::from_secs(60);
        /// Largest random addition to that time.
        probe_wait_spread: Duration = Duration::from_secs(1), Duration::ZERO, Duration::from_secs(60);
        /// Rounds between two probes, at most: Reno's time scale for 62 segments, 25 Mbit/s at 30 ms.
        probe_rounds: u64 = 63, 1, 10_000;
    }
}

/// The value of a bound that is not set.
const UNBOUNDED: Bytes = Bytes(u64::MAX);
/// RTT before the first sample (InitPacingRate).
const NOMINAL_RTT: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl Phase {
    /// Implements the draft's `IsInAProbeBWState`.
    #[inline]
    fn is_probe_bw(self) -> bool {
        matches!(self, Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up)
    }

    /// Implements the draft's `IsProbingBW`.
    #[inline]
    fn is_probing(self) -> bool {
        matches!(self, Phase::Startup | Phase::Refill | Phase::Up)
    }
}

/// The part of a probe that the current ACKs belong to (`ack_phase`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Feedback {
    None,
    Refilling,
    Starting,
    Arriving,
    Stopping,
}

/// State that is restored after a spurious recovery.
#[derive(Clone, Copy, Debug)]
struct Undo {
    phase: Option<Phase>,
    rate_shortterm: f64,
    inflight_shortterm: Bytes,
    inflight_longterm: Bytes,
}

/// BBR version 3 for one connection.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    config: Config,
    mss: Bytes,
    first_window: Bytes,
    phase: Phase,
    begun: bool,
    delivered: Bytes,

    // control
    window: Bytes,
    prior_window: Bytes,
    /// Pacing rate, bytes per second (as all rates here).
    pacing: f64,
    seen_rtt: bool,
    recovery: Recovery,
    /// State was saved for this episode of recovery.
    saved: bool,
    undo: Undo,
    /// Bytes in flight when the timer expired, until the next ACK.
    timed_out: Option<Bytes>,

    // rates
    rounds: Rounds,
    round_start: bool,
    /// Largest rate of the last cycle and of this one (MaxBwFilterLen = 2).
    max_rates: [f64; 2],
    rate_shortterm: f64,
    /// The bandwidth in use, within the short-term bound.
    rate: f64,
    rate_latest: f64,
    limited: (Bytes, Bytes),

    // losses
    inflight_latest: Bytes,
    inflight_longterm: Bytes,
    inflight_shortterm: Bytes,
    loss_in_round: bool,
    loss_round_delivered: Bytes,
    loss_round_start: bool,
    loss_events: u64,

    // aggregation of ACKs
    extra_acked: Windowed<u64>,
    extra_since: Instant,
    extra_delivered: Bytes,

    // the full pipe
    full_rate: f64,
    full_count: u32,
    full_now: bool,
    full: bool,
    drain_round: u64,

    // the cycle
    feedback: Feedback,
    cycle_at: Instant,
    probe_wait: Duration,
    rounds_since_probe: u64,
    probe_sample: bool,
    too_high: bool,
    precautionary: bool,
    up_rounds: u32,
    up_acked: u64,
    up_acked_per_step: u64,

    // the smallest RTT
    min_rtt: Duration,
    min_rtt_at: Instant,
    probe_rtt_min: Duration,
    probe_rtt_min_at: Instant,
    probe_rtt_expired: bool,
    probe_rtt_window: Bytes,
    probe_rtt_until: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
}

impl Bbr3 {
    /// A new connection (OnInit).
    pub fn new(config: Config, setup: &Setup) -> Bbr3 {
        let mss = setup.mss.max(Bytes(1));
        let window = setup.first_window().max(mss);
        let mut bbr = Bbr3 {
            config,
            mss,
            first_window: window,
            phase: Phase::Startup,
            begun: false,
            delivered: Bytes::ZERO,
            window,
            prior_window: Bytes::ZERO,
            pacing: 0.0,
            seen_rtt: false,
            recovery: Recovery::Open,
            saved: false,
            undo: Undo {
                phase: None,
                rate_shortterm: 0.0,
                inflight_shortterm: Bytes::ZERO,
                inflight_longterm: Bytes::ZERO,
            },
            timed_out: None,
            rounds: Rounds::default(),
            round_start: false,
            max_rates: [0.0; 2],
            rate_shortterm: f64::INFINITY,
            rate: 0.0,
            rate_latest: 0.0,
            limited: (UNBOUNDED, Bytes::ZERO),
            inflight_latest: Bytes::ZERO,
            inflight_longterm: UNBOUNDED,
            inflight_shortterm: UNBOUNDED,
            loss_in_round: false,
            loss_round_delivered: Bytes::ZERO,
            loss_round_start: false,
            loss_events: 0,
            extra_acked: Windowed::default(),
            extra_since: Instant::ZERO,
            extra_delivered: Bytes::ZERO,
            full_rate: 0.0,
            full_count: 0,
            full_now: false,
            full: false,
            drain_round: 0,
            feedback: Feedback::None,
            cycle_at: Instant::ZERO,
            probe_wait: Duration::ZERO,
            rounds_since_probe: 0,
            probe_sample: false,
            too_high: false,
            precautionary: false,
            up_rounds: 0,
            up_acked: 0,
            up_acked_per_step: u64::MAX,
            min_rtt: Duration::MAX,
            min_rtt_at: Instant::ZERO,
            probe_rtt_min: Duration::MAX,
            probe_rtt_min_at: Instant::ZERO,
            probe_rtt_expired: false,
            probe_rtt_window: window,
            probe_rtt_until: None,
            probe_rtt_round_done: false,
            idle_restart: false,
        };
        bbr.pace_from_rtt(NOMINAL_RTT);
        bbr
    }

    /// The clock starts with the first event, not at zero.
    #[inline]
    fn begin(&mut self, now: Instant) {
        if !self.begun {
            self.begun = true;
            self.min_rtt_at = now;
            self.probe_rtt_min_at = now;
            self.extra_since = now;
            self.cycle_at = now;
        }
    }

    fn min_window(&self) -> Bytes {
        self.mss * self.config.min_window.max(1)
    }

    /// Implements the draft's `EnterDrain`.
    fn enter_drain(&mut self) {
        self.phase = Phase::Drain;
        self.drain_round = self.rounds.count();
    }

    /// The draft's `CheckStartupDone` and `CheckDrainDone`.
    fn check_startup_and_drain(&mut self, now: Instant, ack: &Ack, rng: &mut Rng) {
        self.check_startup_loss(ack);
        if self.phase == Phase::Startup && self.full {
            self.enter_drain();
        }
        if self.phase == Phase::Drain
            && (ack.in_flight <= self.inflight(self.rate, 1.0)
                || self.rounds.count() > self.drain_round + 3)
        {
            self.start_down(now, ack.delivered, rng);
        }
    }
}

impl CongestionControl for Bbr3 {
    /// Implements the draft's `HandleRestartFromIdle`.
    fn on_sent(&mut self, now: Instant, sent: &Sent, rng: &mut Rng) {
        self.begin(now);
        if sent.in_flight > Bytes::ZERO || !sent.app_limited {
            return;
        }
        self.idle_restart = true;
        self.extra_since = now;
        if self.phase.is_probe_bw() {
            self.set_pacing(1.0, Duration::ZERO);
        } else if self.phase == Phase::ProbeRtt {
            self.check_probe_rtt_done(now, rng);
        }
    }

    /// The draft's `UpdateModelAndState` and `UpdateControlParameters`.
    fn on_ack(&mut self, now: Instant, ack: &Ack, rng: &mut Rng) {
        self.begin(now);
        self.delivered = self.delivered.max(ack.delivered);
        let limited = self.is_limited(ack);
        self.on_lost(now, ack, limited, rng);
        self.follow_recovery(ack);
        let rate = match ack.rate.interval {
            Duration::ZERO => 0.0,
            interval => ack.rate.delivered.0 as f64 / interval.as_secs_f64(),
        };
        self.update_latest(ack, rate);
        self.update_max_rate(ack, rate, limited);
        self.adapt_lower_bounds();
        self.update_extra_acked(now, ack);
        self.check_full(rate, limited);
        self.check_startup_and_drain(now, ack, rng);
        self.update_cycle(now, ack, rate, limited, rng);
        self.update_min_rtt(now, ack);
        self.check_probe_rtt(now, ack, rng);
        if self.loss_round_start {
            // AdvanceLatestDeliverySignals
            self.rate_latest = rate;
            self.inflight_latest = ack.rate.delivered;
        }
        self.rate = self.max_rate().min(self.rate_shortterm);
        self.set_pacing(self.pacing_gain(), ack.srtt);
        self.set_window(ack);
    }

    /// Implements the draft's `OnEnterFastRecovery`.
    fn on_loss(&mut self, _now: Instant, _loss: &Loss) {
        self.save_once();
    }

    /// Implements the draft's `OnEnterRTO`.
    fn on_timeout(&mut self, now: Instant, timeout: &Timeout) {
        self.begin(now);
        self.save_once();
        self.loss_in_round = true;
        self.timed_out = Some(timeout.in_flight);
        self.recovery = Recovery::Lost;
        // Everything is lost: the remaining flight (zero) and one segment.
        self.window = self.mss;
    }

    fn on_ecn(&mut self, _now: Instant, _loss: &Loss) {}

    fn on_recovered(&mut self, _now: Instant) {
        if self.recovery != Recovery::Open {
            self.end_recovery();
        }
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.undo();
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
            threshold: (self.inflight_longterm < UNBOUNDED).then_some(self.inflight_longterm),
            pacing_rate: self.pacing_rate(),
            phase: match self.phase {
                Phase::Startup => "startup",
                Phase::Drain => "drain",
                Phase::Down => "probe_bw_down",
                Phase::Cruise => "probe_bw_cruise",
                Phase::Refill => "probe_bw_refill",
                Phase::Up => "probe_bw_up",
                Phase::ProbeRtt => "probe_rtt",
            },
        }
    }
}
