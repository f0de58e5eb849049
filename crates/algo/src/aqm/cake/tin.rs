//! A tin of CAKE: the flow queues of one class, and their order of service.
//!
//! signal: flow hash and host · model: 1,024 queues in sets of eight; sparse flows in one list, hosts with
//! bulk flows in a deficit round robin, each with its flows in turn · action: the queue for an arriving
//! packet, and the flow that sends next, in constant time on average. Source: `sch_cake.c`.

use alloc::vec::Vec;

use units::{Bytes, Duration, Instant, Rate};

use super::clock::{Clock, byte_cost};
use super::cobalt::{Cobalt, Law};
use crate::Packet;
use crate::aqm::fq_codel::spread;
use crate::aqm::slab::{Linked, NONE, Ring, Slab};

/// Queues of a tin (`CAKE_QUEUES`).
pub(super) const QUEUES: usize = 1_024;
/// Queues of a set, among which a flow's hash can choose (`CAKE_SET_WAYS`).
const WAYS: usize = 8;
/// Bounds of the quantum, bytes; it is the data of 1/4096 s (`cake_set_rate`).
const QUANTUM: (u64, u64) = (300, 1_514);
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Nowhere,
    Sparse,
    Bulk,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    deficit: i64,
    tag: u32,
    next: u32,
    host: u16,
    pub place: Place,
    pub cobalt: Cobalt,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    deficit: i64,
    flows: Ring,
    count: u32,
    next: u32,
}

impl Linked for Flow {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl Linked for Host {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

#[derive(Clone, Debug)]
pub(super) struct Tin {
    /// Index of the tin's first queue in the slab.
    pub first: usize,
    pub flows: Vec<Flow>,
    crowded: Vec<bool>,
    hosts: Vec<Host>,
    sparse: Ring,
    rounds: Ring,
    quantum: i64,
    pub law: Law,
    pub clock: Clock,
    pub cost: u64,
    pub deficit: i64,
    pub packets: usize,
}

impl Tin {
    pub fn new(number: usize) -> Tin {
        let flow = Flow {
            deficit: 0,
            tag: 0,
            next: NONE,
            host: 0,
            place: Place::Nowhere,
            cobalt: Cobalt::default(),
        };
        Tin {
            first: number * QUEUES,
            flows: alloc::vec![flow; QUEUES],
            crowded: alloc::vec![false; QUEUES / WAYS],
            hosts: Vec::new(),
            sparse: Ring::EMPTY,
            rounds: Ring::EMPTY,
            quantum: 0,
            law: Law { target: Duration::ZERO, interval: Duration::ZERO, mtu_time: Duration::ZERO },
            clock: Clock::default(),
            cost: 0,
            deficit: 0,
            packets: 0,
        }
    }

    /// `cake_set_rate`: the target is at least one and a half packet times, and the interval grows with it.
    pub fn configure(&mut self, shift: u32, rate: Option<Rate>, rtt: Duration, mtu: Bytes) {
        self.cost = rate.map_or(0, |r| byte_cost(r) << shift);
        let mtu_time = Clock::default().after(mtu.0, self.cost).at.since(Instant::ZERO);
        let least = rtt / 20;
        let target = (mtu_time + mtu_time / 2).max(least);
        self.law = Law {
            target,
            interval: (rtt + target.saturating_sub(least)).max(target * 2),
            mtu_time,
        };
        let bytes = rate.map_or(QUANTUM.1, |r| ((r.0 >> shift) / 8) >> 12);
        self.quantum = bytes.clamp(QUANTUM.0, QUANTUM.1) as i64;
    }

    /// `cake_hash`: the flow's own queue, else a free way of its set, else its first one together with another flow.
    fn place(&mut self, tag: u32) -> usize {
        let home = spread(tag, QUEUES);
        let is_its = |f: &Flow| f.place != Place::Nowhere && f.tag == tag;
        if is_its(&self.flows[home]) {
            return home;
        }
        let set = home - home % WAYS;
        let ways = || (0..WAYS).map(|k| set + (home + k) % WAYS);
        if let Some(way) = ways().find(|&w| is_its(&self.flows[w])) {
            return way;
        }
        let crowded = &mut self.crowded[set / WAYS];
        if *crowded && ways().all(|w| self.flows[w].place == Place::Nowhere) {
            *crowded = false;
        }
        if !*crowded {
            match ways().find(|&w| self.flows[w].place == Place::Nowhere) {
                Some(way) => return way,
                None => *crowded = true,
            }
        }
        home
    }

    pub fn enqueue(&mut self, now: Instant, packet: Packet, by_host: bool, slab: &mut Slab) {
        let index = self.place(packet.flow_hash);
        slab.push(self.first + index, packet);
        self.packets += 1;
        let flow = &mut self.flows[index];
        if flow.place != Place::Nowhere {
            return;
        }
        let host = if by_host { packet.host } else { 0 };
        if self.hosts.len() <= usize::from(host) {
            let idle = Host { deficit: 0, flows: Ring::EMPTY, count: 0, next: NONE };
            self.hosts.resize(usize::from(host) + 1, idle);
        }
        flow.tag = packet.flow_hash;
        flow.host = host;
        flow.place = Place::Sparse;
        flow.cobalt.on_busy(now, &self.law);
        // New flows beside bulk flows give a host no larger share. Without host fairness each flow has
        // its full quantum.
        let load = if by_host { self.hosts[usize::from(host)].count.max(1) } else { 1 };
        flow.deficit = (self.quantum / i64::from(load)).max(1);
        self.sparse.push(&mut self.flows, index);
    }

    /// The first sparse flow joins its host's round.
    fn make_bulk(&mut self, index: usize) {
        self.sparse.pop(&mut self.flows);
        let flow = &mut self.flows[index];
        flow.place = Place::Bulk;
        let number = usize::from(flow.host);
        let host = &mut self.hosts[number];
        host.flows.push(&mut self.flows, index);
        host.count += 1;
        if host.count == 1 {
            // A debt stays, a credit does not: a pause gives a host no advantage.
            host.deficit = host.deficit.min(0);
            self.rounds.push(&mut self.hosts, number);
        }
    }

    /// The flow to serve, in constant time on average; `None` if no flow is listed.
    pub fn turn(&mut self) -> Option<usize> {
        loop {
            if let Some(index) = self.sparse.front() {
                if self.flows[index].deficit > 0 {
                    return Some(index);
                }
                self.flows[index].deficit += self.quantum;
                self.make_bulk(index);
                continue;
            }
            let number = self.rounds.front()?;
            let host = &mut self.hosts[number];
            if host.deficit <= 0 {
                host.deficit += self.quantum;
                self.rounds.rotate(&mut self.hosts);
                continue;
            }
            // Every host in the round has a flow.
            let index = host.flows.front()?;
            let flow = &mut self.flows[index];
            if flow.deficit > 0 {
                return Some(index);
            }
            flow.deficit += self.quantum;
            host.flows.rotate(&mut self.flows);
        }
    }

    /// The flow to serve has no packet: a sparse one joins its host's round, a bulk one is removed.
    pub fn give_up(&mut self, index: usize, now: Instant) {
        self.flows[index].cobalt.on_empty(now, &self.law);
        if self.flows[index].place == Place::Sparse {
            self.make_bulk(index);
            return;
        }
        self.flows[index].place = Place::Nowhere;
        let host = &mut self.hosts[usize::from(self.flows[index].host)];
        host.flows.pop(&mut self.flows);
        host.count -= 1;
        if host.count == 0 {
            self.rounds.pop(&mut self.hosts);
        }
    }

    pub fn charge(&mut self, index: usize, bytes: u64) {
        let bytes = bytes as i64;
        let flow = &mut self.flows[index];
        flow.deficit -= bytes;
        if flow.place == Place::Bulk {
            self.hosts[usize::from(flow.host)].deficit -= bytes;
        }
    }
}
