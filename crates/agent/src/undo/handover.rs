//! Programs on a device pass from one agent to the next without a gap, for upgrades.
//!
//! The old agent pins the link and the maps of its program; the pins exist until the new agent takes
//! them. The new program reads the old maps and replaces the old program on the link in one step,
//! so that no packet passes without a program. A new program with other maps cannot load with the
//! old ones, and starts without their state.
//!
//! Meanwhile the new agent renews the leases of all maps that were left, those of the cures on
//! sockets, too, where their content has the form that it knows.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use aya::maps::{Array, Map, MapData};
use aya::programs::SchedClassifier;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{SchedClassifierLink, SchedClassifierLinkId};

use crate::error::{CureError, Result};
use crate::kernel::layouts::acks::AcksConfig;
use crate::kernel::layouts::{CongestionConfig, GateConfig, PacingConfig, ReceiveConfig};
use crate::kernel::socket_walk;
use crate::kernel::whole;
use crate::undo::lease::{self, Leased};

/// Where programs on devices are handed over.
pub fn folder(pins: &Path) -> PathBuf {
    socket_walk::folder(pins).join("device")
}

/// A cure's own directory there; made.
pub fn made(place: &Path) -> Result<()> {
    // Left by one that was killed in the midst of it.
    let _ = std::fs::remove_dir_all(place);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(place)
        .map_err(CureError::file(place))
}

/// Renews the leases of what another agent left below these pins, from now on. What cannot be read
/// is not renewed, and ends with the lease that it has.
pub fn inherit(pins: &Path) {
    let sockets = socket_walk::folder(pins);
    renew::<ReceiveConfig>("config", &sockets.join("config"));
    renew::<CongestionConfig>("choice", &sockets.join("choice"));
    renew::<PacingConfig>("pacing", &sockets.join("pacing"));
    for left in std::fs::read_dir(folder(pins)).into_iter().flatten().flatten() {
        let config = left.path().join("config");
        match left.file_name().to_string_lossy() {
            name if name.starts_with("acks-") => renew::<AcksConfig>("config", &config),
            name if name.starts_with("gate-") => renew::<GateConfig>("config", &config),
            _ => {}
        }
    }
}

fn renew<C: Leased + 'static>(name: &'static str, pin: &Path) {
    let map = MapData::from_pin(pin).ok().and_then(|data| Map::from_map_data(data).ok());
    // A map whose content has another size is that of another version.
    if let Some(map) = map.and_then(|map| Array::<MapData, C>::try_from(map).ok()) {
        let _ = lease::inherit(name, map);
    }
}

fn failed(why: &dyn std::error::Error) -> CureError {
    CureError::Map("link", whole(why))
}

/// Leaves a program's link there. By clsact there is none.
pub fn leave(
    program: &mut SchedClassifier,
    link: SchedClassifierLinkId,
    path: &Path,
) -> Result<()> {
    let link = program.take_link(link).map_err(|why| failed(&why))?;
    let link: FdLink =
        link.try_into().map_err(|why: aya::programs::links::LinkError| failed(&why))?;
    link.pin(path).map(drop).map_err(|why| failed(&why))
}

/// Takes the place of the program on a link that was left.
pub fn take(program: &mut SchedClassifier, path: &Path) -> Result<SchedClassifierLinkId> {
    let link = PinnedLink::from_pin(path).map_err(|why| failed(&why))?;
    let link = link.unpin().map_err(CureError::file(path))?;
    let link = SchedClassifierLink::try_from(link).map_err(|why| failed(&why))?;
    program.attach_to_link(link).map_err(|why| failed(&why))
}
