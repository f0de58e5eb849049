//! What a sender does when nothing comes: retransmission timeout, tail-loss probe, window probe.
//!
//! signal: time · model: RFC 6298, RFC 8985 section 7, RFC 9293 section 3.8.6.1 · action:
//! everything in flight is marked lost, or one segment is sent as a probe.

use algo::cc::{CongestionControl, Recovery, Timeout};
use algo::rwnd::afc;
use units::{Bytes, Duration, Instant};

use super::{Emit, Frto, Sender};

/// Worst delay of a delayed ACK that a tail-loss probe allows for (RFC 8985 section 7.2, Linux
/// `TCP_DELACK_MAX`).
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);

impl Sender {
    /// Sets the retransmission timer, and the tail-loss probe, which comes first (RFC 8985 section 7.2): no later than the
    /// timeout would. After an ACK that time begins now; where segments were sent it began with the oldest one in flight (Linux
    /// `tcp_rto_delta_us`).
    pub(super) fn arm(&mut self, now: Instant, sent: bool) {
        let Some(oldest) = self.board.front().map(|segment| segment.sent) else {
            self.rto_at = None;
            self.probe_at = None;
            return;
        };
        let timeout = self.rto.timeout();
        self.rto_at = Some(now + timeout);
        self.probe_at = None;
        if self.settings.sack
            && self.recovery == Recovery::Open
            && self.probe.is_none()
            && self.board.sacked == 0
            && self.rto.srtt > Duration::ZERO
        {
            let alone = if self.board.len() == 1 { ACK_DELAY_MAX } else { Duration::ZERO };
            let begins = if sent && oldest + timeout > now { oldest } else { now };
            self.probe_at = Some((begins + timeout).min(now + self.rto.srtt * 2 + alone));
        }
    }

    /// The next time at which [`Sender::on_timer`] has something to do.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let next = crate::tcp::sooner(self.probe_at.or(self.rto_at), self.rack_at);
        crate::tcp::sooner(crate::tcp::sooner(self.persist_at, self.pacing_wait), next)
    }

    /// Time has passed: call [`Sender::send`] afterwards.
    pub fn on_timer(&mut self, now: Instant, emit: &mut impl FnMut(Emit)) {
        if self.rack_at.is_some_and(|at| at <= now) {
            let before = self.board.lost_total;
            let in_flight = self.in_flight();
            self.detect_losses(now);
            self.step_recovery(now, self.board.lost_total > before, in_flight);
        }
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_at = None;
            if !self.stopped() {
                self.send_probe(now, emit);
            }
        } else if self.rto_at.is_some_and(|at| at <= now) {
            if self.stopped() {
                self.probe_stopped(now, emit);
            } else {
                self.on_timeout(now);
            }
        }
        if self.persist_at.is_some_and(|at| at <= now) {
            self.persist_at = None;
            self.probe_window(now, emit);
        }
        if self.pacing_wait.is_some_and(|at| at <= now) {
            self.pacing_wait = None;
        }
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.rto_at = None;
        if self.board.is_empty() {
            return;
        }
        let in_flight = self.in_flight();
        let first = self.recovery != Recovery::Lost;
        self.rto.backoff += 1;
        self.counters.timeouts += 1;
        self.account_limit(now);
        self.unanswered = true;
        // RFC 5682 section 2: only where no loss was being repaired already.
        let frto = self.recovery == Recovery::Open && self.board.sacked == 0;
        self.board.mark_all_lost();
        // The timeout itself reports these.
        self.lost_reported = self.board.lost_total;
        self.dup_bytes = 0;
        self.rack_at = None;
        self.probe = None;
        self.recovery = Recovery::Lost;
        self.recovery_end = self.nxt;
        self.frto = frto.then_some(Frto { retransmitted_at: now, end: self.nxt, probing: false });
        let hidden = self.afc.as_ref().is_some_and(afc::Sender::hides_loss);
        if !hidden {
            let count = if first { 1 } else { self.rto.backoff.max(2) };
            self.cc.on_timeout(now, &Timeout { in_flight: Bytes(in_flight), count });
        }
        self.rto_at = Some(now + self.rto.timeout());
    }

    /// RFC 8985 section 7.3: new data if there is some, else the last segment again.
    pub(super) fn send_probe(&mut self, now: Instant, emit: &mut impl FnMut(Emit)) {
        if self.board.is_empty() {
            return;
        }
        let (new, fin) = self.next_new();
        if new > 0 && self.una + self.window >= self.nxt + new {
            self.probe = Some((self.nxt + new, false));
            self.transmit_new(now, new, fin, emit);
        } else if let Some(number) = self.board.last_number() {
            let Some(last) = self.board.back().copied() else { return };
            self.probe = Some((last.end(), true));
            self.counters.retransmitted_probe += u64::from(last.payload() > 0);
            self.retransmit(now, number, &last, emit);
        }
        self.rto_at = Some(now + self.rto.timeout());
        self.probe_at = None;
    }

    /// RFC 9293 section 3.8.6.1: a closed (or too small) window is probed from time to time.
    pub(super) fn probe_window(&mut self, now: Instant, emit: &mut impl FnMut(Emit)) {
        let (new, fin) = self.next_new();
        if !self.board.is_empty() || new == 0 {
            return;
        }
        if self.window > 0 {
            let len = self.window.min(new);
            self.transmit_new(now, len, fin && len == new, emit);
        } else {
            self.counters.window_probes += 1;
            // Linux sends the byte before the window: the receiver answers with its window.
            emit(Emit {
                seq: self.nxt.saturating_sub(1),
                len: 0,
                fin: false,
                again: true,
                cwr: false,
            });
            self.persist_backoff = (self.persist_backoff + 1).min(8);
            self.arm_persist(now);
        }
    }

    /// AFC: a standing reader is no loss, so the window is probed instead, at the times of RFC 9293
    /// section 3.8.6.1. The update that ends the pause can be lost.
    fn probe_stopped(&mut self, now: Instant, emit: &mut impl FnMut(Emit)) {
        self.counters.window_probes += 1;
        self.rto.backoff += 1;
        let seq = self.una.saturating_sub(1);
        emit(Emit { seq, len: 0, fin: false, again: true, cwr: false });
        self.rto_at = Some(now + self.rto.timeout());
    }

    pub(super) fn arm_persist(&mut self, now: Instant) {
        if self.persist_at.is_none() {
            let base = self.rto.timeout() * (1 << self.persist_backoff);
            self.persist_at = Some(now + base.min(Duration::from_secs(120)));
        }
    }
}
