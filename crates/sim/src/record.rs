//! The rows of a result: plain figures, in the order in which they happened.
//!
//! Column names and units of the tables made from them are in `docs/format.md`. A figure that was
//! never measured is `None`.

pub use algo::port::{QueueRow, StageRow};
pub use units::Limit;
use units::{Bytes, Duration, Instant, Quantiles, Rate};

/// A row of table `connections`.
#[derive(Clone, Debug)]
pub struct ConnectionRow {
    /// Number in order of opening.
    pub id: u32,
    /// Index of the scenario's flow that it belongs to.
    pub flow: usize,
    /// Index of the node that opened it.
    pub a: usize,
    /// Index of the node that accepted it.
    pub b: usize,
    /// TCP port of `a`.
    pub a_port: u16,
    /// TCP port of `b`.
    pub b_port: u16,
    /// When the first SYN was sent.
    pub start: Instant,
    /// When its last frame arrived.
    pub end: Instant,
    /// Round trip of the handshake, from SYN to SYN/ACK.
    pub initial_rtt: Option<Duration>,
    /// Closed by both sides.
    pub closed: bool,
    /// Number of frames in both directions.
    pub packets: u64,
    /// IP bytes, both ways.
    pub bytes: u64,
}

/// Half a per cent of the time below and above p95: what p95 would be if a queue stood for so much shorter or longer.
pub const NEAR_P95: [f64; 2] = [0.945, 0.955];

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
    /// Bytes sent, IP headers included.
    pub wire_bytes: u64,
    /// Payload bytes sent, retransmissions included.
    pub payload_bytes: u64,
    /// Payload bytes that the receiver had in order at the end.
    pub bytes: u64,
    /// First data to last delivery, after the warm-up.
    pub active: Duration,
    /// Payload delivered in order over `active`.
    pub goodput: Option<Rate>,
    /// Goodput of the best second.
    pub peak: Option<Rate>,
    /// Payload of a full segment.
    pub mss: u32,
    /// RTT at the sender, ms.
    pub rtt_ms: Option<Quantiles>,
    /// Round trip of the handshake, ms.
    pub initial_rtt_ms: Option<f64>,
    /// Time that its data spent in queues, ms: the truth that an analysis has to find.
    pub queue_ms: Option<Quantiles>,
    /// Its quantiles of [`NEAR_P95`].
    pub queue_ms_near_p95: Option<[f64; 2]>,
    /// Largest in flight of each bin.
    pub in_flight_bytes: Option<Quantiles>,
    /// Smallest window advertised to it.
    pub rwnd_min: Option<u64>,
    /// Largest window advertised to it.
    pub rwnd_max: Option<u64>,
    /// Last window advertised to it.
    pub rwnd_last: Option<u64>,
    /// Time with less than a segment of window left, zero windows included.
    pub window_full: Duration,
    /// Number of times the window went to zero.
    pub zero_window_count: u64,
    /// Total time with a zero window.
    pub zero_window: Duration,
    /// Time that the receive window left its sender with at most one segment in flight.
    pub window_idle: Duration,
    /// Number of window probes sent.
    pub zero_window_probes: u64,
    /// Number of segments retransmitted.
    pub retransmissions: u64,
    /// Payload bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// … after SACK or duplicate ACKs.
    pub retransmissions_fast: u64,
    /// … after a timeout.
    pub retransmissions_timeout: u64,
    /// … as tail-loss probes.
    pub retransmissions_tail_probe: u64,
    /// … although the original had arrived, by DSACK.
    pub retransmissions_spurious: u64,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
    /// Number of recovery episodes.
    pub recoveries: u64,
    /// Number of window decreases that were undone as spurious.
    pub undone: u64,
    /// Segments of this flow that the network lost.
    pub lost_packets: u64,
    /// Number of segments that arrived with a CE mark.
    pub ecn_ce: u64,
    /// Share of time by limit, in the order of [`Limit::ALL`].
    pub shares: Option<[f64; Limit::COUNT]>,
}

/// One bin of one direction.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow {
    /// `id` of the direction's [`FlowRow`].
    pub flow: u32,
    /// Begin of the bin.
    pub t: Instant,
    /// Length of the bin.
    pub span: Duration,
    /// Payload bytes sent in the bin.
    pub sent: u64,
    /// Payload bytes delivered in order.
    pub delivered: u64,
    /// Smallest, mean and largest RTT.
    pub rtt: Option<(Duration, Duration, Duration)>,
    /// Largest number of bytes in flight in the bin.
    pub in_flight: u64,
    /// Advertised window at the end of the bin.
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
    /// Number of segments retransmitted.
    pub retransmissions: u64,
    /// What limited the direction for most of the bin.
    pub limit: Limit,
}

/// A packet of a probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRow {
    /// Index of the probe.
    pub probe: usize,
    /// When it was sent.
    pub t: Instant,
    /// Round-trip time of a ping.
    pub rtt: Option<Duration>,
    /// One-way delay of an isochronous packet.
    pub owd: Option<Duration>,
    /// It did not come back (or through).
    pub lost: bool,
}

/// Something that happened to a direction at a moment.
#[derive(Clone, Copy, Debug)]
pub struct EventRow {
    /// `id` of the direction's [`FlowRow`].
    pub flow: u32,
    /// When it happened.
    pub t: Instant,
    /// What: `drop_overflow`, `drop_aqm`, `drop_link`, `ecn_mark`.
    pub kind: &'static str,
    /// The payload bytes lost.
    pub value: f64,
    /// First byte that it concerns.
    pub seq: u64,
}

/// What an application measured.
#[derive(Clone, Debug)]
pub struct AppRow {
    /// Index of the scenario's flow.
    pub flow: usize,
    /// When it happened.
    pub t: Instant,
    /// `page_load_ms`, `object_ms`, `file_ms`, `response_ms`, `stall_ms`, `bitrate_bps`,
    /// `startup_ms`, `mos` …
    pub kind: &'static str,
    /// The measured value.
    pub value: f64,
}

/// Frames by fate: sent = delivered + dropped + lost + still on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conservation {
    /// Frames sent by hosts.
    pub sent: u64,
    /// Frames delivered to hosts.
    pub delivered: u64,
    /// Frames dropped in queues.
    pub dropped: u64,
    /// Frames lost on links.
    pub lost: u64,
    /// Frames in queues at the end.
    pub queued: u64,
    /// Frames on links at the end.
    pub in_flight: u64,
}

impl Conservation {
    /// Whether every frame is accounted for.
    pub fn holds(&self) -> bool {
        self.sent == self.delivered + self.dropped + self.lost + self.queued + self.in_flight
    }
}

/// All that a run gives.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Rows of table `connections`.
    pub connections: Vec<ConnectionRow>,
    /// Their directions that carried data, or all.
    pub flows: Vec<FlowRow>,
    /// Series of the directions.
    pub samples: Vec<SampleRow>,
    /// Series of the queues.
    pub queues: Vec<QueueRow>,
    /// Queues as a whole.
    pub stages: Vec<StageRow>,
    /// Rows of table `probes`.
    pub probes: Vec<ProbeRow>,
    /// Rows of table `events`: losses and marks.
    pub events: Vec<EventRow>,
    /// Rows of table `apps`.
    pub apps: Vec<AppRow>,
    /// All frames by fate.
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
