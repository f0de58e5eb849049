//! What a person or systemd calls: each subcommand, one function.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::config;
use crate::daemon::control::ask;
use crate::daemon::paths::Paths;
use crate::daemon::{self, Start};
use crate::kernel;
use crate::status::table;
use crate::undo;
use crate::undo::journal::{self, Journal};

/// An answer of the daemon comes within this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What went wrong, and the exit code that says so.
#[derive(Debug)]
pub struct Failure(pub u8, pub String);

pub(crate) type Result<T> = std::result::Result<T, Failure>;

pub(crate) fn failed(e: impl std::fmt::Display) -> Failure {
    Failure(1, e.to_string())
}

/// Text or JSON.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// JSON, one object.
    pub json: bool,
}

impl Output {
    pub(crate) fn say(&self, value: &Value, text: impl FnOnce() -> String) {
        let text = if self.json { value.to_string() } else { text() };
        // Whoever closed the pipe does not want it.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// What went wrong.
    pub fn failed(&self, text: &str) {
        if self.json {
            let _ = writeln!(std::io::stdout(), "{}", json!({"ok": false, "error": text}));
        }
        eprintln!("unbloat-agent: {text}");
    }
}

/// Capabilities, not who it is: a unit runs as root with few of them.
pub(crate) fn root() -> Result<()> {
    kernel::rights().map_err(failed)
}

/// The daemon in the foreground.
pub fn serve(start: Start, output: &Output) -> Result<()> {
    root()?;
    start.config().map_err(|e| Failure(3, e))?;
    let output = *output;
    daemon::serve(start, || output.say(&json!({"ok": true, "state": "on"}), || "on".to_owned()))
        .map_err(failed)
}

/// Cures on: a new daemon in the background, or new settings for one that runs.
pub fn on(start: &Start, output: &Output) -> Result<()> {
    root()?;
    start.config().map_err(|e| Failure(3, e))?;
    let paths = &start.paths;
    let question = json!({"ask": "set", "file": start.file, "set": start.set});
    if let Some(answer) = ask(&paths.socket(), &question, PATIENCE).map_err(failed)? {
        well(&answer)?;
        output.say(&json!({"ok": true, "state": "set"}), || {
            "the agent that runs has the new settings".to_owned()
        });
        return Ok(());
    }
    let process = begin(start)?.id();
    let problems = asked(paths)?.map_or(Value::Null, |answer| answer["problems"].clone());
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
    Ok(())
}

/// Starts a daemon in the background, and waits until it answers. One that is tied lives as long as what is returned.
pub(crate) fn begin(start: &Start) -> Result<Child> {
    let paths = &start.paths;
    paths.make().map_err(|e| failed(format!("{}: {e}", paths.runtime.display())))?;
    let log = File::options().create(true).append(true).open(paths.log()).map_err(failed)?;
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
    // Its own group: a terminal's Ctrl-C is not for it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(failed)?;
    let begun = Instant::now();
    loop {
        let told = ask(&paths.socket(), &json!({"ask": "status"}), PATIENCE);
        // Not another one that was faster: then this one ends, and says so.
        if told.is_ok_and(|answer| answer.is_some_and(|answer| answer["pid"] == child.id())) {
            break;
        }
        let ended = child.try_wait().map_err(failed)?.is_some();
        if !ended && begun.elapsed() > PATIENCE * 2 {
            // It must not come later, when nobody expects it; its supervisor undoes what it did.
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
            let last = said.lines().last().unwrap_or("the agent did not start").to_owned();
            return Err(failed(last.trim_start_matches("unbloat-agent: ")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(child)
}

pub(crate) fn well(answer: &Value) -> Result<()> {
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
    output.say(&json!({"ok": true, "state": "off", "undone": done}), || {
        if done.is_empty() { "off".to_owned() } else { format!("off; {}", done.join("; ")) }
    });
    Ok(())
}

/// Ends a daemon, and undoes what one left that died: what that was.
pub(crate) fn end(paths: &Paths) -> Result<Vec<String>> {
    let told = ask(&paths.socket(), &json!({"ask": "off"}), PATIENCE).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let holder = paths.lock("off").ok().and_then(std::result::Result::err).unwrap_or_default();
            failed(format!("the agent does not answer ({holder}): end it with kill -9, and its supervisor undoes what it did"))
        }
        _ => failed(e),
    })?;
    if let Some(answer) = &told {
        well(answer)?;
    }
    // It has answered, but is not gone yet; or a supervisor is at work, or nobody is.
    let begun = Instant::now();
    let _lock = loop {
        match paths.lock("off").map_err(|e| failed(format!("{}: {e}", paths.runtime.display())))? {
            Ok(lock) => break lock,
            Err(holder) if begun.elapsed() > PATIENCE => {
                return Err(failed(format!(
                    "{holder} does not let go of {}",
                    paths.runtime.display()
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut journal = Journal::open(&paths.journal())
        .map_err(|e| failed(format!("{}: {e}", paths.journal().display())))?;
    let (done, wrong) = undo::all(&mut journal);
    match wrong.first() {
        Some(e) => Err(failed(e)),
        None => Ok(done),
    }
}

pub(crate) fn asked(paths: &Paths) -> Result<Option<Value>> {
    let answer =
        ask(&paths.socket(), &json!({"ask": "status"}), PATIENCE).map_err(|e| match e.kind() {
            std::io::ErrorKind::PermissionDenied => {
                failed("needs root: the agent's control socket is root's alone")
            }
            _ => failed(e),
        })?;
    if let Some(answer) = &answer {
        well(answer)?;
    }
    Ok(answer)
}

/// Every flow.
pub fn status(paths: &Paths, output: &Output) -> Result<()> {
    let Some(answer) = asked(paths)? else {
        let journal = std::fs::read(paths.journal()).unwrap_or_default();
        let left = journal::pending(&String::from_utf8_lossy(&journal)).len();
        output.say(&json!({"ok": true, "state": "off", "pending": left}), || match left {
            0 => "off".to_owned(),
            _ => "off, but an agent ended without undoing what it did; unbloat-agent off undoes it"
                .to_owned(),
        });
        return Ok(());
    };
    output.say(&answer, || table::table(&answer));
    Ok(())
}

/// What this kernel can do.
pub fn features(output: &Output) -> Result<()> {
    let features = kernel::features();
    let list: Vec<Value> = features.iter().map(kernel::Feature::to_json).collect();
    let without = kernel::without();
    output.say(&json!({"ok": true, "features": list, "without": without}), || {
        let line = |f: &kernel::Feature| match &f.missing {
            None => format!("yes  {} (Linux {})", f.name, f.since),
            Some(why) => format!("no   {} (Linux {}): {why}", f.name, f.since),
        };
        features.iter().map(line).chain(without.clone()).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// Every key and its default.
pub fn defaults() -> Result<()> {
    let _ = write!(std::io::stdout(), "{}", config::TEMPLATE);
    Ok(())
}
