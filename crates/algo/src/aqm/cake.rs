//! A shaper with flow queues that are fair between hosts, after CAKE.
//!
//! signal: flow hash, host and class of arriving packets, sojourn times · model: a virtual clock that each packet sets
//! forward by its length at the shaped rate; up to three tins by class; in each tin 1,024 queues, eight ways to place
//! a flow, sparse flows first, then hosts in turn, and within each host its flows in turn; COBALT in each queue ·
//! action: a packet, or the time before which none may leave. Høiland-Jørgensen, Täht, Morton: "Piece of CAKE", 2018;
//! Linux `sch_cake.c`.
//!
//! Deviations. A packet names one host, so that "triple" isolation is isolation by that host and by flow. sch_cake
//! divides the quantum of a flow by the number of its host's bulk flows; here hosts stand in a deficit round robin of
//! their own, which gives the same shares at a cost that does not grow with the number of flows. A queue that ran empty
//! passes through its host's round once, as in RFC 8290. When all eight ways are taken the flow shares its first one
//! until the set has been idle, so that no flow is reordered. Not here: ACK filter, ingress mode, NAT, the other tins.
//! `tins` is `besteffort` unless asked, for few scenarios give classes.

use alloc::vec::Vec;

use units::{Bytes, Duration, Instant, Rate};

use super::cobalt::{Cobalt, Law, Verdict};
use super::fq_codel::spread;
use super::slab::{Linked, NONE, Ring, Slab};
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Ecn, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "cake";
/// One line.
pub const ABOUT: &str = "a shaper with flow queues, fair between hosts, COBALT in each";
/// Where it is specified.
pub const SOURCE: &str = "Hoiland-Jorgensen et al. 2018, Linux sch_cake.c";

choice! {
    /// How a packet's length is charged (`cake_calc_overhead`).
    pub enum Framing {
        /// As it is.
        None = "none",
        /// ATM: cells of 53 bytes for each 48.
        Atm = "atm",
        /// PTM: one byte more for each 64.
        Ptm = "ptm",
    }
}

choice! {
    /// Which classes get a tin.
    pub enum Tins {
        /// One for all.
        BestEffort = "besteffort",
        /// Interactive (class 0), best effort (1), bulk (2 and above).
        Diffserv3 = "diffserv3",
    }
}

config! {
    /// The published values.
    pub struct Config {
        /// Shaped rate; without it nothing is shaped.
        rate: Option<Rate> = None, Some(Rate(512)), Some(Rate(1 << 40));
        /// Round trip that COBALT is set for: interval, and twenty times the target. 100 ms (`cake_init`).
        rtt: Duration = Duration::from_millis(100), Duration::from_micros(10), Duration::from_secs(10);
        /// Bytes charged to each packet beside its own.
        overhead: Bytes = Bytes(0), Bytes(0), Bytes(256);
        /// Bytes charged at least.
        mpu: Bytes = Bytes(0), Bytes(0), Bytes(256);
        /// `none`, `atm` or `ptm`.
        framing: Framing = Framing::None;
        /// `besteffort`, or `diffserv3`: three tins by class.
        tins: Tins = Tins::BestEffort;
        /// Hosts share before their flows do (`triple-isolate`).
        host_fair: bool = true;
        /// Bytes that it holds; without it four times rate and RTT, at least 4 MiB (`cake_reconfigure`). Never more
        /// than 10,240 full packets.
        memory: Option<Bytes> = None, Some(Bytes(1_500)), Some(Bytes(1 << 40));
        /// Mark packets that can carry a mark instead of dropping them; CAKE always does.
        ecn: bool = true;
    }
}

/// Queues of a tin, and ways of a set (`CAKE_QUEUES`, `CAKE_SET_WAYS`).
const QUEUES: usize = 1_024;
const WAYS: usize = 8;
/// `cake_set_rate`: the slowest shaped rate, 64 byte/s; a shaper told less would never let go.
const SLOWEST: u64 = 512;
/// `cake_set_rate`: a 4096th of a second of the rate within these bounds.
const QUANTUM: (u64, u64) = (300, 1_514);
/// `cake_init`: packets held at most, in units of a full one.
const MOST_PACKETS: u64 = 10_240;
/// `cake_reconfigure`.
const LEAST_MEMORY: u64 = 4 << 20;
/// `cake_config_diffserv3`: each tin's threshold as a right shift of the rate, and its weight where nothing is shaped.
/// In order of priority: a later tin goes first as long as it is below its threshold.
const TINS: [(u32, i64); 3] = [(0, 1_024), (4, 64), (2, 256)];
/// Tin of each class, the classes above the last one being bulk.
const TIN_OF_CLASS: [usize; 3] = [2, 0, 1];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    Sparse,
    Bulk,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    deficit: i64,
    tag: u32,
    next: u32,
    host: u16,
    place: Place,
    cobalt: Cobalt,
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

/// A time with a fraction of 2⁻³² ns, so that rounding does not add up.
#[derive(Clone, Copy, Default, Debug)]
struct Clock {
    at: Instant,
    fraction: u32,
}

impl Clock {
    /// `cost` is the time of a byte in 2⁻³² ns.
    #[inline]
    fn after(self, bytes: u64, cost: u64) -> Clock {
        let sum = u128::from(bytes) * u128::from(cost) + u128::from(self.fraction);
        Clock {
            at: self.at + Duration(u64::try_from(sum >> 32).unwrap_or(u64::MAX)),
            fraction: (sum & u128::from(u32::MAX)) as u32,
        }
    }

    #[inline]
    fn not_before(&mut self, now: Instant) {
        if self.at < now {
            *self = Clock { at: now, fraction: 0 };
        }
    }
}

/// Time of a byte in 2⁻³² ns; at [`SLOWEST`], shifted by a tin's threshold, it still fits.
fn byte_cost(rate: Rate) -> u64 {
    ((8_000_000_000_u128 << 32) / u128::from(rate.0.max(SLOWEST))) as u64
}

#[derive(Clone, Debug)]
struct Tin {
    /// Number of its first queue in the slab.
    first: usize,
    flows: Vec<Flow>,
    crowded: Vec<bool>,
    hosts: Vec<Host>,
    sparse: Ring,
    rounds: Ring,
    quantum: i64,
    law: Law,
    clock: Clock,
    cost: u64,
    deficit: i64,
    packets: usize,
}

impl Tin {
    fn new(number: usize) -> Tin {
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
    fn configure(&mut self, shift: u32, rate: Option<Rate>, rtt: Duration, mtu: Bytes) {
        self.cost = rate.map_or(0, |r| byte_cost(r) << shift);
        let mtu_time = Clock::default().after(mtu.0, self.cost).at.since(Instant::ZERO);
        let least = rtt / 20;
        let target = (mtu_time + mtu_time / 2).max(least);
        self.law = Law { target, interval: (rtt + target.saturating_sub(least)).max(target * 2), mtu_time };
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

    fn enqueue(&mut self, now: Instant, packet: Packet, by_host: bool, slab: &mut Slab) {
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
        // A host gains nothing from new flows beside its bulk ones. Without host fairness each has its full quantum.
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
            // Debts stay, credit is not kept: a host is no better off for having paused.
            host.deficit = host.deficit.min(0);
            self.rounds.push(&mut self.hosts, number);
        }
    }

    /// The flow whose turn it is, in constant time on average; `None` when no flow is listed.
    fn turn(&mut self) -> Option<usize> {
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
            // A host in the round has a flow.
            let index = host.flows.front()?;
            let flow = &mut self.flows[index];
            if flow.deficit > 0 {
                return Some(index);
            }
            flow.deficit += self.quantum;
            host.flows.rotate(&mut self.flows);
        }
    }

    /// The flow whose turn it was has nothing: a sparse one passes through its host's round, a bulk one is given up.
    fn give_up(&mut self, index: usize, now: Instant) {
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

    fn charge(&mut self, index: usize, bytes: u64) {
        let bytes = bytes as i64;
        let flow = &mut self.flows[index];
        flow.deficit -= bytes;
        if flow.place == Place::Bulk {
            self.hosts[usize::from(flow.host)].deficit -= bytes;
        }
    }
}

/// See the module text.
#[derive(Clone, Debug)]
pub struct Cake {
    config: Config,
    mtu: Bytes,
    link: Option<Rate>,
    tins: Vec<Tin>,
    slab: Slab,
    clock: Clock,
    cost: u64,
    limit: u64,
    current: usize,
    marks: u64,
}

impl Cake {
    /// Empty queues.
    pub fn new(config: Config, setup: &Setup) -> Cake {
        let count = match config.tins {
            Tins::BestEffort => 1,
            Tins::Diffserv3 => TINS.len(),
        };
        let mut cake = Cake {
            mtu: setup.mtu,
            link: setup.rate,
            tins: (0..count).map(Tin::new).collect(),
            slab: Slab::new(count * QUEUES),
            clock: Clock::default(),
            cost: 0,
            limit: 0,
            current: 0,
            marks: 0,
            config,
        };
        cake.configure();
        cake
    }

    /// `cake_reconfigure`. Unshaped, the rate of the link behind, where known, sets the target.
    fn configure(&mut self) {
        for (tin, (shift, _)) in self.tins.iter_mut().zip(TINS) {
            tin.configure(shift, self.config.rate.or(self.link), self.config.rtt, self.mtu);
        }
        self.cost = self.config.rate.map_or(0, byte_cost);
        let memory = match (self.config.memory, self.config.rate) {
            (Some(bytes), _) => bytes.0,
            (None, Some(rate)) => ((rate * self.config.rtt).0.saturating_mul(4)).max(LEAST_MEMORY),
            (None, None) => u64::MAX,
        };
        self.limit = memory.min(MOST_PACKETS.saturating_mul(self.mtu.0.max(1)));
    }

    /// `cake_calc_overhead`.
    #[inline]
    fn charged(&self, bytes: u32) -> u64 {
        let length = (u64::from(bytes) + self.config.overhead.0).max(self.config.mpu.0);
        match self.config.framing {
            Framing::None => length,
            Framing::Atm => length.div_ceil(48) * 53,
            Framing::Ptm => length + length.div_ceil(64),
        }
    }

    /// `cake_drop`: the head of the longest queue of all tins, until all fits.
    fn make_room(&mut self, now: Instant, dropped: &mut Dropped) {
        while self.slab.bytes() > self.limit {
            let Some(queue) = self.slab.fattest() else { return };
            let Some(packet) = self.slab.pop(queue) else { return };
            let tin = &mut self.tins[queue / QUEUES];
            tin.packets -= 1;
            tin.flows[queue % QUEUES].cobalt.on_overflow(now, &tin.law);
            dropped.push((packet, Drop::Overflow));
        }
    }

    /// Shaped: the most urgent tin that keeps to its threshold, else the one that is due first. Unshaped: by weight.
    #[inline]
    fn choose(&mut self, now: Instant) -> usize {
        if self.tins.len() == 1 {
            return 0;
        }
        let busy = |t: &Tin| t.packets > 0;
        if self.cost > 0 {
            let within = self.tins.iter().rposition(|t| busy(t) && t.clock.at <= now);
            let first = || {
                (0..self.tins.len()).filter(|&i| busy(&self.tins[i])).min_by_key(|&i| self.tins[i].clock.at)
            };
            return within.or_else(first).unwrap_or(0);
        }
        // Ends: a busy tin gains its weight in each turn of the wheel.
        loop {
            let tin = &mut self.tins[self.current];
            if tin.deficit > 0 && busy(tin) {
                return self.current;
            }
            if tin.deficit <= 0 {
                tin.deficit += TINS[self.current].1;
            }
            self.current = (self.current + 1) % self.tins.len();
        }
    }

    /// Takes from the tin what COBALT lets pass. The last packet of a queue is never dropped, so that a busy tin
    /// always has one (`cake_dequeue`).
    fn serve(
        &mut self,
        now: Instant,
        chosen: usize,
        dropped: &mut Dropped,
        rng: &mut Rng,
    ) -> Option<(usize, Packet)> {
        let tin = &mut self.tins[chosen];
        loop {
            let index = tin.turn()?;
            let queue = tin.first + index;
            while let Some(mut packet) = self.slab.pop(queue) {
                tin.packets -= 1;
                let markable = self.config.ecn && packet.ecn.is_capable();
                let sojourn = now.since(packet.enqueued);
                let verdict = tin.flows[index].cobalt.judge(now, sojourn, markable, &tin.law, rng);
                if verdict == Verdict::Drop && !self.slab.is_empty(queue) {
                    dropped.push((packet, Drop::Aqm));
                    continue;
                }
                if verdict == Verdict::Mark {
                    packet.ecn = Ecn::Marked;
                    self.marks += 1;
                }
                return Some((index, packet));
            }
            tin.give_up(index, now);
        }
    }
}

impl QueueDiscipline for Cake {
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, _rng: &mut Rng) {
        packet.enqueued = now;
        let number = match self.config.tins {
            Tins::BestEffort => 0,
            Tins::Diffserv3 => TIN_OF_CLASS[usize::from(packet.class).min(TIN_OF_CLASS.len() - 1)],
        };
        // An idle shaper keeps no credit (`cake_enqueue`).
        if self.slab.packets() == 0 {
            self.clock.not_before(now);
        }
        let tin = &mut self.tins[number];
        if tin.packets == 0 {
            tin.clock.not_before(now);
        }
        tin.enqueue(now, packet, self.config.host_fair, &mut self.slab);
        if self.slab.bytes() > self.limit {
            self.make_room(now, dropped);
        }
    }

    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped, rng: &mut Rng) -> Option<Packet> {
        if self.slab.packets() == 0 || (self.cost > 0 && self.clock.at > now) {
            return None;
        }
        let chosen = self.choose(now);
        let (index, packet) = self.serve(now, chosen, dropped, rng)?;
        let bytes = self.charged(packet.bytes);
        let tin = &mut self.tins[chosen];
        tin.charge(index, bytes);
        tin.deficit -= bytes as i64;
        if self.cost > 0 {
            // `cake_advance_shaper`: the tin's clock may lag, and catches up by one packet at a time; it never leads by
            // more than a packet. The global clock is only ever set forward from where it stood: late service is
            // made up for.
            if tin.clock.at < now {
                tin.clock = tin.clock.after(bytes, tin.cost);
            } else {
                let next = Clock { at: now, fraction: 0 }.after(bytes, tin.cost);
                tin.clock.not_before(next.at);
            }
            self.clock = self.clock.after(bytes, self.cost);
        }
        Some(packet)
    }

    fn len(&self) -> usize {
        self.slab.packets()
    }

    fn backlog(&self) -> Bytes {
        Bytes(self.slab.bytes())
    }

    fn next_wakeup(&self) -> Option<Instant> {
        (self.cost > 0 && self.slab.packets() > 0).then_some(self.clock.at)
    }

    /// A rate below 64 byte/s counts as that.
    fn set_rate(&mut self, now: Instant, rate: Rate) {
        if self.config.rate.is_none() {
            self.clock.not_before(now);
        }
        self.config.rate = Some(rate);
        self.configure();
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
#[path = "cake_tests.rs"]
mod tests;
