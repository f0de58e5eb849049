//! A small process beside the daemon that undoes its changes when the daemon dies.
//!
//! The pipe from the daemon closes however the daemon ends. A last byte on it says that all is
//! undone or handed over. Without that byte, and if no other agent has taken over, everything in
//! the journal is undone. Where this process was killed too, the lease in the kernel ends the
//! cures.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::log;
use crate::daemon::paths::{Paths, Role};
use crate::undo;
use crate::undo::journal::Journal;

/// The last byte: nothing is to be undone.
const IN_ORDER: u8 = b'.';
/// Another agent that has the lock for so long has taken over, or undoes itself.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The daemon's end of the pipe.
pub struct Supervised {
    child: Child,
}

impl Supervised {
    /// Starts the supervisor; before the first change.
    pub fn start(program: &Path, paths: &Paths) -> io::Result<Supervised> {
        let child = Command::new(program)
            .arg("--runtime")
            .arg(&paths.runtime)
            .arg("--pins")
            .arg(&paths.pins)
            .arg("supervise")
            .arg(std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Supervised { child })
    }

    /// Process ID of the supervisor.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Whether the supervisor still runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it: all is undone, or another agent takes over.
    pub fn dismiss(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // If it is dead already it undoes nothing, too.
            let _ = pipe.write_all(&[IN_ORDER]);
        }
        let _ = self.child.wait();
    }
}

/// Runs the supervisor. `pipe`: from the daemon, whose process is `daemon`.
pub fn watch(pipe: &mut impl Read, paths: &Paths, daemon: u32) -> io::Result<()> {
    // Not with the daemon's terminal, nor with its process group.
    let _ = nix::unistd::setsid();
    let mut last = None;
    let mut byte = [0];
    loop {
        match pipe.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => last = Some(byte[0]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    if last == Some(IN_ORDER) {
        return Ok(());
    }
    let begun = Instant::now();
    let _lock = loop {
        match paths.lock(Role::Supervisor)? {
            Ok(lock) => break lock,
            // A new one adopts what the old one left. A dying process may lose its pipe before its lock.
            Err(holder)
                if begun.elapsed() > LOCK_TIMEOUT
                    || holder.role == Some(Role::Daemon)
                        && holder.process.is_some_and(|process| process != daemon) =>
            {
                log::say(&format!("the agent ended; {holder} has taken over"));
                return Ok(());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut journal = Journal::open(&paths.journal())?;
    if journal.pending().is_empty() {
        return Ok(());
    }
    log::say("the agent ended without undoing what it did; undoing it");
    let (done, failed) = undo::all(&mut journal);
    for text in done {
        log::say(&text);
    }
    for e in failed {
        log::say(&format!("could not undo: {e}; unbloat-agent off tries again"));
    }
    Ok(())
}
