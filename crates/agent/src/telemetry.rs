//! What the modem, or at least the driver, tells of the bytes below the operating system.
//!
//! signal: a record on a Unix socket, a counter of the driver · model: a report: bytes in the buffer, what was granted, what of that was
//! padding, and when · action: reports for the gate, and the word that none come any more.
//!
//! A new source is one type with [`Source`]; a source outside of this program is a process that listens on a Unix socket and sends one
//! of the two records that [`socket`] reads.

use std::io;
use std::time::Duration;

pub mod driver;
pub mod socket;

/// One report. Reports of one source are in the order of their times, or nearly so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// When it was true: CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// Bytes that waited below the operating system then.
    pub occupancy: u64,
    /// Bytes that the base station granted since the report before.
    pub granted: u64,
    /// Of them, filled with padding, because nothing was there to send. Tells that the rate could be higher.
    pub padding: u64,
}

/// How much a source knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The driver's own ring and the queue above it. Nothing of a buffer behind them, so an empty ring does not mean an empty buffer:
    /// the cure without telemetry should go on beside it.
    Driver,
    /// The buffer from which packets go on the air.
    Modem,
}

/// Where reports come from.
pub trait Source: Send {
    /// For people.
    fn name(&self) -> String;
    /// How much it knows.
    fn grade(&self) -> Grade;
    /// Waits for the next report, no longer than `patience`. `None`: there was none. An error is a source that is not there now; it is
    /// asked again later, so it has to find it anew by itself.
    fn next(&mut self, patience: Duration) -> io::Result<Option<Report>>;
}

/// Whether reports come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// They do.
    Fresh {
        /// From where.
        source: String,
        /// How much it knows.
        grade: Grade,
    },
    /// None within the patience: the gate is open, the cure without telemetry has to take over.
    Silent {
        /// CLOCK_MONOTONIC of the last one, or of the beginning.
        since_ns: u64,
        /// What the sources said last.
        why: String,
    },
}
