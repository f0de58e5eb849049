//! The daemon: attaches the cures, keeps their lease, answers questions, undoes at its end.
//!
//! signal: the clock, the control socket, signals · model: a lease of two seconds that is renewed every half, so that three renewals in a row may be
//! late · action: cures are attached, set and detached; every change is in the journal before, and a supervisor sees to it afterwards.

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
use crate::congestion::Congestion;
use crate::control::{Control, Question, failure};
use crate::cure::{CureError, now_ns};
use crate::journal::{Change, Journal};
use crate::log;
use crate::metrics::Exporter;
use crate::notify;
use crate::paths::{Lock, Paths};
use crate::receive::{Event, Receive};
use crate::sockets::{self, LINKS};
use crate::supervisor::Supervised;
use crate::undo;

/// How long cures hold without a renewal.
pub const LEASE: Duration = Duration::from_secs(2);
/// Between two renewals.
const RENEW: Duration = Duration::from_millis(500);
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
}

impl Start {
    /// The configuration as it stands now.
    pub fn config(&self) -> Result<Config, String> {
        let text = match &self.file {
            Some(path) => std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?,
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
    journal: Journal,
    receive: Option<Receive>,
    congestion: Option<Congestion>,
    begun: Instant,
    said: VecDeque<String>,
    problems: Vec<String>,
    exporter: Option<Exporter>,
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
    // Before any thread, so that every one of them has it.
    let mask = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    mask.thread_block().map_err(|e| e.to_string())?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(|e| e.to_string())?;
    let _lock = locked(&start)?;
    let mut supervisor =
        Supervised::start(&start.program, &start.paths).map_err(|e| format!("supervisor: {e}"))?;
    let journal = Journal::open(&start.paths.journal())
        .map_err(|e| format!("{}: {e}", start.paths.journal().display()))?;
    let mut daemon = Daemon {
        start,
        journal,
        receive: None,
        congestion: None,
        begun: Instant::now(),
        said: VecDeque::new(),
        problems: Vec::new(),
        exporter: None,
    };
    daemon.adopt(&config);
    daemon.attach(&config);
    if let Err(e) = daemon.export(&config) {
        // Nobody's delay depends on figures.
        daemon.problem(e);
    }
    if daemon.receive.is_none() && daemon.congestion.is_none() {
        let (_, failed) = undo::all(&mut daemon.journal);
        if failed.is_empty() {
            supervisor.dismiss();
        }
        let why = daemon.problems.join("; ");
        return Err(if why.is_empty() {
            "no cure is switched on in the configuration".to_owned()
        } else {
            why
        });
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
    ready();
    notify::say("READY=1");
    let next = daemon.run(&mut control, &signals, &mut supervisor);
    notify::say("STOPPING=1");
    let _ = std::fs::remove_file(daemon.start.paths.socket());
    if next == Next::HandOver {
        daemon.say("handing over to another agent");
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

/// The lock: at once, from a supervisor that is about to finish, or from a daemon that hands over.
fn locked(start: &Start) -> Result<Lock, String> {
    let begun = Instant::now();
    let mut asked = false;
    loop {
        let holder = match start
            .paths
            .lock("daemon")
            .map_err(|e| format!("{}: {e}", start.paths.runtime.display()))?
        {
            Ok(lock) => return Ok(lock),
            Err(holder) => holder,
        };
        let daemon = holder.starts_with("daemon");
        if daemon && !start.take_over {
            return Err(format!("another agent runs already ({holder}); unbloat-agent status tells more"));
        }
        if daemon && !asked {
            let question = json!({"ask": "hand over"});
            let told = crate::control::ask(&start.paths.socket(), &question, Duration::from_secs(2));
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

    /// What a dead agent left: taken over where it is the same as what is wanted, undone where not.
    fn adopt(&mut self, config: &Config) {
        let pins = self.start.paths.pins.clone();
        let wanted = [config.receive.is_some(), config.congestion.is_some()];
        let folder = sockets::folder(&pins);
        let odd = LINKS.iter().zip(wanted).any(|(name, wanted)| folder.join(name).exists() && !wanted);
        let ours = Change::Sockets { pins };
        let left = self.journal.pending().to_vec();
        if left.is_empty() {
            return;
        }
        if left == [ours] && !odd {
            self.say("taking over from an agent that ended without undoing what it did");
            return;
        }
        self.say("undoing what an agent left that ended before");
        let (done, failed) = undo::all(&mut self.journal);
        for text in done.into_iter().chain(failed.iter().map(|e| format!("could not undo: {e}"))) {
            self.say(&text);
        }
    }

    fn attach(&mut self, config: &Config) {
        let until = lease();
        if let Some(settings) = &config.receive {
            match Receive::attach(settings, &mut self.journal, until) {
                Ok(receive) => {
                    let scope = settings
                        .cgroup
                        .as_ref()
                        .map_or("this whole host".to_owned(), |c| c.display().to_string());
                    let lambda = settings.law.lambda as f64 / 16.0;
                    let verb = if settings.observe { "watching" } else { "holding" };
                    self.say(&format!("downloads: {verb} RTT at {lambda} times its minimum, for {scope}"));
                    self.receive = Some(receive);
                }
                Err(e) => self.problem(format!("downloads: {e}")),
            }
        }
        if let Some(settings) = &config.congestion {
            match Congestion::attach(settings, &mut self.journal, until) {
                Ok(congestion) => {
                    self.congestion = Some(congestion);
                    self.switch();
                }
                Err(e) => self.problem(format!("congestion control: {e}")),
            }
        }
    }

    fn problem(&mut self, text: String) {
        self.say(&text);
        self.problems.push(text);
    }

    fn switch(&mut self) {
        let Some(congestion) = &mut self.congestion else { return };
        match congestion.switch_live() {
            Ok(0) => {}
            Ok(n) => self.say(&format!("congestion control: changed for {n} connections that existed")),
            Err(e) => self.problem(format!("congestion control of connections that exist: {e}")),
        }
    }

    fn run(&mut self, control: &mut Control, signals: &SignalFd, supervisor: &mut Supervised) -> Next {
        let mut renewed = Instant::now();
        loop {
            let wait = RENEW.saturating_sub(renewed.elapsed());
            let mut sources: Vec<PollFd<'_>> =
                control.sources().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            sources.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
            let figures = self.exporter.iter().flat_map(Exporter::sources);
            sources.extend(figures.map(|(fd, flags)| PollFd::new(fd, flags)));
            let timeout = PollTimeout::try_from(wait.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX);
            match poll(&mut sources, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => {
                    self.say(&format!("poll: {e}"));
                    return Next::End;
                }
            }
            if renewed.elapsed() >= RENEW {
                renewed = Instant::now();
                notify::alive();
                self.renew();
                self.tick();
                if !supervisor.lives() {
                    self.say("the supervisor has ended; starting another one");
                    match Supervised::start(&self.start.program, &self.start.paths) {
                        Ok(new) => *supervisor = new,
                        Err(e) => self.say(&format!("supervisor: {e}; only the lease undoes now")),
                    }
                }
            }
            while let Ok(Some(signal)) = signals.read_signal() {
                if signal.ssi_signo != Signal::SIGHUP as u32 {
                    return Next::End;
                }
                notify::reloading();
                match self.start.config().and_then(|config| self.set(&config)) {
                    Ok(()) => self.say("read the configuration anew"),
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
        Exporter::set(&mut self.exporter, config.metrics.as_ref()).map_err(|e| format!("metrics: {e}"))
    }

    fn renew(&mut self) {
        let until = lease();
        let failed = [
            self.receive.as_mut().and_then(|cure| cure.renew(until).err()),
            self.congestion.as_mut().and_then(|cure| cure.renew(until).err()),
        ];
        for e in failed.into_iter().flatten() {
            self.say(&format!("the lease could not be renewed: {e}"));
        }
    }

    fn tick(&mut self) {
        let Some(receive) = &mut self.receive else { return };
        let events = match receive.tick() {
            Ok(events) => events,
            Err(e) => return self.say(&format!("looking for connections that exist: {e}")),
        };
        for event in events {
            let text = match event {
                Event::Joined(n) => format!("downloads: {n} connections that existed are treated now"),
                Event::Silenced(n) => format!(
                    "downloads: another sock_ops program had replaced the callback flags of {n} connections; set again (bpftool cgroup tree shows it)"
                ),
                Event::Scarce(true) => {
                    "downloads: TCP's memory is scarce, or not to be seen (net.ipv4.tcp_mem); larger buffers are given back"
                        .to_owned()
                }
                Event::Scarce(false) => "downloads: TCP's memory is free again".to_owned(),
                Event::NoWalk(why) => format!(
                    "downloads: connections that existed before stay as they are, new ones are treated: {why}"
                ),
                Event::Refused(n, errno) => {
                    let why = Errno::from_raw(-errno);
                    format!(
                        "downloads: the kernel lets {n} connections that existed not join ({why}; needs Linux 6.12)"
                    )
                }
            };
            self.say(&text);
        }
    }

    fn set(&mut self, config: &Config) -> Result<(), String> {
        let (receive, congestion) = (self.receive.is_some(), self.congestion.is_some());
        if (config.receive.is_some(), config.congestion.is_some()) != (receive, congestion) {
            return Err("switching a cure on or off needs a restart: unbloat-agent off, then on".to_owned());
        }
        if let (Some(cure), Some(settings)) = (&mut self.receive, &config.receive) {
            cure.set(settings).map_err(|e| e.to_string())?;
        }
        if let (Some(cure), Some(settings)) = (&mut self.congestion, &config.congestion) {
            cure.set(settings).map_err(|e| e.to_string())?;
            self.switch();
        }
        self.export(config)
    }

    fn answer(&mut self, control: &mut Control, question: &Question) -> Next {
        let (answer, next) = match question.value["ask"].as_str() {
            Some("status") => (self.status().unwrap_or_else(failure), Next::Stay),
            Some("set") => (self.set_from(&question.value), Next::Stay),
            Some("off") => {
                let failed = self.detach();
                let answer = if failed.is_empty() { json!({"ok": true}) } else { failure(failed.join("; ")) };
                (answer, Next::End)
            }
            Some("hand over") => (json!({"ok": true}), Next::HandOver),
            _ => (failure("expected {\"ask\": \"status\" | \"set\" | \"off\" | \"hand over\"}"), Next::Stay),
        };
        control.answer(question, &answer);
        next
    }

    fn set_from(&mut self, question: &Value) -> Value {
        let pairs = question["set"].as_array().into_iter().flatten();
        let set: Vec<(String, String)> =
            pairs.filter_map(|p| Some((p[0].as_str()?.to_owned(), p[1].as_str()?.to_owned()))).collect();
        let before = (self.start.set.clone(), self.start.file.clone());
        if let Some(file) = question["file"].as_str() {
            self.start.file = Some(file.into());
        }
        // What was set before stays unless it is set anew.
        self.start.set.retain(|(key, _)| !set.iter().any(|(new, _)| new == key));
        self.start.set.extend(set.iter().cloned());
        match self.start.config().and_then(|config| self.set(&config)) {
            Ok(()) => {
                for (key, value) in set.iter().filter(|one| !before.0.contains(one)) {
                    self.say(&format!("{key} = {value}"));
                }
                json!({"ok": true})
            }
            Err(e) => {
                (self.start.set, self.start.file) = before;
                failure(e)
            }
        }
    }

    fn status(&mut self) -> Result<Value, CureError> {
        let mut cures = serde_json::Map::new();
        let mut flows = Vec::new();
        if let Some(receive) = &mut self.receive {
            flows.extend(receive.status()?.iter().map(|flow| flow.to_json()));
            let c = receive.counters()?;
            cures.insert(
                "receive".to_owned(),
                json!({
                    "connections": c.sockets, "acks": c.samples, "decisions": c.decisions, "applied": c.applied,
                    "reapplied": c.reapplied, "refused": c.refused, "lifted": c.lifted,
                    "raised": c.raised, "withheld": c.withheld,
                    "walk_ms": receive.walk_took().as_secs_f64() * 1e3,
                }),
            );
        }
        if let Some(congestion) = &self.congestion {
            let c = congestion.counters()?;
            cures.insert("congestion".to_owned(), json!({"switched": c.switched, "refused": c.refused}));
        }
        Ok(json!({
            "ok": true,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "up_s": self.begun.elapsed().as_secs_f64(),
            "cures": cures,
            "problems": self.problems,
            "flows": flows,
            "log": self.said,
        }))
    }

    /// Undoes everything; what could not be.
    fn detach(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        if self.receive.is_none() && self.congestion.is_none() && self.journal.pending().is_empty() {
            return failed;
        }
        if let Some(cure) = self.receive.take()
            && let Err(e) = cure.detach(&mut self.journal)
        {
            failed.push(format!("downloads: {e}"));
        }
        if let Some(cure) = self.congestion.take()
            && let Err(e) = cure.detach(&mut self.journal)
        {
            failed.push(format!("congestion control: {e}"));
        }
        let (_, more) = undo::all(&mut self.journal);
        failed.extend(more.iter().map(|e| e.to_string()));
        match failed.is_empty() {
            true => self.say("everything is as it was"),
            false => self.say(&format!("not undone: {}", failed.join("; "))),
        }
        failed
    }
}

fn lease() -> u64 {
    now_ns() + LEASE.as_nanos() as u64
}
