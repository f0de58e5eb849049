//! The runs of a sweep: every combination once, in order, each with what it sets.

use proptest::prelude::*;
use scenario::{Document, RunSpec, Scenario, TraceMissing, TraceText};
use units::{Bytes, Duration};

const BASE: &str = "[link.up]
rate = \"4 Mbit/s\"
delay = \"30 ms\"
[link.down]
rate = \"20 Mbit/s\"
delay = \"30 ms\"
[[flow]]
from = \"client\"
[[flow]]
from = \"server\"
";

fn no_traces(name: &str) -> Result<TraceText, TraceMissing> {
    Err(TraceMissing(name.to_owned()))
}

fn document(top: &str, sweep: &str) -> Document {
    Document::parse(&format!("{top}\n{BASE}[sweep]\n{sweep}\n")).unwrap_or_else(|e| panic!("{e}"))
}

fn resolved(document: &Document, run: &RunSpec) -> Scenario {
    let read = document.scenario(&run.overrides, run.seed, &no_traces);
    read.unwrap_or_else(|e| panic!("{e}")).0
}

fn labels(run: &RunSpec) -> Vec<(&str, &str)> {
    run.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// The axes of the grid below: key, unit, and what a scenario has of it.
type Axis = (&'static str, &'static str, fn(&Scenario) -> u64);
const AXES: [Axis; 4] = [
    ("link.up.delay", "ms", |s| s.links[0].delay.0 / 1_000_000),
    ("flow.0.mss", "B", |s| s.flows[0].sender.mss.0),
    ("duration", "s", |s| s.duration.0 / 1_000_000_000),
    ("flow.1.initial_window", "", |s| s.flows[1].sender.initial_window),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_combination_is_one_run_and_the_last_axis_changes_fastest(
        sizes in prop::array::uniform4(1..5_u64), seeds in 1..4_u64, first in 0..1_000_u64
    ) {
        let value = |i: u64, unit: &str| match unit {
            "" => (20 + i).to_string(),
            _ => format!("\"{} {unit}\"", 700 + i),
        };
        let line = |((key, unit, _), size): (&Axis, u64)| {
            let values: Vec<String> = (0..size).map(|i| value(i, unit)).collect();
            format!("\"{key}\" = [{}]\n", values.join(", "))
        };
        let sweep: String = AXES.iter().zip(sizes).map(line).collect();
        let document = document(&format!("seed = {first}"), &format!("seeds = {seeds}\n{sweep}"));
        let runs = document.runs();
        prop_assert_eq!(runs.len() as u64, sizes.iter().product::<u64>() * seeds);
        for (number, run) in runs.iter().enumerate() {
            // The number of a run in the mixed radix of the axes, seeds last.
            let mut rest = number as u64;
            prop_assert_eq!(run.seed, first + rest % seeds);
            rest /= seeds;
            let mut digits = [0; 4];
            for place in (0..4).rev() {
                digits[place] = rest % sizes[place];
                rest /= sizes[place];
            }
            let expected: Vec<String> =
                AXES.iter().zip(digits).map(|((_, unit, _), digit)| value(digit, unit)).collect();
            let keys: Vec<_> = run.overrides.iter().map(|(key, _)| key.as_str()).collect();
            let values: Vec<_> = run.overrides.iter().map(|(_, value)| value.as_str()).collect();
            prop_assert_eq!(keys, AXES.map(|(key, ..)| key));
            prop_assert_eq!(&values, &expected);
            let named: Vec<_> = run.labels.iter().map(|(_, value)| value.clone()).collect();
            let mut wanted: Vec<_> = expected.iter().map(|v| v.trim_matches('"').to_owned()).collect();
            if seeds > 1 {
                wanted.push(run.seed.to_string());
            }
            prop_assert_eq!(named, wanted);
            if number % 37 == 0 || number + 1 == runs.len() {
                let scenario = resolved(&document, run);
                prop_assert_eq!(scenario.seed, run.seed);
                for ((_, unit, read), digit) in AXES.iter().zip(digits) {
                    let least = if unit.is_empty() { 20 } else { 700 };
                    prop_assert_eq!(read(&scenario), least + digit);
                }
            }
        }
    }
}

#[test]
fn a_file_without_a_sweep_is_one_run_without_labels() {
    let document = Document::parse(&format!("seed = 9\n{BASE}")).unwrap();
    assert_eq!(document.runs(), [RunSpec { labels: Vec::new(), overrides: Vec::new(), seed: 9 }]);
}

#[test]
fn labels_have_as_many_words_as_distinguish_them_and_begin_with_none_that_is_a_number() {
    let of = |sweep: &str| {
        let run = document("", sweep).runs().remove(0);
        run.labels.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(of("\"link.up.delay\" = [\"1 ms\"]"), ["delay"]);
    assert_eq!(
        of("\"link.up.delay\" = [\"1 ms\"]\n\"link.down.delay\" = [\"1 ms\"]"),
        ["up.delay", "down.delay"]
    );
    assert_eq!(
        of("\"flow.0.mss\" = [\"700 B\"]\n\"flow.1.mss\" = [\"700 B\"]"),
        ["flow.0.mss", "flow.1.mss"]
    );
    assert_eq!(
        of("\"flow.0.mss\" = [\"700 B\"]\n\"flow.0.initial_window\" = [3]"),
        ["mss", "initial_window"]
    );
}

#[test]
fn values_under_a_name_set_their_keys_together_and_no_others() {
    let document = document(
        "",
        "cure = [{ label = \"off\" }, { label = \"both\", \"link.up.delay\" = \"5 ms\", \"flow.0.mss\" = \"700 B\" }]",
    );
    let runs = document.runs();
    assert_eq!(
        runs.iter().map(labels).collect::<Vec<_>>(),
        [[("cure", "off")], [("cure", "both")]]
    );
    assert!(runs[0].overrides.is_empty());
    let (off, both) = (resolved(&document, &runs[0]), resolved(&document, &runs[1]));
    assert_eq!((off.links[0].delay, off.flows[0].sender.mss.0), (Duration::from_millis(30), 1_448));
    assert_eq!(
        (both.links[0].delay, both.flows[0].sender.mss),
        (Duration::from_millis(5), Bytes(700))
    );
    assert_eq!(both.flows[1].sender.mss, off.flows[1].sender.mss);
}

#[test]
fn ten_thousand_runs_are_a_file_and_one_more_is_not() {
    let values = |n: u32| (1..=n).map(|i| (30 + i).to_string()).collect::<Vec<_>>().join(", ");
    let of = |windows: u32, seeds: u32| {
        let sweep = format!("seeds = {seeds}\n\"flow.0.initial_window\" = [{}]", values(windows));
        Document::parse(&format!("{BASE}[sweep]\n{sweep}\n"))
    };
    let most = of(10, 1_000).unwrap();
    let runs = most.runs();
    assert_eq!(runs.len(), 10_000);
    let distinct: std::collections::BTreeSet<_> =
        runs.iter().map(|run| (run.overrides.clone(), run.seed)).collect();
    assert_eq!(distinct.len(), 10_000);
    let error = of(11, 1_000).unwrap_err().to_string();
    assert!(error.contains("11000") || error.contains("11,000"), "{error}");
}

#[test]
fn each_value_is_checked_when_the_file_is_read_whatever_the_other_axes_are() {
    let text = format!(
        "{BASE}[sweep]\n\"link.up.delay\" = [\"1 ms\", \"2 ms\"]\n\"flow.0.congestion\" = [\"cubic\", \"newreno\", \"cubik\"]\n"
    );
    let error = Document::parse(&text).unwrap_err().to_string();
    assert!(error.contains("cubik") && error.contains("did you mean"), "{error}");
    assert!(error.contains("line 13"), "{error}");
}

#[test]
fn a_pinned_axis_keeps_its_place_among_the_labels() {
    let document = document(
        "seed = 4",
        "seeds = 2\n\"link.up.delay\" = [\"1 ms\", \"2 ms\"]\n\"flow.0.mss\" = [\"700 B\", \"800 B\"]",
    );
    assert_eq!(document.runs().len(), 8);
    let pinned = document.with(&[("link.up.delay", "3 ms")]).unwrap();
    let found: Vec<_> = pinned.runs().iter().map(|run| (run.labels.clone(), run.seed)).collect();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let one = |mss: &str, seed: u64| {
        (vec![pair("delay", "3 ms"), pair("mss", mss), pair("seed", &seed.to_string())], seed)
    };
    assert_eq!(found, [one("700 B", 4), one("700 B", 5), one("800 B", 4), one("800 B", 5)]);
    let all = pinned.runs();
    assert!(
        all.iter().all(|run| resolved(&pinned, run).links[0].delay == Duration::from_millis(3))
    );
    // A key that no axis has stays what it was for all.
    let other = document.with(&[("link.down.delay", "9 ms")]).unwrap();
    assert_eq!(other.runs(), document.runs());
    let first = other.runs().remove(0);
    assert_eq!(resolved(&other, &first).links[1].delay, Duration::from_millis(9));
}

const CASES: &str = "cure = [{ label = \"none\" }, { label = \"slow start\", \"flow.0.congestion\" = \"bbr\", \"link.up.loss\" = 0.01 }]
\"link.up.queue\" = [\"codel\", \"pie\"]";

/// One case of a labelled axis can be chosen, and a value that a case would replace is refused, not ignored.
#[test]
fn a_case_is_chosen_by_its_label_and_no_value_from_outside_is_lost() {
    let document = document("", CASES);
    let with = |set: &[(&str, &str)]| document.with(set).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(document.runs().len(), 4);
    let chosen = with(&[("cure", "slow start")]).runs();
    assert_eq!(chosen.len(), 2);
    assert!(chosen.iter().all(|run| labels(run).contains(&("cure", "slow start"))));
    // What was chosen goes with the other settings of each run.
    for run in chosen {
        let overrides =
            [vec![("cure".to_owned(), "slow start".to_owned())], run.overrides].concat();
        document.scenario(&overrides, run.seed, &no_traces).unwrap_or_else(|e| panic!("{e}"));
    }
    // The case that sets it is left out.
    assert_eq!(with(&[("cure", "none"), ("flow.0.congestion", "vegas")]).runs().len(), 2);
    assert_eq!(with(&[("link.down.delay", "9 ms"), ("duration", "2 s")]).runs().len(), 4);
    for (key, value, wrong) in [
        ("cure", "some", "no case is called \"some\"; there are none, slow start"),
        ("link.up.queue.limit", "9 packets", "[sweep] sets link.up.queue; give that key one value"),
    ] {
        let error = document.with(&[(key, value)]).expect_err(key).to_string();
        assert!(error.contains(wrong) && error.contains(key), "{error}");
    }
    let error = with(&[("cure", "slow start")]).with(&[("link.up.loss", "0.02")]);
    let error = error.expect_err("the one case sets it").to_string();
    assert!(
        error.contains("link.up.loss: [sweep] cure sets link.up.loss in each of its cases"),
        "{error}"
    );
}

/// A value that some cases set themselves is that of the other cases, and the runs of those say so.
#[test]
fn a_case_that_replaces_a_value_from_outside_warns() {
    let document = document("", CASES);
    let set = [("flow.0.congestion".to_owned(), "vegas".to_owned())];
    let changed = document.with(&set).unwrap_or_else(|e| panic!("{e}"));
    for run in changed.runs() {
        let overrides: Vec<_> = set.iter().cloned().chain(run.overrides.clone()).collect();
        let read = changed.scenario(&overrides, run.seed, &no_traces);
        let warnings = read.unwrap_or_else(|e| panic!("{e}")).1;
        let replaced: Vec<_> = warnings.iter().filter(|w| w.contains("in a case")).collect();
        if labels(&run).contains(&("cure", "none")) {
            assert!(replaced.is_empty(), "{replaced:?}");
        } else {
            assert!(replaced[0].contains("flow.0.congestion to \"bbr\""), "{replaced:?}");
        }
    }
}

/// The commonest sweep: every queue discipline with every limit, in packets or in bytes.
#[test]
fn kinds_of_queues_and_limits_are_swept_together() {
    let kinds = "\"link.up.queue\" = [\"droptail\", \"codel\", \"fq_codel\", \"pie\", \"red\"]";
    let limits = "\"link.up.queue.limit\" = [\"100 packets\", \"300 KB\"]";
    let document = document("", &format!("{kinds}\n{limits}"));
    let runs = document.runs();
    assert_eq!(runs.len(), 10);
    for run in &runs {
        resolved(&document, run);
    }
}
