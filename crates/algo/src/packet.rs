//! A packet as queues and links see it: a handle with the fields that decide about it. The frame stays
//! with the simulator or emulator.

use units::Instant;

/// The ECN field of the IP header (RFC 3168 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: congestion is signalled by drops.
    #[default]
    NotCapable,
    /// ECT(1), used by L4S.
    Capable1,
    /// ECT(0), used by classic ECN.
    Capable0,
    /// The CE codepoint: congestion experienced.
    Marked,
}

impl Ecn {
    /// Whether a queue may mark instead of drop.
    #[inline]
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotCapable)
    }
}

/// A packet as queues and links see it: small and copyable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// The owner's number of the frame.
    pub handle: u32,
    /// Length on the IP layer, bytes.
    pub bytes: u32,
    /// Hash of the five-tuple: flow queueing.
    pub flow_hash: u32,
    /// Number of the host whose traffic this is (the user behind a base station, the machine behind a router).
    pub host: u16,
    /// Priority band, 0 the most urgent: interactive 0, best effort 1, bulk 2. The scenario sets it, for
    /// pure ACKs and probes, too.
    pub class: u8,
    /// ECN field; a queue that marks sets it in the packet that leaves.
    pub ecn: Ecn,
    /// When it entered the queue; [`crate::aqm::QueueDiscipline::enqueue`] sets it.
    pub enqueued: Instant,
}
