//! The watch over what acts on the uplink's device: what a cure counts there, against what this host's
//! connections sent through it, what the kernel forwarded, and the device's own counters.

use std::collections::HashMap;

use netlink::Netlink;
use netlink::diag::Socket;

use super::judge::ENOUGH;
use super::{Key, Verdict, Work};
use crate::cures::Seen;
use crate::uplink::route::{UplinkDevice, out_of};

/// Forwarded packets beside which bytes of a device are taken for theirs: more than a resolver or a
/// clock sends.
const MIN_FORWARDED: u64 = 8;

/// A cure on the uplink's device.
pub(super) struct OnDevice {
    pub(super) device: i32,
    first: u64,
    pub(super) last: u64,
    /// None until the next quiet look.
    window: Option<Window>,
    problem: Option<String>,
}

/// Figures at the begin of a window.
struct Window {
    /// Bytes acknowledged, by socket.
    acknowledged: HashMap<Key, u64>,
    /// Packets of any kind that the program saw.
    packets: u64,
    traffic: DeviceTraffic,
}

/// Bytes of a device, and packets that the kernel has forwarded on all devices of this namespace.
#[derive(Clone, Copy, Debug)]
struct DeviceTraffic {
    received: u64,
    sent: u64,
    forwarded: u64,
}

impl OnDevice {
    pub(super) fn new(device: i32, counted: u64) -> OnDevice {
        OnDevice { device, first: counted, last: counted, window: None, problem: None }
    }

    /// After the sockets were read: `seen` is newer than they are.
    pub(super) fn look(&mut self, found: &UplinkDevice, seen: &Seen, sockets: &[(Key, Socket)]) {
        let counts = std::mem::replace(&mut self.last, seen.counted) != seen.counted;
        if counts {
            (self.window, self.problem) = (None, None);
            return;
        }
        let Some(traffic) = traffic(&found.name) else { return };
        let Some(begun) = &self.window else {
            let acknowledged =
                sockets.iter().map(|(key, socket)| (*key, bytes_out(socket))).collect();
            self.window = Some(Window { acknowledged, packets: seen.packets, traffic });
            return;
        };
        if self.problem.is_some() {
            return;
        }
        let sent = traffic.sent.saturating_sub(begun.traffic.sent);
        let received = traffic.received.saturating_sub(begun.traffic.received);
        let forwarded = traffic.forwarded.saturating_sub(begun.traffic.forwarded);
        // What is forwarded may be no TCP, and the program is called for that, too.
        let bytes = sent.max(if seen.both_ways { received } else { 0 });
        let uncalled = seen.packets == begun.packets;
        let what = if sent >= ENOUGH && own_bytes(sockets, &begun.acknowledged, found) >= ENOUGH {
            format!("{} KB left through {}, of TCP", sent / 1_000, found.name)
        } else if uncalled && bytes >= ENOUGH && forwarded >= MIN_FORWARDED {
            let (kb, name) = (bytes / 1_000, &found.name);
            format!("{kb} KB passed {name} and {forwarded} packets were forwarded")
        } else {
            return;
        };
        self.problem = Some(format!(
            "{} does nothing: {what}, but the cure counted no packet; {}; a tunnel hides connections \
             (scope.device)",
            seen.title,
            next(seen, &found.name)
        ));
    }

    /// Whether its window begins with the next look.
    pub(super) fn waits(&self) -> bool {
        self.window.is_none()
    }

    pub(super) fn verdict(&self) -> Verdict {
        match &self.problem {
            Some(text) => (Work::Idle, Some(text.clone())),
            None if self.last != self.first => (Work::Counts, None),
            None => (Work::Quiet, None),
        }
    }
}

/// What to type next.
fn next(seen: &Seen, device: &str) -> String {
    match seen.program {
        true => format!(
            "\"tc filter show dev {device} egress\" and \"bpftool net\" list what is attached"
        ),
        false => format!(
            "\"tc -s qdisc show dev {device}\" lists the queue disciplines; another program may have \
             replaced HTB"
        ),
    }
}

/// Bytes of this host's connections that were acknowledged since, and whose route is a device.
fn own_bytes(sockets: &[(Key, Socket)], before: &HashMap<Key, u64>, found: &UplinkDevice) -> u64 {
    let Ok(mut netlink) = Netlink::open() else { return 0 };
    let index = found.device.index;
    let through = |(key, socket): &(Key, Socket)| {
        let more = bytes_out(socket).saturating_sub(before.get(key).copied().unwrap_or(0));
        let bound = socket.device != 0 && socket.device != index as u32;
        let ours = more > 0
            && !bound
            && matches!(out_of(&mut netlink, socket.remote.0), Ok(Some(out)) if out == index);
        ours.then_some(more)
    };
    sockets.iter().filter_map(through).sum()
}

pub(super) fn bytes_out(socket: &Socket) -> u64 {
    socket.info.as_ref().and_then(|info| info.bytes_acked).unwrap_or(0)
}

/// What has passed a device of this namespace, and what was forwarded.
fn traffic(device: &str) -> Option<DeviceTraffic> {
    let text = std::fs::read_to_string("/proc/self/net/dev").ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    let figure = |at: usize| line.split_whitespace().nth(at)?.parse().ok();
    Some(DeviceTraffic { received: figure(0)?, sent: figure(8)?, forwarded: forwarded() })
}

/// Packets that the kernel has forwarded in this namespace; GRO's count as one.
fn forwarded() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (read("/proc/self/net/snmp"), read("/proc/self/net/snmp6"));
    // A line of names, and one of figures.
    let mut lines =
        v4.lines().filter_map(|line| line.strip_prefix("Ip:")).map(str::split_whitespace);
    let v4 = lines.next().zip(lines.next()).and_then(|(names, figures)| {
        names.zip(figures).find_map(|(name, figure)| (name == "ForwDatagrams").then_some(figure))
    });
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
    [v4, v6].into_iter().flatten().filter_map(|figure| figure.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_a_device_sent() {
        assert!(traffic("lo").is_some() && traffic("no-such-device").is_none());
    }
}
