//! ACK-window rewriting: DRWA on forwarded ACKs, by two programs on the uplink's device.
//!
//! signal: RTT and rate of each flow that passes the device · model: `bpf/acks.bpf.c` decides at
//! every segment, in the kernel · action: the window field of ACKs, never enlarged.
//!
//! It acts on downloads of hosts behind this one, and on uploads while no modem reports its buffer.
//! This file configures the programs, renews their lease, and lifts them, for all flows or for one.
//! By TCX the programs are removed when their process ends, and the next ACK carries the receiver's
//! own window. On older kernels they stay on the device's clsact discipline; then the lease opens
//! them, and the journal says how to remove them.
//!
//! Needs Linux 5.10; TCX since 6.6. Without the kernel's types (BTF) connections are treated from their SYN on.

use std::path::Path;
use std::time::Duration;

use algo::Unit;
use algo::rwnd::drwa::{Config as Law, Estimator};
use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::TcAttachType;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use netlink::Device;
use serde::Serialize;
use settings::form::{self, FLAG};
use settings::{Form, Group, group};
use units::Bytes;

use crate::cures::attach::{self, Hook, Programs};
use crate::cures::device::{self, Mode, Shared};
use crate::cures::figures::{
    ACKS, CONNECTIONS, DECISIONS, Label, SAMPLES, Sample, WINDOWS, count, counter, families,
};
use crate::cures::receive::taken;
use crate::cures::{
    AVERAGE, About, Applied, Cure, CureError, Extent, Figures, FlowStatus, LAMBDA, Lambda, Lifted,
    MIN_LAMBDA_TEXT, Place, Result, Site, address, now_ns, read_law, window_law,
};
use crate::kernel::layouts::DrwaLaw;
use crate::kernel::layouts::acks::{AcksConfig, AcksCounters, Direction, Flow, FlowKey, PlacePath};
use crate::kernel::{self, Feature, FeatureId, whole};
use crate::section::Document;
use crate::undo::handover;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{Leased, LeasedMap};

/// The compiled programs.
static PROGRAM: &[u8] = include_bytes_aligned!("../../bpf/acks.bpf.o");
/// The same for kernels without types of their own.
static UNTYPED: &[u8] = include_bytes_aligned!("../../bpf/acks_untyped.bpf.o");
/// A flow without a decision for this long is not shown.
const SHOWN: Duration = Duration::from_secs(60);
/// A flow that is idle for this long is forgotten. RFC 5382 section 5 lets a NAT forget one after
/// two hours and four minutes; a flow that was idle for a quarter of that has no queue to cure.
const FORGOTTEN: Duration = Duration::from_secs(1_800);
/// The two programs, and the packets that they see.
pub(crate) const HOOK: Hook = Hook {
    what: "ACK-window rewriting",
    programs: &[("acks_out", TcAttachType::Egress), ("acks_in", TcAttachType::Ingress)],
    preference: 48,
    lease: attach::lease_in::<AcksConfig>,
};

/// Downloads of hosts behind this one; the keys of uploads are in `[uplink]`.
const SECTION: Group = group! {
    /// Downloads of hosts behind this one: the same law on the windows of the ACKs that this host
    /// forwards.
    [forward]
    enabled = "false", FLAG;
    lambda = Lambda::AGENT.text, LAMBDA;
    lambda_min = MIN_LAMBDA_TEXT, LAMBDA;
    average = "0.5", AVERAGE;
    quick = "true", FLAG;
    /// Flows through this host in one direction get equal rates, whatever their RTTs.
    fair = "true", FLAG;
    start = "20 KB", Form::Plain(Unit::Bytes, None);
    /// Flows that are remembered, 1.1 KB of the kernel's memory each.
    flows = "16384", form::count("16", "1000000");
};

/// Its two programs, for both directions of a device.
static FEATURE: Feature = Feature {
    id: FeatureId::AckWindows,
    name: "uploads: ACK-window rewriting, also of hosts behind this one",
    since: "5.10",
    probe: || load(16, 1).map(drop),
};

/// How it works on which device.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The device of the uplink.
    pub device: String,
    /// Law of downloads; none: their windows pass unchanged.
    pub down: Option<Law>,
    /// Law of uploads; none: their windows pass unchanged.
    pub up: Option<Law>,
    /// Payload of a download before its window is changed.
    pub start: Bytes,
    /// Payload of an upload before its window is changed.
    pub up_start: Bytes,
    /// A flow that was idle for longer is new.
    pub pause: Duration,
    /// Only forwarded downloads: this host's own have a cure on their sockets.
    pub forwarded_only: bool,
    /// Flows that are remembered; 1.1 KB each.
    pub flows: u32,
    /// By clsact, also where TCX is available.
    pub clsact: bool,
}

impl Settings {
    /// The defaults, on this device.
    pub fn new(device: impl Into<String>) -> Settings {
        Settings {
            device: device.into(),
            up: Some(window_law()),
            down: Some(window_law()),
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
                let text = "rtt_min_age is for a receiving host: ACK-window rewriting keeps the smallest RTT";
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

/// Counters of this cure.
#[derive(Debug, Default, Serialize)]
pub struct AcksFigures {
    device: String,
    flows: u64,
    segments: u64,
    samples: u64,
    decisions: u64,
    rewritten: u64,
    held: u64,
    unknown: u64,
    #[serde(rename = "barred")]
    excluded: u64,
    #[serde(rename = "strange")]
    out_of_window: u64,
    #[serde(rename = "superpackets")]
    gso_segments: u64,
    down_bytes: u64,
    up_bytes: u64,
}

impl AcksFigures {
    fn new(device: &str, c: &AcksCounters) -> AcksFigures {
        AcksFigures {
            device: device.to_owned(),
            flows: c.flows,
            segments: c.segments,
            samples: c.samples,
            decisions: c.decisions,
            rewritten: c.rewritten,
            held: c.edge_limited,
            unknown: c.unknown,
            excluded: c.excluded,
            out_of_window: c.out_of_window,
            gso_segments: c.gso_packets,
            down_bytes: c.down_bytes,
            up_bytes: c.up_bytes,
        }
    }
}

const LABELS: &[Label] = &[("cure", "acks")];
families! {
    SKIPPED = counter("unbloat_segments_skipped", "",
        "Segments left alone: of flows whose scale is unknown, signed or of MPTCP, or such that \
         no end would take.");
    GSO_SEGMENTS = counter("unbloat_superpackets", "",
        "Segments that stand for several, as offloads make them.");
    PAYLOAD = counter("unbloat_payload_bytes", "bytes",
        "Payload that passed the device under ACK-window rewriting.");
}

impl Figures for AcksFigures {
    fn line(&self) -> String {
        format!(
            "{} flows, {} segments, {} decisions, {} windows rewritten",
            self.flows, self.segments, self.decisions, self.rewritten
        )
    }

    fn samples(&self) -> Vec<Sample> {
        vec![
            count(CONNECTIONS, LABELS, self.flows),
            count(ACKS, LABELS, self.segments),
            count(SAMPLES, LABELS, self.samples),
            count(DECISIONS, LABELS, self.decisions),
            count(WINDOWS, &[("cure", "acks"), ("done", "rewritten")], self.rewritten),
            count(WINDOWS, &[("cure", "acks"), ("done", "held")], self.held),
            count(SKIPPED, &[("cure", "acks"), ("why", "scale")], self.unknown),
            count(SKIPPED, &[("cure", "acks"), ("why", "signed")], self.excluded),
            count(SKIPPED, &[("cure", "acks"), ("why", "strange")], self.out_of_window),
            count(GSO_SEGMENTS, LABELS, self.gso_segments),
            count(PAYLOAD, &[("cure", "acks"), ("direction", "down")], self.down_bytes),
            count(PAYLOAD, &[("cure", "acks"), ("direction", "up")], self.up_bytes),
        ]
    }
}

/// DRWA at work on a device.
pub struct Acks {
    ebpf: Ebpf,
    config: LeasedMap<AcksConfig>,
    counters: PerCpuArray<MapData, AcksCounters>,
    flows: HashMap<MapData, FlowKey, Flow>,
    exempt: HashMap<MapData, FlowKey, u32>,
    places: HashMap<MapData, [u32; 4], PlacePath>,
    settings: Settings,
    found: Device,
    programs: Option<Programs>,
}

/// Maps that go over to another agent.
const HANDED: [&str; 5] = ["config", "counters", "flows", "exempt", "places"];

/// Loads the object into the kernel. Public for tests without a device.
pub fn load(flows: u32, traced: u32) -> Result<Ebpf> {
    load_with(flows, traced, None)
}

fn load_with(flows: u32, traced: u32, handed: Option<&Path>) -> Result<Ebpf> {
    let object = if kernel::has_types().is_ok() { PROGRAM } else { UNTYPED };
    const WHAT: &str = "the programs that rewrite windows in ACKs";
    let named = kernel::named_types()?;
    let mut loader = EbpfLoader::new();
    if named.is_some() {
        loader.btf(named.as_ref());
    }
    loader.map_max_entries("flows", flows.max(16)).map_max_entries("trace", traced.max(1));
    for (name, place) in
        HANDED.iter().zip(std::iter::repeat(handed)).filter_map(|(name, at)| Some((name, at?)))
    {
        loader.map_pin_path(name, place.join(name));
    }
    let mut ebpf = loader.load(object).map_err(|e| kernel::refused(WHAT, "5.10", &e))?;
    for (name, _) in HOOK.programs {
        attach::program(&mut ebpf, name)?.load().map_err(|e| kernel::refused(WHAT, "5.10", &e))?;
    }
    Ok(ebpf)
}

fn failed(name: &'static str) -> impl Fn(aya::maps::MapError) -> CureError {
    move |why| CureError::Map(name, why.to_string())
}

/// What two agents must agree upon for a hand-over, as the name of a directory.
fn stamp(settings: &Settings, found: &Device) -> String {
    let sizes = [size_of::<Flow>(), size_of::<AcksConfig>(), size_of::<PlacePath>()];
    format!("acks-{}-{}-{}-{sizes:?}", found.index, settings.flows, settings.clsact)
}

impl Cure for Acks {
    const ABOUT: About = About {
        name: "acks",
        title: "ACK-window rewriting",
        place: Place::Device,
        program: true,
        features: &[&FEATURE],
        section: Some(&SECTION),
    };
    type Settings = Settings;
    type Figures = AcksFigures;

    fn settings(document: &Document<'_>) -> settings::Result<Option<Settings>> {
        let shared = Shared::read(document)?;
        let (at, forward) = (document.section(&device::SECTION)?, document.section(&SECTION)?);
        let mut settings = Settings::new("");
        let (mut up, mut down) = (window_law(), settings.down.take().unwrap_or_default());
        read_law(&at, &mut up)?;
        settings.up_start = at.bytes("start")?;
        if forward.flag("enabled")? {
            read_law(&forward, &mut down)?;
            settings.start = forward.bytes("start")?;
            settings.flows = forward.count("flows")? as u32;
            settings.down = Some(down);
        }
        settings.up = matches!(shared.mode, Mode::Auto | Mode::Acks).then_some(up);
        settings.clsact = shared.clsact;
        // This host's own downloads have a cure on their sockets.
        settings.forwarded_only = true;
        let wanted = settings.up.is_some() || settings.down.is_some();
        Ok(wanted.then_some(settings))
    }

    fn on_device(settings: &mut Settings, device: &str) {
        device.clone_into(&mut settings.device);
    }

    /// Every segment passes unchanged until the first lease. The flows of an agent that handed
    /// over are taken over.
    fn attach(settings: &Settings, site: &Site<'_>, journal: &mut Journal) -> Result<Acks> {
        // Where what was left does not fit, it begins without it.
        if let Ok(Some(acks)) = Acks::take_over(settings, &handover::folder(site.pins)) {
            return Ok(acks);
        }
        let mut acks = Acks::new(settings, None)?;
        let device = (settings.device.as_str(), &acks.found);
        acks.programs =
            Some(Programs::attach(&HOOK, &mut acks.ebpf, device, settings.clsact, journal)?);
        Ok(acks)
    }

    /// From the next segment on.
    fn apply(&mut self, settings: &Settings) -> Result<Applied> {
        let fixed = |s: &Settings| (s.device.clone(), s.clsact, s.flows);
        if fixed(settings) != fixed(&self.settings) {
            return Ok(Applied::NeedsAttach);
        }
        let now = settings.config(&self.found, &self.config.now())?;
        self.settings = settings.clone();
        // A gap in the lease may begin another generation meanwhile.
        self.config
            .change(|config| *config = AcksConfig { generation: config.generation, ..now })?;
        Ok(Applied::Now)
    }

    fn renew(&mut self, until_ns: u64) -> Result<()> {
        self.config.grant(until_ns)
    }

    fn lift(&mut self, lifted: Lifted) -> Result<()> {
        let lifted = u32::from(lifted.down) | u32::from(lifted.up) << 1;
        if lifted == self.config.now().lifted {
            return Ok(());
        }
        self.config.change(|config| config.lifted = lifted)
    }

    fn report(&mut self) -> Result<(AcksFigures, Vec<FlowStatus>)> {
        let flows = self.shown_flows()?;
        Ok((AcksFigures::new(&self.settings.device, &self.counters()?), flows))
    }

    fn changes(&self) -> Vec<Change> {
        self.programs.as_ref().map_or(Vec::new(), |programs| programs.changes().to_vec())
    }

    fn hand_over(mut self, folder: &Path) -> Result<()> {
        let place = folder.join(stamp(&self.settings, &self.found));
        handover::made(&place)?;
        if let Some(programs) = &mut self.programs {
            programs.leave(&mut self.ebpf, &place)?;
        }
        let pinned = |why: aya::pin::PinError| CureError::Map("pin", whole(&why));
        self.config.leave(&place.join("config"))?;
        self.counters.pin(place.join("counters")).map_err(pinned)?;
        self.flows.pin(place.join("flows")).map_err(pinned)?;
        self.exempt.pin(place.join("exempt")).map_err(pinned)?;
        self.places.pin(place.join("places")).map_err(pinned)
    }

    /// Windows are the receivers' own from the next ACK on.
    fn detach(mut self, journal: &mut Journal) -> Result<()> {
        match &mut self.programs {
            Some(programs) => programs.detach(&mut self.ebpf, journal),
            None => Ok(()),
        }
    }
}

/// `EXEMPT` of `bpf/acks.h`.
const EXEMPT: u32 = 1;
/// Longer RTTs are measurement errors for the law, too.
const MAX_RTT_US: u64 = 30_000_000;

impl Acks {
    /// Takes over what another agent left below `folder`, with its flows; none if it left nothing.
    fn take_over(settings: &Settings, folder: &Path) -> Result<Option<Acks>> {
        let place = folder.join(stamp(settings, &attach::device(&settings.device)?));
        if !place.is_dir() {
            return Ok(None);
        }
        let mut acks = Acks::new(settings, Some(&place))?;
        let device = &settings.device;
        let programs = Programs::take_over(&HOOK, &mut acks.ebpf, device, settings.clsact, &place)?;
        acks.programs = Some(programs);
        std::fs::remove_dir_all(&place).map_err(CureError::file(&place))?;
        Ok(Some(acks))
    }

    fn new(settings: &Settings, handed: Option<&Path>) -> Result<Acks> {
        let found = attach::device(&settings.device)?;
        let mut ebpf = load_with(settings.flows, 1, handed)?;
        let config: Array<MapData, AcksConfig> = taken(&mut ebpf, "config")?;
        let config = LeasedMap::new("config", config)?;
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
            programs: None,
        })
    }

    /// Forgets what was measured of all paths, as after a trial that found a regression: a route
    /// that became longer looks like a queue.
    pub fn forget(&mut self) -> Result<()> {
        let known: Vec<[u32; 4]> = self.places.keys().filter_map(|key| key.ok()).collect();
        for key in known {
            let _ = self.places.remove(&key);
        }
        self.config.change(Leased::after_gap)
    }

    /// Lets the windows of one flow pass unchanged or widened, or no longer.
    pub fn exempt(&mut self, flow: &FlowKey, how: Extent) -> Result<()> {
        let value = match how {
            Extent::None => None,
            Extent::Rtt(us) => Some(us.clamp(u64::from(EXEMPT) + 1, MAX_RTT_US) as u32),
            Extent::Whole => Some(EXEMPT),
        };
        match value {
            Some(value) => self.exempt.insert(flow, value, 0).map_err(failed("exempt"))?,
            // It may not be there.
            None => drop(self.exempt.remove(flow)),
        }
        let exempting = self.exempt.keys().next().is_some().into();
        self.config.change(|config| config.exempting = exempting)
    }

    /// Every flow of the kernel's table. Idle flows are removed here; a full table evicts the least
    /// recently used by itself.
    pub fn flows(&mut self) -> Vec<(FlowKey, Flow)> {
        let now = now_ns();
        // A flow may be evicted during the walk.
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

    /// Both directions of every flow that is under way and has a decision.
    fn shown_flows(&mut self) -> Result<Vec<FlowStatus>> {
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
        let law = if cure == "acks up" { &self.settings.up } else { &self.settings.down };
        let adapts =
            law.as_ref().is_some_and(|law| law.lambda_min.is_some_and(|least| least < law.lambda));
        FlowStatus {
            cure,
            remote: (address(key.outside), u16::from_be(key.outside_port)),
            local_port: u16::from_be(key.inside_port),
            age_ms: now.saturating_sub(way.begun_ns) / 1_000_000,
            bytes: way.passed,
            rate: way.law.mean,
            rtt_us: u64::from(flow.outer.rtt_us) + u64::from(flow.inner.rtt_us),
            rtt_min_us: way.law.rtt_min_us,
            lambda: way.law.lambda.into(),
            adapts,
            wanted: way.target.into(),
            advertised: way.advertised.into(),
            applied: way.rewritten > 0,
            reapplied: way.rewritten.into(),
            gated: false,
        }
    }

    /// Its counters since it was attached.
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
            packets: a.packets + b.packets,
        }))
    }
}

impl Leased for AcksConfig {
    fn until_ns(&mut self) -> &mut u64 {
        &mut self.lease_until_ns
    }

    /// The windows advertised during the gap are unknown: every flow starts again.
    fn after_gap(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}
