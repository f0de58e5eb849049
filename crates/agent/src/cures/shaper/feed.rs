//! The shaper with a thread that carries a modem's reports to it.
//!
//! signal: reports of the modem's socket · model: the shaper's · action: each report at once; without reports the shaper is taken away.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use algo::gate::qcut_d;

use super::Shaper;
use crate::cures::{CureError, Result, now_ns};
use crate::telemetry::socket::Socket;
use crate::telemetry::{Source, State};
use crate::undo::journal::{Change, Journal};

/// See the module text.
pub struct Fed {
    shared: Arc<Shared>,
    feeder: Option<JoinHandle<()>>,
}

struct Shared {
    shaper: Mutex<Option<Shaper>>,
    state: Mutex<State>,
    moved: AtomicU64,
    lifted: AtomicBool,
    stop: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left whole values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fed {
    /// Begins to listen; HTB comes with the first rate that is known.
    pub fn attach(
        device: &str,
        law: &qcut_d::Config,
        socket: &Path,
        journal: &mut Journal,
    ) -> Result<Fed> {
        let shaper = Shaper::attach(device, law, journal)?;
        let shared = Arc::new(Shared {
            shaper: Mutex::new(Some(shaper)),
            state: Mutex::new(State::Silent {
                since_ns: now_ns(),
                why: "nothing heard yet".to_owned(),
            }),
            moved: AtomicU64::new(0),
            lifted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let patience = Duration::from_nanos(law.patience.0);
        let (source, theirs) = (Socket::new(socket), Arc::clone(&shared));
        let feeder = Some(std::thread::spawn(move || feed(&theirs, source, patience)));
        Ok(Fed { shared, feeder })
    }

    /// Whether reports come.
    pub fn telemetry(&self) -> State {
        locked(&self.shared.state).clone()
    }

    /// What is set, bytes per second.
    pub fn rate(&self) -> Option<u64> {
        locked(&self.shared.shaper).as_ref().and_then(Shaper::rate)
    }

    /// Bytes that left the device, by the reports.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// Without HTB for a while, or with it again from the next report on.
    pub fn lift(&mut self, lifted: bool) -> Result<()> {
        let mut shaper = locked(&self.shared.shaper);
        self.shared.lifted.store(lifted, Ordering::Relaxed);
        match shaper.as_mut() {
            Some(shaper) if lifted => shaper.lift(),
            _ => Ok(()),
        }
    }

    /// Everything as it was.
    pub fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.hush();
        let shaper = locked(&self.shared.shaper).take();
        shaper.map_or(Ok(()), |shaper| shaper.detach(journal))
    }

    /// Leaves HTB as it is to another agent.
    pub fn hand_over(mut self) {
        self.hush();
        if let Some(shaper) = locked(&self.shared.shaper).take() {
            shaper.hand_over();
        }
    }

    /// What the journal knows of it.
    pub fn change(&self) -> Option<Change> {
        locked(&self.shared.shaper).as_ref().map(|shaper| shaper.change().clone())
    }

    fn hush(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(feeder) = self.feeder.take() {
            // It ends by itself; how does not matter.
            let _ = feeder.join();
        }
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        self.hush();
    }
}

fn feed(shared: &Shared, mut source: Socket, patience: Duration) {
    let slice = (patience / 4).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let mut heard_ns = now_ns();
    let mut heard = false;
    while !shared.stop.load(Ordering::Relaxed) {
        let why = match source.next(slice) {
            Ok(Some(report)) => {
                (heard, heard_ns) = (true, now_ns());
                let moved = report.granted.saturating_sub(report.padding);
                shared.moved.fetch_add(moved, Ordering::Relaxed);
                let taken = told(shared, |shaper| shaper.report(&report));
                let state = match taken {
                    Ok(()) => State::Fresh { source: source.name(), grade: source.grade() },
                    Err(e) => State::Silent { since_ns: heard_ns, why: e.to_string() },
                };
                *locked(&shared.state) = state;
                continue;
            }
            Ok(None) => format!("{}: nothing within {} ms", source.name(), slice.as_millis()),
            Err(e) => format!("{}: {e}", source.name()),
        };
        let silent = now_ns().saturating_sub(heard_ns) >= patience.as_nanos() as u64;
        if silent || !heard {
            *locked(&shared.state) = State::Silent { since_ns: heard_ns, why };
            // What cannot be taken away now is tried again, and stands in the journal.
            let _ = told(shared, Shaper::tick);
        }
    }
}

fn told(
    shared: &Shared,
    what: impl FnOnce(&mut Shaper) -> Result<()>,
) -> std::result::Result<(), CureError> {
    let mut shaper = locked(&shared.shaper);
    match shaper.as_mut() {
        Some(shaper) if !shared.lifted.load(Ordering::Relaxed) => what(shaper),
        _ => Ok(()),
    }
}
