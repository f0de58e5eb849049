//! The input of diagnosis rules: the finished rows of one connection, its profile, and bounded lists of wake-ups, bursts
//! and rival flows.

use units::{Bytes, Duration, Instant};

use crate::series::directions::Directions;
use crate::series::profile::Profile;
use crate::series::rows::{Connection, Flow};

/// The first exchange after an idle gap, for radio promotion (a cellular radio that fell asleep answers late).
#[derive(Clone, Copy, Debug)]
pub struct Wakeup {
    /// Time of the first packet after the gap.
    pub time: Instant,
    /// Time without any data in flight before it.
    pub gap: Duration,
    /// Path RTT of the first packet after the gap.
    pub first_rtt: Duration,
    /// Path RTT of the sample after that; `None` if there was none within a second.
    pub next_rtt: Option<Duration>,
}

/// A probe, the pause before it, and what its answer took.
#[derive(Clone, Copy, Debug)]
pub struct PausedProbe {
    /// Time at which it was sent.
    pub time: Instant,
    /// Time since the last packet of the host that sent it, from or to any host.
    pub pause: Duration,
    /// Probe to answer.
    pub rtt: Duration,
}

/// The probes that one host sent to another, for radio promotion.
#[derive(Clone, Copy, Debug)]
pub struct ProbePauses<'a> {
    /// The flow of the last one.
    pub flow: u32,
    /// In the order of time.
    pub probes: &'a [PausedProbe],
}

/// A silence of ACKs with data in flight, and the burst that ended it.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Time of the first ACK after the silence.
    pub time: Instant,
    /// Length of the silence.
    pub silence: Duration,
    /// Bytes acknowledged by the burst of ACKs.
    pub acked: Bytes,
    /// Bytes that the sender then sent at once.
    pub released: Bytes,
}

/// A time without an answer: from a retransmission timeout to the next new acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// Time of the first retransmission by the timer.
    pub since: Instant,
    /// Time of the acknowledgement that ended it, or of the end of the flow.
    pub until: Instant,
    /// Number of segments that the sender repeated meanwhile.
    pub repeats: u64,
    /// Number of packets of the receiver meanwhile, none of which acknowledged anything new.
    pub received: u64,
    /// A new acknowledgement ended it, not the end of the flow.
    pub answered: bool,
}

/// All times without an answer of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silences {
    /// Number of them.
    pub count: u64,
    /// Their total length.
    pub time: Duration,
    /// Number of timeouts in them after the first of each: the back-off of the timer.
    pub backoffs: u64,
    /// The longest one.
    pub longest: Option<Silence>,
    /// The sender reset the connection.
    pub reset_by_sender: bool,
    /// The receiver reset the connection.
    pub reset_by_receiver: bool,
    /// Time of the receiver's first FIN.
    pub closed_by_receiver: Option<Instant>,
}

/// Another large flow of the same capture.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Id of that flow.
    pub flow: u32,
    /// Payload bytes that it had sent so far.
    pub bytes: Bytes,
    /// Time of its first packet.
    pub start: Instant,
    /// Time of its last packet.
    pub end: Instant,
}

/// Everything about one flow, for the rules.
pub struct Evidence<'a> {
    /// Time of the first packet of the capture: texts count seconds from it, as the spans of findings do.
    pub capture_start: Instant,
    /// The connection of the flow.
    pub connection: &'a Connection,
    /// The flow itself.
    pub flow: &'a Flow,
    /// The flow in the other direction.
    pub reverse: &'a Flow,
    /// The flow in at most 512 bins; bin i begins at `profile.start() + i · profile.width()`.
    pub profile: &'a Profile,
    /// What data and ACKs waited, by the other host's timestamps; `None` where they show nothing.
    pub directions: Option<&'a Directions>,
    /// Up to 32 wake-ups after idle gaps of a second and more.
    pub wakeups: &'a [Wakeup],
    /// Up to 32 of the longest ACK silences.
    pub bursts: &'a [Burst],
    /// Times without an answer.
    pub silences: &'a Silences,
    /// Segments sent again outside of these times although they had passed a capture beside the receiver, which had not
    /// acknowledged them: the path did not lose them.
    pub refused: u64,
    /// Up to 16 of the largest flows of the capture so far, this one excluded, largest first.
    pub rivals: &'a [Rival],
    /// Smallest RTT of any connection between the same two hosts so far, ms: the path's minimum.
    pub path_rtt_ms_min: Option<f64>,
}

/// Facts about the capture as a whole, for the rule `capture-quality`.
#[derive(Clone, Debug, Default)]
pub struct CaptureFacts {
    /// Number of packets read.
    pub packets: u64,
    /// Drops reported by the capture program (pcapng interface statistics); `None` without a report.
    pub reported_drops: Option<u64>,
    /// Number of packets that the capture contains twice.
    pub duplicates: u64,
    /// TCP bytes acknowledged but never seen.
    pub gap_bytes: Bytes,
    /// Number of TCP connections.
    pub connections: u64,
    /// Number of them of which the capture lacks too much of the data or of the ACKs to judge them.
    pub incomplete: u64,
    /// Number of them without SYN.
    pub without_syn: u64,
    /// Number of them with packets in one direction only.
    pub one_sided: u64,
    /// Number of them with segments larger than any MTU (GSO/GRO).
    pub offloaded: u64,
    /// Number of packets with an earlier time than the packet before.
    pub backward_steps: u64,
    /// Number of packets with invalid headers, or cut off before the end of the TCP header.
    pub broken: u64,
    /// Time of the first packet.
    pub start: Instant,
    /// Time of the last packet.
    pub end: Instant,
}
