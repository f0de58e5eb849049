//! Sockets of this host are paced at the rate that the gate says.
//!
//! signal: RTT samples of sockets whose packets come to the gate · model: the gate's (`bpf/pacing.h`); this
//! side decides nothing about a socket · action: `bpf/pacing.bpf.c` sets SO_MAX_PACING_RATE.
//!
//! The program's link is pinned, so that it outlives a killed agent and restores each socket at its next
//! RTT sample. The walk over sockets restores the others.

use std::path::{Path, PathBuf};

use aya::include_bytes_aligned;
use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::links::PinnedLink;

use super::PacedFigures;
use crate::cures::receive::taken;
use crate::cures::{CureError, Result, attach};
use crate::kernel::layouts::{Pace, PacingConfig, PacingCounters};
use crate::kernel::socket_walk::{self, Action, Walker};
use crate::kernel::{self, Feature, FeatureId};
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{Leased, LeasedMap};

/// The compiled program.
static PROGRAM: &[u8] = include_bytes_aligned!("../../../bpf/pacing.bpf.o");
/// Its name, and that of its pinned link.
pub(crate) const NAME: &str = "pacing_sockets";
/// Maps that it shares with the gate: names, pinned under them.
pub(super) const SHARED: [&str; 2] = ["paced", "pace"];

/// The program on sockets.
pub(super) static FEATURE: Feature = Feature {
    id: FeatureId::Pacing,
    name: "uploads: new connections of this host paced below the gate",
    since: "5.9",
    probe: || {
        kernel::cgroups()?;
        kernel::load_sock_ops(PROGRAM, NAME, None).map(drop)
    },
};

/// The attached program.
pub(super) struct Pacing {
    config: LeasedMap<PacingConfig>,
    tally: PerCpuArray<MapData, PacingCounters>,
    said: Array<MapData, Pace>,
    link: PinnedLink,
    /// Number of the program.
    program: u32,
    pins: PathBuf,
}

impl Pacing {
    /// Paces nothing before the first lease. `cgroup`: whose sockets; none: all.
    pub(super) fn attach(
        pins: &Path,
        cgroup: Option<&Path>,
        journal: &mut Journal,
    ) -> Result<Pacing> {
        kernel::able()?;
        kernel::pinnable(pins)?;
        let change = Change::Sockets { pins: pins.to_owned() };
        journal.write(&change).map_err(CureError::file(journal.path()))?;
        let folder = socket_walk::made(pins)?;
        let mut ebpf = kernel::load_sock_ops(PROGRAM, NAME, Some(&folder))?;
        let scope = cgroup.map_or_else(kernel::cgroup_root, |path| Ok(path.to_owned()))?;
        // The same for all programs on sockets: they have one scope.
        let mut space: Array<_, u32> = taken(&mut ebpf, "space")?;
        let selected = if cgroup.is_some() { 0 } else { kernel::network_scope() };
        space.set(0, selected, 0).map_err(|e| CureError::Map("space", e.to_string()))?;
        let (link, program) = socket_walk::attach(&mut ebpf, NAME, &scope, pins)?;
        let config = LeasedMap::new("pacing", taken(&mut ebpf, "pacing")?)?;
        let (tally, said) = (taken(&mut ebpf, "pacing_tally")?, taken(&mut ebpf, "pace")?);
        Ok(Pacing { config, tally, said, link, program, pins: pins.to_owned() })
    }

    /// Number of its program.
    pub(super) fn program(&self) -> u32 {
        self.program
    }

    /// Until then sockets are paced.
    pub(super) fn grant(&self, until_ns: u64) -> Result<()> {
        self.config.grant(until_ns)
    }

    /// Its counters since the pins were made, and what the gate says now.
    pub(super) fn figures(&self) -> Result<PacedFigures> {
        let failed = |e: aya::maps::MapError| CureError::Map("pacing_tally", e.to_string());
        let (said, values) =
            (self.said.get(&0, 0).map_err(failed)?, self.tally.get(&0, 0).map_err(failed)?);
        let sum = |of: fn(&PacingCounters) -> u64| values.iter().map(of).sum();
        Ok(PacedFigures {
            rate_bps: said.rate.saturating_mul(8),
            connections: sum(|one| one.sockets),
            paced: sum(|one| one.paced),
            restored: sum(|one| one.restored),
            refused: sum(|one| one.refused),
        })
    }

    /// Every socket is as it would be without the agent.
    pub(super) fn detach(self, journal: &mut Journal) -> Result<()> {
        self.config.grant(0)?;
        let walker = Walker::find(&self.pins)?;
        if walker.is_none() || kernel::everywhere().is_some() {
            // What the walk cannot reach, the program restores at the next sample.
            std::thread::sleep(socket_walk::LAST_ACKS);
        }
        if let Some(mut walker) = walker {
            walker.walk(Action::Unpace, Path::new(""))?;
        }
        let path = socket_walk::folder(&self.pins).join(NAME);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(CureError::file(path)(e));
            }
            _ => drop(self.link),
        }
        attach::tidy(&self.pins, journal)
    }
}

impl Leased for PacingConfig {
    fn until_ns(&mut self) -> &mut u64 {
        &mut self.lease_until_ns
    }
}
