//! DRWA on this host's sockets: the receive window of downloads follows rate and RTT.
//!
//! signal: RTT and rate at every ACK that a socket sends · model: `bpf/receive.bpf.c` decides in
//! the kernel, without a process · action: the window clamp of the socket.
//!
//! This file configures the program, renews its lease, and attaches it to sockets that it cannot
//! see by itself: existing ones, and those whose callback flags another program replaced. It writes
//! maps, pins one link, and walks over the sockets every few seconds.

mod features;
mod figures;
pub(crate) mod headroom;
mod settings;

use algo::rwnd::adaptive::LAMBDA_ONE;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, PerCpuArray};
use aya::programs::links::PinnedLink;
use nix::errno::Errno;

use self::features::{LIVE_CONNECTIONS, NEW_CONNECTIONS, PROGRAM, windows_from_programs};
pub use self::figures::ReceiveFigures;
use self::headroom::{Headroom, Memory};
use self::settings::SECTION;
pub use self::settings::{Places, Settings};
use crate::cures::{
    About, Applied, Cure, CureError, FlowStatus, Lifted, Place, Result, Site, address, attach,
    now_ns,
};
use crate::kernel;
use crate::kernel::budget::Budget;
use crate::kernel::layouts::{ReceiveConfig, ReceiveCounters, ReceiveFlow, WalkSocket};
use crate::kernel::socket_walk::{self, Action, Walker};
use crate::section::Document;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{Leased, LeasedMap};

/// A flow without a decision for this long is not shown, and forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Bounds of a law (`bpf/law.h`): window, bytes, and λ, in units of 1/256.
const LARGEST: u64 = 1 << 30;
const MAX_LAMBDA: u64 = 16 * LAMBDA_ONE;
/// Shortest time between two walks: a program that replaced our callback flags is noticed within it.
const WALK_EVERY: Duration = Duration::from_secs(2);
/// A walk may take one part in so many of the time: on hosts with many namespaces it is slow.
const WALK_SHARE: u32 = 200;
/// The same of those out of turn, which are rare, and what they may save: on a busy host one walk
/// takes 50 ms.
const EXTRA_WALK_SHARE: u32 = 20;
const EXTRA_WALK_SAVINGS: Duration = Duration::from_millis(100);
/// Shortest time between two lines on replaced callback flags: a program as bpftune's replaces those
/// of each new connection.
const SILENCED_EVERY: Duration = Duration::from_secs(60);
/// Longest time between two walks: a connection that began while a starved agent had no lease waits
/// no longer.
const WALK_AT_LATEST: Duration = Duration::from_secs(10);

/// Remote address and port, local port.
pub type Ends = (IpAddr, u16, u16);

/// What happened to connections; for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// The cure was attached to so many existing connections.
    Joined(u32),
    /// Another program had replaced the callback flags of so many; they are set again.
    Silenced(u32),
    /// The kernel did not attach the cure to so many; negative errno.
    Refused(u32, i32),
    /// There is no walk here: existing connections stay as they are.
    NoWalk(String),
    /// TCP's memory became scarce, or is free again.
    Scarce(bool),
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Event::Joined(n) => write!(f, "attached to {n} existing connections"),
            Event::Silenced(n) => write!(
                f,
                "another sock_ops program had replaced the callback flags of {n} connections; set again (status names such programs)"
            ),
            Event::Refused(n, errno) => {
                let why = Errno::from_raw(-errno);
                write!(f, "the kernel did not attach it to {n} existing connections ({why}; needs Linux 6.12)")
            }
            Event::NoWalk(why) => write!(
                f,
                "existing connections stay as they are, new ones are treated: {why}"
            ),
            Event::Scarce(true) => f.write_str(
                "TCP's memory is scarce or cannot be read (net.ipv4.tcp_mem); larger buffers are given back",
            ),
            Event::Scarce(false) => f.write_str("TCP's memory is free again"),
        }
    }
}

/// The attached cure: DRWA on this host's sockets.
pub struct Receive {
    config: LeasedMap<ReceiveConfig>,
    counters: PerCpuArray<MapData, ReceiveCounters>,
    flows: HashMap<MapData, u64, ReceiveFlow>,
    places: LpmTrie<MapData, [u32; 4], u8>,
    headroom: Headroom,
    now: ReceiveConfig,
    settings: Settings,
    lifted: bool,
    /// RTT that a trial permits, in RTTmin / 256, without an upper bound of the window.
    permitted: Option<u32>,
    link: PinnedLink,
    /// Number of the program.
    program: u32,
    /// Connections whose callback flags another program had replaced.
    silenced: u64,
    /// Those of which no line of the log says anything yet, and when the last one did.
    unlogged: u32,
    logged: Option<Instant>,
    walker: Option<Walker>,
    walk_at: Instant,
    extra_walks: Budget,
    walk_took: Duration,
    /// Walks of this generation that left no selected connection without the program.
    whole_walks: u64,
    /// Grows when connections may have begun that the program did not take: after a gap in the
    /// lease, and with other settings.
    generation: u64,
    /// Lines for the log since the last call of `lines`.
    lines: Vec<String>,
}

pub(crate) fn taken<T>(ebpf: &mut Ebpf, name: &'static str) -> Result<T>
where
    T: TryFrom<Map>,
    T::Error: std::fmt::Display,
{
    let map = ebpf.take_map(name).ok_or(CureError::Map(name, "missing".to_owned()))?;
    T::try_from(map).map_err(|e| CureError::Map(name, e.to_string()))
}

impl Cure for Receive {
    const ABOUT: About = About {
        name: "receive",
        title: "downloads",
        place: Place::Sockets,
        program: true,
        features: &[&NEW_CONNECTIONS, &LIVE_CONNECTIONS],
        section: Some(&SECTION),
    };
    type Settings = Settings;
    type Figures = ReceiveFigures;

    fn settings(document: &Document<'_>) -> ::settings::Result<Option<Settings>> {
        Settings::read(document)
    }

    /// What a dead agent left below the same pins is taken over without a gap.
    fn attach(settings: &Settings, site: &Site<'_>, journal: &mut Journal) -> Result<Receive> {
        kernel::able()?;
        kernel::pinnable(&settings.pins)?;
        windows_from_programs()?;
        let change = Change::Sockets { pins: settings.pins.clone() };
        journal.write(&change).map_err(CureError::file(journal.path()))?;
        let folder = socket_walk::made(&settings.pins)?;
        let mut ebpf = kernel::load_sock_ops(PROGRAM, "receive", Some(&folder))?;
        let config: Array<_, ReceiveConfig> = taken(&mut ebpf, "config")?;
        let config = LeasedMap::new("config", config)?;
        let before = config.now();
        let now = settings.config(&before)?;
        let mut space: Array<_, u32> = taken(&mut ebpf, "space")?;
        let failed = |e: aya::maps::MapError| CureError::Map("space", e.to_string());
        let same =
            before.cgroup == now.cgroup && space.get(&0, 0).map_err(failed)? == settings.space();
        give_back_others(settings, same)?;
        space.set(0, settings.space(), 0).map_err(failed)?;
        let root = settings.cgroup_path()?;
        let (link, program) = socket_walk::attach(&mut ebpf, "receive", &root, &settings.pins)?;
        let mut receive = Receive {
            config,
            counters: taken(&mut ebpf, "counters")?,
            flows: taken(&mut ebpf, "flows")?,
            places: taken(&mut ebpf, "places")?,
            headroom: Headroom::of(&mut ebpf)?,
            now,
            settings: settings.clone(),
            lifted: site.lifted,
            permitted: None,
            link,
            program,
            silenced: 0,
            unlogged: 0,
            logged: None,
            walker: None,
            walk_at: Instant::now(),
            extra_walks: Budget::new(EXTRA_WALK_SHARE, EXTRA_WALK_SAVINGS, Instant::now()),
            walk_took: Duration::ZERO,
            whole_walks: 0,
            generation: 0,
            lines: Vec::new(),
        };
        receive.write_places()?;
        // Until the first walk has seen what a predecessor gave, nothing is known of it.
        receive.headroom.write(Memory::now(), 0)?;
        receive.write()?;
        receive.renew(site.lease())?;
        receive.lines.push(receive.described());
        // An old kernel treats new connections only.
        match Walker::load(&settings.pins) {
            Ok(walker) => receive.walker = Some(walker),
            Err(e) => receive.log(&Event::NoWalk(e.to_string())),
        }
        Ok(receive)
    }

    /// From the next ACK on.
    fn apply(&mut self, settings: &Settings) -> Result<Applied> {
        let now = settings.config(&self.now)?;
        let scope = |cgroup, settings: &Settings| (cgroup, settings.space(), settings.pins.clone());
        if scope(now.cgroup, settings) != scope(self.now.cgroup, &self.settings) {
            let text =
                "another cgroup or place of pins needs a restart: unbloat-agent off, then on";
            return Err(CureError::Refused(text.to_owned()));
        }
        self.now = now;
        self.settings = settings.clone();
        self.write_places()?;
        self.walk_at = Instant::now();
        self.begin_generation();
        self.write()?;
        Ok(Applied::Now)
    }

    fn renew(&mut self, until_ns: u64) -> Result<()> {
        self.config.grant(until_ns)?;
        // This process was starved for so long that connections began without the lease.
        if self.config.gap() {
            self.begin_generation();
            self.walk_at = Instant::now();
        }
        Ok(())
    }

    fn lift(&mut self, lifted: Lifted) -> Result<()> {
        self.lifted = lifted.down;
        self.permitted = None;
        self.write()
    }

    fn tick(&mut self) -> Result<()> {
        let memory = Memory::now();
        let scarce = memory.is_none_or(|memory| memory.scarce(self.now.scarce == 1));
        if self.settings.rate_term && scarce != (self.now.scarce == 1) {
            self.now.scarce = scarce.into();
            self.write()?;
            self.log(&Event::Scarce(scarce));
        }
        if Instant::now() >= self.walk_at { self.walk(memory) } else { Ok(()) }
    }

    fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn report(&mut self) -> Result<(ReceiveFigures, Vec<FlowStatus>)> {
        let flows = self.flows()?;
        let counters = self.counters()?;
        let walk_ms = self.walk_took.as_secs_f64() * 1e3;
        Ok((ReceiveFigures::new(&counters, walk_ms), flows))
    }

    /// Every socket is as it would be without the agent, and nothing is left.
    fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.config.grant(0)?;
        let walker = match self.walker.take() {
            Some(walker) => Some(walker),
            None => Walker::find(&self.settings.pins)?,
        };
        if walker.is_none() || kernel::everywhere().is_some() {
            // What the walk cannot reach, the program lifts at the next ACK.
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
        attach::tidy(&pins, journal)
    }
}

impl Receive {
    fn described(&self) -> String {
        let scope =
            self.settings.cgroup.as_ref().map(|c| c.display().to_string()).unwrap_or_else(|| {
                match self.settings.space() {
                    0 => "this whole host".to_owned(),
                    _ => "this network namespace".to_owned(),
                }
            });
        let lambda = self.settings.law.lambda;
        let verb = if self.settings.observe || self.lifted { "watching" } else { "holding" };
        format!("downloads: {verb} RTT at {lambda} times its minimum, for {scope}")
    }

    fn log(&mut self, event: &Event) {
        self.lines.push(format!("downloads: {event}"));
    }

    /// How the cure is configured.
    pub(crate) fn now(&self) -> &Settings {
        &self.settings
    }

    /// Number of its program.
    pub(crate) fn program(&self) -> u32 {
        self.program
    }

    /// Connections whose callback flags another program had replaced.
    pub(crate) fn silenced(&self) -> u64 {
        self.silenced
    }

    /// Attaches the program to connections that do not call it, where there is a walk.
    fn walk(&mut self, memory: Option<Memory>) -> Result<()> {
        let Some(walker) = &mut self.walker else { return Ok(()) };
        let walked = walker.walk(Action::Join, &self.settings.cgroup_path()?)?;
        self.walk_took = walked.took;
        self.walk_at = Instant::now() + pause(walked.took);
        let task = walked.task;
        self.whole_walks += u64::from(task.refused == 0);
        self.headroom.write(memory, task.headroom)?;
        self.silenced += u64::from(task.silenced);
        let joined = task.changed - task.silenced.min(task.changed);
        self.unlogged += task.silenced;
        let logs = self.unlogged > 0
            && self.logged.is_none_or(|logged| logged.elapsed() >= SILENCED_EVERY);
        let unlogged = if logs { std::mem::take(&mut self.unlogged) } else { 0 };
        if logs {
            self.logged = Some(Instant::now());
        }
        let events = [
            logs.then_some(Event::Silenced(unlogged)),
            (joined > 0).then_some(Event::Joined(joined)),
            (task.refused > 0).then_some(Event::Refused(task.refused, task.error)),
        ];
        for event in events.into_iter().flatten() {
            self.log(&event);
        }
        Ok(())
    }

    /// A walk out of turn, on suspicion that connections do not call the program. On hosts where
    /// walks are slow, the next one in turn has to do.
    pub(crate) fn walk_now(&mut self) -> Result<()> {
        if !self.extra_walks.has(Duration::ZERO, Instant::now()) {
            return Ok(());
        }
        self.walk(Memory::now())?;
        self.extra_walks.spend(self.walk_took, WALK_AT_LATEST);
        Ok(())
    }

    fn begin_generation(&mut self) {
        self.generation += 1;
        self.whole_walks = 0;
    }

    /// Walks of this generation after which every selected connection called the program; none
    /// where there is no walk.
    pub(crate) fn whole_walks(&self) -> Option<u64> {
        self.walker.as_ref().map(|_| self.whole_walks)
    }

    /// Grows when connections may have begun that the program did not take.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Every flow that has decided something lately.
    pub(crate) fn flows(&mut self) -> Result<Vec<FlowStatus>> {
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
                lambda: flow.lambda.into(),
                adapts: self.now.law.lambda_min < self.now.law.lambda,
                wanted: flow.target.into(),
                advertised: flow.advertised.into(),
                applied: in_force(&flow),
                reapplied: flow.reapplied.into(),
                gated: false,
            });
        }
        for cookie in old {
            let _ = self.flows.remove(&cookie);
        }
        found.sort_by_key(|flow| (flow.remote, flow.local_port));
        Ok(found)
    }

    /// Bytes that each connection has received; where there is no walk, only of those that decide,
    /// as of their last decision.
    pub(crate) fn received(&mut self) -> Result<Vec<(Ends, u64)>> {
        let Some(walker) = &mut self.walker else {
            let shown = self.flows()?;
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

    /// Its counters since the pins were made.
    pub(crate) fn counters(&self) -> Result<ReceiveCounters> {
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

    fn write(&mut self) -> Result<()> {
        let observe = (self.settings.observe || self.lifted).into();
        let mut law = self.now.law;
        if let Some(lambda) = self.permitted {
            (law.lambda, law.lambda_min, law.max) = (lambda, lambda, LARGEST);
        }
        self.config.change(|config| *config = ReceiveConfig { observe, law, ..self.now })
    }

    /// For a trial: permits this RTT on a path with this RTTmin, µs. Windows then follow the rate:
    /// a flow that they limit grows from round to round.
    pub(crate) fn permit(&mut self, rtt_us: u64, rtt_min_us: u64) -> Result<()> {
        let lambda = (rtt_us * LAMBDA_ONE + rtt_min_us / 2) / rtt_min_us.max(1);
        // A window at its upper bound permits less than λ does.
        let bounded = self.flows()?.iter().any(|flow| flow.wanted >= self.now.law.max);
        let least = if bounded { LAMBDA_ONE as u32 } else { self.now.law.lambda };
        self.permitted = Some((lambda.min(MAX_LAMBDA) as u32).max(least));
        self.lifted = false;
        self.write()
    }

    /// New prefixes are added before old ones are removed, so that no destination is missed.
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

/// Restores the sockets of a predecessor whose scope was another one: they would keep their clamps.
fn give_back_others(settings: &Settings, same_scope: bool) -> Result<()> {
    if !same_scope && socket_walk::folder(&settings.pins).join("receive").exists() {
        socket_walk::give_sockets_back(&settings.pins)?;
    }
    Ok(())
}

/// Whether the socket has the window of the last decision: not if the cure only looks, nor if the
/// kernel refused the clamp.
fn in_force(flow: &ReceiveFlow) -> bool {
    flow.observed == 0 && flow.clamp <= flow.target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_the_kernel_refused_is_not_in_force() {
        let set = ReceiveFlow { clamp: 90_000, target: 90_000, ..ReceiveFlow::default() };
        assert!(in_force(&set));
        assert!(!in_force(&ReceiveFlow { clamp: 65_535_000, ..set }));
        assert!(!in_force(&ReceiveFlow { observed: 1, ..set }));
    }

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
