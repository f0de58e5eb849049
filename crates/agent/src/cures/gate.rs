//! The uplink's gate: no more bytes below the operating system than drain within the target, by
//! the modem's reports.
//!
//! signal: reports of a [`Source`] · model: QCUT-D and the accounts of the flows, in the kernel
//! (`bpf/gate.bpf.c`) · action: a program on the egress of the uplink's device refuses packets.
//!
//! A thread carries each report to the program; this side decides nothing about packets. Without
//! reports the gate is open (see [`Gate::telemetry`]), and ACK-window rewriting takes over. By TCX
//! the program is removed when its process ends. On older kernels it stays on the device's clsact
//! discipline; then its lease opens it, and the journal says how to remove it.
//!
//! Needs Linux 5.6; TCX since 6.6.

mod figures;
mod pacing;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use algo::gate::qcut_d;
use aya::maps::{Array, PerCpuArray};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, TestRun, TestRunOptions};
use netlink::Device;

pub use self::figures::{GateFigures, PacedFigures, Telemetry};
pub(crate) use self::pacing::NAME as PACING;
use self::pacing::Pacing;
use crate::cures::attach::{self, Hook, Programs};
use crate::cures::device::Shared as Uplink;
pub use crate::cures::device::{From, SLACK, law};
use crate::cures::receive::taken;
use crate::cures::{
    About, Applied, Cure, CureError, FlowStatus, Lifted, Place, Result, Site, now_ns,
};
use crate::kernel::layouts::{GateConfig, GateCounters, GateView};
use crate::kernel::{self, Feature, FeatureId, objects, socket_walk};
use crate::section::{Document, SCOPE};
use crate::telemetry::driver::Driver;
use crate::telemetry::socket::Socket;
use crate::telemetry::{Grade, Report, Source, State};
use crate::undo::handover;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{LEASE, Leased, LeasedMap, lease};

/// The program, and the packets that it sees.
pub(crate) const HOOK: Hook = Hook {
    what: "the gate",
    programs: &[("egress", TcAttachType::Egress)],
    preference: 47,
    lease: attach::lease_in::<GateConfig>,
};

/// So much more delay a trial permits below the gate. What refused sockets send again adds as much
/// as this: with 40 ms, 65 were measured.
const WIDER: units::Duration = units::Duration::from_millis(20);

/// Packets that a driver's queue may always have: a first flight (RFC 6928). A driver whose ring
/// runs empty reports the rate of what is sent, not that of the link, and a refused flight ends
/// slow start.
const DRIVER_FLOOR: u64 = 10;

/// Its program.
static FEATURE: Feature = Feature {
    id: FeatureId::Gate,
    name: "uploads: the gate, where a modem or driver reports",
    since: "5.6",
    probe: || load().map(drop),
};

/// How the gate works on which device.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The uplink's device.
    pub device: String,
    /// Constants of the gate's law, QCUT-D.
    pub law: qcut_d::Config,
    /// Sources of reports: the first that reports is used, a later one while it does not.
    pub sources: Vec<From>,
    /// By clsact, also where TCX is available.
    pub clsact: bool,
    /// The cgroup whose sockets are paced; none: all sockets.
    pub cgroup: Option<PathBuf>,
}

impl Settings {
    /// The default law.
    pub fn new(device: impl Into<String>, sources: Vec<From>) -> Settings {
        Settings { device: device.into(), law: law(), sources, clsact: false, cgroup: None }
    }

    fn config(&self, device: &Device) -> GateConfig {
        GateConfig {
            target_ns: self.law.target.0,
            slack_ns: self.law.slack.0,
            // As `QcutD::new`: the last packet comes on top.
            floor: u64::from(device.mtu).saturating_mul(self.law.floor.saturating_sub(1)),
            timeout_ns: self.law.patience.0,
            hold: self.law.hold.into(),
            pace: self.law.pace.into(),
            lease_until_ns: 0,
            link_header: device.header,
            wait_for_rate: 0,
        }
    }
}

/// The gate at work.
pub struct Gate {
    settings: Settings,
    /// The configuration wants this host's connections paced. The settings do not where they cannot be.
    pace_wanted: bool,
    found: Device,
    /// None when it was left to another agent.
    config: Option<LeasedMap<GateConfig>>,
    /// A lease has been granted.
    granted: bool,
    lifted: bool,
    /// A trial permits more delay.
    widened: bool,
    shared: Arc<Shared>,
    feeder: Option<JoinHandle<()>>,
    programs: Programs,
    /// Where sockets are paced.
    pacing: Option<Pacing>,
    /// Lines for the log since the last call of `lines`.
    lines: Vec<String>,
}

/// What the thread that carries reports shares with the daemon's.
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
    // A thread that panicked has left complete values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cure for Gate {
    const ABOUT: About = About {
        name: "gate",
        title: "the gate",
        place: Place::Device,
        program: true,
        features: &[&FEATURE, &pacing::FEATURE],
        section: None,
    };
    type Settings = Settings;
    type Figures = GateFigures;

    fn settings(document: &Document<'_>) -> settings::Result<Option<Settings>> {
        let shared = Uplink::read(document)?;
        let wanted = shared.by_reports() && !shared.shaper;
        let (sources, clsact) = (shared.sources(), shared.clsact);
        let cgroup = document.section(&SCOPE)?.filled("cgroup")?.map(PathBuf::from);
        let device = String::new();
        Ok(wanted.then_some(Settings { device, law: shared.law, sources, clsact, cgroup }))
    }

    fn on_device(settings: &mut Settings, device: &str) {
        device.clone_into(&mut settings.device);
    }

    /// Open until the first lease. Where another agent handed over, the gate begins with what that
    /// one knew of the buffer.
    fn attach(settings: &Settings, site: &Site<'_>, journal: &mut Journal) -> Result<Gate> {
        let (mut settings, mut lines) = (settings.clone(), Vec::new());
        let pacing = match settings.law.pace {
            true => Pacing::attach(site.pins, settings.cgroup.as_deref(), journal),
            false => return Gate::attach_unpaced(&settings, site, journal),
        };
        if let Err(e) = &pacing {
            // The gate alone is better than none.
            settings.law.pace = false;
            lines.push(format!("the gate: this host's connections are not paced: {e}"));
        }
        match Gate::attach_unpaced(&settings, site, journal) {
            Ok(mut gate) => {
                (gate.pacing, gate.lines) = (pacing.ok(), lines);
                gate.pace_wanted = true;
                Ok(gate)
            }
            Err(e) => {
                pacing.map_or(Ok(()), |pacing| pacing.detach(journal))?;
                Err(e)
            }
        }
    }

    fn apply(&mut self, settings: &Settings) -> Result<Applied> {
        if settings.device != self.settings.device || settings.clsact != self.settings.clsact {
            return Ok(Applied::NeedsAttach);
        }
        if settings.law.pace != self.pace_wanted || settings.cgroup != self.settings.cgroup {
            return Ok(Applied::NeedsAttach);
        }
        let elsewhere = settings.sources != self.settings.sources
            || settings.law.patience != self.settings.law.patience;
        let pace = self.settings.law.pace;
        self.settings = settings.clone();
        self.settings.law.pace = pace;
        self.write()?;
        if elsewhere {
            self.stop_listening();
            self.listen();
        }
        Ok(Applied::Now)
    }

    fn renew(&mut self, until_ns: u64) -> Result<()> {
        self.granted = true;
        self.write()?;
        self.grant(if self.lifted { 0 } else { until_ns })
    }

    /// Every packet passes while it is lifted, but reports are read.
    fn lift(&mut self, lifted: Lifted) -> Result<()> {
        if lifted.up == self.lifted {
            return Ok(());
        }
        self.lifted = lifted.up;
        self.grant(if self.lifted || !self.granted { 0 } else { lease(LEASE) })
    }

    fn report(&mut self) -> Result<(GateFigures, Vec<FlowStatus>)> {
        let c = self.shared.counters()?;
        let ebpf = locked(&self.shared.ebpf);
        let view: Array<_, GateView> = map(&ebpf, "view")?;
        let view = view.get(&0, 0).map_err(|why| CureError::Map("view", why.to_string()))?;
        let figures = GateFigures {
            cure: Gate::ABOUT.name,
            device: self.settings.device.clone(),
            telemetry: Telemetry::of(&self.telemetry()),
            reports: view.reports,
            report_age_ms: view.at_ns.saturating_sub(view.written_ns) as f64 / 1e6,
            reported_bytes: view.reported,
            occupancy_bytes: view.occupancy,
            limit_bytes: view.limit,
            delay_ms: (view.rate > 0).then(|| view.occupancy as f64 / view.rate as f64 * 1e3),
            rate_bps: view.rate.saturating_mul(8),
            fair_bytes: view.fair,
            passed: c.passed,
            passed_bytes: c.passed_bytes,
            privileged: c.privileged,
            refused_own: c.refused_own,
            refused_forwarded: c.refused_forwarded,
            unguarded: c.unguarded,
            paced: self.pacing.as_ref().map(Pacing::figures).transpose()?,
        };
        Ok((figures, Vec::new()))
    }

    fn changes(&self) -> Vec<Change> {
        self.programs.changes().to_vec()
    }

    fn hand_over(mut self, folder: &Path) -> Result<()> {
        // Reports are carried to the kernel until it is dropped.
        let place = folder.join(stamp(&self.settings, &self.found));
        handover::made(&place)?;
        let mut ebpf = locked(&self.shared.ebpf);
        self.programs.leave(&mut ebpf, &place)?;
        if let Some(config) = self.config.take() {
            config.leave(&place.join("config"))?;
        }
        for name in HANDED.into_iter().filter(|name| *name != "config") {
            let map = ebpf.map(name).ok_or_else(|| CureError::Map(name, "missing".to_owned()))?;
            map.pin(place.join(name)).map_err(|why| CureError::Map(name, kernel::whole(&why)))?;
        }
        Ok(())
    }

    fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.stop_listening();
        if let Some(pacing) = self.pacing.take() {
            pacing.detach(journal)?;
        }
        let mut ebpf = locked(&self.shared.ebpf);
        self.programs.detach(&mut ebpf, journal)
    }
}

impl Gate {
    /// Number of the program on sockets, where they are paced.
    pub(crate) fn pacing_program(&self) -> Option<u32> {
        self.pacing.as_ref().map(Pacing::program)
    }

    /// The cgroup whose sockets are paced; none: all sockets.
    pub(crate) fn pacing_scope(&self) -> Option<&Path> {
        self.settings.cgroup.as_deref()
    }

    /// The gate's own program.
    fn attach_unpaced(settings: &Settings, site: &Site<'_>, journal: &mut Journal) -> Result<Gate> {
        // Where what was left does not fit, it begins without it.
        if let Ok(Some(gate)) = Gate::take_over(settings, site.pins) {
            return Ok(gate);
        }
        let found = attach::device(&settings.device)?;
        let mut ebpf = load_with(None, paced_pins(settings, site.pins).as_deref())?;
        let device = (settings.device.as_str(), &found);
        let programs = Programs::attach(&HOOK, &mut ebpf, device, settings.clsact, journal)?;
        Gate::begin(settings, found, ebpf, programs)
    }

    /// Takes over what another agent left below `pins`; none if it left nothing.
    fn take_over(settings: &Settings, pins: &Path) -> Result<Option<Gate>> {
        let found = attach::device(&settings.device)?;
        let place = handover::folder(pins).join(stamp(settings, &found));
        if !place.is_dir() {
            return Ok(None);
        }
        let mut ebpf = load_with(Some(&place), paced_pins(settings, pins).as_deref())?;
        let (device, clsact) = (&settings.device, settings.clsact);
        let programs = Programs::take_over(&HOOK, &mut ebpf, device, clsact, &place)?;
        std::fs::remove_dir_all(&place).map_err(CureError::file(&place))?;
        Gate::begin(settings, found, ebpf, programs).map(Some)
    }

    fn begin(
        settings: &Settings,
        found: Device,
        mut ebpf: Ebpf,
        programs: Programs,
    ) -> Result<Gate> {
        let config = LeasedMap::new("config", taken(&mut ebpf, "config")?)?;
        let since = State::Silent { since_ns: now_ns(), why: "no report yet".to_owned() };
        let shared = Arc::new(Shared {
            ebpf: Mutex::new(ebpf),
            state: Mutex::new(since),
            moved: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let mut gate = Gate {
            settings: settings.clone(),
            pace_wanted: settings.law.pace,
            found,
            config: Some(config),
            granted: false,
            lifted: false,
            widened: false,
            shared,
            feeder: None,
            programs,
            pacing: None,
            lines: Vec::new(),
        };
        gate.write()?;
        gate.listen();
        Ok(gate)
    }

    /// For a trial: permits so much more delay than the target, or no longer.
    pub(crate) fn widen(&mut self, widened: bool) -> Result<()> {
        self.widened = widened;
        self.write()
    }

    /// Bytes that left the device since the gate was attached, by the reports.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// Packets that its program saw.
    pub(crate) fn packets(&self) -> Result<u64> {
        let count = self.shared.counters()?;
        Ok(count.passed + count.refused_own + count.refused_forwarded + count.unguarded)
    }

    /// Whether reports arrive, and from which source.
    pub fn telemetry(&self) -> State {
        locked(&self.shared.state).clone()
    }

    fn write(&mut self) -> Result<()> {
        let mut now = self.settings.config(&self.found);
        if self.widened {
            now.target_ns += WIDER.0;
        }
        // Also before the first report, whose source is not known yet.
        if !matches!(self.telemetry(), State::Fresh { grade: Grade::Modem, .. }) {
            now.floor = now.floor.max(u64::from(self.found.mtu) * DRIVER_FLOOR);
            now.wait_for_rate = 1;
        }
        self.config.as_ref().map_or(Ok(()), |held| held.change(|config| *config = now))
    }

    fn grant(&self, until_ns: u64) -> Result<()> {
        if let Some(pacing) = &self.pacing {
            pacing.grant(until_ns)?;
        }
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
        let timeout = Duration::from_nanos(self.settings.law.patience.0);
        self.shared.stop.store(false, Ordering::Relaxed);
        self.feeder = Some(std::thread::spawn(move || feed(&shared, sources, timeout)));
    }

    fn stop_listening(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(feeder) = self.feeder.take() {
            // It ends by itself; a panic there changes nothing here.
            let _ = feeder.join();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop_listening();
    }
}

impl Leased for GateConfig {
    fn until_ns(&mut self) -> &mut u64 {
        &mut self.lease_until_ns
    }
}

/// Carries reports to the kernel. Each source is waited for during a fraction of the timeout.
fn feed(shared: &Shared, mut sources: Vec<Box<dyn Source>>, timeout: Duration) {
    let slice = (timeout / 4).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let (mut received, mut received_ns) = (None, now_ns());
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
                    received = Some(Instant::now());
                    received_ns = now_ns();
                    let fresh = State::Fresh { source: source.name(), grade: source.grade() };
                    let mut state = locked(&shared.state);
                    if *state != fresh {
                        *state = fresh;
                    }
                    // Less trusted sources are not read while this one reports.
                    break;
                }
                Ok(None) => {
                    why = format!("{}: nothing within {} ms", source.name(), slice.as_millis())
                }
                Err(error) => why = format!("{}: {error}", source.name()),
            }
        }
        if received.is_none_or(|at| at.elapsed() >= timeout) {
            *locked(&shared.state) = State::Silent { since_ns: received_ns, why: why.clone() };
        }
    }
}

/// Why the kernel's part did not take a report.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("no such program")]
    NoProgram,
    #[error("{0}")]
    Program(#[from] ProgramError),
    #[error("answered {0}")]
    Answered(u32),
}

/// Runs the kernel's part for a report.
fn deliver(ebpf: &Ebpf, report: &Report) -> std::result::Result<(), DeliveryError> {
    let mut packet = [0; 48];
    for (place, field) in packet[16..].chunks_exact_mut(8).zip([
        report.at_ns,
        report.occupancy,
        report.granted,
        report.padding,
    ]) {
        place.copy_from_slice(&field.to_ne_bytes());
    }
    let program = ebpf.program("report").ok_or(DeliveryError::NoProgram)?;
    let program: &SchedClassifier = program.try_into()?;
    let options = TestRunOptions { data_in: Some(&packet), ..TestRunOptions::default() };
    match program.test_run(options)?.return_value {
        0 => Ok(()),
        other => Err(DeliveryError::Answered(other)),
    }
}

/// Maps that go over to another agent.
const HANDED: [&str; 4] = ["config", "state", "view", "counters"];

/// What two agents must agree upon for a hand-over, as the name of a directory. The kernel checks
/// the rest when it loads the program with the maps.
fn stamp(settings: &Settings, found: &Device) -> String {
    format!(
        "gate-{}-{}-{:?}",
        found.index,
        settings.clsact,
        [size_of::<GateConfig>(), size_of::<GateView>()]
    )
}

/// Loads the object into the kernel.
pub fn load() -> Result<Ebpf> {
    load_with(None, None)
}

/// Where the maps are pinned that it shares with the program on sockets, if sockets are paced.
fn paced_pins(settings: &Settings, pins: &Path) -> Option<PathBuf> {
    settings.law.pace.then(|| socket_walk::folder(pins))
}

fn load_with(handed: Option<&Path>, paced: Option<&Path>) -> Result<Ebpf> {
    const WHAT: &str = "the gate's program";
    let mut loader = EbpfLoader::new();
    for (names, place) in [(&HANDED[..], handed), (&pacing::SHARED, paced)] {
        for (name, place) in names.iter().zip(place.into_iter().cycle()) {
            loader.map_pin_path(name, place.join(name));
        }
    }
    let mut ebpf = loader.load(objects::GATE).map_err(|e| kernel::refused(WHAT, "5.6", &e))?;
    for name in ["egress", "report"] {
        attach::program(&mut ebpf, name)?.load().map_err(|e| kernel::refused(WHAT, "5.6", &e))?;
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
