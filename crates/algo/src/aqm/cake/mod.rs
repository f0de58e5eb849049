//! A shaper with flow queues that are fair between hosts, after CAKE.
//!
//! signal: flow hash, host and class of arriving packets, sojourn times · model: a virtual clock that each
//! packet advances by its length at the shaped rate; up to three tins by class; in each tin 1,024 queues
//! in sets of eight. Sparse flows go first, then hosts in turn, and within each host its flows in turn.
//! COBALT controls each queue · action: a packet, or the time before which none may leave.
//!
//! Sources: Høiland-Jørgensen, Täht, Morton: "Piece of CAKE", 2018; Linux `sch_cake.c`.
//!
//! Deviations:
//! - A packet has one host, so "triple" isolation is isolation by that host and by flow.
//! - sch_cake divides the quantum of a flow by the number of its host's bulk flows. Here hosts have a
//!   deficit round robin of their own: the same shares, at a cost independent of the number of flows.
//! - An emptied queue passes through its host's round once, as in RFC 8290.
//! - If all eight ways of a set are taken, a flow shares its first one until the set has been idle, so
//!   that no flow is reordered.
//! - Not here: ACK filter, ingress mode, NAT, the other tins. `tins` is `besteffort` by default, because
//!   few scenarios have classes.

use alloc::vec::Vec;

use units::{Bytes, Duration, Instant, Rate};

use super::slab::Slab;
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Ecn, Packet, Rng};

mod clock;
mod cobalt;
mod tin;

use clock::{Clock, byte_cost};
use cobalt::Verdict;
use tin::{QUEUES, Tin};

/// Name in the table.
pub const NAME: &str = "cake";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "a shaper with flow queues, fair between hosts, COBALT in each";
/// Where it is specified.
pub const SOURCE: &str = "Hoiland-Jorgensen et al. 2018, Linux sch_cake.c";

choice! {
    /// How a packet's length counts (`cake_calc_overhead`).
    pub enum Framing {
        /// The length itself, plus `overhead`.
        None = "none",
        /// ATM: cells of 53 bytes for each 48.
        Atm = "atm",
        /// PTM: one byte more for each 64.
        Ptm = "ptm",
    }
}

choice! {
    /// The classes that have a tin.
    pub enum Tins {
        /// One tin for all classes.
        BestEffort = "besteffort",
        /// Interactive (class 0), best effort (1), bulk (2 and above).
        Diffserv3 = "diffserv3",
    }
}

config! {
    /// Parameters; their defaults are the published values.
    pub struct Config {
        /// Shaped rate; without it CAKE does not shape.
        rate: Option<Rate> = None, Some(Rate(512)), Some(Rate(1 << 40));
        /// Round trip that COBALT is set for: interval, and twenty times the target. 100 ms (`cake_init`).
        rtt: Duration = Duration::from_millis(100), Duration::from_micros(10), Duration::from_secs(10);
        /// Bytes added to the length of each packet.
        overhead: Bytes = Bytes(0), Bytes(0), Bytes(256);
        /// Smallest length that counts, bytes.
        mpu: Bytes = Bytes(0), Bytes(0), Bytes(256);
        /// `none`, `atm` or `ptm`.
        framing: Framing = Framing::None;
        /// `besteffort`, or `diffserv3`: three tins by class.
        tins: Tins = Tins::BestEffort;
        /// Hosts share before their flows do (`triple-isolate`).
        host_fair: bool = true;
        /// Largest queue in bytes; without it four times rate and RTT, at least 4 MiB (`cake_reconfigure`). Never more
        /// than 10,240 full packets.
        memory: Option<Bytes> = None, Some(Bytes(1_500)), Some(Bytes(1 << 40));
        /// Mark packets that can carry a mark instead of dropping them; CAKE always does.
        ecn: bool = true;
    }
}

/// `cake_init`: largest queue, in full packets.
const MAX_PACKETS: u64 = 10_240;
/// `cake_reconfigure`: smallest default of `memory`.
const MIN_MEMORY: u64 = 4 << 20;
/// `cake_config_diffserv3`: each tin's threshold as a right shift of the rate, and its weight without a
/// shaped rate. In order of priority: a later tin goes first as long as it is below its threshold.
const TINS: [(u32, i64); 3] = [(0, 1_024), (4, 64), (2, 256)];
/// Tin of each class, the classes above the last one being bulk.
const TIN_OF_CLASS: [usize; 3] = [2, 0, 1];

/// CAKE: shaper, tins and flow queues of one link.
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
    /// A new set of empty queues.
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

    /// `cake_reconfigure`. Without a shaped rate, the rate of the link behind sets the target, if known.
    fn configure(&mut self) {
        for (tin, (shift, _)) in self.tins.iter_mut().zip(TINS) {
            tin.configure(shift, self.config.rate.or(self.link), self.config.rtt, self.mtu);
        }
        self.cost = self.config.rate.map_or(0, byte_cost);
        let memory = match (self.config.memory, self.config.rate) {
            (Some(bytes), _) => bytes.0,
            (None, Some(rate)) => ((rate * self.config.rtt).0.saturating_mul(4)).max(MIN_MEMORY),
            (None, None) => u64::MAX,
        };
        self.limit = memory.min(MAX_PACKETS.saturating_mul(self.mtu.0.max(1)));
    }

    /// `cake_calc_overhead`: the length that counts, in bytes.
    #[inline]
    fn charged(&self, bytes: u32) -> u64 {
        let length = (u64::from(bytes) + self.config.overhead.0).max(self.config.mpu.0);
        match self.config.framing {
            Framing::None => length,
            Framing::Atm => length.div_ceil(48) * 53,
            Framing::Ptm => length + length.div_ceil(64),
        }
    }

    /// `cake_drop`: drops the head of the longest queue of all tins, until the limit is met.
    fn drop_excess(&mut self, now: Instant, dropped: &mut Dropped) {
        while self.slab.bytes() > self.limit {
            let Some(queue) = self.slab.longest() else { return };
            let Some(packet) = self.slab.pop(queue) else { return };
            let tin = &mut self.tins[queue / QUEUES];
            tin.packets -= 1;
            tin.flows[queue % QUEUES].cobalt.on_overflow(now, &tin.law);
            dropped.push((packet, Drop::Overflow));
        }
    }

    /// The tin to serve. With a shaped rate: the most urgent tin below its threshold, else the one that
    /// is due first. Without: by weight.
    #[inline]
    fn choose(&mut self, now: Instant) -> usize {
        if self.tins.len() == 1 {
            return 0;
        }
        let busy = |t: &Tin| t.packets > 0;
        if self.cost > 0 {
            let within = self.tins.iter().rposition(|t| busy(t) && t.clock.at <= now);
            let first = || {
                (0..self.tins.len())
                    .filter(|&i| busy(&self.tins[i]))
                    .min_by_key(|&i| self.tins[i].clock.at)
            };
            return within.or_else(first).unwrap_or(0);
        }
        // This loop ends: a busy tin gains its weight in each round.
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

    /// The next packet of the tin that COBALT lets pass. The last packet of a queue is never dropped, so
    /// a busy tin always has one (`cake_dequeue`).
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
        // An idle shaper has no credit (`cake_enqueue`).
        if self.slab.packets() == 0 {
            self.clock.not_before(now);
        }
        let tin = &mut self.tins[number];
        if tin.packets == 0 {
            tin.clock.not_before(now);
        }
        tin.enqueue(now, packet, self.config.host_fair, &mut self.slab);
        if self.slab.bytes() > self.limit {
            self.drop_excess(now, dropped);
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
            // `cake_advance_shaper`: the tin's clock may lag and catches up by one packet at a time;
            // it never leads by more than a packet. The global clock advances from its old value:
            // late service is made up for.
            if tin.clock.at < now {
                tin.clock = tin.clock.after(bytes, tin.cost);
            } else {
                let next = Clock::starting(now).after(bytes, tin.cost);
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

    /// A rate below 64 byte/s counts as 64 byte/s.
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
mod tests;
