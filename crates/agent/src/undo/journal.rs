//! The changes of this host that are not undone yet, on disk before each is made.
//!
//! A file of JSON lines: one per change, one per undoing, each on disk before the call returns. A
//! later process (the supervisor, the next start, `off`) reads the pending changes and undoes
//! them, the latest first. Undoing is idempotent, so the journal may contain a change that was
//! never made.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kernel::tc::Direction;

/// A change, with all that its undoing needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum Change {
    /// Programs on sockets, pinned below a directory.
    Sockets {
        /// The directory of pins.
        pins: PathBuf,
    },
    /// A clsact discipline on a device that had none.
    Clsact {
        /// Name of the device.
        device: String,
    },
    /// A BPF filter on the clsact discipline of a device.
    Filter {
        /// Name of the device.
        device: String,
        /// Packets that it sees.
        direction: Direction,
        /// Its preference, one for each cure.
        preference: u16,
        /// What it is, for messages.
        what: String,
    },
    /// A root discipline in place of the device's default.
    Qdisc {
        /// Name of the device.
        device: String,
        /// Its handle; only a discipline with this handle is removed.
        handle: u32,
    },
    /// A change that a command undoes. This version writes none; earlier ones wrote filters and
    /// disciplines so, and [`pending`] reads those as what they are.
    Command {
        /// What it is, for messages.
        what: String,
        /// Program and arguments that undo it.
        undo: Vec<String>,
    },
}

impl Change {
    /// The same change in the form of this version.
    fn typed(self) -> Change {
        let Change::Command { what, undo } = &self else { return self };
        let words: Vec<&str> = undo.iter().map(String::as_str).collect();
        match words[..] {
            [
                "tc",
                "filter",
                "del",
                "dev",
                device,
                direction,
                "protocol",
                "all",
                "pref",
                preference,
                "handle",
                "1",
                "bpf",
            ] => {
                let direction = match direction {
                    "ingress" => Direction::Ingress,
                    _ => Direction::Egress,
                };
                let Ok(preference) = preference.parse() else { return self };
                let (device, what) = (device.to_owned(), what.clone());
                Change::Filter { device, direction, preference, what }
            }
            ["tc", "qdisc", "del", "dev", device, "root", "handle", handle] => {
                let major = handle.strip_suffix(':').map(|major| u32::from_str_radix(major, 16));
                let Some(Ok(major @ 0..=0xffff)) = major else { return self };
                Change::Qdisc { device: device.to_owned(), handle: major << 16 }
            }
            _ => self,
        }
    }

    fn read(value: &Value) -> Option<Change> {
        Change::deserialize(value).ok().map(Change::typed)
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

/// The changes that are not undone, the oldest first. A last line that is cut off was never acted
/// upon.
pub fn pending(text: &str) -> Vec<Change> {
    let mut pending = Vec::new();
    for line in text.lines() {
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(undone) = value.get("undone").and_then(Change::read) {
            pending.retain(|change| *change != undone);
        } else if let Some(change) = Change::read(&value)
            && !pending.contains(&change)
        {
            pending.push(change);
        }
    }
    pending
}

impl Journal {
    /// Opens the journal, with the changes that earlier agents left in it.
    pub fn open(path: &Path) -> io::Result<Journal> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = match std::fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        // Bytes that are not UTF-8 spoil their line only.
        let pending = pending(&String::from_utf8_lossy(&text));
        let torn = !text.is_empty() && !text.ends_with(b"\n");
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Journal { file, path: path.to_owned(), pending, torn })
    }

    /// Records a change that is about to be made; it is on disk when this returns.
    pub fn write(&mut self, change: &Change) -> io::Result<()> {
        if self.pending.contains(change) {
            return Ok(());
        }
        self.append(&json!(change))?;
        self.pending.push(change.clone());
        Ok(())
    }

    /// Records that a change was undone. An empty journal is an empty file.
    pub fn undone(&mut self, change: &Change) -> io::Result<()> {
        self.pending.retain(|other| other != change);
        if self.pending.is_empty() {
            self.file.set_len(0)?;
            self.torn = false;
            return self.file.sync_all();
        }
        self.append(&json!({"undone": change}))
    }

    /// The changes that are not undone, the oldest first.
    pub fn pending(&self) -> &[Change] {
        &self.pending
    }

    /// Path of its file.
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
        std::fs::write(&path, [before, json!(one).to_string().as_bytes(), after].concat()).unwrap();
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

    #[test]
    fn lines_of_earlier_versions_are_read_as_what_they_are() {
        let lines = [
            r#"{"change":"sockets","pins":"/sys/fs/bpf/unbloat"}"#,
            r#"{"change":"command","undo":["tc","filter","del","dev","wwan0","ingress","protocol","all","pref","48","handle","1","bpf"],"what":"ACK-window rewriting, ingress of wwan0"}"#,
            r#"{"change":"command","undo":["tc","qdisc","del","dev","wwan0","root","handle","b10a:"],"what":"the shaper of wwan0"}"#,
            r#"{"change":"command","undo":["true"],"what":"something"}"#,
        ];
        let found = pending(&lines.join("\n"));
        assert_eq!(found[0], Change::Sockets { pins: "/sys/fs/bpf/unbloat".into() });
        let (device, direction) = ("wwan0".to_owned(), Direction::Ingress);
        let what = "ACK-window rewriting, ingress of wwan0".to_owned();
        let filter = Change::Filter { device: device.clone(), direction, preference: 48, what };
        assert_eq!(found[1], filter);
        assert_eq!(found[2], Change::Qdisc { device, handle: 0xb10a_0000 });
        assert!(matches!(&found[3], Change::Command { undo, .. } if undo == &["true"]));
        let undone = format!("{{\"undone\":{}}}", lines[1]);
        assert!(!pending(&[lines[1], &undone].join("\n")).contains(&filter));
    }
}
