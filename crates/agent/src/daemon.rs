//! The daemon: attaches the cures, renews their leases, answers requests, undoes at its end.
//!
//! One loop does everything in turn; a thread renews the leases as long as the loop turns
//! ([`crate::undo::lease`]). Every change is in the journal before it is made, and a supervisor
//! undoes it when the daemon dies.

pub mod control;
pub mod log;
pub mod notify;
pub mod paths;
pub mod supervisor;

pub mod cures;
mod take_over;
mod trials;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde_json::{Value, json};

use crate::config::{Config, ConfigError};
use crate::cures::CureError;
use crate::daemon::control::{Control, Question, failure};
use crate::daemon::paths::{Holder, Paths};
use crate::daemon::supervisor::Supervised;
use crate::kernel;
use crate::status::metrics::{self, Exporter};
use crate::status::{Status, table};
use crate::undo;
use crate::undo::handover::inherit;
use crate::undo::journal::Journal;
use crate::undo::lease::{LEASE, LeaseRenewer, RENEW, end_inherited, lease};
use crate::uplink::controller::Problem;
use cures::Cures;
use take_over::locked;
use trials::Trials;

/// Lines of the log that `status` shows.
const LOG_LINES: usize = 50;

/// How a daemon is started.
pub struct Start {
    /// The file, read again at SIGHUP.
    pub file: Option<PathBuf>,
    /// Keys set on the command line.
    pub set: Pairs,
    /// Paths of the runtime directory and the pins.
    pub paths: Paths,
    /// This program, for the supervisor.
    pub program: PathBuf,
    /// A running agent hands over, without anything being undone.
    pub take_over: bool,
    /// All cures watch at first, and change nothing until the agent activates them.
    pub lifted: bool,
    /// It ends when its standard input does: with the program that wants it for a while.
    pub tied: bool,
}

impl Start {
    /// The configuration as it stands now.
    pub fn config(&self) -> Result<Config, LoadError> {
        let Some(path) = &self.file else {
            return Ok(Config::parse("", &self.set, &self.paths.pins)?);
        };
        let text = std::fs::read_to_string(path)
            .map_err(|why| LoadError::Unreadable { path: path.clone(), why })?;
        Config::parse(&text, &self.set, &self.paths.pins)
            .map_err(|why| LoadError::InFile { path: path.clone(), why })
    }
}

/// Why a configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its file cannot be read.
    #[error("{}: {why}", path.display())]
    Unreadable {
        /// Path of the configuration.
        path: PathBuf,
        /// The error of the system.
        why: std::io::Error,
    },
    /// Its file, or a setting beside it, is wrong.
    #[error("{}: {why}", path.display())]
    InFile {
        /// Path of the configuration.
        path: PathBuf,
        /// The error in the configuration.
        why: ConfigError,
    },
    /// A setting is wrong; there is no file.
    #[error(transparent)]
    Settings(#[from] ConfigError),
}

/// Why a daemon did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration could not be loaded.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// The kernel lacks what every cure needs.
    #[error(transparent)]
    Cure(#[from] CureError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Errno),
    /// A file or process could not be used.
    #[error("{what}: {why}")]
    Io {
        /// The file or process.
        what: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// Another agent runs on this host: its role and process.
    #[error("another agent runs already ({0}); see unbloat-agent status")]
    Running(Holder),
    /// Another process keeps the lock.
    #[error("{holder} does not let go of {}", runtime.display())]
    Locked {
        /// The process that has the lock.
        holder: Holder,
        /// The runtime directory, where the lock is.
        runtime: PathBuf,
    },
    /// The configuration wants no cure.
    #[error("no cure is switched on in the configuration")]
    NoCure,
    /// No cure that is wanted is available, or some changes could not be undone: one line each.
    #[error("{}", .0.join("; "))]
    Lines(Vec<String>),
}

fn io(what: impl ToString) -> impl FnOnce(std::io::Error) -> DaemonError {
    let what = what.to_string();
    move |why| DaemonError::Io { what, why }
}

/// A daemon at work.
struct Daemon {
    start: Start,
    cures: Cures,
    trials: Trials,
    begun: Instant,
    said: VecDeque<String>,
    /// The metrics endpoint does not listen.
    problem: Option<Problem>,
    exporter: Option<Exporter>,
    leases: LeaseRenewer,
    /// Everything is undone already.
    ended: bool,
}

/// What the loop does next.
#[derive(PartialEq, Eq)]
enum Next {
    Stay,
    /// Undo all changes, then end.
    End,
    /// End, and leave all to a successor.
    HandOver,
}

/// Runs until a signal or a request ends it. `ready` is called when the cures are attached.
pub fn serve(start: Start, ready: impl FnOnce()) -> Result<(), DaemonError> {
    let config = start.config()?;
    // Before any thread, so that every one of them has it.
    let mask = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let supervise = || Supervised::start(&start.program, &start.paths).map_err(io("supervisor"));
    // Before another agent lets go: where this one is killed then, it undoes what is left.
    let waiting = start.take_over.then(supervise).transpose()?;
    let (_lock, handed) = match locked(&start) {
        Ok(locked) => locked,
        Err(e) => {
            waiting.into_iter().for_each(Supervised::dismiss);
            return Err(e);
        }
    };
    let leases = LeaseRenewer::start().map_err(io("a thread for the leases"))?;
    if handed {
        // From here on, however long the programs take to load.
        inherit(&start.paths.pins);
    }
    let mut supervisor = waiting.map_or_else(supervise, Ok)?;
    let journal = start.paths.journal();
    let journal = Journal::open(&journal).map_err(io(journal.display()))?;
    let cures = Cures::new(journal, &config, &start.paths.pins, start.lifted);
    let mut daemon = Daemon {
        start,
        cures,
        trials: Trials::new(config.trial),
        begun: Instant::now(),
        said: VecDeque::new(),
        problem: None,
        exporter: None,
        leases,
        ended: false,
    };
    let adopted = daemon.cures.adopt(&config, &daemon.start.paths, handed);
    daemon.say_all(adopted);
    // A cure that is not available is among the problems, and the others act.
    let failed = daemon.set(&config);
    if daemon.cures.idle() {
        // Nor is what another agent left to be renewed any more.
        end_inherited();
        let (_, kept) = undo::all(&mut daemon.cures.journal);
        if kept.is_empty() {
            supervisor.dismiss();
        }
        return Err(match failed.is_empty() {
            true => DaemonError::NoCure,
            false => DaemonError::Lines(failed.into_iter().map(|problem| problem.text).collect()),
        });
    }
    if !failed.is_empty() {
        daemon.say(&joined(&failed));
    }
    let control = Control::listen(&daemon.start.paths.socket());
    let mut control = match control {
        Ok(control) => control,
        Err(e) => {
            daemon.detach();
            supervisor.dismiss();
            return Err(io(daemon.start.paths.socket().display())(e));
        }
    };
    daemon.tick();
    // What no cure has taken over by now is not wanted.
    end_inherited();
    if let (Some(missing), true) = (kernel::everywhere(), daemon.cures.attached.receive.is_some()) {
        daemon.say(&format!(
            "downloads: no {missing}: existing connections of other network namespaces (containers) stay as they are, and may keep a \
             clamp after off while they are idle"
        ));
    }
    ready();
    notify::say("READY=1");
    let next = daemon.run(&mut control, &signals, &mut supervisor);
    notify::say("STOPPING=1");
    let _ = std::fs::remove_file(daemon.start.paths.socket());
    if next == Next::HandOver {
        daemon.say("handing over to another agent");
        daemon.trials.end(&mut daemon.cures);
        let late = daemon.cures.hand_over(lease(LEASE));
        daemon.say_all(late);
        supervisor.dismiss();
        return Ok(());
    }
    let failed = daemon.detach();
    if !failed.is_empty() {
        // The supervisor tries once more.
        return Err(DaemonError::Lines(failed));
    }
    supervisor.dismiss();
    Ok(())
}

/// Keys with their values.
type Pairs = Vec<(String, String)>;

/// The file and the settings of a request; none where it is malformed.
fn settings(question: &Value) -> Option<(Option<PathBuf>, Pairs)> {
    let pair = |pair: &Value| match pair.as_array()?.as_slice() {
        [key, value] => Some((key.as_str()?.to_owned(), value.as_str()?.to_owned())),
        _ => None,
    };
    let file = match &question["file"] {
        Value::Null => None,
        file => Some(file.as_str()?.into()),
    };
    let set = match &question["set"] {
        Value::Null => Vec::new(),
        set => set.as_array()?.iter().map(pair).collect::<Option<_>>()?,
    };
    Some((file, set))
}

/// Messages of problems in one line.
fn joined(problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.text.as_str()).collect::<Vec<_>>().join("; ")
}

impl Daemon {
    fn say(&mut self, text: &str) {
        log::say(text);
        if self.said.len() == LOG_LINES {
            self.said.pop_front();
        }
        self.said.push_back(text.to_owned());
    }

    fn say_all(&mut self, lines: Vec<String>) {
        for line in lines {
            self.say(&line);
        }
    }

    fn run(
        &mut self,
        control: &mut Control,
        signals: &SignalFd,
        supervisor: &mut Supervised,
    ) -> Next {
        let mut renewed = Instant::now();
        loop {
            self.leases.beat();
            let wait = match control.waiting() {
                true => Duration::ZERO,
                false => {
                    let others = [self.trials.wait(), self.cures.idle.wait()];
                    let others = others.into_iter().flatten().min().unwrap_or(RENEW);
                    RENEW.saturating_sub(renewed.elapsed()).min(others)
                }
            };
            let mut sources: Vec<PollFd<'_>> =
                control.sources().into_iter().map(|(fd, flags)| PollFd::new(fd, flags)).collect();
            sources.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
            let figures = self.exporter.iter().flat_map(Exporter::sources);
            sources.extend(figures.map(|(fd, flags)| PollFd::new(fd, flags)));
            let stdin = std::io::stdin();
            if self.start.tied {
                sources.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
            let timeout =
                PollTimeout::try_from(wait.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX);
            match poll(&mut sources, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => {
                    self.say(&format!("poll: {e}"));
                    return Next::End;
                }
            }
            if self.start.tied && sources.last().and_then(PollFd::any).unwrap_or(false) {
                self.say("the program that started this agent has ended");
                return Next::End;
            }
            if renewed.elapsed() >= RENEW {
                renewed = Instant::now();
                notify::alive();
                let late = self.cures.renew(lease(LEASE));
                self.say_all(late);
                self.tick();
                if !supervisor.lives() {
                    self.say("the supervisor has ended; starting another one");
                    match Supervised::start(&self.start.program, &self.start.paths) {
                        Ok(new) => *supervisor = new,
                        Err(e) => self.say(&format!("supervisor: {e}; only the lease undoes now")),
                    }
                }
            } else if self.cures.idle.wait() == Some(Duration::ZERO) {
                let found = self.cures.watch();
                self.say_all(found);
            }
            let tried = self.trials.tick(&mut self.cures);
            self.say_all(tried);
            while let Ok(Some(signal)) = signals.read_signal() {
                if signal.ssi_signo != Signal::SIGHUP as u32 {
                    return Next::End;
                }
                notify::reloading();
                match self.start.config().map(|config| self.set(&config)) {
                    Ok(failed) if failed.is_empty() => self.say("configuration reloaded"),
                    Ok(failed) => {
                        let why = joined(&failed);
                        self.say(&format!("configuration reloaded, but not applied: {why}"))
                    }
                    Err(e) => self.say(&format!("the configuration stays as it was: {e}")),
                }
                notify::say("READY=1");
            }
            for question in control.questions() {
                let next = self.answer(control, &question);
                if next != Next::Stay {
                    return next;
                }
            }
            if let Some(mut exporter) = self.exporter.take() {
                exporter.serve(|flows| match self.status() {
                    Ok(status) => metrics::page(&status, flows),
                    Err(_) => metrics::EMPTY.to_owned(),
                });
                self.exporter = Some(exporter);
            }
        }
    }

    fn tick(&mut self) {
        let said = self.cures.tick(lease(LEASE));
        self.say_all(said);
    }

    /// Applies a configuration; the failures.
    fn set(&mut self, config: &Config) -> Vec<Problem> {
        self.trials.set(config.trial, &mut self.cures);
        let (lines, mut failed) = self.cures.set(config, lease(LEASE));
        self.say_all(lines);
        // No cure depends on the metrics.
        let exported = Exporter::set(&mut self.exporter, config.metrics.as_ref());
        self.problem = exported.err().map(|e| {
            let text = format!("metrics: {e}");
            Problem { of: "metrics", text }
        });
        failed.extend(self.problem.clone());
        failed
    }

    fn lift(&mut self, question: &Value) -> Value {
        let Some(lifted) = question["lifted"].as_bool() else {
            return failure("expected {\"ask\": \"lift\", \"lifted\": true | false}");
        };
        if lifted {
            self.trials.end(&mut self.cures);
        }
        let failed = self.cures.lift(lifted);
        if !failed.is_empty() {
            return failure(joined(&failed));
        }
        self.say(match lifted {
            true => "all cures watch, and change nothing",
            false => "all cures act",
        });
        json!({"ok": true})
    }

    fn answer(&mut self, control: &mut Control, question: &Question) -> Next {
        let ask = question.value["ask"].as_str();
        // Off is wanted later, too.
        if ask != Some("off") && question.late(kernel::now_ns()) {
            control.answer(question, &failure("too late: the program that asked no longer waits"));
            return Next::Stay;
        }
        let (answer, next) = match ask {
            Some("status") => (self.status_answer(&question.value), Next::Stay),
            Some("set") => (self.set_from(&question.value), Next::Stay),
            Some("lift") => (self.lift(&question.value), Next::Stay),
            Some("off") => {
                let failed = self.detach();
                let answer = if failed.is_empty() {
                    json!({"ok": true})
                } else {
                    failure(failed.join("; "))
                };
                (answer, Next::End)
            }
            Some("hand over") if question.gone => {
                (failure("the other agent has ended"), Next::Stay)
            }
            Some("hand over") => (json!({"ok": true}), Next::HandOver),
            _ => (
                failure(
                    "expected {\"ask\": \"status\" | \"set\" | \"lift\" | \"off\" | \"hand over\"}",
                ),
                Next::Stay,
            ),
        };
        control.answer(question, &answer);
        next
    }

    fn set_from(&mut self, question: &Value) -> Value {
        let Some((file, set)) = settings(question) else {
            return failure(
                "expected {\"ask\": \"set\", \"set\": [[\"KEY\", \"VALUE\"], …], \"file\": \"PATH\"}, values as text",
            );
        };
        let before = (self.start.set.clone(), self.start.file.clone());
        if let Some(file) = file {
            self.start.file = Some(file);
        }
        // What was set before stays unless it is set again.
        self.start.set.retain(|(key, _)| !set.iter().any(|(new, _)| new == key));
        self.start.set.extend(set.iter().cloned());
        let known = self.problems();
        let outcome = match self.start.config().map(|config| self.set(&config)) {
            Err(e) => Err(e.to_string()),
            // A problem that was there before is no fault of these settings.
            Ok(failed) if failed.iter().all(|problem| known.contains(problem)) => Ok(()),
            Ok(failed) => Err(joined(&failed)),
        };
        match outcome {
            Ok(()) => {
                for (key, value) in set.iter().filter(|one| !before.0.contains(one)) {
                    self.say(&format!("{key} = {value}"));
                }
                json!({"ok": true})
            }
            Err(e) => {
                (self.start.set, self.start.file) = before;
                // All of the settings or none: those that were applied are taken back.
                match self.start.config().map(|config| self.set(&config)) {
                    Err(again) => self.say(&again.to_string()),
                    Ok(failed) if !failed.is_empty() => self.say(&joined(&failed)),
                    Ok(_) => {}
                }
                failure(e)
            }
        }
    }

    fn problems(&self) -> Vec<Problem> {
        self.cures.problems().into_iter().chain(self.problem.clone()).collect()
    }

    fn status(&mut self) -> Result<Status, CureError> {
        let (cures, flows) = self.cures.report()?;
        let controller = &self.cures.controller;
        Ok(Status {
            ok: true,
            state: "on",
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            up_s: self.begun.elapsed().as_secs_f64(),
            device: controller.device().map(str::to_owned),
            lifted: self.cures.lifted,
            uplink: controller.active(&self.cures.attached),
            cures,
            trials: self.trials.report(),
            problems: self.problems().into_iter().map(|problem| problem.text).collect(),
            work: self.cures.idle.work(),
            other_programs: self.cures.others.found().to_vec(),
            flags_replaced: self.cures.others.replaced(&self.cures.attached),
            flows,
            log: self.said.clone(),
        })
    }

    /// The status as JSON, with the text of `status` beside it where a request asks for that.
    fn status_answer(&mut self, request: &Value) -> Value {
        let status = match self.status() {
            Ok(status) => status,
            Err(e) => return failure(e),
        };
        let mut answer = json!(status);
        if request["text"] == true {
            answer["text"] = table::table(&status, request["columns"].as_u64()).into();
        }
        answer
    }

    /// Undoes everything; what could not be.
    fn detach(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.ended, true) {
            return Vec::new();
        }
        let failed = self.cures.detach();
        match failed.is_empty() {
            true => self.say("everything is as it was"),
            false => self.say(&format!("not undone: {}", failed.join("; "))),
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_request_for_settings_is_no_request() {
        let pair = ("receive.lambda".to_owned(), "2".to_owned());
        let found = settings(&json!({"ask": "set", "set": [["receive.lambda", "2"]]}));
        assert_eq!(found, Some((None, vec![pair])));
        let file = settings(&json!({"ask": "set", "file": "/etc/agent.toml", "set": null}));
        assert_eq!(file, Some((Some("/etc/agent.toml".into()), Vec::new())));
        for malformed in [
            json!({"set": [["receive.lambda", 2]]}),
            json!({"set": "x"}),
            json!({"set": [["a"]]}),
            json!({"set": [["a", "b", "c"]]}),
            json!({"set": [["a", "b"], 1]}),
            json!({"file": 1}),
        ] {
            assert_eq!(settings(&malformed), None, "{malformed}");
        }
    }
}
