//! Thousands of queues in one piece of memory.
//!
//! Nodes are linked by index, and the free nodes have a list of their own: in steady state no packet
//! allocates, and an empty queue costs nothing. [`Ring`] links queues (or hosts) in the same way, for
//! round robins.

use alloc::vec::Vec;

use crate::Packet;

/// Index that stands for no node.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    packet: Packet,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    head: u32,
    tail: u32,
}

/// A fixed number of queues with common memory.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    nodes: Vec<Node>,
    free: u32,
    ends: Vec<Ends>,
    bytes: Vec<u64>,
    // A bit for each queue with a packet: the search for the longest skips empty ones 64 at a time.
    busy: Vec<u64>,
    packets: usize,
    total: u64,
}

impl Slab {
    /// A slab of `queues` empty queues.
    pub fn new(queues: usize) -> Slab {
        Slab {
            nodes: Vec::new(),
            free: NONE,
            ends: alloc::vec![Ends { head: NONE, tail: NONE }; queues],
            bytes: alloc::vec![0; queues],
            busy: alloc::vec![0; queues.div_ceil(64)],
            packets: 0,
            total: 0,
        }
    }

    /// Appends to `queue`, which has to exist.
    #[inline]
    pub fn push(&mut self, queue: usize, packet: Packet) {
        let node = Node { packet, next: NONE };
        let index = if self.free == NONE {
            // Handles have 32 bits, so there are fewer than 2³² packets.
            let index = self.nodes.len() as u32;
            self.nodes.push(node);
            index
        } else {
            let index = self.free;
            let slot = &mut self.nodes[index as usize];
            self.free = slot.next;
            *slot = node;
            index
        };
        let ends = &mut self.ends[queue];
        if ends.tail == NONE {
            ends.head = index;
            self.busy[queue / 64] |= 1 << (queue % 64);
        } else {
            self.nodes[ends.tail as usize].next = index;
        }
        ends.tail = index;
        self.bytes[queue] += u64::from(packet.bytes);
        self.packets += 1;
        self.total += u64::from(packet.bytes);
    }

    /// Removes the head of `queue`.
    #[inline]
    pub fn pop(&mut self, queue: usize) -> Option<Packet> {
        let ends = &mut self.ends[queue];
        let index = ends.head;
        if index == NONE {
            return None;
        }
        let node = &mut self.nodes[index as usize];
        ends.head = node.next;
        if ends.head == NONE {
            ends.tail = NONE;
            self.busy[queue / 64] &= !(1 << (queue % 64));
        }
        node.next = self.free;
        self.free = index;
        let packet = node.packet;
        self.bytes[queue] -= u64::from(packet.bytes);
        self.packets -= 1;
        self.total -= u64::from(packet.bytes);
        Some(packet)
    }

    /// Whether `queue` has no packet.
    #[inline]
    pub fn is_empty(&self, queue: usize) -> bool {
        self.ends[queue].head == NONE
    }

    /// Bytes in this one `queue`.
    #[inline]
    pub fn queue_bytes(&self, queue: usize) -> u64 {
        self.bytes[queue]
    }

    /// Packets of all queues.
    #[inline]
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Bytes of all queues.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.total
    }

    /// The queue with most bytes, the first of several; `None` if all are empty. Reads every queue with
    /// packets: only for overflows.
    pub fn longest(&self) -> Option<usize> {
        let mut best: Option<(usize, u64)> = None;
        for (word, &bits) in self.busy.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let queue = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let bytes = self.bytes[queue];
                if best.is_none_or(|(_, most)| bytes > most) {
                    best = Some((queue, bytes));
                }
            }
        }
        best.map(|(queue, _)| queue)
    }
}

/// A possible member of a [`Ring`]: it contains the link to the next one.
pub(super) trait Linked {
    fn next(&mut self) -> &mut u32;
}

/// A list through the `next` of its members; each member is in at most one ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    head: u32,
    tail: u32,
}

impl Ring {
    /// A ring without members.
    pub const EMPTY: Ring = Ring { head: NONE, tail: NONE };

    /// The first member, if any.
    #[inline]
    pub fn front(&self) -> Option<usize> {
        (self.head != NONE).then_some(self.head as usize)
    }

    /// Adds a member at the end.
    #[inline]
    pub fn push<T: Linked>(&mut self, members: &mut [T], index: usize) {
        *members[index].next() = NONE;
        if self.tail == NONE {
            self.head = index as u32;
        } else {
            *members[self.tail as usize].next() = index as u32;
        }
        self.tail = index as u32;
    }

    /// Removes the first member.
    #[inline]
    pub fn pop<T: Linked>(&mut self, members: &mut [T]) {
        if self.head != NONE {
            self.head = *members[self.head as usize].next();
            if self.head == NONE {
                self.tail = NONE;
            }
        }
    }

    /// The first member becomes the last.
    #[inline]
    pub fn rotate<T: Linked>(&mut self, members: &mut [T]) {
        if let Some(first) = self.front().filter(|_| self.head != self.tail) {
            self.pop(members);
            self.push(members, first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    proptest! {
        // The clever structure against one deque for each queue.
        #[test]
        fn the_slab_behaves_as_a_deque_for_each_queue_would(
            steps in proptest::collection::vec((0_usize..5, any::<bool>(), 0_u32..2_000), 1..300),
        ) {
            // Queues in three words of the bit map.
            let place = |queue: usize| queue * 40;
            let mut slab = Slab::new(161);
            let mut naive: Vec<VecDeque<Packet>> = alloc::vec![VecDeque::new(); 5];
            let bytes = |q: &VecDeque<Packet>| q.iter().map(|p| u64::from(p.bytes)).sum::<u64>();
            for (handle, (queue, arrives, length)) in steps.into_iter().enumerate() {
                if arrives {
                    let packet = Packet { handle: handle as u32, bytes: length, ..Packet::default() };
                    slab.push(place(queue), packet);
                    naive[queue].push_back(packet);
                } else {
                    prop_assert_eq!(slab.pop(place(queue)), naive[queue].pop_front());
                }
                prop_assert_eq!(slab.packets(), naive.iter().map(VecDeque::len).sum::<usize>());
                prop_assert_eq!(slab.bytes(), naive.iter().map(bytes).sum::<u64>());
                let most = naive.iter().map(bytes).max().unwrap_or(0);
                match slab.longest() {
                    None => prop_assert!(naive.iter().all(VecDeque::is_empty)),
                    Some(q) => {
                        prop_assert!(!slab.is_empty(q));
                        prop_assert_eq!((slab.queue_bytes(q), bytes(&naive[q / 40])), (most, most));
                    }
                }
            }
            // Nodes are used again: never more than were held at once, so 300 at the most.
            prop_assert!(slab.nodes.len() <= 300);
        }
    }
}
