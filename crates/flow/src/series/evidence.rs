//! What a diagnosis rule may look at: the finished rows of one connection and the bounded extras that the
//! tracker kept for it.

use units::{Bytes, Duration, Instant};

use crate::series::profile::Profile;
use crate::series::rows::{Connection, Flow};

/// The first exchange after an idle gap, for radio promotion (a cellular radio that fell asleep answers late).
#[derive(Clone, Copy, Debug)]
pub struct Wakeup {
    /// When the first packet after the gap went out.
    pub time: Instant,
    /// How long nothing had been in flight.
    pub gap: Duration,
    /// Path RTT of the first packet after it.
    pub first_rtt: Duration,
    /// Path RTT of the sample after that; `None` if there was none within a second.
    pub next_rtt: Option<Duration>,
}

/// A silence of ACKs with data in flight, and what its end released.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// When the ACKs came back.
    pub time: Instant,
    /// How long they had been silent.
    pub silence: Duration,
    /// Bytes they acknowledged in one go.
    pub acked: Bytes,
    /// Bytes that the sender released in answer.
    pub released: Bytes,
}

/// Another flow of the same capture that was alive at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Its flow id.
    pub flow: u32,
    /// Bytes of payload it had sent.
    pub bytes: Bytes,
    /// First packet.
    pub start: Instant,
    /// Last packet.
    pub end: Instant,
}

/// Everything about one flow, for the rules.
pub struct Evidence<'a> {
    /// Its connection.
    pub connection: &'a Connection,
    /// The flow itself.
    pub flow: &'a Flow,
    /// The other direction.
    pub reverse: &'a Flow,
    /// Its life in at most 512 bins; bin i begins at `profile.start() + i · profile.width()`.
    pub profile: &'a Profile,
    /// Up to 32 wake-ups after idle gaps of a second and more.
    pub wakeups: &'a [Wakeup],
    /// Up to 32 of the longest ACK silences.
    pub bursts: &'a [Burst],
    /// Up to 16 of the largest flows of the capture so far, this one excluded, largest first.
    pub rivals: &'a [Rival],
    /// Smallest RTT of any connection between the same two hosts so far, ms: the path's minimum.
    pub path_rtt_ms_min: Option<f64>,
}

/// What the capture as a whole showed, for the rule `capture-quality`.
#[derive(Clone, Debug, Default)]
pub struct CaptureFacts {
    /// Packets read.
    pub packets: u64,
    /// Packets the capture program says it dropped (pcapng interface statistics); `None` if it does not say.
    pub reported_drops: Option<u64>,
    /// Mirror duplicates dropped.
    pub duplicates: u64,
    /// TCP bytes acknowledged but never seen.
    pub gap_bytes: Bytes,
    /// TCP connections.
    pub connections: u64,
    /// … of which without SYN.
    pub without_syn: u64,
    /// … of which with packets in one direction only.
    pub one_sided: u64,
    /// … with segments larger than any MTU (offload).
    pub giants: u64,
    /// Packets whose time is earlier than that of the packet before.
    pub backward_steps: u64,
    /// Packets with broken headers or cut off before the end of the TCP header.
    pub broken: u64,
    /// First packet.
    pub start: Instant,
    /// Last packet.
    pub end: Instant,
}
