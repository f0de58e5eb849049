//! Reports of the modem, or at least of the driver, about the bytes below the operating system.
//!
//! signal: a record on a Unix socket, a counter of the driver · model: a report: bytes in the
//! buffer, bytes granted, padding in them, and the time · action: reports for the gate, and notice
//! that none come any more.
//!
//! A new source is a type that implements [`Source`]. A source outside of this program is a process
//! that listens on a Unix socket and sends one of the two records that [`socket`] reads.

use std::io;
use std::time::Duration;

pub mod driver;
pub mod socket;

/// One report. Reports of one source come in the order of their times, or nearly so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Time for which it is valid: CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// Bytes queued below the operating system at that time.
    pub occupancy: u64,
    /// Bytes that the base station granted since the previous report.
    pub granted: u64,
    /// Padding in these bytes, because there was no data to send: the rate could be higher.
    pub padding: u64,
}

/// How much of the buffer a source can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The driver's ring and the queue above it. It does not see a buffer behind them, so an empty
    /// ring does not mean an empty buffer: the cure without telemetry should stay active.
    Driver,
    /// The modem's buffer, from which packets are transmitted.
    Modem,
}

/// A source of reports.
pub trait Source: Send {
    /// The name in messages.
    fn name(&self) -> String;
    /// How much of the buffer it can see.
    fn grade(&self) -> Grade;
    /// Waits for the next report, no longer than `timeout`. `None`: there was none. An error means
    /// that the source is missing now. The caller asks again later, so the source has to reconnect
    /// by itself.
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Report>>;
}

/// Whether reports arrive, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Reports arrive within the timeout.
    Fresh {
        /// Name of the source.
        source: String,
        /// How much of the buffer it can see.
        grade: Grade,
    },
    /// None within the timeout: the gate is open, and the cure without telemetry has to take over.
    Silent {
        /// CLOCK_MONOTONIC of the last report, or of the start.
        since_ns: u64,
        /// The last error of the sources.
        why: String,
    },
}
