//! The cures on the uplink's device: attached to it, moved with it, and lifted or put back as
//! reports of a modem come and go.
//!
//! signal: the configuration, the device that is the uplink now, whether reports come · model:
//! [`ControlSelection`] · action: cures attached, lifted, detached. A lifted cure watches, so that no
//! advertised window is retracted when it comes back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use netlink::Netlink;
use serde::Serialize;

use super::route::{self, UplinkDevice};
use super::select::{ControlSelection, ReportSource, UplinkControl};
use super::{Mode, Uplink};
use crate::cures::Cure;
use crate::cures::{Attached, CureError, Extent, Lifted, Place, Result, Site, Wanted, attach};
use crate::telemetry::{Grade, State};
use crate::undo::handover;
use crate::undo::journal::{Change, Journal};

/// A route that moved has to stay for so many looks, half a second apart.
const LOOKS: u32 = 2;

/// The cure that controls uploads now, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Active {
    /// Its name; "none" without one.
    pub active: &'static str,
    /// Why that cure controls uploads, or none does.
    pub why: String,
}

/// What [`Active::active`] may be.
pub const ACTIVE: [&str; 4] = ["gate", "acks", "shaper", "none"];

/// A cure that is not available, or another problem, by the part that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The cure or part.
    pub of: &'static str,
    /// What is wrong, in one line.
    pub text: String,
}

/// What drives the cures on the uplink's device.
pub struct Controller {
    settings: Uplink,
    wanted: Wanted,
    /// Programs are handed over below them.
    pins: PathBuf,
    netlink: Option<Netlink>,
    found: Option<UplinkDevice>,
    /// Another device that was seen instead of `found`, and how often.
    other: (Option<UplinkDevice>, u32),
    choice: ControlSelection,
    /// Every cure is lifted, because that was requested.
    all_lifted: bool,
    /// The gate or the shaper is lifted, for a trial.
    gate_lifted: bool,
    problems: BTreeMap<&'static str, String>,
}

impl Controller {
    /// For settings; nothing is attached before [`Controller::follow`].
    pub fn new(settings: &Uplink, wanted: &Wanted, pins: &Path) -> Controller {
        Controller {
            settings: settings.clone(),
            wanted: wanted.clone(),
            pins: pins.to_owned(),
            netlink: None,
            found: None,
            other: (None, LOOKS),
            choice: ControlSelection::new(Instant::now()),
            all_lifted: false,
            gate_lifted: false,
            problems: BTreeMap::new(),
        }
    }

    /// Whether any cure is wanted on a device.
    pub fn wanted(&self) -> bool {
        self.wanted.any(Place::Device)
    }

    /// Finds the uplink's device, and moves the cures with it; called twice a second. Lines for
    /// the log.
    pub fn follow(
        &mut self,
        cures: &mut Attached,
        journal: &mut Journal,
        until_ns: u64,
    ) -> Vec<String> {
        if !self.wanted() {
            return Vec::new();
        }
        let found = match self.look() {
            Ok(found) => found,
            Err(e) => return self.problem("device", format!("uplink: which device it is: {e}")),
        };
        self.problems.remove("device");
        let mut lines = Vec::new();
        if let Some(now) = self.found.clone() {
            let there = self.there(&now);
            // No route at all for a moment is no reason to leave.
            let waits = found.is_none() && self.settings.device.is_none() && there;
            if waits || found.as_ref() == Some(&now) {
                self.other = (None, 0);
                return lines;
            }
            if there && !self.settled(&found) {
                return lines;
            }
            lines.push(match &found {
                Some(found) if found.name == now.name => {
                    format!("uplink: {} has changed", now.name)
                }
                Some(found) if there => {
                    format!("uplink: it is {} now, no longer {}", found.name, now.name)
                }
                _ => format!("uplink: {} is gone", now.name),
            });
            lines.extend(self.leave(cures, journal).into_iter().map(|problem| problem.text));
            self.other.1 = LOOKS;
        }
        match found {
            Some(found) => lines.extend(self.arrive(found, cures, journal, until_ns)),
            None if self.other.1 == LOOKS => {
                self.other.1 = 0;
                lines.push(format!("uplink: {}; waiting for one", self.nowhere()));
            }
            None => {}
        }
        lines
    }

    fn look(&mut self) -> std::io::Result<Option<UplinkDevice>> {
        let mut netlink = match self.netlink.take() {
            Some(netlink) => netlink,
            None => Netlink::open()?,
        };
        let found = route::find(&mut netlink, self.settings.device.as_deref())?;
        self.netlink = Some(netlink);
        Ok(found)
    }

    fn there(&mut self, found: &UplinkDevice) -> bool {
        let Some(netlink) = &mut self.netlink else { return false };
        route::find(netlink, Some(&found.name)).is_ok_and(|now| now.as_ref() == Some(found))
    }

    fn settled(&mut self, found: &Option<UplinkDevice>) -> bool {
        if self.other.0 != *found {
            self.other = (found.clone(), 0);
        }
        self.other.1 += 1;
        self.other.1 >= LOOKS
    }

    fn nowhere(&self) -> String {
        match &self.settings.device {
            Some(name) => format!("there is no device {name}"),
            None => "there is no default route".to_owned(),
        }
    }

    fn arrive(
        &mut self,
        found: UplinkDevice,
        cures: &mut Attached,
        journal: &mut Journal,
        until_ns: u64,
    ) -> Vec<String> {
        let name = found.name.clone();
        self.found = Some(found);
        self.other = (None, 0);
        self.choice = ControlSelection::new(Instant::now());
        let (mut lines, failed) = self.attach(cures, journal, until_ns);
        lines.extend(failed.into_iter().map(|problem| problem.text));
        let about = self.described(cures);
        if !about.is_empty() {
            lines.push(format!("uplink {name}: {}", about.join(", ")));
        }
        lines
    }

    /// What is attached, and when each acts.
    fn described(&self, cures: &Attached) -> Vec<String> {
        let mut about = Vec::new();
        if cures.gate.is_some() {
            about.push("the gate while a modem or its driver reports".to_owned());
        }
        if cures.shaper.is_some() {
            about.push("HTB while a modem reports".to_owned());
        }
        let acks = self.wanted.acks.as_ref().filter(|_| cures.acks.is_some());
        if let Some(up) = acks.and_then(|acks| acks.up.as_ref()) {
            let lambda = up.lambda;
            let when = if about.is_empty() { "" } else { " while none does" };
            about.push(format!("uploads at {lambda} times RTTmin by ACK-window rewriting{when}"));
        }
        if let Some(down) = acks.and_then(|acks| acks.down.as_ref()) {
            let lambda = down.lambda;
            about.push(format!("downloads of hosts behind this one at {lambda} times RTTmin"));
        }
        about
    }

    /// Brings the cures on the device to what is wanted: lines for the log, and the failures.
    fn attach(
        &mut self,
        cures: &mut Attached,
        journal: &mut Journal,
        until_ns: u64,
    ) -> (Vec<String>, Vec<Problem>) {
        let (mut lines, mut failed) = (Vec::new(), Vec::new());
        let Some(name) = self.device().map(str::to_owned) else { return (lines, failed) };
        let wanted = self.wanted.on_device(&name);
        let site = Site { pins: &self.pins, lifted: self.all_lifted, until_ns };
        for (of, outcome) in cures.bring(Place::Device, &wanted, &site, journal) {
            match outcome {
                Ok(more) => {
                    lines.extend(more);
                    self.problems.remove(of);
                }
                Err(e) => {
                    let text = format!("uplink {name}, {of}: {e}");
                    self.problems.insert(of, text.clone());
                    failed.push(Problem { of, text });
                }
            }
        }
        let problem = |e: CureError| Problem { of: "uplink", text: format!("uplink {name}: {e}") };
        let folder = handover::folder(&self.pins);
        if folder.is_dir() {
            // What was not taken over goes; where nothing else is pinned, the journal's line too.
            let _ = std::fs::remove_dir_all(&folder);
            failed.extend(attach::tidy(&self.pins, journal).err().map(problem));
        }
        failed.extend(self.lift(cures).err().map(problem));
        (lines, failed)
    }

    /// Takes other settings: lines for the log, and the failures.
    pub fn set(
        &mut self,
        settings: &Uplink,
        wanted: &Wanted,
        cures: &mut Attached,
        journal: &mut Journal,
        until_ns: u64,
    ) -> (Vec<String>, Vec<Problem>) {
        if (settings, wanted) == (&self.settings, &self.wanted) {
            return (Vec::new(), Vec::new());
        }
        (self.settings, self.wanted) = (settings.clone(), wanted.clone());
        if !self.wanted() {
            return (Vec::new(), self.leave(cures, journal));
        }
        let mut lines = self.follow(cures, journal, until_ns);
        let (more, failed) = self.attach(cures, journal, until_ns);
        lines.extend(more);
        (lines, failed)
    }

    fn leave(&mut self, cures: &mut Attached, journal: &mut Journal) -> Vec<Problem> {
        let Some(found) = self.found.take() else { return Vec::new() };
        self.problems.clear();
        let failed = cures.detach(Place::Device, journal).into_iter();
        failed.map(|(of, e)| Problem { of, text: format!("uplink {}: {e}", found.name) }).collect()
    }

    /// Leaves the cures on the device to another agent; what cannot be left goes. Lines for the
    /// log.
    pub fn hand_over(&mut self, cures: &mut Attached, journal: &mut Journal) -> Vec<String> {
        let pinned = cures.acks.is_some() || cures.gate.is_some();
        if pinned && let Err(e) = journal.write(&Change::Sockets { pins: self.pins.clone() }) {
            return vec![format!("handing over: {}: {e}", journal.path().display())];
        }
        let failed = cures.hand_over(Place::Device, &handover::folder(&self.pins));
        failed
            .iter()
            .map(|e| format!("handing over: {e}; the next agent attaches it again"))
            .collect()
    }

    /// Detaches every cure on the device; the failures.
    pub fn detach(&mut self, cures: &mut Attached, journal: &mut Journal) -> Vec<Problem> {
        self.leave(cures, journal)
    }

    /// Reads whether reports come, and lets the right cure act; called a few times a second. Lines
    /// for the log.
    pub fn tick(&mut self, cures: &mut Attached) -> Vec<String> {
        let (reports, why) = report_source(cures);
        let mut lines = Vec::new();
        if self.settings.mode == Mode::Auto
            && let Some(holder) = self.choice.update(Instant::now(), reports)
        {
            self.gate_lifted = false;
            if let Some(gate) = &mut cures.gate
                && let Err(e) = gate.widen(false)
            {
                lines.push(format!("the gate: {e}"));
            }
            let cure = match holder {
                UplinkControl::Gate if cures.shaper.is_some() => "HTB",
                UplinkControl::Gate => "the gate",
                UplinkControl::Acks => "ACK-window rewriting",
            };
            lines.push(format!("uplink: {cure} controls uploads now: {why}"));
        }
        if let Err(e) = self.lift(cures) {
            lines.extend(self.problem("lift", format!("uplink: {e}")));
        }
        lines
    }

    /// Whether the gate or the shaper controls uploads.
    pub fn gated(&self, cures: &Attached) -> bool {
        let there = cures.gate.is_some() || cures.shaper.is_some();
        there && (self.settings.mode == Mode::Gate || self.choice.control() == UplinkControl::Gate)
    }

    /// Lifts every cure, or lets them act again.
    pub fn lift_all(&mut self, lifted: bool, cures: &mut Attached) -> Result<()> {
        self.all_lifted = lifted;
        self.lift(cures)
    }

    /// Lifts the gate or the shaper for a trial, or lets it act again.
    pub fn lift_gate(&mut self, how: Extent, cures: &mut Attached) -> Result<()> {
        if let Some(gate) = &mut cures.gate {
            gate.widen(matches!(how, Extent::Rtt(_)))?;
        }
        // HTB has no limit of the delay that could be larger.
        self.gate_lifted = how == Extent::Whole || how != Extent::None && cures.gate.is_none();
        self.lift(cures)
    }

    fn lift(&mut self, cures: &mut Attached) -> Result<()> {
        let (all, gate) = (self.all_lifted, Lifted::both(self.all_lifted || self.gate_lifted));
        let gated = self.gated(cures);
        if let Some(acks) = &mut cures.acks {
            acks.lift(Lifted { down: all, up: all || gated })?;
        }
        if let Some(cure) = &mut cures.gate {
            cure.lift(gate)?;
        }
        if let Some(shaper) = &mut cures.shaper {
            shaper.lift(gate)?;
        }
        self.problems.remove("lift");
        Ok(())
    }

    fn problem(&mut self, of: &'static str, text: String) -> Vec<String> {
        // The same one is logged once.
        let before = self.problems.insert(of, text.clone());
        if before.as_ref() == Some(&text) { Vec::new() } else { vec![text] }
    }

    /// What is wrong on this device now.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        self.problems.iter().map(|(of, text)| Problem { of, text: text.clone() })
    }

    /// The uplink's device in its present state.
    pub(crate) fn found(&self) -> Option<&UplinkDevice> {
        self.found.as_ref()
    }

    /// The device that is the uplink now.
    pub fn device(&self) -> Option<&str> {
        self.found.as_ref().map(|found| found.name.as_str())
    }

    /// The cure that controls uploads, and why.
    pub fn active(&self, cures: &Attached) -> Active {
        let (reports, why) = report_source(cures);
        let by_reports = if cures.shaper.is_some() { "shaper" } else { "gate" };
        let (active, why) = match self.settings.mode {
            Mode::Off => ("none", "uplink.mode is off".to_owned()),
            _ if self.found.is_none() => ("none", self.nowhere()),
            Mode::Auto if self.gated(cures) => (by_reports, why),
            Mode::Auto if cures.acks.is_some() => ("acks", why),
            Mode::Acks if cures.acks.is_some() => ("acks", "uplink.mode is acks".to_owned()),
            Mode::Gate if self.gated(cures) && reports != ReportSource::None => (by_reports, why),
            Mode::Gate if self.gated(cures) => ("none", why),
            _ => ("none", self.problems.values().cloned().collect::<Vec<_>>().join("; ")),
        };
        Active { active, why }
    }
}

/// The source of reports, and a sentence about it.
fn report_source(cures: &Attached) -> (ReportSource, String) {
    let state = match (&cures.gate, &cures.shaper) {
        (Some(gate), _) => gate.telemetry(),
        (_, Some(shaper)) => shaper.telemetry(),
        _ => return (ReportSource::None, "no telemetry source configured".to_owned()),
    };
    match state {
        State::Fresh { source, grade: Grade::Modem } => {
            (ReportSource::Modem, format!("{source} reports the modem's buffer"))
        }
        State::Fresh { source, grade: Grade::Driver } => (
            ReportSource::Driver,
            format!("only the {source} reports, and no source the buffer behind it"),
        ),
        State::Silent { why, .. } => (ReportSource::None, format!("no reports ({why})")),
    }
}
