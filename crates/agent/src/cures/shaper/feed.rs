//! The shaper with a thread that carries a modem's reports to it: each report at once. Without
//! reports the shaper is removed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use algo::gate::qcut_d;
use serde::Serialize;

use super::Shaper;
use crate::cures::device::{Mode, SHAPER, Shared as Uplink};
use crate::cures::figures::{Family, Sample, gauge, value};
use crate::cures::{
    About, Applied, Cure, CureError, Figures, FlowStatus, Lifted, Place, Result, Site, now_ns,
};
use crate::kernel::{self, Feature, FeatureId};
use crate::section::Document;
use crate::telemetry::socket::Socket;
use crate::telemetry::{Source, State};
use crate::undo::journal::{Change, Journal};

/// The shaper, and the thread that feeds it.
pub struct Fed {
    settings: Settings,
    shared: Arc<Shared>,
    feeder: Option<JoinHandle<()>>,
}

struct Shared {
    shaper: Mutex<Option<Shaper>>,
    state: Mutex<State>,
    moved: AtomicU64,
    /// When the last report came, whether or not the kernel took the rate that followed from it.
    reported_ns: AtomicU64,
    lifted: AtomicBool,
    stop: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left complete values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings of the shaper.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    device: String,
    law: qcut_d::Config,
    /// The socket of a modem's reports.
    telemetry: PathBuf,
}

/// The kernel's queue discipline HTB.
static HTB: Feature = Feature {
    id: FeatureId::Htb,
    name: "the shaper (HTB)",
    since: "3.8",
    probe: || discipline("htb"),
};

/// The discipline below it.
static FQ_CODEL: Feature = Feature {
    id: FeatureId::FqCodel,
    name: "fair queues below the shaper (FQ-CoDel)",
    since: "3.5",
    probe: || discipline("fq_codel"),
};

fn discipline(name: &'static str) -> Result<()> {
    kernel::in_own_namespace(|| kernel::discipline(name))
}

/// The rate of the shaper.
#[derive(Debug, Serialize)]
pub struct ShaperFigures {
    device: String,
    rate_bps: Option<u64>,
}

const RATE: Family = gauge(
    "unbloat_shaper_rate_bytes_per_second",
    "bytes_per_second",
    "The rate that the shaper is set to.",
);

impl Figures for ShaperFigures {
    fn line(&self) -> String {
        match self.rate_bps {
            Some(bps) => format!("{:.2} Mbit/s", bps as f64 / 1e6),
            None => "no rate yet".to_owned(),
        }
    }

    fn samples(&self) -> Vec<Sample> {
        self.rate_bps.map(|bps| value(RATE, &[], bps as f64 / 8.0)).into_iter().collect()
    }
}

impl Cure for Fed {
    const ABOUT: About = About {
        name: "shaper",
        title: "the shaper",
        place: Place::Device,
        program: false,
        features: &[&HTB, &FQ_CODEL],
        section: Some(&SHAPER),
    };
    type Settings = Settings;
    type Figures = ShaperFigures;

    fn settings(document: &Document<'_>) -> settings::Result<Option<Settings>> {
        let shared = Uplink::read(document)?;
        if !shared.shaper {
            return Ok(None);
        }
        let at = document.section(&SHAPER)?;
        let Some(telemetry) = shared.telemetry else {
            let text = "a shaper needs a modem's reports: set uplink.telemetry";
            return at.refuse("enabled", text);
        };
        if matches!(shared.mode, Mode::Acks | Mode::Off) {
            let text = "the shaper stands for the gate: uplink.mode has to be \"auto\" or \"gate\"";
            return at.refuse("enabled", text);
        }
        Ok(Some(Settings { device: String::new(), law: shared.law, telemetry }))
    }

    fn on_device(settings: &mut Settings, device: &str) {
        device.clone_into(&mut settings.device);
    }

    /// HTB comes with the first rate that is known.
    fn attach(settings: &Settings, _site: &Site<'_>, journal: &mut Journal) -> Result<Fed> {
        let shaper = Shaper::attach(&settings.device, &settings.law, journal)?;
        let shared = Arc::new(Shared {
            shaper: Mutex::new(Some(shaper)),
            state: Mutex::new(State::Silent {
                since_ns: now_ns(),
                why: "no report yet".to_owned(),
            }),
            moved: AtomicU64::new(0),
            reported_ns: AtomicU64::new(0),
            lifted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let timeout = Duration::from_nanos(settings.law.patience.0);
        let (source, theirs) = (Socket::new(&settings.telemetry), Arc::clone(&shared));
        let feeder = Some(std::thread::spawn(move || feed(&theirs, source, timeout)));
        Ok(Fed { settings: settings.clone(), shared, feeder })
    }

    /// Its law is read when it is attached.
    fn apply(&mut self, settings: &Settings) -> Result<Applied> {
        Ok(if *settings == self.settings { Applied::Now } else { Applied::NeedsAttach })
    }

    /// It has none: reports that stop take it away, and the supervisor undoes it.
    fn renew(&mut self, _until_ns: u64) -> Result<()> {
        Ok(())
    }

    /// Without HTB for a while, or with it again from the next report on.
    fn lift(&mut self, lifted: Lifted) -> Result<()> {
        let mut shaper = locked(&self.shared.shaper);
        self.shared.lifted.store(lifted.up, Ordering::Relaxed);
        match shaper.as_mut() {
            Some(shaper) if lifted.up => shaper.lift(),
            _ => Ok(()),
        }
    }

    fn report(&mut self) -> Result<(ShaperFigures, Vec<FlowStatus>)> {
        let rate = locked(&self.shared.shaper).as_ref().and_then(Shaper::rate);
        let rate_bps = rate.map(|rate| rate.saturating_mul(8));
        Ok((ShaperFigures { device: self.settings.device.clone(), rate_bps }, Vec::new()))
    }

    fn changes(&self) -> Vec<Change> {
        let shaper = locked(&self.shared.shaper);
        shaper.iter().map(|shaper| shaper.change().clone()).collect()
    }

    /// HTB stays as it is.
    fn hand_over(mut self, _folder: &Path) -> Result<()> {
        self.stop();
        if let Some(shaper) = locked(&self.shared.shaper).take() {
            shaper.hand_over();
        }
        Ok(())
    }

    fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.stop();
        let shaper = locked(&self.shared.shaper).take();
        shaper.map_or(Ok(()), |shaper| shaper.detach(journal))
    }
}

impl Fed {
    /// Whether reports arrive, and from which source.
    pub fn telemetry(&self) -> State {
        locked(&self.shared.state).clone()
    }

    /// Bytes that left the device, by the reports.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// Whether it has to limit what leaves: reports come, and it is not lifted.
    pub(crate) fn in_charge(&self) -> bool {
        let silent = now_ns().saturating_sub(self.shared.reported_ns.load(Ordering::Relaxed));
        silent < self.settings.law.patience.0 && !self.shared.lifted.load(Ordering::Relaxed)
    }

    /// Bytes that left through HTB since it was made; 0 while there is none.
    pub(crate) fn shaped_bytes(&self) -> Result<u64> {
        locked(&self.shared.shaper).as_mut().map_or(Ok(0), Shaper::shaped_bytes)
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(feeder) = self.feeder.take() {
            // It ends by itself; a panic there changes nothing here.
            let _ = feeder.join();
        }
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        self.stop();
    }
}

fn feed(shared: &Shared, mut source: Socket, timeout: Duration) {
    let slice = (timeout / 4).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let mut received_ns = now_ns();
    let mut received = false;
    while !shared.stop.load(Ordering::Relaxed) {
        let why = match source.next(slice) {
            Ok(Some(report)) => {
                (received, received_ns) = (true, now_ns());
                shared.reported_ns.store(received_ns, Ordering::Relaxed);
                let moved = report.granted.saturating_sub(report.padding);
                shared.moved.fetch_add(moved, Ordering::Relaxed);
                let taken = with_shaper(shared, |shaper| shaper.report(&report));
                let state = match taken {
                    Ok(()) => State::Fresh { source: source.name(), grade: source.grade() },
                    Err(e) => State::Silent { since_ns: received_ns, why: e.to_string() },
                };
                *locked(&shared.state) = state;
                continue;
            }
            Ok(None) => format!("{}: nothing within {} ms", source.name(), slice.as_millis()),
            Err(e) => format!("{}: {e}", source.name()),
        };
        let silent = now_ns().saturating_sub(received_ns) >= timeout.as_nanos() as u64;
        if silent || !received {
            *locked(&shared.state) = State::Silent { since_ns: received_ns, why };
            // What cannot be taken away now is tried again, and stands in the journal.
            let _ = with_shaper(shared, Shaper::tick);
        }
    }
}

fn with_shaper(
    shared: &Shared,
    what: impl FnOnce(&mut Shaper) -> Result<()>,
) -> std::result::Result<(), CureError> {
    let mut shaper = locked(&shared.shaper);
    match shaper.as_mut() {
        Some(shaper) if !shared.lifted.load(Ordering::Relaxed) => what(shaper),
        _ => Ok(()),
    }
}
