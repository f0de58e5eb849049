//! Packets as the simulated network carries them, in a slab that queues name by handle.

use algo::{Ecn, Packet};
use units::Instant;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// A TCP segment of connection `owner`.
    #[default]
    Tcp,
    /// An ICMP echo request of probe `owner`.
    Ping,
    /// An ICMP echo reply to probe `owner`.
    Pong,
    /// A router's ICMP time exceeded for a ping of probe `owner`.
    Expired,
    /// A UDP packet of probe `owner`.
    Isochronous,
    /// A UDP packet of the voice application `owner`.
    Voice,
    /// An ICMP echo request of the gate at port `owner`.
    GatePing,
    /// The ICMP echo reply to it.
    GatePong,
}

/// TCP flags that matter here.
pub mod flags {
    pub const SYN: u8 = 1;
    pub const ACK: u8 = 2;
    pub const FIN: u8 = 4;
    /// A CE mark was received (RFC 3168).
    pub const ECE: u8 = 8;
    /// The window was reduced for it.
    pub const CWR: u8 = 16;
}

/// SACK blocks that fit beside timestamps.
pub const SACK_BLOCKS: usize = 3;

/// A packet. Sequence numbers count bytes of the stream from 0; SYN stands before, FIN one behind
/// the last byte.
///
/// The fields that queues and links read are in the first of its two cache lines: thousands of
/// frames are on their way.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Frame {
    pub kind: Kind,
    /// From the side that opened (0) or the other (1).
    pub side: u8,
    /// Number of ports already passed.
    pub hop: u8,
    pub flags: u8,
    /// Number of valid SACK blocks.
    pub sacks: u8,
    /// The first SACK block is a DSACK (RFC 2883).
    pub dsack: bool,
    pub ecn: Ecn,
    /// Priority band, 0 the most urgent.
    pub class: u8,
    /// The user that the traffic belongs to.
    pub host: u16,
    /// AFC's rate option, where present.
    pub rate_option: Option<u8>,
    /// Its host's number for it, where captures are made: the same wherever it is seen (RFC 791
    /// section 3.1).
    pub identification: u16,
    /// Connection, probe or application.
    pub owner: u32,
    /// Which route it takes.
    pub route: u32,
    /// Length on the IP layer.
    pub bytes: u32,
    /// Payload bytes (a FIN counts none).
    pub len: u32,
    /// TSval, in ticks of a millisecond.
    pub ts_val: u32,
    /// TSecr, in ticks of a millisecond.
    pub ts_ecr: u32,
    /// When it was sent by its host.
    pub sent: Instant,
    /// Time it has spent in queues, ns.
    pub queued: u64,
    /// First byte; of a probe its number.
    pub seq: u64,
    /// Cumulative ACK: the next byte expected.
    pub ack: u64,
    /// Window beyond `ack`, bytes.
    pub window: u64,
    /// SACK blocks, as half-open byte ranges.
    pub sack: [(u64, u64); SACK_BLOCKS],
}

impl Frame {
    /// Bytes of payload: a FIN takes a sequence number, but carries none.
    #[inline]
    pub fn payload(&self) -> u32 {
        self.len.saturating_sub(u32::from(self.flags & flags::FIN != 0))
    }

    /// What queues see of it.
    #[inline]
    pub fn packet(&self, handle: u32) -> Packet {
        Packet {
            handle,
            bytes: self.bytes,
            flow_hash: flow_hash(self.owner, self.side, self.kind),
            host: self.host,
            class: self.class,
            ecn: self.ecn,
            enqueued: Instant::ZERO,
        }
    }
}

/// Of a flow: connections differ in `owner`, their directions in `side`.
pub fn flow_hash(owner: u32, side: u8, kind: Kind) -> u32 {
    mixed((owner << 4) ^ (u32::from(side) << 3) ^ kind as u32)
}

/// A hash of a flow's number: the finalizer of MurmurHash3 (Appleby, public domain), which changes half of the bits for
/// any change of the number. A queue discipline multiplies by 2³²/φ to choose a queue; the same multiplication here would give
/// a factor near 1, and neighbouring numbers the same queue.
fn mixed(flow: u32) -> u32 {
    let mut hash = flow;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// The frames that are on their way, in slots that are used again.
#[derive(Default)]
pub struct Frames {
    slots: Vec<Frame>,
    free: Vec<u32>,
}

impl Frames {
    /// Stores a frame and returns its handle.
    #[inline]
    pub fn insert(&mut self, frame: &Frame) -> u32 {
        match self.free.pop() {
            Some(handle) => {
                self.slots[handle as usize] = *frame;
                handle
            }
            None => {
                self.slots.push(*frame);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// The frame of a handle that is alive.
    #[inline]
    pub fn get(&self, handle: u32) -> &Frame {
        &self.slots[handle as usize]
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, handle: u32) -> &mut Frame {
        &mut self.slots[handle as usize]
    }

    /// Frees the slot of a frame that was delivered or dropped.
    #[inline]
    pub fn remove(&mut self, handle: u32) -> Frame {
        self.free.push(handle);
        self.slots[handle as usize]
    }

    /// Number of frames on their way.
    pub fn alive(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_two_cache_lines_and_routers_need_the_first() {
        assert_eq!(size_of::<Frame>(), 128);
        assert!(std::mem::offset_of!(Frame, seq) + 8 <= 64);
    }

    #[test]
    fn transfers_and_pings_have_queues_of_their_own() {
        // As FQ-CoDel chooses among its 1,024 queues. A ping's reply shared that of a download's data.
        let queue = |frame: &Frame| {
            (u64::from(frame.packet(0).flow_hash.wrapping_mul(0x9e37_79b1)) * 1024) >> 32
        };
        let mut taken = [false; 1024];
        for owner in 0..4 {
            for side in 0..2 {
                for kind in [Kind::Tcp, Kind::Ping, Kind::Pong] {
                    let at = queue(&Frame { owner, side, kind, ..Frame::default() }) as usize;
                    assert!(!taken[at], "owner {owner}, side {side}, {kind:?}");
                    taken[at] = true;
                }
            }
        }
    }
}
