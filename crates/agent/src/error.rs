//! Why a cure is not available here, and what works without it.

use std::path::PathBuf;

/// Why a cure, or a part of it, is not available on this host.
#[derive(Debug, thiserror::Error)]
pub enum CureError {
    /// Not root, or a container that may not use BPF.
    #[error(
        "no rights to change sockets and devices (needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; a container may have to be given \
         them): {0}; what works without: plan, features, defaults"
    )]
    Rights(String),
    /// A kernel without its own types.
    #[error(
        "this kernel has no {0} (CONFIG_DEBUG_INFO_BTF; UNBLOAT_BTF names another file), so programs cannot find the fields of its sockets; \
         what works without: the uplink's cures, windows of forwarded downloads, and plan"
    )]
    NoBtf(PathBuf),
    /// No cgroup v2 is mounted; how to mount it.
    #[error(
        "no cgroup v2 is mounted, and this process may not mount it ({0}); programs on sockets are attached to one; \
         what works without: the uplink's cures, windows of forwarded downloads, and plan"
    )]
    NoCgroup(&'static str),
    /// The pins are not on a bpf file system; how to mount one.
    #[error(
        "{0} is not on a bpf file system ({1}), and programs on sockets are pinned to one; \
         what works without: the uplink's cures, windows of forwarded downloads, and plan"
    )]
    NoPins(PathBuf, &'static str),
    /// The kernel refused a program or an operation.
    #[error("the kernel does not take {what} (needs Linux {since}): {why}")]
    Kernel {
        /// The program or operation.
        what: &'static str,
        /// First kernel version that takes it.
        since: &'static str,
        /// The error of the kernel or its verifier.
        why: String,
    },
    /// An operation on a file failed.
    #[error("{path}: {why}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        why: std::io::Error,
    },
    /// An operation on a BPF map or link failed: its name, the error.
    #[error("map {0}: {1}")]
    Map(&'static str, String),
    /// A change of this host could not be undone.
    #[error("{what}: {why}")]
    Undo {
        /// The change, as the journal describes it.
        what: String,
        /// The error of the system.
        why: std::io::Error,
    },
    /// The request cannot be met; the text says why.
    #[error("{0}")]
    Refused(String),
}

/// Result of an operation of a cure.
pub type Result<T> = std::result::Result<T, CureError>;

impl CureError {
    /// For `map_err` on an operation on the file at `path`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> CureError {
        let path = path.into();
        move |why| CureError::File { path, why }
    }
}
