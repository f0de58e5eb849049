//! Programs of a cure on a device: attached, handed over, detached.
//!
//! By TCX (Linux 6.6) a program is removed when its process ends. On older kernels it hangs on the
//! device's clsact discipline and stays: its lease opens it, and the journal says how to remove it.
//! Every change is in the journal before it is made.

use std::path::Path;

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapInfo};
use aya::programs::links::LinkOrder;
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions, TcHandle,
};
use aya::programs::{SchedClassifier, TcAttachType, loaded_programs, tc};
use aya::util::KernelVersion;
use netlink::{Device, Netlink};

use crate::error::{CureError, Result};
use crate::kernel::tc::{Direction, Filter, HANDLE as OUR_HANDLE, filters};
use crate::kernel::{self, Feature, FeatureId, objects, socket_walk, whole};
use crate::undo;
use crate::undo::handover;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::Leased;

/// Handle of this program's filters, so that it finds them again.
const HANDLE: TcHandle = TcHandle::new(0, OUR_HANDLE as u16);

/// The programs of one cure.
pub struct Hook {
    /// Their name in messages and in the journal.
    pub what: &'static str,
    /// The name of each, and the packets that it sees.
    pub programs: &'static [(&'static str, TcAttachType)],
    /// Preference of their filters on a clsact discipline, one for each cure.
    pub preference: u16,
    /// Reads the end of the lease in their map `config`.
    pub lease: fn(Map) -> Option<u64>,
}

/// A device by its name, as it is now.
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

/// Whether programs are attached by TCX here, and not to clsact.
fn tcx(clsact: bool) -> bool {
    !clsact && KernelVersion::current().is_ok_and(|kernel| kernel >= KernelVersion::new(6, 6, 0))
}

/// The attached programs of one cure.
pub struct Programs {
    device: String,
    tcx: bool,
    links: Vec<(&'static str, SchedClassifierLinkId)>,
    /// Their changes in the journal.
    changes: Vec<Change>,
}

impl Programs {
    /// Attaches all of them to a device, or none. `clsact`: to that discipline, also where TCX is
    /// available.
    pub fn attach(
        hook: &Hook,
        ebpf: &mut Ebpf,
        (name, found): (&str, &Device),
        clsact: bool,
        journal: &mut Journal,
    ) -> Result<Programs> {
        let (device, tcx) = (name.to_owned(), tcx(clsact));
        let mut attached = Programs { device, tcx, links: Vec::new(), changes: Vec::new() };
        match attached.each(hook, ebpf, found, journal) {
            Ok(()) => Ok(attached),
            Err(error) => {
                attached.detach(ebpf, journal)?;
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
                    undo::revert(&change)?;
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

    /// Puts each program, in one step, in the place of one that another agent left below `place` or
    /// on the device's clsact discipline.
    pub fn take_over(
        hook: &Hook,
        ebpf: &mut Ebpf,
        device: &str,
        clsact: bool,
        place: &Path,
    ) -> Result<Programs> {
        let tcx = tcx(clsact);
        let mut attached =
            Programs { device: device.to_owned(), tcx, links: Vec::new(), changes: Vec::new() };
        for (name, way) in hook.programs {
            let program = program(ebpf, name)?;
            let link = if tcx {
                handover::take(program, &place.join(name))?
            } else {
                attached.changes.push(filter(hook, device, *way));
                let there =
                    SchedClassifierLink::attached(device, *way, hook.preference, HANDLE, None);
                let there = there.map_err(CureError::file(device))?;
                program.attach_to_link(there).map_err(|why| CureError::Map("link", whole(&why)))?
            };
            attached.links.push((name, link));
        }
        Ok(attached)
    }

    /// Leaves them to another agent: below `place`, or on the clsact discipline where they are.
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

    /// Their changes in the journal; none where they are attached by TCX.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Detaches the programs, and records in the journal that they are gone.
    pub fn detach(&mut self, ebpf: &mut Ebpf, journal: &mut Journal) -> Result<()> {
        for (name, link) in std::mem::take(&mut self.links) {
            // It fails where the device is gone, or another program has detached it: nothing is left.
            let _ = program(ebpf, name)?.detach(link);
        }
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            if !matches!(change, Change::Clsact { .. }) {
                undo::undo(&change, journal)?;
            }
        }
        // Two cures may share the discipline, and an earlier agent may have made it: it goes with
        // the last filter.
        let discipline = Change::Clsact { device: self.device.clone() };
        let used = |change: &Change| is_filter(change, &self.device);
        let pending = journal.pending();
        if !self.tcx && pending.contains(&discipline) && !pending.iter().any(used) {
            undo::undo(&discipline, journal)?;
        }
        Ok(())
    }
}

fn direction(place: TcAttachType) -> Direction {
    match place {
        TcAttachType::Ingress => Direction::Ingress,
        _ => Direction::Egress,
    }
}

/// The change that a filter is.
fn filter(hook: &Hook, device: &str, place: TcAttachType) -> Change {
    let direction = direction(place);
    Change::Filter {
        device: device.to_owned(),
        direction,
        preference: hook.preference,
        what: format!("{}, {} of {device}", hook.what, direction.name()),
    }
}

/// Filters of the cures that no agent renews any more, on all devices of this namespace: what
/// remains of an agent that was killed and whose journal is lost.
///
/// signal: filters with the preference, handle and name of a cure's program, whose map `config`
/// contains a lease · model: a running agent renews its lease, also one with another runtime
/// directory · action: the changes that they are, where the lease has expired, and whether another
/// one is still valid. The discipline stays: without the journal it is not known whether the agent
/// made it.
pub(crate) fn orphans(hooks: &[&Hook]) -> Result<(Vec<Change>, bool)> {
    let (mut expired, mut valid) = (Vec::new(), false);
    let devices = "/proc/self/net/dev";
    let text = std::fs::read_to_string(devices).map_err(CureError::file(devices))?;
    for device in text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())) {
        let there = filters(device).map_err(CureError::file(device))?;
        for hook in hooks {
            for (name, place) in hook.programs {
                let ours = |one: &&Filter| {
                    (one.direction, one.preference) == (direction(*place), hook.preference)
                        && (one.handle, one.name.as_str()) == (OUR_HANDLE, *name)
                };
                let Some(until) = there.iter().find(ours).and_then(|one| lease(one.program, hook))
                else {
                    continue;
                };
                match until < kernel::now_ns() {
                    true => expired.push(filter(hook, device, *place)),
                    false => valid = true,
                }
            }
        }
    }
    Ok((expired, valid))
}

/// The end of a program's lease, in its map `config`; none where that cannot be read: then it is not
/// known whose program it is.
fn lease(program: u32, hook: &Hook) -> Option<u64> {
    let info = loaded_programs().filter_map(|info| info.ok()).find(|info| info.id() == program)?;
    let named =
        |id: &u32| MapInfo::from_id(*id).is_ok_and(|info| info.name_as_str() == Some("config"));
    let config = info.map_ids().ok().flatten()?.into_iter().find(named)?;
    (hook.lease)(Map::from_map_data(MapData::from_id(config).ok()?).ok()?)
}

/// The end of a lease in a map of configurations, where these are of this version.
pub(crate) fn lease_in<C: Leased + aya::Pod>(map: Map) -> Option<u64> {
    let map: Array<MapData, C> = Array::try_from(map).ok()?;
    map.get(&0, 0).ok().map(|mut config| *config.until_ns())
}

/// Whether a change is one of our filters on a device.
fn is_filter(change: &Change, on: &str) -> bool {
    matches!(change, Change::Filter { device, .. } if device == on)
}

/// After a cure on sockets was detached: if it was the last one, its maps go, and the journal's
/// line with them.
pub(crate) fn tidy(pins: &Path, journal: &mut Journal) -> Result<()> {
    if socket_walk::tidy(pins)? {
        let change = Change::Sockets { pins: pins.to_owned() };
        journal.undone(&change).map_err(CureError::file(journal.path()))?;
    }
    Ok(())
}

/// How programs hang on a device.
pub static HOOKS: [Feature; 2] = [
    Feature {
        id: FeatureId::Tcx,
        name: "programs on a device that go with their process (TCX)",
        since: "6.6",
        probe: || kernel::in_own_namespace(attach_by_tcx),
    },
    Feature {
        id: FeatureId::Clsact,
        name: "programs on a device for older kernels (clsact)",
        since: "4.5",
        probe: || kernel::in_own_namespace(attach_clsact),
    },
];

fn attach_by_tcx() -> Result<()> {
    const WHAT: &str = "a program on a device";
    // Any program on a device will do.
    let mut ebpf = Ebpf::load(objects::GATE).map_err(|e| kernel::refused(WHAT, "5.6", &e))?;
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let program = program(&mut ebpf, "egress")?;
    program.load().map_err(|e| kernel::refused(WHAT, "5.6", &e))?;
    let attached = program.attach_with_options("lo", TcAttachType::Egress, options).map(drop);
    attached.map_err(|e| kernel::refused(WHAT, "6.6", &e))
}

fn attach_clsact() -> Result<()> {
    tc::qdisc_add_clsact("lo").map_err(|e| kernel::refused("clsact", "4.5", &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_of_a_cure_is_known_by_its_device() {
        const HOOK: Hook =
            Hook { what: "the gate", programs: &[], preference: 47, lease: |_| None };
        let change = filter(&HOOK, "wwan0", TcAttachType::Egress);
        let Change::Filter { what, .. } = &change else { panic!("{change:?}") };
        assert_eq!(what, "the gate, egress of wwan0");
        assert!(is_filter(&change, "wwan0") && !is_filter(&change, "wwan1"));
        assert!(!is_filter(&Change::Clsact { device: "wwan0".to_owned() }, "wwan0"));
    }
}
