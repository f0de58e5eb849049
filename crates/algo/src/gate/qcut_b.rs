//! QCUT-B: a fixed limit in bytes on the estimated firmware buffer.
//!
//! signal: the modem's delayed reports, packets that passed · model: the estimate of [`Occupancy`] ·
//! action: open at or below the limit. Source: QCUT section 6, figure 15. No single limit fits all
//! conditions: 2 KB was best at −110 dBm, 20 KB at −98, 50 KB at −85.
//!
//! Deviation: the gate is open until the first report, and again after `patience` without a report.
//! Otherwise a modem that stops reporting would stop the phone.

use units::{Bytes, Duration, Instant};

use super::{Event, Gate, Limit, Occupancy, Setup, Slack, State};

/// Name in the table.
pub const NAME: &str = "qcut_b";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "a fixed number of bytes in the firmware buffer, by the modem's reports";
/// Where it is specified.
pub const SOURCE: &str = "QCUT section 6, figure 15";

config! {
    /// The limit, and the timeout of reports.
    pub struct Config {
        /// Bytes that may lie in the firmware buffer when another packet goes in. 20 KB was best at −98 dBm.
        limit: Bytes = Bytes(20_000), Bytes(0), Bytes(100_000_000);
        /// Timeout: without a report for this long the gate opens. Ten times the age of QCUT's reports (100 ms).
        patience: Duration = Duration::from_millis(1_000), Duration::from_millis(1), Duration::from_secs(60);
    }
}

/// The QCUT-B gate of one device.
#[derive(Clone, Debug)]
pub struct QcutB {
    limit: Bytes,
    report_timeout: Duration,
    occupancy: Occupancy,
}

impl QcutB {
    /// The state of an idle device.
    pub fn new(config: Config, _setup: &Setup) -> QcutB {
        QcutB {
            limit: config.limit,
            report_timeout: config.patience,
            occupancy: Occupancy::new(false, Slack::default()),
        }
    }
}

impl Gate for QcutB {
    fn on_event(&mut self, now: Instant, event: &Event) {
        self.occupancy.on_event(now, event);
    }
    fn limit(&self, now: Instant) -> Limit {
        if self.occupancy.silent(now, self.report_timeout) {
            Limit::None
        } else {
            Limit::Bytes(self.limit)
        }
    }
    fn open(&self, now: Instant) -> bool {
        self.occupancy.silent(now, self.report_timeout) || self.occupancy.bytes(now) <= self.limit
    }
    fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        if self.open(now) { None } else { self.occupancy.opens(self.limit, self.report_timeout) }
    }
    fn state(&self, now: Instant) -> State {
        State {
            occupancy: Some(self.occupancy.bytes(now)),
            rate: self.occupancy.rate(),
            limit: Some(self.limit),
        }
    }
}
