//! What this kernel can do, found out by trying and not by its version, since distributions carry
//! features back.
//!
//! A [`Feature`] is a constant beside the code that needs it; the cures' are in their modules.
//! Hooks and disciplines are tried on the loopback device of a network namespace that is made for
//! the trial and gone afterwards, so nothing of this host is touched.

use std::path::Path;

use netlink::{Attributes, Netlink, ROOT, Request, diag, kind, tcmsg};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::{BPF_FS, Probing, cgroup_root, has_types, pinnable, rights};
use crate::error::{CureError, Result};

/// Identifies a feature: stable, in kebab-case in JSON, while its name is text for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is explained by the name of its `Feature`")]
pub enum FeatureId {
    KernelTypes,
    CgroupV2,
    BpfFileSystem,
    DownloadWindows,
    LiveDownloadWindows,
    AckWindows,
    Gate,
    Pacing,
    Htb,
    FqCodel,
    CongestionControl,
    LiveCongestionControl,
    Tcx,
    Clsact,
    SockDiag,
}

/// A feature of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// By what code and other programs ask for it.
    pub id: FeatureId,
    /// What it is for, for people.
    pub name: &'static str,
    /// Oldest kernel of kernel.org that has it.
    pub since: &'static str,
    /// Tries the feature on this kernel; an error says why it is missing.
    pub probe: fn() -> Result<()>,
}

impl Feature {
    /// Tries the feature on this kernel.
    pub fn tried(&'static self) -> Tried {
        Tried { feature: self, missing: (self.probe)().err().map(|e| short(&e)) }
    }
}

/// A feature that was tried.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The feature that was tried.
    pub feature: &'static Feature,
    /// Why it is not available; none if it works.
    pub missing: Option<String>,
}

impl Tried {
    /// One entry of `unbloat-agent features --json`.
    pub fn to_json(&self) -> Value {
        let Feature { id, name, since, .. } = self.feature;
        json!({"id": id, "feature": name, "since": since, "works": self.missing.is_none(), "missing": self.missing})
    }
}

/// What every program on sockets needs.
pub static BASE: [Feature; 3] = [
    Feature {
        id: FeatureId::KernelTypes,
        name: "the kernel's own types (BTF)",
        since: "5.2",
        probe: has_types,
    },
    Feature { id: FeatureId::CgroupV2, name: "cgroup v2", since: "4.5", probe: cgroups },
    Feature {
        id: FeatureId::BpfFileSystem,
        name: "a bpf file system for pins",
        since: "4.4",
        probe: pins,
    },
];

/// What `plan` looks at.
pub static SOCK_DIAG: Feature = Feature {
    id: FeatureId::SockDiag,
    name: "plan: figures of live sockets (sock_diag)",
    since: "3.3",
    probe: || {
        let refused = |e| CureError::Refused(format!("this kernel has no sock_diag for TCP: {e}"));
        diag::established().map(drop).map_err(refused)
    },
};

/// Whether cgroup v2 is mounted.
pub(crate) fn cgroups() -> Result<()> {
    cgroup_root().map(drop)
}

fn pins() -> Result<()> {
    Probing::begin().map(drop)
}

/// What is missing altogether, one line each with what works without it.
pub fn without() -> Vec<String> {
    let found = [rights(), has_types(), cgroups(), pinnable(Path::new(BPF_FS))];
    found.into_iter().filter_map(Result::err).map(|e| e.to_string()).collect()
}

/// What every program on sockets needs, checked before anything is recorded or made.
pub fn able() -> Result<()> {
    rights()?;
    has_types()?;
    cgroups()
}

/// The first part of a reason: the whole of it stands once, below.
fn short(error: &CureError) -> String {
    match error {
        CureError::NoBtf(file) => format!("no {}", file.display()),
        CureError::NoCgroup(_) => "no cgroup v2 is mounted".to_owned(),
        CureError::NoPins(path, _) => format!("{} is no bpf file system", path.display()),
        CureError::Rights(why) => format!("no rights: {why}"),
        other => other.to_string(),
    }
}

/// Tries something in a network namespace of its own: that of a thread, which ends with it.
pub(crate) fn in_own_namespace(tried: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let thread = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            Errno::EPERM => {
                CureError::Rights("a network namespace to try it in needs CAP_SYS_ADMIN".to_owned())
            }
            other => CureError::Refused(format!("no network namespace to try it in: {other}")),
        })?;
        tried()
    };
    let ended = || CureError::Refused("what tried it ended".to_owned());
    std::thread::scope(|scope| scope.spawn(thread).join().map_err(|_| ended())?)
}

/// A kind that the kernel has is refused for its missing options, if at all; one that it has not, and has no module for, is not found.
pub(crate) fn discipline(name: &str) -> Result<()> {
    const TCA_KIND: u16 = 1;
    let asked = (|| {
        let mut netlink = Netlink::open()?;
        let device = netlink.device("lo")?;
        let what = Attributes::default().with(TCA_KIND, &[name.as_bytes(), &[0]].concat());
        netlink.ask(kind::NEW_QDISC, Request::Put, &tcmsg(device.index, 1 << 16, ROOT), &what)
    })();
    match asked {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(()),
        Err(e) if e.raw_os_error() == Some(Errno::EPERM as i32) => {
            Err(CureError::Rights(e.to_string()))
        }
        Err(e) if e.raw_os_error() == Some(Errno::ENOENT as i32) => Err(CureError::Refused(
            format!("this kernel has no queue discipline {name}, nor a module of it"),
        )),
        Err(e) => Err(CureError::Refused(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discipline_that_does_not_exist_is_missing() {
        match in_own_namespace(|| discipline("no_such_thing")) {
            Err(CureError::Refused(why)) => assert!(why.contains("no_such_thing"), "{why}"),
            // where tests do not run as root
            Err(CureError::Rights(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}
