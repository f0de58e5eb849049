//! Undoes the changes that the journal lists: each by the part of the program that makes it.
//!
//! Runs for `off` without a daemon, for a supervisor whose daemon died, and at a start after a
//! crash; the latest change first. What cannot be undone stays in the journal, for the next time.

pub mod handover;
pub mod journal;
pub mod lease;

use std::io;
use std::process::Command;

use crate::error::{CureError, Result};
use crate::kernel::socket_walk;
use crate::kernel::tc;
use crate::undo::journal::{Change, Journal};

/// Undoes everything: a line for each change that was undone, and the failures.
pub fn all(journal: &mut Journal) -> (Vec<String>, Vec<CureError>) {
    some(journal, |_| true)
}

/// Undoes the changes that `which` selects.
pub fn some(
    journal: &mut Journal,
    which: impl Fn(&Change) -> bool,
) -> (Vec<String>, Vec<CureError>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for change in journal.pending().to_vec().iter().rev().filter(|change| which(change)) {
        match undo(change, journal) {
            Ok(text) => done.push(text),
            Err(e) => failed.push(e),
        }
    }
    (done, failed)
}

/// Undoes one change and records that: a line for the log.
pub(crate) fn undo(change: &Change, journal: &mut Journal) -> Result<String> {
    let text = revert(change)?;
    journal.undone(change).map_err(CureError::file(journal.path()))?;
    Ok(text)
}

/// Reverts one change: a line for the log. What is gone already needs no undoing.
pub(crate) fn revert(change: &Change) -> Result<String> {
    let (what, outcome) = match change {
        Change::Sockets { pins } => {
            let walked = socket_walk::give_back(pins)?;
            return Ok(format!("gave {} connections back to the kernel", walked.task.changed));
        }
        Change::Clsact { device } => match tc::remove_clsact(device) {
            Ok(false) => {
                return Ok(format!("left clsact on {device}: another program has a filter on it"));
            }
            outcome => (format!("no clsact on {device}"), outcome.map(drop)),
        },
        Change::Filter { device, direction, preference, what } => {
            (what.clone(), tc::remove_filter(device, *direction, *preference))
        }
        Change::Qdisc { device, handle } => {
            (format!("the root discipline of {device}"), tc::remove_root(device, *handle))
        }
        Change::Command { what, undo } => (what.clone(), run(undo)),
    };
    match outcome {
        Ok(()) => Ok(format!("put back: {what}")),
        Err(why) => Err(CureError::Undo { what, why }),
    }
}

/// Runs a command of an earlier version's journal.
fn run(words: &[String]) -> io::Result<()> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{}: {errors}", words.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_stays_in_the_journal_and_the_rest_is_undone() {
        let path = std::env::temp_dir().join(format!("ub-undo-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut journal = Journal::open(&path).unwrap();
        let command = |what: &str, program: &str| Change::Command {
            what: what.to_owned(),
            undo: vec![program.to_owned()],
        };
        for (what, program) in [("one", "true"), ("two", "false"), ("three", "true")] {
            journal.write(&command(what, program)).unwrap();
        }
        let (done, failed) = all(&mut journal);
        assert_eq!(done, ["put back: three", "put back: one"]);
        assert_eq!(failed.len(), 1);
        assert_eq!(Journal::open(&path).unwrap().pending(), [command("two", "false")]);
        std::fs::remove_file(&path).unwrap();
    }
}
