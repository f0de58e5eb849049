//! cgroup v2 and the bpf file system, where this process sees neither: below `ip netns exec`, whose
//! commands have a /sys of their own, and in containers.
//!
//! The mounts of an ancestor process are looked at first, since pins must outlive the agent and be
//! visible to a later `unbloat-agent off`: they are copied to the same paths in a private mount
//! namespace of this process, which its children inherit. So nothing is to be unmounted. Where no
//! ancestor has them, new mounts are made. A bpf file system that a daemon needs is then mounted
//! for the others, too, and `off` unmounts it.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use super::{BPF_FS, cgroup_root, cgroup_root_of, on_bpf_fs, rights};

/// Where cgroup v2 is mounted: the kernel makes this directory in every sysfs.
const CGROUP_FS: &CStr = c"/sys/fs/cgroup";
/// As [`BPF_FS`].
const BPF_FS_C: &CStr = c"/sys/fs/bpf";
/// The source of a bpf file system that the agent has mounted, by which `off` knows it.
const SOURCE: &str = "unbloat-agent";
/// Mounts of the calling thread, which may have entered another mount namespace.
const THREAD_MOUNTS: &str = "/proc/thread-self/mounts";
/// What the kernel itself puts into every new bpf file system.
const KERNEL_FILES: [&str; 2] = ["maps.debug", "progs.debug"];
/// `AT_RECURSIVE` of linux/fcntl.h: with the mounts below it.
const RECURSIVE: libc::c_uint = 0x8000;

/// What a command needs the mounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Programs are attached and pinned: pins outlive this process.
    Attach,
    /// Something is tried, and removed again.
    Probe,
    /// Pins are removed.
    Undo,
}

/// Copies of mounts of other mount namespaces, attached nowhere yet.
#[derive(Default)]
struct Copies {
    cgroup: Option<OwnedFd>,
    bpf: Option<OwnedFd>,
}

/// Makes cgroup v2 and a bpf file system visible to this process and its children, where they are
/// not and the kernel permits it. What stays missing is reported by what needs it. Called before
/// any thread is started.
pub fn provide(need: Need) {
    let no_cgroup = need != Need::Undo && cgroup_root().is_err();
    let no_bpf = !on_bpf_fs(Path::new(BPF_FS));
    if !no_cgroup && !no_bpf || rights().is_err() {
        return;
    }
    let ancestors = ancestors();
    let mut copies = Copies::default();
    for ancestor in &ancestors {
        let (cgroup, bpf) = (no_cgroup && copies.cgroup.is_none(), no_bpf && copies.bpf.is_none());
        let more = inside(ancestor, || Copies {
            cgroup: cgroup.then(copy_of_cgroups).flatten(),
            bpf: bpf.then(copy_of_bpf).flatten(),
        });
        let more = more.unwrap_or_default();
        copies.cgroup = copies.cgroup.or(more.cgroup);
        copies.bpf = copies.bpf.or(more.bpf);
    }
    if no_bpf && copies.bpf.is_none() && need == Need::Attach {
        // The last ancestor is the closest to the host: its mounts stay when those of
        // `ip netns exec` go.
        match ancestors.last() {
            Some(ancestor) => {
                let made = || mount_bpf().ok().and_then(|()| copy_of_bpf());
                copies.bpf = inside(ancestor, made).flatten();
            }
            None => drop(mount_bpf()),
        }
    }
    if need == Need::Undo && copies.bpf.is_none() {
        return;
    }
    if private().is_err() {
        return;
    }
    // A failure shows as a missing mount, with the reason in the words of the cure.
    if let Some(tree) = &copies.bpf {
        let _ = place(tree, BPF_FS_C);
    } else if need == Need::Probe && no_bpf {
        let _ = mount_bpf();
    }
    if let Some(tree) = &copies.cgroup {
        let _ = place(tree, CGROUP_FS);
    } else if no_cgroup {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let _ = mount(Some("none"), CGROUP_FS, Some("cgroup2"), flags, None::<&CStr>);
    }
}

/// Unmounts the bpf file system of an agent that had to mount one, if nothing is pinned there any
/// more.
pub fn remove() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let ours = mounts.lines().any(|line| line.starts_with(&format!("{SOURCE} {BPF_FS} bpf ")));
    let pins = |name: std::ffi::OsString| !KERNEL_FILES.iter().any(|file| name == **file);
    let unused = std::fs::read_dir(BPF_FS)
        .is_ok_and(|entries| !entries.flatten().any(|entry| pins(entry.file_name())));
    if ours && unused {
        let _ = umount2(BPF_FS_C, MntFlags::MNT_DETACH);
    }
}

/// Mount namespaces of this process's ancestors that are not its own, the parent's first.
fn ancestors() -> Vec<File> {
    let id = |path: &str| std::fs::metadata(path).ok().map(|about| about.ino());
    let mut seen: BTreeSet<u64> = id("/proc/self/ns/mnt").into_iter().collect();
    let (mut found, mut process) = (Vec::new(), nix::unistd::getppid().as_raw());
    // Zero is the parent of the first process, and of one whose parent is in another PID namespace.
    while process > 0 {
        let path = format!("/proc/{process}/ns/mnt");
        if let Some(id) = id(&path)
            && seen.insert(id)
            && let Ok(file) = File::open(path)
        {
            found.push(file);
        }
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        process = parent.and_then(|number| number.trim().parse().ok()).unwrap_or(0);
    }
    found
}

/// Runs something in another mount namespace, in a thread of its own; none if that may not be
/// entered.
fn inside<T: Send>(namespace: &File, run: impl FnOnce() -> T + Send) -> Option<T> {
    let thread = || {
        // Threads share their working directory and root, which a mount namespace sets.
        unshare(CloneFlags::CLONE_FS).ok()?;
        setns(namespace, CloneFlags::CLONE_NEWNS).ok()?;
        Some(run())
    };
    std::thread::scope(|scope| scope.spawn(thread).join().ok().flatten())
}

/// A mount namespace of this process alone; mounts of the old one still reach it.
fn private() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&CStr>, c"/", None::<&CStr>, flags, None::<&CStr>)
}

fn mount_bpf() -> nix::Result<()> {
    if !Path::new(BPF_FS).exists() {
        make_place();
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some(SOURCE), BPF_FS_C, Some("bpf"), flags, Some("mode=700"))
}

/// Makes the directory to mount it at, where the kernel has not made it: systemd-nspawn with a
/// network namespace shows an ordinary read-only file system at /sys with some parts of sysfs. It is
/// made writable in a mount namespace of a thread alone; elsewhere it stays read-only.
fn make_place() {
    let thread = || -> nix::Result<()> {
        unshare(CloneFlags::CLONE_FS)?;
        private()?;
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
        mount(None::<&CStr>, c"/sys", None::<&CStr>, flags, None::<&CStr>)?;
        // A real sysfs refuses: there the kernel lacks BPF.
        let _ = std::fs::create_dir_all(BPF_FS);
        Ok(())
    };
    // A failure shows as a missing mount.
    let _ = std::thread::scope(|scope| scope.spawn(thread).join());
}

/// The bpf file system of the calling thread's mount namespace.
fn copy_of_bpf() -> Option<OwnedFd> {
    on_bpf_fs(Path::new(BPF_FS)).then(|| copy(BPF_FS_C).ok()).flatten()
}

/// cgroup v2 of the calling thread's mount namespace; everything at /sys/fs/cgroup if it is mounted
/// below that, so that its path stays the same.
fn copy_of_cgroups() -> Option<OwnedFd> {
    let root = cgroup_root_of(THREAD_MOUNTS).ok()?;
    if root.starts_with("/sys/fs/cgroup") {
        return copy(CGROUP_FS).ok();
    }
    let path = std::ffi::CString::new(root.into_os_string().into_encoded_bytes()).ok()?;
    copy(&path).ok()
}

/// A copy of a mount and of those below it, attached nowhere.
fn copy(path: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | RECURSIVE;
    // SAFETY: the path is a C string that outlives the call; the kernel writes no memory.
    let fd = unsafe {
        libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), libc::c_long::from(flags))
    };
    let fd = Errno::result(fd)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Attaches a copy at a path of this process's mount namespace.
fn place(tree: &OwnedFd, path: &CStr) -> io::Result<()> {
    // SAFETY: both paths are C strings that outlive the call; the kernel writes no memory.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::c_long::from(libc::MOVE_MOUNT_F_EMPTY_PATH),
        )
    };
    Errno::result(done)?;
    Ok(())
}
