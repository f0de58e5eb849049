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
//!
//! Beyond the paper, and off by default: `slack`, by which the target may grow on a link whose rate jumps ([`Slack`]). The
//! paper's rule supposes a rate that lasts as long as its reports are old; recorded LTE uplinks change theirs by factors
//! within 100 ms, and a buffer of 20 ms at the average runs dry at every peak, which costs up to two thirds of the throughput.

use units::{Bytes, Duration, Instant};

use super::{Event, Gate, Limit, Occupancy, Setup, Slack, State, drained};

/// Name in the table.
pub const NAME: &str = "qcut_d";
/// One line.
pub const ABOUT: &str = "a fixed drain time of the firmware buffer, by the modem's reports";
/// Where it is specified.
pub const SOURCE: &str = "QCUT section 6";

config! {
    /// How long, how much longer where the rate jumps, and how long to trust the last report.
    pub struct Config {
        /// What lies in the firmware buffer may take so long to drain (QCUT section 6 chose 20 ms).
        target: Duration = Duration::from_millis(20), Duration::from_millis(1), Duration::from_millis(4_000);
        /// Packets that may always lie in the firmware buffer: two, as TSQ and BQL allow, one on the air and one behind.
        floor: u64 = 2, 1, 1_000;
        /// Leaves intervals out of the average in which nothing was sent because nothing was there (see above).
        hold: bool = true;
        /// Without a report for so long the gate opens; ten times the age of QCUT's reports (100 ms).
        patience: Duration = Duration::from_millis(1_000), Duration::from_millis(1), Duration::from_secs(60);
        /// The most that is added to the target while the link runs dry before the estimate does; none: as published.
        slack: Duration = Duration::ZERO, Duration::ZERO, Duration::from_millis(4_000);
    }
}

/// The bytes that may lie in the firmware buffer when another packet goes in: R · (target + slack), or what the slower
/// average moves in the slack; at least `floor`. What the kernel side computes from the same numbers.
#[inline]
pub const fn limit(
    bytes_per_second: u64,
    target_ns: u64,
    slack_ns: u64,
    slow: u64,
    floor: u64,
) -> u64 {
    let limit = drained(bytes_per_second, target_ns.saturating_add(slack_ns));
    let steady = drained(slow, slack_ns);
    let limit = if limit > steady { limit } else { steady };
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
        // "No more than so much lies below, then one more": the last packet comes on top.
        let floor = (setup.mtu * config.floor.saturating_sub(1)).0;
        QcutD {
            target: config.target,
            floor,
            patience: config.patience,
            occupancy: Occupancy::new(
                config.hold,
                Slack::new(config.slack.0, floor.saturating_mul(3) / 2),
            ),
        }
    }

    fn bytes(&self) -> Bytes {
        let (rate, slack): (u64, &Slack) =
            (self.occupancy.bytes_per_second().unwrap_or(0), self.occupancy.slack());
        Bytes(limit(rate, self.target.0, slack.ns(), slack.rate(), self.floor))
    }
}

impl Gate for QcutD {
    fn on_event(&mut self, now: Instant, event: &Event) {
        self.occupancy.on_event(now, event);
    }
    fn limit(&self, now: Instant) -> Limit {
        if self.occupancy.silent(now, self.patience) {
            Limit::None
        } else {
            Limit::Bytes(self.bytes())
        }
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
