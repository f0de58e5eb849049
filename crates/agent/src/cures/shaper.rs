//! HTB in place of the uplink's queue discipline, where BPF is not available: its rate is set by
//! netlink.
//!
//! signal: reports of the modem · model: QCUT-D's estimate (`algo::gate::Occupancy`, in this
//! process) · action: the rate of one HTB class. It is the uplink's rate, more or less by what
//! drains the excess of the firmware's buffer, or fills it, within 100 ms.
//!
//! A rate would stay when its process dies, however fast the link becomes. So the change is in the
//! journal before it is made, the supervisor undoes it, and without reports [`Shaper::tick`] removes
//! the shaper. Below HTB is FQ-CoDel where the kernel has it, else a FIFO of 20 ms: local sockets
//! wait above it, forwarded traffic shares it without fairness.
//!
//! Needs HTB (CONFIG_NET_SCH_HTB).

mod feed;

use algo::gate::qcut_d::{self, limit};
use algo::gate::{Occupancy, Slack};
use netlink::{Attributes, Device, Netlink, Request, kind, tcmsg};
use units::{Bytes, Instant};

use crate::cures::{CureError, Result, now_ns};
use crate::telemetry::Report;
use crate::undo;
use crate::undo::journal::{Change, Journal};

pub use feed::Fed;

/// Numbers of the discipline, its class and the leaf, unlikely to be taken.
const ROOT: u32 = 0xb10a_0000;
const CLASS: u32 = 0xb10a_0001;
const LEAF: u32 = 0xb10b_0000;
/// The buffer returns to its limit within this time: the age of the modem's reports (QCUT section
/// 6), ns.
const SOON_NS: u64 = 100_000_000;
/// Lower rates are not set, in bytes per second: a packet of 1,500 bytes would take too long for the
/// rate to be found again.
const MIN_RATE: u64 = 8_000;
/// A smaller change is not worth a call: a sixteenth.
const WORTH: u64 = 16;

/// The rate to set, bytes per second, for an uplink of `rate` bytes per second with `held` bytes in
/// the firmware's buffer, where `limit` bytes are allowed.
pub fn shaped(rate: u64, held: u64, limit: u64) -> u64 {
    let per_second = |bytes: u64| bytes.saturating_mul(1_000_000_000 / SOON_NS);
    // More than half of the rate is not taken away: a floor, however wrong the estimate.
    let less = per_second(held.saturating_sub(limit)).min(rate / 2);
    let more = per_second(limit.saturating_sub(held)).min(rate / 2);
    (rate - less).saturating_add(more).max(MIN_RATE)
}

/// HTB on a device, set by a modem's reports.
#[derive(Debug)]
pub struct Shaper {
    netlink: Netlink,
    device: Device,
    law: qcut_d::Config,
    occupancy: Occupancy,
    /// What had left HTB at the last report: what left since is below.
    sent: u64,
    /// The rate that is set, bytes per second; `None`: no shaper; zero: a shaper that another agent
    /// left, at its last rate.
    set: Option<u64>,
    change: Change,
    begun: Instant,
}

impl Shaper {
    /// For a device whose root discipline is the kernel's default: removing ours brings that back.
    /// Nothing is changed before the first reports give a rate; a shaper that another agent left
    /// stays meanwhile, at its rate.
    pub fn attach(device: &str, law: &qcut_d::Config, journal: &mut Journal) -> Result<Shaper> {
        let what = |why: std::io::Error| CureError::Refused(format!("a shaper on {device}: {why}"));
        let mut netlink = Netlink::open().map_err(what)?;
        let found = netlink.device(device).map_err(what)?;
        let there = netlink.qdiscs(found.index).map_err(what)?;
        let left = there.iter().find(|qdisc| qdisc.is_root() && qdisc.handle == ROOT);
        let (sent, set) = left.map_or((0, None), |left| (left.bytes, Some(0)));
        if let Some(own) = there.iter().find(|qdisc| qdisc.is_root() && qdisc.handle != 0) {
            // Taking ours away would not bring back a root discipline set by hand or by a tool.
            if own.handle != ROOT {
                return Err(CureError::Refused(format!(
                    "{device} has {} as its root, set by another program: a shaper would have to destroy it",
                    own.kind
                )));
            }
        }
        let change = Change::Qdisc { device: device.to_owned(), handle: ROOT };
        journal.write(&change).map_err(CureError::file(journal.path().to_owned()))?;
        let occupancy =
            Occupancy::new(law.hold, Slack::new(law.slack.0, u64::from(found.mtu) * 3 / 2));
        let begun = Instant(now_ns());
        Ok(Shaper { netlink, device: found, law: law.clone(), occupancy, sent, set, change, begun })
    }

    /// Takes a report of the modem, and sets the rate that follows from it.
    pub fn report(&mut self, report: &Report) -> Result<()> {
        let now = Instant(now_ns());
        if self.set.is_some() {
            let sent = self.shaped_bytes()?;
            let passed = sent.saturating_sub(std::mem::replace(&mut self.sent, sent));
            if passed > 0 {
                self.occupancy.on_passed(now, Bytes(passed));
            }
        }
        self.occupancy.on_report(
            now,
            Instant(report.at_ns),
            Bytes(report.occupancy),
            Bytes(report.granted),
            Bytes(report.padding),
        );
        let Some(rate) = self.occupancy.bytes_per_second() else { return Ok(()) };
        let slack = self.occupancy.slack();
        let most =
            limit(rate, self.law.target.0, slack.ns(), slack.rate(), u64::from(self.device.mtu));
        let wanted = shaped(rate, self.occupancy.bytes(now).0, most);
        if self.set.is_some_and(|set| set.abs_diff(wanted) <= set / WORTH) {
            return Ok(());
        }
        self.put(wanted)
    }

    /// Bytes that left through HTB since it was made; 0 while there is none.
    pub(crate) fn shaped_bytes(&mut self) -> Result<u64> {
        let there = self.netlink.qdiscs(self.device.index);
        let there = there.map_err(|why| refused("reading HTB's counters", why))?;
        Ok(there.iter().find(|qdisc| qdisc.handle == ROOT).map_or(0, |root| root.bytes))
    }

    /// What is set, bytes per second.
    pub fn rate(&self) -> Option<u64> {
        self.set.filter(|rate| *rate > 0)
    }

    /// Takes the shaper away when reports have stopped. To be called several times a second.
    pub fn tick(&mut self) -> Result<()> {
        let now = Instant(now_ns());
        let reported = !self.occupancy.silent(now, self.law.patience);
        if self.set.is_some() && !reported && now.since(self.begun) >= self.law.patience {
            self.lift()?;
        }
        Ok(())
    }

    /// Everything as it was.
    pub fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.lift()?;
        journal.undone(&self.change).map_err(CureError::file(journal.path().to_owned()))
    }

    /// Leaves HTB as it is to another agent, and the journal too.
    pub fn hand_over(mut self) {
        self.set = None;
    }

    /// Its change in the journal.
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// Takes HTB away; the next report puts it back.
    pub fn lift(&mut self) -> Result<()> {
        if self.set.take().is_some() {
            let root = tcmsg(self.device.index, ROOT, netlink::ROOT);
            let gone =
                self.netlink.ask(kind::DEL_QDISC, Request::Remove, &root, &Attributes::default());
            gone.map_err(|why| refused("taking HTB away", why))?;
        }
        Ok(())
    }

    fn put(&mut self, rate: u64) -> Result<()> {
        if self.set.is_none() {
            self.build(rate)?;
        } else {
            self.class(rate)?;
        }
        self.set = Some(rate);
        Ok(())
    }

    fn build(&mut self, rate: u64) -> Result<()> {
        let index = self.device.index;
        // struct tc_htb_glob: version 3, rate2quantum, defcls, debug, direct packets.
        let global = words(&[3, 10, CLASS & 0xffff, 0, 0]);
        const TCA_HTB_INIT: u16 = 2;
        let options = Attributes::default().with(TCA_HTB_INIT, &global);
        self.ask(kind::NEW_QDISC, tcmsg(index, ROOT, netlink::ROOT), "htb", &options, "HTB")?;
        // From here on there is something to take away, and its counters begin.
        self.sent = 0;
        self.set = Some(rate);
        self.class(rate)?;
        const TCA_FQ_CODEL_ECN: u16 = 4;
        let ecn = Attributes::default().with(TCA_FQ_CODEL_ECN, &words(&[1]));
        let leaf = tcmsg(index, LEAF, CLASS);
        if self.ask(kind::NEW_QDISC, leaf, "fq_codel", &ecn, "FQ-CoDel").is_err() {
            // struct tc_fifo_qopt: the law's target at this rate, in bytes, and at least four
            // packets.
            let most = limit(rate, self.law.target.0, 0, 0, 4 * u64::from(self.device.mtu));
            let fifo = words(&[u32::try_from(most).unwrap_or(u32::MAX)]);
            let message = named("bfifo").with(TCA_OPTIONS, &fifo);
            let made = self.netlink.ask(kind::NEW_QDISC, Request::Put, &leaf, &message);
            made.map_err(|why| refused("a FIFO", why))?;
        }
        Ok(())
    }

    fn class(&mut self, rate: u64) -> Result<()> {
        const TCA_HTB_PARMS: u16 = 1;
        const TCA_HTB_RATE64: u16 = 6;
        const TCA_HTB_CEIL64: u16 = 7;
        // struct tc_htb_opt: rate, ceiling, buffer, cbuffer, quantum, level, priority. The link layer
        // is set, so that the kernel expects no rate table of the old kind.
        let slow = u32::try_from(rate).unwrap_or(u32::MAX);
        let mut parameters = Vec::new();
        for _ in 0..2 {
            // struct tc_ratespec: cell_log, linklayer (Ethernet), overhead, cell_align, mpu, rate.
            parameters.extend([0, 1, 0, 0, 0, 0, 0, 0]);
            parameters.extend(slow.to_ne_bytes());
        }
        // Bursts of two packets, in the scheduler's ticks of 64 ns.
        let burst = 2 * u64::from(self.device.mtu) * 1_000_000_000 / rate.max(1) / 64;
        let burst = u32::try_from(burst).unwrap_or(u32::MAX);
        parameters.extend(words(&[burst, burst, 2 * self.device.mtu, 0, 0]));
        let mut options = Attributes::default().with(TCA_HTB_PARMS, &parameters);
        if rate > u64::from(u32::MAX) {
            options = options.with(TCA_HTB_RATE64, &rate.to_ne_bytes());
            options = options.with(TCA_HTB_CEIL64, &rate.to_ne_bytes());
        }
        let place = tcmsg(self.device.index, CLASS, ROOT);
        self.ask(kind::NEW_CLASS, place, "htb", &options, "a class of HTB")
    }

    fn ask(
        &mut self,
        kind: u16,
        place: [u8; 20],
        name: &str,
        options: &Attributes,
        what: &'static str,
    ) -> Result<()> {
        let message = named(name).with_nested(TCA_OPTIONS, options);
        let made = self.netlink.ask(kind, Request::Put, &place, &message);
        made.map(|_| ()).map_err(|why| refused(what, why))
    }
}

impl Drop for Shaper {
    /// A rate must not outlive its master; what fails here is in the journal.
    fn drop(&mut self) {
        if self.set.is_some() && self.lift().is_err() {
            let _ = undo::revert(&self.change);
        }
    }
}

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

fn named(name: &str) -> Attributes {
    let mut text = name.as_bytes().to_vec();
    text.push(0);
    Attributes::default().with(TCA_KIND, &text)
}

fn words(of: &[u32]) -> Vec<u8> {
    of.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn refused(what: &'static str, why: std::io::Error) -> CureError {
    CureError::Kernel { what, since: "3.8, with the module", why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_slows_and_an_empty_one_hastens_but_never_beyond_half() {
        assert_eq!(shaped(250_000, 5_000, 5_000), 250_000);
        assert_eq!(shaped(250_000, 10_000, 5_000), 200_000);
        assert_eq!(shaped(250_000, 0, 5_000), 300_000);
        assert_eq!(shaped(250_000, 1_000_000, 5_000), 125_000);
        assert_eq!(shaped(250_000, 0, 1_000_000), 375_000);
        assert_eq!(shaped(0, 1_000_000, 5_000), MIN_RATE);
        assert_eq!(shaped(u64::MAX, 0, u64::MAX), u64::MAX);
    }
}
