//! QCUT-D: a fixed limit on the time that the estimated firmware buffer takes to drain. Integers only.
//!
//! signal: the modem's delayed reports, packets that passed · model: the estimate B of [`Occupancy`]
//! and its uplink rate R · action: open while B / R ≤ target, computed as B ≤ R · target. Source: QCUT
//! section 6.
//!
//! Deviations:
//! - Below a floor the gate is open at any rate. At rate zero the paper's rule would let no packet
//!   pass, and the rate could never be measured again.
//! - The gate is open until the first report, and again after `patience` without a report.
//! - `hold`, off by default here and on in the agent, keeps two kinds of intervals from lowering the
//!   average: those without data to send are left out, and those padded because data ran out count as a
//!   lower bound. Neither shows the *achievable* rate, which the paper wants to predict, and the gate
//!   itself causes such intervals. The paper does not mention them. As published they are averaged like
//!   the others. After a pause the handshake of the next connection then pulls a known rate down.
//! - As published a low rate is also a fixed point where each report reaches the kernel alone, 100 ms old:
//!   at −98 dBm half of the paper's throughput is lost. Where the reports of about 100 ms arrive
//!   together, as old on average, nothing is lost (`scenarios/qcut-6-reports.toml`).
//!
//! Readings that the paper leaves open: 0.25 is the weight of the new sample; the level of a report
//! counts as its upper edge; the modem's clock agrees with the kernel's. A clock 50 ms behind costs 15 % of
//! the throughput at −95 dBm, one 50 ms ahead costs 1 % (`scenarios/qcut-7-d.toml`).
//!
//! Other deviations:
//! - `slack`, off by default, lets the target grow on a link whose rate jumps ([`Slack`]). The paper's
//!   rule assumes that a rate lasts as long as its reports are old. Recorded LTE uplinks change their
//!   rate by factors within 100 ms; a buffer of 20 ms at the average rate is empty at every peak,
//!   which costs up to two thirds of the throughput.
//! - `pace`, off by default here and on in the agent, paces the device's own senders ([`Pacer`]), so
//!   that nothing of theirs waits above the gate or is refused there.
//! - `refuse`, off by default here, is the agent's gate: it has no queue of its own, and what does not pass
//!   stays in its socket ([`Refusal`]). In the paper a queue discipline above the gate keeps it.

use units::{Bytes, Duration, Instant, Rate};

use super::pacing::Pacer;
use super::refusal::{Admission, Refusal};
use super::{Event, Gate, Limit, Occupancy, Setup, Slack, State, drained};

/// Name in the table.
pub const NAME: &str = "qcut_d";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "a fixed drain time of the firmware buffer, by the modem's reports";
/// Where it is specified.
pub const SOURCE: &str = "QCUT section 6";

config! {
    /// The drain time, its extension if the rate jumps, and the timeout of reports.
    pub struct Config {
        /// Time that the firmware buffer may take to drain (QCUT section 6 chose 20 ms).
        target: Duration = Duration::from_millis(20), Duration::from_millis(1), Duration::from_millis(4_000);
        /// Packets that the firmware buffer may always contain: two, as with TSQ and BQL, one on the air and one behind it.
        floor: u64 = 2, 1, 1_000;
        /// Leaves intervals without data to send out of the average rate, and takes padded ones as a lower bound (own).
        hold: bool = false;
        /// Timeout: without a report for this long the gate opens. Ten times the age of QCUT's reports (100 ms).
        patience: Duration = Duration::from_millis(1_000), Duration::from_millis(1), Duration::from_secs(60);
        /// Upper bound of the extra time while the link is idle although the estimate is not zero; 0: as published.
        slack: Duration = Duration::ZERO, Duration::ZERO, Duration::from_millis(4_000);
        /// Beside a download the device's own senders are paced, so that nothing need wait or be refused (own; not in the paper).
        pace: bool = false;
        /// There is no queue above the gate: data of this host's sockets that do not pass stay there, and TCP takes that for congestion, as with the agent (own; not in the paper).
        refuse: bool = false;
    }
}

/// Bytes that the firmware buffer may contain when the next packet enters: R · (target + slack), or
/// what the slower average drains in the slack if that is more; at least `floor`. The eBPF program
/// computes the same from the same numbers.
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

/// The QCUT-D gate of one device.
#[derive(Clone, Debug)]
pub struct QcutD {
    target: Duration,
    floor: u64,
    report_timeout: Duration,
    occupancy: Occupancy,
    /// Where senders are paced.
    pacer: Option<Pacer>,
    /// Where no queue is above it.
    refusal: Option<Refusal>,
}

impl QcutD {
    /// The state of an idle device.
    pub fn new(config: Config, setup: &Setup) -> QcutD {
        // The rule is "at most this much below, then one more packet": the last one is on top.
        let floor = (setup.mtu * config.floor.saturating_sub(1)).0;
        QcutD {
            target: config.target,
            floor,
            report_timeout: config.patience,
            occupancy: Occupancy::new(
                config.hold,
                Slack::new(config.slack.0, floor.saturating_mul(3) / 2),
            ),
            pacer: config.pace.then(Pacer::default),
            refusal: config.refuse.then(Refusal::default),
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
        if self.pacer.is_none() && self.refusal.is_none() {
            return self.occupancy.on_event(now, event);
        }
        let before = self.occupancy.bytes(now).0;
        self.occupancy.on_event(now, event);
        let rate = self.occupancy.bytes_per_second().unwrap_or(0);
        let (occupancy, limit) = (self.occupancy.bytes(now).0, self.bytes().0);
        let refuses = self.refuses();
        if let Some(refusal) = &mut self.refusal {
            match *event {
                Event::Passed { bytes, flow, .. } => {
                    refusal.on_passed(now, flow, bytes.0, before);
                }
                Event::Report { .. } => refusal.on_report(now, rate, occupancy),
                Event::Completed { .. } | Event::Probe { .. } => {}
            }
        }
        let Some(pacer) = &mut self.pacer else { return };
        match *event {
            Event::Passed { bytes, flow, bare } => pacer.on_passed(now, flow, bytes.0, bare),
            Event::Report { .. } => pacer.on_report(now, rate),
            Event::Completed { .. } | Event::Probe { .. } => return,
        }
        // What is refused is refused at one and a half limits.
        let full = if refuses { limit + limit / 2 } else { limit };
        pacer.decide(now, rate, occupancy, full, self.target.0, self.floor);
    }
    fn limit(&self, now: Instant) -> Limit {
        if self.occupancy.silent(now, self.report_timeout) {
            Limit::None
        } else {
            Limit::Bytes(self.bytes())
        }
    }
    fn open(&self, now: Instant) -> bool {
        self.refuses()
            || self.occupancy.silent(now, self.report_timeout)
            || self.occupancy.bytes(now) <= self.bytes()
    }
    fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        if self.open(now) { None } else { self.occupancy.opens(self.bytes(), self.report_timeout) }
    }
    fn pace(&self, now: Instant) -> Option<Rate> {
        let silent = self.occupancy.silent(now, self.report_timeout);
        let pacer = self.pacer.as_ref().filter(|_| !silent)?;
        pacer.pace().map(|rate| Rate(8 * rate))
    }
    fn refuses(&self) -> bool {
        self.refusal.is_some()
    }
    fn admission(&self, now: Instant, flow: u32) -> Option<Admission> {
        let refusal = self.refusal.as_ref()?;
        if self.occupancy.silent(now, self.report_timeout) {
            return None;
        }
        let rate = self.occupancy.bytes_per_second().unwrap_or(0);
        Some(refusal.admission(now, flow, rate, self.occupancy.bytes(now).0, self.bytes().0))
    }
    fn state(&self, now: Instant) -> State {
        State {
            occupancy: Some(self.occupancy.bytes(now)),
            rate: self.occupancy.rate(),
            limit: Some(self.bytes()),
        }
    }
}
