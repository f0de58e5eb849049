//! The example of the manual, key by key.

use algo::Capacity;
use scenario::{
    Algorithm, App, Changed, Document, Family, JitterBuffer, Page, ProbeKind, QueuePer, Read,
    Scenario, Statistic, Trace, TraceMissing, TraceText,
};
use units::{Bytes, Duration, Instant, Rate};

const EXAMPLE: &str = include_str!("example.toml");

fn no_traces(name: &str) -> Result<TraceText, TraceMissing> {
    Err(TraceMissing(format!("no trace is called {name}")))
}

fn run(text: &str) -> (Scenario, Vec<String>) {
    let document = Document::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let run = document.runs().remove(0);
    document.scenario(&run.overrides, run.seed, &no_traces).unwrap_or_else(|e| panic!("{e}"))
}

fn name(family: Family, algorithm: &Algorithm) -> &'static str {
    family.entries()[algorithm.index].name
}

fn value(family: Family, algorithm: &Algorithm, param: &str) -> algo::Value {
    let entry = family.entries()[algorithm.index];
    let i = entry.params.iter().position(|p| p.name == param).expect(param);
    algorithm.settings.0[i].clone()
}

#[test]
fn the_example_of_the_manual_becomes_what_it_says() {
    let document = Document::parse(EXAMPLE).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(document.name(), "tethered-upload");
    assert!(document.about().starts_with("60 s upload"));
    let runs = document.runs();
    let labels: Vec<_> = runs.iter().map(|r| r.labels[0].clone()).collect();
    let label = |value: &str| ("congestion".to_owned(), value.to_owned());
    assert_eq!(labels, [label("cubic"), label("bbr")]);
    assert_eq!(runs[1].overrides, [("flow.0.congestion".to_owned(), "\"bbr\"".to_owned())]);

    let (scenario, warnings) = document
        .scenario(&runs[0].overrides, runs[0].seed, &no_traces)
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        warnings,
        [
            "line 10: link.up.queue: not used: the device on client feeds this link, with 300 KB of firmware \
             buffer in its place"
        ]
    );
    assert_eq!((scenario.duration, scenario.seed), (Duration::from_secs(60), 1));
    let names: Vec<&str> = scenario.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["client", "server"]);

    let [up, down] = scenario.links.as_slice() else { panic!("two links") };
    assert_eq!(
        (up.name.as_str(), up.from, up.to, up.delay),
        ("up", 0, 1, Duration::from_millis(30))
    );
    assert_eq!((down.name.as_str(), down.from, down.to), ("down", 1, 0));
    assert_eq!(name(Family::Medium, &up.medium), "fixed");
    assert_eq!(value(Family::Medium, &up.medium, "rate"), algo::Value::Rate(Rate(4_000_000)));
    let limit = algo::Capacity::Bytes(Bytes(3_000_000));
    assert_eq!(value(Family::Queue, &up.queue, "limit"), algo::Value::Capacity(limit));
    assert_eq!(up.queue_per, QueuePer::Link);

    let device = scenario.nodes[0].device.as_ref().expect("the phone has one");
    assert_eq!((device.link, device.firmware.buffer), (0, Bytes(300_000)));
    assert_eq!(device.firmware.report_every, Duration::from_millis(5));
    assert_eq!(device.firmware.report_delay, Duration::from_millis(100));
    let packets = algo::Capacity::Packets(1_000);
    assert_eq!(value(Family::Queue, &device.qdisc, "limit"), algo::Value::Capacity(packets));
    assert_eq!(name(Family::Gate, &device.gate), "qcut_d");

    let [flow] = scenario.flows.as_slice() else { panic!("one flow") };
    assert_eq!((flow.name.as_str(), flow.from, flow.to, flow.sender_opens), ("flow0", 0, 1, true));
    assert_eq!(flow.app, App::Bulk);
    assert_eq!((flow.start, flow.stop), (Duration::ZERO, None));
    assert_eq!(name(Family::Congestion, &flow.sender.congestion), "cubic");
    assert_eq!((flow.sender.initial_window, flow.sender.mss), (10, Bytes(1_448)));
    assert_eq!((flow.sender.buffer, flow.sender.tsq), (Bytes(4 << 20), Some(Bytes(128 << 10))));
    assert!(flow.sender.sack && flow.sender.timestamps && !flow.sender.ecn && !flow.sender.pacing);
    assert_eq!(name(Family::Window, &flow.receiver.window), "autotune");
    let rates = vec![Rate(0), Rate(6_000_000), Rate(6_000_000)];
    let (slot, tick) = (Duration::from_millis(600), Duration::from_millis(100));
    assert_eq!(flow.receiver.read, Read::Profile { rates, slot, tick });
    assert_eq!((flow.receiver.ack_every, flow.receiver.ack_delay), (2, Duration::from_millis(40)));

    let [probe] = scenario.probes.as_slice() else { panic!("one probe") };
    assert_eq!((probe.kind, probe.from, probe.to), (ProbeKind::Ping, 0, 1));
    assert_eq!(probe.every, [Duration::from_millis(100)]);

    let [expected] = document.expectations() else { panic!("one expectation") };
    assert!(expected.speaks_of(&runs[1].labels) && !expected.speaks_of(&runs[0].labels));
    let bound = &expected.bounds[0];
    assert_eq!((bound.metric.name, bound.statistic), ("probe_rtt_ms", Some(Statistic::P95)));
    assert_eq!((bound.min, bound.max), (None, Some(200.0)));
}

const LONG: &str = r#"
duration = "30 s"
[[node]]
name = "user1"
[[node]]
name = "user2"
[[node]]
name = "tower"
window = "fixed"
[[node]]
name = "server"
[[link]]
name = "air1"
from = "user1"
to = "tower"
rate = { profile = [2, 4, 4], unit = "Mbit/s", slot = "1 s" }
delay = "10 ms"
[[link]]
name = "air2"
from = "user2"
to = "tower"
trace = "drive"
delay = "10 ms"
loss = 0.02
[[link]]
name = "air"
from = "tower"
to = "user1"
rate = "20 Mbit/s"
delay = "10 ms"
queue_per = "user"
[[link]]
name = "back"
from = "tower"
to = "user2"
medium = { kind = "fixed", rate = "20 Mbit/s" }
delay = "10 ms"
[[link]]
name = "wire"
from = "tower"
to = "server"
rate = "1 Gbit/s"
delay = "5 ms"
[[link]]
name = "eriw"
from = "server"
to = "tower"
rate = "1 Gbit/s"
delay = "5 ms"
[[flow]]
name = "web"
from = "server"
to = "user1"
count = 3
stagger = "2 s"
stop = "20 s"
mss = "1000 B"
tsq = false
app = { kind = "web", objects = ["10 KB", "20 KB"] }
[flow.sender]
ecn = true
[[probe]]
kind = "isochronous"
from = "server"
to = "user2"
every = ["1 s", "2 s"]
[traces]
drive = "measured/drive.csv"
"#;

#[test]
fn the_long_form_names_nodes_links_traces_and_copies() {
    let document = Document::parse(LONG).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(document.traces_named(), ["measured/drive.csv"]);
    let traces = |path: &str| match path {
        "measured/drive.csv" => Ok(TraceText("0,1000000\n1,2000000\n".into())),
        other => Err(TraceMissing(other.to_owned())),
    };
    let (scenario, _) =
        document.scenario::<&str, &str>(&[], 7, &traces).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.seed, 7);
    assert_eq!(name(Family::Medium, &scenario.links[0].medium), "rates");
    let steps = [2, 4, 4].map(|mbit| Rate(mbit * 1_000_000));
    let times = [0, 1, 2].map(|s| Instant(s * 1_000_000_000));
    let steps: Vec<_> = times.into_iter().zip(steps).collect();
    assert_eq!(scenario.links[0].trace, Some(Trace::Rates(steps.into())));
    assert!(matches!(&scenario.links[1].trace, Some(Trace::Rates(steps)) if steps.len() == 2));
    assert_eq!(
        value(Family::Layer, &scenario.links[1].layers[0], "rate"),
        algo::Value::Number(0.02)
    );
    assert_eq!(scenario.links[2].queue_per, QueuePer::User);
    assert!(scenario.nodes[2].window.is_some());

    let names: Vec<&str> = scenario.flows.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["web-0", "web-1", "web-2"]);
    let third = &scenario.flows[2];
    assert_eq!((third.start, third.stop), (Duration::from_secs(4), Some(Duration::from_secs(24))));
    assert!(!third.sender_opens, "downloads are opened by who receives");
    assert!(third.sender.ecn);
    assert_eq!((third.sender.mss, third.sender.tsq), (Bytes(1_000), None));
    let App::Web(Page { objects, .. }) = &third.app else { panic!("a page") };
    assert_eq!(objects, &[Bytes(10_000), Bytes(20_000)]);
    assert_eq!(scenario.probes[0].every, [1, 2].map(Duration::from_secs));
}

const SHORT: &str = r#"
[link.up]
rate = "4 Mbit/s"
delay = "30 ms"
[link.down]
rate = "20 Mbit/s"
delay = "30 ms"
"#;

#[test]
fn a_router_stands_between_the_client_and_its_radio() {
    let text = format!(
        "{SHORT}[router]\nwindow = \"fixed\"\ndelay = \"2 ms\"\n[[flow]]\nfrom = \"server\"\n"
    );
    let (scenario, _) = run(&text);
    let ends: Vec<_> = scenario
        .links
        .iter()
        .map(|l| {
            let node = |i: usize| scenario.nodes[i].name.as_str();
            (l.name.as_str(), node(l.from), node(l.to))
        })
        .collect();
    assert_eq!(
        ends,
        [
            ("up", "router", "server"),
            ("down", "server", "router"),
            ("lan_up", "client", "router"),
            ("lan_down", "router", "client"),
        ]
    );
    assert!(scenario.nodes[2].window.is_some());
    assert_eq!(scenario.links[2].delay, Duration::from_millis(2));
    assert_eq!((scenario.flows[0].from, scenario.flows[0].to), (1, 0));
}

#[test]
fn changes_come_in_order_of_time_and_each_reads_what_the_ones_before_left() {
    let text = format!(
        "{SHORT}
[device]
gate = \"none\"
[[flow]]
name = \"up\"
from = \"client\"
count = 2
[[change]]
at = \"20 s\"
\"link.up.rate\" = \"1 Mbit/s\"
link.up.loss = 0.5
[[change]]
at = \"10 s\"
\"link.up.delay\" = \"90 ms\"
\"device.gate\" = {{ kind = \"none\" }}
\"device.window\" = \"fixed\"
[[change]]
at = \"30 s\"
[change.flow.up]
congestion = \"newreno\"
receiver.window = \"fixed\"
"
    );
    let (scenario, _) = run(&text);
    let times: Vec<_> = scenario.changes.iter().map(|c| c.at).collect();
    assert_eq!(times, [10, 20, 30].map(Duration::from_secs));
    let [Changed::Link(0, first), Changed::Gate(0, _), Changed::NodeWindow(0, Some(_))] =
        scenario.changes[0].what.as_slice()
    else {
        panic!("{:?}", scenario.changes[0])
    };
    assert_eq!(value(Family::Medium, &first.medium, "rate"), algo::Value::Rate(Rate(4_000_000)));
    let [Changed::Link(0, second)] = scenario.changes[1].what.as_slice() else {
        panic!("{:?}", scenario.changes[1])
    };
    assert_eq!((second.delay, second.layers.len()), (Duration::from_millis(90), 1));
    assert_eq!(value(Family::Medium, &second.medium, "rate"), algo::Value::Rate(Rate(1_000_000)));
    let both = &scenario.changes[2].what;
    assert!(
        matches!(
            both.as_slice(),
            [
                Changed::Congestion(0, _),
                Changed::Congestion(1, _),
                Changed::Window(0, _),
                Changed::Window(1, _),
            ]
        ),
        "{both:?}"
    );
}

#[test]
fn a_droptail_queue_changes_its_limit_and_a_modem_its_buffer() {
    let text = format!(
        "{SHORT}
[device]
node = \"server\"
firmware = {{ wake = \"3 KB\" }}
[[change]]
at = \"10 s\"
\"link.up.queue\" = {{ kind = \"droptail\", limit = \"24 KB\" }}
\"link.up.rate\" = \"1 Mbit/s\"
[[change]]
at = \"20 s\"
\"link.up.queue.limit\" = \"30 packets\"
\"device.firmware.buffer\" = \"25 KB\"
[[change]]
at = \"30 s\"
\"link.up.queue\" = \"droptail\"
"
    );
    let (scenario, _) = run(&text);
    let what = |n: usize| scenario.changes[n].what.as_slice();
    let [Changed::QueueLimit(0, Capacity::Bytes(Bytes(24_000))), Changed::Link(0, _)] = what(0)
    else {
        panic!("{:?}", what(0))
    };
    let [Changed::QueueLimit(0, Capacity::Packets(30)), Changed::FirmwareBuffer(1, size)] = what(1)
    else {
        panic!("{:?}", what(1))
    };
    assert_eq!(*size, Bytes(25_000));
    // The published limit: nothing else is given.
    let [Changed::QueueLimit(0, Capacity::Packets(1_000))] = what(2) else {
        panic!("{:?}", what(2))
    };
}

#[test]
fn links_and_devices_of_a_list_change_their_sizes_by_name_and_by_number() {
    let text = "
[[node]]
name = \"phone\"
[[node]]
name = \"mast\"
[[link]]
name = \"radio\"
from = \"phone\"
to = \"mast\"
rate = \"1 Mbit/s\"
delay = \"1 ms\"
[[link]]
name = \"back\"
from = \"mast\"
to = \"phone\"
rate = \"1 Mbit/s\"
delay = \"1 ms\"
[[device]]
node = \"phone\"
[[change]]
at = \"10 s\"
\"link.back.queue.limit\" = \"24 KB\"
\"device.0.firmware.buffer\" = \"25 KB\"
[[change]]
at = \"20 s\"
\"link.1.queue.limit\" = \"26 KB\"
";
    let (scenario, _) = run(text);
    let [limit, Changed::FirmwareBuffer(0, Bytes(25_000))] = scenario.changes[0].what.as_slice()
    else {
        panic!("{:?}", scenario.changes[0])
    };
    assert!(matches!(limit, Changed::QueueLimit(1, Capacity::Bytes(Bytes(24_000)))), "{limit:?}");
    let [Changed::QueueLimit(1, Capacity::Bytes(Bytes(26_000)))] =
        scenario.changes[1].what.as_slice()
    else {
        panic!("{:?}", scenario.changes[1])
    };
}

#[test]
fn the_last_key_of_a_sweep_changes_fastest_and_seeds_fastest_of_all() {
    let text = format!(
        "seed = 5
{SHORT}
[[flow]]
from = \"client\"
[sweep]
seeds = 2
\"link.up.rate\" = [\"1 Mbit/s\", \"2 Mbit/s\"]
\"link.down.rate\" = [\"3 Mbit/s\"]
cure = [{{ label = \"off\" }}, {{ label = \"vegas-like\", \"flow.0.congestion\" = \"newreno\", \"link.up.queue\" = {{ kind = \"droptail\", limit = \"9 packets\" }} }}]
"
    );
    let document = Document::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let runs = document.runs();
    let lines: Vec<String> = runs
        .iter()
        .map(|r| {
            let labels =
                r.labels.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(", ");
            format!("{labels}; {}", r.seed)
        })
        .collect();
    let line = |rate, cure, seed| {
        format!("up.rate={rate} Mbit/s, down.rate=3 Mbit/s, cure={cure}, seed={seed}; {seed}")
    };
    assert_eq!(
        lines,
        [
            line(1, "off", 5),
            line(1, "off", 6),
            line(1, "vegas-like", 5),
            line(1, "vegas-like", 6),
            line(2, "off", 5),
            line(2, "off", 6),
            line(2, "vegas-like", 5),
            line(2, "vegas-like", 6),
        ]
    );
    assert_eq!(runs, document.runs(), "the same each time");
    let last = &runs[7];
    let (scenario, _) =
        document.scenario(&last.overrides, last.seed, &no_traces).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(name(Family::Congestion, &scenario.flows[0].sender.congestion), "newreno");
    let nine = algo::Capacity::Packets(9);
    assert_eq!(
        value(Family::Queue, &scenario.links[0].queue, "limit"),
        algo::Value::Capacity(nine)
    );
}

#[test]
fn keys_set_from_outside_take_plain_text_and_replace_what_said_the_same_otherwise() {
    let document = Document::parse(SHORT).unwrap_or_else(|e| panic!("{e}"));
    let set =
        [("link.up.rate", "1 Mbit/s"), ("duration", "\"5 s\""), ("link.down.trace", "x.down")];
    let document = document.with(&set).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(document.traces_named(), ["x.down"]);
    let traces = |_: &str| Ok(TraceText("1\n2\n".into()));
    let (scenario, _) =
        document.scenario::<&str, &str>(&[], 1, &traces).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.duration, Duration::from_secs(5));
    assert_eq!(
        value(Family::Medium, &scenario.links[0].medium, "rate"),
        algo::Value::Rate(Rate(1_000_000))
    );
    assert_eq!(scenario.links[1].trace, Some(Trace::Opportunities([1, 2].into())));
    assert_eq!(name(Family::Medium, &scenario.links[1].medium), "trace");
}

#[test]
fn a_key_of_the_sweep_that_is_set_from_outside_keeps_that_value() {
    let document = Document::parse(EXAMPLE).unwrap_or_else(|e| panic!("{e}"));
    let kept = document.with(&[("flow.0.congestion", "bbr")]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((kept.runs().len(), kept.expectations().len()), (1, 1));
    let other = document.with(&[("flow.0.congestion", "vegas")]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(other.runs()[0].labels, [("congestion".to_owned(), "vegas".to_owned())]);
    assert!(other.expectations().is_empty(), "nothing was expected of this run");
}

#[test]
fn a_sweep_over_seeds_by_hand_gives_those_seeds() {
    let document = Document::parse(&format!("{SHORT}[sweep]\nseed = [3, 9]\n"))
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(document.runs().iter().map(|r| r.seed).collect::<Vec<_>>(), [3, 9]);
}

#[test]
fn every_application_that_needs_no_figures_can_be_named_alone() {
    let flow = |app: &str| {
        run(&format!("{SHORT}[[flow]]\nfrom = \"client\"\napp = {app}\n")).0.flows.remove(0)
    };
    for app in ["bulk", "web", "abr-video", "voip", "requests"] {
        assert_eq!(flow(&format!("\"{app}\"")).app, flow(&format!("{{ kind = \"{app}\" }}")).app);
    }
    let least = Duration::from_millis(20);
    let App::Voip { jitter_buffer, .. } = flow("\"voip\"").app else { panic!("a call") };
    assert_eq!(jitter_buffer, JitterBuffer::Adaptive { least });
    let App::Voip { jitter_buffer, .. } =
        flow("{ kind = \"voip\", jitter_buffer = \"60 ms\" }").app
    else {
        panic!("a call")
    };
    assert_eq!(jitter_buffer, JitterBuffer::Fixed(Duration::from_millis(60)));
    let App::Video { ladder, .. } = flow("\"abr-video\"").app else { panic!("video") };
    assert_eq!((ladder.len(), ladder[5]), (6, Rate(4_300_000)));
    let App::Web(Page { objects, .. }) = flow("\"web\"").app else { panic!("a page") };
    assert_eq!(objects, [Bytes(25_000); 40]);
    let every = Some(Duration::from_secs(5));
    assert_eq!(
        flow("{ kind = \"file\", bytes = \"5 MB\", every = \"5 s\" }").app,
        App::File { bytes: Bytes(5_000_000), every }
    );
    let rates = vec![Rate(1_000_000), Rate(0)];
    let given =
        flow("{ kind = \"rate-profile\", profile = [\"1 Mbit/s\", 0], unit = \"bit/s\", slot = \"1 s\" }")
            .app;
    assert_eq!(given, App::Rates { rates, slot: Duration::from_secs(1) });
}

#[test]
fn a_sweep_takes_whole_tables_and_calls_them_by_their_kind() {
    let text = format!(
        "{SHORT}
[device]
[[flow]]
from = \"client\"
[sweep]
\"device.gate\" = [\"none\", {{ kind = \"qcut_b\" }}, \"qcut_d\"]
\"link.up\" = [
    {{ model = {{ kind = \"markov\", model = \"lte-drive\" }}, delay = \"20 ms\" }},
    {{ medium = {{ kind = \"grants\", signal = \"-110 dBm\" }}, delay = \"25 ms\", arq = 0.2 }},
]
"
    );
    let document = Document::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let runs = document.runs();
    let gates: Vec<&str> = runs.iter().map(|r| r.labels[0].1.as_str()).collect();
    assert_eq!(gates, ["none", "none", "qcut_b", "qcut_b", "qcut_d", "qcut_d"]);
    assert_eq!(runs[0].labels[0].0, "gate");
    let read = |i: usize| {
        let run = &runs[i];
        document.scenario(&run.overrides, run.seed, &no_traces).unwrap_or_else(|e| panic!("{e}")).0
    };
    let (first, last) = (read(0), read(5));
    assert_eq!(name(Family::Medium, &first.links[0].medium), "markov");
    assert_eq!(name(Family::Medium, &last.links[0].medium), "grants");
    assert_eq!(name(Family::Layer, &last.links[0].layers[0]), "arq");
    let gate = |s: &Scenario| name(Family::Gate, &s.nodes[0].device.as_ref().expect("given").gate);
    assert_eq!((gate(&first), gate(&last)), ("none", "qcut_d"));
    let expected = document.with(&[(
        "expect",
        "[{ run = { gate = \"qcut_b\" }, queue_ms = { p95 = { max = \"50 ms\" } } }]",
    )]);
    let expected = expected.unwrap_or_else(|e| panic!("{e}"));
    let spoken: Vec<usize> =
        (0..6).filter(|i| expected.expectations()[0].speaks_of(&runs[*i].labels)).collect();
    assert_eq!(spoken, [2, 3]);
    let max = expected.expectations()[0].bounds[0].max;
    assert!(max.is_some_and(|ms| (ms - 50.0).abs() < 1e-9));
}
