//! Every medium and every layer of the tables: any operation, golden curves, and real traces.
//!
//! A sender offers packets as a simulator would. With any entry time goes forward, packets arrive in order
//! unless a layer reorders them, and every offered packet is sent. `UNBLOAT_BLESS=1` renews the golden
//! files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use algo::link::layer::{self, Layer};
use algo::link::parse::{opportunities_from_text, rates_from_text};
use algo::link::{self, AnyMedium, Head, Link, Medium, Offer, Setup, Slot};
use algo::{Capacity, Entry, Param, Rng, Settings, Unit, Value};
use proptest::prelude::*;
use units::{Bytes, Duration, Instant, Rate};

/// A network with gaps, bursts and a slow interval, as trace and as rates.
fn sample() -> Setup {
    let opportunities = (0..2_000_u64)
        .filter(|ms| ms % 500 < 430)
        .flat_map(|ms| [ms; 2].into_iter().take(1 + (ms % 7 == 0) as usize));
    let rates =
        [(0, 12_000_000), (700, 1_500_000), (1_500, 0), (1_600, 40_000_000), (2_000, 6_000_000)];
    Setup {
        opportunities: opportunities.chain([2_000]).collect(),
        rates: rates.map(|(ms, bps)| (Instant(ms * 1_000_000), Rate(bps))).to_vec(),
    }
}

fn layer_setup() -> layer::Setup {
    layer::Setup { delay: Duration::from_millis(20) }
}

/// A value of the parameter's kind: its smallest, its largest, or its default.
fn edge(param: &Param, which: u8) -> Value {
    let range = param.range.map(|range| range());
    match (which % 3, range, param.unit) {
        (0, Some((min, _)), _) => min,
        (1, Some((_, max)), _) => max,
        (0, None, Unit::Flag) => Value::Flag(false),
        (1, None, Unit::Flag) => Value::Flag(true),
        (1, None, Unit::Choice(words)) => Value::Choice(words.len() - 1),
        (1, None, Unit::Numbers) => Value::Numbers(vec![0.5, 0.25, -1.0, 1e300, f64::NAN]),
        (1, None, Unit::Capacity) => Value::Capacity(Capacity::Packets(1)),
        _ => (param.default)(),
    }
}

fn build<T, S>(entry: &Entry<T, S>, setup: &S, edges: &[u8]) -> T {
    let values =
        entry.params.iter().zip(edges.iter().cycle()).map(|(param, which)| edge(param, *which));
    (entry.build)(&Settings(values.collect()), setup)
}

fn in_order(layers: &[(usize, Vec<u8>)]) -> bool {
    layers.iter().all(|(index, edges)| {
        let entry = &layer::TABLE[*index];
        let reorder = entry.params.iter().position(|param| param.name == "reorder");
        reorder
            .is_none_or(|at| edge(&entry.params[at], edges[at % edges.len()]) == Value::Flag(false))
    })
}

/// The sender's actions: a pause in ns, then bytes to offer.
fn operations() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pause = prop_oneof![
        4 => Just(0_u64),
        3 => 0..5_000_000_u64,
        2 => 0..20_000_000_000_u64,
        1 => 0..200_000_000_000_u64,
    ];
    let bytes = prop_oneof![4 => Just(1_500_u64), 2 => 20..1_500_u64, 1 => 0..65_536_u64];
    proptest::collection::vec((pause, bytes), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Contract of `Medium::offer`: packets never leave in the past, waiting ends in the future, and grants
    /// are the bytes sent.
    #[test]
    fn a_medium_goes_forward_in_time_whatever_it_is_offered(
        index in 0..link::TABLE.len(),
        edges in proptest::collection::vec(0..3_u8, 8),
        is_empty in proptest::bool::weighted(0.1),
        operations in operations(),
    ) {
        let entry = &link::TABLE[index];
        let setup = if is_empty { Setup::default() } else { sample() };
        let mut medium = build(entry, &setup, &edges);
        let mut rng = Rng::new(1, entry.name);
        let mut now = Instant::ZERO;
        for (pause, bytes) in operations {
            now = now + Duration(pause);
            let head = Head { bytes: Bytes(bytes), backlog: Bytes(bytes) };
            medium.on_backlog(now, head.backlog);
            // A packet may wait, but repeated offers at the returned times succeed.
            for _ in 0..200 {
                match medium.offer(now, &head, &mut rng) {
                    Slot::Leaves(at) => {
                        prop_assert!(at >= now, "{} leaves {at:?} before {now:?}", entry.name);
                        now = at;
                        break;
                    }
                    Slot::WaitUntil(at) => {
                        prop_assert!(at > now, "{} waits until {at:?} at {now:?}", entry.name);
                        now = at;
                    }
                }
            }
            medium.state(now);
        }
        medium.take_grants(now);
    }

    /// Contract of `Link::offer`: arrivals in order unless a layer reorders, none before its packet has left, and
    /// every packet that was sent arrives or is lost.
    #[test]
    fn a_link_delivers_in_order_unless_a_layer_says_otherwise(
        index in 0..link::TABLE.len(),
        edges in proptest::collection::vec(0..3_u8, 8),
        layers in proptest::collection::vec((0..layer::TABLE.len(), proptest::collection::vec(0..3_u8, 6)), 0..4),
        operations in operations(),
    ) {
        let entry = &link::TABLE[index];
        let stack = layers.iter().map(|(i, edges)| build(&layer::TABLE[*i], &layer_setup(), edges)).collect();
        let mut link = Link::new(build(entry, &sample(), &edges), Duration::from_millis(20), stack);
        let mut rng = Rng::new(1, entry.name);
        let (mut now, mut last) = (Instant::ZERO, Instant::ZERO);
        for (pause, bytes) in operations {
            now = now + Duration(pause);
            let head = Head { bytes: Bytes(bytes), backlog: Bytes(bytes) };
            for _ in 0..200 {
                match link.offer(now, &head, &mut rng) {
                    Offer::Start { leaves, arrives } => {
                        prop_assert!(leaves >= now);
                        if let Some(at) = arrives {
                            prop_assert!(at >= leaves, "{} arrives before it has left", entry.name);
                            prop_assert!(!in_order(&layers) || at >= last, "{layers:?} reorders");
                            last = at;
                        }
                        now = leaves;
                        break;
                    }
                    Offer::WaitUntil(at) => {
                        prop_assert!(at > now);
                        now = at;
                    }
                }
            }
        }
    }
}

/// A sender that always has a packet: bytes that arrived in each second, and in `losses` what did not.
fn saturate(link: &mut Link, name: &str, seconds: u64) -> (Vec<u64>, u64) {
    let mut rng = Rng::new(1, name);
    let mut now = Instant::ZERO;
    let (mut arrived, mut lost) = (vec![0; seconds as usize], 0);
    let head = Head { bytes: Bytes(1_500), backlog: Bytes(150_000) };
    link.medium.on_backlog(now, head.backlog);
    while now < Instant::ZERO + Duration::from_secs(seconds) {
        match link.offer(now, &head, &mut rng) {
            Offer::Start { leaves, arrives } => {
                match arrives.map(|at| (at.0 / 1_000_000_000) as usize) {
                    Some(second) if second < arrived.len() => arrived[second] += head.bytes.0,
                    Some(_) => {}
                    None => lost += head.bytes.0,
                }
                now = leaves;
                link.medium.on_backlog(now, head.backlog);
            }
            Offer::WaitUntil(at) => now = at,
        }
    }
    (arrived, lost)
}

fn golden(name: &str, curve: &(Vec<u64>, u64)) {
    let mut text = String::new();
    for (second, bytes) in curve.0.iter().enumerate() {
        writeln!(text, "{second}\t{bytes}").unwrap();
    }
    writeln!(text, "lost\t{}", curve.1).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/link_{name}.txt"));
    if std::env::var_os("UNBLOAT_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; UNBLOAT_BLESS=1 makes it", path.display()));
    assert_eq!(text, expected, "{name} is not its golden curve; UNBLOAT_BLESS=1 renews it");
}

#[test]
fn every_medium_follows_its_golden_curve() {
    for entry in link::TABLE {
        let mut link = Link::new(entry.default(&sample()), Duration::from_millis(20), vec![]);
        golden(entry.name, &saturate(&mut link, entry.name, 20));
    }
}

#[test]
fn every_layer_follows_its_golden_curve_above_a_constant_rate() {
    for entry in layer::TABLE {
        let layers: Vec<Layer> = vec![entry.default(&layer_setup())];
        let mut link =
            Link::new(medium("fixed", &Setup::default()), Duration::from_millis(20), layers);
        // two seconds longer than the default interval between outages
        golden(&format!("layer_{}", entry.name), &saturate(&mut link, entry.name, 32));
    }
}

#[test]
fn every_model_follows_its_golden_curve() {
    let entry = link::TABLE.iter().find(|entry| entry.name == "markov").unwrap();
    let Unit::Choice(words) = entry.params[0].unit else {
        panic!("the first parameter names the model")
    };
    for (index, word) in words.iter().enumerate() {
        let mut settings = Settings::defaults(entry.params);
        assert!(settings.set(entry.params, "model", Value::Choice(index)));
        let medium = (entry.build)(&settings, &Setup::default());
        let mut link = Link::new(medium, Duration::from_millis(20), vec![]);
        golden(&format!("markov_{word}"), &saturate(&mut link, word, 20));
    }
}

#[test]
fn the_same_seed_gives_the_same_curve() {
    for entry in link::TABLE {
        let run = || {
            let layers = layer::TABLE.iter().map(|layer| layer.default(&layer_setup())).collect();
            saturate(
                &mut Link::new(entry.default(&sample()), Duration::ZERO, layers),
                entry.name,
                5,
            )
        };
        assert_eq!(run(), run(), "{}", entry.name);
    }
}

/// The bytes of `take_grants` are those of the packets that left.
#[test]
fn grants_without_a_scheduler_are_the_bytes_that_left() {
    for entry in link::TABLE {
        let mut link = Link::new(entry.default(&sample()), Duration::ZERO, vec![]);
        let (mut sent, mut now) = (0, Instant::ZERO);
        let mut rng = Rng::new(1, entry.name);
        let head = Head { bytes: Bytes(1_100), backlog: Bytes(150_000) };
        link.medium.on_backlog(now, head.backlog);
        while now < Instant(5_000_000_000) {
            match link.offer(now, &head, &mut rng) {
                Offer::Start { leaves, arrives } => {
                    assert_eq!(
                        arrives,
                        Some(leaves),
                        "{}: without layers nothing is lost or late",
                        entry.name
                    );
                    sent += head.bytes.0;
                    now = leaves;
                    link.medium.on_backlog(now, head.backlog);
                }
                Offer::WaitUntil(at) => now = at,
            }
        }
        let grants = link.medium.take_grants(now);
        let filled = grants.granted.0 - grants.padding.0;
        // what is granted ahead of use may be a burst more
        assert!(filled >= sent && filled - sent < 150_000, "{}: {filled} {sent}", entry.name);
    }
}

fn medium(name: &str, setup: &Setup) -> AnyMedium {
    link::TABLE.iter().find(|entry| entry.name == name).unwrap().default(setup)
}

/// The shared traces, where they are.
fn shared_traces(folder: &str) -> Option<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared =
        std::env::var_os("UNBLOAT_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let folder = shared.join("traces").join(folder);
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!(
            "skipped: {} is absent; UNBLOAT_SHARED names the folder with traces/",
            folder.display()
        );
        return None;
    };
    let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.sort();
    Some(paths)
}

/// A file's text; `gzip` unpacks what is packed.
fn text(path: &Path) -> String {
    if path.extension().is_none_or(|ending| ending != "gz") {
        return std::fs::read_to_string(path).unwrap();
    }
    let output = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", path.display());
    String::from_utf8(output.stdout).unwrap()
}

// mm-link: each line is an opportunity for 1,500 bytes, the last value the period
#[test]
fn every_mahimahi_trace_gives_a_saturating_sender_all_its_opportunities() {
    let Some(paths) = shared_traces("mahimahi") else { return };
    let mut replayed = 0;
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains(".up") && !name.contains(".down") {
            continue;
        }
        let opportunities = opportunities_from_text(&text(&path)).unwrap();
        let (count, period) = (opportunities.len() as u64, *opportunities.last().unwrap());
        let setup = Setup { opportunities, rates: vec![] };
        for (size, laps) in [(1_500, 2), (1_000, 1)] {
            let mut link = Link::new(medium("trace", &setup), Duration::ZERO, vec![]);
            let (mut now, mut sent) = (Instant::ZERO, 0);
            let end = Instant(laps * period * 1_000_000);
            let mut rng = Rng::new(1, "replay");
            let head = Head { bytes: Bytes(size), backlog: Bytes(150_000) };
            while now <= end {
                match link.offer(now, &head, &mut rng) {
                    Offer::Start { leaves, .. } => {
                        sent += if leaves <= end { size } else { 0 };
                        now = leaves;
                    }
                    Offer::WaitUntil(at) => now = at,
                }
            }
            let share = sent as f64 / (laps * count * 1_500) as f64;
            assert!((share - 1.0).abs() < 0.005, "{name} in packets of {size}: {share}");
        }
        replayed += 1;
    }
    assert!(replayed > 0, "the folder holds no trace");
}

#[test]
fn every_rate_file_of_the_shared_sets_reads_and_gives_a_saturating_sender_its_integral() {
    let mut read = 0;
    for folder in ["oboe", "norway3g", "nyu-mets", "irish5g"] {
        let Some(paths) = shared_traces(folder) else { return };
        for path in paths {
            let rates =
                rates_from_text(&text(&path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(rates.len() > 10 && rates.iter().any(|(_, rate)| rate.0 > 0));
            // up to the last line's time, at most a minute of it
            let origin = rates[0].0;
            let end = Instant(rates.last().unwrap().0.since(origin).0.min(60_000_000_000));
            let bits: f64 = rates
                .windows(2)
                .map(|w| {
                    let stop = Instant(w[1].0.since(origin).0).min(end);
                    w[0].1.0 as f64 * stop.since(Instant(w[0].0.since(origin).0)).as_secs_f64()
                })
                .sum();
            let setup = Setup { opportunities: vec![], rates };
            let mut link = Link::new(medium("rates", &setup), Duration::ZERO, vec![]);
            let (mut now, mut sent) = (Instant::ZERO, 0_u64);
            let mut rng = Rng::new(1, "replay");
            let head = Head { bytes: Bytes(1_500), backlog: Bytes(150_000) };
            while now < end {
                match link.offer(now, &head, &mut rng) {
                    Offer::Start { leaves, .. } => {
                        sent += if leaves <= end { 12_000 } else { 0 };
                        now = leaves;
                    }
                    Offer::WaitUntil(at) => now = at,
                }
            }
            let off = (bits - sent as f64).abs();
            assert!(off <= 24_000.0 + bits * 1e-6, "{}: {sent} of {bits}", path.display());
            read += 1;
        }
    }
    assert!(read >= 40, "{read}");
}
