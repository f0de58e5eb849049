//! A run from beginning to end.
//!
//! The parent writes `go` and `stop` to standard input and reads JSON lines from standard output.
//! Devices are made and announced first. At `go` the clock's zero is set and a thread per direction
//! starts; one thread watches all of them. Files go to the run's directory. An error is one line.

mod devices;
mod summary;
mod watch;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
use scenario::{Changed, Offload, Scenario};
use serde_json::{Value, json};
use units::{Duration, Instant};

use algo::gate::{self, Gate};

use crate::clock::{self, Clock};
use crate::probe::{self, Listener, Prober};
use crate::report::{Reporter, stage_row};
use crate::telemetry::Telemetry;
use crate::worker::{Finished, Live, Parts, Worker, WorkerError};
use devices::{Opened, Pair, devices_message, open, pairs};
use summary::summary;
use watch::{Thread, Watch};

/// From `go` to the run's zero: workers are up by then, and the parent has read when it is.
const LEAD_NS: u64 = 20_000_000;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for the files of the run.
    pub out: PathBuf,
    /// Namespace of each node, by name.
    pub namespaces: BTreeMap<String, String>,
    /// Segmentation offload, instead of the scenario's setting.
    pub offload: Option<Offload>,
    /// Number of queues per device (IFF_MULTI_QUEUE).
    pub queues: usize,
    /// Stop after so long, if that is before the scenario's end.
    pub stop_after: Option<Duration>,
    /// Start without `go`, and read no commands.
    pub at_once: bool,
}

/// Why a run did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A node has no namespace.
    #[error("no namespace for node {0}: give --netns {0}=NAME")]
    NoNamespace(String),
    /// A gate without a queue above it.
    #[error(
        "node {0}: gate.refuse: the emulator has a queue above its gate; lab.gate = \"agent\" has none"
    )]
    Refuses(String),
    /// A device could not be made.
    #[error("device {name} in namespace {namespace}: {source}")]
    Device {
        /// Name of the device.
        name: String,
        /// Namespace that it was made in.
        namespace: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A namespace is not there any more.
    #[error("namespace {0} is gone")]
    NamespaceGone(String),
    /// A direction stopped early.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A thread of a direction died: a defect of this program.
    #[error("the thread of link {0} died")]
    Died(String),
    /// A system call that cannot fail did.
    #[error("{0}: {1}")]
    System(&'static str, nix::errno::Errno),
}

/// Runs a scenario; `print` gets each message for the parent.
pub fn run(
    scenario: &Scenario,
    options: &Options,
    print: &mut dyn FnMut(Value),
) -> Result<(), RunError> {
    for node in &scenario.nodes {
        if !options.namespaces.contains_key(&node.name) {
            return Err(RunError::NoNamespace(node.name.clone()));
        }
    }
    // At the beginning, and in mid-run.
    let first = scenario.nodes.iter().enumerate();
    let first = first.filter_map(|(number, node)| Some((number, &node.device.as_ref()?.gate)));
    let later = scenario.changes.iter().flat_map(|change| &change.what);
    let later = later.filter_map(|what| match what {
        Changed::Gate(number, gate) => Some((*number, gate)),
        _ => None,
    });
    for (number, gate) in first.chain(later) {
        if gate.gate(&gate::Setup::default()).refuses() {
            return Err(RunError::Refuses(scenario.nodes[number].name.clone()));
        }
    }
    let file = |path: PathBuf| move |source| RunError::File { path, source };
    std::fs::create_dir_all(&options.out).map_err(file(options.out.clone()))?;
    let mut watch = Watch::new()?;
    let pairs = pairs(scenario, options.offload);
    let opened: Vec<Opened> =
        pairs.iter().map(|pair| open(scenario, options, pair)).collect::<Result<_, _>>()?;
    print(devices_message(scenario, options, &pairs, &opened));
    if !options.at_once && !watch.wait_for_go(scenario, options)? {
        return Ok(());
    }
    let names: Vec<String> = scenario.links.iter().map(|l| l.name.replace('/', "-")).collect();
    let reporter = Reporter::start(&options.out, &names, watch.failed.clone())
        .map_err(|(path, source)| RunError::File { path, source })?;

    let clock = Clock { zero_ns: clock::monotonic_ns() + LEAD_NS };
    let t0_unix_ns = clock::unix_ns() + (clock.zero_ns - clock::monotonic_ns());
    let threads =
        start_workers(scenario, options, &names, (&pairs, &opened), clock, &reporter, &watch)?;
    print(json!({"event": "started", "t0_monotonic_ns": clock.zero_ns, "t0_unix_ns": t0_unix_ns}));

    let watched = watch.until_the_end(scenario, options, clock, &threads, print);
    let ran = clock.now().min(Instant(scenario.duration.0));
    watch.stop_workers();
    let (finished, mut trouble) = join_workers(scenario, threads, watched.err());
    let written = reporter.finish();
    let complete = written.is_ok() && finished.iter().all(|(.., one)| one.notes_lost == 0);
    // A file error is reported before all else: a full disk may have led to the rest.
    if let Err((path, source)) = written {
        trouble = Some(RunError::File { path, source });
    }
    let mut summary = summary(scenario, &finished, &pairs, &opened, ran, complete);
    let stages: String = finished
        .iter()
        .flat_map(|(.., one)| &one.stages)
        .map(|row| stage_row(row).to_string() + "\n")
        .collect();
    for (name, text) in [("stages.jsonl", stages), ("emu.json", format!("{summary:#}\n"))] {
        let path = options.out.join(name);
        if let Err(source) = std::fs::write(&path, text) {
            trouble = trouble.or(Some(RunError::File { path, source }));
        }
    }
    summary["event"] = json!("done");
    print(summary);
    if trouble.is_none() && !options.at_once {
        watch.wait_for_parent()?;
    }
    trouble.map_or(Ok(()), Err)
}

/// Starts a thread for each link, in the order of the links.
fn start_workers(
    scenario: &Scenario,
    options: &Options,
    names: &[String],
    (pairs, opened): (&[Pair], &[Opened]),
    clock: Clock,
    reporter: &Reporter,
    watch: &Watch,
) -> Result<Vec<Thread>, RunError> {
    let (mut probers, listeners) = probes(scenario)?;
    let mut threads = Vec::new();
    for (pair, tuns) in pairs.iter().zip(opened) {
        for side in 0..2 {
            let Some(link) = pair.sides[side].1 else { continue };
            let live = Arc::new(Live::default());
            let worker = Worker::new(Parts {
                scenario,
                link,
                input: tuns[side].clone(),
                output: tuns[1 - side].clone(),
                offload: pair.offload,
                clock,
                stop: watch.stop.clone(),
                outbox: reporter.outbox(),
                telemetry: telemetry(scenario, options, link)?,
                prober: probers.remove(&link),
                listeners: listeners.get(&scenario.links[link].to).cloned().unwrap_or_default(),
                live: live.clone(),
            });
            let failed = watch.failed.clone();
            let thread = std::thread::Builder::new()
                .name(names[link].chars().take(15).collect())
                .spawn(move || {
                    set_realtime_priority();
                    let outcome = worker.run();
                    if outcome.1.is_err() {
                        // Without this the watching thread finds the worker at its next look.
                        let _ = failed.write(1);
                    }
                    outcome
                })
                .map_err(|source| RunError::File { path: PathBuf::from("thread"), source })?;
            threads.push((link, live, thread));
        }
    }
    threads.sort_by_key(|(link, ..)| *link);
    Ok(threads)
}

type Ended = Vec<(usize, Arc<Live>, Finished)>;

/// Waits for all workers; `trouble` is the first error so far.
fn join_workers(
    scenario: &Scenario,
    threads: Vec<Thread>,
    mut trouble: Option<RunError>,
) -> (Ended, Option<RunError>) {
    let mut finished = Vec::new();
    for (link, live, thread) in threads {
        match thread.join() {
            Ok((one, outcome)) => {
                trouble = trouble.or(outcome.err().map(RunError::from));
                finished.push((link, live, one));
            }
            Err(_) => trouble = trouble.or(Some(RunError::Died(scenario.links[link].name.clone()))),
        }
    }
    (finished, trouble)
}

fn telemetry(
    scenario: &Scenario,
    options: &Options,
    link: usize,
) -> Result<Option<Telemetry>, RunError> {
    let Some(node) =
        scenario.nodes.iter().position(|n| n.device.as_ref().is_some_and(|d| d.link == link))
    else {
        return Ok(None);
    };
    let devices = scenario.nodes.iter().filter(|n| n.device.is_some()).count();
    let name = match devices {
        1 => "telemetry.sock".to_owned(),
        _ => format!("telemetry-{}.sock", scenario.nodes[node].name),
    };
    let path = options.out.join(name);
    let made = Telemetry::listen(&path, node as u16);
    made.map(Some).map_err(|source| RunError::File { path, source })
}

type Probes = (BTreeMap<usize, Prober>, BTreeMap<usize, Vec<Listener>>);

/// The probers by link, and by node the listeners that intercept their answers.
fn probes(scenario: &Scenario) -> Result<Probes, RunError> {
    let (mut probers, mut listeners) = (BTreeMap::new(), BTreeMap::<usize, Vec<Listener>>::new());
    for (node, device) in
        scenario.nodes.iter().enumerate().filter_map(|(i, n)| Some((i, n.device.as_ref()?)))
    {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake =
            EventFd::from_flags(flags).map_err(|error| RunError::System("eventfd", error))?;
        let far = scenario.gate_far(node, device.link);
        let (prober, listener) =
            probe::pair(scenario::address(node).octets(), scenario::address(far).octets(), wake);
        probers.insert(device.link, prober);
        listeners.entry(node).or_default().push(listener);
    }
    Ok((probers, listeners))
}

/// Workers run before all other programs, where this is allowed. A delivery that waits for a busy
/// program is late by a time slice of the scheduler (24 to 87 ms were measured on a busy machine).
#[allow(unsafe_code)]
fn set_realtime_priority() {
    let parameter = libc::sched_param { sched_priority: 10 };
    // SAFETY: plain old data, read by the call only. Not being allowed to is no error: it is only
    // less precise.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
}

/// Writes a message for the parent. An error is ignored: the end of its commands shows that it is
/// gone.
pub fn write_line(stdout: &mut impl Write, value: &Value) {
    let _ = writeln!(stdout, "{value}").and_then(|()| stdout.flush());
}

/// Reads a file whole, as text.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;

    const UP: &str = "rate = \"8 Mbit/s\"\ndelay = \"5 ms\"";

    #[test]
    fn a_node_without_a_namespace_ends_the_run_before_it_begins() {
        let options = Options {
            out: "/nowhere".into(),
            namespaces: [("client".to_owned(), "a".to_owned())].into(),
            offload: None,
            queues: 1,
            stop_after: None,
            at_once: true,
        };
        let error = run(&scenario(UP), &options, &mut |_| panic!("nothing is announced"));
        assert_eq!(
            error.expect_err("the server has none").to_string(),
            "no namespace for node server: give --netns server=NAME"
        );
    }
}
