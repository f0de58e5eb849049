//! All cures of this host: attached, set, renewed, watched, lifted, detached.
//!
//! A cure that is not available leaves the others alone; what is wrong stays in the status for as
//! long as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::cures::{Attached, FlowStatus, Lifted, Place, Reports, Result, Site};
use crate::daemon::paths::Paths;
use crate::kernel::socket_walk::{self, LINKS};
use crate::status::idle::IdleWatch;
use crate::status::others::Others;
use crate::undo;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::end_inherited;
use crate::uplink::controller::{Controller, Problem};

/// The cures of this host, and the journal of their changes.
pub(crate) struct Cures {
    /// Changes that are not undone.
    pub(crate) journal: Journal,
    /// The cures that are attached now.
    pub(crate) attached: Attached,
    /// What drives those on the uplink's device.
    pub(crate) controller: Controller,
    /// All cures watch, and change nothing.
    pub(crate) lifted: bool,
    /// Finds cures that do nothing while data flows.
    pub(crate) idle: IdleWatch,
    /// Finds programs of others on the same sockets.
    pub(crate) others: Others,
    pins: PathBuf,
    problems: BTreeMap<&'static str, String>,
    /// Changes of another agent, until it is known which of them this one takes over.
    left: Vec<Change>,
}

impl Cures {
    /// Without any cure yet.
    pub(crate) fn new(journal: Journal, config: &Config, pins: &Path, lifted: bool) -> Cures {
        Cures {
            journal,
            attached: Attached::default(),
            controller: Controller::new(&config.uplink, &config.cures, pins),
            lifted,
            idle: IdleWatch::default(),
            others: Others::default(),
            pins: pins.to_owned(),
            problems: BTreeMap::new(),
            left: Vec::new(),
        }
    }

    /// Looks at what a dead agent left, or one that hands over: taken over where it is what is
    /// wanted, undone where not. Lines for the log.
    pub(crate) fn adopt(&mut self, config: &Config, paths: &Paths, handed: bool) -> Vec<String> {
        let folder = socket_walk::folder(&paths.pins);
        let paced = config.cures.gate.as_ref().is_some_and(|gate| gate.law.pace);
        let wanted = [config.cures.receive.is_some(), config.cures.congestion.is_some(), paced];
        let odd =
            LINKS.iter().zip(wanted).any(|(name, wanted)| folder.join(name).exists() && !wanted);
        let ours = Change::Sockets { pins: paths.pins.clone() };
        let left = self.journal.pending().to_vec();
        let mut lines = Vec::new();
        if left.contains(&ours) && !odd {
            lines.push(match handed {
                true => "taking over from another agent".to_owned(),
                false => {
                    "taking over from an agent that ended without undoing what it did".to_owned()
                }
            });
        }
        if handed && !odd {
            // Filters and disciplines act until they are taken over, or found to be unused.
            self.left = left.into_iter().filter(|change| *change != ours).collect();
            return lines;
        }
        let old = |change: &Change| odd || *change != ours;
        if !left.iter().any(old) {
            return lines;
        }
        end_inherited();
        lines.push("undoing what an agent left that ended before".to_owned());
        let (done, failed) = undo::some(&mut self.journal, old);
        lines.extend(done);
        lines.extend(failed.iter().map(|e| format!("could not undo: {e}")));
        lines
    }

    /// Whether no cure is attached, nor ever will be.
    pub(crate) fn idle(&self) -> bool {
        !self.attached.any(Place::Sockets) && !self.controller.wanted()
    }

    /// Begins, or follows another configuration: lines for the log, and the failures.
    pub(crate) fn set(&mut self, config: &Config, until_ns: u64) -> (Vec<String>, Vec<Problem>) {
        let (mut lines, mut failed) = (Vec::new(), Vec::new());
        let site = Site { pins: &self.pins, lifted: self.lifted, until_ns };
        let journal = &mut self.journal;
        for (of, outcome) in self.attached.bring(Place::Sockets, &config.cures, &site, journal) {
            match outcome {
                Ok(more) => {
                    lines.extend(more);
                    self.problems.remove(of);
                }
                Err(e) => {
                    let text = format!("{of}: {e}");
                    self.problems.insert(of, text.clone());
                    failed.push(Problem { of, text });
                }
            }
        }
        let (uplink, wanted, attached) = (&config.uplink, &config.cures, &mut self.attached);
        let (more, wrong) = self.controller.set(uplink, wanted, attached, journal, until_ns);
        lines.extend(more);
        failed.extend(wrong);
        if self.lifted {
            failed.extend(self.lift(true));
        }
        self.idle.restart(&self.attached);
        (lines, failed)
    }

    /// Undoes what another agent left on devices and this one has not taken over; the failures.
    fn undo_left(&mut self) -> Vec<String> {
        let left = std::mem::take(&mut self.left);
        if left.is_empty() {
            return Vec::new();
        }
        let taken = self.attached.changes();
        let filters = taken.iter().any(|change| matches!(change, Change::Filter { .. }));
        let used = |change: &Change| matches!(change, Change::Clsact { .. }) && filters;
        let odd =
            |change: &Change| left.contains(change) && !taken.contains(change) && !used(change);
        let (_, failed) = undo::some(&mut self.journal, odd);
        failed.iter().map(|e| format!("could not undo: {e}")).collect()
    }

    /// Renews every lease; lines for the log.
    pub(crate) fn renew(&mut self, until_ns: u64) -> Vec<String> {
        let failed = self.attached.renew(until_ns);
        failed.iter().map(|e| format!("the lease could not be renewed: {e}")).collect()
    }

    /// Periodic work; lines for the log.
    pub(crate) fn tick(&mut self, until_ns: u64) -> Vec<String> {
        let mut lines = self.controller.follow(&mut self.attached, &mut self.journal, until_ns);
        // The first look at the device has shown what of the other agent is taken over.
        lines.extend(self.undo_left());
        lines.extend(self.controller.tick(&mut self.attached));
        lines.extend(self.attached.tick());
        lines.extend(self.others.tick(&self.attached));
        lines.extend(self.watch());
        lines
    }

    /// Finds cures that do nothing; lines for the log.
    pub(crate) fn watch(&mut self) -> Vec<String> {
        self.idle.tick(&mut self.attached, self.controller.found())
    }

    /// Lifts all cures, or lets them act again; the failures.
    pub(crate) fn lift(&mut self, lifted: bool) -> Vec<Problem> {
        self.lifted = lifted;
        let mut failed = self.attached.lift(Place::Sockets, Lifted::both(lifted));
        failed.extend(self.controller.lift_all(lifted, &mut self.attached).err());
        failed.iter().map(|e| Problem { of: "lift", text: e.to_string() }).collect()
    }

    /// Leaves everything to another agent, which has until then to take it over; lines for the
    /// log.
    pub(crate) fn hand_over(&mut self, until_ns: u64) -> Vec<String> {
        let mut lines = self.renew(until_ns);
        lines.extend(self.controller.hand_over(&mut self.attached, &mut self.journal));
        lines
    }

    /// Undoes everything; the failures.
    pub(crate) fn detach(&mut self) -> Vec<String> {
        let (attached, journal) = (&mut self.attached, &mut self.journal);
        let mut failed: Vec<String> =
            self.controller.detach(attached, journal).into_iter().map(|p| p.text).collect();
        let sockets = attached.detach(Place::Sockets, journal);
        failed.extend(sockets.iter().map(|(of, e)| format!("{of}: {e}")));
        let (_, more) = undo::all(journal);
        failed.extend(more.iter().map(|e| e.to_string()));
        failed
    }

    /// What is wrong now.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let own = self.problems.iter().map(|(of, text)| Problem { of, text: text.clone() });
        own.chain(self.controller.problems()).chain(self.idle.problems()).collect()
    }

    /// The figures of each cure, and the flows that they see.
    pub(crate) fn report(&mut self) -> Result<(Reports, Vec<FlowStatus>)> {
        let (reports, mut flows) = self.attached.report()?;
        if let Some(gate) = &reports.gate
            && self.controller.gated(&self.attached)
        {
            // The gate limits an upload that has a quarter or more of what it lets through.
            let uploads = flows.iter_mut().filter(|flow| flow.cure == "acks up");
            for flow in uploads.filter(|flow| flow.rate.saturating_mul(4) >= gate.rate()) {
                flow.gated = true;
            }
        }
        Ok((reports, flows))
    }
}
