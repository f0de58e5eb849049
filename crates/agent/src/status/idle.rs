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
//! at most one percent of a processor. Some of that is saved, for looks on suspicion: they follow
//! each other sooner than the loop's turns, and on a busy host each takes several times as long.

mod congestion;
mod device;
mod downloads;
mod judge;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use netlink::diag::{self, Socket};
use serde::Serialize;

use crate::cures::receive::Receive;
use crate::cures::{Attached, Result};
use crate::kernel::budget::Budget;
use crate::kernel::socket_walk::in_each_namespace;
use crate::kernel::{cgroup_root, network_scope};
use crate::uplink::controller::Problem;
use crate::uplink::route::UplinkDevice;
use congestion::Choice;
use device::OnDevice;
use downloads::Downloads;

/// Fewer packets do not carry as much, even if each is as large as GRO makes them.
const MIN_PACKETS: u64 = 2;
/// Reading sockets takes at most one part in so many of the time.
const SHARE: u32 = 100;
/// What is saved of that: two looks on a busy host.
const SAVINGS: Duration = Duration::from_millis(100);
/// What looks without any suspicion leave of it.
const RESERVE: Duration = Duration::from_millis(50);
/// Time between two looks on suspicion: a problem is seen two to four looks after it begins.
const SOON: Duration = Duration::from_millis(200);
/// Longest time between two looks, on hosts with many namespaces.
const LOOK_AT_LATEST: Duration = Duration::from_secs(10);

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

/// The congestion control that new connections of this namespace begin with.
fn default_congestion() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok()?;
    Some(text.trim().to_owned())
}

/// What one look has read of all namespaces.
struct Read {
    all: Vec<(Key, Socket)>,
    /// The default congestion control of each.
    defaults: HashMap<u64, String>,
    /// The agent's own.
    own: u64,
}

/// The watch over all cures.
#[derive(Default)]
pub(crate) struct IdleWatch {
    downloads: Option<Downloads>,
    /// By the cure's name.
    on_device: BTreeMap<&'static str, OnDevice>,
    verdicts: BTreeMap<&'static str, Verdict>,
    choice: Option<Choice>,
    /// Which cgroups lie in the scope, which all cures on sockets have in common.
    scope: HashMap<u64, bool>,
    packets: Option<u64>,
    budget: Option<Budget>,
    /// When the last turn was, and whether the next one should come soon.
    turned: Option<Instant>,
    suspicion: bool,
}

impl IdleWatch {
    /// Begins again for cures with new settings.
    pub(crate) fn restart(&mut self, cures: &Attached) {
        *self = IdleWatch { budget: self.budget.take(), ..IdleWatch::default() };
        let there = cures.names();
        self.verdicts = there.into_iter().map(|name| (name, (Work::Quiet, None))).collect();
    }

    /// The time until the next turn, if that comes sooner than the loop's own.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let turned = self.turned.filter(|_| self.suspicion)?;
        Some(SOON.saturating_sub(turned.elapsed()))
    }

    /// Called twice a second, after the cures' own work, and when [`IdleWatch::wait`] is over; lines
    /// for the log.
    pub(crate) fn tick(
        &mut self,
        cures: &mut Attached,
        device: Option<&UplinkDevice>,
    ) -> Vec<String> {
        let now = Instant::now();
        self.turned = Some(now);
        match self.look(cures, device, now) {
            Ok(()) => {}
            // The cures themselves report what is wrong with their maps.
            Err(_) => return Vec::new(),
        }
        let mut lines = Vec::new();
        let quiet = cures.names().into_iter().map(|name| (name, (Work::Quiet, None)));
        let mut verdicts: BTreeMap<_, Verdict> = quiet.collect();
        let downloads = self.downloads.iter().map(|watch| ("receive", watch.verdict()));
        let on_device = self.on_device.iter().map(|(name, watch)| (*name, watch.verdict()));
        let choice = self.choice.iter().map(|watch| ("congestion", watch.verdict()));
        for (name, verdict) in downloads.chain(on_device).chain(choice) {
            let before = self.verdicts.get(name).and_then(|(_, text)| text.clone());
            match (&before, &verdict.1) {
                (None, Some(text)) => lines.push(text.clone()),
                (Some(_), None) => lines.push(format!("{name}: the cure counts again")),
                _ => {}
            }
            verdicts.insert(name, verdict);
        }
        self.verdicts = verdicts;
        self.suspicion =
            self.waits() || self.downloads.as_ref().is_some_and(|watch| watch.suspicion);
        lines
    }

    /// Whether a window begins at the next quiet look, whether packets arrive or not.
    fn waits(&self) -> bool {
        self.downloads.as_ref().is_some_and(Downloads::waits)
            || self.on_device.values().any(OnDevice::waits)
            || self.choice.as_ref().is_some_and(Choice::waits)
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
        let choice = cures.congestion.as_ref().filter(|cure| !cure.is_lifted());
        if choice.is_none_or(|cure| {
            self.choice.as_ref().is_some_and(|watch| watch.generation != cure.generation())
        }) {
            self.choice = None;
        }
        let on_device = cures.seen()?;
        self.on_device.retain(|name, watch| {
            on_device.iter().any(|seen| seen.name == *name)
                && device.is_some_and(|found| found.device.index == watch.device)
        });
        let before = receive.map(Receive::counters).transpose()?;
        let begins = receive.is_some() != self.downloads.is_some()
            || choice.is_some() != self.choice.is_some()
            || device.is_some() && on_device.len() != self.on_device.len();
        // It counts connections as they begin, so that it counts nothing most of the time.
        let reads = begins
            || choice.is_some()
            || before.is_some_and(|now| self.downloads.as_ref().is_some_and(|d| d.reads(&now)))
            || on_device.iter().any(|seen| {
                self.on_device.get(seen.name).is_some_and(|watch| watch.last == seen.counted)
            });
        let arrived = packets();
        let moved = match (arrived, self.packets) {
            (Some(now), Some(before)) => now.wrapping_sub(before) >= MIN_PACKETS,
            _ => true,
        };
        let waits = self.waits();
        let reserve = if waits || self.suspicion { Duration::ZERO } else { RESERVE };
        let budget = self.budget.get_or_insert_with(|| Budget::new(SHARE, SAVINGS, now));
        if reads && (begins || moved || waits) && budget.has(reserve, now) {
            self.packets = arrived;
            let (namespaces, took) =
                in_each_namespace(|| Some((diag::begun().ok()?, default_congestion())));
            if let Some(budget) = &mut self.budget {
                budget.spend(took, LOOK_AT_LATEST);
            }
            let mut read = Read {
                all: Vec::new(),
                defaults: HashMap::new(),
                own: std::fs::metadata("/proc/self/ns/net").map_or(0, |about| about.ino()),
            };
            for (name, (sockets, default)) in namespaces {
                read.defaults.extend(default.map(|default| (name, default)));
                let sockets = sockets.into_iter().filter(|socket| !local(socket));
                read.all.extend(sockets.map(|socket| ((name, socket.cookie), socket)));
            }
            self.look_at(cures, device, &read, now)?;
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
        read: &Read,
        now: Instant,
    ) -> Result<()> {
        if let Some(receive) = &mut cures.receive {
            let selected: Vec<(Key, Socket)> =
                read.all.iter().filter(|one| self.selects(receive, one)).cloned().collect();
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
        if let Some(cure) = cures.congestion.as_ref().filter(|cure| !cure.is_lifted()) {
            let scope = cure.now().cgroup.clone();
            let selected: Vec<(Key, Socket)> = read
                .all
                .iter()
                .filter(|one| self.in_scope(scope.as_deref(), one))
                .cloned()
                .collect();
            let counters = cure.counted()?;
            self.choice.get_or_insert_with(|| Choice::new(cure, counters)).look(
                cure.now(),
                counters,
                &selected,
                &read.defaults,
            );
        }
        let Some(found) = device else { return Ok(()) };
        let ours: Vec<(Key, Socket)> =
            read.all.iter().filter(|((name, _), _)| *name == read.own).cloned().collect();
        for seen in cures.seen()? {
            let new = || OnDevice::new(found.device.index, seen.counted);
            self.on_device.entry(seen.name).or_insert_with(new).look(found, &seen, &ours);
        }
        Ok(())
    }

    /// Whether the cure must see a connection.
    fn selects(&mut self, receive: &Receive, one: &(Key, Socket)) -> bool {
        let (settings, socket) = (receive.now(), &one.1);
        settings.user.is_none_or(|user| user == socket.user)
            && settings.covers(socket.remote.0)
            && self.in_scope(settings.cgroup.as_deref(), one)
    }

    /// Whether a connection belongs to the scope: that cgroup in all namespaces; without one, all
    /// cgroups of this namespace, and of all where it is the host's.
    fn in_scope(&mut self, group: Option<&Path>, ((name, _), socket): &(Key, Socket)) -> bool {
        let space = if group.is_some() { 0 } else { u64::from(network_scope()) };
        if space != 0 && space != *name {
            return false;
        }
        let Some(cgroup) = socket.cgroup else {
            // Before Linux 5.8 only the whole host is known to contain it.
            return group.is_none();
        };
        *self.scope.entry(cgroup).or_insert_with(|| {
            let mut below = HashSet::new();
            if let Ok(path) = group.map_or_else(cgroup_root, |group| Ok(group.to_owned())) {
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
    fn the_kernel_says_how_many_packets_came_and_its_congestion_control() {
        assert!(packets().is_some_and(|packets| packets > 0));
        assert!(default_congestion().is_some_and(|name| !name.is_empty()));
    }
}
