//! Runs a scenario: results, and a capture per node.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use scenario::Scenario;
use units::Instant;

use crate::frame::Frame;
use crate::record::{Conservation, Results};
use crate::simulation::{NoCapture, Simulation, Tap};
use crate::wire::{self, WireParameters};

/// Why a run gave no results.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The caller's progress function stopped the run.
    #[error("stopped")]
    Stopped,
    /// Frames appeared or vanished: a defect of the engine, never of the scenario.
    #[error("frames are not conserved: {0:?}")]
    NotConserved(Conservation),
    /// A capture file could not be written.
    #[error("{path}: {source}")]
    Capture {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// What a run records beyond its usual tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Records a row for each loss and mark.
    pub events: bool,
}

/// Runs a scenario; `progress` gets the share done and stops the run by returning false.
pub fn run(
    scenario: &Scenario,
    options: Options,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Results, SimError> {
    let simulation = Simulation::new(scenario, NoCapture, options.events);
    let (results, _) = simulation.run(progress).ok_or(SimError::Stopped)?;
    conserved(results)
}

/// A run counts only if every frame is accounted for.
fn conserved(results: Results) -> Result<Results, SimError> {
    if results.conservation.holds() {
        Ok(results)
    } else {
        Err(SimError::NotConserved(results.conservation))
    }
}

/// One capture file per node.
pub struct Captures {
    files: Vec<(PathBuf, wire::Tap<BufWriter<File>>)>,
    failed: Option<(PathBuf, io::Error)>,
}

impl Captures {
    /// Creates `DIR/<node>.pcapng` for each node.
    pub fn create(scenario: &Scenario, dir: &Path) -> Result<Captures, SimError> {
        let error =
            |path: &Path, source| SimError::Capture { path: path.display().to_string(), source };
        std::fs::create_dir_all(dir).map_err(|e| error(dir, e))?;
        let mut files = Vec::new();
        for node in &scenario.nodes {
            let path = dir.join(format!("{}.pcapng", node.name));
            let file = File::create(&path).map_err(|e| error(&path, e))?;
            let tap = wire::Tap::new(BufWriter::with_capacity(1 << 20, file), &node.name)
                .map_err(|e| error(&path, e))?;
            files.push((path, tap));
        }
        Ok(Captures { files, failed: None })
    }

    /// Flushes all files; their paths.
    fn finish(self, end: Instant) -> Result<Vec<PathBuf>, SimError> {
        let error =
            |path: &Path, source| SimError::Capture { path: path.display().to_string(), source };
        if let Some((path, source)) = self.failed {
            return Err(error(&path, source));
        }
        let mut paths = Vec::new();
        for (path, tap) in self.files {
            tap.finish(end).map_err(|e| error(&path, e))?;
            paths.push(path);
        }
        Ok(paths)
    }
}

impl Tap for Captures {
    fn frame(&mut self, node: usize, now: Instant, frame: &Frame, wire: &WireParameters) {
        if self.failed.is_some() {
            return;
        }
        if let Some((path, tap)) = self.files.get_mut(node)
            && let Err(error) = tap.write(now, frame, wire)
        {
            self.failed = Some((path.clone(), error));
        }
    }
}

/// Runs a scenario and writes a capture per node; returns the results and the paths of the files.
pub fn run_with_captures(
    scenario: &Scenario,
    options: Options,
    captures: Captures,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<(Results, Vec<PathBuf>), SimError> {
    let simulation = Simulation::new(scenario, captures, options.events);
    let (results, captures) = simulation.run(progress).ok_or(SimError::Stopped)?;
    Ok((conserved(results)?, captures.finish(Instant(scenario.duration.0))?))
}
