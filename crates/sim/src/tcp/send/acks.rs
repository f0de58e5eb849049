//! What a sender learns from an ACK: what is delivered, what is lost, and whether the window may
//! grow.
//!
//! signal: cumulative ACK, SACK blocks, DSACK, ECE, timestamp echo · model: RACK (RFC 8985 section
//! 6.2), NewReno's duplicate ACKs where SACK is off (RFC 6582), F-RTO and Eifel (RFC 5682, RFC
//!   3522), one reaction per window to ECN (RFC 3168) · action: segments marked lost, recovery
//!   begun and ended, congestion control informed.

use algo::cc::{Ack, CongestionControl, Loss, RateSample, Recovery};
use algo::rwnd::afc;
use units::{Bytes, Duration, Instant};

use super::Sender;
use crate::frame::{Frame, flags};
use crate::tcp::prr::Prr;
use crate::tcp::scoreboard::Segment;
use crate::tcp::ticks;

/// RACK's window grows by a quarter of the smallest RTT per round with DSACKs, to at most this many
/// quarters; Linux lets it reach the smoothed RTT, which is checked as well.
const REORDER_STEPS_MAX: u64 = 8;
/// Recoveries without DSACK after which RACK's window shrinks again (RFC 8985 section 6.2).
const REORDER_PERSIST: u32 = 16;
/// Duplicate ACKs that mean loss (RFC 5681; RFC 6675 DupThresh).
const DUP_THRESHOLD: u64 = 3;

/// What one ACK delivered, as the steps of [`Sender::on_ack`] collect it.
#[derive(Default)]
struct Delivery {
    rate: RateSample,
    /// The most recently sent of the delivered segments.
    newest: Option<Segment>,
    rtt: Option<Duration>,
    /// A segment that was sent once, before the timeout (RFC 5682: only that proves something).
    original: bool,
    /// When the newest of the segments that this ACK SACKs first was sent.
    sacked_sent: Option<Instant>,
    /// The cumulative ACK advanced.
    advanced: bool,
}

/// State of the sender before the ACK.
#[derive(Clone, Copy)]
struct Before {
    in_flight: u64,
    una: u64,
    delivered: u64,
    lost: u64,
}

impl Sender {
    /// An ACK arrived; call [`Sender::send`] afterwards.
    pub fn on_ack(&mut self, now: Instant, f: &Frame) {
        if f.ack > self.nxt {
            return;
        }
        let before = Before {
            in_flight: self.in_flight(),
            una: self.una,
            delivered: self.delivered,
            lost: self.board.lost_total,
        };
        self.update_window(f);
        let mut d = Delivery::default();
        self.take_cumulative(now, f, before.una, &mut d);
        if self.settings.sack && f.sacks > 0 {
            self.take_sacks(now, f, &mut d);
        } else if !self.settings.sack {
            self.count_duplicate(f, d.advanced, before.una);
        }
        let acked = self.delivered - before.delivered;
        if acked > 0 {
            self.delivered_at = now;
        }
        if self.unanswered && (acked > 0 || d.advanced) {
            self.account_limit(now);
            self.unanswered = false;
        }
        let delayed = d.advanced && self.delayed_acks.ack(f.ack - before.una, self.settings.mss);
        if let Some(rtt) = d.rtt {
            self.take_rtt(now, rtt, delayed);
        }
        self.take_one_way(f, before.una, d.newest.as_ref());
        self.finish_sample(now, &mut d.rate, d.newest.as_ref());
        let stopped = self.stopped();
        if let Some(afc) = &mut self.afc {
            let ack = afc::SenderAck {
                acknowledged: Bytes(self.una),
                sent: Bytes(self.nxt),
                window: Bytes(f.window),
                rate_option: f.rate_option,
                rtt: self.rto.srtt,
            };
            afc.on_ack(now, &ack);
        }
        if stopped && !self.stopped() {
            self.rto.backoff = 0;
            self.arm(now, false);
        }
        let newly_lost = self.judge_losses(now, f, acked, &d, before.in_flight);
        if let Some(window) = self.restart {
            // Slow start from there to what the window was.
            self.restart = Some(window + acked).filter(|w| *w < self.cc.window().0);
        }
        let marked = self.on_ecn_echo(now, f, before.in_flight, acked);
        if acked > 0 || self.board.lost_total > before.lost {
            self.report_ack(now, acked, marked, newly_lost, &d, before.in_flight);
        }
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        // Segments sent before the head are still arriving, so the head's ACK is not overdue: Linux
        // starts the timer again (tcp_clean_rtx_queue), or a deep queue that grows would look like a
        // lost retransmission.
        let older =
            d.sacked_sent.zip(self.board.front()).is_some_and(|(sent, head)| sent < head.sent);
        if d.advanced || older {
            self.arm(now, false);
        }
    }

    #[inline]
    fn update_window(&mut self, f: &Frame) {
        if f.ack > self.una || (f.ack == self.una && f.window > self.window) {
            if self.window == 0 && f.window > 0 {
                self.persist_backoff = 0;
            }
            self.window = f.window;
            self.max_window = self.max_window.max(f.window);
        }
    }

    /// Takes the segments below the cumulative ACK off the scoreboard.
    #[inline]
    fn take_cumulative(&mut self, now: Instant, f: &Frame, prior_una: u64, d: &mut Delivery) {
        let originals_end = self.frto.map_or(0, |f| f.end);
        while let Some(segment) = self.board.pop_acked(f.ack) {
            self.una = segment.end();
            if !segment.sacked {
                self.delivered += u64::from(segment.len);
                d.original |= segment.sends == 1 && segment.end() <= originals_end;
                take(&mut self.flight_sent, &mut d.rate, &mut d.newest, &segment);
                // Karn's rule: a segment sent twice gives no sample.
                d.rtt = (segment.sends == 1).then(|| now.since(segment.sent));
                if segment.sends == 1 && segment.end() < self.highest {
                    self.reorder_seen = true;
                }
                self.rack_update(now, &segment, f.ts_ecr);
            }
        }
        d.advanced = self.una > prior_una;
        if d.advanced {
            self.board.sacked_ranges.remove_below(self.una);
            self.highest = self.highest.max(self.una);
        }
    }

    /// Marks the segments of the SACK blocks; the first block may be a DSACK.
    fn take_sacks(&mut self, now: Instant, f: &Frame, d: &mut Delivery) {
        let originals_end = self.frto.map_or(0, |f| f.end);
        let mut blocks = f.sack;
        if f.dsack {
            self.on_dsack(f.sack[0]);
            blocks[0] = (0, 0);
        }
        for &(from, to) in &blocks[..f.sacks as usize] {
            if to <= self.una || from >= to || to > self.nxt {
                continue;
            }
            let mut delivered = 0;
            let mut last_sent: Option<Segment> = None;
            let mut board = std::mem::take(&mut self.board);
            board.sack(from.max(self.una), to, |segment| {
                delivered += u64::from(segment.len);
                if segment.sends == 1 {
                    d.original |= segment.end() <= originals_end;
                    d.sacked_sent = Some(segment.sent.max(d.sacked_sent.unwrap_or(segment.sent)));
                    let sample = now.since(segment.sent);
                    if d.rtt.is_none_or(|r| sample < r) {
                        d.rtt = Some(sample);
                    }
                    if segment.end() < self.highest {
                        self.reorder_seen = true;
                    }
                }
                take(&mut self.flight_sent, &mut d.rate, &mut d.newest, segment);
                if last_sent.is_none_or(|l| (l.sent, l.end()) < (segment.sent, segment.end())) {
                    last_sent = Some(*segment);
                }
            });
            self.board = board;
            self.delivered += delivered;
            if let Some(segment) = last_sent {
                self.rack_update(now, &segment, 0);
            }
            self.highest = self.highest.max(to);
        }
    }

    /// Marks segments lost, and begins or ends recovery; the bytes newly marked.
    fn judge_losses(
        &mut self,
        now: Instant,
        f: &Frame,
        acked: u64,
        d: &Delivery,
        prior_in_flight: u64,
    ) -> u64 {
        self.check_timeout_was_needed(now, f, d.advanced, d.original);
        let before = self.board.lost_total;
        if !d.advanced && acked == 0 && f.window < self.settings.mss && !f.dsack && f.len == 0 {
            self.detect_refused(now);
        }
        self.detect_losses(now);
        if !self.settings.sack {
            self.detect_by_duplicates(d.advanced);
        }
        let newly_lost = self.board.lost_total - before;
        self.on_probe_answered(now, f, d.advanced);
        self.step_recovery(now, newly_lost > 0, prior_in_flight);
        newly_lost
    }

    /// Reports the ACK to the congestion control; in recovery PRR says what may be in flight.
    fn report_ack(
        &mut self,
        now: Instant,
        acked: u64,
        marked: u64,
        newly_lost: u64,
        d: &Delivery,
        prior_in_flight: u64,
    ) {
        let in_flight = self.in_flight();
        let window = self.cc.window().0;
        let limited = prior_in_flight + self.settings.mss > window
            || (prior_in_flight * 2 > window && self.slow_start());
        let ack = Ack {
            acked: Bytes(acked),
            delivered: Bytes(self.delivered),
            rtt: d.rtt,
            srtt: self.rto.srtt,
            min_rtt: self.rto.min,
            one_way: self.one_way,
            prior_in_flight: Bytes(prior_in_flight),
            in_flight: Bytes(in_flight),
            lost: Bytes(self.board.lost_total.saturating_sub(self.lost_reported)),
            window_limited: limited,
            marked: Bytes(marked),
            recovery: self.recovery,
            rate: d.rate,
        };
        self.lost_reported = self.board.lost_total;
        self.cc.on_ack(now, &ack, &mut self.rng);
        if self.recovery == Recovery::Recovering && !self.cc.rules_recovery() {
            let safe = d.advanced && newly_lost == 0;
            self.allowed = self.prr.on_ack(acked, in_flight, safe, self.settings.mss);
        }
    }

    /// From the sending of the newest segment delivered to the timestamp of its ACK: two clocks
    /// with a constant offset, which happens to be zero here. The echo will not do: a delayed ACK
    /// echoes the oldest segment that it covers (RFC 7323 section 4.3), which waited for the
    /// newest. Where ACKs are delayed, that of a single segment may have waited for the receiver's
    /// timer and shows that timer instead of the path.
    #[inline]
    pub(super) fn take_one_way(&mut self, f: &Frame, prior_una: u64, newest: Option<&Segment>) {
        let step = self.una - prior_una;
        if f.sacks == 0 {
            self.ack_step = self.ack_step.max(step);
        }
        let waited = f.sacks == 0 && step < self.ack_step.min(2 * self.settings.mss);
        self.one_way = newest
            .filter(|s| self.settings.timestamps && !waited && s.sends == 1)
            .map(|s| Duration::from_millis(u64::from(f.ts_val.saturating_sub(ticks(s.sent)))));
    }

    pub(super) fn finish_sample(
        &mut self,
        now: Instant,
        sample: &mut RateSample,
        newest: Option<&Segment>,
    ) {
        let Some(s) = newest else { return };
        let send = s.sent.since(s.flight_sent);
        let ack = now.since(s.delivered_at);
        sample.interval = send.max(ack);
        sample.delivered = Bytes(self.delivered - s.delivered);
        sample.lost = Bytes(self.board.lost_total.saturating_sub(s.lost_total));
        // Shorter than any round trip: ACKs of retransmissions that prove nothing
        // (draft-ietf-ccwg-bbr section 4.1.2.3).
        if self.rto.min != Duration::MAX && sample.interval < self.rto.min {
            sample.interval = Duration::ZERO;
        }
    }

    /// RFC 8985 section 6.2 step 2: the most recently sent segment known to be delivered.
    #[inline]
    pub(super) fn rack_update(&mut self, now: Instant, segment: &Segment, echo: u32) {
        let rtt = now.since(segment.sent);
        if segment.sends > 1 {
            // An earlier copy arrived: the echo is older than the last one, or came back too soon
            // for it. An ACK of a hole echoes the timestamp before the hole and proves nothing
            // (`echo` is 0 then).
            let older = self.settings.timestamps && echo != 0 && echo < ticks(segment.sent);
            if older || rtt < self.rto.min {
                return;
            }
        }
        if (segment.sent, segment.end()) > (self.rack_sent, self.rack_end) {
            self.rack_sent = segment.sent;
            self.rack_end = segment.end();
            self.rack_rtt = rtt;
        }
    }

    /// RFC 8985 section 6.2 step 4: how far ACKs may be out of order.
    pub(super) fn reorder_window(&self) -> Duration {
        let segments = self.board.sacked / self.settings.mss.max(1);
        if !self.reorder_seen && (self.recovery != Recovery::Open || segments >= DUP_THRESHOLD) {
            return Duration::ZERO;
        }
        if self.rto.min == Duration::MAX {
            return Duration::ZERO;
        }
        Duration(self.rto.min.0 / 4 * self.reorder_steps).min(self.rto.srtt)
    }

    /// RFC 8985 section 6.2 step 5.
    pub(super) fn detect_losses(&mut self, now: Instant) {
        self.rack_at = None;
        let Some((_, first)) = self.board.oldest_in_flight() else { return };
        if !self.settings.sack || (first.sent, first.end()) >= (self.rack_sent, self.rack_end) {
            return;
        }
        let window = self.reorder_window();
        while let Some((number, segment)) = self.board.oldest_in_flight() {
            if (segment.sent, segment.end()) >= (self.rack_sent, self.rack_end) {
                return;
            }
            let deadline = segment.sent + self.rack_rtt + window;
            if deadline > now {
                self.rack_at = Some(deadline);
                return;
            }
            self.board.mark_lost(number);
            self.board.skip_oldest();
        }
    }

    /// AFC: an ACK that carries nothing but a closed window answers a segment that the full buffer
    /// refused. Segments arrive in order, so it was the one sent first of those that can have
    /// arrived. Without this only a timer would find them: nothing behind them is accepted, so SACK
    /// shows no hole.
    pub(super) fn detect_refused(&mut self, now: Instant) {
        if !self.settings.sack || !self.afc.as_ref().is_some_and(afc::Sender::hides_loss) {
            return;
        }
        if let Some((number, segment)) = self.board.oldest_in_flight()
            && now.since(segment.sent) >= self.rto.min
        {
            self.board.mark_lost(number);
            self.board.skip_oldest();
        }
    }

    /// Without SACK a duplicate ACK stands for one segment delivered (RFC 5681 section 3.2).
    pub(super) fn count_duplicate(&mut self, f: &Frame, advanced: bool, prior_una: u64) {
        if advanced {
            self.dup_bytes = self
                .dup_bytes
                .saturating_sub((self.una - prior_una).saturating_sub(self.settings.mss));
            if self.recovery == Recovery::Open {
                self.dup_bytes = 0;
            }
        } else if f.ack == self.una && f.len == 0 && self.nxt > self.una {
            let max = (self.nxt - self.una).saturating_sub(self.settings.mss);
            self.dup_bytes = (self.dup_bytes + self.settings.mss).min(max);
        }
    }

    /// RFC 6582: three duplicates, or a partial ACK, mean that the oldest segment is lost.
    pub(super) fn detect_by_duplicates(&mut self, advanced: bool) {
        let enough = self.dup_bytes >= DUP_THRESHOLD * self.settings.mss;
        let partial =
            advanced && self.recovery == Recovery::Recovering && self.una < self.recovery_end;
        if ((enough && self.recovery == Recovery::Open) || partial)
            && let Some(last) = self.board.last_number()
        {
            let first = last + 1 - self.board.len() as u64;
            self.board.mark_lost(first);
        }
    }

    pub(super) fn on_dsack(&mut self, block: (u64, u64)) {
        self.counters.retransmitted_spurious += 1;
        // RFC 8985 section 6.2 step 4: once per round trip.
        if block.1 > self.reorder_round {
            self.reorder_round = self.nxt;
            self.reorder_steps = (self.reorder_steps + 1).min(REORDER_STEPS_MAX);
            self.reorder_recoveries = REORDER_PERSIST;
        }
    }

    pub(super) fn step_recovery(&mut self, now: Instant, newly_lost: bool, prior_in_flight: u64) {
        if self.recovery != Recovery::Open && self.una >= self.recovery_end {
            self.recovery = Recovery::Open;
            self.dup_bytes = 0;
            self.frto = None;
            self.reorder_recoveries = self.reorder_recoveries.saturating_sub(1);
            if self.reorder_recoveries == 0 {
                self.reorder_steps = 1;
            }
            self.cc.on_recovered(now);
        }
        if newly_lost && self.recovery == Recovery::Open {
            self.begin_recovery(now, prior_in_flight);
        }
    }

    pub(super) fn begin_recovery(&mut self, now: Instant, prior_in_flight: u64) {
        self.recovery = Recovery::Recovering;
        self.recovery_end = self.nxt;
        self.counters.recoveries += 1;
        let hidden = self.afc.as_ref().is_some_and(afc::Sender::hides_loss);
        if !hidden {
            let loss = Loss { lost: Bytes(self.board.lost), in_flight: Bytes(prior_in_flight) };
            self.cc.on_loss(now, &loss);
        }
        self.hidden = hidden;
        self.prr = Prr::begin(self.nxt - self.una, self.cc.window().0);
        self.allowed = self.in_flight() + self.settings.mss;
    }

    /// F-RTO and Eifel: an ACK after a timeout that proves that the originals arrived.
    pub(super) fn check_timeout_was_needed(
        &mut self,
        now: Instant,
        f: &Frame,
        advanced: bool,
        original: bool,
    ) {
        let Some(mut frto) = self.frto else { return };
        let echo_is_older = self.settings.timestamps
            && advanced
            && f.ts_ecr != 0
            && f.ts_ecr < ticks(frto.retransmitted_at);
        if echo_is_older || original {
            self.frto = None;
            self.board.forgive();
            self.recovery = Recovery::Open;
            self.counters.undone += 1;
            self.cc.on_spurious(now);
            self.cc.on_recovered(now);
        } else if !advanced || frto.probing {
            self.frto = None;
        } else {
            frto.probing = true;
            self.frto = Some(frto);
        }
    }

    /// RFC 8985 section 7.4.2: a probe that was a retransmission and is answered without DSACK has
    /// repaired a loss.
    pub(super) fn on_probe_answered(&mut self, now: Instant, f: &Frame, advanced: bool) {
        let Some((end, again)) = self.probe else { return };
        if f.dsack || (f.ack >= end && !again) {
            self.probe = None;
        } else if f.ack == end && !advanced && f.sacks == 0 && f.len == 0 {
            // Both copies arrived, and the second made a plain duplicate ACK.
            self.probe = None;
        } else if f.ack > end && advanced {
            self.probe = None;
            if self.recovery == Recovery::Open {
                let loss =
                    Loss { lost: Bytes(self.settings.mss), in_flight: Bytes(self.in_flight()) };
                self.cc.on_loss(now, &loss);
                self.cc.on_recovered(now);
                self.counters.recoveries += 1;
            }
        }
    }

    pub(super) fn on_ecn_echo(
        &mut self,
        now: Instant,
        f: &Frame,
        in_flight: u64,
        acked: u64,
    ) -> u64 {
        if !self.settings.ecn || f.flags & flags::ECE == 0 {
            return 0;
        }
        // RFC 3168 section 6.1.2: one reaction per window of data. The first segment behind that
        // window carries CWR, and until it is acknowledged the receiver repeats the old mark (Linux
        // leaves TCP_CA_CWR then).
        if self.reduce_once(now, in_flight) {
            self.cwr = true;
            self.counters.ecn_reactions += 1;
        }
        acked
    }

    /// Answers congestion without a loss, once for a window of data. Whether it did.
    pub(super) fn reduce_once(&mut self, now: Instant, in_flight: u64) -> bool {
        let due = self.una > self.reduced_end && self.recovery == Recovery::Open;
        if due {
            self.reduced_end = self.nxt;
            self.cc.on_ecn(now, &Loss { lost: Bytes::ZERO, in_flight: Bytes(in_flight) });
        }
        due
    }
}

/// The newest segment that an ACK delivers carries the rate sample (draft-ietf-ccwg-bbr section
/// 4.1.2.3).
#[inline]
fn take(
    flight_sent: &mut Instant,
    sample: &mut RateSample,
    newest: &mut Option<Segment>,
    segment: &Segment,
) {
    if newest.is_none_or(|n| {
        (n.delivered, n.sent, n.seq) < (segment.delivered, segment.sent, segment.seq)
    }) {
        *newest = Some(*segment);
        sample.prior_delivered = Bytes(segment.delivered);
        sample.in_flight_at_send = Bytes(segment.in_flight);
        sample.app_limited = segment.app_limited;
        *flight_sent = segment.sent;
    }
}
