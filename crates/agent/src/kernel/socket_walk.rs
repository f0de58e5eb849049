//! Walks over existing sockets in every network namespace: they join the cure, are restored, are
//! listed, or change their congestion control.
//!
//! bpf/sockets.bpf.c visits each socket. A walk sees the sockets of one network namespace, that of
//! the thread that opens it. So a thread goes through all namespaces that have a process or a name.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::links::{FdLink, LinkError, PinnedLink};
use aya::programs::{CgroupAttachMode, Iter, SockOps};
use nix::sched::{CloneFlags, setns};

use crate::error::{CureError, Result};
use crate::kernel;
use crate::kernel::layouts::{CongestionConfig, PacingConfig, ReceiveConfig, WalkSocket, WalkTask};

/// Version of the structs in `bpf/receive.h` and `bpf/congestion.h`. It is a part of the path of
/// their pins, so that a new agent never reads the data of an older layout. A change of it loses
/// the maps that an older agent hands over, so renaming alone is no reason for one.
pub const LAYOUT: u32 = 6;

/// Attempts to shrink larger buffers before they are cut, and the time between two: half a second
/// in all, some round trips.
const LEAVE_ATTEMPTS: u32 = 10;
const LEAVE_INTERVAL: Duration = Duration::from_millis(50);

/// Without a walk, the programs restore each socket at its next ACK: time for some round trips.
pub const LAST_ACKS: Duration = Duration::from_millis(500);

/// Names of the pinned links. A new agent looks for them, so they never change.
pub const LINKS: [&str; 3] = ["receive", "congestion", "pacing_sockets"];

/// Directory of the pins of this layout.
pub fn folder(pins: &Path) -> PathBuf {
    pins.join(LAYOUT.to_string())
}

/// What a walk does: `enum action` of bpf/sockets.bpf.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Action {
    /// Selected sockets call the program at their ACKs.
    Join = 1,
    /// Restores every socket that the agent has changed.
    Leave = 2,
    /// Lists every selected socket.
    List = 3,
    /// Changes the congestion control of sockets with a route.
    Switch = 4,
    /// Restores the congestion control.
    SwitchBack = 5,
    /// Restores the bound of the pacing rate.
    Unpace = 6,
}

/// Results of a walk.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// Counters of the walk.
    pub task: WalkTask,
    /// Sockets that it listed.
    pub sockets: Vec<WalkSocket>,
    /// CPU time; waiting for a busy processor does not count.
    pub took: Duration,
}

/// The loaded program that walks.
pub struct Walker {
    ebpf: Ebpf,
}

impl Walker {
    /// Loads it with the maps below `pins` of this layout.
    pub fn load(pins: &Path) -> Result<Walker> {
        let folder = made(pins)?;
        Ok(Walker { ebpf: kernel::load_walk(Some(&folder))? })
    }

    /// As `load`; `None` where the kernel refuses such a program, as before 5.15.
    pub fn find(pins: &Path) -> Result<Option<Walker>> {
        match Walker::load(pins) {
            Ok(walker) => Ok(Some(walker)),
            Err(CureError::Kernel { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Visits every socket of every network namespace. Joining, listing and changing concern the
    /// cgroup `scope` and those below it; restoring concerns every socket that the agent has
    /// changed.
    pub fn walk(&mut self, action: Action, scope: &Path) -> Result<Walked> {
        let (cgroup, cgroup_level) = match action {
            Action::Leave | Action::SwitchBack | Action::Unpace => (0, 0),
            _ => kernel::scope(scope)?,
        };
        self.perform(WalkTask {
            action: action as u32,
            cgroup,
            cgroup_level,
            ..WalkTask::default()
        })
    }

    /// Restores every socket. A buffer that was made larger has some time to receive what is in
    /// flight; after that, data that does not fit is dropped and retransmitted.
    pub fn leave(&mut self) -> Result<Walked> {
        let mut all = Walked::default();
        for attempt in (0..LEAVE_ATTEMPTS).rev() {
            let gentle = (attempt > 0).into();
            let task = WalkTask { action: Action::Leave as u32, gentle, ..WalkTask::default() };
            let walked = self.perform(task)?;
            all.task.changed += walked.task.changed;
            all.took += walked.took;
            if walked.task.waiting == 0 {
                break;
            }
            std::thread::sleep(LEAVE_INTERVAL);
        }
        Ok(all)
    }

    fn perform(&mut self, task: WalkTask) -> Result<Walked> {
        self.task()?.set(0, task, 0).map_err(|e| CureError::Map("task", e.to_string()))?;
        let program: &mut Iter = self
            .ebpf
            .program_mut("walk")
            .and_then(|program| program.try_into().ok())
            .ok_or(CureError::Map("program", "walk is not in its object".to_owned()))?;
        let failed =
            |why: String| CureError::Kernel { what: "a walk over sockets", since: "5.9", why };
        // A separate thread, since it changes its network namespace.
        let listed = std::thread::scope(|scope| {
            let thread = scope.spawn(|| -> Result<(Vec<u8>, Duration)> {
                let mut listed = Vec::new();
                for (number, namespace) in namespaces().iter().enumerate() {
                    // The first namespace is the one in which the thread begins: it is visited even
                    // without rights for others. A namespace that has vanished meanwhile has no
                    // sockets left.
                    if number > 0 && setns(namespace, CloneFlags::CLONE_NEWNET).is_err() {
                        continue;
                    }
                    let id = program.attach().map_err(|e| failed(kernel::whole(&e)))?;
                    let link = program.take_link(id).map_err(|e| failed(kernel::whole(&e)))?;
                    let mut file = link.into_file().map_err(|e| failed(kernel::whole(&e)))?;
                    file.read_to_end(&mut listed).map_err(|e| failed(e.to_string()))?;
                }
                Ok((listed, cpu_time()))
            });
            thread.join().unwrap_or_else(|_| Err(failed("its thread ended".to_owned())))
        });
        let (listed, took) = listed?;
        let sockets = WalkSocket::all_of(&listed);
        let task = self.task()?.get(&0, 0).map_err(|e| CureError::Map("task", e.to_string()))?;
        Ok(Walked { task, sockets, took })
    }

    fn task(&mut self) -> Result<Array<&mut MapData, WalkTask>> {
        let map = self.ebpf.map_mut("task").ok_or(CureError::Map("task", "missing".to_owned()))?;
        Array::try_from(map).map_err(|e| CureError::Map("task", e.to_string()))
    }
}

/// What a function finds in each network namespace, with the inode that names it, and the CPU time
/// that this took. Namespaces that cannot be entered are left out; the own one is the first.
pub(crate) fn in_each_namespace<T: Send>(
    found: impl Fn() -> Option<T> + Sync,
) -> (Vec<(u64, T)>, Duration) {
    // A separate thread, since it changes its network namespace.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut all = Vec::new();
            for (number, namespace) in namespaces().iter().enumerate() {
                let Ok(about) = namespace.metadata() else { continue };
                if number > 0 && setns(namespace, CloneFlags::CLONE_NEWNET).is_err() {
                    continue;
                }
                all.extend(found().map(|found| (about.ino(), found)));
            }
            (all, cpu_time())
        });
        thread.join().unwrap_or_default()
    })
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

/// Every network namespace that has a process or a name, each once; the agent's own first.
fn namespaces() -> Vec<File> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut add = |path: PathBuf| {
        let Ok(about) = std::fs::metadata(&path) else { return };
        if seen.insert((about.dev(), about.ino()))
            && let Ok(file) = File::open(&path)
        {
            found.push(file);
        }
    };
    add("/proc/self/ns/net".into());
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()) {
            add(entry.path().join("ns/net"));
        }
    }
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        add(entry.path());
    }
    found
}

/// Makes the directory of pins, with access for its owner only.
pub fn made(pins: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    kernel::pinnable(pins)?;
    let folder = folder(pins);
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
        Ok(()) => Ok(folder),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(CureError::Rights(format!("{} cannot be made ({e})", folder.display())))
        }
        Err(e) => Err(CureError::file(folder)(e)),
    }
}

/// Attaches a program to the sockets of a cgroup, and pins its link below `pins`: the link, and the
/// number of the program.
pub fn attach(
    ebpf: &mut Ebpf,
    name: &'static str,
    cgroup: &Path,
    pins: &Path,
) -> Result<(PinnedLink, u32)> {
    let group = File::open(cgroup).map_err(CureError::file(cgroup))?;
    let failed = |why: String| CureError::Kernel {
        what: "a program on a cgroup's sockets",
        since: "5.7",
        why,
    };
    let missing = || CureError::Map("program", format!("{name} is not in its object"));
    let program = ebpf.program_mut(name).ok_or_else(missing)?;
    let program: &mut SockOps = program.try_into().map_err(|_| missing())?;
    // A link does not replace the programs of others.
    let id =
        program.attach(group, CgroupAttachMode::Single).map_err(|e| failed(kernel::whole(&e)))?;
    let link = program.take_link(id).map_err(|e| failed(kernel::whole(&e)))?;
    let link: FdLink = link.try_into().map_err(|e: LinkError| failed(kernel::whole(&e)))?;
    let number = program.info().map_err(|e| failed(kernel::whole(&e)))?.id();
    Ok((pin(link, &folder(pins), name)?, number))
}

/// Pins a link under a name, in place of an older one: the new program runs before the old one
/// goes.
fn pin(link: FdLink, folder: &Path, name: &str) -> Result<PinnedLink> {
    let (new, last) = (folder.join(format!("{name}-new")), folder.join(name));
    // Left by an agent that was killed between these lines.
    let _ = std::fs::remove_file(&new);
    let pinned = link.pin(&new).map_err(|e| CureError::Map("link", kernel::whole(&e)))?;
    std::fs::rename(&new, &last).map_err(CureError::file(&last))?;
    Ok(pinned)
}

/// Opens a pinned map; `None` if it does not exist.
fn pinned<T: aya::Pod>(folder: &Path, name: &'static str) -> Option<Array<MapData, T>> {
    let data = MapData::from_pin(folder.join(name)).ok()?;
    Array::try_from(aya::maps::Map::from_map_data(data).ok()?).ok()
}

/// Ends the leases, so that programs that still run change nothing more.
fn end_leases(folder: &Path) -> Result<()> {
    if let Some(mut map) = pinned::<ReceiveConfig>(folder, "config") {
        let mut config = map.get(&0, 0).map_err(|e| CureError::Map("config", e.to_string()))?;
        config.lease_until_ns = 0;
        map.set(0, config, 0).map_err(|e| CureError::Map("config", e.to_string()))?;
    }
    if let Some(mut map) = pinned::<CongestionConfig>(folder, "choice") {
        map.set(0, CongestionConfig::default(), 0)
            .map_err(|e| CureError::Map("choice", e.to_string()))?;
    }
    if let Some(mut map) = pinned::<PacingConfig>(folder, "pacing") {
        map.set(0, PacingConfig::default(), 0)
            .map_err(|e| CureError::Map("pacing", e.to_string()))?;
    }
    Ok(())
}

/// Ends the leases below `pins` and restores every socket; without a walk, only sockets that send
/// an ACK.
pub fn give_sockets_back(pins: &Path) -> Result<Walked> {
    end_leases(&folder(pins))?;
    let Some(mut walker) = Walker::find(pins)? else {
        std::thread::sleep(LAST_ACKS);
        return Ok(Walked::default());
    };
    let mut walked = walker.leave()?;
    for action in [Action::SwitchBack, Action::Unpace] {
        walked.task.changed += walker.walk(action, Path::new(""))?.task.changed;
    }
    Ok(walked)
}

/// Undoes all that is below `pins`: leases end, sockets are restored, programs and pins go. Missing
/// parts are no error.
pub fn give_back(pins: &Path) -> Result<Walked> {
    let folder = folder(pins);
    let mut walked = Walked::default();
    // Only a bpf file system can contain pins. Nothing is pinned if the first program was refused,
    // as where this process may not use BPF: then nothing was changed, and a walk would be refused.
    let pinned = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    if pinned && kernel::on_bpf_fs(&folder) {
        walked = give_sockets_back(pins)?;
        std::fs::remove_dir_all(&folder).map_err(CureError::file(&folder))?;
    }
    let _ = std::fs::remove_dir(&folder);
    drop_other_layouts(pins);
    // Fails if it contains pins of another program, as it should.
    let _ = std::fs::remove_dir(pins);
    Ok(walked)
}

/// Removes the pins of other layouts. Their programs lift their clamps when their lease expires.
pub fn drop_other_layouts(pins: &Path) {
    for entry in std::fs::read_dir(pins).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str() == Some(&LAYOUT.to_string());
        if !ours && entry.path().is_dir() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// After a cure was detached: removes the maps if it was the last one. Whether nothing is pinned
/// any more.
pub fn tidy(pins: &Path) -> Result<bool> {
    let folder = folder(pins);
    if LINKS.iter().any(|name| folder.join(name).exists()) {
        return Ok(false);
    }
    match std::fs::remove_dir_all(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(CureError::file(folder)(e));
        }
        _ => {}
    }
    let _ = std::fs::remove_dir(pins);
    Ok(true)
}
