//! ACKs, SACK blocks and windows from the receiver of a stream, and the RTT samples that follow from them.
//!
//! Every segment of the other side with ACK is counted here: bytes delivered, duplicate ACKs, SACK and DSACK (RFC 2883
//! section 4), zero windows, and gaps of the capture. Cumulative ACK and right edge only grow: RFC 9293 section 3.8.6
//! discourages shrinking the window, and Linux never does. A window of 0 opens a span that the first window above 0
//! ends.
//!
//! How the RTT is measured depends on where the capture was taken: at the sender seq/ACK; at the receiver TSval →
//! TSecr; in the middle the sum of both halves. The half towards a host beside the capture is about 0 ms and never
//! counts as the RTT of the path. At the receiver without timestamps, the second estimator of the DRWA paper gives an
//! upper bound: from the first acknowledgement of a byte to the data one window beyond.

use capture::{TcpSegment, flags};
use units::{Duration, Instant};

use crate::congestion_control::rounds::EndedBy;
use crate::identity::sequence::Pos;
use crate::series::limits::State;
use crate::series::rows::{EventKind, SegmentKind, Vantage};
use crate::series::stamps::Trip;
use crate::tcp::missing::EarlyAck;
use crate::tcp::sender_view::SenderView;
use crate::tcp::spurious::Found;
use crate::tcp::state::{Context, Measured};
use crate::tcp::stream::Stream;

/// An ACK more bytes beyond the data seen is corrupt or of another connection: TCP windows end at 1 GB.
const MAX_ACK_AHEAD: i64 = 1 << 30;
/// Segments in flight from which an RTT counts as taken under load.
pub(crate) const LOADED_SEGMENTS: u64 = 4;
/// Samples after which a minimum lower by more than a tenth needs a second sample that confirms it.
const SETTLED_SAMPLES: u32 = 4;
/// An echo counts only if the sender had sent shortly before, for the gap bounds the error of the sample: at most this, or a
/// quarter of the smallest RTT or of the sample. On a link of 1 Mbit/s full segments are 12 ms apart.
const MAX_SEND_GAP_NS: u64 = 5_000_000;
const SEND_GAP_PART: u64 = 4;

impl Stream {
    /// Processes a segment of the other side with ACK and without RST.
    pub fn on_ack(&mut self, r: &TcpSegment, cx: &mut Context<'_>) {
        let syn = r.has(flags::SYN);
        if !self.started {
            self.start_at(r.ack);
        }
        let mut measured = self.measured.take();
        if let Some(m) = &mut measured {
            if m.waiting.is_some() {
                self.judge_waiting(m, cx);
            }
            // With nothing in flight, time counts again from the next data on.
            if m.idle_from.is_none() {
                self.account_ack(r, m, cx);
            } else if self.acknowledges_missing(r) {
                self.account_missing(m, cx);
            }
            m.last_ack = cx.now;
        }
        self.ack(r, syn, measured.as_deref_mut(), cx);
        self.measured = measured;
    }

    /// Accounts the time up to an ACK. Away from the sender the next data shows in which state it was, as far as no window
    /// closes or opens and the bin is still open.
    #[inline]
    fn account_ack(&self, r: &TcpSegment, m: &mut Measured, cx: &mut Context<'_>) {
        let later = self.away() && r.window > 0 && m.zero_since.is_none();
        if !later || !m.bins.contains(cx.now) {
            self.advance(m, cx);
        }
    }

    /// An ACK of data that the capture lacks. A single byte can be the FIN.
    #[inline]
    fn acknowledges_missing(&self, r: &TcpSegment) -> bool {
        let ahead = self.seq.position(r.ack, self.max) - self.max;
        self.fin.is_none() && ahead > 1 && ahead <= MAX_ACK_AHEAD
    }

    /// Data passed between the receiver's last two packets, and none of it was captured: the sender was not idle for all
    /// of that time, and nothing says for which part. Until the former packet, the receiver had none of this data.
    #[cold]
    fn account_missing(&self, m: &mut Measured, cx: &mut Context<'_>) {
        let (state, now) = (m.bins.state(), cx.now);
        if !state.app_limited {
            return;
        }
        cx.now = m.last_ack.max(m.bins.accounted());
        self.advance(m, cx);
        cx.now = now;
        m.bins.set(State { app_limited: false, missing: true, ..state });
        self.advance(m, cx);
        m.bins.set(state);
    }

    /// The window of a SYN (`syn`) is not scaled (RFC 7323 section 2.2).
    fn ack(&mut self, r: &TcpSegment, syn: bool, m: Option<&mut Measured>, cx: &mut Context<'_>) {
        let mut pos = self.seq.position(r.ack, self.max);
        if pos - self.max > MAX_ACK_AHEAD || self.una - pos > MAX_ACK_AHEAD {
            return;
        }
        if let Some(fin) = self.fin
            && pos > fin
        {
            self.fin_acked = true;
            pos = fin.max(self.max.min(pos));
        }
        let shift = if syn { 0 } else { self.scale.shift() };
        let window = u64::from(r.window) << shift;
        let first = !self.acked_any;
        self.acked_any = true;
        let Some(m) = m else {
            // No data of this side so far. An ACK of data means that it is missing from the capture.
            if pos > self.una {
                self.una = pos;
                self.max = self.max.max(pos);
            }
            self.take_window(r, window, pos, syn);
            return;
        };
        if pos > self.max {
            if self.counts.data_packets > 0 && m.zero_since.is_none() {
                self.counts.gap_bytes += (pos - self.max) as u64;
                m.early_ack = Some(EarlyAck { from: self.max, to: pos, at: cx.now });
            }
            self.max = pos;
        }
        let before = self.una;
        let advanced = pos > before;
        let mut far = None;
        let mut delayed = false;
        if advanced {
            let bytes = (pos - self.una.max(0)).max(0) as u64;
            delayed = m.delayed_acks.ack(bytes, u64::from(self.mss()));
            // In slow start one burst per round trip is normal, not a stall.
            let waiting = self.max > self.una && !m.bins.in_slow_start();
            if let Some((_, echoed)) = r.options.timestamps {
                let found = m.spurious.acknowledged(before, pos, echoed);
                self.spurious(found, before, m, cx);
            }
            let acked = m.board.acked(pos, cx.now);
            far = acked.rtt;
            if let Some(far) = acked.at_least {
                self.at_least(far, m);
            }
            self.overtaken(acked.reordered, acked.reordered_by, m, cx);
            if !m.holes.is_empty() {
                // The receiver has those bytes: they are missing in the capture alone.
                self.counts.gap_bytes += m.holes.close(pos);
            }
            self.una = pos;
            self.dup_run = 0;
            m.recovery.acked(pos);
            m.bins.delivered(bytes, cx.now, self.round(m));
            m.last_acked_data = cx.now;
            if !self.away() {
                m.unreleased = true;
                m.bins.acked();
            }
            if let Some(burst) = m.bursts.acked(cx.now, bytes, waiting, u64::from(self.mss())) {
                let acked = burst.acked.get() as f64;
                cx.series.event(cx.selected, cx.flow, burst.time, EventKind::AckBurst, acked, pos);
            }
            if pos >= self.max && m.zero_since.is_none() {
                m.idle_from = Some(cx.now);
            }
        }
        // SACK blocks after the cumulative ACK: they did not overtake the data that this same ACK acknowledges.
        let (rtt, progress) =
            if r.options.sack_count > 0 { self.take_blocks(r, pos, m, cx) } else { (None, false) };
        far = far.or(rtt);
        if pos == before && r.payload == 0 && !syn && !r.has(flags::FIN) && !first {
            let same_window = u32::from(r.window) == self.last_window;
            if self.max > self.una && (same_window || progress) {
                self.dup_run += 1;
                self.counts.dup_acks += 1;
            }
        }
        if advanced || progress {
            m.last_progress = cx.now;
            if m.silence.is_some() {
                m.end_silence(cx.now, true);
            }
            if let Some(waiting) = &mut m.waiting {
                waiting.answered.get_or_insert(cx.now);
            }
        } else if let Some(silence) = &mut m.silence {
            silence.received += 1;
        }
        cx.series.segment(
            cx.selected,
            cx.flow,
            cx.now,
            SegmentKind::Ack,
            self.una,
            self.right_edge.max(pos + window as i64).max(self.una),
        );
        let edge = self.right_edge;
        if self.scale.known.is_none() && advanced && !syn {
            let less = i64::from(self.last_window) - i64::from(r.window);
            let exact = less == pos - before && less >= i64::from(self.mss());
            self.scale.exact = self.scale.exact.saturating_add(u8::from(exact));
        }
        self.take_window(r, window, pos, syn);
        if self.right_edge > edge && self.vantage == Vantage::Receiver && !self.timestamps {
            m.window_bound.raised(cx.now, self.right_edge);
        }
        if !self.has_room(edge) && self.has_room(self.right_edge) {
            m.room_since = cx.now;
        }
        // Only data beyond the previous right edge needs this ACK, so that it can serve as its answer.
        if m.window_probe.is_none() && self.right_edge > edge {
            m.window_probe = Some((edge + 1, cx.now));
        }
        self.zero_window(window, syn, m, cx);
        let missing = m.holes.contains(self.una);
        m.missing.acknowledged(self.counts.gap_bytes, missing, m.first_data, cx.now);
        if r.has(flags::ECE) && !syn {
            self.counts.ecn_ece += 1;
            m.bins.congestion(cx.now);
            m.rounds.congested(cx.now, self.max, EndedBy::Mark);
            cx.series.event(cx.selected, cx.flow, cx.now, EventKind::Ecn, 0.0, pos);
        }
        if let Some(far) = far {
            let stamp = r.options.timestamps.map(|(tsval, _)| tsval);
            self.on_far(far, (stamp, delayed), m, cx);
        }
        // During a recovery the cumulative ACK waits for one segment, and SACK alone lets the sender send.
        self.after_ack(r, advanced || progress, m, cx);
    }

    /// Processes SACK and DSACK blocks. Returns an RTT sample and whether any block was new.
    #[inline(never)]
    fn take_blocks(
        &mut self,
        r: &TcpSegment,
        pos: Pos,
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) -> (Option<Duration>, bool) {
        let blocks = r.options.sack_blocks();
        let seq = self.seq;
        let range = |(l, r): (u32, u32)| {
            let left = seq.position(l, pos);
            (left, left + i64::from(r.wrapping_sub(l) as i32))
        };
        let mut above = [(0, 0); 4];
        let mut count = 0;
        for (i, block) in blocks.iter().enumerate() {
            let (left, right) = range(*block);
            if right <= left || right > self.max + MAX_ACK_AHEAD {
                continue;
            }
            self.counts.sack_blocks += 1;
            let inside_second = i == 0
                && blocks.get(1).is_some_and(|b| {
                    let (l, r) = range(*b);
                    l <= left && right <= r
                });
            if i == 0 && (right <= pos || inside_second) {
                self.dsack(left, right, m, cx);
                continue;
            }
            if right > self.max || left < pos {
                continue;
            }
            above[count] = (left, right);
            count += 1;
            cx.series.segment(cx.selected, cx.flow, cx.now, SegmentKind::Sack, left, right);
        }
        // 40 bytes of options hold four blocks, or three and timestamps. A DSACK takes the place of one.
        let capacity = if r.options.timestamps.is_some() { 3 } else { 4 };
        let result =
            m.board.sack(&above[..count], capacity - (blocks.len() - count).min(1), cx.now);
        self.overtaken(result.reordered, result.reordered_by, m, cx);
        (result.rtt, result.progress)
    }

    /// Counts `segments` that arrived after later ones without being retransmitted.
    fn overtaken(&mut self, segments: u64, by: Duration, m: &mut Measured, cx: &mut Context<'_>) {
        // At the receiver and in the middle the late segment itself is in the capture and counted there.
        if segments == 0 || !matches!(self.vantage, Vantage::Sender | Vantage::Unknown) {
            return;
        }
        self.counts.out_of_order += segments;
        self.counts.reordering_max = self.counts.reordering_max.max(by);
        m.bins.reordered(segments as u32);
        cx.series.event(
            cx.selected,
            cx.flow,
            cx.now,
            EventKind::OutOfOrder,
            by.as_millis_f64(),
            self.una,
        );
    }

    /// The receiver reported `[left, right)` as received once more.
    fn dsack(&mut self, left: Pos, right: Pos, m: &mut Measured, cx: &mut Context<'_>) {
        self.counts.dsacks += 1;
        let bytes = (right - left) as f64;
        cx.series.event(cx.selected, cx.flow, cx.now, EventKind::Dsack, bytes, left);
        let found = m.spurious.dsack(left, right);
        self.spurious(found, left, m, cx);
    }

    /// Counts retransmissions that were not needed, from the byte `at` on.
    pub(super) fn spurious(
        &mut self,
        found: Found,
        at: Pos,
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) {
        if found.segments == 0 {
            return;
        }
        self.counts.spurious += found.segments;
        let bytes = found.bytes as f64;
        cx.series.event(cx.selected, cx.flow, cx.now, EventKind::Spurious, bytes, at);
        // Originals that arrived after later data.
        self.overtaken(found.late, Duration::ZERO, m, cx);
    }

    fn take_window(&mut self, r: &TcpSegment, window: u64, pos: Pos, syn: bool) {
        self.last_window = u32::from(r.window);
        self.right_edge = self.right_edge.max(pos + window as i64);
        if !syn {
            self.rwnd_min = if self.rwnd.is_none() { window } else { self.rwnd_min.min(window) };
            self.rwnd_max = self.rwnd_max.max(window);
            self.rwnd = Some(window);
        }
    }

    fn zero_window(&mut self, window: u64, syn: bool, m: &mut Measured, cx: &mut Context<'_>) {
        match (window, m.zero_since) {
            (0, None) if !syn && !self.fin_acked => {
                m.zero_since = Some(cx.now);
                m.zero_first.get_or_insert(cx.now);
                self.counts.zero_windows += 1;
                m.idle_from = None;
            }
            (1.., Some(since)) => {
                m.zero_since = None;
                let span = cx.now.since(since).as_secs_f64();
                cx.series.event(cx.selected, cx.flow, since, EventKind::ZeroWindow, span, self.una);
            }
            _ => {}
        }
    }

    /// `clocks_out`: the ACK reports data as received for the first time, which the sender answers with data.
    fn after_ack(
        &mut self,
        r: &TcpSegment,
        clocks_out: bool,
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) {
        let at_sender = matches!(self.vantage, Vantage::Sender | Vantage::Unknown);
        // Away from the sender an ACK is seen before the sender gets it. Its view follows from echoes.
        if self.vantage != Vantage::Sender
            && let Some((tsval, _)) = r.options.timestamps
        {
            let known = SenderView {
                una: self.una,
                sacked: m.board.sacked_bytes(),
                right_edge: self.right_edge,
            };
            if m.echoes.passed(tsval, cx.now, known, clocks_out) {
                m.bins.acked();
            }
        }
        if at_sender {
            // With nothing in flight a window below one segment stops the sender like a zero window: silly-window
            // avoidance forbids smaller segments. The send unit of fast paths does not apply here.
            let shut = self.max <= self.una
                && self.rwnd_max >= 2 * u64::from(self.mss())
                && self.right_edge - self.max < i64::from(self.mss());
            let full =
                (self.is_full(m, self.right_edge, self.mss()) && self.max > self.una) || shut;
            let state = m.bins.state();
            let idle = self.max <= self.una && m.zero_since.is_none() && !shut;
            self.set_state(
                full || m.zero_since.is_some(),
                idle || (state.app_limited && !full),
                m,
                cx,
            );
            let in_flight =
                ((self.max - self.una).max(0) as u64).saturating_sub(m.board.sacked_bytes());
            m.bins.in_flight(in_flight);
        } else {
            let state = m.bins.state();
            // The sender's next data shows whether it is full to the sender. Where no data can show it, a window that
            // opened is no longer full.
            // Nor can the sender know more of the window than the newest ACK says.
            let mss = i64::from(self.mss());
            let shut = self.scale.certain()
                && self.fin.is_none()
                && self.rwnd_max as i64 >= 2 * mss
                && self.right_edge - self.max < mss;
            let zero_window = m.zero_since.is_some();
            let shown = m.known.is_some() || !state.zero_window;
            let full = zero_window || shut || (state.window_full && shown);
            self.set_state(full, state.app_limited && !zero_window && !shut, m, cx);
        }
    }

    /// Processes an RTT sample of the half capture → receiver → capture; of its ACK the TSval, and whether the receiver may
    /// have delayed it.
    fn on_far(
        &mut self,
        far: Duration,
        ack: (Option<u32>, bool),
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) {
        let ns = far.as_nanos();
        self.far_min = if self.far_count == 0 { ns } else { self.far_min.min(ns) };
        self.far_count = self.far_count.saturating_add(1);
        m.bursts.measured(ns - self.far_min);
        // At the sender it is the RTT, which has its own place.
        if self.vantage != Vantage::Sender {
            m.bins.ack_delay(ns);
        }
        match self.vantage {
            Vantage::Sender => self.on_path_rtt(ns, ack, m, cx),
            // A half of about 0 ms is the receiver beside the capture, not the path.
            Vantage::Unknown if self.far_min >= 1_000_000 => self.on_path_rtt(ns, ack, m, cx),
            Vantage::Middle => {
                let near = m.last_near.or(self.near_half.map(Duration::as_nanos));
                if let Some(near) = near {
                    self.on_path_rtt(ns + near, (None, ack.1), m, cx);
                }
            }
            Vantage::Receiver | Vantage::Unknown => {}
        }
    }

    /// The half capture → receiver → capture took `far` or longer, for data that was sent again.
    #[cold]
    fn at_least(&self, far: Duration, m: &mut Measured) {
        let near = match self.vantage {
            Vantage::Sender => Some(0),
            Vantage::Middle => m.last_near.or(self.near_half.map(Duration::as_nanos)),
            Vantage::Receiver | Vantage::Unknown => None,
        };
        let base = m.rtt.min().into_iter().chain(self.path_min).min();
        // Sooner than the path can carry it: an earlier copy is acknowledged, and this time says nothing.
        if let (Some(near), Some(base)) = (near, base)
            && far.as_nanos() + near >= base
        {
            m.bins.rtt_at_least(far.as_nanos() + near);
        }
    }

    /// Processes the timestamps (TSval, TSecr) of a data segment: an RTT sample capture → sender → capture, and what the
    /// sender knew.
    pub fn on_echo(
        &mut self,
        (tsval, tsecr): (u32, u32),
        end: Pos,
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) {
        if self.vantage == Vantage::Sender {
            return;
        }
        let (sample, known) = m.echoes.echoed(tsecr, end, cx.now);
        if known.is_some() {
            m.known = known;
        }
        let Some(near) = sample else { return };
        let ns = near.as_nanos();
        let gap = cx.now.since(m.last_data).as_nanos();
        let usual = if self.near_count > 0 { Some(self.near_min) } else { self.path_min };
        let waited =
            usual.is_some_and(|rtt| gap > MAX_SEND_GAP_NS.max(rtt.max(ns) / SEND_GAP_PART));
        if waited && (self.near_count > 0 || usual.is_some_and(|rtt| ns > rtt + rtt / 4)) {
            return;
        }
        // A late capture time of one ACK makes one sample too short; a shorter path makes many.
        if self.near_count >= SETTLED_SAMPLES && ns + self.near_min / 10 < self.near_min {
            match m.undercut.take() {
                Some(before) if before.abs_diff(ns) <= ns / 10 => {}
                _ => {
                    m.undercut = Some(ns);
                    return;
                }
            }
        }
        self.near_min = if self.near_count == 0 { ns } else { self.near_min.min(ns) };
        self.near_count = self.near_count.saturating_add(1);
        m.bursts.measured(ns - self.near_min);
        m.last_near = Some(ns);
        m.bins.released(ns - self.near_min);
        if self.vantage == Vantage::Receiver {
            self.on_path_rtt(ns, (Some(tsval), false), m, cx);
        }
    }

    /// Second estimator of the DRWA paper, for a receiver without timestamps: ends when data arrives one window beyond
    /// the byte that was acknowledged at its start.
    pub fn on_window_probe(&mut self, m: &mut Measured, now: Instant) {
        if let Some((edge, since)) = m.window_probe
            && self.max >= edge
        {
            m.window_rtt.record(now.since(since).as_nanos());
            m.window_probe = None;
        }
    }

    /// `stamp`: TSval of the other host in the packet that ends this round trip.
    fn on_path_rtt(
        &mut self,
        ns: u64,
        (stamp, delayed): (Option<u32>, bool),
        m: &mut Measured,
        cx: &mut Context<'_>,
    ) {
        let (sent, in_flight_for) = (cx.now - Duration(ns), Duration(ns));
        if let Some(stamp) = stamp
            && m.stamps.wants(sent, stamp)
        {
            let delivered = match self.vantage {
                Vantage::Receiver => self.counts.seen_bytes,
                _ => self.una.max(0) as u64 + m.board.sacked_bytes(),
            };
            m.stamps.add(Trip { out: sent, back: cx.now, ticks: 0, delivered, delayed }, stamp);
        }
        m.rtt.record(sent, ns, in_flight_for, delayed);
        m.smoothed.update(ns);
        m.bins.rtt(ns);
        m.rounds.rtt(ns);
        let mss = u64::from(self.mss());
        let in_flight = self.in_flight(m).unwrap_or(0);
        // The sample is of data sent one RTT ago: the data it acknowledged was in flight as well.
        if in_flight >= LOADED_SEGMENTS * mss
            || m.in_flight.max().is_some_and(|x| x >= LOADED_SEGMENTS * mss) && in_flight > 0
        {
            m.loaded_rtt.record(sent, ns, in_flight_for, delayed);
        }
        if m.bins.state().window_full {
            m.full_rtt_min = Some(m.full_rtt_min.map_or(ns, |x| x.min(ns)));
        }
        if m.wakeup_open
            && let Some(last) = m.wakeups.last_mut()
        {
            if last.first_rtt == Duration::ZERO {
                last.first_rtt = Duration(ns);
            } else {
                if cx.now.since(last.time).as_nanos() <= 1_000_000_000 + last.first_rtt.as_nanos() {
                    last.next_rtt = Some(Duration(ns));
                }
                m.wakeup_open = false;
            }
        }
    }
}
