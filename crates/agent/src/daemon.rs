//! The daemon: attaches the cures, keeps their lease, answers questions, undoes at its end.
//!
//! signal: the clock, the control socket, signals · model: one loop does everything in turn, and a thread keeps the leases as long as it
//! turns ([`crate::undo::lease`]) · action: cures are attached, set and detached; every change is in the journal before, and a supervisor sees
//! to it afterwards.

pub mod control;
pub mod log;
pub mod notify;
pub mod paths;
pub mod supervisor;
pub mod trial;

pub mod cures;
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

use crate::config::Config;
use crate::cures::CureError;
use crate::daemon::control::{Control, Question, failure};
use crate::daemon::paths::{Lock, Paths};
use crate::daemon::supervisor::Supervised;
use crate::kernel;
use crate::status::metrics::Exporter;
use crate::undo;
use crate::undo::journal::Journal;
use crate::undo::lease::{Keeper, LEASE, RENEW, lease};
use cures::Cures;
use trials::Trials;

/// While one agent takes over from another cures hold so long: its programs are loaded meanwhile, which takes seconds on small machines.
const LOADING: Duration = Duration::from_secs(10);
/// Lines of the log that `status` shows.
const REMEMBERED: usize = 50;

/// How a daemon is started.
pub struct Start {
    /// The file, read again at SIGHUP.
    pub file: Option<PathBuf>,
    /// Keys set on the command line.
    pub set: Vec<(String, String)>,
    /// Where things are.
    pub paths: Paths,
    /// This program, for the supervisor.
    pub program: PathBuf,
    /// A running agent hands over, without anything being undone.
    pub take_over: bool,
    /// All cures watch at first, and change nothing until they are told to.
    pub lifted: bool,
    /// It ends when its standard input does: with the program that wants it for a while.
    pub tied: bool,
}

impl Start {
    /// The configuration as it stands now.
    pub fn config(&self) -> Result<Config, String> {
        let text = match &self.file {
            Some(path) => {
                std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?
            }
            None => String::new(),
        };
        Config::parse(&text, &self.set, &self.paths.pins).map_err(|e| match &self.file {
            Some(path) => format!("{}: {e}", path.display()),
            None => e.to_string(),
        })
    }
}

/// A daemon at work.
struct Daemon {
    start: Start,
    cures: Cures,
    trials: Trials,
    begun: Instant,
    said: VecDeque<String>,
    /// Of listening, and the like.
    problem: Option<String>,
    exporter: Option<Exporter>,
    keeper: Keeper,
    /// Everything is undone already.
    ended: bool,
}

/// What the loop does next.
#[derive(PartialEq, Eq)]
enum Next {
    Stay,
    /// Undo and end.
    End,
    /// End, and leave all to a successor.
    HandOver,
}

/// Runs until it is told to end. `ready` is called when the cures are attached.
pub fn serve(start: Start, ready: impl FnOnce()) -> Result<(), String> {
    let config = start.config()?;
    if !config.uplink.shaper {
        // Without its types a kernel takes no program of ours: said once, not by each cure.
        kernel::types().map_err(|e| e.to_string())?;
    }
    // Before any thread, so that every one of them has it.
    let mask = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    mask.thread_block().map_err(|e| e.to_string())?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(|e| e.to_string())?;
    let (_lock, handed) = locked(&start)?;
    let mut supervisor =
        Supervised::start(&start.program, &start.paths).map_err(|e| format!("supervisor: {e}"))?;
    let journal = Journal::open(&start.paths.journal())
        .map_err(|e| format!("{}: {e}", start.paths.journal().display()))?;
    let cures = Cures::new(journal, &config, &start.paths.pins, start.lifted);
    let mut daemon = Daemon {
        start,
        cures,
        trials: Trials::new(config.trial),
        begun: Instant::now(),
        said: VecDeque::new(),
        problem: None,
        exporter: None,
        keeper: Keeper::begin().map_err(|e| format!("a thread for the leases: {e}"))?,
        ended: false,
    };
    let adopted = daemon.cures.adopt(&config, &daemon.start.paths, handed);
    daemon.say_all(adopted);
    // What could not be had is among the problems, and the rest is done.
    let had = daemon.set(&config);
    if daemon.cures.idle() {
        let (_, failed) = undo::all(&mut daemon.cures.journal);
        if failed.is_empty() {
            supervisor.dismiss();
        }
        return Err(had
            .err()
            .unwrap_or_else(|| "no cure is switched on in the configuration".to_owned()));
    }
    if let Err(e) = had {
        daemon.say(&e);
    }
    let control = Control::listen(&daemon.start.paths.socket());
    let mut control = match control {
        Ok(control) => control,
        Err(e) => {
            daemon.detach();
            supervisor.dismiss();
            return Err(format!("{}: {e}", daemon.start.paths.socket().display()));
        }
    };
    daemon.tick();
    if let (Some(missing), true) = (kernel::everywhere(), daemon.cures.receive.is_some()) {
        daemon.say(&format!(
            "downloads: no {missing}: connections of other network namespaces (containers) that exist stay as they are, and may keep a \
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
        // It would make them shorter again.
        daemon.keeper.end();
        let late = daemon.cures.hand_over(lease(LOADING));
        daemon.say_all(late);
        supervisor.dismiss();
        return Ok(());
    }
    let failed = daemon.detach();
    // What could not be undone is the supervisor's to try once more.
    match failed.is_empty() {
        true => supervisor.dismiss(),
        false => return Err(failed.join("; ")),
    }
    Ok(())
}

/// The lock: at once, from a supervisor that is about to finish, or from a daemon that hands over; whether it was.
fn locked(start: &Start) -> Result<(Lock, bool), String> {
    let begun = Instant::now();
    let mut asked = false;
    loop {
        let holder = match start
            .paths
            .lock("daemon")
            .map_err(|e| format!("{}: {e}", start.paths.runtime.display()))?
        {
            Ok(lock) => return Ok((lock, asked)),
            Err(holder) => holder,
        };
        let daemon = holder.starts_with("daemon");
        if daemon && !start.take_over {
            return Err(format!(
                "another agent runs already ({holder}); unbloat-agent status tells more"
            ));
        }
        if daemon && !asked {
            let question = json!({"ask": "hand over"});
            let told = crate::daemon::control::ask(
                &start.paths.socket(),
                &question,
                Duration::from_secs(2),
            );
            asked = matches!(told, Ok(Some(_)));
        }
        if begun.elapsed() > Duration::from_secs(10) {
            return Err(format!("{holder} does not let go of {}", start.paths.runtime.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Daemon {
    fn say(&mut self, text: &str) {
        log::say(text);
        if self.said.len() == REMEMBERED {
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
            self.keeper.beat();
            let wait = match control.waiting() {
                true => Duration::ZERO,
                false => {
                    RENEW.saturating_sub(renewed.elapsed()).min(self.trials.wait().unwrap_or(RENEW))
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
                self.say("who wanted this agent for a while has ended");
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
            }
            let tried = self.trials.tick(&mut self.cures);
            self.say_all(tried);
            while let Ok(Some(signal)) = signals.read_signal() {
                if signal.ssi_signo != Signal::SIGHUP as u32 {
                    return Next::End;
                }
                notify::reloading();
                match self.start.config().map(|config| self.set(&config)) {
                    Ok(Ok(())) => self.say("read the configuration anew"),
                    Ok(Err(e)) => {
                        self.say(&format!("read the configuration anew; not to be had: {e}"))
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
                exporter.serve(|| self.status().unwrap_or_else(failure));
                self.exporter = Some(exporter);
            }
        }
    }

    fn export(&mut self, config: &Config) -> Result<(), String> {
        Exporter::set(&mut self.exporter, config.metrics.as_ref())
            .map_err(|e| format!("metrics: {e}"))
    }

    fn tick(&mut self) {
        let said = self.cures.tick(lease(LEASE));
        self.say_all(said);
    }

    /// Does as a configuration says; what could not be had.
    fn set(&mut self, config: &Config) -> Result<(), String> {
        self.trials.set(config.trial, &mut self.cures);
        let (said, outcome) = self.cures.set(config, lease(LEASE));
        self.say_all(said);
        // Nobody's delay depends on figures.
        self.problem = self.export(config).err();
        match (&self.problem, outcome) {
            (Some(e), Err(others)) => Err(format!("{others}; {e}")),
            (Some(e), Ok(())) => Err(e.clone()),
            (None, outcome) => outcome,
        }
    }

    fn lift(&mut self, question: &Value) -> Value {
        let Some(lifted) = question["lifted"].as_bool() else {
            return failure("expected {\"ask\": \"lift\", \"lifted\": true | false}");
        };
        if lifted {
            self.trials.end(&mut self.cures);
        }
        match self.cures.lift(lifted, lease(LEASE)) {
            Ok(()) => {
                self.say(if lifted {
                    "all cures watch, and change nothing"
                } else {
                    "all cures act again"
                });
                json!({"ok": true})
            }
            Err(e) => failure(e),
        }
    }

    fn answer(&mut self, control: &mut Control, question: &Question) -> Next {
        let (answer, next) = match question.value["ask"].as_str() {
            Some("status") => (self.status().unwrap_or_else(failure), Next::Stay),
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
        let pairs = question["set"].as_array().into_iter().flatten();
        let set: Vec<(String, String)> = pairs
            .filter_map(|p| Some((p[0].as_str()?.to_owned(), p[1].as_str()?.to_owned())))
            .collect();
        let before = (self.start.set.clone(), self.start.file.clone());
        if let Some(file) = question["file"].as_str() {
            self.start.file = Some(file.into());
        }
        // What was set before stays unless it is set anew.
        self.start.set.retain(|(key, _)| !set.iter().any(|(new, _)| new == key));
        self.start.set.extend(set.iter().cloned());
        let wrong = self.problems();
        // What could not be had before is no fault of these settings.
        let known = |e: &str| e.split("; ").all(|part| wrong.iter().any(|one| one.contains(part)));
        let outcome = self.start.config().and_then(|config| match self.set(&config) {
            Err(e) if !known(&e) => Err(e),
            _ => Ok(()),
        });
        match outcome {
            Ok(()) => {
                for (key, value) in set.iter().filter(|one| !before.0.contains(one)) {
                    self.say(&format!("{key} = {value}"));
                }
                json!({"ok": true})
            }
            Err(e) => {
                (self.start.set, self.start.file) = before;
                // What was not refused with it goes, too: all of it or nothing.
                if let Err(again) = self.start.config().and_then(|config| self.set(&config)) {
                    self.say(&again);
                }
                failure(e)
            }
        }
    }

    fn problems(&self) -> Vec<String> {
        self.cures.problems().into_iter().chain(self.problem.clone()).collect()
    }

    fn status(&mut self) -> Result<Value, CureError> {
        let (cures, flows) = self.cures.status()?;
        Ok(json!({
            "ok": true,
            "state": "on",
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "up_s": self.begun.elapsed().as_secs_f64(),
            "device": self.cures.guard.device(),
            "lifted": self.cures.lifted,
            "uplink": self.cures.guard.active(),
            "cures": cures,
            "trials": self.trials.to_json(),
            "problems": self.problems(),
            "flows": flows,
            "log": self.said,
        }))
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
