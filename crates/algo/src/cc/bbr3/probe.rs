//! The cycle that probes for bandwidth: Down, Cruise, Refill, Up (draft section 5.3.3).

use units::{Bytes, Duration, Instant};

use super::{Bbr3, Feedback, Phase, UNBOUNDED};
use crate::Rng;
use crate::cc::Ack;

/// The step of the long-term bound doubles per round, up to here (RaiseInflightLongtermSlope).
const MAX_UP_ROUNDS: u32 = 30;

impl Bbr3 {
    /// Implements the draft's `StartProbeBW_DOWN`.
    pub(super) fn start_down(&mut self, now: Instant, delivered: Bytes, rng: &mut Rng) {
        self.reset_signals();
        self.up_acked_per_step = u64::MAX;
        // The draft's PickProbeWait.
        self.rounds_since_probe = rng.below(2);
        let spread = self.config.probe_wait_spread.0 as f64 * rng.uniform();
        self.probe_wait = self.config.probe_wait + Duration(spread as u64);
        self.cycle_at = now;
        self.feedback = Feedback::Stopping;
        self.rounds.restart(delivered);
        self.phase = Phase::Down;
    }

    /// Implements the draft's `StartProbeBW_REFILL`.
    pub(super) fn start_refill(&mut self, delivered: Bytes) {
        self.reset_shortterm();
        self.up_rounds = 0;
        self.up_acked = 0;
        self.precautionary = false;
        self.feedback = Feedback::Refilling;
        self.rounds.restart(delivered);
        self.phase = Phase::Refill;
    }

    /// Implements the draft's `StartProbeBW_UP`.
    fn start_up(&mut self, ack: &Ack, rate: f64) {
        self.feedback = Feedback::Starting;
        self.rounds.restart(ack.delivered);
        self.reset_full();
        self.full_rate = rate;
        self.phase = Phase::Up;
        self.raise_slope();
    }

    /// Implements the draft's `UpdateProbeBWCyclePhase`.
    pub(super) fn update_cycle(
        &mut self,
        now: Instant,
        ack: &Ack,
        rate: f64,
        limited: bool,
        rng: &mut Rng,
    ) {
        if !self.full || self.adapt_longterm(ack, limited) {
            return;
        }
        match self.phase {
            Phase::Down => {
                if !self.starts_probe(now, ack) && self.may_cruise(ack) {
                    self.phase = Phase::Cruise;
                }
            }
            Phase::Cruise => {
                self.starts_probe(now, ack);
            }
            Phase::Refill => {
                if self.round_start {
                    self.probe_sample = true;
                    self.start_up(ack, rate);
                }
            }
            Phase::Up => {
                if self.must_go_down(ack, rate) {
                    self.too_high = false;
                    self.start_down(now, ack.delivered, rng);
                }
            }
            Phase::Startup | Phase::Drain | Phase::ProbeRtt => {}
        }
    }

    /// IsTimeToProbeBW: the wait is over, or Reno would have grown by the same amount.
    fn starts_probe(&mut self, now: Instant, ack: &Ack) -> bool {
        let segments = self.target_inflight().0 / self.mss.0;
        let due = now.since(self.cycle_at) > self.probe_wait
            || self.rounds_since_probe >= segments.min(self.config.probe_rounds);
        if due {
            self.start_refill(ack.delivered);
        }
        due
    }

    /// Implements the draft's `IsTimeToCruise`.
    fn may_cruise(&self, ack: &Ack) -> bool {
        ack.in_flight <= self.with_headroom()
            && ack.in_flight <= self.inflight(self.max_rate(), 1.0)
    }

    /// Implements the draft's `IsTimeToGoDown`.
    pub(super) fn must_go_down(&mut self, ack: &Ack, rate: f64) -> bool {
        if self.too_high && ack.in_flight >= self.inflight_longterm {
            // The last probe lost too much at this flight: this one only tests that again.
            self.precautionary = true;
            return true;
        }
        if ack.window_limited && self.window >= self.inflight_longterm {
            // The bound, not the path, keeps the rate from growing.
            self.reset_full();
            self.full_rate = rate;
            return false;
        }
        self.full_now
    }

    /// Implements the draft's `InflightWithHeadroom`.
    pub(super) fn with_headroom(&self) -> Bytes {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let share = Bytes((self.inflight_longterm.0 as f64 * self.config.headroom) as u64);
        (self.inflight_longterm - share.max(self.mss)).max(self.min_window())
    }

    /// Implements the draft's `RaiseInflightLongtermSlope`.
    fn raise_slope(&mut self) {
        let growth = 1_u64 << self.up_rounds.min(MAX_UP_ROUNDS);
        self.up_rounds = (self.up_rounds + 1).min(MAX_UP_ROUNDS);
        self.up_acked_per_step = (self.window.0 / growth).max(self.mss.0);
    }

    /// Implements the draft's `ProbeInflightLongtermUpward`.
    fn raise_longterm(&mut self, ack: &Ack) {
        if !ack.window_limited || self.window < self.inflight_longterm {
            return;
        }
        self.up_acked = self.up_acked.saturating_add(ack.acked.0);
        let per_step = self.up_acked_per_step.max(1);
        let steps = self.up_acked / per_step;
        self.up_acked %= per_step;
        self.inflight_longterm += self.mss * steps;
        if self.round_start {
            self.raise_slope();
        }
    }

    /// AdaptLongTermModel; true when it changed the phase.
    fn adapt_longterm(&mut self, ack: &Ack, limited: bool) -> bool {
        if self.round_start {
            match self.feedback {
                Feedback::Starting => self.feedback = Feedback::Arriving,
                Feedback::Stopping => {
                    self.probe_sample = false;
                    self.feedback = Feedback::None;
                    if self.phase.is_probe_bw() {
                        if !limited {
                            self.advance_max_rate();
                        }
                        if self.precautionary && !self.too_high {
                            // The precautionary probe lost nothing: a full probe follows at once.
                            self.start_refill(ack.delivered);
                            return true;
                        }
                    }
                }
                Feedback::None | Feedback::Refilling | Feedback::Arriving => {}
            }
        }
        if self.is_too_high(ack) || self.inflight_longterm == UNBOUNDED {
            return false;
        }
        self.inflight_longterm = self.inflight_longterm.max(ack.rate.in_flight_at_send);
        if self.phase == Phase::Up {
            self.raise_longterm(ack);
        }
        false
    }
}
