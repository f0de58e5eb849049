//! The state of one stream: its counters, and the measurements of a stream with data. `stream` updates it for data,
//! `ack` for ACKs.

use units::{Bytes, Duration, Instant};

use crate::congestion_control::rounds::Rounds;
use crate::identity::sequence::Pos;
use crate::series::evidence::{Silence, Silences, Wakeup};
use crate::series::limits::{Bins, State};
use crate::series::losses::Losses;
use crate::series::output::{Series, SeriesSelection};
use crate::series::stamps::Stamps;
use crate::tcp::bursts::Bursts;
use crate::tcp::holes::Holes;
use crate::tcp::hosts::Hosts;
use crate::tcp::missing::{EarlyAck, Missing};
use crate::tcp::retransmission::{IdOrder, Recovery};
use crate::tcp::scoreboard::Scoreboard;
use crate::tcp::sender_view::{Echoes, SenderView};
use crate::tcp::spurious::Spurious;
use crate::tcp::window_bound::WindowBound;
use units::{DelayedAcks, Delays, Histogram};

/// What `Stream::on_data` and `Stream::on_ack` need from the connection and the table.
pub(crate) struct Context<'a> {
    pub now: Instant,
    pub flow: u32,
    pub selected: SeriesSelection,
    pub series: &'a mut Series,
    pub bin: Duration,
    /// What a round trip with timestamps stands for at first.
    pub trips_every: Duration,
    pub hosts: &'a Hosts,
    /// Rows of this stream's sender and receiver in the host table.
    pub link: (u32, u32),
}

impl Context<'_> {
    /// Bytes of the link in this direction so far.
    pub fn link_bytes(&self) -> u64 {
        self.hosts.link_bytes(self.link.0, self.link.1)
    }
}

/// Counters, copied into the row at the end.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Counts {
    pub packets: u64,
    pub data_packets: u64,
    pub wire_bytes: u64,
    pub payload_bytes: u64,
    pub seen_bytes: u64,
    pub retransmissions: u64,
    pub retransmitted_bytes: u64,
    pub fast: u64,
    pub timeout: u64,
    pub tail_probe: u64,
    pub spurious: u64,
    pub refused: u64,
    pub timeouts: u64,
    pub out_of_order: u64,
    pub reordering_max: Duration,
    pub ambiguous: u64,
    pub dup_acks: u64,
    pub sack_blocks: u64,
    pub dsacks: u64,
    pub ecn_ce: u64,
    pub ecn_ece: u64,
    pub idle_count: u64,
    pub idle: Duration,
    pub window_full: u64,
    pub zero_windows: u64,
    pub zero_window_probes: u64,
    pub keep_alives: u64,
    pub gap_bytes: u64,
    /// Bytes beyond the right edge of every window that the capture had shown by then.
    pub beyond_window: u64,
    pub offloaded: u64,
}

/// Number of such ACKs that show a window in bytes: one may be chance, or a receiver that shrinks its window once.
const EXACT_ACKS: u8 = 3;

/// Window scale of the receiver of this stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scale {
    /// Shift from the SYN; 0 where it had no such option.
    pub known: Option<u8>,
    /// Lower bound from bytes in flight, where the SYN is missing.
    pub inferred: u8,
    /// ACKs whose window field was less than before by just what they acknowledged, without the SYN.
    pub exact: u8,
}

impl Scale {
    /// Whether the window is known in bytes. Where the SYN is missing, a field that falls by just the bytes acknowledged is in
    /// bytes: with a scale the right edge would move back, which no receiver does again and again (RFC 9293 section 3.8.6).
    #[inline]
    pub fn certain(self) -> bool {
        self.known.is_some() || self.inferred == 0 && self.exact >= EXACT_ACKS
    }

    pub fn shift(self) -> u8 {
        self.known.unwrap_or(self.inferred)
    }
}

/// Smoothed RTT as RFC 6298 section 2 has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Smoothed {
    pub srtt: u64,
    pub rttvar: u64,
}

impl Smoothed {
    #[inline]
    pub fn update(&mut self, ns: u64) {
        // Caps the result of a clock step at a year, so that the weights below do not overflow.
        let ns = ns.min(1 << 55);
        if self.srtt == 0 {
            *self = Smoothed { srtt: ns, rttvar: ns / 2 };
        } else {
            self.rttvar = (self.rttvar * 3 + self.srtt.abs_diff(ns)) / 4;
            self.srtt = (self.srtt * 7 + ns) / 8;
        }
    }
}

/// The sender waits for an answer that the capture has seen, or to a repetition that it has not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// When the answer passed that the sender lacked; `None` before.
    pub answered: Option<Instant>,
}

/// Measurements of a stream with data; a stream of ACKs alone has none. The fields that most segments need stand first;
/// their order is that in memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Measured {
    pub bins: Bins,
    pub board: Scoreboard,
    pub idle_from: Option<Instant>,
    pub zero_since: Option<Instant>,
    pub full_since: Option<Instant>,
    pub last_data: Instant,
    pub last_progress: Instant,
    pub last_acked_data: Instant,
    /// Time of the receiver's last packet.
    pub last_ack: Instant,
    pub smoothed: Smoothed,
    pub order: IdOrder,
    pub wakeup_open: bool,
    pub in_flight_plain_max: u64,
    pub recovery: Recovery,
    /// The time without an answer that is still open.
    pub silence: Option<Silence>,
    pub silences: Silences,
    /// Away from the sender: it waits for an answer to what it repeats.
    pub waiting: Option<Waiting>,
    /// When the retransmission timer fires again, if nothing is answered: it doubles each time.
    pub next_timeout: Instant,
    /// No new data since the last acknowledgement of new data.
    pub unreleased: bool,
    /// Since when an acknowledgement has left room for a segment in the window.
    pub room_since: Instant,
    pub in_flight: Histogram,
    pub rtt: Delays,
    pub stamps: Stamps,
    pub losses: Losses,
    pub delayed_acks: DelayedAcks,
    pub window_probe: Option<(Pos, Instant)>,
    pub window_bound: WindowBound,
    pub holes: Holes,
    /// What the capture lacks of the data.
    pub missing: Missing,
    /// Data that was acknowledged before it was seen, and when.
    pub early_ack: Option<EarlyAck>,
    pub bursts: Bursts,
    /// The round trips by which the congestion control is recognised.
    pub rounds: Rounds,
    pub loaded_rtt: Delays,
    pub echoes: Echoes,
    pub known: Option<SenderView>,
    /// Timestamp of the newest data segment, and the state before the first one of that timestamp.
    pub tick: (Option<u32>, State),
    pub last_near: Option<u64>,
    /// A sample far below the minimum that a second one has not confirmed yet.
    pub undercut: Option<u64>,
    pub spurious: Spurious,
    pub window_rtt: Histogram,
    pub wakeups: Vec<Wakeup>,
    pub first_data: Instant,
    /// Bytes delivered in the warm-up.
    pub before: Bytes,
    pub full_first: Option<Instant>,
    pub full_rtt_min: Option<u64>,
    pub zero_first: Option<Instant>,
}

impl Measured {
    #[cold]
    #[inline(never)]
    pub fn new(cx: &Context<'_>) -> Box<Measured> {
        let now = cx.now;
        Box::new(Measured {
            bins: Bins::new(now, cx.bin, cx.link_bytes()),
            board: Scoreboard::default(),
            idle_from: None,
            zero_since: None,
            full_since: None,
            last_data: now,
            last_progress: now,
            last_acked_data: now,
            last_ack: now,
            smoothed: Smoothed::default(),
            order: IdOrder::default(),
            wakeup_open: false,
            in_flight_plain_max: 0,
            recovery: Recovery::default(),
            silence: None,
            silences: Silences::default(),
            waiting: None,
            next_timeout: now,
            unreleased: false,
            room_since: now,
            in_flight: Histogram::default(),
            rtt: Delays::default(),
            stamps: Stamps::new(cx.trips_every),
            losses: Losses::default(),
            delayed_acks: DelayedAcks::default(),
            window_probe: None,
            window_bound: WindowBound::default(),
            holes: Holes::default(),
            missing: Missing::default(),
            early_ack: None,
            bursts: Bursts::default(),
            rounds: Rounds::default(),
            loaded_rtt: Delays::default(),
            echoes: Echoes::default(),
            known: None,
            tick: (None, State::default()),
            last_near: None,
            undercut: None,
            spurious: Spurious::default(),
            window_rtt: Histogram::default(),
            wakeups: Vec::new(),
            first_data: now,
            before: Bytes::ZERO,
            full_first: None,
            full_rtt_min: None,
            zero_first: None,
        })
    }

    /// The retransmission timer fired at `now`, with `segments` repeated.
    #[cold]
    pub fn unanswered(&mut self, now: Instant, fired: bool, segments: u64) {
        match &mut self.silence {
            Some(silence) => {
                silence.repeats += segments;
                self.silences.backoffs += u64::from(fired);
            }
            None if fired => {
                self.silence = Some(Silence {
                    since: now,
                    until: now,
                    repeats: segments,
                    received: 0,
                    answered: false,
                });
            }
            None => {}
        }
    }

    /// Ends the time without an answer: by a new acknowledgement (`answered`), or with the flow.
    #[cold]
    pub fn end_silence(&mut self, now: Instant, answered: bool) {
        let Some(silence) = self.silence.take() else { return };
        let silence = Silence { until: now.max(silence.since), answered, ..silence };
        let length = |s: Silence| s.until.since(s.since);
        self.silences.count += 1;
        self.silences.time += length(silence);
        if self.silences.longest.is_none_or(|longest| length(longest) < length(silence)) {
            self.silences.longest = Some(silence);
        }
    }

    /// Resets distributions, shares and goodput, which begin at `from`, when `before` had been delivered. The state of
    /// the connection and its counters stay.
    #[cold]
    #[inline(never)]
    pub fn measure_from(&mut self, from: Instant, before: Bytes) {
        self.rtt = Delays::default();
        self.stamps.clear();
        self.losses = Losses::default();
        self.loaded_rtt = Delays::default();
        self.window_rtt = Histogram::default();
        self.in_flight = Histogram::default();
        self.in_flight_plain_max = 0;
        self.full_rtt_min = None;
        self.first_data = self.first_data.max(from);
        self.before = before;
        self.bins.measure_from(from);
    }
}
