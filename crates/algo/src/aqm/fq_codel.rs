//! Flow queueing with CoDel in each queue.
//!
//! signal: the flow hash of arriving packets, and CoDel's sojourn times at the head of each queue ·
//! model: 1,024 queues. Queues that have just become busy are in a *new* list and go first, for one
//! quantum; the others share by deficit round robin. A flow that sends less than its share never waits
//! behind the others · action: the head of the next queue, after its own CoDel. If all queues together
//! are too long, drop up to half of the longest queue at its head, at most 64 packets.
//!
//! Source: RFC 8290. Deviations: the caller computes the hash; a multiplication spreads it, without RFC
//! 8290's perturbation, because runs must be repeatable. One limit, of packets or of bytes, where Linux has
//! both; no `ce_threshold`. CoDel's "no more than one MTU is left" applies to all queues together, as in Linux:
//! with one or two packets in each of many queues CoDel would never act.

use alloc::vec::Vec;

use units::{Bytes, Duration, Instant};

use super::codel::{Controller, Law, Source};
use super::slab::{Linked, NONE, Ring, Slab};
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Capacity, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "fq_codel";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "a CoDel queue for each flow, sparse flows first, the others in turn";
/// Where it is specified.
pub const SOURCE: &str = "RFC 8290";

config! {
    /// Parameters; their defaults are the published values.
    pub struct Config {
        /// Number of queues that flows are hashed to: 1,024 (RFC 8290 section 5.2.5).
        flows: u64 = 1_024, 1, 65_536;
        /// Bytes that a queue may send in each turn: 1,514, an Ethernet frame (RFC 8290 section 5.2.4).
        quantum: Bytes = Bytes(1_514), Bytes(64), Bytes(1 << 20);
        /// Packets or bytes in all queues together: 10,240 packets (RFC 8290 section 5.2.3).
        limit: Capacity = Capacity::Packets(10_240), Capacity::Packets(1), Capacity::Packets(1 << 40);
        /// Largest number of packets that one overflow drops: 64 (Linux `sch_fq_codel.c`).
        drop_batch: u64 = 64, 1, 65_536;
        /// CoDel's target: 5 ms (RFC 8290 section 5.2.2).
        target: Duration = Duration::from_millis(5), Duration::from_nanos(1), Duration::from_secs(60);
        /// CoDel's interval: 100 ms (RFC 8290 section 5.2.1).
        interval: Duration = Duration::from_millis(100), Duration::from_nanos(1), Duration::from_secs(600);
        /// Mark packets that can carry a mark instead of dropping them: on (RFC 8290 section 5.2.6).
        ecn: bool = true;
    }
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    deficit: i64,
    controller: Controller,
    next: u32,
    listed: bool,
}

impl Linked for Flow {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// One queue of the slab, for CoDel.
struct Queue<'a> {
    slab: &'a mut Slab,
    index: usize,
}

impl Source for Queue<'_> {
    #[inline]
    fn pop(&mut self) -> Option<Packet> {
        self.slab.pop(self.index)
    }
    #[inline]
    fn backlog(&self) -> Bytes {
        Bytes(self.slab.bytes())
    }
}

/// FQ-CoDel: the flow queues of one link.
#[derive(Clone, Debug)]
pub struct FqCodel {
    law: Law,
    quantum: i64,
    limit: Capacity,
    drop_batch: u32,
    slab: Slab,
    flows: Vec<Flow>,
    new: Ring,
    old: Ring,
    marks: u64,
}

/// The queue of a hash, out of `n`, by Fibonacci hashing: the high bits of the product with 2³²/φ. A
/// simulator may use plain flow numbers as hashes; they go to different queues, too.
#[inline]
pub(super) fn spread(hash: u32, n: usize) -> usize {
    ((u64::from(hash.wrapping_mul(0x9e37_79b1)) * n as u64) >> 32) as usize
}

impl FqCodel {
    /// A new set of empty queues.
    pub fn new(config: Config, setup: &Setup) -> FqCodel {
        // At least one queue; the upper bound limits memory.
        let count = config.flows.clamp(1, 1 << 20) as usize;
        let flow =
            Flow { deficit: 0, controller: Controller::default(), next: NONE, listed: false };
        FqCodel {
            law: Law {
                target: config.target,
                interval: config.interval,
                mtu: setup.mtu,
                ecn: config.ecn,
            },
            quantum: config.quantum.0.clamp(1, 1 << 30) as i64,
            limit: config.limit,
            drop_batch: u32::try_from(config.drop_batch).unwrap_or(u32::MAX).max(1),
            slab: Slab::new(count),
            flows: alloc::vec![flow; count],
            new: Ring::EMPTY,
            old: Ring::EMPTY,
            marks: 0,
        }
    }

    /// Whether all queues together have more than the limit.
    fn is_over(&self) -> bool {
        match self.limit {
            Capacity::Packets(most) => self.slab.packets() as u64 > most,
            Capacity::Bytes(most) => self.slab.bytes() > most.0,
        }
    }

    /// RFC 8290 section 4.1 drops at the head of the queue with most bytes. The search for it takes time
    /// proportional to the number of busy queues; hence it drops half of its bytes at once, at most 64
    /// packets (Linux `fq_codel_drop`).
    ///
    /// Returns whether there was a packet to drop.
    fn drop_from_longest(&mut self, dropped: &mut Dropped) -> bool {
        let Some(index) = self.slab.longest() else { return false };
        let enough = self.slab.queue_bytes(index) / 2;
        let (mut packets, mut bytes) = (0, 0);
        while packets < self.drop_batch {
            let Some(packet) = self.slab.pop(index) else { break };
            packets += 1;
            bytes += u64::from(packet.bytes);
            dropped.push((packet, Drop::Overflow));
            if bytes >= enough {
                break;
            }
        }
        self.flows[index].controller.on_overflow(packets);
        packets > 0
    }
}

impl QueueDiscipline for FqCodel {
    // RFC 8290 section 4.1.
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, _rng: &mut Rng) {
        packet.enqueued = now;
        let index = spread(packet.flow_hash, self.flows.len());
        self.slab.push(index, packet);
        let flow = &mut self.flows[index];
        if !flow.listed {
            flow.listed = true;
            flow.deficit = self.quantum;
            self.new.push(&mut self.flows, index);
        }
        // By packets one drop is enough; by bytes a large packet may displace several small ones.
        while self.is_over() && self.drop_from_longest(dropped) {}
    }

    // RFC 8290 section 4.2.
    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped, _rng: &mut Rng) -> Option<Packet> {
        loop {
            let (index, is_new) = match (self.new.front(), self.old.front()) {
                (Some(index), _) => (index, true),
                (None, Some(index)) => (index, false),
                (None, None) => return None,
            };
            let flow = &mut self.flows[index];
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                if is_new {
                    self.new.pop(&mut self.flows);
                    self.old.push(&mut self.flows, index);
                } else {
                    self.old.rotate(&mut self.flows);
                }
                continue;
            }
            let mut queue = Queue { slab: &mut self.slab, index };
            match flow.controller.dequeue(now, &self.law, &mut queue, dropped, &mut self.marks) {
                Some(packet) => {
                    flow.deficit -= i64::from(packet.bytes);
                    return Some(packet);
                }
                // An emptied new queue passes through the old list once. Otherwise it could always
                // go first with single packets and starve the others.
                None if is_new => {
                    self.new.pop(&mut self.flows);
                    self.old.push(&mut self.flows, index);
                }
                None => {
                    flow.listed = false;
                    self.old.pop(&mut self.flows);
                }
            }
        }
    }

    fn len(&self) -> usize {
        self.slab.packets()
    }

    fn backlog(&self) -> Bytes {
        Bytes(self.slab.bytes())
    }

    fn state(&self) -> State {
        State {
            packets: self.slab.packets() as u64,
            bytes: Bytes(self.slab.bytes()),
            probability: None,
            marks: self.marks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        queue: FqCodel,
        dropped: Dropped,
        rng: Rng,
        handle: u32,
    }

    impl Bench {
        fn new(config: Config) -> Bench {
            let queue = FqCodel::new(config, &Setup::default());
            Bench { queue, dropped: Dropped::new(), rng: Rng::new(1, "test"), handle: 0 }
        }
        fn offer(&mut self, flow_hash: u32, bytes: u32) {
            let packet = Packet { handle: self.handle, bytes, flow_hash, ..Packet::default() };
            self.handle += 1;
            self.queue.enqueue(Instant::ZERO, packet, &mut self.dropped, &mut self.rng);
        }
        fn take(&mut self) -> Option<Packet> {
            self.queue.dequeue(Instant::ZERO, &mut self.dropped, &mut self.rng)
        }
    }

    // RFC 8290 section 4.2: new queues before old ones, for one quantum.
    #[test]
    fn a_sparse_flow_does_not_wait_behind_bulk_flows() {
        let mut bench = Bench::new(Config::default());
        for _ in 0..50 {
            bench.offer(1, 1_500);
            bench.offer(2, 1_500);
        }
        // Both have used up their first quantum and stand in the old list.
        for _ in 0..6 {
            bench.take();
        }
        bench.offer(3, 100);
        assert_eq!(bench.take().map(|p| p.flow_hash), Some(3));
        // One quantum, not more: a flow that goes on sending takes its turn.
        for _ in 0..50 {
            bench.offer(4, 1_500);
        }
        let next: Vec<u32> =
            core::iter::from_fn(|| bench.take()).take(8).map(|p| p.flow_hash).collect();
        assert!(next.iter().filter(|&&f| f == 4).count() <= 4, "{next:?}");
    }

    // RFC 8290 section 4.2: an emptied new queue goes to the end of the old list, and only from there out of it.
    #[test]
    fn a_flow_of_single_packets_cannot_starve_the_others() {
        let mut bench = Bench::new(Config::default());
        for _ in 0..100 {
            bench.offer(1, 1_500);
        }
        let mut bulk = 0;
        for _ in 0..100 {
            bench.offer(2, 1_500);
            bulk += u32::from(bench.take().is_some_and(|p| p.flow_hash == 1));
        }
        assert!((45..=55).contains(&bulk), "{bulk} of 100 for the bulk flow");
    }

    // RFC 8290 section 3: bytes, not packets, are shared.
    #[test]
    fn flows_with_different_packet_sizes_get_the_same_bytes() {
        let mut bench =
            Bench::new(Config { limit: Capacity::Packets(1 << 20), ..Config::default() });
        for _ in 0..300 {
            bench.offer(1, 1_500);
            for _ in 0..15 {
                bench.offer(2, 100);
            }
            for _ in 0..3 {
                bench.offer(3, 500);
            }
        }
        let mut bytes = [0_u32; 4];
        for _ in 0..2_000 {
            let packet = bench.take().expect("backlogged");
            bytes[packet.flow_hash as usize] += packet.bytes;
        }
        let (least, most) = (bytes[1..].iter().min(), bytes[1..].iter().max());
        // A deficit round robin is never further apart than a quantum and a packet.
        assert!(most.expect("three") - least.expect("three") <= 1_514 + 1_500, "{bytes:?}");
    }

    // RFC 8290 section 4.1.
    #[test]
    fn overflow_takes_half_of_the_longest_queue_from_its_head_and_64_packets_at_most() {
        let mut bench = Bench::new(Config { limit: Capacity::Packets(100), ..Config::default() });
        for _ in 0..60 {
            bench.offer(1, 100);
        }
        for _ in 0..40 {
            bench.offer(2, 1_500);
        }
        assert!(bench.dropped.is_empty());
        bench.offer(3, 100);
        // Flow 2 has 60,000 bytes against 6,000: 20 packets are half, and they are its oldest.
        assert_eq!(
            bench.dropped.iter().map(|(p, _)| p.handle).collect::<Vec<_>>(),
            (60..80).collect::<Vec<_>>()
        );
        assert!(bench.dropped.iter().all(|(_, why)| *why == Drop::Overflow));

        let mut bench = Bench::new(Config { limit: Capacity::Packets(1_000), ..Config::default() });
        for _ in 0..1_001 {
            bench.offer(1, 1_500);
        }
        assert_eq!(bench.dropped.len(), 64);
    }

    #[test]
    fn a_limit_in_bytes_is_never_exceeded() {
        let most = Bytes(10_000);
        let mut bench = Bench::new(Config { limit: Capacity::Bytes(most), ..Config::default() });
        for i in 0..500_u32 {
            bench.offer(i % 7, if i % 5 == 0 { 1_500 } else { 60 });
            assert!(bench.queue.state().bytes <= most, "packet {i}");
        }
        assert!(bench.queue.state().bytes.0 > 4_000, "no more is dropped than half of a queue");
        assert!(!bench.dropped.is_empty());
    }

    // RFC 8290 section 4.2: each queue has a CoDel state of its own.
    #[test]
    fn a_standing_queue_of_one_flow_brings_drops_for_that_flow_only() {
        let mut bench = Bench::new(Config::default());
        for _ in 0..1_000 {
            bench.offer(1, 1_500);
        }
        for ms in 0..1_000_u64 {
            let now = Instant(ms * 1_000_000);
            if ms % 20 == 0 {
                let packet = Packet { bytes: 100, flow_hash: 2, ..Packet::default() };
                bench.queue.enqueue(now, packet, &mut bench.dropped, &mut bench.rng);
            }
            bench.queue.dequeue(now, &mut bench.dropped, &mut bench.rng);
        }
        assert!(bench.dropped.len() > 10);
        assert!(bench.dropped.iter().all(|(p, why)| p.flow_hash == 1 && *why == Drop::Aqm));
    }
}
