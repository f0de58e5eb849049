//! QCUT-D: another packet while what is estimated to lie in the firmware buffer drains within 20 ms. Integers only.
//!
//! signal: the modem's delayed reports, packets that passed · model: the estimate B of [`Occupancy`] and its uplink
//! rate R · action: open while B / R ≤ target (QCUT section 6), decided as B ≤ R · target.
//!
//! Deviations: a floor below which the gate is open whatever the rate, because at rate zero the paper's rule would let
//! nothing pass that could ever be measured; open until the first report, and again when no report has come for
//! `patience`. `hold` leaves intervals out of the average in which nothing was there to send, and takes one that was
//! padded because data ran out for a lower bound: neither says what is *achievable*, which the paper means to predict, and
//! the gate itself makes such intervals. The paper does not say what it does with them; averaged like the others (`hold =
//! false`) they make a low rate a fixed point, where at −98 dBm half of the throughput is lost that the paper keeps, and
//! the handshake of the next connection pulls a known rate down.

use units::{Bytes, Duration, Instant};

use super::{Event, Gate, Limit, Occupancy, Setup, State, drained};

/// Name in the table.
pub const NAME: &str = "qcut_d";
/// One line.
pub const ABOUT: &str = "a fixed drain time of the firmware buffer, by the modem's reports";
/// Where it is specified.
pub const SOURCE: &str = "QCUT section 6";

config! {
    /// How long, and how long to trust the last report.
    pub struct Config {
        /// What lies in the firmware buffer may take so long to drain (QCUT section 6 chose 20 ms).
        target: Duration = Duration::from_millis(20), Duration::from_millis(1), Duration::from_millis(4_000);
        /// Packets that may always lie in the firmware buffer: two, as TSQ and BQL allow, one on the air and one behind.
        floor: u64 = 2, 1, 1_000;
        /// Leaves intervals out of the average in which nothing was sent because nothing was there (see above).
        hold: bool = true;
        /// Without a report for so long the gate opens; ten times the age of QCUT's reports (100 ms).
        patience: Duration = Duration::from_millis(1_000), Duration::from_millis(1), Duration::from_secs(60);
    }
}

/// The bytes that may lie in the firmware buffer when another packet goes in: R · target, at least `floor`. What the
/// kernel side computes from the same three numbers.
#[inline]
pub const fn limit(bytes_per_second: u64, target_ns: u64, floor: u64) -> u64 {
    let limit = drained(bytes_per_second, target_ns);
    if limit > floor { limit } else { floor }
}

/// See the module text.
#[derive(Clone, Debug)]
pub struct QcutD {
    target: Duration,
    floor: u64,
    patience: Duration,
    occupancy: Occupancy,
}

impl QcutD {
    /// For an idle device.
    pub fn new(config: Config, setup: &Setup) -> QcutD {
        QcutD {
            target: config.target,
            // "No more than so much lies below, then one more": the last packet comes on top.
            floor: (setup.mtu * config.floor.saturating_sub(1)).0,
            patience: config.patience,
            occupancy: Occupancy::new(config.hold),
        }
    }

    fn bytes(&self) -> Bytes {
        Bytes(limit(self.occupancy.bytes_per_second().unwrap_or(0), self.target.0, self.floor))
    }
}

impl Gate for QcutD {
    fn on_event(&mut self, now: Instant, event: &Event) {
        self.occupancy.on_event(now, event);
    }
    fn limit(&self, now: Instant) -> Limit {
        if self.occupancy.silent(now, self.patience) { Limit::None } else { Limit::Bytes(self.bytes()) }
    }
    fn open(&self, now: Instant) -> bool {
        self.occupancy.silent(now, self.patience) || self.occupancy.bytes(now) <= self.bytes()
    }
    fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        if self.open(now) { None } else { self.occupancy.opens(self.bytes(), self.patience) }
    }
    fn state(&self, now: Instant) -> State {
        State {
            occupancy: Some(self.occupancy.bytes(now)),
            rate: self.occupancy.rate(),
            limit: Some(self.bytes()),
        }
    }
}
