//! What the kernel must support for DRWA on this host's sockets, and how that is found out.

use aya::include_bytes_aligned;

use crate::cures::{CureError, Result};
use crate::kernel::{self, Feature, FeatureId};

/// The compiled program.
pub(super) static PROGRAM: &[u8] = include_bytes_aligned!("../../../bpf/receive.bpf.o");

/// The program on new connections.
pub(super) static NEW_CONNECTIONS: Feature = Feature {
    id: FeatureId::DownloadWindows,
    name: "downloads: windows of this host's new connections (DRWA)",
    since: "5.11",
    probe: || {
        kernel::cgroups()?;
        windows_from_programs()?;
        kernel::load_sock_ops(PROGRAM, "receive", None).map(drop)
    },
};

/// A walk that may set flags of connections.
pub(super) static LIVE_CONNECTIONS: Feature = Feature {
    id: FeatureId::LiveDownloadWindows,
    name: "downloads: the same for connections that exist already",
    since: "6.12",
    probe: || {
        kernel::cgroups()?;
        kernel::load_walk(None)?;
        flags_in_a_walk()
    },
};

/// Whether programs on sockets may set TCP_WINDOW_CLAMP. The kernel takes a program that tries, and
/// then refuses at each ACK, so it cannot be tried without a connection. The kernel's function came
/// with it.
pub(super) fn windows_from_programs() -> Result<()> {
    named_in_types(
        "tcp_set_window_clamp",
        "windows from a program on sockets",
        "5.11",
        "bpf_setsockopt knows no TCP_WINDOW_CLAMP",
    )
}

/// TCP_BPF_SOCK_OPS_CB_FLAGS cannot be tried without a socket to change, either; its constant came
/// with it.
fn flags_in_a_walk() -> Result<()> {
    named_in_types(
        "TCP_BPF_SOCK_OPS_CB_FLAGS",
        "flags of connections that exist already",
        "6.12",
        "it has no TCP_BPF_SOCK_OPS_CB_FLAGS; new connections are treated all the same",
    )
}

/// Whether the kernel's own types contain a name; the rest is the error if they do not.
fn named_in_types(
    name: &str,
    what: &'static str,
    since: &'static str,
    missing: &str,
) -> Result<()> {
    kernel::has_types()?;
    let file = kernel::types_file();
    let types = std::fs::read(&file).map_err(CureError::file(&file))?;
    let whole = [b"\0", name.as_bytes(), b"\0"].concat();
    match types.windows(whole.len()).any(|bytes| bytes == whole) {
        true => Ok(()),
        false => Err(CureError::Kernel { what, since, why: missing.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_kernel_does_not_know_is_missing() {
        let asked = |name| named_in_types(name, "a test", "9.9", "it is missing");
        // Without types of the kernel there is nothing to look a name up in.
        if kernel::has_types().is_ok() {
            assert!(asked("tcp_sock").is_ok());
            assert!(matches!(asked("tcp_soc"), Err(CureError::Kernel { since: "9.9", .. })));
        }
    }
}
