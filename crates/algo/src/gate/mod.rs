//! Gates limit the data below the operating system's queue, out of the reach of queue disciplines.
//!
//! signal: the modem's delayed reports, completions, probe round trips · model: one file per law ·
//! action: a limit, as bytes below the queue or as the rate of the queue's shaper.
//!
//! The device calls [`Gate::open`] before it takes the next packet from its queue, and again at
//! [`Gate::next_wakeup`] or after any event.

use units::{Bytes, Duration, Instant, Rate};

mod accounts;
pub mod autorate;
pub mod bql;
pub mod none;
mod occupancy;
pub mod pacing;
pub mod qcut_b;
pub mod qcut_d;
pub mod refusal;
mod slack;
pub mod tsq;

pub use accounts::{Accounts, FLOWS, Share, account, balance, share};
pub use occupancy::{Occupancy, RING, averaged, drained, occupancy_at, rate_over, remaining};
pub use refusal::Admission;
pub use slack::Slack;

/// The circumstances of one device.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Largest packet on the IP layer.
    pub mtu: Bytes,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { mtu: Bytes(1_500) }
    }
}

/// An input of a gate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// A packet went from the queue into the device.
    Passed {
        /// Its length on the IP layer.
        bytes: Bytes,
        /// Hash of its flow.
        flow: u32,
        /// A TCP acknowledgment without data.
        bare: bool,
    },
    /// The device reports packets that left it (BQL's `dql_completed`): exact and immediate.
    Completed {
        /// Bytes since the last event of this kind.
        bytes: Bytes,
    },
    /// A report of the modem reached the kernel.
    Report {
        /// When the modem wrote it, on the kernel's clock: `now` less the report's delay.
        at: Instant,
        /// Bytes in the firmware buffer at that time; the upper edge of the level, if the modem
        /// reports levels only (buffer status reports).
        occupancy: Bytes,
        /// Granted by the base station since the previous report.
        granted: Bytes,
        /// Bytes of the grants that carried padding.
        padding: Bytes,
    },
    /// A probe of the path returned.
    Probe {
        /// One-way delay, or half the RTT, as cake-autorate takes it.
        delay: Duration,
        /// Bytes that the uplink carried since the previous probe.
        moved: Bytes,
        /// Time since the previous probe.
        span: Duration,
    },
}

/// The limit that a gate sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// No limit at all.
    None,
    /// The next packet may pass while at most this much lies below the queue.
    Bytes(Bytes),
    /// The queue is shaped to this rate. The gate does the shaping itself, through `open` and
    /// `next_wakeup`.
    Rate(Rate),
}

/// What charts and snapshots show of a gate.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// Estimated bytes below the queue.
    pub occupancy: Option<Bytes>,
    /// Estimated rate of the uplink.
    pub rate: Option<Rate>,
    /// The limit in bytes, where there is one.
    pub limit: Option<Bytes>,
}

/// The contract of a gate.
pub trait Gate {
    /// Takes an event into account.
    fn on_event(&mut self, now: Instant, event: &Event);
    /// The limit at this time.
    fn limit(&self, now: Instant) -> Limit;
    /// Whether the next packet may pass.
    fn open(&self, now: Instant) -> bool;
    /// When a closed gate opens without a further event.
    fn next_wakeup(&self, now: Instant) -> Option<Instant>;
    /// The rate at which the sockets of this host are to be paced, each; `None`: they are not.
    fn pace(&self, _now: Instant) -> Option<Rate> {
        None
    }
    /// Whether it has no queue above it and refuses data of this host's sockets.
    fn refuses(&self) -> bool {
        false
    }
    /// What data of a flow of this host meet at a gate that refuses; `None`: they pass.
    fn admission(&self, _now: Instant, _flow: u32) -> Option<Admission> {
        None
    }
    /// Interval of the probes that the law needs; `None`: it needs none.
    fn probe_every(&self) -> Option<Duration> {
        None
    }
    /// The state that charts and snapshots show.
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
        pace(now: Instant) -> Option<Rate>;
        refuses() -> bool;
        admission(now: Instant, flow: u32) -> Option<Admission>;
        probe_every() -> Option<Duration>;
        state(now: Instant) -> State;
    }
}
