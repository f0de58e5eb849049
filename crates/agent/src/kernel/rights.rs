//! The capabilities of this process, whichever user it runs as.
//!
//! Loading programs on sockets and devices needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, or before
//! Linux 5.8 CAP_SYS_ADMIN in place of the first two. Sockets of other network namespaces need
//! more. What is missing is named in one line.

use std::os::unix::fs::MetadataExt;

use super::bpf;
use crate::error::{CureError, Result};

/// Capability numbers of linux/capability.h.
const NET_ADMIN: u8 = 12;
const SYS_PTRACE: u8 = 19;
const SYS_ADMIN: u8 = 21;
const PERFMON: u8 = 38;
const BPF: u8 = 39;

/// Whether this process can change sockets and devices.
pub fn rights() -> Result<()> {
    if !first_users() {
        return Err(CureError::Rights(format!(
            "this is a user namespace, whose root has no rights of the host; {FROM_THE_HOST}"
        )));
    }
    let missing = lacking(capabilities());
    if !missing.is_empty() {
        let text = format!("this process lacks {}", missing.join(", "));
        return Err(CureError::Rights(otherwise(text)));
    }
    // A filter counts more than a capability.
    match bpf::permitted() {
        Ok(()) => Ok(()),
        Err(errno) => {
            let text = format!(
                "the system call bpf is refused in spite of its capabilities ({errno:?}), as a filter of a container or of a service does"
            );
            Err(CureError::Rights(otherwise(text)))
        }
    }
}

/// What works where a container's own rights do not suffice.
const FROM_THE_HOST: &str = "as the host's root: nsenter --target PID --net unbloat-agent on, with the PID of a process in here";

/// With the way from the host, where this is a container.
fn otherwise(text: String) -> String {
    if in_container() { format!("{text}; {FROM_THE_HOST}") } else { text }
}

/// How to get a mount that the agent may not make: as the host's root it is `command`.
pub(crate) fn how_to_mount(command: &'static str) -> &'static str {
    if in_container() { FROM_THE_HOST } else { command }
}

/// Whether this process is in another PID namespace than the host's: containers have one.
fn in_container() -> bool {
    /// PROC_PID_INIT_INO of linux/proc_ns.h.
    const FIRST_PID_SPACE: u64 = 0xefff_fffc;
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|about| about.ino() != FIRST_PID_SPACE)
}

/// What is missing for entering other network namespaces, if anything.
pub fn everywhere() -> Option<String> {
    let capabilities = capabilities();
    let missing: Vec<&str> = [("CAP_SYS_ADMIN", SYS_ADMIN), ("CAP_SYS_PTRACE", SYS_PTRACE)]
        .into_iter()
        .filter(|(_, number)| capabilities & 1 << number == 0)
        .map(|(name, _)| name)
        .collect();
    (!missing.is_empty()).then(|| missing.join(" and "))
}

/// Whether this process is in the host's own user namespace, whose root may use BPF.
fn first_users() -> bool {
    /// PROC_USER_INIT_INO of linux/proc_ns.h.
    const FIRST_USER_SPACE: u64 = 0xefff_fffd;
    std::fs::metadata("/proc/self/ns/user").map_or(true, |about| about.ino() == FIRST_USER_SPACE)
}

fn lacking(capabilities: u64) -> Vec<&'static str> {
    let has = |number: u8| capabilities & 1 << number != 0;
    [
        ("CAP_BPF", has(BPF) || has(SYS_ADMIN)),
        ("CAP_PERFMON", has(PERFMON) || has(SYS_ADMIN)),
        ("CAP_NET_ADMIN", has(NET_ADMIN)),
    ]
    .into_iter()
    .filter(|(_, has)| !has)
    .map(|(name, _)| name)
    .collect()
}

/// Effective capabilities. If /proc has none, all: the kernel will refuse what is not allowed.
fn capabilities() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named_and_an_older_kernels_right_counts_for_two() {
        assert_eq!(lacking(0), ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"]);
        assert_eq!(lacking(1 << BPF | 1 << NET_ADMIN), ["CAP_PERFMON"]);
        assert!(lacking(1 << BPF | 1 << PERFMON | 1 << NET_ADMIN).is_empty());
        assert!(lacking(1 << SYS_ADMIN | 1 << NET_ADMIN).is_empty());
    }
}
