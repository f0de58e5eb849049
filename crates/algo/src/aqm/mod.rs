//! Queue disciplines: which packet goes next, and which one is dropped or marked.
//!
//! signal: arriving packets, time, the link's request for a packet · model: one file per discipline ·
//! action: packets out in any order, and drops with their cause. Packets are conserved: in = out +
//! dropped + queued.

use alloc::vec::Vec;

use units::{Bytes, Instant, Rate};

use crate::{Packet, Rng};

pub mod cake;
pub mod codel;
pub mod drophead;
pub mod droptail;
mod fifo;
pub mod fq_codel;
pub mod pie;
pub mod prio;
pub mod red;
mod slab;

/// The circumstances of one queue.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Largest packet on the IP layer: quanta and the smallest backlog that an AQM touches.
    pub mtu: Bytes,
    /// Rate of the link behind it, if it is known in advance (RED's idle time, CAKE's target).
    pub rate: Option<Rate>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { mtu: Bytes(1_500), rate: None }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drop {
    /// The queue was full.
    Overflow,
    /// A congestion signal of the discipline.
    Aqm,
}

/// Packets that a queue dropped during a call, in order.
pub type Dropped = Vec<(Packet, Drop)>;

/// What charts and snapshots show of a queue.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// Packets in the queue.
    pub packets: u64,
    /// Bytes in the queue.
    pub bytes: Bytes,
    /// Drop or mark probability, where the discipline has one.
    pub probability: Option<f64>,
    /// Packets marked so far.
    pub marks: u64,
}

/// The contract of a queue discipline.
pub trait QueueDiscipline {
    /// A packet arrives; its `enqueued` is `now`. Packets dropped for it, or itself, are pushed to
    /// `dropped`.
    fn enqueue(&mut self, now: Instant, packet: Packet, dropped: &mut Dropped, rng: &mut Rng);
    /// The next packet for the link, with a mark if the discipline marks it. `None`: the queue is
    /// empty, or no packet may leave before [`QueueDiscipline::next_wakeup`].
    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped, rng: &mut Rng) -> Option<Packet>;
    /// Packets in the queue.
    fn len(&self) -> usize;
    /// Whether the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes in the queue.
    fn backlog(&self) -> Bytes;
    /// When `dequeue` may return a packet, if it has just returned none from a queue with packets
    /// (shapers).
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
    /// A new shaped rate, from a gate such as cake-autorate; disciplines without a shaper ignore it.
    fn set_rate(&mut self, _now: Instant, _rate: Rate) {}
    /// The state that charts and snapshots show.
    fn state(&self) -> State;
}

family! {
    /// Any queue discipline of the table.
    pub enum Aqm(Setup): QueueDiscipline {
        droptail::Droptail,
        drophead::Drophead,
        prio::Prio,
        codel::Codel,
        fq_codel::FqCodel,
        pie::Pie,
        red::Red,
        cake::Cake,
    }
    changes {
        enqueue(now: Instant, packet: Packet, dropped: &mut Dropped, rng: &mut Rng);
        dequeue(now: Instant, dropped: &mut Dropped, rng: &mut Rng) -> Option<Packet>;
        set_rate(now: Instant, rate: Rate);
    }
    asks {
        len() -> usize;
        backlog() -> Bytes;
        next_wakeup() -> Option<Instant>;
        state() -> State;
    }
}
