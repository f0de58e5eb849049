//! The model of the path: rates, losses and the bounds from them (draft section 5.5).

use units::{Bytes, Duration, Instant};

use super::{Bbr3, Phase, UNBOUNDED, Undo};
use crate::Rng;
use crate::cc::{Ack, Recovery};

/// The pipe is full if the rate grew by less than this factor …
const FULL_GROWTH: f64 = 1.25;
/// … in this many rounds, enough for a receive window to open (section 5.3.1.2).
const FULL_ROUNDS: u32 = 3;

/// The flight when the newest delivered segment was sent; the current flight if the ACK has no sample.
#[inline]
fn flight_at_send(ack: &Ack) -> Bytes {
    if ack.rate.in_flight_at_send > Bytes::ZERO {
        ack.rate.in_flight_at_send
    } else {
        ack.prior_in_flight
    }
}

/// Bytes lost since that segment was sent.
#[inline]
fn lost_since(ack: &Ack) -> Bytes {
    ack.rate.lost.max(ack.lost)
}

impl Bbr3 {
    /// Whether the sample is application-limited, or ProbeRTT's own (MarkConnectionAppLimited): of data
    /// sent after its first ACK and before the flight at its last ACK was delivered.
    #[inline]
    pub(super) fn is_limited(&self, ack: &Ack) -> bool {
        let at_send = ack.rate.prior_delivered;
        ack.rate.app_limited || (at_send >= self.limited.0 && at_send <= self.limited.1)
    }

    // ---- the rate ----

    #[inline]
    pub(super) fn max_rate(&self) -> f64 {
        self.max_rates[0].max(self.max_rates[1])
    }

    /// AdvanceMaxBwFilter: a cycle without samples does not count.
    pub(super) fn advance_max_rate(&mut self) {
        if self.max_rates[1] > 0.0 {
            self.max_rates = [self.max_rates[1], 0.0];
        }
    }

    /// Implements the draft's `UpdateLatestDeliverySignals`.
    #[inline]
    pub(super) fn update_latest(&mut self, ack: &Ack, rate: f64) {
        self.loss_round_start = false;
        self.rate_latest = self.rate_latest.max(rate);
        self.inflight_latest = self.inflight_latest.max(ack.rate.delivered);
        if ack.acked > Bytes::ZERO && ack.rate.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = ack.delivered;
            self.loss_round_start = true;
        }
    }

    /// The draft's `UpdateMaxBw` and `UpdateRound`.
    #[inline]
    pub(super) fn update_max_rate(&mut self, ack: &Ack, rate: f64, limited: bool) {
        self.round_start = self.rounds.on_ack(ack);
        self.rounds_since_probe += u64::from(self.round_start);
        if rate > 0.0 && (!limited || rate >= self.max_rate()) {
            self.max_rates[1] = self.max_rates[1].max(rate);
        }
    }

    /// Implements the draft's `UpdateACKAggregation`.
    pub(super) fn update_extra_acked(&mut self, now: Instant, ack: &Ack) {
        if ack.acked == Bytes::ZERO {
            return;
        }
        let mut expected = Bytes((self.rate * now.since(self.extra_since).as_secs_f64()) as u64);
        if self.extra_delivered <= expected {
            self.extra_delivered = Bytes::ZERO;
            self.extra_since = now;
            expected = Bytes::ZERO;
        }
        self.extra_delivered += ack.acked;
        let extra = (self.extra_delivered - expected).min(self.window);
        // In Startup one round is enough: the rate doubles, and with it the data that it explains.
        let rounds = if self.full { self.config.extra_acked_rounds } else { 1 };
        self.extra_acked.max(rounds, self.rounds.count(), extra.0);
    }

    // ---- the full pipe ----

    /// Implements the draft's `ResetFullBW`.
    pub(super) fn reset_full(&mut self) {
        self.full_rate = 0.0;
        self.full_count = 0;
        self.full_now = false;
    }

    /// Implements the draft's `CheckFullBWReached`.
    pub(super) fn check_full(&mut self, rate: f64, limited: bool) {
        if self.full_now || !self.round_start || limited {
            return;
        }
        if rate >= self.full_rate * FULL_GROWTH {
            self.reset_full();
            self.full_rate = rate;
            return;
        }
        self.full_count += 1;
        self.full_now = self.full_count >= FULL_ROUNDS;
        self.full |= self.full_now;
    }

    /// CheckStartupHighLoss: a whole round of recovery, several losses in it, more than 2 % of the flight.
    pub(super) fn check_startup_loss(&mut self, ack: &Ack) {
        if self.full {
            return;
        }
        self.loss_events += u64::from(ack.lost > Bytes::ZERO);
        if !self.loss_round_start {
            return;
        }
        let enough = self.loss_events >= self.config.startup_losses;
        self.loss_events = 0;
        if enough && ack.recovery == Recovery::Recovering && self.is_too_high(ack) {
            self.undo.phase = Some(Phase::Startup);
            self.full_now = true;
            self.full = true;
            self.inflight_longterm = self.bdp(self.max_rate(), 1.0).max(self.inflight_latest);
        }
    }

    // ---- losses ----

    /// Implements the draft's `IsInflightTooHigh`.
    #[inline]
    pub(super) fn is_too_high(&self, ack: &Ack) -> bool {
        lost_since(ack).0 as f64 > flight_at_send(ack).0 as f64 * self.config.loss_threshold
    }

    /// HandleLostPacket, for all losses that this ACK marks, and before for those of a timeout.
    pub(super) fn on_lost(&mut self, now: Instant, ack: &Ack, limited: bool, rng: &mut Rng) {
        if let Some(in_flight) = self.timed_out.take()
            && self.probe_sample
        {
            self.handle_too_high(now, ack, in_flight, limited, rng);
        }
        if ack.lost == Bytes::ZERO {
            return;
        }
        // The draft's NoteLoss.
        if !self.loss_in_round {
            self.loss_round_delivered = ack.delivered;
            self.save_once();
        }
        self.loss_in_round = true;
        if self.probe_sample && self.is_too_high(ack) {
            let in_flight = self.flight_at_loss(ack);
            self.handle_too_high(now, ack, in_flight, limited, rng);
        }
    }

    /// InflightAtLoss: the flight at which the losses passed the threshold, if the data marked lost
    /// last was lost evenly.
    fn flight_at_loss(&self, ack: &Ack) -> Bytes {
        let threshold = self.config.loss_threshold;
        let before = flight_at_send(ack) - ack.lost;
        let lost_before = (lost_since(ack) - ack.lost).0 as f64;
        let prefix = (threshold * before.0 as f64 - lost_before) / (1.0 - threshold);
        // The prefix is negative if the threshold was passed before; the cast makes it zero.
        before + Bytes(prefix as u64)
    }

    /// Implements the draft's `HandleInflightTooHigh`.
    fn handle_too_high(
        &mut self,
        now: Instant,
        ack: &Ack,
        in_flight: Bytes,
        limited: bool,
        rng: &mut Rng,
    ) {
        self.too_high = true;
        self.probe_sample = false;
        if !limited {
            let least = Bytes((self.target_inflight().0 as f64 * self.config.beta) as u64);
            self.inflight_longterm = in_flight.max(least);
        }
        if self.phase == Phase::Up {
            self.undo.phase = Some(Phase::Up);
            self.start_down(now, ack.delivered, rng);
        }
    }

    /// UpdateCongestionSignals, AdaptLowerBoundsFromCongestion: once per round with losses.
    pub(super) fn adapt_lower_bounds(&mut self) {
        if !self.loss_round_start {
            return;
        }
        if self.loss_in_round && !self.phase.is_probing() {
            if self.rate_shortterm == f64::INFINITY {
                self.rate_shortterm = self.max_rate();
            }
            if self.inflight_shortterm == UNBOUNDED {
                self.inflight_shortterm = self.window;
            }
            let beta = self.config.beta;
            self.rate_shortterm = self.rate_latest.max(beta * self.rate_shortterm);
            let reduced = Bytes((self.inflight_shortterm.0 as f64 * beta) as u64);
            self.inflight_shortterm = self.inflight_latest.max(reduced);
        }
        self.loss_in_round = false;
    }

    /// Implements the draft's `ResetShortTermModel`.
    pub(super) fn reset_shortterm(&mut self) {
        self.rate_shortterm = f64::INFINITY;
        self.inflight_shortterm = UNBOUNDED;
    }

    /// Implements the draft's `ResetCongestionSignals`.
    pub(super) fn reset_signals(&mut self) {
        self.loss_in_round = false;
        self.rate_latest = 0.0;
        self.inflight_latest = Bytes::ZERO;
    }

    // ---- spurious recovery ----

    /// SaveStateUponLoss, once per episode.
    pub(super) fn save_once(&mut self) {
        if self.saved {
            return;
        }
        self.saved = true;
        self.save_window();
        self.undo = Undo {
            phase: None,
            rate_shortterm: self.rate_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// Implements the draft's `HandleSpuriousLossDetection`.
    pub(super) fn undo(&mut self) {
        let undo = self.undo;
        self.timed_out = None;
        self.loss_in_round = false;
        self.reset_full();
        self.rate_shortterm = self.rate_shortterm.max(undo.rate_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        if undo.phase == Some(Phase::Startup) && self.phase != Phase::Startup {
            self.full = false;
            if self.phase != Phase::ProbeRtt {
                self.phase = Phase::Startup;
            }
        } else if undo.phase == Some(Phase::Up)
            && !matches!(self.phase, Phase::Up | Phase::ProbeRtt)
        {
            self.start_refill(self.delivered);
        }
        self.undo.phase = None;
        self.end_recovery();
    }

    // ---- bandwidth-delay products ----

    /// Implements the draft's `BDPMultiple`.
    #[inline]
    pub(super) fn bdp(&self, rate: f64, gain: f64) -> Bytes {
        if self.min_rtt == Duration::MAX {
            return self.first_window;
        }
        Bytes((rate * self.min_rtt.as_secs_f64() * gain) as u64)
    }

    /// Implements the draft's `TargetInflight`.
    #[inline]
    pub(super) fn target_inflight(&self) -> Bytes {
        self.bdp(self.rate, 1.0).min(self.window)
    }
}
