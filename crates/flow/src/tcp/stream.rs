//! One direction of a connection: the data that one side sent, and its acknowledgement by the other.
//!
//! [`Stream::on_data`] processes data segments; `Stream::on_ack` (file `ack`) processes ACKs of the other side. Both
//! update counters and RTT samples, and report the state of each moment (window full, zero window, nothing to send) to
//! `series::limits`. Where the capture was not taken at the sender, `sender_view` reconstructs what the sender knew.
//!
//! Definitions, as in `docs/measures.md`:
//! - Bytes in flight = highest sent − highest acknowledged − SACKed, updated on data and on ACKs.
//! - Window full = less than one send unit between the highest byte sent and the right edge, as the sender saw it. A
//!   send unit is one MSS, or what a millisecond of the flow's rate delivers where that is more, at most 64 KiB. Linux
//!   passes segments to the device in bursts of that size (tcp_tso_autosize) and delays a burst that does not fit. With
//!   one MSS as the threshold, most of the time that the kernel counts as rwnd_limited is missed above some 12 Mbit/s.
//! - Nothing to send = the last segment was shorter than an MSS and did not fill the window (so the send buffer was
//!   empty), or everything is acknowledged.
//!
//! Deviation: at the receiver and in the middle, without timestamps, the sender's view is not known. The window and
//! in-flight figures are then those at the capture, a lower bound.

use capture::{TcpSegment, flags};
use units::{Bytes, Duration, Instant};

use crate::congestion_control::rounds::EndedBy;
use crate::identity::sequence::{Pos, Sequence};
use crate::series::evidence::Wakeup;
use crate::series::growth::Round;
use crate::series::limits::{BinContext, State, recovery_memory};
use crate::series::rows::{EventKind, SegmentKind, Vantage};
use crate::tcp::missing::EarlyAck;
use crate::tcp::retransmission::{self, Cause, Hole, Late, RTO_MIN, Retransmission, judge};
use crate::tcp::sender_view::SenderView;
use crate::tcp::spurious::Found;
use crate::tcp::state::{Context, Counts, Measured, Scale, Waiting};

/// Minimum idle gap for radio promotion: radios go to sleep after seconds, not milliseconds.
pub(crate) const WAKEUP_GAP: Duration = Duration(1_000_000_000);
/// Maximum number of wake-ups stored per flow, far more than the rule `radio-promotion` needs. Beyond, the first that
/// have an RTT sample stand for all.
const MAX_WAKEUPS: usize = 32;
/// Largest payload of one segment on the wire with the common MTU of 1,500. Larger ones are GSO/GRO segments unless
/// the SYN announced jumbo frames.
pub(crate) const MAX_WIRE_PAYLOAD: u32 = 1460;

/// Payload of a segment with timestamps on an MTU of 1,500.
pub(crate) const TYPICAL_MSS: u32 = 1448;
/// Bytes of the timestamps option with its padding (RFC 7323 appendix A).
pub(crate) const TIMESTAMPS: u32 = 12;

/// One direction of a connection. The fields that every segment needs stand first; their order is that in memory.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Stream {
    pub measured: Option<Box<Measured>>,
    /// Highest byte sent so far.
    pub max: Pos,
    /// Highest cumulative ACK so far.
    pub una: Pos,
    pub right_edge: Pos,
    /// Window of the last ACK, scaled.
    pub rwnd: Option<u64>,
    pub rwnd_min: u64,
    pub rwnd_max: u64,
    /// Position of the FIN, once seen.
    pub fin: Option<Pos>,
    pub seq: Sequence,
    pub dup_run: u32,
    pub last_window: u32,
    /// MSS by the SYNs, 0 if unknown.
    pub mss_agreed: u32,
    /// `mss_agreed` is without the timestamps that every segment carries.
    pub mss_stamped: bool,
    /// Largest payload seen of one segment on the wire.
    pub largest: u32,
    pub scale: Scale,
    /// Where the capture was taken, seen from this stream's sender.
    pub vantage: Vantage,
    /// Packets of the other side are in the capture.
    pub acks_seen: bool,
    pub acked_any: bool,
    pub started: bool,
    pub fin_acked: bool,
    pub syn_seen: bool,
    pub timestamps: bool,
    pub sack_permitted: bool,
    /// Both SYNs were seen, and not both permit SACK.
    pub no_sack: bool,
    /// Smallest time capture → receiver → capture, and number of samples.
    pub far_min: u64,
    pub far_count: u32,
    pub near_count: u32,
    /// Smallest time capture → sender → capture, and number of samples.
    pub near_min: u64,
    pub counts: Counts,
    /// The handshake's half between capture and this stream's sender.
    pub near_half: Option<Duration>,
    /// Smallest RTT (ns) of the path known from outside this stream (handshake, other connections).
    pub path_min: Option<u64>,
    pub isn: u32,
    pub mss_option: Option<u16>,
    pub scale_option: Option<u8>,
}

impl Stream {
    /// Segment size of this stream: the MSS of the SYNs, or the largest segment seen where path MTU discovery or a
    /// tunnel made it smaller. Below three quarters of the MSS they are messages, not full segments.
    #[inline]
    pub fn mss(&self) -> u32 {
        let agreed = if self.mss_agreed > 0 { self.mss_agreed } else { TYPICAL_MSS };
        let settled = self.counts.data_packets > 16 || self.mss_agreed == 0;
        if settled && u64::from(self.largest) * 4 >= u64::from(agreed) * 3 {
            self.largest
        } else {
            agreed
        }
    }

    /// Timestamps are sent though the SYNs in the capture did not agree on them: their 12 bytes are part of the MSS
    /// (RFC 6691), and a full segment carries less data.
    #[inline]
    fn mss_with_timestamps(&mut self) {
        if !self.mss_stamped {
            self.mss_stamped = true;
            let room = self.mss_agreed.saturating_sub(TIMESTAMPS);
            self.mss_agreed = room.max(self.mss_agreed.min(1));
        }
    }

    /// Payload of a full segment on the wire, by which captured packets are cut.
    #[inline]
    fn full_segment(&self) -> u32 {
        // Without the SYNs the largest segment may come later; a smaller divisor would give too many.
        let min = if self.mss_agreed == 0 { MAX_WIRE_PAYLOAD } else { 1 };
        self.mss().max(min)
    }

    /// Number of segments on the wire that `bytes` of one captured packet stand for.
    #[inline]
    pub fn segments_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.full_segment())).max(1)
    }

    /// Sets position 0: the sequence number of the SYN + 1, or that of the first byte seen.
    pub fn start_at(&mut self, wire: u32) {
        self.seq = Sequence::new(wire);
        self.started = true;
        self.max = 0;
        self.una = 0;
    }

    /// The sender's view of ACK, SACK and right edge, where it can be known.
    #[inline]
    pub fn senders_view(&self, m: &Measured) -> Option<SenderView> {
        match self.vantage {
            Vantage::Sender | Vantage::Unknown => Some(SenderView {
                una: self.una,
                sacked: m.board.sacked_bytes(),
                right_edge: self.right_edge,
            }),
            Vantage::Receiver | Vantage::Middle => {
                if self.timestamps {
                    m.known
                } else {
                    None
                }
            }
        }
    }

    /// Bytes in flight as the sender saw them, SACK-adjusted.
    #[inline]
    pub fn in_flight(&self, m: &Measured) -> Option<u64> {
        let known = self.senders_view(m)?;
        Some(((self.max - known.una).max(0) as u64).saturating_sub(known.sacked))
    }

    /// The length of a round trip and a segment now.
    #[inline]
    pub fn round(&self, m: &Measured) -> Round {
        Round { rtt: m.smoothed.srtt.max(self.path_min.unwrap_or(0)), mss: self.mss() }
    }

    /// The facts that closing a bin needs.
    pub fn facts(&self, m: &Measured, cx: &Context<'_>) -> BinContext {
        BinContext {
            in_flight: self.in_flight(m),
            rwnd: self.rwnd,
            base_rtt: match (m.rtt.min(), self.path_min) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            srtt: m.smoothed.srtt,
            link_bytes: cx.link_bytes(),
        }
    }

    /// Accounts the time up to `cx.now`.
    #[inline]
    pub fn advance(&self, m: &mut Measured, cx: &mut Context<'_>) {
        if m.bins.stays_open(cx.now) {
            return;
        }
        let facts = self.facts(m, cx);
        let samples =
            if cx.selected.samples { Some((cx.flow, &mut cx.series.samples)) } else { None };
        m.bins.advance(cx.now, &facts, samples);
    }

    /// Processes a segment of this side with payload, or a probe. False for a duplicate made by the capture.
    pub fn on_data(&mut self, s: &TcpSegment, cx: &mut Context<'_>) -> bool {
        let mut m = match self.measured.take() {
            Some(m) => m,
            None => {
                let mut m = Measured::new(cx);
                m.window_bound.raised(Instant::ZERO, self.right_edge);
                m
            }
        };
        if !self.started {
            self.start_at(s.seq);
        }
        if m.waiting.is_some() || cx.now.since(m.last_data) > RTO_MIN {
            self.judge_pause(s, &mut m, cx);
        }
        if self.away() {
            self.count_packet(s, &mut m);
            self.same_tick(s, &mut m, cx.now);
        }
        self.advance(&mut m, cx);
        let genuine = self.data(s, &mut m, cx);
        self.measured = Some(m);
        genuine
    }

    fn data(&mut self, s: &TcpSegment, m: &mut Measured, cx: &mut Context<'_>) -> bool {
        let now = cx.now;
        let len = i64::from(s.payload);
        let syn = i64::from(s.has(flags::SYN));
        let start = self.seq.position(s.seq, self.max) + syn;
        let end = start + len;
        let ip_id = s.ip.id.unwrap_or(0);
        let tsval = s.options.timestamps.map(|t| t.0);

        if len <= 1 && self.is_probe(start, end, m, cx) || len == 0 {
            return true;
        }
        self.counts.data_packets += 1;
        self.counts.payload_bytes += u64::from(s.payload);
        if s.ip.ecn == 3 {
            self.counts.ecn_ce += 1;
            m.bins.congestion(now);
            cx.series.event(cx.selected, cx.flow, now, EventKind::Ecn, 1.0, start);
        }
        let limit = if self.mss_agreed > 0 { self.mss_agreed } else { MAX_WIRE_PAYLOAD };
        if s.payload <= limit {
            self.largest = self.largest.max(s.payload);
        } else {
            self.counts.offloaded += 1;
        }
        if let Some(stamps) = s.options.timestamps {
            self.mss_with_timestamps();
            if s.has(flags::ACK) {
                self.on_echo(stamps, end, m, cx);
            }
        }

        let first_data = self.counts.data_packets == 1;
        if first_data && !self.syn_seen && start > self.max && self.una == self.max {
            // The capture began in the middle of the flow: the bytes before the first one seen are no hole.
            self.max = start;
            self.una = self.una.max(start);
        }
        if start >= self.max {
            self.new_data(start, end, ip_id, tsval, m, cx);
        } else {
            let fresh_from = self.max.max(start);
            let old_end = end.min(fresh_from);
            if !self.old_data(start, old_end, ip_id, tsval, m, cx) {
                self.counts.data_packets -= 1;
                self.counts.payload_bytes -= u64::from(s.payload);
                return false;
            }
            if end > fresh_from {
                self.new_data(fresh_from, end, ip_id, tsval, m, cx);
            }
        }
        m.bins.sent(u64::from(s.payload));
        m.bursts.sent(now, u64::from(s.payload));
        m.last_data = now;
        self.after_data(s, end, m, cx);
        true
    }

    /// Zero-window probes and keep-alives: at most one byte at nxt or nxt − 1.
    #[cold]
    #[inline(never)]
    fn is_probe(&mut self, start: Pos, end: Pos, m: &mut Measured, cx: &mut Context<'_>) -> bool {
        let within_zero = m.zero_since.is_some();
        let below = start == self.max - 1 && end <= self.max;
        let at_next = start == self.max && end == self.max + 1;
        if within_zero && (below || at_next) {
            self.counts.zero_window_probes += 1;
            cx.series.event(cx.selected, cx.flow, cx.now, EventKind::Probe, 0.0, start);
            return true;
        }
        if below && self.una >= self.max && self.counts.data_packets > 0 {
            self.counts.keep_alives += 1;
            cx.series.event(cx.selected, cx.flow, cx.now, EventKind::KeepAlive, 0.0, start);
            return true;
        }
        false
    }

    fn new_data(
        &mut self,
        start: Pos,
        end: Pos,
        ip_id: u16,
        tsval: Option<u32>,
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) {
        let now = cx.now;
        self.end_idle(start, m, cx);
        // Away from the sender new data shows that it was answered. At the sender it does not: with a window of a
        // segment a byte-counting stack adds new data to what it repeats.
        if m.silence.is_some() && self.vantage != Vantage::Sender {
            m.end_silence(now, true);
        }
        if start > self.max {
            m.holes.push(Hole { from: self.max, to: start, since: now, ip_id, tsval });
            m.board.missing(self.max, start);
        } else if ip_id != 0 {
            m.order.observe(ip_id);
        }
        if m.unreleased {
            m.unreleased = false;
            m.bins.released(now.since(m.last_progress).as_nanos());
        }
        m.board.sent(start, end, now, ip_id);
        self.counts.seen_bytes += (end - start) as u64;
        if end > self.right_edge && self.scale.known.is_some() {
            self.counts.beyond_window += (end - start.max(self.right_edge)) as u64;
        }
        self.max = end;
        if !self.acks_seen {
            m.bins.delivered((end - start) as u64, now, self.round(m));
            m.last_acked_data = now;
        }
        cx.series.segment(cx.selected, cx.flow, now, SegmentKind::Data, start, end);
    }

    /// Processes data below the highest byte sent: late or retransmitted. False for a duplicate made by the capture.
    #[cold]
    #[inline(never)]
    fn old_data(
        &mut self,
        start: Pos,
        end: Pos,
        ip_id: u16,
        tsval: Option<u32>,
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) -> bool {
        let now = cx.now;
        let bytes = (end - start) as u64;
        if let Some((hole, filled)) = m.holes.fill(start, end) {
            self.counts.seen_bytes += filled;
            let full_rtt = m.rtt.min().or(self.path_min).map(Duration);
            match judge(&hole, now, ip_id, tsval, m.order, full_rtt) {
                Late::Reordered => {
                    let n = self.segments_of(bytes);
                    self.counts.out_of_order += n;
                    self.counts.reordering_max =
                        self.counts.reordering_max.max(now.since(hole.since));
                    m.bins.reordered(n as u32);
                    let late_ms = now.since(hole.since).as_millis_f64();
                    cx.series.event(
                        cx.selected,
                        cx.flow,
                        now,
                        EventKind::OutOfOrder,
                        late_ms,
                        start,
                    );
                    cx.series.segment(cx.selected, cx.flow, now, SegmentKind::Data, start, end);
                }
                Late::Ambiguous => {
                    self.counts.ambiguous += self.segments_of(bytes);
                    cx.series.event(cx.selected, cx.flow, now, EventKind::Ambiguous, 0.0, start);
                    cx.series.segment(cx.selected, cx.flow, now, SegmentKind::Data, start, end);
                }
                Late::Retransmitted => {
                    let lost = (self.vantage == Vantage::Receiver).then_some(hole.since);
                    self.count_retransmission((start, end), (tsval, lost), false, m, cx);
                }
            }
            m.board.retransmitted(start, end, now, ip_id);
            if !self.acks_seen {
                m.bins.delivered(bytes, now, self.round(m));
            }
            return true;
        }
        if let Some(early) = m.early_ack.filter(|early| early.covers(start, end, now)) {
            m.early_ack = (end < early.to).then_some(EarlyAck { from: end, ..early });
            self.counts.gap_bytes -= bytes;
            self.counts.seen_bytes += bytes;
            cx.series.segment(cx.selected, cx.flow, now, SegmentKind::Data, start, end);
            return true;
        }
        let arrived = end <= self.una || m.board.is_sacked(start, end);
        let copy = m.board.retransmitted(start, end, now, ip_id);
        if let Some((_, true)) = copy {
            return false;
        }
        let sent = copy.map(|(sent, _)| sent).filter(|sent| *sent > Instant::ZERO);
        let lost = sent.filter(|_| self.vantage == Vantage::Sender);
        self.count_retransmission((start, end), (tsval, lost), arrived, m, cx);
        if self.vantage == Vantage::Receiver && !arrived && m.silence.is_none() {
            self.counts.refused += self.segments_of(bytes);
        }
        true
    }

    /// `lost`: where the capture shows it, when the copy before was lost, as [`Losses`] has it.
    ///
    /// [`Losses`]: crate::series::losses::Losses
    #[cold]
    #[inline(never)]
    fn count_retransmission(
        &mut self,
        (start, end): (Pos, Pos),
        (tsval, lost): (Option<u32>, Option<Instant>),
        arrived: bool,
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) {
        let now = cx.now;
        let bytes = (end - start) as u64;
        let n = self.segments_of(bytes);
        let progress = m.last_progress.max(m.last_data);
        let evidence = self.dup_run >= 3 || m.board.sacked_above(end - 1);
        let (cause, fired) = m.recovery.cause(Retransmission {
            start,
            end,
            una: self.una,
            max: self.max,
            evidence,
            silence: now.since(progress),
            srtt: Duration(m.smoothed.srtt),
            rttvar: Duration(m.smoothed.rttvar),
            sack: !self.no_sack,
        });
        self.counts.retransmissions += n;
        self.counts.retransmitted_bytes += bytes;
        // A sender that was reset has no timer any more: something else made these segments.
        let fired = fired && !m.silences.reset_by_receiver;
        if fired {
            self.counts.timeouts += 1;
            m.next_timeout = now + now.since(progress) * 2;
        }
        // Without ACKs in the capture no answer can be seen; data that was acknowledged before has one, which the
        // sender may not have got.
        if self.acks_seen && self.acked_any && end > self.una {
            m.unanswered(now, fired, n);
        } else if fired && self.away() && m.known.is_none_or(|known| known.una < end) {
            m.waiting = Some(Waiting { answered: None });
        }
        let kind = match cause {
            Cause::Fast => {
                self.counts.fast += n;
                EventKind::Fast
            }
            Cause::Timeout => {
                self.counts.timeout += n;
                EventKind::Timeout
            }
            Cause::TailProbe => {
                self.counts.tail_probe += n;
                EventKind::TailProbe
            }
        };
        cx.series.event(cx.selected, cx.flow, now, kind, bytes as f64, start);
        cx.series.segment(cx.selected, cx.flow, now, SegmentKind::Again, start, end);
        if arrived {
            self.spurious(Found { segments: n, bytes, late: 0 }, start, m, cx);
        }
        if cause == Cause::Fast
            && !arrived
            && let Some(at) = lost
        {
            m.losses.add(at, n);
        }
        let overtaken = cause == Cause::Fast && evidence;
        m.spurious.sent((start, end), self.full_segment(), tsval, arrived, overtaken);
        m.bins.retransmitted(n as u32);
        m.bins.congestion(now);
        let by = match cause {
            Cause::Timeout => EndedBy::Timeout,
            Cause::Fast => EndedBy::Loss,
            Cause::TailProbe => return,
        };
        m.rounds.congested(now, self.max, by);
    }

    #[inline]
    fn end_idle(&mut self, start: Pos, m: &mut Measured, cx: &mut Context<'_>) {
        let from = match (m.idle_from.take(), self.vantage) {
            (Some(from), Vantage::Sender | Vantage::Unknown) => from,
            // Away from the sender idleness shows only now: the sender knew that everything was acknowledged.
            (_, Vantage::Receiver | Vantage::Middle)
                if m.known.is_some_and(|k| k.una >= start) && self.counts.data_packets > 1 =>
            {
                m.last_data + Duration(m.smoothed.srtt)
            }
            _ => return,
        };
        self.count_idle(from, start, m, cx);
    }

    #[inline(never)]
    fn count_idle(&mut self, from: Instant, start: Pos, m: &mut Measured, cx: &mut Context<'_>) {
        let now = cx.now;
        let gap = now.since(from);
        if gap.as_nanos() <= m.smoothed.srtt.max(1_000_000) || m.zero_since.is_some() {
            return;
        }
        self.counts.idle_count += 1;
        self.counts.idle += gap;
        cx.series.event(cx.selected, cx.flow, now, EventKind::Idle, gap.as_secs_f64(), start);
        if gap.as_nanos() >= m.smoothed.srtt + RTO_MIN.as_nanos() {
            m.bins.restart(now);
        }
        if gap < WAKEUP_GAP {
            return;
        }
        // Without a sample the last one says nothing: it takes no place, and gets no sample of a later exchange.
        m.wakeups.pop_if(|last| last.first_rtt == Duration::ZERO);
        m.wakeup_open = false;
        if m.wakeups.len() < MAX_WAKEUPS {
            m.wakeups.push(Wakeup { time: now, gap, first_rtt: Duration::ZERO, next_rtt: None });
            m.wakeup_open = true;
        }
    }

    /// In flight, window and what the sender can do next, after a data segment.
    fn after_data(&mut self, s: &TcpSegment, end: Pos, m: &mut Measured, cx: &mut Context<'_>) {
        let Some(known) = self.senders_view(m) else {
            let short = s.payload < self.mss();
            // Without the sender's view it counts as full only where it was whatever the sender knew.
            let full = m.zero_since.is_some() || self.is_full_at_least(end, m, cx);
            self.set_state(full, short && !full, m, cx);
            return;
        };
        let plain = (self.max - known.una).max(0) as u64;
        let in_flight = plain.saturating_sub(known.sacked);
        m.in_flight.record(in_flight);
        m.in_flight_plain_max = m.in_flight_plain_max.max(plain);
        m.bins.in_flight(in_flight);
        if m.silence.is_none() {
            m.bins.window_used(plain, (known.right_edge - known.una).max(0) as u64);
        }
        if !self.scale.certain() {
            self.infer_scale(plain);
        }
        let mss = self.mss();
        let full = self.is_full(m, known.right_edge, mss);
        if full && end == self.max && m.silence.is_none() {
            self.counts.window_full += 1;
        }
        // Mostly one full segment: the comparison avoids the division.
        let short = s.payload != mss && s.payload != 0 && !s.payload.is_multiple_of(mss);
        let app_limited = short && !full || s.has(flags::FIN);
        m.rounds.sent(cx.now, known.una, self.max, in_flight, full || app_limited);
        m.rounds.ecn_capable |= s.ip.ecn != 0;
        self.set_state(full, app_limited, m, cx);
    }

    /// Sets the state from now on, and records the events of window-full spans.
    pub fn set_state(&self, full: bool, app_limited: bool, m: &mut Measured, cx: &mut Context<'_>) {
        let now = m.bins.accounted();
        // Without an answer it is unknown what else would limit the sender; a closed window stays known.
        let zero_window = m.zero_since.is_some();
        let timeout = (m.silence.is_some() || m.waiting.is_some()) && !zero_window;
        match (full && !timeout, m.full_since) {
            (true, None) => {
                m.full_since = Some(now);
                m.full_first.get_or_insert(now);
            }
            (false, Some(since)) => {
                m.full_since = None;
                let span = now.since(since).as_secs_f64();
                cx.series.event(cx.selected, cx.flow, since, EventKind::WindowFull, span, self.max);
            }
            _ => {}
        }
        let progress = m.last_progress.max(m.last_data);
        // Three duplicate ACKs report a hole as SACK does (RFC 5681 section 3.2).
        let hole = m.board.sacked_bytes() > 0 || self.dup_run >= 3;
        let overdue_from = (hole && !zero_window && !full).then(|| {
            progress
                + retransmission::timeout(Duration(m.smoothed.srtt), Duration(m.smoothed.rttvar))
        });
        let recovering_until = match overdue_from {
            Some(overdue) => overdue,
            None if m.recovery.is_under_way(self.una) => {
                progress + Duration(recovery_memory(m.smoothed.srtt))
            }
            None => Instant::ZERO,
        };
        m.bins.set(State {
            timeout,
            window_full: full,
            zero_window,
            app_limited,
            recovering_until,
            overdue_from,
            missing: false,
        });
    }

    /// Bytes delivered: acknowledged where ACKs are seen, else seen once.
    pub fn delivered_bytes(&self) -> Bytes {
        if self.acked_any {
            let end = self.fin.map_or(self.una, |fin| self.una.min(fin));
            Bytes(end.max(0) as u64)
        } else {
            Bytes(self.counts.seen_bytes)
        }
    }
}
