//! Every feature that a cure needs, by trying it.
//!
//! signal: whether the kernel takes each program; whether it takes each hook and discipline on the loopback device of a network namespace
//! made for that and gone afterwards, so that nothing of this host is touched · model: which cure needs which · action: one line per
//! feature with the oldest kernel that has it, and one line for each thing whose lack takes several of them.

use std::path::Path;

use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{SchedClassifier, TcAttachType, tc};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::{BPF_FS, BTF, Probing, cgroup_root, load_sock_ops, load_walk, rights, whole};
use crate::cures::acks;
use crate::cures::gate;
use crate::cures::{CureError, Result};
use crate::kernel::netlink::Attributes;
use crate::kernel::netlink::Netlink;
use crate::kernel::netlink::Request;
use crate::kernel::netlink::diag;
use crate::kernel::netlink::kind;
use crate::kernel::netlink::tcmsg;
use crate::kernel::objects;
use crate::kernel::socket_walk::pinnable;

/// A feature, and whether it is to be had.
#[derive(Clone, Debug)]
pub struct Feature {
    /// What it is for.
    pub name: &'static str,
    /// Oldest kernel of kernel.org that has it.
    pub since: &'static str,
    /// Why not.
    pub missing: Option<String>,
}

impl Feature {
    /// For `--json`.
    pub fn to_json(&self) -> Value {
        json!({"feature": self.name, "since": self.since, "works": self.missing.is_none(), "missing": self.missing})
    }
}

/// What is missing altogether, one line each with what works all the same.
pub fn without() -> Vec<String> {
    let found = [rights(), types(), cgroup_root().map(drop), pinnable(Path::new(BPF_FS))];
    found.into_iter().filter_map(Result::err).map(|e| e.to_string()).collect()
}

/// What every program on sockets needs, asked before anything is noted or made.
pub fn able() -> Result<()> {
    rights()?;
    types()?;
    cgroup_root().map(drop)
}

/// Every feature of this kernel.
pub fn features() -> Vec<Feature> {
    let mut found = Vec::new();
    let mut add = |name, since, tried: Result<()>| {
        found.push(Feature { name, since, missing: tried.err().map(|e| short(&e)) });
    };
    let scope = || cgroup_root().map(drop);
    add("the kernel's own types (BTF)", "5.2", types());
    add("cgroup v2", "4.5", scope());
    add("a bpf file system for pins", "4.4", Probing::begin().map(drop));
    let receive = || load_sock_ops(objects::RECEIVE, "receive", None).map(drop);
    add(
        "downloads: windows of this host's new connections (DRWA)",
        "5.11",
        scope().and_then(|()| receive()),
    );
    let join = || load_walk(None).map(drop).and_then(|()| flags_in_a_walk());
    add(
        "downloads: the same for connections that exist already",
        "6.12",
        scope().and_then(|()| join()),
    );
    add(
        "uploads: windows of passing ACKs, also of hosts behind this one",
        "5.12",
        acks::load(16, 1).map(drop),
    );
    add("uploads: the gate, where a modem or driver reports", "5.6", gate::load().map(drop));
    let congestion = || load_sock_ops(objects::CONGESTION, "congestion", None).map(drop);
    add("congestion control of new connections", "5.7", scope().and_then(|()| congestion()));
    add("congestion control of connections that exist already", "5.15", load_walk(None).map(drop));
    add("programs on a device that go with their process (TCX)", "6.6", apart(tcx));
    add("programs on a device for older kernels (clsact)", "4.5", apart(clsact));
    add("the shaper (HTB)", "3.8", apart(|| discipline("htb")));
    add("fair queues below the shaper (FQ-CoDel)", "3.5", apart(|| discipline("fq_codel")));
    let refused = |e| CureError::Refused(format!("this kernel has no sock_diag for TCP: {e}"));
    add(
        "plan: figures of live sockets (sock_diag)",
        "3.3",
        diag::established().map(drop).map_err(refused),
    );
    found
}

/// The first part of a reason: the whole of it stands once, below.
fn short(error: &CureError) -> String {
    match error {
        CureError::NoBtf => "no /sys/kernel/btf/vmlinux".to_owned(),
        CureError::NoCgroup => "no cgroup v2 is mounted".to_owned(),
        CureError::NoPins(path) => format!("{} is no bpf file system", path.display()),
        CureError::Rights(why) => format!("no rights: {why}"),
        other => other.to_string(),
    }
}

/// Whether programs find the fields of the kernel's structs.
pub fn types() -> Result<()> {
    match Path::new(BTF).exists() {
        true => Ok(()),
        false => Err(CureError::NoBtf),
    }
}

/// TCP_BPF_SOCK_OPS_CB_FLAGS cannot be tried without a socket to change; its constant is in the kernel's types since it exists.
fn flags_in_a_walk() -> Result<()> {
    const NAME: &[u8] = b"TCP_BPF_SOCK_OPS_CB_FLAGS\0";
    let types = std::fs::read(BTF).map_err(CureError::file(BTF))?;
    match types.windows(NAME.len()).any(|w| w == NAME) {
        true => Ok(()),
        false => Err(CureError::Kernel {
            what: "flags of connections that exist already",
            since: "6.12",
            why: "it has no TCP_BPF_SOCK_OPS_CB_FLAGS; new connections are treated all the same"
                .to_owned(),
        }),
    }
}

/// Tries something in a network namespace of its own: that of a thread, which ends with it.
fn apart(tried: impl FnOnce() -> Result<()> + Send) -> Result<()> {
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

fn tcx() -> Result<()> {
    let mut ebpf = gate::load()?;
    let missing = || CureError::Map("egress", "missing in the object".to_owned());
    let program = ebpf.program_mut("egress").ok_or_else(missing)?;
    let program: &mut SchedClassifier = program.try_into().map_err(|_| missing())?;
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let attached = program.attach_with_options("lo", TcAttachType::Egress, options).map(drop);
    attached.map_err(|e| super::refused("a program on a device", "6.6", whole(&e)))
}

fn clsact() -> Result<()> {
    tc::qdisc_add_clsact("lo").map_err(|e| super::refused("clsact", "4.5", whole(&e)))
}

/// A kind that the kernel has is refused for its missing options, if at all; one that it has not, and has no module for, is not found.
fn discipline(name: &str) -> Result<()> {
    const TCA_KIND: u16 = 1;
    const TC_H_ROOT: u32 = u32::MAX;
    let asked = (|| {
        let mut netlink = Netlink::open()?;
        let device = netlink.device("lo")?;
        let what = Attributes::default().with(TCA_KIND, &[name.as_bytes(), &[0]].concat());
        netlink.ask(kind::NEW_QDISC, Request::Put, &tcmsg(device.index, 1 << 16, TC_H_ROOT), &what)
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
    fn a_discipline_that_nobody_has_is_missing() {
        match apart(|| discipline("no_such_thing")) {
            Err(CureError::Refused(why)) => assert!(why.contains("no_such_thing"), "{why}"),
            // where tests do not run as root
            Err(CureError::Rights(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}
