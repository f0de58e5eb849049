//! The rows that the analysis returns: one [`Connection`], two [`Flow`]s (one per direction), [`Finding`]s, and
//! on request [`Sample`]s, [`Event`]s and [`Segment`]s. Column names and units of the tables made from them are in
//! `docs/format.md`; a statistic that was never measured is `None`, never zero.

use capture::Addr;

use crate::congestion_control::Recognised;
use units::{Bytes, Duration, Instant, Rate};
pub use units::{Limit, Quantiles};

/// What carries the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP, followed in full.
    Tcp,
    /// UDP (QUIC, VPN, DNS …), counted.
    Udp,
    /// ICMP and ICMPv6: pings have round trips, other messages are counted.
    Icmp,
    /// Any other IP protocol, by number, counted.
    Other(u8),
}

/// How a connection ended within the capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Both sides sent FIN (or one did and the other's was not captured).
    Fin,
    /// One side sent RST.
    Rst,
    /// Still open when the capture stopped, or never seen to close.
    Open,
}

/// Where the capture was taken, seen from one flow (its data's sender).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Vantage {
    /// At or near the flow's sender.
    Sender,
    /// At or near the flow's receiver.
    Receiver,
    /// Between both, beside neither.
    Middle,
    /// Too little was seen to infer it.
    #[default]
    Unknown,
}

/// How the RTT of a flow was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RttMethod {
    /// Sequence number to its acknowledgement, Karn's rule, SACK included.
    SeqAck,
    /// TSval to its echo in TSecr (RFC 7323).
    Timestamps,
    /// Both halves added up (capture in the middle).
    Halves,
    /// The DRWA paper's second estimator: first acknowledgement of a byte to the data one window beyond. An upper bound.
    Window,
    /// Echo request to its reply (ping).
    Echo,
    /// UDP request to its answer.
    Answer,
    /// No sample was possible.
    None,
}

/// One connection: the two flows between a and b. `a` sent the SYN or was seen first.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Number in order of first packet, from 0.
    pub id: u32,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Address of side a.
    pub a_addr: Addr,
    /// Port of side a (ICMP echo: the identifier).
    pub a_port: u16,
    /// Address of side b.
    pub b_addr: Addr,
    /// Port of side b.
    pub b_port: u16,
    /// Time of the first packet.
    pub start: Instant,
    /// Time of the last packet.
    pub end: Instant,
    /// SYN → SYN/ACK → ACK, both halves; `None` without a clean handshake.
    pub initial_rtt: Option<Duration>,
    /// Whether a SYN of this connection is in the capture.
    pub syn_seen: bool,
    /// How the connection ended.
    pub end_kind: End,
    /// Where the capture was taken, seen from a: `Sender` means near a, `Receiver` near b.
    pub vantage: Vantage,
    /// Whether it is a subflow of Multipath TCP.
    pub mptcp: bool,
    /// Capture interface of the first packet.
    pub interface: u32,
    /// Packets, both directions, duplicates of the capture not counted.
    pub packets: u64,
    /// IP bytes, both directions.
    pub bytes: Bytes,
    /// Packets that the capture contains twice (mirror port), dropped before the analysis.
    pub duplicates: u64,
    /// Bytes acknowledged but not in the capture: the capture itself lost packets.
    pub capture_gaps: Bytes,
}

/// One direction of a connection. All data figures are those of the data that this side sent.
#[derive(Clone, Debug)]
pub struct Flow {
    /// 2 · connection + direction; direction 0 is a → b.
    pub id: u32,
    /// Sequence number of its first byte on the wire; `None` without the SYN.
    pub first_seq: Option<u32>,
    /// Number of packets this side sent.
    pub packets: u64,
    /// Number of packets with payload.
    pub data_packets: u64,
    /// IP bytes this side sent.
    pub wire_bytes: Bytes,
    /// Payload bytes, retransmissions included.
    pub payload_bytes: Bytes,
    /// Distinct payload bytes delivered (acknowledged where ACKs are seen, else seen once).
    pub bytes: Bytes,
    /// First data to last acknowledged data.
    pub active: Duration,
    /// `bytes` over `active`.
    pub goodput: Option<Rate>,
    /// The highest `bytes` per second over any full second (or over `active` when shorter).
    pub peak: Option<Rate>,
    /// Largest segment on the wire (no GSO/GRO segment), or the negotiated MSS.
    pub mss: u32,
    /// Where the capture was taken, seen from this flow.
    pub vantage: Vantage,
    /// How the RTT was measured.
    pub rtt_method: RttMethod,
    /// Path RTT in milliseconds.
    pub rtt_ms: Option<Quantiles>,
    /// At the receiver without timestamps: upper bounds of the RTT in milliseconds, in place of `rtt_ms`. None is below the
    /// handshake.
    pub rtt_bound_ms: Option<Quantiles>,
    /// Beside the host that answers: request to answer in milliseconds, in place of `rtt_ms`.
    pub answer_ms: Option<Quantiles>,
    /// Handshake RTT in milliseconds.
    pub initial_rtt_ms: Option<f64>,
    /// RTT while at least four segments were in flight, in milliseconds.
    pub loaded_rtt_ms: Option<Quantiles>,
    /// RTT above the path's minimum while loaded, in milliseconds.
    pub queue_ms: Option<Quantiles>,
    /// What data waited on its way beyond that way's smallest delay, by the other host's timestamps, in milliseconds.
    pub data_queue_ms: Option<Quantiles>,
    /// What ACKs waited on theirs.
    pub ack_queue_ms: Option<Quantiles>,
    /// Resolution of the timestamps that show these two, in milliseconds.
    pub timestamp_tick_ms: Option<f64>,
    /// Highest sent − highest acknowledged − SACKed, bytes, as the sender saw it.
    pub in_flight_bytes: Option<Quantiles>,
    /// The same without the SACK correction: the maximum.
    pub in_flight_plain_max: Option<Bytes>,
    /// Smallest window this flow's receiver advertised after the handshake.
    pub rwnd_min: Option<Bytes>,
    /// Largest window it advertised.
    pub rwnd_max: Option<Bytes>,
    /// Last window it advertised.
    pub rwnd_last: Option<Bytes>,
    /// Window scale of this flow's receiver; `None` when its SYN was not seen.
    pub window_scale: Option<u8>,
    /// The scale is a lower bound from bytes in flight, because the SYN is missing.
    pub window_scale_inferred: bool,
    /// Median share of the window that was in flight, in percent.
    pub window_utilisation: Option<Quantiles>,
    /// Data segments that left less than one send unit (see `stream`) of the window.
    pub window_full_count: u64,
    /// Time with less than one send unit of window left, as the sender saw it.
    pub window_full: Duration,
    /// Time when that began for the first time.
    pub window_full_first: Option<Instant>,
    /// Smallest path RTT (ms) measured while the window was full: the RTT from which it limits the rate.
    pub window_full_rtt_ms: Option<f64>,
    /// Number of spans with a window of 0.
    pub zero_window_count: u64,
    /// Total length of these spans.
    pub zero_window: Duration,
    /// Time when the first one began.
    pub zero_window_first: Option<Instant>,
    /// Number of zero-window probes.
    pub zero_window_probes: u64,
    /// Number of keep-alives.
    pub keep_alives: u64,
    /// Retransmitted segments, all causes (a GSO/GRO segment counts as its segments on the wire).
    pub retransmissions: u64,
    /// Payload bytes of all retransmissions.
    pub retransmitted_bytes: Bytes,
    /// Retransmissions after duplicate ACKs or SACK.
    pub retransmissions_fast: u64,
    /// Retransmissions after the retransmission timer.
    pub retransmissions_timeout: u64,
    /// Tail-loss probes (RFC 8985 section 7).
    pub retransmissions_tail_probe: u64,
    /// Retransmissions of data that had arrived (ACKed, SACKed, or reported by DSACK).
    pub retransmissions_spurious: u64,
    /// Retransmission timeouts (events, not segments).
    pub timeouts: u64,
    /// Late segments that were not lost but overtaken on the path.
    pub out_of_order: u64,
    /// Largest reordering: how late, in milliseconds.
    pub reordering_ms_max: Option<f64>,
    /// Late segments that may be retransmissions or reordered.
    pub ambiguous: u64,
    /// Duplicate ACKs from the receiver of this flow.
    pub dup_acks: u64,
    /// SACK blocks the receiver sent.
    pub sack_blocks: u64,
    /// DSACKs the receiver sent.
    pub dsacks: u64,
    /// Share of data segments that were lost: retransmitted and not spurious, over data segments.
    pub loss_rate: Option<f64>,
    /// Number of data packets marked CE.
    pub ecn_ce: u64,
    /// ACKs with ECE that the receiver sent.
    pub ecn_ece: u64,
    /// Times the sender had nothing in flight and nothing to send for longer than an RTT.
    pub idle_count: u64,
    /// Total length of these times.
    pub idle: Duration,
    /// ACK bursts after a silence with data in flight, see `tcp/bursts.rs`.
    pub ack_bursts: u64,
    /// Maximum bytes acknowledged by one such burst.
    pub ack_burst_bytes_max: Bytes,
    /// Maximum bytes that the sender sent at once after one.
    pub data_burst_bytes_max: Bytes,
    /// Longest silence before such a burst.
    pub ack_silence_max: Duration,
    /// p95 of the goodput of each second × minimum RTT.
    pub bdp: Option<Bytes>,
    /// p95 of bytes in flight over BDP; what exceeds 1 stands in queues.
    pub in_flight_over_bdp: Option<f64>,
    /// rwnd_max / peak rate: above this RTT (ms) the window limits the rate.
    pub rtt_ceiling_ms: Option<f64>,
    /// Goodput with a window twice as large; see `connection/summary.rs`.
    pub unlimited_goodput: Option<Rate>,
    /// Seconds under each limit, in the order of [`Limit::ALL`].
    pub limit_time: [Duration; Limit::COUNT],
    /// Too few segments, round trips or milliseconds for a rate, a limit or a grade: these have no value then.
    pub too_short: bool,
    /// The capture lacks so much of this that only counts have a value; see `connection/complete.rs`.
    pub capture_lacks: Option<CaptureLacks>,
    /// The sender's congestion control with its evidence; `None` where the packets do not show it.
    pub congestion_control: Option<Recognised>,
    /// Bufferbloat grade: A+, A, B, C, D, F by p95 of queue_ms; `None` without load.
    pub grade: Option<&'static str>,
}

impl Flow {
    /// A flow without any measurement.
    pub const fn blank(id: u32) -> Flow {
        Flow {
            id,
            first_seq: None,
            packets: 0,
            data_packets: 0,
            wire_bytes: Bytes::ZERO,
            payload_bytes: Bytes::ZERO,
            bytes: Bytes::ZERO,
            active: Duration::ZERO,
            goodput: None,
            peak: None,
            mss: 0,
            vantage: Vantage::Unknown,
            rtt_method: RttMethod::None,
            rtt_ms: None,
            rtt_bound_ms: None,
            answer_ms: None,
            initial_rtt_ms: None,
            loaded_rtt_ms: None,
            queue_ms: None,
            data_queue_ms: None,
            ack_queue_ms: None,
            timestamp_tick_ms: None,
            in_flight_bytes: None,
            in_flight_plain_max: None,
            rwnd_min: None,
            rwnd_max: None,
            rwnd_last: None,
            window_scale: None,
            window_scale_inferred: false,
            window_utilisation: None,
            window_full_count: 0,
            window_full: Duration::ZERO,
            window_full_first: None,
            window_full_rtt_ms: None,
            zero_window_count: 0,
            zero_window: Duration::ZERO,
            zero_window_first: None,
            zero_window_probes: 0,
            keep_alives: 0,
            retransmissions: 0,
            retransmitted_bytes: Bytes::ZERO,
            retransmissions_fast: 0,
            retransmissions_timeout: 0,
            retransmissions_tail_probe: 0,
            retransmissions_spurious: 0,
            timeouts: 0,
            out_of_order: 0,
            reordering_ms_max: None,
            ambiguous: 0,
            dup_acks: 0,
            sack_blocks: 0,
            dsacks: 0,
            loss_rate: None,
            ecn_ce: 0,
            ecn_ece: 0,
            idle_count: 0,
            idle: Duration::ZERO,
            ack_bursts: 0,
            ack_burst_bytes_max: Bytes::ZERO,
            data_burst_bytes_max: Bytes::ZERO,
            ack_silence_max: Duration::ZERO,
            bdp: None,
            in_flight_over_bdp: None,
            rtt_ceiling_ms: None,
            unlimited_goodput: None,
            limit_time: [Duration::ZERO; Limit::COUNT],
            too_short: false,
            capture_lacks: None,
            congestion_control: None,
            grade: None,
        }
    }
}

/// What a capture lacks of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureLacks {
    /// Most of its data.
    Data,
    /// Most of its ACKs.
    Acks,
}

impl CaptureLacks {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            CaptureLacks::Data => "data",
            CaptureLacks::Acks => "acks",
        }
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// A fact without harm.
    Info,
    /// It costs throughput or delay.
    Warning,
    /// It made the link hard to use.
    Serious,
}

impl Severity {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Serious => "serious",
        }
    }
}

/// A figure in the evidence of a finding.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A number in the unit that the key names.
    Number(f64),
    /// A word: a grade, a vantage, yes or no.
    Text(String),
}

/// One finding: the problem, since when, by which figures, and the cure.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Name of the rule, as in `diagnose::TABLE`.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// Flow, or `None` for the capture as a whole.
    pub flow: Option<u32>,
    /// Beginning of the problem.
    pub from: Instant,
    /// End of the problem.
    pub to: Instant,
    /// Evidence, keys with units (`queue_ms_p95`).
    pub values: Vec<(&'static str, Value)>,
    /// One or two sentences, figures included.
    pub text: String,
    /// The cure, in one sentence.
    pub cure: &'static str,
}

/// One bin of a flow's series.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Id of the flow.
    pub flow: u32,
    /// Beginning of the bin.
    pub time: Instant,
    /// Length of the bin.
    pub span: Duration,
    /// Payload bytes this side sent in the bin, retransmissions included.
    pub sent: Bytes,
    /// Bytes newly acknowledged, or seen for the first time where the capture has no ACKs.
    pub delivered: Bytes,
    /// Smallest path RTT in the bin, ms.
    pub rtt_ms_min: Option<f32>,
    /// Mean path RTT in the bin, ms.
    pub rtt_ms: Option<f32>,
    /// Largest path RTT in the bin, ms.
    pub rtt_ms_max: Option<f32>,
    /// Mean that data sent in the bin waited on its way, by the other host's timestamps, ms.
    pub data_queue_ms: Option<f32>,
    /// Mean that ACKs sent in the bin waited on theirs, ms.
    pub ack_queue_ms: Option<f32>,
    /// Away from the sender: mean time from data at the capture to its ACK there, ms.
    pub ack_delay_ms: Option<f32>,
    /// Maximum bytes in flight in the bin (SACK-adjusted).
    pub in_flight: Option<Bytes>,
    /// Last window advertised to this flow's sender.
    pub rwnd: Option<Bytes>,
    /// Time in the bin with less than one send unit of window left.
    pub window_full: Duration,
    /// Segments retransmitted in the bin.
    pub retransmissions: u32,
    /// What limited the flow in the bin.
    pub limit: Limit,
}

/// Kind of an [`Event`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum EventKind {
    /// SYN; value 1 for SYN/ACK.
    Syn,
    /// The first FIN of this side.
    Fin,
    /// A RST from the receiver of the flow.
    Rst,
    /// Fast retransmission; value: payload bytes.
    Fast,
    /// Retransmission after a timeout; value: payload bytes.
    Timeout,
    /// Tail-loss probe; value: payload bytes.
    TailProbe,
    /// Retransmission of data that had arrived; value: payload bytes.
    Spurious,
    /// Late on the path, not retransmitted; value: how late in ms.
    OutOfOrder,
    /// Late for an unknown reason.
    Ambiguous,
    /// The window became full; value: seconds it stayed so.
    WindowFull,
    /// The window became zero; value: seconds it stayed so.
    ZeroWindow,
    /// A probe of a zero window.
    Probe,
    /// A keep-alive outside zero windows.
    KeepAlive,
    /// DSACK from the receiver.
    Dsack,
    /// CE mark on data or ECE on an ACK.
    Ecn,
    /// The sender resumed after an idle gap; value: seconds of idleness.
    Idle,
    /// ACK burst after a silence; value: bytes it acknowledged.
    AckBurst,
    /// An answer to a request; value: ms since the request.
    Answer,
}

impl EventKind {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Syn => "syn",
            EventKind::Fin => "fin",
            EventKind::Rst => "rst",
            EventKind::Fast => "retransmission_fast",
            EventKind::Timeout => "retransmission_timeout",
            EventKind::TailProbe => "retransmission_tail_probe",
            EventKind::Spurious => "retransmission_spurious",
            EventKind::OutOfOrder => "out_of_order",
            EventKind::Ambiguous => "ambiguous",
            EventKind::WindowFull => "window_full",
            EventKind::ZeroWindow => "zero_window",
            EventKind::Probe => "zero_window_probe",
            EventKind::KeepAlive => "keep_alive",
            EventKind::Dsack => "dsack",
            EventKind::Ecn => "ecn",
            EventKind::Idle => "idle",
            EventKind::AckBurst => "ack_burst",
            EventKind::Answer => "answer",
        }
    }
}

/// An event of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Flow whose data it concerns.
    pub flow: u32,
    /// Time of the packet.
    pub time: Instant,
    /// Kind of event.
    pub kind: EventKind,
    /// Value whose meaning depends on [`EventKind`].
    pub value: f64,
    /// Sequence number it concerns, relative to the flow's first byte.
    pub seq: u64,
}

/// Kind of a [`Segment`] row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum SegmentKind {
    /// Data sent for the first time.
    Data = 0,
    /// Retransmitted data (or late data, see the event of that time).
    Again = 1,
    /// Cumulative ACK with the right edge it grants.
    Ack = 2,
    /// SACK block above the cumulative ACK.
    Sack = 3,
}

/// One data segment or ACK, for the time-sequence chart.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Flow whose sequence space it lies in.
    pub flow: u32,
    /// Time of the packet.
    pub time: Instant,
    /// Data, retransmitted data, ACK or SACK block.
    pub kind: SegmentKind,
    /// First byte, or the ACK number, relative to the flow's first byte.
    pub from: u64,
    /// End of the data or SACK block; of an ACK the right edge.
    pub to: u64,
}

impl Flow {
    /// Data segments on the wire: a GSO/GRO segment counts as those that it was divided into.
    pub fn segments(&self) -> u64 {
        self.data_packets.max(self.payload_bytes.0.checked_div(u64::from(self.mss)).unwrap_or(0))
    }

    /// Share of the flow's time under `limit`; `None` where it had no time.
    pub fn limit_share(&self, limit: Limit) -> Option<f64> {
        let whole: u64 = self.limit_time.iter().map(|d| d.as_nanos()).sum();
        (whole > 0).then(|| self.limit_time[limit as usize].as_nanos() as f64 / whole as f64)
    }

    /// The limit with the largest share; on a tie the one that takes precedence.
    pub fn main_limit(&self) -> Option<Limit> {
        let most = self.limit_time.iter().max()?;
        (*most > Duration::ZERO)
            .then(|| Limit::ALL.into_iter().find(|l| self.limit_time[*l as usize] == *most))?
    }
}
