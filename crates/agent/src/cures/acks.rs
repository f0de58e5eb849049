//! DRWA on passing ACKs: from settings to the programs on a device, and back.
//!
//! signal: settings, the time · model: bpf/acks.bpf.c decides at every segment, alone; this file tells it how, keeps its lease, and
//! lifts it, for all flows or for one, where somebody wants to know whether it costs · action: maps, and two programs on one device.
//!
//! For downloads of hosts behind this one and of its own, and for uploads where no modem tells anything. By TCX the programs go when
//! their process goes, and windows with them: the next ACK carries the receiver's own. On older kernels they hang on the device's
//! clsact discipline and stay; then the lease opens them, and the journal says how to take them away.
//!
//! Needs Linux 5.12 with BTF; TCX since 6.6.

use std::path::Path;
use std::time::Duration;

use algo::rwnd::drwa::{Config as Law, Estimator};
use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::TcAttachType;
use aya::{Ebpf, EbpfLoader};
use units::Bytes;

use crate::cures::attach::{self, Hook, Hung};
use crate::cures::receive::taken;
use crate::cures::{CureError, Result, address, now_ns, window_law};
use crate::kernel::layouts::DrwaLaw;
use crate::kernel::layouts::acks::{AcksConfig, AcksCounters, Direction, Flow, FlowKey, PlacePath};
use crate::kernel::netlink::Device;
use crate::kernel::objects;
use crate::kernel::{self, whole};
use crate::status::FlowStatus;
use crate::undo::handover;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{Held, Leased};

/// A flow that is silent for so long is not shown.
const SHOWN: Duration = Duration::from_secs(60);
/// … and so long: forgotten. RFC 5382 section 5 lets a NAT forget after two hours and four minutes; who was silent for a quarter of that
/// has no window to cure.
const FORGOTTEN: Duration = Duration::from_secs(1_800);
/// The two programs, and where they hang.
const HOOK: Hook = Hook {
    what: "windows of passing ACKs",
    programs: &[("acks_out", TcAttachType::Egress), ("acks_in", TcAttachType::Ingress)],
    preference: 48,
};

/// What is to be done on which device.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The device of the uplink.
    pub device: String,
    /// Downloads; none: their windows pass.
    pub down: Option<Law>,
    /// Uploads; none: their windows pass.
    pub up: Option<Law>,
    /// Payload of a download before anything is done.
    pub start: Bytes,
    /// … of an upload.
    pub up_start: Bytes,
    /// After such a silence a flow is new.
    pub pause: Duration,
    /// Only flows of others: this host's own downloads have a cure on their sockets.
    pub forwarded_only: bool,
    /// Flows that are remembered; 1.1 KB each.
    pub flows: u32,
    /// By clsact, also where TCX is to be had.
    pub clsact: bool,
}

impl Settings {
    /// λ = 3 for downloads as published; 1.75 for uploads: who pings beside an upload wants its queue below one RTT, and on recorded LTE
    /// uplinks 2 carries no more and takes longer (docs/agent-uplink.md).
    pub fn new(device: impl Into<String>) -> Settings {
        // Small windows grow here by a rule of their own (SMALL in acks.bpf.c).
        let law = Law { increment: 0, ..window_law() };
        Settings {
            device: device.into(),
            up: Some(Law { lambda: 28, ..law.clone() }),
            down: Some(law),
            start: Bytes(20_000),
            up_start: Bytes(20_000),
            pause: Duration::from_secs(2),
            forwarded_only: false,
            flows: 16_384,
            clsact: false,
        }
    }

    fn config(&self, device: &Device, before: &AcksConfig) -> Result<AcksConfig> {
        let law = |law: &Option<Law>| -> Result<DrwaLaw> {
            let law = law.clone().unwrap_or_default();
            if law.rtt_min_age.is_some() {
                // Emptying a queue that others share would measure theirs.
                let text = "rtt_min_age is a receiving host's: windows on passing ACKs keep the smallest RTT";
                return Err(CureError::Refused(text.to_owned()));
            }
            Ok(DrwaLaw::new(&law, 0, law.estimator == Estimator::Timestamps))
        };
        let of = |f: fn(&Law) -> u64| {
            let each = [&self.down, &self.up].into_iter().flatten().map(f);
            each.max().unwrap_or(0).min(1_000) as u32
        };
        Ok(AcksConfig {
            down: law(&self.down)?,
            up: law(&self.up)?,
            down_start_bytes: self.start.0,
            up_start_bytes: self.up_start.0,
            pause_ns: self.pause.as_nanos().min(u128::from(u64::MAX)) as u64,
            link_bytes: device.header,
            floor_segments: of(|law| law.min_window),
            increment_segments: of(|law| law.increment),
            directions: u32::from(self.down.is_some()) | u32::from(self.up.is_some()) << 1,
            forwarded_only: self.forwarded_only.into(),
            ..*before
        })
    }
}

/// DRWA at work on a device.
pub struct Acks {
    ebpf: Ebpf,
    config: Held<AcksConfig>,
    counters: PerCpuArray<MapData, AcksCounters>,
    flows: HashMap<MapData, FlowKey, Flow>,
    exempt: HashMap<MapData, FlowKey, u32>,
    places: HashMap<MapData, [u32; 4], PlacePath>,
    settings: Settings,
    found: Device,
    hung: Option<Hung>,
}

/// Maps that go over to another agent.
const HANDED: [&str; 5] = ["config", "counters", "flows", "exempt", "places"];

/// Reads the object into the kernel. For [`Acks::attach`], and for tests that have no device.
pub fn load(flows: u32, traced: u32) -> Result<Ebpf> {
    load_with(flows, traced, None)
}

fn load_with(flows: u32, traced: u32, handed: Option<&Path>) -> Result<Ebpf> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(CureError::NoBtf);
    }
    let refused = |why| kernel::refused("the programs on passing ACKs", "5.12", why);
    let mut loader = EbpfLoader::new();
    loader.map_max_entries("flows", flows.max(16)).map_max_entries("trace", traced.max(1));
    for (name, place) in
        HANDED.iter().zip(std::iter::repeat(handed)).filter_map(|(name, at)| Some((name, at?)))
    {
        loader.map_pin_path(name, place.join(name));
    }
    let mut ebpf = loader.load(objects::ACKS).map_err(|why| refused(whole(&why)))?;
    for (name, _) in HOOK.programs {
        attach::program(&mut ebpf, name)?.load().map_err(|why| refused(whole(&why)))?;
    }
    Ok(ebpf)
}

fn failed(name: &'static str) -> impl Fn(aya::maps::MapError) -> CureError {
    move |why| CureError::Map(name, why.to_string())
}

/// What two agents have to agree upon.
fn stamp(settings: &Settings, found: &Device) -> String {
    let sizes = [size_of::<Flow>(), size_of::<AcksConfig>(), size_of::<PlacePath>()];
    format!("acks-{}-{}-{}-{sizes:?}", found.index, settings.flows, settings.clsact)
}

impl Acks {
    /// Attaches the programs. Everything passes until the first lease.
    pub fn attach(settings: &Settings, journal: &mut Journal) -> Result<Acks> {
        let mut acks = Acks::new(settings, None)?;
        let device = (settings.device.as_str(), &acks.found);
        acks.hung = Some(Hung::hang(&HOOK, &mut acks.ebpf, device, settings.clsact, journal)?);
        Ok(acks)
    }

    /// Takes over what another agent left below `folder`, flows and all; none if there is nothing.
    pub fn take_over(settings: &Settings, folder: &Path) -> Result<Option<Acks>> {
        let place = folder.join(stamp(settings, &attach::device(&settings.device)?));
        if !place.is_dir() {
            return Ok(None);
        }
        let mut acks = Acks::new(settings, Some(&place))?;
        acks.hung =
            Some(Hung::left(&HOOK, &mut acks.ebpf, &settings.device, settings.clsact, &place)?);
        std::fs::remove_dir_all(&place).map_err(CureError::file(&place))?;
        Ok(Some(acks))
    }

    /// What of it the journal knows.
    pub fn changes(&self) -> &[Change] {
        self.hung.as_ref().map_or(&[], Hung::changes)
    }

    /// Leaves everything below `folder` to another agent; until then it works for as long as its lease.
    pub fn hand_over(mut self, folder: &Path) -> Result<()> {
        let place = folder.join(stamp(&self.settings, &self.found));
        handover::made(&place)?;
        if let Some(hung) = &mut self.hung {
            hung.leave(&mut self.ebpf, &place)?;
        }
        let pinned = |why: aya::pin::PinError| CureError::Map("pin", whole(&why));
        self.config.leave(&place.join("config"))?;
        self.counters.pin(place.join("counters")).map_err(pinned)?;
        self.flows.pin(place.join("flows")).map_err(pinned)?;
        self.exempt.pin(place.join("exempt")).map_err(pinned)?;
        self.places.pin(place.join("places")).map_err(pinned)
    }

    fn new(settings: &Settings, handed: Option<&Path>) -> Result<Acks> {
        let found = attach::device(&settings.device)?;
        let mut ebpf = load_with(settings.flows, 1, handed)?;
        let config: Array<MapData, AcksConfig> = taken(&mut ebpf, "config")?;
        let config = Held::new("config", config)?;
        // A lease that goes on keeps what was learnt under it.
        let before = config.now();
        let now = settings
            .config(&found, &AcksConfig { generation: before.generation.max(1), ..before })?;
        config.change(|config| *config = now)?;
        Ok(Acks {
            config,
            counters: taken(&mut ebpf, "counters")?,
            flows: taken(&mut ebpf, "flows")?,
            exempt: taken(&mut ebpf, "exempt")?,
            places: taken(&mut ebpf, "places")?,
            ebpf,
            settings: settings.clone(),
            found,
            hung: None,
        })
    }

    /// Whether [`Acks::set`] is enough for these.
    pub fn takes(&self, settings: &Settings) -> bool {
        let same = |s: &Settings| (s.device.clone(), s.clsact, s.flows);
        same(settings) == same(&self.settings)
    }

    /// Other parameters, from the next segment on.
    pub fn set(&mut self, settings: &Settings) -> Result<()> {
        if !self.takes(settings) {
            let text = format!(
                "windows are rewritten on {}: another device or table needs off and on",
                self.settings.device
            );
            return Err(CureError::Refused(text));
        }
        let now = settings.config(&self.found, &self.config.now())?;
        self.settings = settings.clone();
        // A gap in the lease may begin another generation meanwhile.
        self.config.change(|config| *config = AcksConfig { generation: config.generation, ..now })
    }

    /// The lease holds until then, and is renewed.
    pub fn renew(&mut self, lease_until_ns: u64) -> Result<()> {
        self.config.grant(lease_until_ns)
    }

    /// Windows of downloads or of uploads pass, but are watched, so that they can come back without taking back what was told: for a trial,
    /// or while another cure acts.
    pub fn lift(&mut self, down: bool, up: bool) -> Result<()> {
        let lifted = u32::from(down) | u32::from(up) << 1;
        if lifted == self.config.now().lifted {
            return Ok(());
        }
        self.config.change(|config| config.lifted = lifted)
    }

    /// What was learnt of all paths is old, as after a trial that found the cure guilty: a route that became longer looks like a queue.
    pub fn forget(&mut self) -> Result<()> {
        let known: Vec<[u32; 4]> = self.places.keys().filter_map(|key| key.ok()).collect();
        for key in known {
            let _ = self.places.remove(&key);
        }
        self.config.change(Leased::after_gap)
    }

    /// The windows of one flow pass, or no longer.
    pub fn exempt(&mut self, flow: &FlowKey, exempt: bool) -> Result<()> {
        if exempt {
            self.exempt.insert(flow, 1, 0).map_err(failed("exempt"))?;
        } else {
            // Not there is what is wanted.
            let _ = self.exempt.remove(flow);
        }
        let exempting = self.exempt.keys().next().is_some().into();
        self.config.change(|config| config.exempting = exempting)
    }

    /// Every flow, as the kernel knows it. What is silent for long is forgotten here; beyond its size the table forgets by itself.
    pub fn flows(&mut self) -> Vec<(FlowKey, Flow)> {
        let now = now_ns();
        // One that is pushed out while this walks is no mistake.
        let all: Vec<_> = self.flows.iter().filter_map(|entry| entry.ok()).collect();
        let (kept, old): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, flow)| {
            Duration::from_nanos(now.saturating_sub(flow.seen_ns)) < FORGOTTEN
        });
        for (key, _) in old {
            let _ = self.flows.remove(&key);
            let _ = self.exempt.remove(&key);
        }
        kept
    }

    /// Both directions of every flow that is under way and has decided something.
    pub fn status(&mut self) -> Result<Vec<FlowStatus>> {
        let now = now_ns();
        let fresh = |at: u64| Duration::from_nanos(now.saturating_sub(at)) < SHOWN;
        let mut found = Vec::new();
        let config = self.config.now();
        for (key, flow) in self.flows() {
            let exempt = config.exempting > 0 && self.exempt.get(&key, 0).is_ok();
            let ways = [("acks down", &flow.down, 1), ("acks up", &flow.up, 2)];
            let shown =
                ways.into_iter().filter(|(_, way, _)| way.target > 0 && fresh(way.begun_ns));
            found.extend(shown.map(|(cure, way, bit)| FlowStatus {
                applied: !exempt && config.lifted & bit == 0 && way.rewritten > 0,
                ..self.shown(cure, &key, &flow, way, now)
            }));
        }
        found.sort_by_key(|flow| (flow.remote, flow.local_port, flow.cure));
        Ok(found)
    }

    fn shown(
        &self,
        cure: &'static str,
        key: &FlowKey,
        flow: &Flow,
        way: &Direction,
        now: u64,
    ) -> FlowStatus {
        FlowStatus {
            cure,
            remote: (address(key.outside), u16::from_be(key.outside_port)),
            local_port: u16::from_be(key.inside_port),
            age_ms: now.saturating_sub(way.begun_ns) / 1_000_000,
            bytes: way.passed,
            rate: way.law.rate,
            rtt_us: u64::from(flow.outer.rtt_us) + u64::from(flow.inner.rtt_us),
            rtt_min_us: way.law.rtt_min_us,
            wanted: way.target.into(),
            advertised: way.advertised.into(),
            applied: way.rewritten > 0,
            reapplied: way.rewritten.into(),
        }
    }

    /// What it did since it was attached.
    pub fn counters(&self) -> Result<AcksCounters> {
        let values = self.counters.get(&0, 0).map_err(failed("counters"))?;
        Ok(values.iter().fold(AcksCounters::default(), |a, b| AcksCounters {
            segments: a.segments + b.segments,
            flows: a.flows + b.flows,
            unknown: a.unknown + b.unknown,
            excluded: a.excluded + b.excluded,
            samples: a.samples + b.samples,
            decisions: a.decisions + b.decisions,
            rewritten: a.rewritten + b.rewritten,
            gso_packets: a.gso_packets + b.gso_packets,
            edge_limited: a.edge_limited + b.edge_limited,
            out_of_window: a.out_of_window + b.out_of_window,
            down_bytes: a.down_bytes + b.down_bytes,
            up_bytes: a.up_bytes + b.up_bytes,
        }))
    }

    /// Takes the programs away, and whatever was made for them. Windows are the receivers' own from the next ACK on.
    pub fn detach(mut self, journal: &mut Journal) -> Result<()> {
        match &mut self.hung {
            Some(hung) => hung.take(&mut self.ebpf, journal),
            None => Ok(()),
        }
    }
}

impl Leased for AcksConfig {
    fn until_ns(&mut self) -> &mut u64 {
        &mut self.lease_until_ns
    }

    /// What was told meanwhile is not known: every flow begins anew.
    fn after_gap(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}
