//! The subcommands of `unbloat-agent`: one function each.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::config;
use crate::cures::{self, acks, attach, gate};
use crate::daemon::control::ask;
use crate::daemon::paths::{LockWait, Paths, Role};
use crate::daemon::{self, Start};
use crate::kernel::{self, Feature, Tried};
use crate::undo;
use crate::undo::journal::{self, Change, Journal};
use crate::undo::lease::LEASE;

/// Longest wait for an answer of the daemon: one turn of its loop may load programs, which takes
/// seconds on small machines.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Kinds of failures; each has its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An operation failed: exit code 1.
    Failed,
    /// The arguments are wrong: exit code 2.
    Usage,
    /// The configuration or a capture cannot be read.
    Unreadable,
    /// A signal ended a run.
    Interrupted,
    /// The agent is on, but a cure that is wanted is not in place.
    Partly,
    /// The agent is on, but a cure does nothing while data flows in its scope.
    Idle,
}

/// Why a subcommand failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Decides the exit code.
    pub kind: Kind,
    /// The reason, in one line.
    pub message: String,
}

impl Failure {
    fn of(kind: Kind, why: impl std::fmt::Display) -> Failure {
        Failure { kind, message: why.to_string() }
    }

    /// A failure because of wrong arguments.
    pub fn usage(why: impl std::fmt::Display) -> Failure {
        Failure::of(Kind::Usage, why)
    }

    /// The configuration or a capture cannot be read.
    pub fn unreadable(why: impl std::fmt::Display) -> Failure {
        Failure::of(Kind::Unreadable, why)
    }

    /// A signal ended a run.
    pub fn interrupted(why: impl std::fmt::Display) -> Failure {
        Failure::of(Kind::Interrupted, why)
    }

    /// The exit code of the program.
    pub fn code(&self) -> u8 {
        match self.kind {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Unreadable => 3,
            Kind::Partly => 4,
            Kind::Idle => 5,
            // As a shell has it for SIGINT.
            Kind::Interrupted => 130,
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A failure because an operation failed.
pub fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::of(Kind::Failed, why)
}

/// How the subcommands print their results.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// One JSON object instead of text.
    pub json: bool,
}

impl Output {
    pub(crate) fn say(&self, value: &Value, text: impl FnOnce() -> String) {
        let text = if self.json { value.to_string() } else { text() };
        // A reader that closed the pipe does not want it.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// Prints a failure to standard error, with `json` to standard output, too.
    pub fn failed(&self, failure: &Failure) {
        let text = &failure.message;
        if self.json {
            let _ = writeln!(std::io::stdout(), "{}", json!({"ok": false, "error": text}));
        }
        eprintln!("unbloat-agent: {text}");
    }
}

/// Width of the terminal, where there is one or `COLUMNS` is set.
pub(crate) fn columns() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    columns.or_else(|| terminal_size::terminal_size().map(|(columns, _)| columns.0.into()))
}

/// Checks the capabilities, not the user: a systemd unit runs as root with few of them.
pub(crate) fn root() -> Result<()> {
    kernel::rights().map_err(failed)
}

/// The daemon in the foreground.
pub fn serve(start: Start, output: &Output) -> Result<()> {
    root()?;
    start.config().map_err(Failure::unreadable)?;
    let output = *output;
    daemon::serve(start, || output.say(&json!({"ok": true, "state": "on"}), || "on".to_owned()))
        .map_err(failed)
}

/// Cures on: a new daemon in the background, or new settings for one that runs. With `wait`, until
/// each cure counts the traffic in its scope, for at most so long.
pub fn on(start: &Start, wait: Option<Duration>, output: &Output) -> Result<()> {
    root()?;
    start.config().map_err(Failure::unreadable)?;
    let paths = &start.paths;
    if let Some(answer) = asked(paths)?
        && let Some(process) = elsewhere(&answer)
    {
        return Err(failed(format!(
            "an agent runs already in another network namespace (nsenter --net=/proc/{process}/ns/net unbloat-agent on \
             sets it; --runtime and --pins of its own let another one run here)"
        )));
    }
    let question = json!({"ask": "set", "file": start.file, "set": start.set});
    if let Some(answer) = ask(&paths.socket(), &question, ANSWER_TIMEOUT).map_err(failed)? {
        check_ok(&answer)?;
        let status = wait.map(|wait| settled(paths, wait)).transpose()?;
        output.say(&json!({"ok": true, "state": "set"}), || {
            "the agent that runs has the new settings".to_owned()
        });
        return status.as_ref().map_or(Ok(()), in_place);
    }
    let process = begin(start)?.id();
    let status = settled(paths, wait.unwrap_or_default())?;
    let problems = status["problems"].clone();
    output.say(&json!({"ok": true, "state": "on", "pid": process, "problems": problems}), || {
        let said = problems.as_array().into_iter().flatten().filter_map(Value::as_str);
        let first = format!(
            "on; unbloat-agent status shows what it does, {} what it says",
            paths.log().display()
        );
        std::iter::once(first)
            .chain(said.map(|text| format!("! {text}")))
            .collect::<Vec<_>>()
            .join("\n")
    });
    in_place(&status)
}

/// How many cures are in a state of [`crate::status::idle::Work`].
fn cures_in(status: &Value, state: &str) -> usize {
    status["work"].as_object().map_or(0, |work| work.values().filter(|one| *one == state).count())
}

/// The status once every cure is known to count, or after so long.
fn settled(paths: &Paths, wait: Duration) -> Result<Value> {
    const LOOK: Duration = Duration::from_millis(100);
    let begun = Instant::now();
    loop {
        let status = asked(paths)?.ok_or_else(|| failed("the agent has ended"))?;
        let left = wait.saturating_sub(begun.elapsed());
        if left.is_zero() || cures_in(&status, "idle") > 0 || cures_in(&status, "quiet") == 0 {
            return Ok(status);
        }
        std::thread::sleep(LOOK.min(left));
    }
}

/// Whether every cure is in place, and none is idle while data flows.
fn in_place(status: &Value) -> Result<()> {
    let idle = cures_in(status, "idle");
    let problems: Vec<&str> =
        status["problems"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let what = |n: usize| if n == 1 { "a cure" } else { "some cures" };
    match problems.len() {
        0 => Ok(()),
        wrong if wrong > idle => {
            let what = what(wrong);
            let text = format!("on, but {what} could not be put in place, as listed by status");
            Err(Failure::of(Kind::Partly, text))
        }
        _ => Err(Failure::of(Kind::Idle, format!("on, but {}", problems.join("; ")))),
    }
}

/// The process of an agent in another network namespace than this one.
fn elsewhere(status: &Value) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let process = status["pid"].as_u64()?;
    let space = |of: &str| std::fs::metadata(format!("/proc/{of}/ns/net")).ok().map(|m| m.ino());
    (space(&process.to_string())? != space("self")?).then_some(process)
}

/// Starts a daemon in the background, and waits until it answers. One that is tied lives as long as
/// the returned child's standard input is open.
pub(crate) fn begin(start: &Start) -> Result<Child> {
    let paths = &start.paths;
    paths.make().map_err(|e| failed(format!("{}: {e}", paths.runtime.display())))?;
    let log = File::options().create(true).append(true).open(paths.log()).map_err(failed)?;
    // On a full disk the agent could not say why it ends; this takes the space.
    writeln!(&log, "unbloat-agent: starts in the background")
        .map_err(|e| failed(format!("{}: {e}", paths.log().display())))?;
    let before = log.metadata().map_err(failed)?.len();
    let mut command = Command::new(&start.program);
    command.arg("--runtime").arg(&paths.runtime).arg("--pins").arg(&paths.pins).arg("serve");
    if let Some(file) = &start.file {
        command.arg("--config").arg(file);
    }
    for (key, value) in &start.set {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    if start.lifted {
        command.arg("--lifted");
    }
    if start.tied {
        command.arg("--tied").stdin(Stdio::piped());
    } else {
        command.stdin(Stdio::null());
    }
    command.stdout(Stdio::null()).stderr(log).current_dir("/");
    // Its own process group: a terminal's Ctrl-C must not end it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(failed)?;
    let begun = Instant::now();
    loop {
        let answer = ask(&paths.socket(), &json!({"ask": "status"}), ANSWER_TIMEOUT);
        // Another agent may have been faster: then this one ends, and its log says so.
        if answer.is_ok_and(|answer| answer.is_some_and(|answer| answer["pid"] == child.id())) {
            break;
        }
        let ended = child.try_wait().map_err(failed)?.is_some();
        if !ended && begun.elapsed() > ANSWER_TIMEOUT * 2 {
            // It must not begin to act later; its supervisor undoes what it did.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!(
                "the agent does not answer; {} says more",
                paths.log().display()
            )));
        }
        if ended {
            let text = std::fs::read(paths.log()).unwrap_or_default();
            let said = String::from_utf8_lossy(text.get(before as usize..).unwrap_or_default())
                .into_owned();
            return Err(failed(why_ended(&said)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(child)
}

/// The reason of a daemon that ended at its start, by its log. Its supervisor may have written after it.
fn why_ended(log: &str) -> &str {
    let own = log.lines().rev().find_map(|line| line.strip_prefix("unbloat-agent: "));
    own.or(log.lines().last()).unwrap_or("the agent did not start")
}

pub(crate) fn check_ok(answer: &Value) -> Result<()> {
    match answer["ok"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(failed(
            answer["error"].as_str().unwrap_or("the agent answers nothing that is understood"),
        )),
    }
}

/// Everything back as it was.
pub fn off(paths: &Paths, output: &Output) -> Result<()> {
    root()?;
    let done = end(paths)?;
    kernel::mounts::remove();
    output.say(&json!({"ok": true, "state": "off", "undone": done}), || {
        if done.is_empty() { "off".to_owned() } else { format!("off; {}", done.join("; ")) }
    });
    Ok(())
}

/// Filters that no agent renews any more. A lease that is still valid may be that of an agent that
/// was killed a moment ago.
fn orphans() -> crate::error::Result<Vec<Change>> {
    let hooks = [&acks::HOOK, &gate::HOOK];
    let (filters, valid) = attach::orphans(&hooks)?;
    if !valid {
        return Ok(filters);
    }
    std::thread::sleep(LEASE + Duration::from_millis(100));
    Ok(attach::orphans(&hooks)?.0)
}

/// Ends a daemon, and undoes what one left that died: what that was.
pub(crate) fn end(paths: &Paths) -> Result<Vec<String>> {
    let answer = match ask(&paths.socket(), &json!({"ask": "off"}), ANSWER_TIMEOUT) {
        // It ended meanwhile, as by another `off`; what it left is undone below.
        Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            Ok(None)
        }
        other => other,
    };
    let answer = answer.map_err(|e| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let holder = paths.lock(Role::Off).ok().and_then(std::result::Result::err);
            let holder = holder.unwrap_or_default();
            failed(format!("the agent does not answer ({holder}): end it with kill -9, and its supervisor undoes what it did"))
        }
        _ => failed(e),
    })?;
    if let Some(answer) = &answer {
        check_ok(answer)?;
    }
    // A daemon that has answered may still be ending, or a supervisor may be at work.
    let runtime = paths.runtime.display();
    let mut wait = LockWait::begin();
    let _lock = loop {
        match paths.lock(Role::Off).map_err(|e| failed(format!("{runtime}: {e}")))? {
            Ok(lock) => break lock,
            Err(holder) => wait.pause(holder).map_err(|e| failed(format!("{runtime}: {e}")))?,
        }
    };
    let mut journal = Journal::open(&paths.journal())
        .map_err(|e| failed(format!("{}: {e}", paths.journal().display())))?;
    let (mut done, mut wrong) = undo::all(&mut journal);
    // A journal that was lost or overwritten no longer lists the pins.
    if paths.pins.exists() {
        match undo::revert(&Change::Sockets { pins: paths.pins.clone() }) {
            Ok(text) => done.push(text),
            Err(e) => wrong.push(e),
        }
    }
    // Nor the filters of an agent that was killed.
    for filter in orphans().map_err(failed)? {
        match undo::revert(&filter) {
            Ok(text) => done.push(text),
            Err(e) => wrong.push(e),
        }
    }
    match wrong.first() {
        Some(e) => Err(failed(e)),
        None => Ok(done),
    }
}

/// The status of a running agent; none if no agent runs.
pub(crate) fn asked(paths: &Paths) -> Result<Option<Value>> {
    status_of(paths, &json!({"ask": "status"}))
}

fn status_of(paths: &Paths, request: &Value) -> Result<Option<Value>> {
    let answer = ask(&paths.socket(), request, ANSWER_TIMEOUT).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => failed(format!(
            "the agent does not answer within {} s: it is stopped, or this host is overloaded",
            ANSWER_TIMEOUT.as_secs()
        )),
        ErrorKind::PermissionDenied => {
            failed("needs root: the agent's control socket is root's alone")
        }
        _ => failed(e),
    })?;
    if let Some(answer) = &answer {
        check_ok(answer)?;
    }
    Ok(answer)
}

/// What a running agent does, and every flow; with `with_text`, JSON contains the text, too.
pub fn status(paths: &Paths, output: &Output, with_text: bool) -> Result<()> {
    let request = json!({"ask": "status", "text": with_text || !output.json, "columns": columns()});
    let Some(answer) = status_of(paths, &request)? else {
        let journal = std::fs::read(paths.journal()).unwrap_or_default();
        let left = journal::pending(&String::from_utf8_lossy(&journal)).len();
        let text = match left {
            0 => "off",
            _ => "off, but an agent ended without undoing what it did; unbloat-agent off undoes it",
        };
        let mut answer = json!({"ok": true, "state": "off", "pending": left});
        if with_text {
            answer["text"] = text.into();
        }
        output.say(&answer, || text.to_owned());
        return Ok(());
    };
    output.say(&answer, || match answer["text"].as_str() {
        Some(text) => text.to_owned(),
        // An agent of a version that answers without the text.
        None => answer.to_string(),
    });
    Ok(())
}

/// What this kernel can do.
pub fn features(output: &Output) -> Result<()> {
    let features = cures::features();
    let list: Vec<Value> = features.iter().map(Tried::to_json).collect();
    let without = kernel::without();
    output.say(&json!({"ok": true, "features": list, "without": without}), || {
        let line = |tried: &Tried| {
            let Feature { name, since, .. } = tried.feature;
            match &tried.missing {
                None => format!("yes  {name} (Linux {since})"),
                Some(why) => format!("no   {name} (Linux {since}): {why}"),
            }
        };
        features.iter().map(line).chain(without.clone()).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// Every key and its default.
pub fn defaults() -> Result<()> {
    let _ = write!(std::io::stdout(), "{}", config::template());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_daemon_ended_is_its_own_last_line_not_its_supervisors() {
        let log = "unbloat-agent: downloads: no rights\n02:46:57.266 UTC the agent ended without undoing\n";
        assert_eq!(why_ended(log), "downloads: no rights");
        assert_eq!(why_ended("thread panicked\n"), "thread panicked");
        assert_eq!(why_ended(""), "the agent did not start");
    }
}
