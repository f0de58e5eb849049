//! A first-in first-out queue with a byte count, for every discipline with single queues.
//!
//! The ring buffer grows to the longest queue so far and is then reused: in steady state no packet
//! allocates.

use alloc::collections::VecDeque;

use units::Bytes;

use crate::{Capacity, Packet};

/// A queue of packets in order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Fifo {
    queue: VecDeque<Packet>,
    bytes: u64,
}

impl Fifo {
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        self.bytes += u64::from(packet.bytes);
        self.queue.push_back(packet);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        self.bytes -= u64::from(packet.bytes);
        Some(packet)
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// Whether `packet` fits under `limit`.
    #[inline]
    pub fn has_space(&self, packet: &Packet, limit: Capacity) -> bool {
        match limit {
            Capacity::Packets(n) => (self.queue.len() as u64) < n,
            Capacity::Bytes(b) => self.bytes + u64::from(packet.bytes) <= b.0,
        }
    }
}
