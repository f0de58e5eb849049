//! The smallest RTT, and ProbeRTT, which empties the path to measure it (draft section 5.3.4).

use units::{Bytes, Duration, Instant};

use super::{Bbr3, Feedback, Phase};
use crate::Rng;
use crate::cc::Ack;

impl Bbr3 {
    /// UpdateMinRTT: a short window decides when to probe, a long one is the estimate.
    pub(super) fn update_min_rtt(&mut self, now: Instant, ack: &Ack) {
        self.probe_rtt_expired = now.since(self.probe_rtt_min_at) > self.config.probe_rtt_interval;
        if self.probe_rtt_expired && self.phase != Phase::ProbeRtt {
            // SaveProbeRTTCwnd: before a sample with a full queue may replace the old RTT.
            self.probe_rtt_window =
                self.bdp(self.rate, self.config.probe_rtt_gain).max(self.min_window());
        }
        if let Some(rtt) = ack.rtt {
            // The handshake's RTT may be smaller than that of the first data.
            let rtt = if self.min_rtt == Duration::MAX { rtt.min(ack.min_rtt) } else { rtt };
            if rtt < self.probe_rtt_min || self.probe_rtt_expired {
                self.probe_rtt_min = rtt;
                self.probe_rtt_min_at = now;
            }
        }
        let expired = now.since(self.min_rtt_at) > self.config.min_rtt_window;
        if self.probe_rtt_min < self.min_rtt || expired {
            self.min_rtt = self.probe_rtt_min;
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    /// Implements the draft's `CheckProbeRTT`.
    pub(super) fn check_probe_rtt(&mut self, now: Instant, ack: &Ack, rng: &mut Rng) {
        if self.phase != Phase::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_window();
            self.phase = Phase::ProbeRtt;
            self.probe_rtt_until = None;
            self.feedback = Feedback::Stopping;
            self.rounds.restart(ack.delivered);
            self.limited = (ack.delivered, ack.delivered);
        }
        if self.phase == Phase::ProbeRtt {
            self.handle_probe_rtt(now, ack, rng);
        }
        if ack.rate.delivered > Bytes::ZERO {
            self.idle_restart = false;
        }
    }

    /// Implements the draft's `HandleProbeRTT`.
    fn handle_probe_rtt(&mut self, now: Instant, ack: &Ack, rng: &mut Rng) {
        self.limited.1 = ack.delivered + ack.in_flight;
        if self.probe_rtt_until.is_none() {
            if ack.in_flight <= self.probe_rtt_window {
                self.probe_rtt_until = Some(now + self.config.probe_rtt_time);
                self.probe_rtt_round_done = false;
                self.rounds.restart(ack.delivered);
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(now, rng);
        }
    }

    /// The draft's `CheckProbeRTTDone` and `ExitProbeRTT`.
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant, rng: &mut Rng) {
        if self.probe_rtt_until.is_none_or(|until| now <= until) {
            return;
        }
        self.probe_rtt_min_at = now;
        self.window = self.window.max(self.prior_window);
        self.reset_shortterm();
        if self.full {
            // The next probe waits as after any other probe; the queue is empty already.
            self.start_down(now, self.delivered, rng);
            self.phase = Phase::Cruise;
        } else {
            self.phase = Phase::Startup;
        }
    }
}
