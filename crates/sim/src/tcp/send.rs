//! The sending half of a TCP endpoint.
//!
//! signal: ACKs with SACK blocks and windows, timers, bytes that the application wrote · model: a
//! modern stack: RACK and tail-loss probes (RFC 8985), PRR (RFC 6937), RTO (RFC 6298) with F-RTO
//! (RFC 5682) and Eifel's check of timestamps (RFC 3522), classic ECN (RFC 3168), pacing, persist
//! timer; without SACK NewReno's duplicate ACKs (RFC 6582) · action: segments, and the time of the
//! next deadline.
//!
//! Differences from the kernel:
//! - Segments go one at a time, paced or not. Linux sends what a millisecond of its pacing rate
//!   allows as one burst
//!   (`tcp_tso_autosize`), so that a receive window which is the limit stands open for a part of each millisecond.
//! - The send buffer has its maximum from the start, and counts payload. Linux counts memory, at
//!   1.0 to 1.3 bytes per byte.
//! - A full send buffer takes every byte that is acknowledged at once. Linux wakes the writer when
//!   a third of the buffer is
//!   free (`sk_stream_is_writeable`), so that an upload limited by its buffer goes in bursts of a third to half of it. Its queue drains in between, and is shorter by up to a quarter in the mean (seen in the lab).
//! - The RACK timer waits for the oldest suspect, not for the newest.

mod acks;
mod timers;

use algo::Rng;
use algo::cc::{Ack, Cc, CongestionControl, Recovery, Sent};
use algo::rwnd::afc;
use units::{Bytes, DelayedAcks, Delays, Duration, Instant, Rate};

use super::prr::Prr;
use super::rto::Rto;
use super::scoreboard::{Scoreboard, Segment};

/// The MSS where none was negotiated (RFC 9293 section 3.7.1). Smaller windows are not halved.
const DEFAULT_MSS: u64 = 536;
/// IP and TCP header with timestamps.
const FRAME: u64 = 52;
/// Longest pause that pacing makes up for in one go: without it, the time that an idle sender
/// waited would count.
const PACING_CREDIT: Duration = Duration::from_millis(1);

/// What keeps the sender from sending, in the order of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum SendLimit {
    /// Not open, or closed.
    #[default]
    Closed,
    /// Nothing to send (or the send buffer is full of unacknowledged data: the application waits).
    Application,
    /// The receiver has no window at all.
    ZeroWindow,
    /// Less than a segment of the receive window is left.
    ReceiveWindow,
    /// The congestion window is full.
    Congestion,
    /// Pacing: the next segment has its time.
    Pacing,
    /// Too much of this flow waits in the host's own queue (TSQ).
    Local,
    /// No answer since the retransmission timer fired, whatever else limits the sender. Time is
    /// accounted to it; `Sender::limited_by` is never this.
    Timeout,
}

/// The number of variants of [`SendLimit`].
pub const SEND_LIMITS: usize = 8;

/// A segment to be sent; the endpoint makes a frame of it.
#[derive(Clone, Copy, Debug)]
pub struct Emit {
    pub seq: u64,
    /// Bytes of sequence space.
    pub len: u32,
    /// Carries the end of the stream, which takes the last of `len`.
    pub fin: bool,
    /// The segment was sent before.
    pub again: bool,
    /// Carries the CWR flag.
    pub cwr: bool,
}

/// Fixed properties of a sender.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Payload of a full segment.
    pub mss: u64,
    /// Size of the send buffer in bytes.
    pub buffer: u64,
    /// Limit of the host's own queue for this flow.
    pub tsq: Option<u64>,
    /// Paced even if the congestion control does not ask.
    pub pacing: bool,
    /// SACK was agreed on.
    pub sack: bool,
    /// Timestamps were agreed on.
    pub timestamps: bool,
    /// ECN was agreed on.
    pub ecn: bool,
    /// Initial window again after idleness.
    pub restart_after_idle: bool,
}

/// Totals of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Segments with payload sent, retransmissions included.
    pub segments: u64,
    /// Payload bytes sent, retransmissions included.
    pub payload: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Payload bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// … after SACK or duplicate ACKs.
    pub retransmitted_fast: u64,
    /// … after a timeout.
    pub retransmitted_timeout: u64,
    /// … as tail-loss probes.
    pub retransmitted_probe: u64,
    /// … although the original had arrived, by DSACK.
    pub retransmitted_spurious: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    pub recoveries: u64,
    /// Window decreases undone as spurious.
    pub undone: u64,
    /// Window probes sent.
    pub window_probes: u64,
    /// Reactions of the congestion control to ECN.
    pub ecn_reactions: u64,
}

/// The sending half of an endpoint.
pub struct Sender {
    pub cc: Cc,
    /// AFC's half at the sender.
    pub afc: Option<afc::Sender>,
    rng: Rng,
    settings: Settings,
    /// SND.UNA: the first unacknowledged byte.
    pub una: u64,
    /// SND.NXT: the next byte to send.
    pub nxt: u64,
    /// End of what the application wrote.
    pub end: u64,
    /// The application writes no more: a FIN follows `end`.
    pub closing: bool,
    /// The application always has more (bulk): only whole segments are taken from the buffer.
    pub endless: bool,
    window: u64,
    /// Largest window that the peer has advertised.
    max_window: u64,
    board: Scoreboard,
    /// Estimate of the RTT.
    pub rto: Rto,
    recovery: Recovery,
    recovery_end: u64,
    prr: Prr,
    allowed: u64,
    /// The losses of this recovery are hidden from congestion control (AFC): its window stays as it
    /// is.
    hidden: bool,
    /// NewReno without SACK: bytes that duplicate ACKs stand for.
    dup_bytes: u64,
    rack_sent: Instant,
    rack_end: u64,
    rack_rtt: Duration,
    reorder_seen: bool,
    reorder_steps: u64,
    reorder_recoveries: u32,
    reorder_round: u64,
    /// Highest byte known to be delivered.
    highest: u64,
    delivered: u64,
    delivered_at: Instant,
    flight_sent: Instant,
    /// Bytes of loss that were reported to the congestion control.
    lost_reported: u64,
    /// Until this much is delivered, rate samples are limited by the application.
    app_limited: u64,
    rto_at: Option<Instant>,
    probe_at: Option<Instant>,
    rack_at: Option<Instant>,
    persist_at: Option<Instant>,
    persist_backoff: u32,
    next_send: Instant,
    pacing_wait: Option<Instant>,
    /// End of a tail-loss probe that is not answered yet, and whether it was a retransmission.
    probe: Option<(u64, bool)>,
    frto: Option<Frto>,
    ecn_end: u64,
    cwr: bool,
    last_sent: Instant,
    one_way: Option<Duration>,
    initial_window: u64,
    /// The window after idleness, until it has grown to that of the congestion control.
    restart: Option<u64>,
    /// The largest step of an ACK: more than a segment where ACKs are delayed.
    ack_step: u64,
    /// Bytes of this flow in the host's own queue.
    pub local: u64,
    /// Why nothing is being sent, and since when.
    pub limited_by: SendLimit,
    /// The retransmission timer fired, and nothing new has been acknowledged since.
    unanswered: bool,
    limited_since: Instant,
    /// Time by limit, in slow start (0) and outside (1), since it was last taken.
    pub limited_time: [[u64; SEND_LIMITS]; 2],
    pub counters: Counters,
    /// RTT samples since the end of the warm-up, ns.
    pub rtts: Delays,
    delayed_acks: DelayedAcks,
    /// RTT samples since last taken: sum, count, smallest, largest.
    pub rtt_bin: (u64, u64, u64, u64),
    /// Largest in flight since last taken.
    pub in_flight_max: u64,
}

/// Forward RTO recovery after a timeout (RFC 5682).
#[derive(Clone, Copy, Debug)]
struct Frto {
    /// Timestamp of the first retransmission: an older echo proves that the original arrived (RFC
    /// 3522).
    retransmitted_at: Instant,
    /// Everything sent before the timeout.
    end: u64,
    /// New data was sent in answer to the first ACK.
    probing: bool,
}

impl Sender {
    /// A sender that is not open yet.
    pub fn new(cc: Cc, rng: Rng, settings: Settings) -> Sender {
        let initial_window = cc.window().0;
        Sender {
            cc,
            afc: None,
            rng,
            settings,
            una: 0,
            nxt: 0,
            end: 0,
            closing: false,
            endless: false,
            window: 0,
            max_window: 0,
            board: Scoreboard::default(),
            rto: Rto::default(),
            recovery: Recovery::Open,
            recovery_end: 0,
            prr: Prr::default(),
            allowed: 0,
            hidden: false,
            dup_bytes: 0,
            rack_sent: Instant::ZERO,
            rack_end: 0,
            rack_rtt: Duration::ZERO,
            reorder_seen: false,
            reorder_steps: 1,
            reorder_recoveries: 0,
            reorder_round: 0,
            highest: 0,
            delivered: 0,
            delivered_at: Instant::ZERO,
            flight_sent: Instant::ZERO,
            lost_reported: 0,
            app_limited: 0,
            rto_at: None,
            probe_at: None,
            rack_at: None,
            persist_at: None,
            persist_backoff: 0,
            next_send: Instant::ZERO,
            pacing_wait: None,
            probe: None,
            frto: None,
            ecn_end: 0,
            cwr: false,
            last_sent: Instant::ZERO,
            one_way: None,
            initial_window,
            restart: None,
            ack_step: 0,
            local: 0,
            limited_by: SendLimit::Closed,
            unanswered: false,
            limited_since: Instant::ZERO,
            limited_time: [[0; SEND_LIMITS]; 2],
            counters: Counters::default(),
            rtts: Delays::default(),
            delayed_acks: DelayedAcks::default(),
            rtt_bin: (0, 0, u64::MAX, 0),
            in_flight_max: 0,
        }
    }

    /// Bytes in flight: sent − acknowledged − SACKed − lost + retransmitted (RFC 6675's pipe).
    #[inline]
    pub fn in_flight(&self) -> u64 {
        let out = (self.nxt - self.una) + self.board.retransmitted;
        out.saturating_sub(self.board.sacked + self.board.lost + self.dup_bytes)
    }

    /// The window that the peer advertised last.
    pub fn peer_window(&self) -> u64 {
        self.window
    }

    /// Everything written has been acknowledged, the end of the stream too.
    pub fn is_done(&self) -> bool {
        self.closing && self.una > self.end
    }

    /// The handshake is complete: the window that SYN or SYN/ACK advertised, and its round trip.
    pub fn open(&mut self, now: Instant, window: u64, rtt: Option<Duration>) {
        self.window = window;
        self.max_window = window;
        self.delivered_at = now;
        if let Some(rtt) = rtt {
            // No sample of the flow, as in the analysis: `initial_rtt_ms` has it.
            self.rto.on_sample(now, rtt);
            // It delivers nothing, but algorithms that pace begin with it.
            let ack = Ack { rtt: Some(rtt), srtt: rtt, min_rtt: rtt, ..Ack::default() };
            self.cc.on_ack(now, &ack, &mut self.rng);
        }
        if let Some(afc) = &mut self.afc {
            afc.open(Bytes(window), self.rto.srtt);
        }
        self.set_limit(now, SendLimit::Application);
    }

    /// Whether the congestion control is still doubling: an algorithm without a threshold shows it
    /// by its phase alone.
    fn slow_start(&self) -> bool {
        matches!(self.cc.state().phase, "slow_start" | "startup")
    }

    #[inline]
    fn set_limit(&mut self, now: Instant, limited_by: SendLimit) {
        if limited_by != self.limited_by {
            self.account_limit(now);
            self.limited_by = limited_by;
        }
    }

    /// Adds the time up to `now` to the limit that applied.
    pub fn account_limit(&mut self, now: Instant) {
        let span = now.since(self.limited_since).0;
        self.limited_since = now;
        if span > 0 {
            // A closed window is known even while the sender waits for an answer.
            let limited_by = match self.limited_by {
                SendLimit::ZeroWindow => SendLimit::ZeroWindow,
                _ if self.unanswered => SendLimit::Timeout,
                limited_by => limited_by,
            };
            self.limited_time[usize::from(!self.slow_start())][limited_by as usize] += span;
        }
    }

    fn take_rtt(&mut self, now: Instant, rtt: Duration, delayed: bool) {
        self.rto.on_sample(now, rtt);
        self.rtts.record(now - rtt, rtt.0, rtt, delayed);
        let bin = &mut self.rtt_bin;
        *bin = (bin.0 + rtt.0, bin.1 + 1, bin.2.min(rtt.0), bin.3.max(rtt.0));
    }

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
    fn next_new(&self) -> (u64, bool) {
        let limit = self.una.saturating_add(self.settings.buffer);
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
        let rate = self.pacing_rate();
        if let Some(rate) = rate
            && self.next_send + PACING_CREDIT < now
        {
            self.next_send = now - (PACING_CREDIT.min(Bytes(self.settings.mss) / rate));
        }
        self.restart_after_idleness(now);
        let limited_by;
        let mut sent = false;
        let mut head_retransmitted = false;
        let mut handed = 0;
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
                    limited_by = SendLimit::Application;
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
            if let Some(rate) = rate {
                if self.next_send > now {
                    self.pacing_wait = Some(self.next_send);
                    limited_by = SendLimit::Pacing;
                    break;
                }
                self.next_send = self.next_send.max(now - PACING_CREDIT) + Bytes(len) / rate;
            }
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
            self.arm(now);
        }
        self.set_limit(now, limited_by);
    }

    /// F-RTO defers retransmissions while it waits for the second ACK.
    fn defers_retransmissions(&self) -> bool {
        self.frto.is_some_and(|f| f.probing) && self.next_new().0 > 0
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
        [asked, burst, own].into_iter().flatten().min().filter(|r| r.0 > 0)
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

    fn transmit_new(&mut self, now: Instant, len: u64, fin: bool, emit: &mut impl FnMut(Emit)) {
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

    fn retransmit(
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

    /// Replaces the congestion control on the live connection.
    pub fn switch(&mut self, now: Instant, cc: Cc) {
        self.account_limit(now);
        self.cc = cc;
    }
}
