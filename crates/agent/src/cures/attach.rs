//! Programs of a cure on a device, and how they come off again.
//!
//! signal: a device, programs that are loaded · model: by TCX (Linux 6.6) a program goes when its process goes; on older kernels it hangs on
//! the device's clsact discipline and stays, its lease opens it, and the journal says how to take it away · action: programs attached, each
//! change in the journal before, and all of it taken back.

use std::path::Path;
use std::process::Command;

use aya::Ebpf;
use aya::programs::links::LinkOrder;
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions, TcHandle,
};
use aya::programs::{SchedClassifier, TcAttachType, tc};
use aya::util::KernelVersion;

use crate::cures::{CureError, Result};
use crate::kernel::netlink::{Device, Netlink};
use crate::kernel::whole;
use crate::undo;
use crate::undo::handover;
use crate::undo::journal::{Change, Journal};

/// Handle of our filters, so that they are found again.
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// The programs of one cure.
pub struct Hook {
    /// What they are, for people and the journal.
    pub what: &'static str,
    /// Their names, and where each hangs.
    pub programs: &'static [(&'static str, TcAttachType)],
    /// Preference of their filters on a clsact discipline, one for each cure.
    pub preference: u16,
}

/// A device that is asked for by its name.
pub fn device(name: &str) -> Result<Device> {
    Netlink::open()
        .and_then(|mut netlink| netlink.device(name))
        .map_err(|why| CureError::Refused(format!("no device \"{name}\": {why}")))
}

/// A program of an object.
pub fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut SchedClassifier> {
    let missing = || CureError::Map(name, "missing in the object".to_owned());
    ebpf.program_mut(name).ok_or_else(missing)?.try_into().map_err(|_| missing())
}

/// Whether programs can hang by TCX here; else they hang on clsact.
fn tcx(clsact: bool) -> bool {
    !clsact && KernelVersion::current().is_ok_and(|kernel| kernel >= KernelVersion::new(6, 6, 0))
}

/// Programs that hang on a device.
pub struct Hung {
    device: String,
    tcx: bool,
    links: Vec<(&'static str, SchedClassifierLinkId)>,
    /// What the journal knows of.
    changes: Vec<Change>,
}

impl Hung {
    /// Hangs them on a device, given by its name and what is known of it, all or none. `clsact`: on that discipline, also where TCX is to be had.
    pub fn hang(
        hook: &Hook,
        ebpf: &mut Ebpf,
        (name, found): (&str, &Device),
        clsact: bool,
        journal: &mut Journal,
    ) -> Result<Hung> {
        let (device, tcx) = (name.to_owned(), tcx(clsact));
        let mut hung = Hung { device, tcx, links: Vec::new(), changes: Vec::new() };
        match hung.each(hook, ebpf, found, journal) {
            Ok(()) => Ok(hung),
            Err(error) => {
                hung.take(ebpf, journal)?;
                Err(error)
            }
        }
    }

    fn each(
        &mut self,
        hook: &Hook,
        ebpf: &mut Ebpf,
        found: &Device,
        journal: &mut Journal,
    ) -> Result<()> {
        let tcx = self.tcx;
        if !tcx {
            self.discipline(found, journal)?;
        }
        for (name, place) in hook.programs {
            let options = if tcx {
                TcAttachOptions::TcxOrder(LinkOrder::default())
            } else {
                let change = filter(hook, &self.device, *place);
                // Left by an agent from which nothing could be taken over.
                if journal.pending().contains(&change) {
                    undo::one(&change)?;
                }
                self.note(change, journal)?;
                TcAttachOptions::Netlink(NlOptions {
                    priority: hook.preference,
                    handle: HANDLE,
                    classid: None,
                })
            };
            let link = program(ebpf, name)?.attach_with_options(&self.device, *place, options);
            let link = link.map_err(|why| CureError::Kernel {
                what: "a program on a device",
                since: if tcx { "6.6" } else { "4.5" },
                why: whole(&why),
            })?;
            self.links.push((name, link));
        }
        Ok(())
    }

    /// Gives the device a clsact discipline, if it has none.
    fn discipline(&mut self, found: &Device, journal: &mut Journal) -> Result<()> {
        let there = Netlink::open().and_then(|mut netlink| netlink.qdiscs(found.index));
        let there = there.map_err(|why| {
            CureError::Refused(format!("queue disciplines of {}: {why}", self.device))
        })?;
        if there.iter().any(|qdisc| qdisc.kind == "clsact") {
            return Ok(());
        }
        self.note(Change::Clsact { device: self.device.clone() }, journal)?;
        tc::qdisc_add_clsact(&self.device).map_err(|why| CureError::Kernel {
            what: "clsact",
            since: "4.5",
            why: why.to_string(),
        })
    }

    fn note(&mut self, change: Change, journal: &mut Journal) -> Result<()> {
        journal.write(&change).map_err(CureError::file(journal.path()))?;
        self.changes.push(change);
        Ok(())
    }

    /// Programs that take the places of those that another agent left below `place`, or on the device's clsact discipline: each in one step.
    pub fn left(
        hook: &Hook,
        ebpf: &mut Ebpf,
        device: &str,
        clsact: bool,
        place: &Path,
    ) -> Result<Hung> {
        let tcx = tcx(clsact);
        let mut hung =
            Hung { device: device.to_owned(), tcx, links: Vec::new(), changes: Vec::new() };
        for (name, way) in hook.programs {
            let program = program(ebpf, name)?;
            let link = if tcx {
                handover::take(program, &place.join(name))?
            } else {
                hung.changes.push(filter(hook, device, *way));
                let there =
                    SchedClassifierLink::attached(device, *way, hook.preference, HANDLE, None);
                let there = there.map_err(CureError::file(device))?;
                program.attach_to_link(there).map_err(|why| CureError::Map("link", whole(&why)))?
            };
            hung.links.push((name, link));
        }
        Ok(hung)
    }

    /// Leaves them below `place`; on a clsact discipline they stay where they are.
    pub fn leave(&mut self, ebpf: &mut Ebpf, place: &Path) -> Result<()> {
        for (name, link) in std::mem::take(&mut self.links) {
            let program = program(ebpf, name)?;
            if self.tcx {
                handover::leave(program, link, &place.join(name))?;
            } else {
                let link =
                    program.take_link(link).map_err(|why| CureError::Map("link", whole(&why)))?;
                // Dropped, it would go from the device.
                std::mem::forget(link);
            }
        }
        Ok(())
    }

    /// What the journal knows of them: nothing where they hang by TCX.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Takes them off.
    pub fn take(&mut self, ebpf: &mut Ebpf, journal: &mut Journal) -> Result<()> {
        for (name, link) in std::mem::take(&mut self.links) {
            // With its device gone, or taken off by somebody, it is where it should be.
            let _ = program(ebpf, name)?.detach(link);
        }
        let mut undone = |change: &Change| {
            undo::one(change)?;
            journal.undone(change).map_err(CureError::file(journal.path()))
        };
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            if !matches!(change, Change::Clsact { .. }) {
                undone(&change)?;
            }
        }
        // The discipline of two cures, which the first of them or an agent before this one made, goes with the last of them.
        let discipline = Change::Clsact { device: self.device.clone() };
        let ours = |change: &Change| match change {
            Change::Command { undo, .. } => is_filter(undo, &self.device),
            _ => false,
        };
        let pending = journal.pending();
        if !self.tcx && pending.contains(&discipline) && !pending.iter().any(ours) {
            undo::one(&discipline)?;
            journal.undone(&discipline).map_err(CureError::file(journal.path()))?;
        }
        Ok(())
    }
}

/// The change that a filter is.
fn filter(hook: &Hook, device: &str, place: TcAttachType) -> Change {
    let word = match place {
        TcAttachType::Ingress => "ingress",
        _ => "egress",
    };
    let undo = format!(
        "tc filter del dev {device} {word} protocol all pref {} handle 1 bpf",
        hook.preference
    );
    Change::Command {
        what: format!("{}, {word} of {device}", hook.what),
        undo: undo.split(' ').map(str::to_owned).collect(),
    }
}

fn is_filter(undo: &[String], device: &str) -> bool {
    undo.iter().map(String::as_str).take(5).eq(["tc", "filter", "del", "dev", device])
}

/// Takes a clsact discipline away that this program made, unless somebody else has a filter on it by now: what became of it.
pub(crate) fn take_discipline(device: &str) -> Result<String> {
    let tc = |words: &[&str]| {
        let output = Command::new("tc").args(words).output();
        output.map_err(|why| CureError::Refused(format!("tc {}: {why}", words.join(" "))))
    };
    for place in ["ingress", "egress"] {
        let shown = tc(&["filter", "show", "dev", device, place])?;
        if shown.status.success() && !shown.stdout.trim_ascii().is_empty() {
            return Ok(format!("left clsact on {device}: somebody else has a filter on it"));
        }
    }
    undo::one(&Change::Command {
        what: format!("no clsact on {device}"),
        undo: ["tc", "qdisc", "del", "dev", device, "clsact"].map(str::to_owned).to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_of_a_cure_is_known_by_its_device() {
        const HOOK: Hook = Hook { what: "the gate", programs: &[], preference: 47 };
        let Change::Command { what, undo } = filter(&HOOK, "wwan0", TcAttachType::Egress) else {
            panic!("a filter is undone by a command");
        };
        assert_eq!(what, "the gate, egress of wwan0");
        assert!(is_filter(&undo, "wwan0") && !is_filter(&undo, "wwan1"));
        assert!(!is_filter(&["tc".to_owned(), "qdisc".to_owned()], "wwan0"));
    }
}
