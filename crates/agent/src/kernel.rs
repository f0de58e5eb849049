//! What this kernel can do. It is found out by trying, not by the version, since distributions
//! backport features. Also: cgroups, and loading of programs.

pub mod bpf;
pub mod layouts;
pub mod mounts;
pub mod objects;
pub mod socket_walk;
pub mod tc;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::programs::{Iter, SockOps};
use aya::{Btf, Ebpf, EbpfLoader, Endianness};
use nix::errno::Errno;
use nix::sys::statfs::{BPF_FS_MAGIC, CGROUP2_SUPER_MAGIC, statfs};

use crate::error::{CureError, Result};

pub(crate) mod budget;
mod features;
mod rights;

pub use features::{BASE, Feature, FeatureId, SOCK_DIAG, Tried, able, without};
pub(crate) use features::{cgroups, discipline, in_own_namespace};
pub(crate) use rights::how_to_mount;
pub use rights::{everywhere, rights};

/// The kernel's type information (BTF), by which BPF programs are relocated: the file that
/// UNBLOAT_BTF names, for a container without /sys/kernel, or the kernel's own.
pub(crate) fn types_file() -> PathBuf {
    std::env::var_os("UNBLOAT_BTF").map_or_else(|| "/sys/kernel/btf/vmlinux".into(), PathBuf::from)
}

/// Whether programs find the fields of the kernel's structs.
pub fn has_types() -> Result<()> {
    match types_file().exists() {
        true => Ok(()),
        false => Err(CureError::NoBtf(types_file())),
    }
}

/// The types themselves: some megabytes, to be read rarely.
fn types() -> Result<Btf> {
    has_types()?;
    Btf::parse_file(types_file(), Endianness::default())
        .map_err(|e| CureError::Refused(format!("{}: {e}", types_file().display())))
}

/// The types in the file that UNBLOAT_BTF names, if it is there. A loader reads the kernel's own.
pub(crate) fn named_types() -> Result<Option<Btf>> {
    let named = std::env::var_os("UNBLOAT_BTF").filter(|_| has_types().is_ok());
    named.map(|_| types()).transpose()
}

/// CLOCK_MONOTONIC, as programs in the kernel see it, ns.
pub fn now_ns() -> u64 {
    match nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC) {
        Ok(time) => time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64,
        // The clock always exists; zero lets every lease end in the past, which undoes.
        Err(_) => 0,
    }
}

/// Whether pins can be made below a path, which need not exist yet: on a bpf file system. Checked
/// before anything is recorded or made.
pub fn pinnable(pins: &Path) -> Result<()> {
    match pins.ancestors().find(|path| path.exists()) {
        Some(existing) if on_bpf_fs(existing) => Ok(()),
        _ => Err(CureError::NoPins(pins.to_owned(), how_to_mount("mount -t bpf bpf /sys/fs/bpf"))),
    }
}

/// Whether a path is on a bpf file system.
pub(crate) fn on_bpf_fs(path: &Path) -> bool {
    statfs(path).is_ok_and(|about| about.filesystem_type() == BPF_FS_MAGIC)
}

/// How to mount cgroup v2 where something else may be at its usual place.
const MOUNT_CGROUPS: &str =
    "as root of the host: mkdir /run/cgroup2 && mount -t cgroup2 none /run/cgroup2";

/// Usual mount point of the bpf file system, where maps and programs are pinned.
pub const BPF_FS: &str = "/sys/fs/bpf";

/// PROC_CGROUP_INIT_INO of linux/proc_ns.h: the host's own cgroup namespace.
const FIRST_CGROUP_SPACE: u64 = 0xefff_fffb;

/// The root of the cgroup v2 hierarchy, wherever it is mounted.
pub fn cgroup_root() -> Result<PathBuf> {
    cgroup_root_of("/proc/self/mounts")
}

/// The same by a list of mounts below /proc.
fn cgroup_root_of(mounts: &str) -> Result<PathBuf> {
    let mounts = std::fs::read_to_string(mounts).map_err(CureError::file(mounts))?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (path, kind) = (words.nth(1)?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(path))
        })
        // Another file system may have been mounted over it.
        .find(|path| statfs(path).is_ok_and(|about| about.filesystem_type() == CGROUP2_SUPER_MAGIC))
        .ok_or_else(|| CureError::NoCgroup(how_to_mount(MOUNT_CGROUPS)))
}

/// The network namespace to which sockets are limited: the number of this process's own, or 0 where
/// that is the host's, which means all sockets. A cgroup may contain sockets of many network
/// namespaces.
pub fn network_scope() -> u32 {
    // The kernel registers this setting for the first network namespace only.
    if Path::new("/proc/sys/net/core/netdev_max_backlog").exists() {
        return 0;
    }
    std::fs::metadata("/proc/self/ns/net").map_or(0, |about| about.ino() as u32)
}

/// A cgroup by its directory: its number, and its depth below the root.
pub fn cgroup(path: &Path) -> Result<(u64, u32)> {
    let root = cgroup_root()?;
    let path = path.canonicalize().map_err(CureError::file(path))?;
    let Ok(below) = path.strip_prefix(&root) else {
        let text =
            format!("{} is no cgroup: it does not lie below {}", path.display(), root.display());
        return Err(CureError::Refused(text));
    };
    let number = std::fs::metadata(&path).map_err(CureError::file(&path))?.ino();
    Ok((number, below.components().count() as u32))
}

/// First words of the verifier's lines of statistics (print_verification_stats of
/// kernel/bpf/verifier.c).
const COUNTS: [&str; 3] = ["processed ", "verification time ", "stack depth "];

/// As [`cgroup`], for programs that check at which depth a socket's cgroup is. The kernel counts
/// from its own root, which a cgroup namespace (a container) hides: there only the root can be
/// chosen.
pub fn scope(path: &Path) -> Result<(u64, u32)> {
    let (number, depth) = cgroup(path)?;
    let space =
        std::fs::metadata("/proc/self/ns/cgroup").map_or(FIRST_CGROUP_SPACE, |about| about.ino());
    if depth > 0 && space != FIRST_CGROUP_SPACE {
        let text = format!(
            "{}: a part of the cgroups cannot be chosen from within a container (a cgroup namespace); all of them can",
            path.display()
        );
        return Err(CureError::Refused(text));
    }
    Ok((number, depth))
}

/// Why the kernel refused a program, as an error of the cure: `EPERM` is a lack of rights.
pub fn refused(
    what: &'static str,
    since: &'static str,
    error: &(dyn std::error::Error + 'static),
) -> CureError {
    let why = whole(error);
    if denied(error) {
        return CureError::Rights(why);
    }
    // The verifier's log is long; its last line says what was wrong, except for the statistics
    // after it.
    let informative = |line: &&str| {
        !line.trim().is_empty() && !COUNTS.iter().any(|count| line.starts_with(count))
    };
    let end = why.lines().rev().find(informative).unwrap_or_default().to_owned();
    CureError::Kernel { what, since, why: end }
}

/// Whether an error or one of its sources is `EPERM` of a system call.
fn denied(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let errno = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if errno == Some(Errno::EPERM as i32) {
            return true;
        }
        next = error.source();
    }
    false
}

/// `std::error::Error` with its sources in one line.
pub fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}

/// Loads an object into the kernel. Its maps are found or made below `pins`; without `pins` they
/// are pinned in a temporary directory that is removed.
fn object(
    bytes: &[u8],
    pins: Option<&Path>,
    what: &'static str,
    since: &'static str,
) -> Result<Ebpf> {
    has_types()?;
    let named = named_types()?;
    let mut loader = EbpfLoader::new();
    if named.is_some() {
        loader.btf(named.as_ref());
    }
    let probing;
    match pins {
        Some(pins) => loader.default_map_pin_directory(pins),
        None => {
            probing = Probing::begin()?;
            loader.default_map_pin_directory(&probing.0)
        }
    };
    loader.load(bytes).map_err(|e| refused(what, since, &e))
}

/// A temporary directory for pins.
struct Probing(PathBuf);

impl Probing {
    fn begin() -> Result<Probing> {
        let path = PathBuf::from(format!("{BPF_FS}/unbloat-probe-{}", std::process::id()));
        pinnable(Path::new(BPF_FS))?;
        let _ = std::fs::remove_dir_all(&path);
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Probing(path)),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(CureError::Rights(e.to_string()))
            }
            Err(e) => Err(CureError::file(path)(e)),
        }
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loads a program on sockets.
pub fn load_sock_ops(bytes: &[u8], name: &'static str, pins: Option<&Path>) -> Result<Ebpf> {
    let (what, since) = match name {
        "receive" => ("the program for windows", "5.11"),
        "pacing_sockets" => ("the program for pacing", "5.9"),
        _ => ("the program for congestion control", "5.7"),
    };
    let mut ebpf = object(bytes, pins, what, since)?;
    let program: &mut SockOps = ebpf
        .program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or(CureError::Map("program", format!("{name} is not in its object")))?;
    program.load().map_err(|e| refused(what, since, &e))?;
    Ok(ebpf)
}

/// Loads the walk over sockets.
pub fn load_walk(pins: Option<&Path>) -> Result<Ebpf> {
    let (what, since) = ("the walk over sockets", "5.15");
    let mut ebpf = object(objects::SOCKETS, pins, what, since)?;
    let btf = types()?;
    let program: &mut Iter =
        ebpf.program_mut("walk")
            .and_then(|program| program.try_into().ok())
            .ok_or(CureError::Map("program", "walk is not in its object".to_owned()))?;
    program.load("tcp", &btf).map_err(|e| refused(what, since, &e))?;
    Ok(ebpf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_one_line_that_names_it() {
        let one = refused(
            "the walk",
            "5.15",
            &std::io::Error::other(
                "loading failed\nR1 type=ctx\nunknown func bpf_setsockopt#49\nprocessed 3 insns (limit 1000000) peak_states 0\n\n",
            ),
        );
        assert_eq!(
            one.to_string(),
            "the kernel does not take the walk (needs Linux 5.15): unknown func bpf_setsockopt#49"
        );
        let one =
            refused("the walk", "5.15", &std::io::Error::from_raw_os_error(Errno::EPERM as i32));
        assert!(one.to_string().starts_with("no rights to change sockets and devices"));
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused() {
        assert!(cgroup(Path::new("/tmp")).is_err());
    }
}
