//! Pacing rate and window (draft section 5.6).

use units::{Bytes, Duration};

use super::{Bbr3, Phase, UNBOUNDED};
use crate::cc::{Ack, Recovery};

/// Largest burst for the device (SetSendQuantum).
const MAX_QUANTUM: u64 = 65_536;

impl Bbr3 {
    // ---- pacing ----

    #[inline]
    pub(super) fn pacing_gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => self.config.startup_gain,
            Phase::Drain => self.config.drain_gain,
            Phase::Down => self.config.down_gain,
            Phase::Up => self.config.up_gain,
            Phase::Cruise | Phase::Refill | Phase::ProbeRtt => 1.0,
        }
    }

    #[inline]
    fn window_gain(&self) -> f64 {
        match self.phase {
            Phase::Up => self.config.up_window_gain,
            Phase::ProbeRtt => self.config.probe_rtt_gain,
            _ => self.config.window_gain,
        }
    }

    /// Implements the draft's `InitPacingRate`.
    pub(super) fn pace_from_rtt(&mut self, rtt: Duration) {
        let seconds = rtt.max(Duration::from_micros(1)).as_secs_f64();
        self.pacing = self.config.startup_gain * self.first_window.0 as f64 / seconds;
    }

    /// SetPacingRateWithGain: before the pipe was full once, only upwards.
    pub(super) fn set_pacing(&mut self, gain: f64, srtt: Duration) {
        if !self.seen_rtt && srtt > Duration::ZERO {
            self.seen_rtt = true;
            self.pace_from_rtt(srtt);
        }
        let rate = gain * self.rate * (1.0 - self.config.pacing_margin);
        if self.full || rate > self.pacing {
            self.pacing = rate;
        }
    }

    // ---- the flight ----

    /// QuantizationBudget: at least three bursts of a millisecond (UpdateOffloadBudget, SetSendQuantum)
    /// and the minimal pipe; two segments more to probe even a tiny product.
    #[inline]
    fn with_budget(&self, bytes: Bytes) -> Bytes {
        let quantum = Bytes(((self.pacing / 1e3) as u64).min(MAX_QUANTUM)).max(self.mss * 2);
        let budget = bytes.max(quantum * 3).max(self.min_window());
        if self.phase == Phase::Up { budget + self.mss * 2 } else { budget }
    }

    /// Implements the draft's `Inflight`.
    #[inline]
    pub(super) fn inflight(&self, rate: f64, gain: f64) -> Bytes {
        self.with_budget(self.bdp(rate, gain))
    }

    // ---- the window ----

    /// Implements the draft's `SaveCwnd`.
    pub(super) fn save_window(&mut self) {
        let good = self.recovery == Recovery::Open && self.phase != Phase::ProbeRtt;
        self.prior_window = if good { self.window } else { self.prior_window.max(self.window) };
    }

    /// Follows the sender into and out of recovery.
    pub(super) fn follow_recovery(&mut self, ack: &Ack) {
        if self.recovery == Recovery::Open && ack.recovery != Recovery::Open {
            self.save_once();
        } else if self.recovery != Recovery::Open && ack.recovery == Recovery::Open {
            self.end_recovery();
        } else if ack.recovery == Recovery::Open && ack.lost == Bytes::ZERO {
            self.saved = false;
        }
        self.recovery = ack.recovery;
    }

    /// RestoreCwnd, within the bounds of the model.
    pub(super) fn end_recovery(&mut self) {
        self.recovery = Recovery::Open;
        self.saved = false;
        self.window = self.window.max(self.prior_window);
        self.bound_window();
    }

    /// Implements the draft's `SetCwnd`.
    pub(super) fn set_window(&mut self, ack: &Ack) {
        let extra = Bytes(self.extra_acked.get());
        let most = self.with_budget(self.bdp(self.rate, self.window_gain()) + extra);
        if self.full {
            self.window = (self.window + ack.acked).min(most);
        } else if self.window < most || ack.delivered < self.first_window {
            self.window += ack.acked;
        }
        self.window = self.window.max(self.min_window());
        self.bound_window();
    }

    /// The draft's `BoundCwndForProbeRTT` and `BoundCwndForModel`.
    fn bound_window(&mut self) {
        if self.phase == Phase::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window);
        }
        let bound = match self.phase {
            Phase::Down | Phase::Refill | Phase::Up => self.inflight_longterm,
            Phase::Cruise | Phase::ProbeRtt => self.with_headroom(),
            Phase::Startup | Phase::Drain => UNBOUNDED,
        };
        let bound = bound.min(self.inflight_shortterm).max(self.min_window());
        self.window = self.window.min(bound);
    }
}
