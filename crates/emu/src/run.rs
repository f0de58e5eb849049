//! A run from beginning to end, and its messages to the parent process.
//!
//! The parent writes `go` and `stop` to standard input and reads JSON lines from standard output.
//! Devices are made and announced first. At `go` the clock's zero is set and a thread per direction
//! starts; one thread watches all of them. Files go to the run's directory. An error is one line.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use scenario::{Offload, Scenario};
use serde_json::{Value, json};
use units::{Duration, Histogram, Instant};

use crate::clock::{self, Clock};
use crate::commands::{Command, Commands};
use crate::probe::{self, Listener, Prober};
use crate::report::{Reporter, stage_row};
use crate::telemetry::Telemetry;
use crate::tun::{Tun, TunOptions};
use crate::worker::{Finished, Live, Parts, Worker, WorkerError};

/// From `go` to the run's zero: workers are up by then, and the parent has read when it is.
const LEAD_NS: u64 = 20_000_000;
/// How often the watching thread looks at namespaces and the end of the run, ms.
const WATCH_MS: u16 = 50;
/// How long a parent that has read `done` may take to end its captures, ms.
const PARENT_TIMEOUT_MS: u16 = 3_000;
/// Interval of the messages with counters.
const COUNTERS_INTERVAL_NS: u64 = 1_000_000_000;
/// From this rate on a link's devices take large segments, if the scenario leaves it open: below it
/// a packet lasts longer than 60 µs, and system calls cost nothing beside it.
const OFFLOAD_BPS: u64 = 200_000_000;

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

/// Two devices that face each other, and the links between them.
struct Pair {
    /// By side: node, index of the link that leaves it here.
    sides: [(usize, Option<usize>); 2],
    offload: bool,
}

/// Which links go back to back over one pair of devices: the k-th from A to B with the k-th from B
/// to A.
fn pairs(scenario: &Scenario, offload: Option<Offload>) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for (index, link) in scenario.links.iter().enumerate() {
        let partner =
            pairs.iter_mut().find(|p| p.sides[0].0 == link.to && p.sides[1] == (link.from, None));
        let fast = match offload.unwrap_or(scenario.lab.offload) {
            Offload::On => true,
            Offload::Off => false,
            Offload::Auto => max_rate(scenario, index) >= OFFLOAD_BPS,
        };
        match partner {
            Some(pair) => {
                pair.sides[1].1 = Some(index);
                pair.offload |= fast;
            }
            None => {
                let sides = [(link.from, Some(index)), (link.to, None)];
                pairs.push(Pair { sides, offload: fast });
            }
        }
    }
    pairs
}

/// The largest rate of a link, as far as the scenario gives it.
fn max_rate(scenario: &Scenario, index: usize) -> u64 {
    let link = &scenario.links[index];
    let entry = &algo::link::TABLE[link.medium.index];
    match (&link.trace, entry.name) {
        (Some(scenario::Trace::Rates(steps)), _) => {
            steps.iter().map(|(_, rate)| rate.bps()).max().unwrap_or(0)
        }
        (Some(scenario::Trace::Opportunities(ms)), _) => {
            // Opportunities of 1,504 bytes, on average over the trace.
            let last = ms.last().copied().unwrap_or(1).max(1);
            ms.len() as u64 * 1_504 * 8 * 1_000 / last
        }
        (None, "fixed") => {
            let place = entry.params.iter().position(|p| p.name == "rate");
            match place.and_then(|place| link.medium.settings.0.get(place)) {
                Some(algo::Value::Rate(rate)) => rate.bps(),
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// A device name that the kernel takes: at most 15 bytes, none of them a slash, a blank or a colon.
fn device_name(scenario: &Scenario, side: (usize, Option<usize>), peer: usize) -> String {
    let name = match side.1 {
        Some(link) => scenario.links[link].name.clone(),
        None => format!("from-{}", scenario.nodes[peer].name),
    };
    let clean: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .collect();
    match clean.len() {
        1..=15 if clean != "lo" && clean != "." && clean != ".." => clean,
        _ => side.1.map_or_else(|| format!("in{peer}"), |link| format!("link{link}")),
    }
}

/// Both devices of a pair, opened.
type Opened = [Arc<Tun>; 2];

fn open(scenario: &Scenario, options: &Options, pair: &Pair) -> Result<Opened, RunError> {
    let one = |side: usize| {
        let (node, _) = pair.sides[side];
        let peer = pair.sides[1 - side].0;
        let namespace = &options.namespaces[&scenario.nodes[node].name];
        let name = device_name(scenario, pair.sides[side], peer);
        let path = namespace_path(namespace);
        let device = TunOptions {
            namespace: &path,
            name: &name,
            queues: options.queues,
            offload: pair.offload,
        };
        let error =
            |source| RunError::Device { name: name.clone(), namespace: namespace.clone(), source };
        Tun::open(&device).map(Arc::new).map_err(error)
    };
    Ok([one(0)?, one(1)?])
}

/// Named namespaces are files there (ip-netns(8)); a path is taken as it is.
fn namespace_path(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new("/run/netns").join(name) }
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

fn devices_message(
    scenario: &Scenario,
    options: &Options,
    pairs: &[Pair],
    opened: &[Opened],
) -> Value {
    let mut devices = Vec::new();
    for (pair, tuns) in pairs.iter().zip(opened) {
        for (side, tun) in tuns.iter().enumerate() {
            let (node, out) = pair.sides[side];
            let (peer, back) = pair.sides[1 - side];
            devices.push(json!({
                "node": node,
                "peer": peer,
                "namespace": options.namespaces[&scenario.nodes[node].name],
                "name": tun.name,
                "links": [out, back],
                "offload": pair.offload,
            }));
        }
    }
    json!({"event": "devices", "devices": devices})
}

fn counters(live: &Live) -> [(&'static str, u64); 7] {
    let read = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
    [
        ("offered", read(&live.offered)),
        ("arrived", read(&live.arrived)),
        ("bytes", read(&live.bytes)),
        ("dropped", read(&live.dropped)),
        ("lost", read(&live.lost)),
        ("undeliverable", read(&live.refused)),
        ("waiting_bytes", read(&live.waiting)),
    ]
}

fn link_object(scenario: &Scenario, link: usize, live: &Live) -> Value {
    let mut object = json!({"link": scenario.links[link].name});
    for (name, value) in counters(live) {
        object[name] = json!(value);
    }
    object
}

fn summary(
    scenario: &Scenario,
    finished: &[(usize, Arc<Live>, Finished)],
    pairs: &[Pair],
    opened: &[Opened],
    ran: Instant,
    complete: bool,
) -> Value {
    let mut links = Vec::new();
    let mut all = Histogram::default();
    for (link, live, one) in finished {
        let mut object = link_object(scenario, *link, live);
        for (name, value) in [
            ("early", one.early),
            ("oversize", one.oversize),
            ("held", one.stored),
            ("memory_bytes", one.memory),
        ] {
            object[name] = json!(value);
        }
        object["lateness_us"] = quantiles(&one.lateness);
        all.merge(&one.lateness);
        links.push(object);
    }
    let mut devices = Vec::new();
    let mut lost = 0;
    for (pair, tuns) in pairs.iter().zip(opened) {
        for (side, tun) in tuns.iter().enumerate() {
            // A device that is gone has no counters.
            let counters = tun.counters().unwrap_or_default();
            lost += counters.dropped;
            devices.push(json!({
                "node": scenario.nodes[pair.sides[side].0].name,
                "name": tun.name,
                "dropped": counters.dropped,
                "refused": counters.refused,
                "offload": pair.offload,
            }));
        }
    }
    json!({
        "ran_s": ran.0 as f64 / 1e9,
        "links": links,
        "devices": devices,
        "kernel_drops": lost,
        "lateness_us": quantiles(&all),
        "log_complete": complete,
    })
}

fn quantiles(histogram: &Histogram) -> Value {
    let at = |q: f64| histogram.quantile(q).map(|ns| ns as f64 / 1e3);
    json!({"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "p999": at(0.999), "max": at(1.0)})
}

type Thread = (usize, Arc<Live>, JoinHandle<(Finished, Result<(), WorkerError>)>);

/// The watching thread: signals, the parent's commands, and the end.
struct Watch {
    signals: SignalFd,
    /// Readable for all workers when the run is over.
    stop: Arc<EventFd>,
    /// Readable when a worker or the writer has failed.
    failed: Arc<EventFd>,
    commands: Commands,
}

/// What the watching thread waits for.
enum WatchEvent {
    Command(Command),
    Failed,
    None,
}

impl Watch {
    fn new() -> Result<Watch, RunError> {
        let system = |what| move |error| RunError::System(what, error);
        let mut set = SigSet::empty();
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .for_each(|signal| set.add(signal));
        // Before any thread starts, so that all of them leave signals to this one.
        set.thread_block().map_err(system("signals"))?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(system("signalfd"))?;
        let event =
            || EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map(Arc::new);
        let stop = event().map_err(system("eventfd"))?;
        let failed = event().map_err(system("eventfd"))?;
        Ok(Watch { signals, stop, failed, commands: Commands::default() })
    }

    /// Waits up to [`WATCH_MS`] for a signal, a failure or a command.
    fn next_event(&mut self, commands: bool) -> Result<WatchEvent, RunError> {
        let stdin = io::stdin();
        let mut polled = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.failed.as_fd(), PollFlags::POLLIN),
        ];
        if commands {
            polled.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, PollTimeout::from(WATCH_MS)) {
            Err(nix::errno::Errno::EINTR) => return Ok(WatchEvent::None),
            Ok(_) => {}
            Err(error) => return Err(RunError::System("poll", error)),
        }
        let happened: Vec<bool> = polled
            .iter()
            .map(|fd| !fd.revents().unwrap_or(PollFlags::empty()).is_empty())
            .collect();
        drop(polled);
        if happened[1] {
            return Ok(WatchEvent::Failed);
        }
        if happened[0] {
            return Ok(WatchEvent::Command(Command::Stop));
        }
        if happened.get(2) == Some(&true) {
            let mut buffer = [0; 256];
            // Unlocked and unbuffered, or poll would not see what a buffer contains.
            let length = nix::unistd::read(stdin.as_fd(), &mut buffer).unwrap_or(0);
            if length == 0 {
                return Ok(WatchEvent::Command(Command::Stop));
            }
            self.commands.extend(&buffer[..length]);
        }
        Ok(self.commands.take_next().map_or(WatchEvent::None, WatchEvent::Command))
    }

    /// Waits for `go`; false: stop without a run.
    fn wait_for_go(&mut self, scenario: &Scenario, options: &Options) -> Result<bool, RunError> {
        loop {
            match self.next_event(true)? {
                WatchEvent::Command(Command::Go) => return Ok(true),
                WatchEvent::Command(Command::Stop) => return Ok(false),
                WatchEvent::Failed | WatchEvent::None => namespaces_are_there(scenario, options)?,
            }
        }
    }

    fn until_the_end(
        &mut self,
        scenario: &Scenario,
        options: &Options,
        clock: Clock,
        threads: &[Thread],
        print: &mut dyn FnMut(Value),
    ) -> Result<(), RunError> {
        let end = Instant(options.stop_after.unwrap_or(scenario.duration).min(scenario.duration).0);
        let mut seconds_printed = 0;
        loop {
            let now = clock.now();
            if now >= end {
                return Ok(());
            }
            if now.0 / COUNTERS_INTERVAL_NS > seconds_printed {
                seconds_printed = now.0 / COUNTERS_INTERVAL_NS;
                let links: Vec<Value> = threads
                    .iter()
                    .map(|(link, live, _)| link_object(scenario, *link, live))
                    .collect();
                print(json!({"event": "counters", "t_s": now.0 as f64 / 1e9, "links": links}));
            }
            match self.next_event(!options.at_once)? {
                WatchEvent::Command(Command::Stop) | WatchEvent::Failed => return Ok(()),
                WatchEvent::Command(Command::Go) | WatchEvent::None => {}
            }
            if threads.iter().any(|(.., thread)| thread.is_finished()) {
                return Ok(());
            }
            namespaces_are_there(scenario, options)?;
        }
    }

    /// The devices stay until the parent is done: a capture on a device that vanishes loses its
    /// last packets.
    fn wait_for_parent(&mut self) -> Result<(), RunError> {
        let looks = PARENT_TIMEOUT_MS / WATCH_MS;
        for _ in 0..looks {
            if let WatchEvent::Command(Command::Stop) | WatchEvent::Failed =
                self.next_event(true)?
            {
                break;
            }
        }
        Ok(())
    }

    fn stop_workers(&self) {
        // It is never read, so that it stays readable for all. A counter at one cannot overflow.
        let _ = self.stop.write(1);
    }
}

/// A device keeps its namespace alive, so that only the name shows that it was removed.
fn namespaces_are_there(scenario: &Scenario, options: &Options) -> Result<(), RunError> {
    for node in &scenario.nodes {
        let name = &options.namespaces[&node.name];
        if !namespace_path(name).exists() {
            return Err(RunError::NamespaceGone(name.clone()));
        }
    }
    Ok(())
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

    fn sides(pairs: &[Pair]) -> Vec<[(usize, Option<usize>); 2]> {
        pairs.iter().map(|pair| pair.sides).collect()
    }

    #[test]
    fn a_link_and_the_one_back_share_a_pair_of_devices() {
        let mut two = scenario(UP);
        assert_eq!(sides(&pairs(&two, None)), [[(0, Some(0)), (1, Some(1))]]);
        // A second link each way, and one that nothing comes back over.
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            two.links.push(scenario::Link { from, to, ..two.links[0].clone() });
        }
        assert_eq!(
            sides(&pairs(&two, None)),
            [[(0, Some(0)), (1, Some(1))], [(0, Some(2)), (1, Some(3))], [(0, Some(4)), (1, None)]]
        );
    }

    #[test]
    fn devices_take_large_segments_from_200_mbit_s_on_or_as_they_are_set() {
        let offload = |up: &str, forced| pairs(&scenario(up), forced)[0].offload;
        for (rate, auto) in [("199 Mbit/s", false), ("200 Mbit/s", true), ("1 Gbit/s", true)] {
            let up = format!("rate = \"{rate}\"\ndelay = \"5 ms\"");
            assert_eq!(offload(&up, None), auto, "{rate}");
            assert!(offload(&up, Some(Offload::On)) && !offload(&up, Some(Offload::Off)));
        }
        // Four opportunities of 1,504 bytes in 10 ms are 4.8128 Mbit/s.
        assert_eq!(max_rate(&scenario("trace = \"made.up\"\ndelay = \"5 ms\""), 0), 4_812_800);
        let profile =
            "rate = { profile = [2, 300], unit = \"Mbit/s\", slot = \"10 ms\" }\ndelay = \"5 ms\"";
        assert_eq!(max_rate(&scenario(profile), 0), 300_000_000);
        assert!(offload(profile, None));
    }

    #[test]
    fn names_of_devices_are_such_that_the_kernel_takes_them() {
        let mut one = scenario(UP);
        let name_of = |scenario: &Scenario| device_name(scenario, (0, Some(0)), 1);
        assert_eq!(name_of(&one), "up");
        for (link, device) in [
            ("air/up 1:2", "air-up-1-2"),
            ("fifteen-letters", "fifteen-letters"),
            ("sixteen-letters.", "link0"),
            ("lo", "link0"),
            ("..", "link0"),
            ("", "link0"),
            ("über", "-ber"),
        ] {
            one.links[0].name = link.to_owned();
            assert_eq!(name_of(&one), device, "{link}");
        }
        assert_eq!(device_name(&one, (1, None), 0), "from-client");
        one.nodes[0].name = "a-long-name-of-a-node".to_owned();
        assert_eq!(device_name(&one, (1, None), 0), "in0");
    }

    #[test]
    fn a_namespace_is_a_name_or_a_path() {
        assert_eq!(namespace_path("blue"), Path::new("/run/netns/blue"));
        assert_eq!(namespace_path("/proc/1/ns/net"), Path::new("/proc/1/ns/net"));
    }

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

    #[test]
    fn counters_and_quantiles_are_printed_under_their_names() {
        let live = Live::default();
        live.offered.store(5, Ordering::Relaxed);
        live.refused.store(2, Ordering::Relaxed);
        live.waiting.store(1_500, Ordering::Relaxed);
        assert_eq!(
            link_object(&scenario(UP), 0, &live),
            json!({"link": "up", "offered": 5, "arrived": 0, "bytes": 0, "dropped": 0, "lost": 0,
                "undeliverable": 2, "waiting_bytes": 1_500})
        );
        assert_eq!(quantiles(&Histogram::default())["p50"], Value::Null);
        let mut late = Histogram::default();
        (1..=1_000).for_each(|us| late.record(us * 1_000));
        let found = quantiles(&late);
        for (name, us) in [("p50", 500.0), ("p95", 950.0), ("p99", 990.0), ("max", 1_000.0)] {
            let off = found[name].as_f64().expect("a number") / us - 1.0;
            assert!(off.abs() < 0.02, "{name}: {found}");
        }
    }
}
