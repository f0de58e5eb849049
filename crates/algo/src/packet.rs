//! What a queue or a link knows of a packet. The world that owns the frames keeps them; queues hold these handles.

use units::Instant;

/// The ECN field of the IP header (RFC 3168 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: congestion is told by dropping.
    #[default]
    NotCapable,
    /// ECT(1): L4S.
    Capable1,
    /// ECT(0): classic.
    Capable0,
    /// Congestion experienced.
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
    /// The owner's name for the frame.
    pub handle: u32,
    /// Length on the IP layer, bytes.
    pub bytes: u32,
    /// Hash of the five-tuple: flow queueing.
    pub flow_hash: u32,
    /// Number of the host whose traffic this is (the user behind a base station, the machine behind a router).
    pub host: u16,
    /// Priority band, 0 the most urgent: interactive 0, best effort 1, bulk 2. Pure ACKs and probes carry what the
    /// scenario gives them.
    pub class: u8,
    /// ECN field; a queue that marks sets it on the packet that it hands out.
    pub ecn: Ecn,
    /// When it entered the queue; set by [`crate::aqm::QueueDiscipline::enqueue`]'s caller.
    pub enqueued: Instant,
}
