//! The uplink's gate: no more below the operating system than drains within the target, by the modem's reports.
//!
//! signal: reports of a [`Source`] · model: QCUT-D and the accounts of the flows, in the kernel (`bpf/gate.bpf.c`) · action: the program on
//! the egress of the uplink's device, and a thread that carries each report to it.
//!
//! This side decides nothing about packets. It says whether reports come ([`Gate::telemetry`]): where they do not, the gate is open, and
//! the cure without telemetry has to take over.
//!
//! By TCX the program goes when its process goes. On older kernels it hangs on the device's clsact discipline and stays; then its lease
//! opens it, and the journal says how to take it away.
//!
//! Needs Linux 5.6 with BTF; TCX since 6.6.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use algo::gate::qcut_d;
use aya::maps::{Array, PerCpuArray};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, TestRun, TestRunOptions};
use serde_json::{Value, json};

use crate::cures::attach::{self, Hook, Hung};
use crate::cures::receive::taken;
use crate::cures::{CureError, Result, now_ns};
use crate::kernel;
use crate::kernel::layouts::{GateConfig, GateCounters, GateView};
use crate::kernel::netlink::Device;
use crate::kernel::objects;
use crate::telemetry::driver::Driver;
use crate::telemetry::socket::Socket;
use crate::telemetry::{Grade, Report, Source, State};
use crate::undo::handover;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{Held, LEASE, Leased, lease};

/// The program, and where it hangs.
const HOOK: Hook =
    Hook { what: "the gate", programs: &[("egress", TcAttachType::Egress)], preference: 47 };

/// The most that the target grows. Recorded LTE uplinks lose less than a tenth of their throughput so; more adds delay and hardly
/// anything else (docs/agent-uplink.md).
pub const SLACK: units::Duration = units::Duration::from_millis(150);

/// As published, but for the slack.
pub fn law() -> qcut_d::Config {
    qcut_d::Config { slack: SLACK, ..qcut_d::Config::default() }
}

/// Packets that a driver may always hold: a first flight (RFC 6928). A driver whose ring runs empty tells the rate of what is sent, not
/// that of the link, and a flight refused at the device ends a slow start.
const DRIVER_FLOOR: u64 = 10;

/// Where reports may come from, in the order of trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// A Unix socket that somebody listens on.
    Socket(std::path::PathBuf),
    /// The device's own counters.
    Driver,
}

/// What the gate is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The uplink's device.
    pub device: String,
    /// The law.
    pub law: qcut_d::Config,
    /// Sources: the first that reports is heard; a later one when it does not.
    pub sources: Vec<From>,
    /// By clsact, also where TCX is to be had.
    pub clsact: bool,
}

impl Settings {
    /// As published, but for the slack on links whose rate jumps.
    pub fn new(device: impl Into<String>, sources: Vec<From>) -> Settings {
        Settings { device: device.into(), law: law(), sources, clsact: false }
    }

    fn config(&self, device: &Device) -> GateConfig {
        GateConfig {
            target_ns: self.law.target.0,
            slack_ns: self.law.slack.0,
            // As `QcutD::new`: the last packet comes on top.
            floor: u64::from(device.mtu).saturating_mul(self.law.floor.saturating_sub(1)),
            timeout_ns: self.law.patience.0,
            hold: self.law.hold.into(),
            pad: 0,
            lease_until_ns: 0,
            link_header: device.header,
            pad2: 0,
        }
    }
}

/// How a gate is doing.
#[derive(Clone, Debug, PartialEq)]
pub struct GateStatus {
    /// Its device.
    pub device: String,
    /// Whether reports come.
    pub telemetry: State,
    /// As of the last report.
    pub view: GateView,
    /// Since it was attached.
    pub counters: GateCounters,
    /// How long what lies below takes to drain, at the rate known.
    pub delay_ms: Option<f64>,
}

impl GateStatus {
    /// For `--json` and the control socket.
    pub fn to_json(&self) -> Value {
        let telemetry = match &self.telemetry {
            State::Fresh { source, grade } => {
                json!({"state": "fresh", "source": source, "grade": match grade { Grade::Modem => "modem", Grade::Driver => "driver" }})
            }
            State::Silent { since_ns, why } => json!({
                "state": "silent", "for_s": now_ns().saturating_sub(*since_ns) as f64 / 1e9, "why": why,
            }),
        };
        json!({
            "cure": "gate",
            "device": self.device,
            "telemetry": telemetry,
            "reports": self.view.reports,
            "report_age_ms": self.view.at_ns.saturating_sub(self.view.written_ns) as f64 / 1e6,
            "reported_bytes": self.view.reported,
            "occupancy_bytes": self.view.occupancy,
            "limit_bytes": self.view.limit,
            "delay_ms": self.delay_ms,
            "rate_bps": self.view.rate.saturating_mul(8),
            "fair_bytes": self.view.fair,
            "passed": self.counters.passed,
            "passed_bytes": self.counters.passed_bytes,
            "privileged": self.counters.privileged,
            "refused_own": self.counters.refused_own,
            "refused_forwarded": self.counters.refused_forwarded,
            "unguarded": self.counters.unguarded,
        })
    }
}

/// See the module text.
pub struct Gate {
    settings: Settings,
    found: Device,
    /// None when it was left to another agent.
    config: Option<Held<GateConfig>>,
    /// A lease has been granted.
    granted: bool,
    lifted: bool,
    shared: Arc<Shared>,
    feeder: Option<JoinHandle<()>>,
    hung: Hung,
}

/// What the feeding thread has in common with the daemon's.
struct Shared {
    ebpf: Mutex<Ebpf>,
    state: Mutex<State>,
    /// Bytes that left the device, by the reports.
    moved: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn counters(&self) -> Result<GateCounters> {
        let ebpf = locked(&self.ebpf);
        let counters: PerCpuArray<_, GateCounters> = map(&ebpf, "counters")?;
        let each =
            counters.get(&0, 0).map_err(|why| CureError::Map("counters", why.to_string()))?;
        Ok(each.iter().fold(GateCounters::default(), |sum, one| GateCounters {
            passed: sum.passed + one.passed,
            passed_bytes: sum.passed_bytes + one.passed_bytes,
            privileged: sum.privileged + one.privileged,
            refused_own: sum.refused_own + one.refused_own,
            refused_forwarded: sum.refused_forwarded + one.refused_forwarded,
            unguarded: sum.unguarded + one.unguarded,
        }))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left whole values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// Attaches the program and begins to listen. Open until the first lease.
    pub fn attach(settings: &Settings, journal: &mut Journal) -> Result<Gate> {
        let found = attach::device(&settings.device)?;
        let mut ebpf = load()?;
        let device = (settings.device.as_str(), &found);
        let hung = Hung::hang(&HOOK, &mut ebpf, device, settings.clsact, journal)?;
        Gate::begin(settings, found, ebpf, hung)
    }

    /// Takes over what another agent left below `folder`, with what is known of the buffer; none if there is nothing.
    pub fn take_over(settings: &Settings, folder: &Path) -> Result<Option<Gate>> {
        let found = attach::device(&settings.device)?;
        let place = folder.join(stamp(settings, &found));
        if !place.is_dir() {
            return Ok(None);
        }
        let mut ebpf = load_with(Some(&place))?;
        let hung = Hung::left(&HOOK, &mut ebpf, &settings.device, settings.clsact, &place)?;
        std::fs::remove_dir_all(&place).map_err(CureError::file(&place))?;
        Gate::begin(settings, found, ebpf, hung).map(Some)
    }

    /// What of it the journal knows.
    pub fn changes(&self) -> &[Change] {
        self.hung.changes()
    }

    /// Leaves everything below `folder` to another agent; until then it works for as long as its lease.
    pub fn hand_over(mut self, folder: &Path) -> Result<()> {
        // Reports are carried to the kernel until it is dropped.
        let place = folder.join(stamp(&self.settings, &self.found));
        handover::made(&place)?;
        let mut ebpf = locked(&self.shared.ebpf);
        self.hung.leave(&mut ebpf, &place)?;
        if let Some(config) = self.config.take() {
            config.leave(&place.join("config"))?;
        }
        for name in HANDED.into_iter().filter(|name| *name != "config") {
            let map = ebpf.map(name).ok_or_else(|| CureError::Map(name, "missing".to_owned()))?;
            map.pin(place.join(name)).map_err(|why| CureError::Map(name, kernel::whole(&why)))?;
        }
        Ok(())
    }

    fn begin(settings: &Settings, found: Device, mut ebpf: Ebpf, hung: Hung) -> Result<Gate> {
        let config = Held::new("config", taken(&mut ebpf, "config")?)?;
        let since = State::Silent { since_ns: now_ns(), why: "nothing heard yet".to_owned() };
        let shared = Arc::new(Shared {
            ebpf: Mutex::new(ebpf),
            state: Mutex::new(since),
            moved: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let mut gate = Gate {
            settings: settings.clone(),
            found,
            config: Some(config),
            granted: false,
            lifted: false,
            shared,
            feeder: None,
            hung,
        };
        gate.write()?;
        gate.listen();
        Ok(gate)
    }

    /// Whether [`Gate::set`] is enough for these.
    pub fn takes(&self, settings: &Settings) -> bool {
        settings.device == self.settings.device && settings.clsact == self.settings.clsact
    }

    /// New parameters; the device stays.
    pub fn set(&mut self, settings: &Settings) -> Result<()> {
        if !self.takes(settings) {
            return Err(CureError::Refused(format!(
                "the gate is on {}: another device needs off and on",
                self.settings.device
            )));
        }
        let elsewhere = settings.sources != self.settings.sources
            || settings.law.patience != self.settings.law.patience;
        self.settings = settings.clone();
        self.write()?;
        if elsewhere {
            self.hush();
            self.listen();
        }
        Ok(())
    }

    /// The lease holds until then, and is renewed.
    pub fn renew(&mut self, lease_until_ns: u64) -> Result<()> {
        self.granted = true;
        self.write()?;
        self.grant(if self.lifted { 0 } else { lease_until_ns })
    }

    /// Everything passes, but reports are heard: for a trial.
    pub fn lift(&mut self, lifted: bool) -> Result<()> {
        if lifted == self.lifted {
            return Ok(());
        }
        self.lifted = lifted;
        self.grant(if lifted || !self.granted { 0 } else { lease(LEASE) })
    }

    /// Bytes that left the device since the gate was attached, by the reports.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// Whether reports come.
    pub fn telemetry(&self) -> State {
        locked(&self.shared.state).clone()
    }

    /// How it is doing.
    pub fn status(&mut self) -> Result<GateStatus> {
        let counters = self.shared.counters()?;
        let ebpf = locked(&self.shared.ebpf);
        let view: Array<_, GateView> = map(&ebpf, "view")?;
        let view = view.get(&0, 0).map_err(|why| CureError::Map("view", why.to_string()))?;
        Ok(GateStatus {
            device: self.settings.device.clone(),
            telemetry: self.telemetry(),
            delay_ms: (view.rate > 0).then(|| view.occupancy as f64 / view.rate as f64 * 1e3),
            view,
            counters,
        })
    }

    /// Takes the program away, and whatever was made for it.
    pub fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.hush();
        let mut ebpf = locked(&self.shared.ebpf);
        self.hung.take(&mut ebpf, journal)
    }

    fn write(&mut self) -> Result<()> {
        let mut now = self.settings.config(&self.found);
        if matches!(self.telemetry(), State::Fresh { grade: Grade::Driver, .. }) {
            now.floor = now.floor.max(u64::from(self.found.mtu) * DRIVER_FLOOR);
        }
        self.config.as_ref().map_or(Ok(()), |held| held.change(|config| *config = now))
    }

    fn grant(&self, until_ns: u64) -> Result<()> {
        self.config.as_ref().map_or(Ok(()), |held| held.grant(until_ns))
    }

    fn listen(&mut self) {
        let sources = self.settings.sources.iter().map(|from| -> Box<dyn Source> {
            match from {
                From::Socket(path) => Box::new(Socket::new(path)),
                From::Driver => Box::new(Driver::new(&self.settings.device)),
            }
        });
        let (sources, shared) = (sources.collect(), Arc::clone(&self.shared));
        let patience = Duration::from_nanos(self.settings.law.patience.0);
        self.shared.stop.store(false, Ordering::Relaxed);
        self.feeder = Some(std::thread::spawn(move || feed(&shared, sources, patience)));
    }

    fn hush(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(feeder) = self.feeder.take() {
            // It ends by itself; how does not matter.
            let _ = feeder.join();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.hush();
    }
}

impl Leased for GateConfig {
    fn until_ns(&mut self) -> &mut u64 {
        &mut self.lease_until_ns
    }
}

/// Carries reports to the kernel. Each source has a fraction of the patience, and the one that was heard last comes first.
fn feed(shared: &Shared, mut sources: Vec<Box<dyn Source>>, patience: Duration) {
    let slice = (patience / 4).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let (mut heard, mut heard_ns) = (None, now_ns());
    let mut why = "no source is configured".to_owned();
    while !shared.stop.load(Ordering::Relaxed) {
        if sources.is_empty() {
            std::thread::sleep(slice);
        }
        for source in &mut sources {
            match source.next(slice) {
                Ok(Some(report)) => {
                    if let Err(error) = deliver(&locked(&shared.ebpf), &report) {
                        why = format!("the kernel did not take a report: {error}");
                        continue;
                    }
                    let moved = report.granted.saturating_sub(report.padding);
                    shared.moved.fetch_add(moved, Ordering::Relaxed);
                    heard = Some(Instant::now());
                    heard_ns = now_ns();
                    let fresh = State::Fresh { source: source.name(), grade: source.grade() };
                    let mut state = locked(&shared.state);
                    if *state != fresh {
                        *state = fresh;
                    }
                    // What comes after it in the order is not asked while it tells something.
                    break;
                }
                Ok(None) => {
                    why = format!("{}: nothing within {} ms", source.name(), slice.as_millis())
                }
                Err(error) => why = format!("{}: {error}", source.name()),
            }
        }
        if heard.is_none_or(|at| at.elapsed() >= patience) {
            *locked(&shared.state) = State::Silent { since_ns: heard_ns, why: why.clone() };
        }
    }
}

/// Runs the kernel's part for a report.
fn deliver(ebpf: &Ebpf, report: &Report) -> std::result::Result<(), String> {
    let mut packet = [0; 48];
    for (place, field) in packet[16..].chunks_exact_mut(8).zip([
        report.at_ns,
        report.occupancy,
        report.granted,
        report.padding,
    ]) {
        place.copy_from_slice(&field.to_ne_bytes());
    }
    let program = ebpf.program("report").ok_or("no such program")?;
    let program: &SchedClassifier = program.try_into().map_err(|why| format!("{why}"))?;
    let options = TestRunOptions { data_in: Some(&packet), ..TestRunOptions::default() };
    match program.test_run(options).map_err(|why| why.to_string())?.return_value {
        0 => Ok(()),
        other => Err(format!("answered {other}")),
    }
}

/// Maps that go over to another agent.
const HANDED: [&str; 4] = ["config", "state", "view", "counters"];

/// What two agents have to agree upon. What they do not, the kernel sees when it takes the program.
fn stamp(settings: &Settings, found: &Device) -> String {
    format!(
        "gate-{}-{}-{:?}",
        found.index,
        settings.clsact,
        [size_of::<GateConfig>(), size_of::<GateView>()]
    )
}

/// Reads the object into the kernel.
pub fn load() -> Result<Ebpf> {
    load_with(None)
}

fn load_with(handed: Option<&Path>) -> Result<Ebpf> {
    if !Path::new(kernel::BTF).exists() {
        return Err(CureError::NoBtf);
    }
    let refused = |why| kernel::refused("the gate's program", "5.6", why);
    let mut loader = EbpfLoader::new();
    for (name, place) in
        HANDED.iter().zip(std::iter::repeat(handed)).filter_map(|(name, at)| Some((name, at?)))
    {
        loader.map_pin_path(name, place.join(name));
    }
    let mut ebpf = loader.load(objects::GATE).map_err(|why| refused(kernel::whole(&why)))?;
    for name in ["egress", "report"] {
        attach::program(&mut ebpf, name)?.load().map_err(|why| refused(kernel::whole(&why)))?;
    }
    Ok(ebpf)
}

fn map<'a, T: TryFrom<&'a aya::maps::Map, Error = aya::maps::MapError>>(
    ebpf: &'a Ebpf,
    name: &'static str,
) -> Result<T> {
    let place = ebpf.map(name).ok_or_else(|| CureError::Map(name, "missing".to_owned()))?;
    T::try_from(place).map_err(|why| CureError::Map(name, why.to_string()))
}
