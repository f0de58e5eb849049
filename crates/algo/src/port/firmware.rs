//! What a phone's modem is: its buffer, its driver's marks, and how its reports reach the kernel.

use units::{Bytes, Duration};

use crate::link::grants::Level;

/// The modem's buffer below the operating system, and what it reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Firmware {
    /// Its size in bytes. When it is full the driver stops the queue above (back-pressure); it never drops.
    pub buffer: Bytes,
    /// Bytes that are free again when the driver wakes a queue that it stopped; zero: as soon as a packet fits.
    pub wake: Bytes,
    /// Interval of its reports (5 ms, QCUT section 6).
    pub report_every: Duration,
    /// Mean age of a report when the kernel reads it (100 ms in QCUT).
    pub report_delay: Duration,
    /// Reports of this span reach the kernel together, as a log that is handed over in buffers; zero: each alone.
    pub report_batch: Duration,
    /// What the kernel reads from a report, which has a level and no number of bytes.
    pub level: Level,
    /// The modem's clock is ahead of the host's: its reports are older than they say.
    pub clock_ahead: Duration,
    /// The modem's clock is behind the host's: its reports are younger than they say.
    pub clock_behind: Duration,
}

impl Default for Firmware {
    /// QCUT's modem: sections 4 and 6, with its clock synchronised to the host's.
    fn default() -> Firmware {
        Firmware {
            buffer: Bytes(300_000),
            wake: Bytes::ZERO,
            report_every: Duration::from_millis(5),
            report_delay: Duration::from_millis(100),
            report_batch: Duration::ZERO,
            level: Level::Upper,
            clock_ahead: Duration::ZERO,
            clock_behind: Duration::ZERO,
        }
    }
}
