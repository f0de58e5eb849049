//! Undoes what the journal says is not undone.
//!
//! signal: `off` without a daemon, a supervisor whose daemon died, a start after a crash · model: the journal, from its end · action: each
//! change is taken back, and struck out when it is. What fails stays in the journal, for the next one.

pub mod handover;
pub mod journal;
pub mod lease;

use std::process::Command;

use crate::cures::attach;
use crate::cures::{CureError, Result};
use crate::kernel::socket_walk;
use crate::undo::journal::{Change, Journal};

/// Undoes everything. What was done in words, and what could not be.
pub fn all(journal: &mut Journal) -> (Vec<String>, Vec<CureError>) {
    some(journal, |_| true)
}

/// Undoes some of it.
pub fn some(
    journal: &mut Journal,
    which: impl Fn(&Change) -> bool,
) -> (Vec<String>, Vec<CureError>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for change in journal.pending().to_vec().iter().rev().filter(|change| which(change)) {
        let struck = |journal: &mut Journal| {
            journal.undone(change).map_err(CureError::file(journal.path().to_owned()))
        };
        match one(change).and_then(|text| struck(journal).map(|()| text)) {
            Ok(text) => done.push(text),
            Err(e) => failed.push(e),
        }
    }
    (done, failed)
}

/// Takes one change back: what that was, in words.
pub(crate) fn one(change: &Change) -> Result<String> {
    match change {
        Change::Sockets { pins } => {
            let walked = socket_walk::give_back(pins)?;
            Ok(format!("gave {} connections back to the kernel", walked.task.changed))
        }
        Change::Clsact { device } => attach::take_discipline(device),
        Change::Command { what, undo } => {
            let failed =
                |why: String| CureError::Refused(format!("{what}: {}: {why}", undo.join(" ")));
            let Some((program, arguments)) = undo.split_first() else {
                return Ok(what.clone());
            };
            let output = Command::new(program)
                .args(arguments)
                .output()
                .map_err(|e| failed(e.to_string()))?;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            // What is gone already needs no undoing: a device that was pulled out, a qdisc that somebody took away.
            let gone = [
                "Cannot find device",
                "No such file or directory",
                "Invalid handle",
                "Parent Qdisc doesn't exist",
                "Cannot find specified filter chain",
                "Filter with specified priority/protocol not found",
                "Cannot delete qdisc with handle of zero",
            ];
            match output.status.success() || gone.iter().any(|text| said.contains(text)) {
                true => Ok(format!("put back: {what}")),
                false => Err(failed(said)),
            }
        }
    }
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
