//! The rows of a result: plain figures, in the order in which they happened.
//!
//! Column names and units of the tables made from them are in `docs/format.md`. A figure that was
//! never measured is `None`.

pub use algo::port::{QueueRow, StageRow};
pub use units::Limit;
use units::{Bytes, Duration, Instant, Quantiles, Rate};

/// A connection.
#[derive(Clone, Debug)]
pub struct ConnectionRow {
    /// Number in order of opening.
    pub id: u32,
    /// Index of the scenario's flow that it belongs to.
    pub flow: usize,
    /// Node that opened it.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// Port of `a`.
    pub a_port: u16,
    /// Port of `b`.
    pub b_port: u16,
    /// SYN.
    pub start: Instant,
    /// Last frame.
    pub end: Instant,
    /// SYN to SYN/ACK.
    pub initial_rtt: Option<Duration>,
    /// Closed by both sides.
    pub closed: bool,
    /// Frames, both ways.
    pub packets: u64,
    /// IP bytes, both ways.
    pub bytes: u64,
}

/// One direction of a connection; figures are those of the data that its side sent, after the
/// warm-up where they are statistics.
#[derive(Clone, Debug)]
pub struct FlowRow {
    /// 2 · connection + side.
    pub id: u32,
    /// Name of its congestion control.
    pub congestion: &'static str,
    /// Name of its receiver's window law.
    pub window_law: &'static str,
    /// Segments with payload sent.
    pub data_packets: u64,
    /// IP bytes sent.
    pub wire_bytes: u64,
    /// Payload bytes sent, retransmissions included.
    pub payload_bytes: u64,
    /// Payload bytes that the receiver had in order at the end.
    pub bytes: u64,
    /// First data to last delivery, after the warm-up.
    pub active: Duration,
    /// Delivered over `active`.
    pub goodput: Option<Rate>,
    /// The best second.
    pub peak: Option<Rate>,
    /// Payload of a full segment.
    pub mss: u32,
    /// RTT at the sender, ms.
    pub rtt_ms: Option<Quantiles>,
    /// Handshake, ms.
    pub initial_rtt_ms: Option<f64>,
    /// Time that its data spent in queues, ms: the truth that an analysis has to find.
    pub queue_ms: Option<Quantiles>,
    /// Largest in flight of each bin.
    pub in_flight_bytes: Option<Quantiles>,
    /// Smallest window advertised to it.
    pub rwnd_min: Option<u64>,
    /// Largest.
    pub rwnd_max: Option<u64>,
    /// Last.
    pub rwnd_last: Option<u64>,
    /// Time with less than a segment of window left, zero windows included.
    pub window_full: Duration,
    /// Zero windows.
    pub zero_window_count: u64,
    /// Their length.
    pub zero_window: Duration,
    /// Window probes.
    pub zero_window_probes: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Their bytes.
    pub retransmitted_bytes: u64,
    /// … after SACK or duplicate ACKs.
    pub retransmissions_fast: u64,
    /// … after a timeout.
    pub retransmissions_timeout: u64,
    /// … as tail-loss probes.
    pub retransmissions_tail_probe: u64,
    /// … in vain.
    pub retransmissions_spurious: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Recovery episodes.
    pub recoveries: u64,
    /// Decreases taken back.
    pub undone: u64,
    /// Segments of this flow that the network lost.
    pub lost_packets: u64,
    /// Segments marked CE.
    pub ecn_ce: u64,
    /// Share of time by limit, in the order of [`Limit::ALL`].
    pub shares: Option<[f64; 8]>,
}

/// One bin of one direction.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow {
    /// Direction.
    pub flow: u32,
    /// Begin.
    pub t: Instant,
    /// Length.
    pub span: Duration,
    /// Payload bytes sent.
    pub sent: u64,
    /// Payload bytes delivered in order.
    pub delivered: u64,
    /// Smallest, mean and largest RTT.
    pub rtt: Option<(Duration, Duration, Duration)>,
    /// Largest in flight.
    pub in_flight: u64,
    /// Window told, at the end.
    pub rwnd: u64,
    /// Congestion window, at the end.
    pub cwnd: u64,
    /// Slow-start threshold, where there is one.
    pub ssthresh: Option<u64>,
    /// Pacing rate, where it paces.
    pub pacing: Option<Rate>,
    /// Mean time in queues of the data that arrived.
    pub queue: Option<Duration>,
    /// Time with less than a segment of window left.
    pub window_full: Duration,
    /// Segments sent again.
    pub retransmissions: u64,
    /// What held it back for most of the bin.
    pub limit: Limit,
}

/// A probe packet.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRow {
    /// Index of the probe.
    pub probe: usize,
    /// When it was sent.
    pub t: Instant,
    /// There and back.
    pub rtt: Option<Duration>,
    /// One way.
    pub owd: Option<Duration>,
    /// It did not come back (or through).
    pub lost: bool,
}

/// Something that happened to a direction at a moment.
#[derive(Clone, Copy, Debug)]
pub struct EventRow {
    /// Direction.
    pub flow: u32,
    /// When.
    pub t: Instant,
    /// What: `drop_overflow`, `drop_aqm`, `drop_link`, `ecn_mark`.
    pub kind: &'static str,
    /// Its figure: the payload bytes lost.
    pub value: f64,
    /// First byte that it concerns.
    pub seq: u64,
}

/// What an application measured.
#[derive(Clone, Debug)]
pub struct AppRow {
    /// Index of the scenario's flow.
    pub flow: usize,
    /// When.
    pub t: Instant,
    /// `page_load_ms`, `object_ms`, `file_ms`, `response_ms`, `stall_ms`, `bitrate_bps`,
    /// `startup_ms`, `mos` …
    pub kind: &'static str,
    /// The figure.
    pub value: f64,
}

/// Frames by fate: sent = delivered + dropped + lost + still on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conservation {
    /// Sent by hosts.
    pub sent: u64,
    /// Taken by hosts.
    pub delivered: u64,
    /// Dropped in queues.
    pub dropped: u64,
    /// Lost on links.
    pub lost: u64,
    /// In queues at the end.
    pub queued: u64,
    /// On links at the end.
    pub flying: u64,
}

impl Conservation {
    /// Whether every frame is accounted for.
    pub fn holds(&self) -> bool {
        self.sent == self.delivered + self.dropped + self.lost + self.queued + self.flying
    }
}

/// All that a run gives.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Connections.
    pub connections: Vec<ConnectionRow>,
    /// Their directions that carried data, or all.
    pub flows: Vec<FlowRow>,
    /// Series of the directions.
    pub samples: Vec<SampleRow>,
    /// Series of the queues.
    pub queues: Vec<QueueRow>,
    /// Queues as a whole.
    pub stages: Vec<StageRow>,
    /// Probes.
    pub probes: Vec<ProbeRow>,
    /// Losses and marks.
    pub events: Vec<EventRow>,
    /// Applications.
    pub apps: Vec<AppRow>,
    /// The account of frames.
    pub conservation: Conservation,
    /// Events that the engine handled.
    pub engine_events: u64,
    /// Data segments delivered to hosts.
    pub data_packets: u64,
    /// How long the run was.
    pub duration: Duration,
    /// Bytes of payload delivered in order, all directions, for a quick check.
    pub delivered: Bytes,
}
