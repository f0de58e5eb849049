//! Filters and queue disciplines on a device: how each is taken away again (rtnetlink(7),
//! linux/pkt_sched.h).
//!
//! Removing what is gone already is no error: a device that was unplugged, a discipline that the
//! administrator removed.

use std::io;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use netlink::{Attributes, Netlink, ROOT, Request, TCMSG, attribute, kind, tcmsg, word};

/// `TC_H_CLSACT`, and the hooks below it.
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
/// `RTM_DELTFILTER` and `RTM_GETTFILTER`.
const DEL_FILTER: u16 = 45;
const GET_FILTER: u16 = 46;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// Of `TCA_OPTIONS` of a BPF filter.
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;
const ETH_P_ALL: u16 = 3;

/// Direction of the packets that a filter sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Packets that arrive.
    Ingress,
    /// Packets that leave.
    Egress,
}

impl Direction {
    /// As `tc` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    const fn parent(self) -> u32 {
        match self {
            Direction::Ingress => INGRESS,
            Direction::Egress => EGRESS,
        }
    }
}

/// Handle of this program's filters, so that it finds them again.
pub const HANDLE: u32 = 1;

/// Names of the programs on devices, which are those of their filters (`HOOK` of the cures).
const PROGRAMS: [&str; 3] = ["egress", "acks_out", "acks_in"];

/// Removes this program's BPF filter of a preference from the clsact discipline of a device. A filter
/// of another name in its place is another program's, and stays.
pub fn remove_filter(device: &str, direction: Direction, preference: u16) -> io::Result<()> {
    let ours = |one: &Filter| {
        (one.direction, one.preference, one.handle) == (direction, preference, HANDLE)
            && PROGRAMS.contains(&one.name.as_str())
    };
    if !filters(device)?.iter().any(ours) {
        return Ok(());
    }
    unless_gone(|netlink| {
        let index = netlink.device(device)?.index;
        let mut message = tcmsg(index, HANDLE, direction.parent());
        // tcm_info: the preference above, the protocol in network order below.
        let info = u32::from(preference) << 16 | u32::from(ETH_P_ALL.to_be());
        message[16..20].copy_from_slice(&info.to_ne_bytes());
        let bpf = Attributes::default().with(TCA_KIND, b"bpf\0");
        netlink.ask(DEL_FILTER, Request::Remove, &message, &bpf).map(drop)
    })
}

/// A BPF filter on a clsact discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The packets that it sees.
    pub direction: Direction,
    /// Its preference.
    pub preference: u16,
    /// Its handle.
    pub handle: u32,
    /// Its name, as it was attached: that of its program.
    pub name: String,
    /// The kernel's number of its program.
    pub program: u32,
}

/// The BPF filters on the clsact discipline of a device; none where it has no such discipline.
pub fn filters(device: &str) -> io::Result<Vec<Filter>> {
    let mut found = Vec::new();
    unless_gone(|netlink| {
        let index = netlink.device(device)?.index;
        for direction in [Direction::Ingress, Direction::Egress] {
            let message = tcmsg(index, 0, direction.parent());
            let answers =
                netlink.ask(GET_FILTER, Request::Dump, &message, &Attributes::default())?;
            found.extend(answers.iter().filter_map(|body| filter(body, direction)));
        }
        Ok(())
    })?;
    Ok(found)
}

/// `struct tcmsg` with the attributes of a BPF filter; none of another kind.
fn filter(body: &[u8], direction: Direction) -> Option<Filter> {
    let attributes = body.get(TCMSG..)?;
    let options = attribute(attributes, TCA_OPTIONS)?;
    if attribute(attributes, TCA_KIND)? != b"bpf\0" {
        return None;
    }
    let name = attribute(options, TCA_BPF_NAME)?;
    Some(Filter {
        direction,
        preference: (word(body, 16)? >> 16) as u16,
        handle: word(body, 8)?,
        name: String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(),
        program: word(attribute(options, TCA_BPF_ID)?, 0)?,
    })
}

/// Removes the root discipline of a device, if it has this handle.
pub fn remove_root(device: &str, handle: u32) -> io::Result<()> {
    unless_gone(|netlink| {
        let index = netlink.device(device)?.index;
        let message = tcmsg(index, handle, ROOT);
        netlink.ask(kind::DEL_QDISC, Request::Remove, &message, &Attributes::default()).map(drop)
    })
}

/// Removes the clsact discipline of a device, unless a filter is left on it: whether it is gone.
pub fn remove_clsact(device: &str) -> io::Result<bool> {
    let mut used = false;
    unless_gone(|netlink| {
        let index = netlink.device(device)?.index;
        for direction in [Direction::Ingress, Direction::Egress] {
            let message = tcmsg(index, 0, direction.parent());
            let filters = netlink.ask(GET_FILTER, Request::Dump, &message, &Attributes::default());
            used |= filters.is_ok_and(|filters| !filters.is_empty());
        }
        if used {
            return Ok(());
        }
        let message = tcmsg(index, CLSACT & 0xffff_0000, CLSACT);
        netlink.ask(kind::DEL_QDISC, Request::Remove, &message, &Attributes::default()).map(drop)
    })?;
    Ok(!used)
}

/// Does something to a device. That there is nothing to do it to is no error: no device
/// (`ENODEV`), no such filter or discipline (`ENOENT`), another discipline or none in its place
/// (`EINVAL`; net/sched/sch_api.c, net/sched/cls_api.c).
fn unless_gone(act: impl FnOnce(&mut Netlink) -> io::Result<()>) -> io::Result<()> {
    let outcome = Netlink::open().and_then(|mut netlink| act(&mut netlink));
    match outcome {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => match e.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENODEV | Errno::ENOENT | Errno::EINVAL) => Ok(()),
            _ => Err(e),
        },
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_needs_no_removal() {
        let removed = [
            remove_filter("no-such-device", Direction::Egress, 47),
            remove_root("no-such-device", 0xb10a_0000),
            remove_clsact("no-such-device").map(drop),
        ];
        assert!(removed.iter().all(Result::is_ok), "{removed:?}");
    }
}
