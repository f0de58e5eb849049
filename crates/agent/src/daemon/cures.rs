//! All cures of this host, side by side: attached, set, renewed, watched, lifted, detached.
//!
//! signal: settings, the time · model: each cure its own; one that cannot be had here leaves the others alone · action: what happened, in
//! lines for the log, and what is wrong, for as long as it is.

use std::collections::BTreeMap;
use std::path::Path;

use nix::errno::Errno;
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::cures::Result;
use crate::cures::congestion::{self, Congestion};
use crate::cures::receive::{self, Event, Receive};
use crate::cures::shaper::Fed;
use crate::daemon::paths::Paths;
use crate::kernel::socket_walk::{self, LINKS};
use crate::undo;
use crate::undo::journal::{Change, Journal};
use crate::uplink::controller::Guard;

/// See the module text.
pub struct Cures {
    /// What was changed.
    pub journal: Journal,
    /// Downloads of this host.
    pub receive: Option<Receive>,
    /// Congestion control of its uploads.
    pub congestion: Option<Congestion>,
    /// What is on the uplink's device.
    pub guard: Guard,
    /// All watch, and change nothing.
    pub lifted: bool,
    problems: BTreeMap<&'static str, String>,
    /// What another agent left on devices, until it is known what of it is taken over.
    left: Vec<Change>,
}

const DOWNLOADS: &str = "downloads";
const CONGESTION: &str = "congestion control";

impl Cures {
    /// None yet.
    pub fn new(journal: Journal, config: &Config, pins: &Path, lifted: bool) -> Cures {
        let guard = Guard::new(&config.uplink, pins);
        let (problems, left) = (BTreeMap::new(), Vec::new());
        Cures { journal, receive: None, congestion: None, guard, lifted, problems, left }
    }

    /// What a dead agent left, or one that hands over: taken over where it is the same as what is wanted, undone where not.
    pub fn adopt(&mut self, config: &Config, paths: &Paths, handed: bool) -> Vec<String> {
        let folder = socket_walk::folder(&paths.pins);
        let wanted = [config.receive.is_some(), config.congestion.is_some()];
        let odd =
            LINKS.iter().zip(wanted).any(|(name, wanted)| folder.join(name).exists() && !wanted);
        let ours = Change::Sockets { pins: paths.pins.clone() };
        let left = self.journal.pending().to_vec();
        let mut said = Vec::new();
        if left.contains(&ours) && !odd {
            said.push(match handed {
                true => "taking over from another agent".to_owned(),
                false => {
                    "taking over from an agent that ended without undoing what it did".to_owned()
                }
            });
        }
        if handed && !odd {
            // Filters and disciplines act until they are taken over, or found to be nobody's.
            self.left = left.into_iter().filter(|change| *change != ours).collect();
            return said;
        }
        let old = |change: &Change| odd || *change != ours;
        if !left.iter().any(old) {
            return said;
        }
        said.push("undoing what an agent left that ended before".to_owned());
        let (done, failed) = undo::some(&mut self.journal, old);
        said.extend(done);
        said.extend(failed.iter().map(|e| format!("could not undo: {e}")));
        said
    }

    /// Whether nothing is held, nor ever will be.
    pub fn idle(&self) -> bool {
        self.receive.is_none() && self.congestion.is_none() && !self.guard.wanted()
    }

    /// Begins, and follows another configuration: what is wanted and not there is attached, what is there is set, what is not wanted any
    /// more goes. The lines to say, and whether something could not be had.
    pub fn set(
        &mut self,
        config: &Config,
        until: u64,
    ) -> (Vec<String>, std::result::Result<(), String>) {
        let mut said = Vec::new();
        let mut wrong = Vec::new();
        let outcomes = [
            (DOWNLOADS, self.set_receive(config.receive.as_ref(), until, &mut said)),
            (CONGESTION, self.set_congestion(config.congestion.as_ref(), until, &mut said)),
        ];
        for (cure, outcome) in outcomes {
            match outcome {
                Ok(()) => drop(self.problems.remove(cure)),
                Err(e) => {
                    let text = format!("{cure}: {e}");
                    self.problems.insert(cure, text.clone());
                    wrong.push(text);
                }
            }
        }
        match self.guard.set(&config.uplink, &mut self.journal, until) {
            Ok(lines) => said.extend(lines),
            Err(e) => wrong.push(e),
        }
        if self.lifted
            && let Err(e) = self.lift(true, until)
        {
            wrong.push(e);
        }
        (said, if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) })
    }

    /// What another agent left on devices and nobody has taken over goes; what could not be undone.
    fn undo_left(&mut self) -> Vec<String> {
        let left = std::mem::take(&mut self.left);
        if left.is_empty() {
            return Vec::new();
        }
        let mut taken: Vec<Change> = Vec::new();
        taken.extend(self.guard.acks.iter().flat_map(|cure| cure.changes().to_vec()));
        taken.extend(self.guard.gate.iter().flat_map(|cure| cure.changes().to_vec()));
        taken.extend(self.guard.shaper.iter().filter_map(Fed::change));
        let hangs =
            |change: &Change| matches!(change, Change::Clsact { .. }) && taken.iter().any(filters);
        let odd =
            |change: &Change| left.contains(change) && !taken.contains(change) && !hangs(change);
        let (_, failed) = undo::some(&mut self.journal, odd);
        failed.iter().map(|e| format!("could not undo: {e}")).collect()
    }

    fn set_receive(
        &mut self,
        wanted: Option<&receive::Settings>,
        until: u64,
        said: &mut Vec<String>,
    ) -> Result<()> {
        match (&mut self.receive, wanted) {
            (None, None) => Ok(()),
            (Some(cure), Some(settings)) => cure.set(settings),
            (Some(_), None) => {
                said.push("downloads: off".to_owned());
                self.receive.take().map_or(Ok(()), |cure| cure.detach(&mut self.journal))
            }
            (None, Some(settings)) => {
                // One that begins lifted must not hold anything before it is told so.
                let begin = receive::Settings {
                    observe: settings.observe || self.lifted,
                    ..settings.clone()
                };
                let mut cure = Receive::attach(&begin, &mut self.journal, until)?;
                if self.lifted {
                    cure.lift(true)?;
                    cure.set(settings)?;
                }
                self.receive = Some(cure);
                let scope = settings
                    .cgroup
                    .as_ref()
                    .map_or("this whole host".to_owned(), |c| c.display().to_string());
                let lambda = settings.law.lambda as f64 / 16.0;
                let verb = if settings.observe || self.lifted { "watching" } else { "holding" };
                said.push(format!(
                    "downloads: {verb} RTT at {lambda} times its minimum, for {scope}"
                ));
                Ok(())
            }
        }
    }

    fn set_congestion(
        &mut self,
        wanted: Option<&congestion::Settings>,
        until: u64,
        said: &mut Vec<String>,
    ) -> Result<()> {
        match (&mut self.congestion, wanted) {
            (None, None) => return Ok(()),
            (Some(cure), Some(settings)) => cure.set(settings)?,
            (Some(_), None) => {
                said.push("congestion control: off".to_owned());
                return self
                    .congestion
                    .take()
                    .map_or(Ok(()), |cure| cure.detach(&mut self.journal));
            }
            (None, Some(settings)) => {
                let until = if self.lifted { 0 } else { until };
                self.congestion = Some(Congestion::attach(settings, &mut self.journal, until)?);
            }
        }
        self.switch(said)
    }

    /// Live connections get the congestion control that is theirs.
    fn switch(&mut self, said: &mut Vec<String>) -> Result<()> {
        let Some(congestion) = self.congestion.as_mut().filter(|_| !self.lifted) else {
            return Ok(());
        };
        let changed = congestion.switch_live()?;
        if changed > 0 {
            said.push(format!(
                "congestion control: changed for {changed} connections that existed"
            ));
        }
        Ok(())
    }

    /// The leases hold until then; lines for the log.
    pub fn renew(&mut self, until: u64) -> Vec<String> {
        let mut failed = self.guard.renew(until);
        let theirs = if self.lifted { 0 } else { until };
        let sockets = [
            self.receive.as_mut().and_then(|cure| cure.renew(until).err()),
            self.congestion.as_mut().and_then(|cure| cure.renew(theirs).err()),
        ];
        failed.extend(sockets.into_iter().flatten().map(|e| e.to_string()));
        failed.iter().map(|e| format!("the lease could not be renewed: {e}")).collect()
    }

    /// What has to be done now and then; lines for the log.
    pub fn tick(&mut self, until: u64) -> Vec<String> {
        let mut said = self.guard.follow(&mut self.journal, until);
        // The first look at the device has shown whether the guard is where the other one was.
        said.extend(self.undo_left());
        said.extend(self.guard.tick());
        match self.receive.as_mut().map(Receive::tick) {
            None => {}
            Some(Ok(events)) => said.extend(events.iter().map(words)),
            Some(Err(e)) => said.push(format!("looking for connections that exist: {e}")),
        }
        said
    }

    /// All cures watch and change nothing, or act again.
    pub fn lift(&mut self, lifted: bool, until: u64) -> std::result::Result<(), String> {
        self.lifted = lifted;
        let mut said = Vec::new();
        let outcomes = [
            self.receive.as_mut().map_or(Ok(()), |cure| cure.lift(lifted)),
            self.guard.lift_all(lifted),
            match self.congestion.as_mut() {
                Some(cure) if lifted => cure.renew(0).and_then(|()| cure.switch_back()),
                Some(cure) => cure.renew(until),
                None => Ok(()),
            },
            self.switch(&mut said),
        ];
        let failed: Vec<String> =
            outcomes.into_iter().filter_map(|o| o.err()).map(|e| e.to_string()).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }

    /// Leaves everything to another agent, which has until then; lines for the log.
    pub fn hand_over(&mut self, until: u64) -> Vec<String> {
        let mut said = self.renew(until);
        said.extend(self.guard.hand_over(&mut self.journal));
        said
    }

    /// Undoes everything; what could not be.
    pub fn detach(&mut self) -> Vec<String> {
        let mut failed = self.guard.detach(&mut self.journal);
        if let Some(cure) = self.receive.take()
            && let Err(e) = cure.detach(&mut self.journal)
        {
            failed.push(format!("{DOWNLOADS}: {e}"));
        }
        if let Some(cure) = self.congestion.take()
            && let Err(e) = cure.detach(&mut self.journal)
        {
            failed.push(format!("{CONGESTION}: {e}"));
        }
        let (_, more) = undo::all(&mut self.journal);
        failed.extend(more.iter().map(|e| e.to_string()));
        failed
    }

    /// What is wrong now.
    pub fn problems(&self) -> Vec<String> {
        self.problems.values().chain(self.guard.problems()).cloned().collect()
    }

    /// Figures of each cure, and the flows.
    pub fn status(&mut self) -> Result<(Map<String, Value>, Vec<Value>)> {
        let mut cures = Map::new();
        let mut flows = Vec::new();
        if let Some(receive) = &mut self.receive {
            flows.extend(receive.status()?.iter().map(|flow| flow.to_json()));
            let c = receive.counters()?;
            let about = json!({
                "connections": c.sockets, "acks": c.samples, "decisions": c.decisions, "applied": c.applied,
                "reapplied": c.reapplied, "refused": c.refused, "lifted": c.lifted, "raised": c.raised, "withheld": c.withheld,
                "walk_ms": receive.walk_took().as_secs_f64() * 1e3,
            });
            cures.insert("receive".to_owned(), about);
        }
        if let Some(congestion) = &self.congestion {
            let c = congestion.counters()?;
            cures.insert(
                "congestion".to_owned(),
                json!({"switched": c.switched, "refused": c.refused}),
            );
        }
        let device = self.guard.device().map(str::to_owned);
        let gated = self.guard.gated();
        if let Some(acks) = &mut self.guard.acks {
            // A flow that has much of what the gate lets through is held by it.
            let view =
                self.guard.gate.as_mut().filter(|_| gated).map(|gate| gate.status()).transpose()?;
            let rate = view.map_or(u64::MAX, |status| status.view.rate);
            flows.extend(acks.status()?.iter().map(|flow| {
                let mut shown = flow.to_json();
                if flow.cure == "acks up" && flow.rate.saturating_mul(4) >= rate {
                    shown["limit"] = "gate".into();
                }
                shown
            }));
            let c = acks.counters()?;
            let about = json!({
                "device": device, "flows": c.flows, "segments": c.segments, "samples": c.samples,
                "decisions": c.decisions, "rewritten": c.rewritten, "held": c.edge_limited, "unknown": c.unknown,
                "barred": c.excluded, "strange": c.out_of_window, "superpackets": c.gso_packets,
                "down_bytes": c.down_bytes, "up_bytes": c.up_bytes,
            });
            cures.insert("acks".to_owned(), about);
        }
        if let Some(gate) = &mut self.guard.gate {
            cures.insert("gate".to_owned(), gate.status()?.to_json());
        }
        if let Some(shaper) = &self.guard.shaper {
            let rate = shaper.rate().map(|rate| rate.saturating_mul(8));
            cures.insert("shaper".to_owned(), json!({"device": device, "rate_bps": rate}));
        }
        Ok((cures, flows))
    }
}

/// Whether a change hangs on a clsact discipline.
fn filters(change: &Change) -> bool {
    matches!(change, Change::Command { undo, .. } if undo.iter().any(|word| word == "filter"))
}

fn words(event: &Event) -> String {
    match event {
        Event::Joined(n) => format!("downloads: {n} connections that existed are treated now"),
        Event::Silenced(n) => format!(
            "downloads: another sock_ops program had replaced the callback flags of {n} connections; set again (bpftool cgroup tree shows it)"
        ),
        Event::Scarce(true) => {
            "downloads: TCP's memory is scarce, or not to be seen (net.ipv4.tcp_mem); larger buffers are given back".to_owned()
        }
        Event::Scarce(false) => "downloads: TCP's memory is free again".to_owned(),
        Event::NoWalk(why) => {
            format!(
                "downloads: connections that existed before stay as they are, new ones are treated: {why}"
            )
        }
        Event::Refused(n, errno) => {
            let why = Errno::from_raw(-errno);
            format!(
                "downloads: the kernel lets {n} connections that existed not join ({why}; needs Linux 6.12)"
            )
        }
    }
}
