//! Gates: how much may lie below the operating system's queue, where no queue discipline reaches any more.
//!
//! signal: the modem's delayed reports, completions, probe round trips · model: one file per law · action: a limit,
//! as bytes below the queue, or as a rate of the queue's shaper.
//!
//! The device asks [`Gate::open`] before it takes the next packet from its queue, and again at
//! [`Gate::next_wakeup`] or after any event.

use units::{Bytes, Duration, Instant, Rate};

pub mod autorate;
pub mod bql;
pub mod none;
mod occupancy;
pub mod qcut_b;
pub mod qcut_d;
mod slack;
pub mod tsq;

pub use occupancy::{Occupancy, RING, averaged, drained, held_after, occupancy_at, rate_over};
pub use slack::Slack;

/// The circumstances of one device.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Largest packet.
    pub mtu: Bytes,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { mtu: Bytes(1_500) }
    }
}

/// What a gate can learn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// A packet went from the queue into the device.
    Passed {
        /// Its length on the IP layer.
        bytes: Bytes,
    },
    /// The device says that packets have left it (BQL's `dql_completed`): exact, and at once.
    Completed {
        /// Since the last event of this kind.
        bytes: Bytes,
    },
    /// A report of the modem reached the kernel.
    Report {
        /// When the modem wrote it, on the kernel's clock: `now` less the report's delay.
        at: Instant,
        /// Bytes in the firmware buffer at that time (the BSR level's upper edge, where only a level is told).
        occupancy: Bytes,
        /// Granted by the base station since the previous report.
        granted: Bytes,
        /// Of that, filled with padding.
        padding: Bytes,
    },
    /// A probe came back.
    Probe {
        /// One-way delay, or half the RTT, as cake-autorate takes it.
        delay: Duration,
        /// Bytes that the uplink moved since the previous probe, and in which time.
        moved: Bytes,
        /// That time.
        span: Duration,
    },
}

/// What a gate allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Anything.
    None,
    /// Another packet while no more than this lies below the queue.
    Bytes(Bytes),
    /// The queue is shaped to this rate; the gate does it by itself, through `open` and `next_wakeup`.
    Rate(Rate),
}

/// What charts and snapshots show of a gate.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// Bytes that the gate believes to lie below the queue.
    pub occupancy: Option<Bytes>,
    /// Uplink rate that it believes in.
    pub rate: Option<Rate>,
    /// The limit in bytes, where there is one.
    pub limit: Option<Bytes>,
}

/// The contract of a gate.
pub trait Gate {
    /// Something was learnt.
    fn on_event(&mut self, now: Instant, event: &Event);
    /// What is allowed now.
    fn limit(&self, now: Instant) -> Limit;
    /// Whether the next packet may pass.
    fn open(&self, now: Instant) -> bool;
    /// When a closed gate opens by the passing of time alone.
    fn next_wakeup(&self, now: Instant) -> Option<Instant>;
    /// Whether the law needs probes, and how often.
    fn probe_every(&self) -> Option<Duration> {
        None
    }
    /// For charts and snapshots.
    fn state(&self, now: Instant) -> State;
}

family! {
    /// Any gate of the table.
    pub enum AnyGate(Setup): Gate {
        none::Open,
        bql::Bql,
        tsq::Tsq,
        qcut_b::QcutB,
        qcut_d::QcutD,
        autorate::Autorate,
    }
    changes {
        on_event(now: Instant, event: &Event);
    }
    asks {
        limit(now: Instant) -> Limit;
        open(now: Instant) -> bool;
        next_wakeup(now: Instant) -> Option<Instant>;
        probe_every() -> Option<Duration>;
        state(now: Instant) -> State;
    }
}
