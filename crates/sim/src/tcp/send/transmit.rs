//! What is sent next, and whether it may be sent: windows, pacing, the host's own queue, and the books of what was sent.

use algo::cc::{CongestionControl, Recovery, Sent};
use algo::rwnd::afc;
use units::{Bytes, Duration, Instant, Rate};

use super::{Emit, SendLimit, Sender};
use crate::tcp::pacing;
use crate::tcp::scoreboard::Segment;

/// IP and TCP header with timestamps.
const FRAME: u64 = 52;

/// Segments at the beginning that are not paced (Linux `tcp_update_skb_after_send`, as `sch_fq` does): the initial window.
const UNPACED: u64 = 10;

/// The MSS where none was negotiated (RFC 9293 section 3.7.1). Smaller windows are not halved.
const DEFAULT_MSS: u64 = 536;

impl Sender {
    /// A full segment, or half of a window that never was two of them (Linux
    /// `tcp_bound_to_half_wnd`; RFC 9293 section 3.8.6.2.1 allows half of the largest window).
    #[inline]
    fn max_segment(&self) -> u64 {
        let half =
            if self.max_window > DEFAULT_MSS { self.max_window / 2 } else { self.max_window };
        self.settings.mss.min(half.max(1))
    }

    /// Length of the next new segment (0: none) and whether it ends the stream.
    #[inline]
    pub(super) fn next_new(&self) -> (u64, bool) {
        let limit = if self.settings.waits_for_space {
            self.taken
        } else {
            self.una.saturating_add(self.settings.buffer)
        };
        let available = self.end.min(limit).saturating_sub(self.nxt);
        let max = self.max_segment();
        if available >= max {
            return (max, false);
        }
        if self.end <= limit {
            // The tail: with the FIN behind it, if the application has closed.
            let fin = self.closing && self.nxt <= self.end;
            if self.endless && available < max && !fin {
                return (0, false);
            }
            return (available + u64::from(fin), fin);
        }
        // The buffer ends within a segment: wait for free space, unless nothing is in flight.
        if self.board.is_empty() { (available, false) } else { (0, false) }
    }

    /// Sends what may be sent.
    pub fn send(&mut self, now: Instant, emit: &mut impl FnMut(Emit)) {
        if self.limited_by == SendLimit::Closed {
            return;
        }
        self.pacing_wait = None;
        self.wake_writer();
        let rate = self.pacing_rate();
        // Segments left of the burst under way.
        let mut burst = 0;
        self.restart_after_idleness(now);
        let limited_by;
        let mut sent = false;
        let mut head_retransmitted = false;
        let mut handed = 0;
        let mut admission = self.admission.take();
        loop {
            let in_flight = self.in_flight();
            let window = self.congestion_window();
            let retransmission =
                if self.defers_retransmissions() { None } else { self.board.next_pending() };
            let (len, fin) = match &retransmission {
                Some((_, segment)) => (u64::from(segment.len), false),
                None => self.next_new(),
            };
            if retransmission.is_none() {
                if len == 0 {
                    // Lost data waits for its repair: that, and not an idle application, is what the transfer waits for.
                    limited_by = if self.recovery == Recovery::Open {
                        SendLimit::Application
                    } else {
                        SendLimit::Congestion
                    };
                    if self.app_limited == 0 && self.end <= self.nxt {
                        self.app_limited = (self.delivered + in_flight).max(1);
                    }
                    break;
                }
                let flow_window = self.flow_window();
                // A FIN takes a number of the window like any byte (RFC 9293 section 3.4).
                if self.nxt + len > self.una + flow_window {
                    limited_by = if flow_window == 0 {
                        SendLimit::ZeroWindow
                    } else {
                        SendLimit::ReceiveWindow
                    };
                    if self.board.is_empty() {
                        self.arm_persist(now);
                    }
                    break;
                }
            }
            if in_flight + len > window && in_flight > 0 {
                limited_by = SendLimit::Congestion;
                break;
            }
            if let Some(tsq) = self.settings.tsq
                && self.local + handed >= tsq
            {
                limited_by = SendLimit::Local;
                break;
            }
            if let Some(rate) = rate
                && burst == 0
            {
                if let Err(until) = self.pacer.begin(now) {
                    self.pacing_wait = Some(until);
                    limited_by = SendLimit::Pacing;
                    break;
                }
                burst = self.burst(rate, window);
            }
            // What the device refuses stays for the next acknowledgment. Linux takes it for congestion (`tcp_enter_cwr`).
            if let Some(admission) = &mut admission {
                let rtts = (self.rto.srtt, self.rto.min);
                let alone = self.board.is_empty();
                let passes = admission.passes(now, len + FRAME, rtts, &mut self.refused_at, alone);
                // With nothing in flight no acknowledgment would make it try again; Linux has a timer for that.
                if !passes && !alone {
                    limited_by = SendLimit::Congestion;
                    self.reduce_once(now, in_flight);
                    break;
                }
            }
            if let Some(rate) = rate
                && self.nxt + len >= UNPACED * self.settings.mss
            {
                self.pacer.sent(len, rate);
            }
            burst = burst.saturating_sub(1);
            sent = true;
            // The host's queue counts frames when they enter it; those of this call are still to
            // come.
            handed += len + FRAME;
            self.persist_at = None;
            match retransmission {
                Some((number, segment)) => {
                    // A lone FIN is no data.
                    let data = u64::from(segment.payload() > 0);
                    if self.recovery == Recovery::Lost {
                        self.counters.retransmitted_timeout += data;
                    } else {
                        self.counters.retransmitted_fast += data;
                    }
                    // Linux restarts the timer with the retransmission of the first segment,
                    // because its ACK is the one awaited.
                    head_retransmitted |= segment.seq == self.una;
                    self.retransmit(now, number, &segment, emit);
                }
                None => self.transmit_new(now, len, fin, emit),
            }
        }
        if sent && (head_retransmitted || self.rto_at.is_none() || self.recovery == Recovery::Open)
        {
            self.arm(now, true);
        }
        self.set_limit(now, limited_by);
        self.account_window_idle(now);
    }

    /// Linux `sk_stream_is_writeable`: a writer that waits is woken when what is free is half of what is taken, a third of the
    /// buffer. It then fills all of it.
    fn wake_writer(&mut self) {
        let full = self.una.saturating_add(self.settings.buffer);
        if full.saturating_sub(self.taken) >= self.settings.buffer / 3 {
            self.taken = full;
        }
    }

    /// F-RTO defers retransmissions while it waits for the second ACK.
    fn defers_retransmissions(&self) -> bool {
        self.frto.is_some_and(|f| f.probing) && self.next_new().0 > 0 || self.stopped()
    }

    /// AFC: the buffer is full and its reader stands still.
    pub(super) fn stopped(&self) -> bool {
        self.afc.as_ref().is_some_and(afc::Sender::stopped)
    }

    fn flow_window(&self) -> u64 {
        match &self.afc {
            Some(afc) => afc.window().0,
            None => self.window,
        }
    }

    fn congestion_window(&self) -> u64 {
        match self.recovery {
            Recovery::Recovering if !self.cc.rules_recovery() && !self.hidden => self.allowed,
            _ => self.cc.window().0.min(self.restart.unwrap_or(u64::MAX)),
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let asked = self.cc.pacing_rate();
        let burst = self.afc.as_ref().and_then(afc::Sender::pacing_rate);
        let own = if asked.is_none() && self.settings.pacing && self.rto.srtt > Duration::ZERO {
            // Linux tcp_update_pacing_rate: 200 % of cwnd / srtt in slow start, 120 % after.
            let percent = if self.slow_start() { 200 } else { 120 };
            Bytes(self.cc.window().0 * percent / 100).over(self.rto.srtt)
        } else {
            None
        };
        [asked, burst, own, self.max_pacing].into_iter().flatten().min().filter(|r| r.0 > 0)
    }

    /// Segments that leave at once: half of the window at most (Linux `tcp_cwnd_test`).
    fn burst(&self, rate: Rate, window: u64) -> u64 {
        if self.afc.is_some() {
            return 1;
        }
        let mss = self.settings.mss;
        let modelled = self.cc.pacing_rate().is_some();
        pacing::burst(rate, self.rto.min, mss, modelled).min((window / mss / 2).max(1))
    }

    /// RFC 5681 section 4.1: after idleness longer than an RTO the window is no longer known to be
    /// safe.
    fn restart_after_idleness(&mut self, now: Instant) {
        if self.settings.restart_after_idle
            && self.board.is_empty()
            && self.last_sent > Instant::ZERO
            && self.end > self.nxt
            && now.since(self.last_sent) > self.rto.timeout()
        {
            // A congestion control that paces by a model of the path still knows its rate (Linux
            // checks for `cong_control` here).
            if !self.cc.rules_recovery() {
                // Linux tcp_cwnd_restart: half for each timeout that has passed, down to the
                // initial window.
                let halvings = now.since(self.last_sent).0 / self.rto.timeout().0.max(1);
                let window = self.cc.window().0 >> halvings.min(63);
                self.restart = Some(window.max(self.initial_window));
            }
            self.last_sent = now;
            let sent = Sent { bytes: Bytes::ZERO, in_flight: Bytes::ZERO, app_limited: true };
            self.cc.on_sent(now, &sent, &mut self.rng);
        }
    }

    fn stamp(&mut self, now: Instant) {
        if self.in_flight() == 0 {
            self.flight_sent = now;
            self.delivered_at = now;
        }
    }

    pub(super) fn transmit_new(
        &mut self,
        now: Instant,
        len: u64,
        fin: bool,
        emit: &mut impl FnMut(Emit),
    ) {
        self.stamp(now);
        let in_flight = self.in_flight();
        let segment = Segment {
            seq: self.nxt,
            len: len as u32,
            sends: 1,
            sacked: false,
            lost: false,
            retransmitted: false,
            fin,
            app_limited: self.app_limited > 0,
            sent: now,
            flight_sent: self.flight_sent,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            in_flight: in_flight + len,
            lost_total: self.board.lost_total,
        };
        self.nxt += len;
        self.board.push(segment);
        self.after_sending(now, &segment, in_flight);
        let cwr = std::mem::take(&mut self.cwr);
        emit(Emit { seq: segment.seq, len: segment.len, fin, again: false, cwr });
    }

    pub(super) fn retransmit(
        &mut self,
        now: Instant,
        number: u64,
        segment: &Segment,
        emit: &mut impl FnMut(Emit),
    ) {
        self.stamp(now);
        let in_flight = self.in_flight();
        let (flight_sent, delivered_at, delivered) =
            (self.flight_sent, self.delivered_at, self.delivered);
        let (app_limited, lost_total) = (self.app_limited > 0, self.board.lost_total);
        self.board.retransmit(number, |s| {
            s.sent = now;
            s.flight_sent = flight_sent;
            s.delivered_at = delivered_at;
            s.delivered = delivered;
            s.app_limited = app_limited;
            s.lost_total = lost_total;
            s.in_flight = in_flight + u64::from(s.len);
        });
        self.counters.retransmitted += u64::from(segment.payload() > 0);
        self.counters.retransmitted_bytes += segment.payload();
        self.after_sending(now, segment, in_flight);
        emit(Emit {
            seq: segment.seq,
            len: segment.len,
            fin: segment.fin,
            again: true,
            cwr: false,
        });
    }

    fn after_sending(&mut self, now: Instant, segment: &Segment, in_flight: u64) {
        let (len, payload) = (u64::from(segment.len), segment.payload());
        self.last_sent = now;
        self.counters.segments += u64::from(payload > 0);
        self.counters.payload += payload;
        self.in_flight_max = self.in_flight_max.max(in_flight + len);
        if self.recovery == Recovery::Recovering {
            self.prr.on_sent(len);
        }
        let sent = Sent {
            bytes: Bytes(len),
            in_flight: Bytes(in_flight),
            app_limited: self.app_limited > 0,
        };
        self.cc.on_sent(now, &sent, &mut self.rng);
    }
}
