//! The files that a run writes while it runs: series, losses, decision logs.
//!
//! Workers send notes. One thread at ordinary priority writes them to `queues.jsonl`,
//! `losses.jsonl` and `LINK.decisions`, so that a slow disk delays no packet. The first file that
//! cannot be written ends the run with a message.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use algo::port::{Loss, QueueRow, StageRow};
use nix::sys::eventfd::EventFd;
use serde_json::{Value, json};
use units::{Duration, Instant, Rate};

use crate::headers::{TCP, UDP, View};

/// Notes that may wait for the writer; some milliseconds of the busiest run.
const MAX_NOTES: usize = 4_096;
/// Notes that a worker keeps when the writer is behind: seconds of a flood, 100 MB.
const MAX_WAITING_NOTES: usize = 1 << 20;

/// Why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The direction decided it.
    Decided(Loss),
    /// The far kernel did not take it.
    Undeliverable,
}

/// Something to be written.
pub enum Note {
    /// Bytes of a decision log.
    Log(usize, Vec<u8>),
    /// A bin of a stage.
    Bin(QueueRow),
    /// A lost packet: when, on which link, cause, what it was, its IP bytes.
    Loss(Instant, usize, LossCause, View, u32),
}

/// A worker's end: never blocks.
pub struct Outbox {
    notes: SyncSender<Note>,
    waiting: VecDeque<Note>,
    /// Number of notes given up; if not 0, the log is incomplete.
    pub given_up: u64,
}

impl Outbox {
    /// Sends a note, or keeps it for later.
    pub fn put(&mut self, note: Note) {
        if self.waiting.len() >= MAX_WAITING_NOTES {
            self.given_up += 1;
            return;
        }
        self.waiting.push_back(note);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(note) = self.waiting.pop_front() {
            if let Err(TrySendError::Full(note) | TrySendError::Disconnected(note)) =
                self.notes.try_send(note)
            {
                self.waiting.push_front(note);
                return;
            }
        }
    }

    /// Sends all, waiting for the writer; for the end of the run.
    pub fn finish(mut self) -> u64 {
        let mut given_up = self.given_up;
        while let Some(note) = self.waiting.pop_front() {
            // The writer is gone only after an error that it has reported itself.
            given_up += u64::from(self.notes.send(note).is_err());
        }
        given_up
    }
}

/// The thread that writes all files.
pub struct Reporter {
    notes: SyncSender<Note>,
    thread: JoinHandle<Result<(), (PathBuf, io::Error)>>,
}

impl Reporter {
    /// Creates the files; `failed` becomes readable when one cannot be written any more.
    pub fn start(
        dir: &Path,
        links: &[String],
        failed: Arc<EventFd>,
    ) -> Result<Reporter, (PathBuf, io::Error)> {
        let mut logs = Vec::new();
        for link in links {
            logs.push(OutputFile::create(dir.join(format!("{link}.decisions")))?);
        }
        let mut files = Files {
            logs,
            queues: OutputFile::create(dir.join("queues.jsonl"))?,
            losses: OutputFile::create(dir.join("losses.jsonl"))?,
        };
        let (notes, received) = sync_channel(MAX_NOTES);
        let thread = std::thread::spawn(move || {
            let outcome = files.write(&received);
            if outcome.is_err() {
                // If this fails, too, it cannot be reported.
                let _ = failed.write(1);
                // Workers go on until they are stopped: take their notes and discard them.
                while received.recv().is_ok() {}
            }
            outcome
        });
        Ok(Reporter { notes, thread })
    }

    /// An end for a worker.
    pub fn outbox(&self) -> Outbox {
        Outbox { notes: self.notes.clone(), waiting: VecDeque::new(), given_up: 0 }
    }

    /// Waits until all is written; every outbox has to be finished.
    pub fn finish(self) -> Result<(), (PathBuf, io::Error)> {
        drop(self.notes);
        self.thread.join().unwrap_or_else(|_| {
            Err((PathBuf::from("decision log"), io::Error::other("the writing thread panicked")))
        })
    }
}

/// A file that knows its name.
struct OutputFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl OutputFile {
    fn create(path: PathBuf) -> Result<OutputFile, (PathBuf, io::Error)> {
        match File::create(&path) {
            Ok(file) => Ok(OutputFile { path, file: BufWriter::with_capacity(1 << 16, file) }),
            Err(error) => Err((path, error)),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), (PathBuf, io::Error)> {
        self.file.write_all(bytes).map_err(|error| (self.path.clone(), error))
    }
}

struct Files {
    logs: Vec<OutputFile>,
    queues: OutputFile,
    losses: OutputFile,
}

impl Files {
    fn write(&mut self, notes: &Receiver<Note>) -> Result<(), (PathBuf, io::Error)> {
        while let Ok(note) = notes.recv() {
            match note {
                Note::Log(link, bytes) => self.logs[link].put(&bytes)?,
                Note::Bin(row) => self.queues.put(&line(&queue_row(&row)))?,
                Note::Loss(at, link, cause, view, bytes) => {
                    self.losses.put(&line(&loss_row(at, link, cause, &view, bytes)))?;
                }
            }
        }
        for output in self.logs.iter_mut().chain([&mut self.queues, &mut self.losses]) {
            output.file.flush().map_err(|error| (output.path.clone(), error))?;
        }
        Ok(())
    }
}

fn line(value: &Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

fn queue_row(row: &QueueRow) -> Value {
    json!({
        "link": row.link,
        "stage": row.stage,
        "t_s": seconds(row.t),
        "packets": row.packets,
        "bytes": row.bytes,
        "delay_ms": row.delay.map(Duration::as_millis_f64),
        "delay_ms_max": row.delay_max.as_millis_f64(),
        "drops": row.drops,
    })
}

/// A stage as a whole, as `stages.jsonl` has it.
pub fn stage_row(row: &StageRow) -> Value {
    let delay = row.delay_ms.map(|q| {
        json!({
            "count": q.count, "min": q.min, "p50": q.p50, "p95": q.p95, "p99": q.p99, "max": q.max, "mean": row.delay_ms_mean,
        })
    });
    json!({
        "link": row.link,
        "stage": row.stage,
        "packets": row.packets,
        "drops_overflow": row.overflowed,
        "drops_aqm": row.dropped_by_aqm,
        "lost_on_link": row.lost_on_link,
        "throughput_bps": row.throughput.map(Rate::bps),
        "delay_ms": delay,
    })
}

fn loss_row(at: Instant, link: usize, cause: LossCause, view: &View, bytes: u32) -> Value {
    let cause = match cause {
        LossCause::Decided(Loss::Overflow) => "overflow",
        LossCause::Decided(Loss::Aqm) => "aqm",
        LossCause::Decided(Loss::Link) => "link",
        LossCause::Undeliverable => "undeliverable",
    };
    let protocol = match view.protocol {
        TCP => json!("tcp"),
        UDP => json!("udp"),
        1 | 58 => json!("icmp"),
        other => json!(other),
    };
    json!({
        "t_s": seconds(at),
        "link": link,
        "why": cause,
        "proto": protocol,
        "src": address(view, &view.source),
        "sport": view.ports[0],
        "dst": address(view, &view.destination),
        "dport": view.ports[1],
        "bytes": bytes,
        "seq": (view.protocol == TCP).then_some(view.sequence),
    })
}

fn address(view: &View, bytes: &[u8; 16]) -> String {
    match view.version {
        4 => std::net::Ipv4Addr::from([bytes[0], bytes[1], bytes[2], bytes[3]]).to_string(),
        _ => std::net::Ipv6Addr::from(*bytes).to_string(),
    }
}

fn seconds(at: Instant) -> f64 {
    at.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::view;
    use crate::testing::{datagram, ms};
    use nix::sys::eventfd::EfdFlags;

    fn failed() -> Arc<EventFd> {
        Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("an eventfd"))
    }

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("unbloat-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory of our own");
        path
    }

    #[test]
    fn notes_are_in_their_files_in_order_when_all_is_finished() {
        let dir = folder("report");
        let links = ["up".to_owned(), "down".to_owned()];
        let reporter = Reporter::start(&dir, &links, failed()).expect("files");
        let mut outbox = reporter.outbox();
        // More notes than may wait for the writer at once.
        for n in 0..3 * MAX_NOTES as u32 {
            outbox.put(Note::Log((n % 2) as usize, n.to_le_bytes().to_vec()));
        }
        let seen = view(&datagram(7, 60));
        outbox.put(Note::Loss(ms(1.5), 1, LossCause::Decided(Loss::Aqm), seen, 60));
        outbox.put(Note::Loss(ms(2.5), 0, LossCause::Undeliverable, View::default(), 1_500));
        assert_eq!(outbox.finish(), 0, "no note was given up");
        reporter.finish().expect("all is written");
        for (parity, name) in ["up.decisions", "down.decisions"].iter().enumerate() {
            let bytes = std::fs::read(dir.join(name)).expect("written");
            let numbers: Vec<u32> = bytes
                .chunks_exact(4)
                .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            let expected: Vec<u32> =
                (0..3 * MAX_NOTES as u32).filter(|n| *n as usize % 2 == parity).collect();
            assert_eq!(numbers, expected, "{name}");
        }
        let losses = std::fs::read_to_string(dir.join("losses.jsonl")).expect("written");
        let rows: Vec<Value> =
            losses.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(
            rows,
            [
                json!({"t_s": 0.0015, "link": 1, "why": "aqm", "proto": "udp", "src": "10.0.0.1",
                    "sport": 4_000, "dst": "10.0.0.2", "dport": 5_001, "bytes": 60, "seq": null}),
                json!({"t_s": 0.0025, "link": 0, "why": "undeliverable", "proto": 0, "src": "::",
                    "sport": 0, "dst": "::", "dport": 0, "bytes": 1_500, "seq": null}),
            ]
        );
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named() {
        let dir = folder("report-missing").join("nowhere");
        let Err((path, error)) = Reporter::start(&dir, &["up".to_owned()], failed()) else {
            panic!("there is no such directory");
        };
        assert_eq!(path, dir.join("up.decisions"));
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_full_disk_wakes_the_watching_thread_and_blocks_no_worker() {
        let dir = folder("report-full");
        // Every write to this device fails with ENOSPC, as on a full disk.
        std::os::unix::fs::symlink("/dev/full", dir.join("up.decisions")).expect("a link");
        let failed = failed();
        let reporter = Reporter::start(&dir, &["up".to_owned()], failed.clone()).expect("files");
        let mut outbox = reporter.outbox();
        for _ in 0..100 {
            outbox.put(Note::Log(0, vec![0; 4_096]));
        }
        outbox.finish();
        let Err((path, error)) = reporter.finish() else { panic!("nothing could be written") };
        assert_eq!(path, dir.join("up.decisions"));
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(failed.read(), Ok(1));
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn rows_of_stages_have_the_keys_that_the_lab_reads() {
        let row = StageRow {
            link: 2,
            stage: "queue",
            delay_ms: None,
            delay_ms_mean: None,
            packets: 9,
            overflowed: 3,
            dropped_by_aqm: 2,
            lost_on_link: 1,
            throughput: Some(Rate(8_000)),
        };
        let expected = json!({"link": 2, "stage": "queue", "packets": 9, "drops_overflow": 3,
            "drops_aqm": 2, "lost_on_link": 1, "throughput_bps": 8_000, "delay_ms": null});
        assert_eq!(stage_row(&row), expected);
        let bin = QueueRow {
            link: 0,
            stage: "firmware",
            t: ms(50.0),
            packets: 1,
            bytes: 1_500,
            delay: Some(Duration(1_500_000)),
            delay_max: Duration(2_000_000),
            drops: 4,
        };
        let expected = json!({"link": 0, "stage": "firmware", "t_s": 0.05, "packets": 1,
            "bytes": 1_500, "delay_ms": 1.5, "delay_ms_max": 2.0, "drops": 4});
        assert_eq!(queue_row(&bin), expected);
    }
}
