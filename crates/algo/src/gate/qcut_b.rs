//! QCUT-B: another packet while the firmware buffer is estimated to hold no more than a fixed number of bytes.
//!
//! signal: the modem's delayed reports, packets that passed · model: the estimate of [`Occupancy`] · action: open at or
//! below the limit (QCUT section 6, figure 15). No one figure serves: 2 KB was best at −110 dBm, 20 KB at −98,
//! 50 KB at −85.
//!
//! Deviation: open until the first report, and again when no report has come for `patience`; a gate that trusts a dead
//! modem stops the phone.

use units::{Bytes, Duration, Instant};

use super::{Event, Gate, Limit, Occupancy, Setup, Slack, State};

/// Name in the table.
pub const NAME: &str = "qcut_b";
/// One line.
pub const ABOUT: &str = "a fixed number of bytes in the firmware buffer, by the modem's reports";
/// Where it is specified.
pub const SOURCE: &str = "QCUT section 6, figure 15";

config! {
    /// How much, and how long to trust the last report.
    pub struct Config {
        /// Bytes that may lie in the firmware buffer when another packet goes in. 20 KB was best at −98 dBm.
        limit: Bytes = Bytes(20_000), Bytes(0), Bytes(100_000_000);
        /// Without a report for so long the gate opens; ten times the age of QCUT's reports (100 ms).
        patience: Duration = Duration::from_millis(1_000), Duration::from_millis(1), Duration::from_secs(60);
    }
}

/// See the module text.
#[derive(Clone, Debug)]
pub struct QcutB {
    limit: Bytes,
    patience: Duration,
    occupancy: Occupancy,
}

impl QcutB {
    /// For an idle device.
    pub fn new(config: Config, _setup: &Setup) -> QcutB {
        QcutB {
            limit: config.limit,
            patience: config.patience,
            occupancy: Occupancy::new(false, Slack::default()),
        }
    }
}

impl Gate for QcutB {
    fn on_event(&mut self, now: Instant, event: &Event) {
        self.occupancy.on_event(now, event);
    }
    fn limit(&self, now: Instant) -> Limit {
        if self.occupancy.silent(now, self.patience) {
            Limit::None
        } else {
            Limit::Bytes(self.limit)
        }
    }
    fn open(&self, now: Instant) -> bool {
        self.occupancy.silent(now, self.patience) || self.occupancy.bytes(now) <= self.limit
    }
    fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        if self.open(now) { None } else { self.occupancy.opens(self.limit, self.patience) }
    }
    fn state(&self, now: Instant) -> State {
        State {
            occupancy: Some(self.occupancy.bytes(now)),
            rate: self.occupancy.rate(),
            limit: Some(self.limit),
        }
    }
}
