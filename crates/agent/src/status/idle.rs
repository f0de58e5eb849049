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
use crate::cures::{Attached, Result};
use crate::kernel::layouts::ReceiveCounters;
use crate::kernel::netlink::Netlink;
use crate::kernel::netlink::diag::{self, Socket};
use crate::kernel::socket_walk::in_each_namespace;
use crate::uplink::controller::Problem;
use crate::uplink::route::{UplinkDevice, out_of};
use judge::{Counted, ENOUGH, Reason, Traffic, judge, text};

/// Fewer packets do not carry as much, even if each is as large as GRO makes them.
const MIN_PACKETS: u64 = 2;
/// Reading sockets takes at most one part in so many of the time.
const SHARE: u32 = 100;
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
        };
        if !self.reason.as_ref().is_some_and(stays) {
            self.reason = reason.map(|reason| (reason, text(reason, &counted, &traffic)));
        }
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
/// through it, and with the device's own counter.
struct Uploads {
    device: i32,
    first: u64,
    last: u64,
    /// Bytes acknowledged by socket, and bytes that left the device, at the begin of the present
    /// window; none until the next quiet look.
    window: Option<(HashMap<Key, u64>, u64)>,
    problem: Option<String>,
}

impl Uploads {
    fn new(device: i32, seen: u64) -> Uploads {
        Uploads { device, first: seen, last: seen, window: None, problem: None }
    }

    /// After the sockets were read: `seen` is newer than they are.
    fn look(&mut self, title: &str, found: &UplinkDevice, seen: u64, sockets: &[(Key, Socket)]) {
        let counts = std::mem::replace(&mut self.last, seen) != seen;
        if counts {
            (self.window, self.problem) = (None, None);
            return;
        }
        let Some(left) = sent_bytes(&found.name) else { return };
        let Some((before, left_before)) = &self.window else {
            let bytes = sockets.iter().map(|(key, socket)| (*key, bytes_out(socket))).collect();
            self.window = Some((bytes, left));
            return;
        };
        if self.problem.is_some() || left.saturating_sub(*left_before) < ENOUGH {
            return;
        }
        let Ok(mut netlink) = Netlink::open() else { return };
        let bytes: u64 = sockets
            .iter()
            .filter_map(|(key, socket)| {
                let old = before.get(key).copied().unwrap_or(0);
                let more = bytes_out(socket).saturating_sub(old);
                let bound = socket.device != 0 && socket.device != found.device.index as u32;
                let through = more > 0
                    && !bound
                    && matches!(out_of(&mut netlink, socket.remote.0), Ok(Some(index)) if index == found.device.index);
                through.then_some(more)
            })
            .sum();
        if bytes >= ENOUGH {
            self.problem = Some(format!(
                "{title} does nothing: {} KB of TCP left through {}, but the cure counted no \
                 packet; \"tc filter show dev {} egress\" and \"bpftool net\" list what is \
                 attached; a tunnel hides connections (scope.device)",
                bytes / 1_000,
                found.name,
                found.name
            ));
        }
    }

    fn verdict(&self) -> Verdict {
        match &self.problem {
            Some(text) => (Work::Idle, Some(text.clone())),
            None if self.last != self.first => (Work::Counts, None),
            None => (Work::Quiet, None),
        }
    }
}

fn bytes_out(socket: &Socket) -> u64 {
    socket.info.as_ref().and_then(|info| info.bytes_acked).unwrap_or(0)
}

/// Bytes that a device of this namespace has sent.
fn sent_bytes(device: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/net/dev").ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_whitespace().nth(8)?.parse().ok()
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
    uploads: BTreeMap<&'static str, Uploads>,
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
    pub(crate) fn tick(&mut self, cures: &Attached, device: Option<&UplinkDevice>) -> Vec<String> {
        let now = Instant::now();
        match self.look(cures, device, now) {
            Ok(()) => {}
            // The cures themselves report what is wrong with their maps.
            Err(_) => return Vec::new(),
        }
        let mut lines = Vec::new();
        let mut verdicts = BTreeMap::new();
        let downloads = self.downloads.iter().map(|watch| ("receive", watch.verdict()));
        let uploads = self.uploads.iter().map(|(name, watch)| (*name, watch.verdict()));
        for (name, verdict) in downloads.chain(uploads) {
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
        cures: &Attached,
        device: Option<&UplinkDevice>,
        now: Instant,
    ) -> Result<()> {
        let seen = |cures: &Attached| -> Result<Vec<(&'static str, &'static str, u64)>> {
            let mut seen = Vec::new();
            if let Some(acks) = &cures.acks {
                seen.push(("acks", "ACK-window rewriting", acks.counters()?.segments));
            }
            if let Some(gate) = &cures.gate {
                seen.push(("gate", "the gate", gate.packets()?));
            }
            Ok(seen)
        };
        let receive = cures.receive.as_ref();
        if receive.is_none_or(|receive| {
            self.downloads.as_ref().is_some_and(|d| d.generation != receive.generation())
        }) {
            self.downloads = None;
        }
        let uploads = seen(cures)?;
        self.uploads.retain(|name, watch| {
            uploads.iter().any(|(there, ..)| there == name)
                && device.is_some_and(|found| found.device.index == watch.device)
        });
        let before = receive.map(Receive::counters).transpose()?;
        let begins = receive.is_some() != self.downloads.is_some()
            || device.is_some() && uploads.len() != self.uploads.len();
        let reads = begins
            || before.is_some_and(|now| self.downloads.as_ref().is_some_and(|d| d.reads(&now)))
            || uploads.iter().any(|(name, _, seen)| {
                self.uploads.get(name).is_some_and(|watch| watch.last == *seen)
            });
        let arrived = packets();
        let moved = match (arrived, self.packets) {
            (Some(now), Some(before)) => now.wrapping_sub(before) >= MIN_PACKETS,
            _ => true,
        };
        // A window begins at the first quiet look, whether packets arrive or not.
        let waits = self.downloads.as_ref().is_some_and(|d| d.window.is_none())
            || self.uploads.values().any(|watch| watch.window.is_none());
        let due = self.next.is_none_or(|next| now >= next);
        if reads && due && (begins || moved || waits) {
            self.packets = arrived;
            let (namespaces, took) = in_each_namespace(|| diag::begun().ok());
            self.next = Some(now + took.saturating_mul(SHARE).min(LOOK_AT_LATEST));
            let own = std::fs::metadata("/proc/self/ns/net").map_or(0, |about| about.ino());
            let all: Vec<(Key, Socket)> = namespaces
                .into_iter()
                .flat_map(|(name, sockets)| {
                    sockets.into_iter().map(move |socket| ((name, socket.cookie), socket))
                })
                .filter(|(_, socket)| !local(socket))
                .collect();
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
                for (name, title, seen) in uploads {
                    if let Some(watch) = self.uploads.get_mut(name)
                        && watch.last != seen
                    {
                        watch.look(title, found, seen, &[]);
                    }
                }
            }
        }
        Ok(())
    }

    /// With the sockets of all namespaces; the counters are read after them.
    fn look_at(
        &mut self,
        cures: &Attached,
        device: Option<&UplinkDevice>,
        all: &[(Key, Socket)],
        own: u64,
        now: Instant,
    ) -> Result<()> {
        if let Some(receive) = &cures.receive {
            let selected: Vec<(Key, Socket)> =
                all.iter().filter(|one| self.selects(receive, one)).cloned().collect();
            match &mut self.downloads {
                Some(watch) => watch.look(receive, receive.counters()?, Some(&selected), now),
                None => self.downloads = Some(Downloads::new(receive, &selected)?),
            }
        }
        let Some(found) = device else { return Ok(()) };
        let ours: Vec<(Key, Socket)> =
            all.iter().filter(|((name, _), _)| *name == own).cloned().collect();
        let acks = cures.acks.as_ref().map(|acks| acks.counters()).transpose()?;
        let gate = cures.gate.as_ref().map(|gate| gate.packets()).transpose()?;
        let counted = [
            ("acks", "ACK-window rewriting", acks.map(|counters| counters.segments)),
            ("gate", "the gate", gate),
        ];
        for (name, title, seen) in counted {
            let Some(seen) = seen else { continue };
            let new = || Uploads::new(found.device.index, seen);
            self.uploads.entry(name).or_insert_with(new).look(title, found, seen, &ours);
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
        assert!(sent_bytes("lo").is_some() && sent_bytes("no-such-device").is_none());
    }
}
