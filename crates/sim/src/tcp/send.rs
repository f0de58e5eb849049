//! The sending half of a TCP endpoint.
//!
//! signal: ACKs with SACK blocks and windows, timers, bytes that the application wrote · model: a modern stack: RACK
//! and tail-loss probes (RFC 8985), PRR (RFC 6937), RTO (RFC 6298) with F-RTO (RFC 5682) and Eifel's check of
//! timestamps (RFC 3522), classic ECN (RFC 3168), pacing, persist timer; without SACK NewReno's duplicate ACKs (RFC
//! 6582) · action: segments, and the time of the next deadline.
//!
//! Differences from the kernel: segments go one at a time, not in TSO bursts, unless pacing holds them; the send
//! buffer has its maximum from the start; the RACK timer waits for the oldest suspect, not for the newest.

use algo::Rng;
use algo::cc::{Ack, Cc, CongestionControl, Loss, RateSample, Recovery, Sent, Timeout};
use algo::rwnd::afc;
use units::{Bytes, Duration, Histogram, Instant, Rate};

use super::prr::Prr;
use super::rto::Rto;
use super::scoreboard::{Scoreboard, Segment};
use super::ticks;
use crate::frame::{Frame, flags};

/// Worst delay of a delayed ACK that a tail-loss probe allows for (RFC 8985 section 7.2, Linux `TCP_DELACK_MAX`).
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);
/// RACK's window grows by a quarter of the smallest RTT per round with DSACKs, to at most this many quarters; Linux
/// lets it reach the smoothed RTT, which is checked as well.
const REORDER_STEPS_MAX: u64 = 8;
/// Recoveries without DSACK after which RACK's window shrinks again (RFC 8985 section 6.2).
const REORDER_PERSIST: u32 = 16;
/// Duplicate ACKs that mean loss (RFC 5681; RFC 6675 DupThresh).
const DUP_THRESHOLD: u64 = 3;
/// RFC 9293 section 3.7.1: what a segment may hold where nothing was agreed on; smaller windows are not halved.
const DEFAULT_MSS: u64 = 536;
/// IP and TCP header with timestamps.
const FRAME: u64 = 52;
/// Longest pause that pacing makes up for in one go: without it, the time that an idle sender waited would count.
const PACING_CREDIT: Duration = Duration::from_millis(1);

/// What keeps the sender from sending, in the order in which it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Hold {
    /// Not open, or closed.
    #[default]
    Closed,
    /// Nothing to send (or the send buffer is full of unacknowledged data: the application waits).
    Application,
    /// The receiver has no window at all.
    ZeroWindow,
    /// Less than a segment of it is left.
    ReceiveWindow,
    /// The congestion window is full.
    Congestion,
    /// Pacing: the next segment has its time.
    Pacing,
    /// Too much of this flow waits in the host's own queue (TSQ).
    Local,
}

/// Number of [`Hold`]s.
pub const HOLDS: usize = 7;

/// A segment to be sent; the endpoint makes a frame of it.
#[derive(Clone, Copy, Debug)]
pub struct Emit {
    /// First byte.
    pub seq: u64,
    /// Bytes of sequence space.
    pub len: u32,
    /// Carries the end of the stream, which takes the last of `len`.
    pub fin: bool,
    /// Sent before.
    pub again: bool,
    /// Carries CWR.
    pub cwr: bool,
}

/// Fixed properties of a sender.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Payload of a full segment.
    pub mss: u64,
    /// Send buffer.
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
    /// Segments with payload sent, resends included.
    pub segments: u64,
    /// Payload bytes sent, resends included.
    pub payload: u64,
    /// Segments sent again.
    pub resent: u64,
    /// Bytes of them.
    pub resent_bytes: u64,
    /// … after SACK or duplicate ACKs.
    pub resent_fast: u64,
    /// … after a timeout.
    pub resent_timeout: u64,
    /// … as tail-loss probes.
    pub resent_probe: u64,
    /// … in vain, by DSACK.
    pub resent_spurious: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Recovery episodes.
    pub recoveries: u64,
    /// Decreases taken back.
    pub undone: u64,
    /// Window probes.
    pub window_probes: u64,
    /// ECN reactions.
    pub ecn_reactions: u64,
}

/// The sending half; see the module text.
pub struct Sender {
    /// Its congestion control.
    pub cc: Cc,
    /// AFC's half at the sender.
    pub afc: Option<afc::Sender>,
    rng: Rng,
    settings: Settings,
    /// First unacknowledged byte.
    pub una: u64,
    /// Next byte to send.
    pub nxt: u64,
    /// End of what the application wrote.
    pub end: u64,
    /// The application writes no more: a FIN follows `end`.
    pub closing: bool,
    /// The application always has more (bulk): only whole segments are cut from what the buffer holds.
    pub endless: bool,
    window: u64,
    /// Largest window that the peer has offered.
    window_most: u64,
    board: Scoreboard,
    /// Estimate of the RTT.
    pub rto: Rto,
    recovery: Recovery,
    recovery_end: u64,
    prr: Prr,
    allowed: u64,
    /// The losses of this recovery are hidden from congestion control (AFC): its window stays as it is.
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
    /// Losses that the congestion control has been told of.
    lost_told: u64,
    /// Until this much is delivered, rate samples are limited by the application.
    app_limited: u64,
    rto_at: Option<Instant>,
    probe_at: Option<Instant>,
    rack_at: Option<Instant>,
    persist_at: Option<Instant>,
    persist_backoff: u32,
    next_send: Instant,
    pacing_wait: Option<Instant>,
    /// End of a tail-loss probe that is not answered yet, and whether it was a resend.
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
    pub hold: Hold,
    hold_since: Instant,
    /// Time held, by reason, in slow start (0) and outside (1), since it was last taken.
    pub held: [[u64; HOLDS]; 2],
    /// Totals.
    pub counters: Counters,
    /// RTT samples, ns.
    pub rtts: Histogram,
    /// RTT samples since last taken: sum, count, smallest, largest.
    pub rtt_bin: (u64, u64, u64, u64),
    /// Largest in flight since last taken.
    pub in_flight_max: u64,
}

/// Forward RTO recovery after a timeout (RFC 5682).
#[derive(Clone, Copy, Debug)]
struct Frto {
    /// Timestamp of the first resend: an older echo proves that the original arrived (RFC 3522).
    resent_at: Instant,
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
            window_most: 0,
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
            lost_told: 0,
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
            hold: Hold::Closed,
            hold_since: Instant::ZERO,
            held: [[0; HOLDS]; 2],
            counters: Counters::default(),
            rtts: Histogram::new(),
            rtt_bin: (0, 0, u64::MAX, 0),
            in_flight_max: 0,
        }
    }

    /// Bytes in flight: sent − acknowledged − SACKed − lost + resent (RFC 6675's pipe).
    #[inline]
    pub fn in_flight(&self) -> u64 {
        let out = (self.nxt - self.una) + self.board.resent;
        out.saturating_sub(self.board.sacked + self.board.lost + self.dup_bytes)
    }

    /// Receive window as last told.
    pub fn peer_window(&self) -> u64 {
        self.window
    }

    /// Everything written has been acknowledged, the end of the stream too.
    pub fn is_done(&self) -> bool {
        self.closing && self.una > self.end
    }

    /// The handshake is over: the window that the SYN (or SYN/ACK) told, and its round trip.
    pub fn open(&mut self, now: Instant, window: u64, rtt: Option<Duration>) {
        self.window = window;
        self.window_most = window;
        self.delivered_at = now;
        if let Some(rtt) = rtt {
            self.take_rtt(now, rtt);
            // The handshake's round trip delivers nothing, but algorithms that pace begin with it.
            let ack = Ack { rtt: Some(rtt), srtt: rtt, min_rtt: rtt, ..Ack::default() };
            self.cc.on_ack(now, &ack, &mut self.rng);
        }
        self.set_hold(now, Hold::Application);
    }

    /// Whether the congestion control is still doubling: an algorithm without a threshold says so by its phase alone.
    fn slow_start(&self) -> bool {
        matches!(self.cc.state().phase, "slow_start" | "startup")
    }

    #[inline]
    fn set_hold(&mut self, now: Instant, hold: Hold) {
        if hold != self.hold {
            self.book_hold(now);
            self.hold = hold;
        }
    }

    /// Books the time up to `now` under the reason that held.
    pub fn book_hold(&mut self, now: Instant) {
        let span = now.since(self.hold_since).0;
        self.hold_since = now;
        if span > 0 {
            self.held[usize::from(!self.slow_start())][self.hold as usize] += span;
        }
    }

    fn take_rtt(&mut self, now: Instant, rtt: Duration) {
        self.rto.on_sample(now, rtt);
        self.rtts.record(rtt.0);
        let bin = &mut self.rtt_bin;
        *bin = (bin.0 + rtt.0, bin.1 + 1, bin.2.min(rtt.0), bin.3.max(rtt.0));
    }

    // ------------------------------------------------------------------------------------------------ ACKs

    /// An ACK arrived; call [`Sender::send`] afterwards.
    pub fn on_ack(&mut self, now: Instant, f: &Frame) {
        if f.ack > self.nxt {
            return;
        }
        let prior_in_flight = self.in_flight();
        let prior_una = self.una;
        let prior_delivered = self.delivered;
        let prior_lost = self.board.lost_total;
        if f.ack > self.una || (f.ack == self.una && f.window > self.window) {
            if self.window == 0 && f.window > 0 {
                self.persist_backoff = 0;
            }
            self.window = f.window;
            self.window_most = self.window_most.max(f.window);
        }

        let mut sample = RateSample::default();
        let mut newest: Option<Segment> = None;
        let mut rtt = None;
        // RFC 5682: only what was sent before the timeout proves something.
        let originals_end = self.frto.map_or(0, |f| f.end);
        let mut acked_original = false;
        // When the newest of the segments that this ACK SACKs first was sent.
        let mut sacked_sent: Option<Instant> = None;
        while let Some(segment) = self.board.pop_acked(f.ack) {
            self.una = segment.end();
            if !segment.sacked {
                self.delivered += u64::from(segment.len);
                acked_original |= segment.sends == 1 && segment.end() <= originals_end;
                take(&mut self.flight_sent, &mut sample, &mut newest, &segment);
                rtt = if segment.sends == 1 { Some(now.since(segment.sent)) } else { None };
                if segment.sends == 1 && segment.end() < self.highest {
                    self.reorder_seen = true;
                }
                self.rack_update(now, &segment, f.ts_ecr);
            }
        }
        let advanced = self.una > prior_una;
        if advanced {
            self.board.sacked_ranges.remove_below(self.una);
            self.highest = self.highest.max(self.una);
        }
        if self.settings.sack && f.sacks > 0 {
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
                let mut found: [Option<Segment>; 1] = [None];
                let mut board = std::mem::take(&mut self.board);
                board.sack(from.max(self.una), to, |segment| {
                    delivered += u64::from(segment.len);
                    if segment.sends == 1 {
                        acked_original |= segment.end() <= originals_end;
                        sacked_sent = Some(segment.sent.max(sacked_sent.unwrap_or(segment.sent)));
                        let sample = now.since(segment.sent);
                        if rtt.is_none_or(|r: Duration| sample < r) {
                            rtt = Some(sample);
                        }
                        if segment.end() < self.highest {
                            self.reorder_seen = true;
                        }
                    }
                    take(&mut self.flight_sent, &mut sample, &mut newest, segment);
                    if found[0].is_none_or(|f| (f.sent, f.end()) < (segment.sent, segment.end())) {
                        found[0] = Some(*segment);
                    }
                });
                self.board = board;
                self.delivered += delivered;
                if let Some(segment) = found[0] {
                    self.rack_update(now, &segment, 0);
                }
                self.highest = self.highest.max(to);
            }
        } else if !self.settings.sack {
            self.count_duplicate(f, advanced, prior_una);
        }
        let acked = self.delivered - prior_delivered;
        if acked > 0 {
            self.delivered_at = now;
        }
        if let Some(rtt) = rtt {
            self.take_rtt(now, rtt);
        }
        self.take_one_way(f, prior_una, newest.as_ref());
        self.finish_sample(now, &mut sample, newest.as_ref());
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
        self.check_timeout_was_needed(now, f, advanced, acked_original);
        let before = self.board.lost_total;
        if !advanced && acked == 0 && f.window < self.settings.mss && !f.dsack && f.len == 0 {
            self.detect_refusal(now);
        }
        self.detect_losses(now);
        if !self.settings.sack {
            self.detect_by_duplicates(advanced);
        }
        let newly_lost = self.board.lost_total - before;
        self.on_probe_answered(now, f, advanced);
        self.step_recovery(now, newly_lost > 0, prior_in_flight);

        if let Some(window) = self.restart {
            // Slow start from there to what the window was.
            self.restart = Some(window + acked).filter(|w| *w < self.cc.window().0);
        }
        let marked = self.on_ecn_echo(now, f, prior_in_flight, acked);
        if acked > 0 || self.board.lost_total > prior_lost {
            let in_flight = self.in_flight();
            let window = self.cc.window().0;
            let limited = prior_in_flight + self.settings.mss > window
                || (prior_in_flight * 2 > window && self.slow_start());
            let ack = Ack {
                acked: Bytes(acked),
                delivered: Bytes(self.delivered),
                rtt,
                srtt: self.rto.srtt,
                min_rtt: self.rto.min,
                one_way: self.one_way,
                prior_in_flight: Bytes(prior_in_flight),
                in_flight: Bytes(in_flight),
                lost: Bytes(self.board.lost_total.saturating_sub(self.lost_told)),
                window_limited: limited,
                marked: Bytes(marked),
                recovery: self.recovery,
                rate: sample,
            };
            self.lost_told = self.board.lost_total;
            self.cc.on_ack(now, &ack, &mut self.rng);
            if self.recovery == Recovery::Recovering && !self.cc.rules_recovery() {
                let safe = advanced && newly_lost == 0;
                self.allowed = self.prr.on_ack(acked, in_flight, safe, self.settings.mss);
            }
        }
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        // What was sent before the head was (re)sent is still arriving, so the head's turn has not come: Linux starts the
        // timer again (tcp_clean_rtx_queue), or a deep queue that grows would look like a lost resend.
        let older = sacked_sent.zip(self.board.front()).is_some_and(|(sent, head)| sent < head.sent);
        if advanced || older {
            self.arm(now);
        }
    }

    /// From the sending of the newest segment delivered to the timestamp of its ACK: two clocks with a constant offset,
    /// which happens to be zero here. The echo will not do: a delayed ACK echoes the oldest segment that it covers (RFC
    /// 7323 section 4.3), which waited for the newest. Where ACKs are delayed, that of a single segment may have waited
    /// for the receiver's timer and shows that timer instead of the path.
    #[inline]
    fn take_one_way(&mut self, f: &Frame, prior_una: u64, newest: Option<&Segment>) {
        let step = self.una - prior_una;
        if f.sacks == 0 {
            self.ack_step = self.ack_step.max(step);
        }
        let waited = f.sacks == 0 && step < self.ack_step.min(2 * self.settings.mss);
        self.one_way = newest
            .filter(|s| self.settings.timestamps && !waited && s.sends == 1)
            .map(|s| Duration::from_millis(u64::from(f.ts_val.saturating_sub(ticks(s.sent)))));
    }

    fn finish_sample(&mut self, now: Instant, sample: &mut RateSample, newest: Option<&Segment>) {
        let Some(s) = newest else { return };
        let send = s.sent.since(s.flight_sent);
        let ack = now.since(s.delivered_at);
        sample.interval = send.max(ack);
        sample.delivered = Bytes(self.delivered - s.delivered);
        sample.lost = Bytes(self.board.lost_total.saturating_sub(s.lost_total));
        // Shorter than any round trip: ACKs of resends that prove nothing (draft-ietf-ccwg-bbr section 4.1.2.3).
        if self.rto.min != Duration::MAX && sample.interval < self.rto.min {
            sample.interval = Duration::ZERO;
        }
    }

    /// RFC 8985 section 6.2 step 2: the most recently sent segment known to be delivered.
    #[inline]
    fn rack_update(&mut self, now: Instant, segment: &Segment, echo: u32) {
        let rtt = now.since(segment.sent);
        if segment.sends > 1 {
            // An earlier copy arrived: the echo is older than the last one, or came back too soon for it. An ACK that
            // tells of a hole echoes what stands before the hole and proves nothing (`echo` is 0 then).
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
    fn reorder_window(&self) -> Duration {
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
    fn detect_losses(&mut self, now: Instant) {
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

    /// AFC: an ACK that tells of nothing but a closed window answers a segment that the full buffer refused. Segments
    /// arrive in order, so it was the one sent first of those that can have arrived. Without this only a timer would find
    /// them: nothing behind them is accepted, so SACK shows no hole.
    fn detect_refusal(&mut self, now: Instant) {
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
    fn count_duplicate(&mut self, f: &Frame, advanced: bool, prior_una: u64) {
        if advanced {
            self.dup_bytes =
                self.dup_bytes.saturating_sub((self.una - prior_una).saturating_sub(self.settings.mss));
            if self.recovery == Recovery::Open {
                self.dup_bytes = 0;
            }
        } else if f.ack == self.una && f.len == 0 && self.nxt > self.una {
            let most = (self.nxt - self.una).saturating_sub(self.settings.mss);
            self.dup_bytes = (self.dup_bytes + self.settings.mss).min(most);
        }
    }

    /// RFC 6582: three duplicates, or a partial ACK, mean that the oldest segment is lost.
    fn detect_by_duplicates(&mut self, advanced: bool) {
        let enough = self.dup_bytes >= DUP_THRESHOLD * self.settings.mss;
        let partial = advanced && self.recovery == Recovery::Recovering && self.una < self.recovery_end;
        if ((enough && self.recovery == Recovery::Open) || partial)
            && let Some(last) = self.board.last_number()
        {
            let first = last + 1 - self.board.len() as u64;
            self.board.mark_lost(first);
        }
    }

    fn on_dsack(&mut self, block: (u64, u64)) {
        self.counters.resent_spurious += 1;
        // RFC 8985 section 6.2 step 4: once per round trip.
        if block.1 > self.reorder_round {
            self.reorder_round = self.nxt;
            self.reorder_steps = (self.reorder_steps + 1).min(REORDER_STEPS_MAX);
            self.reorder_recoveries = REORDER_PERSIST;
        }
    }

    fn step_recovery(&mut self, now: Instant, newly_lost: bool, prior_in_flight: u64) {
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

    fn begin_recovery(&mut self, now: Instant, prior_in_flight: u64) {
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
    fn check_timeout_was_needed(&mut self, now: Instant, f: &Frame, advanced: bool, original: bool) {
        let Some(mut frto) = self.frto else { return };
        let echo_is_older =
            self.settings.timestamps && advanced && f.ts_ecr != 0 && f.ts_ecr < ticks(frto.resent_at);
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

    /// RFC 8985 section 7.4.2: a probe that was a resend and is answered without DSACK has repaired a loss.
    fn on_probe_answered(&mut self, now: Instant, f: &Frame, advanced: bool) {
        let Some((end, again)) = self.probe else { return };
        if f.dsack || (f.ack >= end && !again) {
            self.probe = None;
        } else if f.ack == end && !advanced && f.sacks == 0 && f.len == 0 {
            // Both copies arrived, and the second made a plain duplicate ACK.
            self.probe = None;
        } else if f.ack > end && advanced {
            self.probe = None;
            if self.recovery == Recovery::Open {
                let loss = Loss { lost: Bytes(self.settings.mss), in_flight: Bytes(self.in_flight()) };
                self.cc.on_loss(now, &loss);
                self.cc.on_recovered(now);
                self.counters.recoveries += 1;
            }
        }
    }

    fn on_ecn_echo(&mut self, now: Instant, f: &Frame, in_flight: u64, acked: u64) -> u64 {
        if !self.settings.ecn || f.flags & flags::ECE == 0 {
            return 0;
        }
        // RFC 3168 section 6.1.2: one reaction per window of data. The first segment behind that window carries CWR, and
        // until it is acknowledged the receiver repeats the old mark (Linux leaves TCP_CA_CWR then).
        if self.una > self.ecn_end && self.recovery == Recovery::Open {
            self.ecn_end = self.nxt;
            self.cwr = true;
            self.counters.ecn_reactions += 1;
            self.cc.on_ecn(now, &Loss { lost: Bytes::ZERO, in_flight: Bytes(in_flight) });
        }
        acked
    }

    // ------------------------------------------------------------------------------------------------ timers

    /// Sets the retransmission timer, or the tail-loss probe before it (RFC 8985 section 7.2).
    fn arm(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.rto_at = None;
            self.probe_at = None;
            return;
        }
        let rto_at = now + self.rto.timeout();
        self.rto_at = Some(rto_at);
        self.probe_at = None;
        if self.settings.sack
            && self.recovery == Recovery::Open
            && self.probe.is_none()
            && self.board.sacked == 0
        {
            let mut wait = if self.rto.srtt == Duration::ZERO {
                Duration::from_secs(1)
            } else {
                Duration(self.rto.srtt.0 * 2)
            };
            if self.board.len() == 1 {
                wait += ACK_DELAY_MAX;
            }
            let probe_at = now + wait;
            if probe_at < rto_at {
                self.probe_at = Some(probe_at);
            }
        }
    }

    /// The nearest deadline.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let next = super::sooner(self.probe_at.or(self.rto_at), self.rack_at);
        super::sooner(super::sooner(self.persist_at, self.pacing_wait), next)
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
            self.send_probe(now, emit);
        } else if self.rto_at.is_some_and(|at| at <= now) {
            self.on_timeout(now);
        }
        if self.persist_at.is_some_and(|at| at <= now) {
            self.persist_at = None;
            self.probe_window(now, emit);
        }
        if self.pacing_wait.is_some_and(|at| at <= now) {
            self.pacing_wait = None;
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        self.rto_at = None;
        if self.board.is_empty() {
            return;
        }
        let in_flight = self.in_flight();
        let first = self.recovery != Recovery::Lost;
        self.rto.backoff += 1;
        self.counters.timeouts += 1;
        // RFC 5682 section 2: only where no loss was being repaired already.
        let frto = self.recovery == Recovery::Open && self.board.sacked == 0;
        self.board.mark_all_lost();
        // The timeout itself tells of these.
        self.lost_told = self.board.lost_total;
        self.dup_bytes = 0;
        self.rack_at = None;
        self.probe = None;
        self.recovery = Recovery::Lost;
        self.recovery_end = self.nxt;
        self.frto = frto.then_some(Frto { resent_at: now, end: self.nxt, probing: false });
        let hidden = self.afc.as_ref().is_some_and(afc::Sender::hides_loss);
        if !hidden {
            let count = if first { 1 } else { self.rto.backoff.max(2) };
            self.cc.on_timeout(now, &Timeout { in_flight: Bytes(in_flight), count });
        }
        self.rto_at = Some(now + self.rto.timeout());
    }

    /// RFC 8985 section 7.3: new data if there is some, else the last segment again.
    fn send_probe(&mut self, now: Instant, emit: &mut impl FnMut(Emit)) {
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
            self.counters.resent_probe += u64::from(last.payload() > 0);
            self.retransmit(now, number, &last, emit);
        }
        self.rto_at = Some(now + self.rto.timeout());
        self.probe_at = None;
    }

    /// RFC 9293 section 3.8.6.1: a closed (or too small) window is asked again from time to time.
    fn probe_window(&mut self, now: Instant, emit: &mut impl FnMut(Emit)) {
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
            emit(Emit { seq: self.nxt.saturating_sub(1), len: 0, fin: false, again: true, cwr: false });
            self.persist_backoff = (self.persist_backoff + 1).min(8);
            self.arm_persist(now);
        }
    }

    fn arm_persist(&mut self, now: Instant) {
        if self.persist_at.is_none() {
            let base = self.rto.timeout() * (1 << self.persist_backoff);
            self.persist_at = Some(now + base.min(Duration::from_secs(120)));
        }
    }

    // ------------------------------------------------------------------------------------------------ sending

    /// A full segment, or half of a window that never held two of them (Linux `tcp_bound_to_half_wnd`; RFC 9293 section
    /// 3.8.6.2.1 lets half of the largest window go).
    #[inline]
    fn segment_most(&self) -> u64 {
        let half = if self.window_most > DEFAULT_MSS { self.window_most / 2 } else { self.window_most };
        self.settings.mss.min(half.max(1))
    }

    /// Length of the next new segment (0: none) and whether it ends the stream.
    #[inline]
    fn next_new(&self) -> (u64, bool) {
        let limit = self.una.saturating_add(self.settings.buffer);
        let available = self.end.min(limit).saturating_sub(self.nxt);
        let most = self.segment_most();
        if available >= most {
            return (most, false);
        }
        if self.end <= limit {
            // The tail: with the FIN behind it, if the application has closed.
            let fin = self.closing && self.nxt <= self.end;
            if self.endless && available < most && !fin {
                return (0, false);
            }
            return (available + u64::from(fin), fin);
        }
        // The buffer ends within a segment: wait for room, unless nothing is in flight.
        if self.board.is_empty() { (available, false) } else { (0, false) }
    }

    /// Sends what may be sent.
    pub fn send(&mut self, now: Instant, emit: &mut impl FnMut(Emit)) {
        if self.hold == Hold::Closed {
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
        let hold;
        let mut sent = false;
        let mut resent_head = false;
        let mut handed = 0;
        loop {
            let in_flight = self.in_flight();
            let window = self.congestion_window();
            let resend = if self.holds_resends() { None } else { self.board.next_pending() };
            let (len, fin) = match &resend {
                Some((_, segment)) => (u64::from(segment.len), false),
                None => self.next_new(),
            };
            if resend.is_none() {
                if len == 0 {
                    hold = Hold::Application;
                    if self.app_limited == 0 && self.end <= self.nxt {
                        self.app_limited = (self.delivered + in_flight).max(1);
                    }
                    break;
                }
                let flow_window = self.flow_window();
                // A FIN takes a number of the window like any byte (RFC 9293 section 3.4).
                if self.nxt + len > self.una + flow_window {
                    hold = if flow_window == 0 { Hold::ZeroWindow } else { Hold::ReceiveWindow };
                    if self.board.is_empty() {
                        self.arm_persist(now);
                    }
                    break;
                }
            }
            if in_flight + len > window && in_flight > 0 {
                hold = Hold::Congestion;
                break;
            }
            if let Some(tsq) = self.settings.tsq
                && self.local + handed >= tsq
            {
                hold = Hold::Local;
                break;
            }
            if let Some(rate) = rate {
                if self.next_send > now {
                    self.pacing_wait = Some(self.next_send);
                    hold = Hold::Pacing;
                    break;
                }
                self.next_send = self.next_send.max(now - PACING_CREDIT) + Bytes(len) / rate;
            }
            sent = true;
            // The host's queue is counted by those who see the frames; those of this call are still to come there.
            handed += len + FRAME;
            self.persist_at = None;
            match resend {
                Some((number, segment)) => {
                    // A lone FIN is no data.
                    let data = u64::from(segment.payload() > 0);
                    if self.recovery == Recovery::Lost {
                        self.counters.resent_timeout += data;
                    } else {
                        self.counters.resent_fast += data;
                    }
                    // Linux restarts the timer with the resend of the first segment: it is this one's answer that
                    // is waited for.
                    resent_head |= segment.seq == self.una;
                    self.retransmit(now, number, &segment, emit);
                }
                None => self.transmit_new(now, len, fin, emit),
            }
        }
        if sent && (resent_head || self.rto_at.is_none() || self.recovery == Recovery::Open) {
            self.arm(now);
        }
        self.set_hold(now, hold);
    }

    /// F-RTO holds resends back while it waits for the second ACK.
    fn holds_resends(&self) -> bool {
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

    /// RFC 5681 section 4.1: after idleness longer than an RTO the window is no longer known to be safe.
    fn restart_after_idleness(&mut self, now: Instant) {
        if self.settings.restart_after_idle
            && self.board.is_empty()
            && self.last_sent > Instant::ZERO
            && self.end > self.nxt
            && now.since(self.last_sent) > self.rto.timeout()
        {
            // Who paces by a model of the path knows its rate still (Linux asks for `cong_control` here).
            if !self.cc.rules_recovery() {
                // Linux tcp_cwnd_restart: half for each timeout that has passed, down to the initial window.
                let halvings = now.since(self.last_sent).0 / self.rto.timeout().0.max(1);
                let window = self.cc.window().0 >> halvings.min(63);
                self.restart = Some(window.max(self.initial_window));
            }
            self.last_sent = now;
            let sent = Sent { bytes: Bytes::ZERO, in_flight: Bytes::ZERO, app_limited: true, again: false };
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
            resent: false,
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
        self.after_sending(now, &segment, in_flight, false);
        let cwr = std::mem::take(&mut self.cwr);
        emit(Emit { seq: segment.seq, len: segment.len, fin, again: false, cwr });
    }

    fn retransmit(&mut self, now: Instant, number: u64, segment: &Segment, emit: &mut impl FnMut(Emit)) {
        self.stamp(now);
        let in_flight = self.in_flight();
        let (flight_sent, delivered_at, delivered) = (self.flight_sent, self.delivered_at, self.delivered);
        let (app_limited, lost_total) = (self.app_limited > 0, self.board.lost_total);
        self.board.resend(number, |s| {
            s.sent = now;
            s.flight_sent = flight_sent;
            s.delivered_at = delivered_at;
            s.delivered = delivered;
            s.app_limited = app_limited;
            s.lost_total = lost_total;
            s.in_flight = in_flight + u64::from(s.len);
        });
        self.counters.resent += u64::from(segment.payload() > 0);
        self.counters.resent_bytes += segment.payload();
        self.after_sending(now, segment, in_flight, true);
        emit(Emit { seq: segment.seq, len: segment.len, fin: segment.fin, again: true, cwr: false });
    }

    fn after_sending(&mut self, now: Instant, segment: &Segment, in_flight: u64, again: bool) {
        let (len, payload) = (u64::from(segment.len), segment.payload());
        self.last_sent = now;
        self.counters.segments += u64::from(payload > 0);
        self.counters.payload += payload;
        self.in_flight_max = self.in_flight_max.max(in_flight + len);
        if self.recovery == Recovery::Recovering {
            self.prr.on_sent(len);
        }
        let sent =
            Sent { bytes: Bytes(len), in_flight: Bytes(in_flight), app_limited: self.app_limited > 0, again };
        self.cc.on_sent(now, &sent, &mut self.rng);
    }

    /// Another congestion control takes over on the live connection.
    pub fn switch(&mut self, now: Instant, cc: Cc) {
        self.book_hold(now);
        self.cc = cc;
    }
}

/// The newest segment that an ACK delivers carries the rate sample (draft-ietf-ccwg-bbr section 4.1.2.3).
#[inline]
fn take(flight_sent: &mut Instant, sample: &mut RateSample, newest: &mut Option<Segment>, segment: &Segment) {
    if newest.is_none_or(|n| (n.delivered, n.sent, n.seq) < (segment.delivered, segment.sent, segment.seq)) {
        *newest = Some(*segment);
        sample.prior_delivered = Bytes(segment.delivered);
        sample.in_flight_at_send = Bytes(segment.in_flight);
        sample.app_limited = segment.app_limited;
        *flight_sent = segment.sent;
    }
}
