//! What was changed on this host and is not undone yet, on disk before it is done.
//!
//! signal: a cure that is about to change something · model: a file of JSON lines, one per change and one per undoing, each on disk
//! before the call returns · action: who comes later (the supervisor, the next start, `off`) reads what is pending and undoes it,
//! the latest first. Undoing is idempotent, so a change may be in it that was never made.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A change, with all that its undoing needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Programs on sockets, pinned below a directory: windows and congestion control.
    Sockets {
        /// The directory of pins.
        pins: PathBuf,
    },
    /// A clsact discipline on a device that had none.
    Clsact {
        /// The device.
        device: String,
    },
    /// Anything that a command takes back, as a qdisc that was replaced.
    Command {
        /// What it is, for people.
        what: String,
        /// Program and arguments.
        undo: Vec<String>,
    },
}

impl Change {
    fn to_json(&self) -> Value {
        match self {
            Change::Sockets { pins } => json!({"change": "sockets", "pins": pins}),
            Change::Clsact { device } => json!({"change": "clsact", "device": device}),
            Change::Command { what, undo } => {
                json!({"change": "command", "what": what, "undo": undo})
            }
        }
    }

    fn from_json(value: &Value) -> Option<Change> {
        match value["change"].as_str()? {
            "sockets" => Some(Change::Sockets { pins: value["pins"].as_str()?.into() }),
            "clsact" => Some(Change::Clsact { device: value["device"].as_str()?.to_owned() }),
            "command" => {
                let words = value["undo"].as_array()?.iter();
                Some(Change::Command {
                    what: value["what"].as_str()?.to_owned(),
                    undo: words
                        .map(|word| word.as_str().map(str::to_owned))
                        .collect::<Option<_>>()?,
                })
            }
            _ => None,
        }
    }
}

/// The journal of an agent.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    pending: Vec<Change>,
    /// The last line may be cut off, as by a full disk.
    torn: bool,
}

/// What is not undone, the oldest first. A last line that is cut off was never acted upon.
pub fn pending(text: &str) -> Vec<Change> {
    let mut pending = Vec::new();
    for line in text.lines() {
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(undone) = value.get("undone").and_then(Change::from_json) {
            pending.retain(|change| *change != undone);
        } else if let Some(change) = Change::from_json(&value)
            && !pending.contains(&change)
        {
            pending.push(change);
        }
    }
    pending
}

impl Journal {
    /// Opens the journal, with what others left in it.
    pub fn open(path: &Path) -> io::Result<Journal> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = match std::fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        // Bytes that are no text cost their line, and no other.
        let pending = pending(&String::from_utf8_lossy(&text));
        let torn = !text.is_empty() && !text.ends_with(b"\n");
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Journal { file, path: path.to_owned(), pending, torn })
    }

    /// Notes a change that is about to be made; on disk when this returns.
    pub fn write(&mut self, change: &Change) -> io::Result<()> {
        if self.pending.contains(change) {
            return Ok(());
        }
        self.append(&change.to_json())?;
        self.pending.push(change.clone());
        Ok(())
    }

    /// Notes that a change was undone. An empty journal is an empty file.
    pub fn undone(&mut self, change: &Change) -> io::Result<()> {
        self.pending.retain(|one| one != change);
        if self.pending.is_empty() {
            self.file.set_len(0)?;
            self.torn = false;
            return self.file.sync_all();
        }
        self.append(&json!({"undone": change.to_json()}))
    }

    /// What is not undone, the oldest first.
    pub fn pending(&self) -> &[Change] {
        &self.pending
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn append(&mut self, value: &Value) -> io::Result<()> {
        let begin = if self.torn { "\n" } else { "" };
        self.torn = true;
        self.file.write_all(format!("{begin}{value}\n").as_bytes())?;
        self.torn = false;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ub-journal-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn what_was_written_is_found_by_who_comes_later_until_it_is_undone() {
        let path = place("later");
        let (one, two) = (
            Change::Sockets { pins: "/sys/fs/bpf/a".into() },
            Change::Command {
                what: "qdisc of eth0".into(),
                undo: vec!["tc".into(), "qdisc".into()],
            },
        );
        let mut journal = Journal::open(&path).unwrap();
        journal.write(&one).unwrap();
        journal.write(&two).unwrap();
        journal.write(&one).unwrap();
        assert_eq!(Journal::open(&path).unwrap().pending(), [one.clone(), two.clone()]);
        journal.undone(&one).unwrap();
        assert_eq!(Journal::open(&path).unwrap().pending(), std::slice::from_ref(&two));
        journal.undone(&two).unwrap();
        assert_eq!(Journal::open(&path).unwrap().pending(), []);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(&path).unwrap();
    }

    /// A line between other bytes is read, and the next one behind them as well.
    fn goes_on(name: &str, before: &[u8], after: &[u8]) {
        let path = place(name);
        let one = Change::Clsact { device: "wwan0".to_owned() };
        std::fs::write(&path, [before, one.to_json().to_string().as_bytes(), after].concat())
            .unwrap();
        let mut journal = Journal::open(&path).unwrap();
        assert_eq!(journal.pending(), std::slice::from_ref(&one));
        let two = Change::Sockets { pins: "/b".into() };
        journal.write(&two).unwrap();
        assert_eq!(Journal::open(&path).unwrap().pending(), [one, two]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn bytes_that_are_no_text_cost_no_other_line() {
        goes_on("bytes", b"\xff\xfe\n", b"\n\xc3");
    }

    #[test]
    fn a_line_cut_off_by_a_crash_hides_no_other() {
        goes_on("cut", b"", b"\n{\"change\": \"sock");
    }
}
