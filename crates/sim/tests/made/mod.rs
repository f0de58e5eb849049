//! Small scenarios by hand: two hosts, a link each way, one transfer; tests change what they are
//! about.

#![allow(dead_code, unused_imports)] // not every test crate needs all of it

use std::path::Path;

use algo::{Capacity, Settings, Value};
use capture::{Decoded, Decoder, TcpSegment};
use scenario::{
    Algorithm, App, Change, Changed, Flow, Link, Node, QueuePer, Read, Receiver, Scenario, Sender,
    WindowUpdate,
};
use sim::record::{FlowRow, SampleRow};
use sim::{Captures, Options, Results};
use units::{Bytes, Duration, Rate};

/// An entry of a table by name, with some values set.
macro_rules! algorithm {
    ($family:path, $name:expr $(, $key:literal = $value:expr)* $(,)?) => {{
        use $family as family;
        let index = family::TABLE.iter().position(|e| e.name == $name).expect("the table has it");
        let params = family::TABLE[index].params;
        #[allow(unused_mut)]
        let mut settings = algo::Settings::defaults(params);
        $(assert!(settings.set(params, $key, $value), "{} is a parameter", $key);)*
        scenario::Algorithm { index, settings }
    }};
}
pub(crate) use algorithm;

/// Payload of a full segment.
pub const MSS: u64 = 1_448;
/// The host that sends.
pub const SENDER: usize = 0;
/// The host that receives.
pub const RECEIVER: usize = 1;
/// Sender to receiver.
pub const THERE: usize = 0;
/// Receiver to sender.
pub const BACK: usize = 1;

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn droptail(packets: u64) -> Algorithm {
    algorithm!(algo::aqm, "droptail", "limit" = Value::Capacity(Capacity::Packets(packets)))
}

pub fn link(from: usize, to: usize, mbit: f64, one_way: Duration, packets: u64) -> Link {
    Link {
        name: format!("{from}-{to}"),
        from,
        to,
        medium: algorithm!(algo::link, "fixed", "rate" = Value::Rate(Rate((mbit * 1e6) as u64))),
        trace: None,
        delay: one_way,
        layers: Vec::new(),
        queue: droptail(packets),
        queue_per: QueuePer::Link,
    }
}

pub fn transfer(from: usize, to: usize, congestion: &str) -> Flow {
    Flow {
        name: "flow".into(),
        from,
        to,
        sender_opens: true,
        start: Duration::ZERO,
        stop: None,
        sender: Sender {
            congestion: algorithm!(algo::cc, congestion),
            initial_window: 10,
            mss: Bytes(MSS),
            buffer: Bytes(8 << 20),
            waits_for_space: false,
            tsq: None,
            pacing: false,
            sack: true,
            timestamps: true,
            ecn: false,
            class: 1,
            slow_start_after_idle: true,
        },
        receiver: Receiver {
            window: fixed(4 << 20),
            read: Read::AtOnce,
            window_update: WindowUpdate::Linux,
            ack_every: 2,
            ack_delay: ms(40),
            ack_class: 1,
        },
        app: App::Bulk,
    }
}

/// A window that never changes.
pub fn fixed(bytes: u64) -> Algorithm {
    algorithm!(algo::rwnd, "fixed", "window" = Value::Bytes(Bytes(bytes)))
}

/// One bulk transfer over `mbit` Mbit/s with `rtt` there and back and a tail-drop queue.
pub fn path(mbit: f64, rtt: Duration, packets: u64, seconds: u64) -> Scenario {
    let half = Duration(rtt.0 / 2);
    let node = |name: &str| Node { name: name.into(), device: None, window: None };
    Scenario {
        name: "made".into(),
        about: String::new(),
        duration: Duration::from_secs(seconds),
        warmup: Duration::ZERO,
        seed: 1,
        bin: ms(100),
        nodes: vec![node("sender"), node("receiver")],
        links: vec![
            link(SENDER, RECEIVER, mbit, half, packets),
            link(RECEIVER, SENDER, 1_000.0, half, 10_000),
        ],
        flows: vec![transfer(SENDER, RECEIVER, "newreno")],
        probes: Vec::new(),
        changes: Vec::new(),
        lab: scenario::Lab::default(),
    }
}

/// A file of whole segments.
pub fn file(segments: u64) -> App {
    App::File { bytes: Bytes(segments * MSS), every: None }
}

/// From `at` for `span`, everything on link `index` is lost.
pub fn lose(s: &mut Scenario, index: usize, at: Duration, span: Duration) {
    let mut lossy = s.links[index].clone();
    lossy.layers = vec![algorithm!(algo::link::layer, "loss", "rate" = Value::Number(1.0))];
    s.changes.push(Change { at, what: vec![Changed::Link(index, lossy)] });
    s.changes
        .push(Change { at: at + span, what: vec![Changed::Link(index, s.links[index].clone())] });
    s.changes.sort_by_key(|c| c.at);
}

/// From `at` for `span`, nothing moves on link `index`, and nothing is lost.
pub fn stall(s: &mut Scenario, index: usize, at: Duration, span: Duration) {
    s.links[index].layers.push(algorithm!(
        algo::link::layer,
        "outage",
        "at" = Value::Numbers(vec![at.as_secs_f64()]),
        "length" = Value::Duration(span),
    ));
}

/// Runs it, with every loss on record; no run may lose count of its frames.
pub fn run(s: &Scenario) -> Results {
    let results =
        sim::run(s, Options { events: true }, &mut |_| true).expect("a run that is never stopped");
    assert!(results.conservation.holds(), "{:?}", results.conservation);
    results
}

/// What the transfer's data went through.
pub fn data(results: &Results) -> &FlowRow {
    results.flows.iter().max_by_key(|f| f.bytes).expect("a transfer")
}

/// The series of the transfer.
pub fn series(results: &Results) -> Vec<SampleRow> {
    let id = data(results).id;
    results.samples.iter().filter(|s| s.flow == id).copied().collect()
}

/// Every TCP segment that passed a node, in order, as a capture shows it.
pub fn segments(s: &Scenario, node: usize) -> Vec<TcpSegment> {
    let dir = std::env::temp_dir().join(format!("unbloat-sim-{}-{}", std::process::id(), unique()));
    let captures = Captures::create(s, &dir).expect("a directory for captures");
    let (results, paths) =
        sim::run_with_captures(s, Options::default(), captures, &mut |_| true).expect("a run");
    assert!(results.conservation.holds(), "{:?}", results.conservation);
    let found = read(&paths[node]);
    std::fs::remove_dir_all(&dir).expect("its own directory");
    found
}

fn unique() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn read(path: &Path) -> Vec<TcpSegment> {
    let mut reader = capture::open(path).expect("a capture");
    let mut decoder = Decoder::new();
    let mut found = Vec::new();
    while let Some(frame) = reader.next_frame().expect("a whole capture") {
        if let Decoded::Tcp(segment) = decoder.decode(&frame) {
            found.push(segment);
        }
    }
    found
}

/// The segments that have payload.
pub fn payloads(segments: &[TcpSegment]) -> Vec<TcpSegment> {
    segments.iter().filter(|s| s.payload > 0).copied().collect()
}

/// Milliseconds from the start of the run.
pub fn at_ms(s: &TcpSegment, first: &TcpSegment) -> f64 {
    (s.ip.time.0 - first.ip.time.0) as f64 / 1e6
}

/// Goodput between two times, Mbit/s, from the series.
pub fn mbit_between(results: &Results, from: Duration, to: Duration) -> f64 {
    let bytes: u64 = series(results)
        .iter()
        .filter(|s| s.t.0 >= from.0 && s.t.0 < to.0)
        .map(|s| s.delivered)
        .sum();
    bytes as f64 * 8.0 / to.saturating_sub(from).as_secs_f64() / 1e6
}

/// All settings of an entry at their defaults.
pub fn defaults(index: usize, params: &[algo::Param]) -> Algorithm {
    Algorithm { index, settings: Settings::defaults(params) }
}
