//! Finds cures that are on and do nothing while data flows in their scope.
//!
//! signal: what the kernel says of TCP connections (`sock_diag`) and of the uplink's device, never
//! a cure's own program · model: `judge` compares that with what the cure counts · action: a
//! problem in `status`, a line in the log, a metric.
//!
//! A kernel may take a program and never call it, or refuse what it asks for. A false alarm is
//! worse than a late one. So only connections that the cure must see are evidence: those that began
//! under it, or that were there when a walk found no connection without the program. Loopback,
//! other cgroups, users and destinations never are.
//!
//! Sockets are read only while a cure counts nothing and the host receives packets. Reading takes
//! at most one percent of a processor.

mod judge;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cures::receive::Receive;
use crate::cures::{Attached, Result, Seen};
use crate::kernel::layouts::ReceiveCounters;
use crate::kernel::netlink::Netlink;
use crate::kernel::netlink::diag::{self, Socket};
use crate::kernel::socket_walk::in_each_namespace;
use crate::uplink::controller::Problem;
use crate::uplink::route::{UplinkDevice, out_of};
use judge::{Counted, ENOUGH, Reason, Traffic, judge, text};

/// Fewer packets do not carry as much, even if each is as large as GRO makes them.
const MIN_PACKETS: u64 = 2;
/// Forwarded packets beside which bytes of a device are taken for theirs: more than a resolver or a
/// clock sends.
const MIN_FORWARDED: u64 = 8;
/// Reading sockets takes at most one part in so many of the time.
const SHARE: u32 = 100;
/// The same after the first look at which a cure no longer counts: the next one decides.
const SHARE_AT_FIRST: u32 = 20;
/// Longest time between two looks, on hosts with many namespaces.
const LOOK_AT_LATEST: Duration = Duration::from_secs(10);
/// A decision comes at the end of a round trip: time for some of them, and at least so long.
const ROUNDS: u32 = 8;
const DECIDES_WITHIN: Duration = Duration::from_secs(2);
/// As long a round trip is assumed where the kernel has not measured it.
const UNKNOWN_RTT: Duration = Duration::from_secs(2);

/// Whether a cure has anything to do, and does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Nothing in its scope so far.
    #[default]
    Quiet,
    /// It counts what flows in its scope.
    Counts,
    /// Data flows in its scope, and it does nothing.
    Idle,
}

/// A connection: the inode of its namespace, and its cookie.
type Key = (u64, u64);

/// What a watch knows after a look.
type Verdict = (Work, Option<String>);

/// Compares what the program on sockets counts with what its sockets received.
struct Downloads {
    generation: u64,
    /// Counters when the cure was attached, and at the last look.
    attached: ReceiveCounters,
    last: ReceiveCounters,
    /// Connections that were there when it was attached.
    there: HashSet<Key>,
    /// Counters and bytes at the begin of the present window; none until the next quiet look.
    window: Option<(ReceiveCounters, HashMap<Key, u64>)>,
    /// Whole walks when a connection was seen first in this window.
    walks: HashMap<Key, u64>,
    /// Bytes of a connection at the first look after the next whole walk. A connection that began
    /// after that walk is not in it: another program may have replaced its callback flags.
    joined: HashMap<Key, u64>,
    /// Since when connections carry enough for a decision.
    carries: HashMap<Key, Instant>,
    /// ACKs since the last verdict on clamps, and those at which the clamp was not the cure's.
    clamps: (u64, u64),
    /// Whether another program sets the clamps.
    overwritten: bool,
    reason: Option<(Reason, String)>,
}

impl Downloads {
    fn new(receive: &Receive, sockets: &[(Key, Socket)]) -> Result<Downloads> {
        let counters = receive.counters()?;
        let bytes = received(sockets);
        Ok(Downloads {
            generation: receive.generation(),
            attached: counters,
            last: counters,
            there: sockets.iter().map(|(key, _)| *key).collect(),
            // The cure has just walked over them.
            joined: if receive.whole_walks() > Some(0) { bytes.clone() } else { HashMap::new() },
            window: Some((counters, bytes)),
            walks: HashMap::new(),
            carries: HashMap::new(),
            clamps: (0, 0),
            overwritten: false,
            reason: None,
        })
    }

    /// Whether the sockets have to be read for the next verdict.
    fn reads(&self, counters: &ReceiveCounters) -> bool {
        counters.samples == self.last.samples || counters.decisions == self.attached.decisions
    }

    /// Judges the counters, and the sockets if they were read: before the counters.
    fn look(
        &mut self,
        receive: &Receive,
        counters: ReceiveCounters,
        read: Option<&[(Key, Socket)]>,
        now: Instant,
    ) {
        let counts = counters.samples > self.last.samples;
        self.clamps.0 += counters.samples.saturating_sub(self.last.samples);
        self.clamps.1 += counters.reapplied.saturating_sub(self.last.reapplied);
        if self.clamps.0 >= judge::CLAMPS {
            self.overwritten = judge::overwritten(self.clamps);
            self.clamps = (0, 0);
        }
        self.last = counters;
        if counts {
            self.window = None;
        }
        if let Some(sockets) = read {
            if !counts && self.window.is_none() {
                self.window = Some((counters, received(sockets)));
                self.walks.clear();
                self.joined.clear();
            }
            self.join(sockets, receive.whole_walks().unwrap_or(0));
        }
        let sockets = read.unwrap_or_default();
        let begun = self.window.as_ref();
        let counted = Counted {
            connections: begun.map_or(1, |(begun, _)| counters.sockets - begun.sockets),
            acks: match begun {
                Some((begun, _)) => counters.samples - begun.samples,
                None => counters.samples - self.attached.samples,
            },
            decisions: counters.decisions - self.attached.decisions,
            applied: counters.applied - self.attached.applied,
            refused: counters.refused - self.attached.refused,
            overwritten: self.overwritten,
        };
        // Of connections that are in a map, or of those that are not.
        let sum = |before: &HashMap<Key, u64>, inside: bool| -> u64 {
            sockets
                .iter()
                .filter(|(key, _)| before.contains_key(key) == inside)
                .map(|(key, socket)| {
                    bytes_in(socket).saturating_sub(before.get(key).copied().unwrap_or(0))
                })
                .sum()
        };
        let traffic = Traffic {
            new: begun.map_or(0, |(_, bytes)| sum(bytes, false)),
            joined: sum(&self.joined, true),
            overdue: read.is_some() && self.overdue(receive, sockets, now),
        };
        let reason = judge(&counted, &traffic, receive.whole_walks().is_some());
        // The problem stays until the cure counts, even if the transfer ends.
        let stays = |(reason, _): &(Reason, String)| match reason {
            Reason::Unseen | Reason::NoAcks => !counts,
            Reason::Undecided => counted.decisions == 0,
            Reason::Refused => counted.applied == 0,
            Reason::Overwritten => self.overwritten,
        };
        if !self.reason.as_ref().is_some_and(stays) {
            self.reason = reason.map(|reason| (reason, text(reason, &counted, &traffic)));
        }
    }

    /// Whether connections that no walk has reached in this window would be evidence after one.
    fn suspects(&self, sockets: &[(Key, Socket)]) -> bool {
        self.window.is_some()
            && self.reason.is_none()
            && sockets.iter().any(|(key, _)| !self.joined.contains_key(key))
    }

    /// Notes connections that a walk has reached since they were seen first.
    fn join(&mut self, sockets: &[(Key, Socket)], walks: u64) {
        let there: HashSet<Key> = sockets.iter().map(|(key, _)| *key).collect();
        self.walks.retain(|key, _| there.contains(key));
        self.joined.retain(|key, _| there.contains(key));
        for (key, socket) in sockets {
            if walks > *self.walks.entry(*key).or_insert(walks) {
                self.joined.entry(*key).or_insert(bytes_in(socket));
            }
        }
    }

    /// Whether a connection has carried enough beyond `start` for longer than a decision takes.
    fn overdue(&mut self, receive: &Receive, sockets: &[(Key, Socket)], now: Instant) -> bool {
        let enough = receive.now().start.0 + ENOUGH;
        let walks = receive.whole_walks().is_some();
        let mut overdue = false;
        let mut carries = HashMap::new();
        for (key, socket) in sockets {
            // One that was there before may not call the program at all.
            let ours = match walks {
                true => self.joined.contains_key(key),
                false => !self.there.contains(key),
            };
            if bytes_in(socket) < enough || !ours {
                continue;
            }
            let since = self.carries.get(key).copied().unwrap_or(now);
            carries.insert(*key, since);
            let rtt_us = socket.info.as_ref().map_or(0, |info| info.rcv_rtt_us.max(info.rtt_us));
            let rtt = match rtt_us {
                0 => UNKNOWN_RTT,
                us => Duration::from_micros(us.into()),
            };
            overdue |= now.duration_since(since) > DECIDES_WITHIN.max(rtt * ROUNDS);
        }
        self.carries = carries;
        overdue
    }

    fn verdict(&self) -> Verdict {
        match &self.reason {
            Some((_, text)) => (Work::Idle, Some(text.clone())),
            None if self.last.samples > self.attached.samples => (Work::Counts, None),
            None => (Work::Quiet, None),
        }
    }
}

fn bytes_in(socket: &Socket) -> u64 {
    socket.info.as_ref().and_then(|info| info.bytes_received).unwrap_or(0)
}

fn received(sockets: &[(Key, Socket)]) -> HashMap<Key, u64> {
    sockets.iter().map(|(key, socket)| (*key, bytes_in(socket))).collect()
}

/// Compares what a program on the uplink's device counts with what this host's connections sent
/// through it, with what the kernel forwarded, and with the device's own counters.
struct OnDevice {
    device: i32,
    first: u64,
    last: u64,
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
    fn new(device: i32, counted: u64) -> OnDevice {
        OnDevice { device, first: counted, last: counted, window: None, problem: None }
    }

    /// After the sockets were read: `seen` is newer than they are.
    fn look(&mut self, found: &UplinkDevice, seen: &Seen, sockets: &[(Key, Socket)]) {
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
            "{} does nothing: {what}, but the cure counted no packet; \"tc filter show dev {} \
             egress\" and \"bpftool net\" list what is attached; a tunnel hides connections \
             (scope.device)",
            seen.title, found.name
        ));
    }

    fn verdict(&self) -> Verdict {
        match &self.problem {
            Some(text) => (Work::Idle, Some(text.clone())),
            None if self.last != self.first => (Work::Counts, None),
            None => (Work::Quiet, None),
        }
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

fn bytes_out(socket: &Socket) -> u64 {
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

/// Packets that the kernel has received on all devices of all namespaces (softnet_stat); none where
/// it does not say.
fn packets() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").ok()?;
    let each = text
        .lines()
        .filter_map(|line| u64::from_str_radix(line.split_whitespace().next()?, 16).ok());
    Some(each.fold(0, u64::wrapping_add))
}

/// Whether a connection stays within this host's addresses.
fn local(socket: &Socket) -> bool {
    socket.remote.0.is_loopback() || socket.remote.0 == socket.local.0
}

/// The cgroups at and below a directory, by the id that sockets have.
fn cgroups(at: &Path, found: &mut HashSet<u64>) {
    let Ok(about) = std::fs::metadata(at) else { return };
    found.insert(about.ino());
    for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            cgroups(&entry.path(), found);
        }
    }
}

/// The watch over all cures.
#[derive(Default)]
pub(crate) struct IdleWatch {
    downloads: Option<Downloads>,
    /// By the cure's name.
    on_device: BTreeMap<&'static str, OnDevice>,
    verdicts: BTreeMap<&'static str, Verdict>,
    /// Which cgroups lie in the scope.
    scope: HashMap<u64, bool>,
    packets: Option<u64>,
    next: Option<Instant>,
}

impl IdleWatch {
    /// Begins again for cures with new settings.
    pub(crate) fn restart(&mut self, cures: &Attached) {
        *self = IdleWatch::default();
        let there = [
            ("receive", cures.receive.is_some()),
            ("acks", cures.acks.is_some()),
            ("gate", cures.gate.is_some()),
        ];
        let quiet = |name| (name, (Work::Quiet, None));
        self.verdicts =
            there.into_iter().filter(|(_, there)| *there).map(|(name, _)| quiet(name)).collect();
    }

    /// Called twice a second, after the cures' own work; lines for the log.
    pub(crate) fn tick(
        &mut self,
        cures: &mut Attached,
        device: Option<&UplinkDevice>,
    ) -> Vec<String> {
        let now = Instant::now();
        match self.look(cures, device, now) {
            Ok(()) => {}
            // The cures themselves report what is wrong with their maps.
            Err(_) => return Vec::new(),
        }
        let mut lines = Vec::new();
        let mut verdicts = BTreeMap::new();
        let downloads = self.downloads.iter().map(|watch| ("receive", watch.verdict()));
        let on_device = self.on_device.iter().map(|(name, watch)| (*name, watch.verdict()));
        for (name, verdict) in downloads.chain(on_device) {
            let before = self.verdicts.get(name).and_then(|(_, text)| text.clone());
            match (&before, &verdict.1) {
                (None, Some(text)) => lines.push(text.clone()),
                (Some(_), None) => lines.push(format!("{name}: the cure counts again")),
                _ => {}
            }
            verdicts.insert(name, verdict);
        }
        self.verdicts = verdicts;
        lines
    }

    fn look(
        &mut self,
        cures: &mut Attached,
        device: Option<&UplinkDevice>,
        now: Instant,
    ) -> Result<()> {
        let receive = cures.receive.as_ref();
        if receive.is_none_or(|receive| {
            self.downloads.as_ref().is_some_and(|d| d.generation != receive.generation())
        }) {
            self.downloads = None;
        }
        let on_device = cures.seen()?;
        self.on_device.retain(|name, watch| {
            on_device.iter().any(|seen| seen.name == *name)
                && device.is_some_and(|found| found.device.index == watch.device)
        });
        let before = receive.map(Receive::counters).transpose()?;
        let begins = receive.is_some() != self.downloads.is_some()
            || device.is_some() && on_device.len() != self.on_device.len();
        let reads = begins
            || before.is_some_and(|now| self.downloads.as_ref().is_some_and(|d| d.reads(&now)))
            || on_device.iter().any(|seen| {
                self.on_device.get(seen.name).is_some_and(|watch| watch.last == seen.counted)
            });
        let arrived = packets();
        let moved = match (arrived, self.packets) {
            (Some(now), Some(before)) => now.wrapping_sub(before) >= MIN_PACKETS,
            _ => true,
        };
        // A window begins at the first quiet look, whether packets arrive or not.
        let waits = self.downloads.as_ref().is_some_and(|d| d.window.is_none())
            || self.on_device.values().any(|watch| watch.window.is_none());
        let due = self.next.is_none_or(|next| now >= next);
        if reads && due && (begins || moved || waits) {
            self.packets = arrived;
            let (namespaces, took) = in_each_namespace(|| diag::begun().ok());
            let own = std::fs::metadata("/proc/self/ns/net").map_or(0, |about| about.ino());
            let all: Vec<(Key, Socket)> = namespaces
                .into_iter()
                .flat_map(|(name, sockets)| {
                    sockets.into_iter().map(move |socket| ((name, socket.cookie), socket))
                })
                .filter(|(_, socket)| !local(socket))
                .collect();
            let share = if waits { SHARE_AT_FIRST } else { SHARE };
            self.next = Some(now + took.saturating_mul(share).min(LOOK_AT_LATEST));
            self.look_at(cures, device, &all, own, now)?;
        } else {
            // What counts needs no look.
            if let (Some(watch), Some(counters)) = (&mut self.downloads, before)
                && counters.samples > watch.last.samples
                && let Some(receive) = receive
            {
                watch.look(receive, counters, None, now);
            }
            if let Some(found) = device {
                for seen in on_device {
                    if let Some(watch) = self.on_device.get_mut(seen.name)
                        && watch.last != seen.counted
                    {
                        watch.look(found, &seen, &[]);
                    }
                }
            }
        }
        Ok(())
    }

    /// With the sockets of all namespaces; the counters are read after them.
    fn look_at(
        &mut self,
        cures: &mut Attached,
        device: Option<&UplinkDevice>,
        all: &[(Key, Socket)],
        own: u64,
        now: Instant,
    ) -> Result<()> {
        if let Some(receive) = &mut cures.receive {
            let selected: Vec<(Key, Socket)> =
                all.iter().filter(|one| self.selects(receive, one)).cloned().collect();
            match &mut self.downloads {
                Some(watch) => {
                    watch.look(receive, receive.counters()?, Some(&selected), now);
                    if watch.suspects(&selected) {
                        // Afterwards each of them calls the program, or its ACKs are evidence.
                        receive.walk_now()?;
                        watch.join(&selected, receive.whole_walks().unwrap_or(0));
                    }
                }
                None => self.downloads = Some(Downloads::new(receive, &selected)?),
            }
        }
        let Some(found) = device else { return Ok(()) };
        let ours: Vec<(Key, Socket)> =
            all.iter().filter(|((name, _), _)| *name == own).cloned().collect();
        for seen in cures.seen()? {
            let new = || OnDevice::new(found.device.index, seen.counted);
            self.on_device.entry(seen.name).or_insert_with(new).look(found, &seen, &ours);
        }
        Ok(())
    }

    /// Whether the cure must see a connection.
    fn selects(&mut self, receive: &Receive, ((name, _), socket): &(Key, Socket)) -> bool {
        let settings = receive.now();
        let space = u64::from(settings.space());
        if space != 0 && space != *name
            || settings.user.is_some_and(|user| user != socket.user)
            || !settings.covers(socket.remote.0)
        {
            return false;
        }
        let Some(cgroup) = socket.cgroup else {
            // Before Linux 5.8 only the whole host is known to contain it.
            return settings.cgroup.is_none();
        };
        *self.scope.entry(cgroup).or_insert_with(|| {
            let mut below = HashSet::new();
            if let Ok(path) = settings.cgroup_path() {
                cgroups(&path, &mut below);
            }
            below.contains(&cgroup)
        })
    }

    /// Cures that do nothing.
    pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.verdicts
            .iter()
            .filter_map(|(name, (_, text))| text.clone().map(|text| Problem { of: name, text }))
    }

    /// What each cure has to do.
    pub(crate) fn work(&self) -> BTreeMap<&'static str, Work> {
        self.verdicts.iter().map(|(name, (work, _))| (*name, *work)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_many_packets_came_and_what_a_device_sent() {
        assert!(packets().is_some_and(|packets| packets > 0));
        assert!(traffic("lo").is_some() && traffic("no-such-device").is_none());
    }
}
