//! The state of one stream: what it counts, and what a stream with data measures. What is done with it is in
//! `stream` (data) and `feedback` (ACKs).

use units::{Bytes, Duration, Instant};

use crate::packet::sequence::Pos;
use crate::series::evidence::Wakeup;
use crate::series::limits::Bins;
use crate::series::output::{Series, Wanted};
use crate::tcp::bursts::Bursts;
use crate::tcp::hosts::Hosts;
use crate::tcp::retransmission::{Hole, IdOrder, Recovery};
use crate::tcp::scoreboard::Scoreboard;
use crate::tcp::sender_view::{Echoes, Known};
use units::Histogram;

/// What `on_data` and `on_ack` need from outside.
pub(crate) struct Context<'a> {
    pub now: Instant,
    pub flow: u32,
    pub wanted: Wanted,
    pub series: &'a mut Series,
    pub bin: Duration,
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

/// Plain counters, as they go into the row.
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
    pub giants: u64,
}

/// Window scale of the receiver of this stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scale {
    /// From the SYN; 0 where it offered none.
    pub known: Option<u8>,
    /// Lower bound from bytes in flight, where the SYN is missing.
    pub inferred: u8,
}

impl Scale {
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
        // A clock that leaps by centuries is no RTT; a year leaves room for the weights.
        let ns = ns.min(1 << 55);
        if self.srtt == 0 {
            *self = Smoothed { srtt: ns, rttvar: ns / 2 };
        } else {
            self.rttvar = (self.rttvar * 3 + self.srtt.abs_diff(ns)) / 4;
            self.srtt = (self.srtt * 7 + ns) / 8;
        }
    }
}

/// A resend that a DSACK may yet show to have been needless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resent {
    pub start: Pos,
    pub end: Pos,
    pub spurious: bool,
    /// Sent again because something above it had arrived.
    pub overtaken: bool,
}

/// Everything that only a stream with data needs; pure ACK senders do without. What most segments need stands first
/// and in that order in memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Measured {
    pub bins: Bins,
    pub board: Scoreboard,
    pub idle_from: Option<Instant>,
    pub zero_since: Option<Instant>,
    pub full_since: Option<Instant>,
    pub last_data: Instant,
    pub last_news: Instant,
    pub last_acked_data: Instant,
    pub smoothed: Smoothed,
    pub order: IdOrder,
    pub wakeup_open: bool,
    pub in_flight_plain_max: u64,
    pub recovery: Recovery,
    pub in_flight: Histogram,
    pub rtt: Histogram,
    pub window_probe: Option<(Pos, Instant)>,
    pub holes: Vec<Hole>,
    pub bursts: Bursts,
    pub loaded_rtt: Histogram,
    pub echoes: Echoes,
    pub known: Option<Known>,
    pub last_near: Option<u64>,
    /// A sample far below the minimum that waits for a second one.
    pub undercut: Option<u64>,
    pub resends: Vec<Resent>,
    pub window_rtt: Histogram,
    pub wakeups: Vec<Wakeup>,
    pub first_data: Instant,
    /// Delivered in the warm-up.
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
            last_news: now,
            last_acked_data: now,
            smoothed: Smoothed::default(),
            order: IdOrder::default(),
            wakeup_open: false,
            in_flight_plain_max: 0,
            recovery: Recovery::default(),
            in_flight: Histogram::default(),
            rtt: Histogram::default(),
            window_probe: None,
            holes: Vec::new(),
            bursts: Bursts::default(),
            loaded_rtt: Histogram::default(),
            echoes: Echoes::default(),
            known: None,
            last_near: None,
            undercut: None,
            resends: Vec::new(),
            window_rtt: Histogram::default(),
            wakeups: Vec::new(),
            first_data: now,
            before: Bytes::ZERO,
            full_first: None,
            full_rtt_min: None,
            zero_first: None,
        })
    }

    /// Distributions, shares and goodput begin at `from`, when `before` was delivered. The state of the connection
    /// stays, and so do its counters.
    #[cold]
    #[inline(never)]
    pub fn measure_from(&mut self, from: Instant, before: Bytes) {
        self.rtt = Histogram::default();
        self.loaded_rtt = Histogram::default();
        self.window_rtt = Histogram::default();
        self.in_flight = Histogram::default();
        self.in_flight_plain_max = 0;
        self.full_rtt_min = None;
        self.first_data = self.first_data.max(from);
        self.before = before;
        self.bins.measure_from(from);
    }
}
