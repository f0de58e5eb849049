//! Other sock_ops programs on the cures' sockets, as of bpftune or a load balancer.
//!
//! signal: the kernel's list of the programs attached to the cgroup of the scope, to those above it
//! and to those below · model: all programs of a socket share its callback flags, window clamp and
//! congestion control, and the last writer wins · action: their names in `status` and in the log.
//! Nothing of theirs is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use serde::Serialize;

use crate::cures::gate::PACING;
use crate::cures::{Attached, Result};
use crate::kernel::{self, bpf};

/// Time between two looks: a call for each cgroup.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Most cgroups of a look: some ten milliseconds.
const MAX_CGROUPS: usize = 1_000;

/// A sock_ops program of another project on the cures' sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherProgram {
    /// Its number, as of `bpftool prog`.
    pub id: u32,
    /// Its name, at most 15 bytes; none without CAP_SYS_ADMIN.
    pub name: Option<String>,
    /// The cgroup to which it is attached; none where that lies above what a container sees.
    pub cgroup: Option<PathBuf>,
}

impl std::fmt::Display for OtherProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("no name known"))?;
        write!(f, " (sock_ops program {}, attached to ", self.id)?;
        match &self.cgroup {
            Some(cgroup) => write!(f, "{})", cgroup.display()),
            None => f.write_str("a cgroup above this container)"),
        }
    }
}

/// Name of a program, and the digest of its instructions.
type Known = (Option<String>, u64);

/// Looks for such programs from time to time.
#[derive(Default)]
pub(crate) struct Others {
    found: Vec<OtherProgram>,
    /// By number; none without the right to ask.
    known: BTreeMap<u32, Option<Known>>,
    /// Connections whose callback flags had been replaced by the last look.
    replaced: u64,
    next: Option<Instant>,
}

impl Others {
    /// Called twice a second; lines for the log.
    pub(crate) fn tick(&mut self, cures: &Attached) -> Vec<String> {
        let now = Instant::now();
        let replaced = self.replaced(cures);
        if self.next.is_some_and(|next| now < next) && replaced == self.replaced {
            return Vec::new();
        }
        (self.next, self.replaced) = (Some(now + LOOK_EVERY), replaced);
        // A cgroup that has just gone; the next look finds the others.
        let Ok(found) = self.look(cures) else { return Vec::new() };
        let before = std::mem::replace(&mut self.found, found);
        let new = self.found.iter().filter(|one| !before.contains(one));
        new.map(|one| format!("another program runs on the same sockets: {one}")).collect()
    }

    /// Those of the last look.
    pub(crate) fn found(&self) -> &[OtherProgram] {
        &self.found
    }

    /// Connections whose callback flags another program had replaced.
    pub(crate) fn replaced(&self, cures: &Attached) -> u64 {
        cures.receive.as_ref().map_or(0, |cure| cure.silenced())
    }

    fn look(&mut self, cures: &Attached) -> Result<Vec<OtherProgram>> {
        let ours: Vec<u32> = [
            cures.receive.as_ref().map(|cure| cure.program()),
            cures.congestion.as_ref().map(|cure| cure.program()),
            cures.gate.as_ref().and_then(|cure| cure.pacing_program()),
        ]
        .into_iter()
        .flatten()
        .collect();
        if ours.is_empty() {
            return Ok(Vec::new());
        }
        // One scope for all of them.
        let scope = match (&cures.receive, &cures.congestion, &cures.gate) {
            (Some(cure), _, _) => cure.now().cgroup.clone(),
            (None, Some(cure), _) => cure.now().cgroup.clone(),
            (None, None, Some(cure)) => cure.pacing_scope().map(Path::to_path_buf),
            (None, None, None) => None,
        };
        let root = kernel::cgroup_root()?;
        let scope = scope.unwrap_or_else(|| root.clone());
        let mut attached: Vec<(u32, Option<PathBuf>)> = Vec::new();
        let above = scope.ancestors().filter(|path| path.starts_with(&root)).map(Path::to_path_buf);
        let mut folders: Vec<PathBuf> = above.collect();
        below(&scope, &mut folders);
        for folder in folders {
            let here = bpf::programs_on(&folder, false).unwrap_or_default();
            attached.extend(here.into_iter().map(|id| (id, Some(folder.clone()))));
        }
        for id in bpf::programs_on(&scope, true).unwrap_or_default() {
            if !attached.iter().any(|(known, _)| *known == id) {
                attached.push((id, None));
            }
        }
        self.know(attached.iter().map(|(id, _)| *id));
        let digests: Vec<u64> = ours.iter().filter_map(|id| self.digest(*id)).collect();
        // Programs of other agents keep to their own scope.
        attached.retain(|(id, _)| {
            !ours.contains(id)
                && !self.known.get(id).and_then(Option::as_ref).is_some_and(|(name, of)| {
                    digests.contains(of) || name.as_deref() == Some(PACING)
                })
        });
        let named = |(id, cgroup): (u32, Option<PathBuf>)| {
            let name = self.known.get(&id).cloned().flatten().and_then(|(name, _)| name);
            OtherProgram { id, name, cgroup }
        };
        Ok(attached.into_iter().map(named).collect())
    }

    fn digest(&self, id: u32) -> Option<u64> {
        self.known.get(&id)?.as_ref().map(|(_, digest)| *digest)
    }

    /// Reads the names of programs that are not known yet.
    fn know(&mut self, ids: impl Iterator<Item = u32>) {
        let mut unknown: Vec<u32> = ids.filter(|id| !self.known.contains_key(id)).collect();
        if unknown.is_empty() {
            return;
        }
        for program in loaded_programs().map_while(std::result::Result::ok) {
            if unknown.contains(&program.id()) {
                let name = program.name_as_str().filter(|name| !name.is_empty());
                let about = (name.map(str::to_owned), program.tag());
                self.known.insert(program.id(), Some(about));
                unknown.retain(|id| *id != program.id());
            }
        }
        self.known.extend(unknown.into_iter().map(|id| (id, None)));
    }
}

/// The cgroups below a directory, without that one.
fn below(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
        if found.len() >= MAX_CGROUPS {
            return;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
            below(&entry.path(), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_with_its_number_and_its_cgroup() {
        let mut other = OtherProgram {
            id: 23,
            name: Some("bpftune_conn_tu".to_owned()),
            cgroup: Some("/sys/fs/cgroup".into()),
        };
        let text = "bpftune_conn_tu (sock_ops program 23, attached to /sys/fs/cgroup)";
        assert_eq!(other.to_string(), text);
        (other.name, other.cgroup) = (None, None);
        let text = "no name known (sock_ops program 23, attached to a cgroup above this container)";
        assert_eq!(other.to_string(), text);
    }
}
