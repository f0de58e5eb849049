//! DRWA on this host's sockets: from settings to the program in the kernel, and back.
//!
//! signal: settings, the time · model: bpf/receive.bpf.c decides at every ACK, alone; this file only tells it how, keeps its lease, and
//! sees to sockets that it cannot see by itself (older ones, and those that another program silenced) · action: maps, one pinned link,
//! a walk over the sockets now and then.

pub(crate) mod headroom;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cures::receive::headroom::{Memory, Room};
use algo::rwnd::drwa::Config as Law;
use aya::Ebpf;
use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, PerCpuArray};
use aya::programs::links::PinnedLink;
use units::Bytes;

use crate::cures::{CureError, Prefix, Result, address, now_ns, window_law};
use crate::kernel;
use crate::kernel::layouts::{DrwaLaw, ReceiveConfig, ReceiveCounters, ReceiveFlow, WalkSocket};
use crate::kernel::objects;
use crate::kernel::socket_walk::{self, Action, Walker};
use crate::status::FlowStatus;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{Held, Leased};

/// Flows that have decided nothing for so long are not shown, and forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Between two walks, at least: another program that silenced ours is noticed within this.
const WALK_EVERY: Duration = Duration::from_secs(2);
/// A walk may take one part in so many of the time, on hosts with many namespaces.
const WALK_SHARE: u32 = 200;
/// … but who began while a starved agent had let its lease run out waits no longer than this.
const WALK_AT_LATEST: Duration = Duration::from_secs(10);

/// Which destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// Everybody.
    All,
    /// These.
    Only(Vec<Prefix>),
    /// All but these.
    Except(Vec<Prefix>),
}

/// How DRWA is to work here.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The law. Its `initial` and `estimator` are the kernel's and the connection's business.
    pub law: Law,
    /// Bytes received before anything is done: handshakes and short replies keep the kernel's window.
    pub start: Bytes,
    /// RTTmin is shared by all sockets to one address, so that a latecomer knows the empty path.
    pub shared_minimum: bool,
    /// Whose connections.
    pub places: Places,
    /// The cgroup whose sockets are ours; the root, everybody's, without one.
    pub cgroup: Option<PathBuf>,
    /// Only connections of this user.
    pub user: Option<u32>,
    /// AFC's rate term: buffers that applications fixed are larger by what is read in a round trip.
    pub rate_term: bool,
    /// Measure and decide, but change nothing.
    pub observe: bool,
    /// Where programs and maps are pinned.
    pub pins: PathBuf,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            law: window_law(),
            start: Bytes(20_000),
            shared_minimum: true,
            places: Places::All,
            cgroup: None,
            user: None,
            rate_term: false,
            observe: false,
            pins: "/sys/fs/bpf/unbloat".into(),
        }
    }
}

impl Settings {
    fn config(&self, before: &ReceiveConfig) -> Result<ReceiveConfig> {
        let (cgroup, cgroup_level) = kernel::scope(&self.cgroup_path()?)?;
        Ok(ReceiveConfig {
            law: DrwaLaw::new(&self.law, 0, true),
            lease_until_ns: before.lease_until_ns,
            start_bytes: self.start.0,
            cgroup,
            cgroup_level,
            floor_segments: self.law.min_window.min(1_000) as u32,
            increment_segments: self.law.increment.min(1_000) as u32,
            by_place: match self.places {
                Places::All => 0,
                Places::Only(_) => 1,
                Places::Except(_) => 2,
            },
            shared_minimum: self.shared_minimum.into(),
            observe: self.observe.into(),
            places_version: before.places_version.wrapping_add(1) & 0x7fff_ffff,
            by_user: self.user.is_some().into(),
            user: self.user.unwrap_or(0),
            rate_term: self.rate_term.into(),
            max_buffer: crate::cures::receive::headroom::most_buffer(),
            scarce: before.scarce,
        })
    }

    fn cgroup_path(&self) -> Result<PathBuf> {
        self.cgroup.clone().map_or_else(kernel::cgroup_root, Ok)
    }

    fn prefixes(&self) -> &[Prefix] {
        match &self.places {
            Places::All => &[],
            Places::Only(list) | Places::Except(list) => list,
        }
    }
}

/// The other end, and the port of this one.
pub type Ends = (IpAddr, u16, u16);

/// What a walk or the kernel's side had to tell; for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Connections that existed are treated now.
    Joined(u32),
    /// Another program had taken the flag of so many; it is back.
    Silenced(u32),
    /// The kernel let so many not join.
    Refused(u32, i32),
    /// There is no walk here: connections that exist stay as they are.
    NoWalk(String),
    /// TCP's memory became scarce, or is not any more.
    Scarce(bool),
}

/// DRWA at work.
pub struct Receive {
    config: Held<ReceiveConfig>,
    counters: PerCpuArray<MapData, ReceiveCounters>,
    flows: HashMap<MapData, u64, ReceiveFlow>,
    places: LpmTrie<MapData, [u32; 4], u8>,
    room: Room,
    now: ReceiveConfig,
    settings: Settings,
    lifted: bool,
    link: PinnedLink,
    walker: Option<Walker>,
    /// Why not, until it was said.
    no_walk: Option<String>,
    walk_at: Instant,
    walk_took: Duration,
}

pub(crate) fn taken<T>(ebpf: &mut Ebpf, name: &'static str) -> Result<T>
where
    T: TryFrom<Map>,
    T::Error: std::fmt::Display,
{
    let map = ebpf.take_map(name).ok_or(CureError::Map(name, "missing".to_owned()))?;
    T::try_from(map).map_err(|e| CureError::Map(name, e.to_string()))
}

impl Receive {
    /// Begins: what a dead agent left below the same pins is taken over without a gap.
    pub fn attach(
        settings: &Settings,
        journal: &mut Journal,
        lease_until_ns: u64,
    ) -> Result<Receive> {
        kernel::able()?;
        socket_walk::pinnable(&settings.pins)?;
        let change = Change::Sockets { pins: settings.pins.clone() };
        journal.write(&change).map_err(CureError::file(journal.path()))?;
        let folder = socket_walk::made(&settings.pins)?;
        let mut ebpf = kernel::load_sock_ops(objects::RECEIVE, "receive", Some(&folder))?;
        let config: Array<_, ReceiveConfig> = taken(&mut ebpf, "config")?;
        let config = Held::new("config", config)?;
        let before = config.now();
        let now = settings.config(&before)?;
        let link = attached(&mut ebpf, settings, &before, &now)?;
        let mut receive = Receive {
            config,
            counters: taken(&mut ebpf, "counters")?,
            flows: taken(&mut ebpf, "flows")?,
            places: taken(&mut ebpf, "places")?,
            room: Room::of(&mut ebpf)?,
            now,
            settings: settings.clone(),
            lifted: false,
            link,
            walker: None,
            no_walk: None,
            walk_at: Instant::now(),
            walk_took: Duration::ZERO,
        };
        receive.write_places()?;
        // Until the first walk has seen what a predecessor gave, nothing is known of it.
        receive.room.write(Memory::now(), 0)?;
        receive.write()?;
        receive.renew(lease_until_ns)?;
        // An old kernel treats new connections only, and `tick` says so.
        match Walker::load(&settings.pins) {
            Ok(walker) => receive.walker = Some(walker),
            Err(e) => receive.no_walk = Some(e.to_string()),
        }
        Ok(receive)
    }

    /// Other parameters, from the next ACK on.
    pub fn set(&mut self, settings: &Settings) -> Result<()> {
        let now = settings.config(&self.now)?;
        if (now.cgroup, settings.pins.as_path()) != (self.now.cgroup, self.settings.pins.as_path())
        {
            let text =
                "another cgroup or place of pins needs a restart: unbloat-agent off, then on";
            return Err(CureError::Refused(text.to_owned()));
        }
        self.now = now;
        self.settings = settings.clone();
        self.write_places()?;
        self.walk_at = Instant::now();
        self.write()
    }

    /// Windows are the kernel's, but are watched, so that they can come back: for a trial.
    pub fn lift(&mut self, lifted: bool) -> Result<()> {
        self.lifted = lifted;
        self.write()
    }

    /// The lease holds until then, and is renewed.
    pub fn renew(&mut self, lease_until_ns: u64) -> Result<()> {
        self.config.grant(lease_until_ns)?;
        // A host that let this process wait so long: connections that came meanwhile were not taken up.
        if self.config.gap() {
            self.walk_at = Instant::now();
        }
        Ok(())
    }

    /// What has to be done now and then; what is worth a line in the log.
    pub fn tick(&mut self) -> Result<Vec<Event>> {
        let memory = Memory::now();
        let scarce = memory.is_none_or(|memory| memory.scarce(self.now.scarce == 1));
        let mut told: Vec<Event> = Vec::new();
        if self.settings.rate_term && scarce != (self.now.scarce == 1) {
            self.now.scarce = scarce.into();
            self.write()?;
            told.push(Event::Scarce(scarce));
        }
        let Some(walker) = &mut self.walker else {
            told.extend(self.no_walk.take().map(Event::NoWalk));
            return Ok(told);
        };
        if Instant::now() < self.walk_at {
            return Ok(told);
        }
        let walked = walker.walk(Action::Join, &self.settings.cgroup_path()?)?;
        self.walk_took = walked.took;
        self.walk_at = Instant::now() + pause(walked.took);
        let task = walked.task;
        self.room.write(memory, task.headroom)?;
        let joined = task.changed - task.silenced.min(task.changed);
        told.extend(
            [
                (task.silenced > 0).then_some(Event::Silenced(task.silenced)),
                (joined > 0).then_some(Event::Joined(joined)),
                (task.refused > 0).then_some(Event::Refused(task.refused, task.error)),
            ]
            .into_iter()
            .flatten(),
        );
        Ok(told)
    }

    /// How long the last walk took.
    pub fn walk_took(&self) -> Duration {
        self.walk_took
    }

    /// Every flow that has decided something lately.
    pub fn status(&mut self) -> Result<Vec<FlowStatus>> {
        let now = now_ns();
        let mut found = Vec::new();
        let mut old = Vec::new();
        for entry in self.flows.iter() {
            // One that is pushed out while this walks is no mistake.
            let Ok((cookie, flow)) = entry else { continue };
            let age = Duration::from_nanos(now.saturating_sub(flow.at_ns));
            if age > FORGOTTEN {
                old.push(cookie);
                continue;
            }
            found.push(FlowStatus {
                cure: "receive",
                remote: (address(flow.remote), flow.remote_port as u16),
                local_port: flow.local_port as u16,
                age_ms: age.as_millis() as u64,
                bytes: flow.received,
                rate: flow.rate,
                rtt_us: flow.rtt_us.into(),
                rtt_min_us: flow.rtt_min_us.into(),
                wanted: flow.target.into(),
                advertised: flow.advertised.into(),
                applied: flow.observed == 0,
                reapplied: flow.reapplied.into(),
            });
        }
        for cookie in old {
            let _ = self.flows.remove(&cookie);
        }
        found.sort_by_key(|flow| (flow.remote, flow.local_port));
        Ok(found)
    }

    /// What each connection has received, to the byte; of those that decide, as of their last decision, where there is no walk.
    pub fn received(&mut self) -> Result<Vec<(Ends, u64)>> {
        let Some(walker) = &mut self.walker else {
            let shown = self.status()?;
            return Ok(shown
                .iter()
                .map(|f| ((f.remote.0, f.remote.1, f.local_port), f.bytes))
                .collect());
        };
        let listed = walker.walk(Action::List, &self.settings.cgroup_path()?)?.sockets;
        let ours = listed.iter().filter(|socket| socket.ours & 1 == 1);
        let ends = |s: &WalkSocket| (address(s.remote), s.remote_port as u16, s.local_port as u16);
        Ok(ours.map(|socket| (ends(socket), socket.received)).collect())
    }

    /// What it did since the pins were made.
    pub fn counters(&self) -> Result<ReceiveCounters> {
        let values =
            self.counters.get(&0, 0).map_err(|e| CureError::Map("counters", e.to_string()))?;
        Ok(values.iter().fold(ReceiveCounters::default(), |a, b| ReceiveCounters {
            sockets: a.sockets + b.sockets,
            samples: a.samples + b.samples,
            decisions: a.decisions + b.decisions,
            applied: a.applied + b.applied,
            reapplied: a.reapplied + b.reapplied,
            refused: a.refused + b.refused,
            lifted: a.lifted + b.lifted,
            raised: a.raised + b.raised,
            withheld: a.withheld + b.withheld,
        }))
    }

    /// Ends: every socket is as it would be without us, and nothing of ours is left.
    pub fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.config.grant(0)?;
        let walker = match self.walker.take() {
            Some(walker) => Some(walker),
            None => Walker::find(&self.settings.pins)?,
        };
        if walker.is_none() || kernel::everywhere().is_some() {
            // Whom the walk cannot reach, the program lifts at his next ACK.
            std::thread::sleep(socket_walk::LAST_ACKS);
        }
        if let Some(mut walker) = walker {
            walker.leave()?;
        }
        let pins = self.settings.pins.clone();
        let link = self.link;
        let path = socket_walk::folder(&pins).join("receive");
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(CureError::file(path)(e));
            }
            _ => drop(link),
        }
        socket_walk::tidy(&pins, journal)
    }

    fn write(&mut self) -> Result<()> {
        let observe = (self.settings.observe || self.lifted).into();
        self.config.change(|config| *config = ReceiveConfig { observe, ..self.now })
    }

    /// New prefixes come before old ones go, so that nobody falls between.
    fn write_places(&mut self) -> Result<()> {
        let failed = |e: aya::maps::MapError| CureError::Map("places", e.to_string());
        let wanted: Vec<Key<[u32; 4]>> = self
            .settings
            .prefixes()
            .iter()
            .map(|p| p.place())
            .map(|p| Key::new(p.prefix, p.address))
            .collect();
        for key in &wanted {
            self.places.insert(key, 1, 0).map_err(failed)?;
        }
        let there: Vec<Key<[u32; 4]>> = self.places.keys().filter_map(|key| key.ok()).collect();
        for key in there {
            if !wanted.iter().any(|w| (w.prefix_len(), w.data()) == (key.prefix_len(), key.data()))
            {
                let _ = self.places.remove(&key);
            }
        }
        Ok(())
    }
}

impl Leased for ReceiveConfig {
    fn until_ns(&mut self) -> &mut u64 {
        &mut self.lease_until_ns
    }
}

/// From a walk that took so long to the next.
fn pause(took: Duration) -> Duration {
    WALK_EVERY.max(took.saturating_mul(WALK_SHARE)).min(WALK_AT_LATEST)
}

fn attached(
    ebpf: &mut Ebpf,
    settings: &Settings,
    before: &ReceiveConfig,
    now: &ReceiveConfig,
) -> Result<PinnedLink> {
    let folder = socket_walk::folder(&settings.pins);
    if folder.join("receive").exists() && before.cgroup != now.cgroup {
        // Its sockets are not the new one's: they would keep their clamps.
        socket_walk::give_sockets_back(&settings.pins)?;
    }
    socket_walk::attach(ebpf, "receive", &settings.cgroup_path()?, &settings.pins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_take_half_a_percent_of_a_processor_or_come_every_ten_seconds() {
        for (took_ms, pause_ms) in
            [(0, 2_000), (3, 2_000), (20, 4_000), (50, 10_000), (600, 10_000)]
        {
            assert_eq!(
                pause(Duration::from_millis(took_ms)),
                Duration::from_millis(pause_ms),
                "{took_ms}"
            );
        }
    }
}
