//! What readers hand out, frames and interfaces, and the record lengths that they accept.

use units::Instant;

/// A longer record is a corrupt length: BIG TCP frames are 512 KiB, USB transfers reach 128 MiB.
pub(crate) const MAX_RECORD: u32 = 256 << 20;
/// Real files exceed their own snap length, but never 16 MiB where they announce less.
pub(crate) const SNAP_SLACK: u32 = 16 << 20;

/// Maximum plausible record length in a file of this snap length, in bytes.
pub(crate) fn max_record(snaplen: u32) -> u32 {
    snaplen.clamp(SNAP_SLACK, MAX_RECORD)
}

/// A network interface that the capture describes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Interface name; empty where the file has none.
    pub name: String,
    /// LINKTYPE_ number of its packets.
    pub linktype: u16,
    /// Bytes kept of each packet; 0 for no limit.
    pub snaplen: u32,
    /// Packets that the capture program says it dropped.
    pub reported_drops: Option<u64>,
    /// When the capture on it ended, as the capture program says.
    pub ended: Option<Instant>,
}

/// One captured packet; `data` borrows from the reader's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Capture time in nanoseconds since the epoch.
    pub time: Instant,
    /// Index into [`crate::Reader::interfaces`].
    pub interface: u32,
    /// Link type of that interface.
    pub linktype: u16,
    /// Length on the wire in bytes, at least that of `data`.
    pub wire_len: u32,
    /// The captured bytes; fewer than `wire_len` where the snap length cut the packet.
    pub data: &'a [u8],
}

/// A frame by its place in the buffer, so that a format can return it while the buffer is borrowed.
pub(crate) struct Record {
    pub(crate) time: u64,
    pub(crate) interface: u32,
    pub(crate) linktype: u16,
    pub(crate) wire_len: u32,
    pub(crate) from: usize,
    pub(crate) len: usize,
}
