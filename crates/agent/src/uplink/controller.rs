//! The cures on the uplink's device, at work.
//!
//! signal: settings, the device that is the uplink now, whether reports come · model: [`ControlSelection`] · action: programs on the device, moved with
//! it, and lifted or put back as reports come and go. Nothing is taken back that a window has told: lifted windows are watched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use super::route::{self, UplinkDevice};
use super::select::{ControlSelection, ReportSource, UplinkControl};
use super::{Mode, Uplink};
use crate::cures::Result;
use crate::cures::acks::{self, Acks};
use crate::cures::gate::{self, Gate};
use crate::cures::shaper::Fed;
use crate::kernel::netlink::Netlink;
use crate::kernel::socket_walk;
use crate::telemetry::{Grade, State};
use crate::undo::handover;
use crate::undo::journal::{Change, Journal};

/// A route that moved has to stay so long, in looks.
const LOOKS: u32 = 2;

/// See the module text.
pub struct Guard {
    settings: Uplink,
    /// Below them programs are handed over.
    pins: PathBuf,
    netlink: Option<Netlink>,
    found: Option<UplinkDevice>,
    /// Seen instead of `found`, so often.
    other: (Option<UplinkDevice>, u32),
    /// On the device.
    pub acks: Option<Acks>,
    /// On the device.
    pub gate: Option<Gate>,
    /// On the device, in place of the gate.
    pub shaper: Option<Fed>,
    choice: ControlSelection,
    /// Everything is lifted, because somebody asked for it; the gate or the shaper, for a trial.
    lifted: (bool, bool),
    problems: BTreeMap<&'static str, String>,
}

/// What each cure is to do on a device.
struct Wanted {
    acks: Option<acks::Settings>,
    gate: Option<gate::Settings>,
    shaper: bool,
}

impl Guard {
    /// For settings; nothing is attached before [`Guard::follow`].
    pub fn new(settings: &Uplink, pins: &Path) -> Guard {
        Guard {
            pins: pins.to_owned(),
            settings: settings.clone(),
            netlink: None,
            found: None,
            other: (None, LOOKS),
            acks: None,
            gate: None,
            shaper: None,
            choice: ControlSelection::new(Instant::now()),
            lifted: (false, false),
            problems: BTreeMap::new(),
        }
    }

    /// Whether anything is to be done on a device.
    pub fn wanted(&self) -> bool {
        self.settings.mode != Mode::Off || self.settings.forward.is_some()
    }

    /// Finds the uplink's device, and goes with it. To be called twice a second; what is worth a line in the log.
    pub fn follow(&mut self, journal: &mut Journal, until: u64) -> Vec<String> {
        if !self.wanted() {
            return Vec::new();
        }
        let found = match self.look() {
            Ok(found) => found,
            Err(e) => return self.problem("device", format!("uplink: which device it is: {e}")),
        };
        self.problems.remove("device");
        let mut said = Vec::new();
        if let Some(now) = self.found.clone() {
            let there = self.there(&now);
            // No route at all for a moment is no reason to leave.
            let waits = found.is_none() && self.settings.device.is_none() && there;
            if waits || found.as_ref() == Some(&now) {
                self.other = (None, 0);
                return said;
            }
            if there && !self.settled(&found) {
                return said;
            }
            said.push(match &found {
                Some(found) if found.name == now.name => {
                    format!("uplink: {} has changed", now.name)
                }
                Some(found) if there => {
                    format!("uplink: it is {} now, no longer {}", found.name, now.name)
                }
                _ => format!("uplink: {} is gone", now.name),
            });
            said.extend(self.leave(journal));
            self.other.1 = LOOKS;
        }
        match found {
            Some(found) => said.extend(self.arrive(found, journal, until)),
            None if self.other.1 == LOOKS => {
                self.other.1 = 0;
                said.push(format!("uplink: {}; waiting for one", self.nowhere()));
            }
            None => {}
        }
        said
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

    fn wants(&self, device: &str) -> Wanted {
        let s = &self.settings;
        let up = matches!(s.mode, Mode::Auto | Mode::Acks).then(|| s.up.clone());
        let forward = s.forward.clone();
        let defaults = acks::Settings::new(device);
        let acks = (up.is_some() || forward.is_some()).then(|| acks::Settings {
            up_start: s.start,
            start: forward.as_ref().map_or(defaults.start, |forward| forward.start),
            flows: forward.as_ref().map_or(defaults.flows, |forward| forward.flows),
            down: forward.map(|forward| forward.down),
            up,
            forwarded_only: true,
            clsact: s.clsact,
            ..defaults
        });
        let reports = matches!(s.mode, Mode::Auto | Mode::Gate) && !s.sources().is_empty();
        let gate = (reports && !s.shaper).then(|| gate::Settings {
            law: s.law.clone(),
            clsact: s.clsact,
            ..gate::Settings::new(device, s.sources())
        });
        Wanted { acks, gate, shaper: reports && s.shaper }
    }

    fn arrive(&mut self, found: UplinkDevice, journal: &mut Journal, until: u64) -> Vec<String> {
        let name = found.name.clone();
        self.found = Some(found);
        self.other = (None, 0);
        self.choice = ControlSelection::new(Instant::now());
        let mut said: Vec<String> =
            self.attach(journal, until).err().into_iter().flatten().collect();
        let mut held = Vec::new();
        if self.gate.is_some() {
            held.push("the gate while a modem or its driver reports".to_owned());
        }
        if self.shaper.is_some() {
            held.push("HTB while a modem reports".to_owned());
        }
        if self.acks.is_some()
            && self.settings.mode != Mode::Gate
            && self.settings.mode != Mode::Off
        {
            let lambda = self.settings.up.lambda as f64 / 16.0;
            let when = if held.is_empty() { "" } else { " while none does" };
            held.push(format!("uploads at {lambda} times RTTmin by windows of passing ACKs{when}"));
        }
        if self.acks.is_some()
            && let Some(forward) = &self.settings.forward
        {
            let lambda = forward.down.lambda as f64 / 16.0;
            held.push(format!("downloads of hosts behind this one at {lambda} times RTTmin"));
        }
        if !held.is_empty() {
            said.push(format!("uplink {name}: {}", held.join(", ")));
        }
        said
    }

    /// Attaches what is wanted and not there, sets what is, detaches what is no longer wanted. What could not be had.
    fn attach(
        &mut self,
        journal: &mut Journal,
        until: u64,
    ) -> std::result::Result<(), Vec<String>> {
        let Some(found) = self.found.clone() else { return Ok(()) };
        let name = found.name.clone();
        let wanted = self.wants(&name);
        let folder = handover::folder(&self.pins);
        let mut failed = Vec::new();
        let mut note = |cure: &'static str, outcome: Result<()>| match outcome {
            Ok(()) => drop(self.problems.remove(cure)),
            Err(e) => {
                let text = format!("uplink {name}, {cure}: {e}");
                self.problems.insert(cure, text.clone());
                failed.push(text);
            }
        };
        let acks = &mut self.acks;
        note(
            "windows of passing ACKs",
            (|| {
                match (&mut *acks, &wanted.acks) {
                    (Some(cure), Some(settings)) if cure.takes(settings) => {
                        return cure.set(settings);
                    }
                    (None, None) => return Ok(()),
                    _ => {}
                }
                acks.take().map_or(Ok(()), |cure| cure.detach(journal))?;
                if let Some(settings) = &wanted.acks {
                    // What does not fit is no reason not to begin anew.
                    let taken = Acks::take_over(settings, &folder).unwrap_or(None);
                    let taken = taken.map_or_else(|| Acks::attach(settings, journal), Ok)?;
                    acks.insert(taken).renew(until)?;
                }
                Ok(())
            })(),
        );
        let gate = &mut self.gate;
        note(
            "the gate",
            (|| {
                match (&mut *gate, &wanted.gate) {
                    (Some(cure), Some(settings)) if cure.takes(settings) => {
                        return cure.set(settings);
                    }
                    (None, None) => return Ok(()),
                    _ => {}
                }
                gate.take().map_or(Ok(()), |cure| cure.detach(journal))?;
                if let Some(settings) = &wanted.gate {
                    let taken = Gate::take_over(settings, &folder).unwrap_or(None);
                    let taken = taken.map_or_else(|| Gate::attach(settings, journal), Ok)?;
                    gate.insert(taken).renew(until)?;
                }
                Ok(())
            })(),
        );
        let (shaper, s) = (&mut self.shaper, &self.settings);
        note(
            "the shaper",
            (|| {
                // Its law is read when it begins.
                shaper.take().map_or(Ok(()), |cure| cure.detach(journal))?;
                if let (true, Some(socket)) = (wanted.shaper, &s.telemetry) {
                    *shaper = Some(Fed::attach(&name, &s.law, socket, journal)?);
                }
                Ok(())
            })(),
        );
        if folder.is_dir() {
            // What was not taken over goes; and where nothing else of ours is pinned, so does the journal's line.
            let _ = std::fs::remove_dir_all(&folder);
            let tidied = socket_walk::tidy(&self.pins, journal);
            failed.extend(tidied.err().map(|e| format!("uplink {name}: {e}")));
        }
        let outcome = self.lift();
        failed.extend(outcome.err().map(|e| format!("uplink {name}: {e}")));
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    /// Other settings. The log's lines, or what was wrong.
    pub fn set(
        &mut self,
        settings: &Uplink,
        journal: &mut Journal,
        until: u64,
    ) -> std::result::Result<Vec<String>, String> {
        if *settings == self.settings {
            return Ok(Vec::new());
        }
        self.settings = settings.clone();
        if !self.wanted() {
            let said = self.leave(journal);
            return if said.is_empty() { Ok(said) } else { Err(said.join("; ")) };
        }
        let said = self.follow(journal, until);
        self.attach(journal, until).map_err(|failed| failed.join("; "))?;
        Ok(said)
    }

    fn leave(&mut self, journal: &mut Journal) -> Vec<String> {
        let Some(found) = self.found.take() else { return Vec::new() };
        // The last first: what made the clsact discipline takes it away, with all that hangs on it.
        let ended = [
            self.shaper.take().and_then(|cure| cure.detach(journal).err()),
            self.gate.take().and_then(|cure| cure.detach(journal).err()),
            self.acks.take().and_then(|cure| cure.detach(journal).err()),
        ];
        self.problems.clear();
        ended.into_iter().flatten().map(|e| format!("uplink {}: {e}", found.name)).collect()
    }

    /// Leaves what is on the device to another agent; what could not be left goes.
    pub fn hand_over(&mut self, journal: &mut Journal) -> Vec<String> {
        if let Some(shaper) = self.shaper.take() {
            shaper.hand_over();
        }
        if self.acks.is_none() && self.gate.is_none() {
            return Vec::new();
        }
        let folder = handover::folder(&self.pins);
        if let Err(e) = journal.write(&Change::Sockets { pins: self.pins.clone() }) {
            return vec![format!("handing over: {}: {e}", journal.path().display())];
        }
        let failed = [
            self.acks.take().and_then(|cure| cure.hand_over(&folder).err()),
            self.gate.take().and_then(|cure| cure.hand_over(&folder).err()),
        ];
        failed
            .into_iter()
            .flatten()
            .map(|e| format!("handing over: {e}; held again in a moment"))
            .collect()
    }

    /// Everything on the device goes; what could not.
    pub fn detach(&mut self, journal: &mut Journal) -> Vec<String> {
        self.leave(journal)
    }

    /// The leases hold until then.
    pub fn renew(&mut self, until: u64) -> Vec<String> {
        let failed = [
            self.acks.as_mut().and_then(|cure| cure.renew(until).err()),
            self.gate.as_mut().and_then(|cure| cure.renew(until).err()),
        ];
        failed.into_iter().flatten().map(|e| e.to_string()).collect()
    }

    /// Looks whether reports come, and lets who has to hold. To be called a few times a second; what is worth a line in the log.
    pub fn tick(&mut self) -> Vec<String> {
        let (heard, why) = self.heard();
        let mut said = Vec::new();
        if self.settings.mode == Mode::Auto
            && let Some(holder) = self.choice.update(Instant::now(), heard)
        {
            self.lifted.1 = false;
            said.push(match holder {
                UplinkControl::Gate => format!("uplink: {} holds uploads now: {why}", self.named()),
                UplinkControl::Acks => {
                    format!("uplink: windows of passing ACKs hold uploads now: {why}")
                }
            });
        }
        if let Err(e) = self.lift() {
            said.extend(self.problem("lift", format!("uplink: {e}")));
        }
        said
    }

    fn named(&self) -> &'static str {
        if self.shaper.is_some() { "HTB" } else { "the gate" }
    }

    fn heard(&self) -> (ReportSource, String) {
        let state = match (&self.gate, &self.shaper) {
            (Some(gate), _) => gate.telemetry(),
            (_, Some(shaper)) => shaper.telemetry(),
            _ => return (ReportSource::None, "nobody is asked for reports".to_owned()),
        };
        match state {
            State::Fresh { source, grade: Grade::Modem } => {
                (ReportSource::Modem, format!("{source} reports the modem's buffer"))
            }
            State::Fresh { source, grade: Grade::Driver } => (
                ReportSource::Driver,
                format!("only the {source} reports, and nobody what lies behind it"),
            ),
            State::Silent { why, .. } => (ReportSource::None, format!("no reports ({why})")),
        }
    }

    /// Whether uploads are the gate's or the shaper's.
    pub fn gated(&self) -> bool {
        let there = self.gate.is_some() || self.shaper.is_some();
        there && (self.settings.mode == Mode::Gate || self.choice.control() == UplinkControl::Gate)
    }

    /// Lifts every cure, or no longer.
    pub fn lift_all(&mut self, lifted: bool) -> Result<()> {
        self.lifted.0 = lifted;
        self.lift()
    }

    /// Lifts gate or shaper for a trial, or no longer.
    pub fn lift_gate(&mut self, lifted: bool) -> Result<()> {
        self.lifted.1 = lifted;
        self.lift()
    }

    fn lift(&mut self) -> Result<()> {
        let (all, tried) = self.lifted;
        let gated = self.gated();
        if let Some(acks) = &mut self.acks {
            acks.lift(all, all || gated)?;
        }
        if let Some(gate) = &mut self.gate {
            gate.lift(all || tried)?;
        }
        if let Some(shaper) = &mut self.shaper {
            shaper.lift(all || tried)?;
        }
        self.problems.remove("lift");
        Ok(())
    }

    fn problem(&mut self, of: &'static str, text: String) -> Vec<String> {
        // The same one is said once.
        let before = self.problems.insert(of, text.clone());
        if before.as_ref() == Some(&text) { Vec::new() } else { vec![text] }
    }

    /// What cannot be had on this device.
    pub fn problems(&self) -> impl Iterator<Item = &String> {
        self.problems.values()
    }

    /// The device that is the uplink now.
    pub fn device(&self) -> Option<&str> {
        self.found.as_ref().map(|found| found.name.as_str())
    }

    /// Who holds uploads, and why.
    pub fn active(&self) -> Value {
        let (heard, why) = self.heard();
        let holder = if self.shaper.is_some() { "shaper" } else { "gate" };
        let (active, why) = match self.settings.mode {
            Mode::Off => ("none", "uplink.mode is off".to_owned()),
            _ if self.found.is_none() => ("none", self.nowhere()),
            Mode::Auto if self.gated() => (holder, why),
            Mode::Auto if self.acks.is_some() => ("acks", why),
            Mode::Acks if self.acks.is_some() => ("acks", "uplink.mode is acks".to_owned()),
            Mode::Gate if self.gated() && heard != ReportSource::None => (holder, why),
            Mode::Gate if self.gated() => ("none", why),
            _ => ("none", self.problems.values().cloned().collect::<Vec<_>>().join("; ")),
        };
        json!({"active": active, "why": why})
    }
}
