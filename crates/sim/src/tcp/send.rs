//! The sending half of a TCP endpoint.
//!
//! signal: ACKs with SACK blocks and windows, timers, bytes that the application wrote · model: a
//! modern stack: RACK and tail-loss probes (RFC 8985), PRR (RFC 6937), RTO (RFC 6298) with F-RTO
//! (RFC 5682) and Eifel's check of timestamps (RFC 3522), classic ECN (RFC 3168), pacing, persist
//! timer; without SACK NewReno's duplicate ACKs (RFC 6582) · action: segments, and the time of the
//! next deadline.
//!
//! Differences from the kernel:
//! - Segments that are not paced go one at a time. Linux passes what a millisecond of its pacing rate allows to the device as one
//!   buffer there, too, so that a receive window which is the limit stands open for a part of each millisecond. It waits for more ACKs
//!   where they will allow a longer one (`tcp_tso_should_defer`).
//! - AFC paces single segments: its even pace is ours (`algo::rwnd::afc`).
//! - The send buffer has its maximum from the start, and counts payload. Linux counts memory, at
//!   1.0 to 1.3 bytes per byte.
//! - A full send buffer takes every byte that is acknowledged at once, unless `waits_for_space` is set. Linux wakes the
//!   writer when a third of the buffer is
//!   free (`sk_stream_is_writeable`), so that an upload limited by its buffer goes in bursts of a third to half of it. Its queue drains in between, and is shorter by up to a quarter in the mean (seen in the lab).
//! - The RACK timer waits for the oldest suspect, not for the newest.

mod acks;
mod timers;
mod transmit;

use algo::Rng;
use algo::cc::{Ack, Cc, CongestionControl, Recovery};
use algo::gate::Admission;
use algo::rwnd::afc;
use units::{Bytes, DelayedAcks, Delays, Duration, Instant, Rate};

use super::pacing::Pacer;
use super::prr::Prr;
use super::rto::Rto;
use super::scoreboard::Scoreboard;

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
    /// A writer that found the buffer full waits until a third of it is free (Linux `sk_stream_is_writeable`).
    pub waits_for_space: bool,
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
    /// Time idle for want of receive window: with at most one segment in flight, ns.
    pub window_idle_ns: u64,
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
    /// End of what the buffer has taken of it, or could take, where the writer waits for space.
    taken: u64,
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
    pacer: Pacer,
    /// Upper bound of the pacing rate (Linux `sk_max_pacing_rate`).
    max_pacing: Option<Rate>,
    pacing_wait: Option<Instant>,
    /// End of a tail-loss probe that is not answered yet, and whether it was a retransmission.
    probe: Option<(u64, bool)>,
    frto: Option<Frto>,
    /// End of the window that the last reduction by a mark or a refusal answers.
    reduced_end: u64,
    cwr: bool,
    /// What the segments of the next call meet at a device that refuses them.
    admission: Option<Admission>,
    /// When it refused one last.
    refused_at: Option<Instant>,
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
    /// Since when the receive window leaves it idle.
    window_idle_since: Option<Instant>,
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
            taken: 0,
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
            pacer: Pacer::default(),
            max_pacing: None,
            pacing_wait: None,
            probe: None,
            frto: None,
            reduced_end: 0,
            cwr: false,
            admission: None,
            refused_at: None,
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
            window_idle_since: None,
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

    /// SO_MAX_PACING_RATE. A socket that has been paced once stays paced by its own rate, without a bound
    /// (Linux `SK_PACING_NEEDED`).
    pub fn pace(&mut self, most: Option<Rate>) {
        self.max_pacing = most;
        self.settings.pacing |= most.is_some();
    }

    /// What its segments meet at its device until the next call.
    pub fn admit(&mut self, admission: Option<Admission>) {
        self.admission = admission;
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
            self.rto.on_sample(now, rtt, self.una, self.nxt);
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

    /// Begins or ends the time in which the receive window leaves the sender idle. The one segment
    /// that a window opened by a segment allows does not end it: its ACK brings the rest.
    pub fn account_window_idle(&mut self, now: Instant) {
        let held = matches!(self.limited_by, SendLimit::ZeroWindow | SendLimit::ReceiveWindow);
        if let Some(since) = self.window_idle_since.take() {
            self.counters.window_idle_ns += now.since(since).0;
        }
        if held && self.in_flight() <= self.settings.mss {
            self.window_idle_since = Some(now);
        }
    }

    fn take_rtt(&mut self, now: Instant, rtt: Duration, delayed: bool) {
        self.rto.on_sample(now, rtt, self.una, self.nxt);
        self.rtts.record(now - rtt, rtt.0, rtt, delayed);
        let bin = &mut self.rtt_bin;
        *bin = (bin.0 + rtt.0, bin.1 + 1, bin.2.min(rtt.0), bin.3.max(rtt.0));
    }

    /// Replaces the congestion control on the live connection.
    pub fn switch(&mut self, now: Instant, cc: Cc) {
        self.account_limit(now);
        self.cc = cc;
    }
}
