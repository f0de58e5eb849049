//! Every window law of the table: operation fuzzing against one invariant, golden curves, closed forms on a path of
//! packets, DRWA's integers against the formula.
//!
//! `UNBLOAT_BLESS=1 cargo test -p unbloat-algo --test rwnd` writes the golden curves; review the difference.

#[path = "rwnd/path.rs"]
mod path;

use std::fmt::Write as _;

use algo::rwnd::afc::{Sender, SenderConfig};
use algo::rwnd::drwa::{Estimate, Law, Round, decide};
use algo::rwnd::{Cause, Rwnd, Sample, Setup, TABLE, WindowControl};
use algo::{Capacity, Entry, Param, Settings, Unit, Value};
use path::{MSS, Path, Reader};
use proptest::prelude::*;
use units::{Bytes, Duration, Instant, Rate};

const RTT: Duration = Duration::from_millis(60);
const RATE: Rate = Rate(8_000_000);
/// AFC's reader: nothing, then 6 Mbit/s twice as long.
const PULSED: Reader = Reader::Profile {
    rates: [0, 6, 6],
    slot: Duration::from_millis(600),
    tick: Duration::from_millis(100),
};

fn entry(name: &str) -> &'static Entry<Rwnd, Setup> {
    let found = TABLE.iter().find(|e| e.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in the table"))
}

fn with(name: &str, settings: &[(&str, Value)]) -> Rwnd {
    let entry = entry(name);
    let mut values = Settings::defaults(entry.params);
    for (key, value) in settings {
        assert!(values.set(entry.params, key, value.clone()), "{name} refuses {key}");
    }
    (entry.build)(&values, &Setup::default())
}

fn curve(law: Rwnd, reader: Reader) -> String {
    let mut path = Path::new(RATE, RTT, law, reader, None);
    path.run(Duration::from_secs(10));
    let mut text =
        String::from("t_ms window_bytes advertised_bytes rtt_us received_bytes rate_option\n");
    for row in &path.rows {
        let option = row.option.map_or(String::from("-"), |value| value.to_string());
        let _ = writeln!(
            text,
            "{} {} {} {} {} {option}",
            row.at.0 / 1_000_000,
            row.window.0,
            row.advertised.0,
            row.rtt.0 / 1_000,
            row.received.0
        );
    }
    text
}

#[test]
fn every_law_draws_its_golden_curve() {
    for entry in TABLE {
        let mut text = String::from(
            "# 8 Mbit/s, 60 ms, window-limited sender; the application reads at once\n",
        );
        text += &curve(entry.default(&Setup::default()), Reader::AtOnce);
        text += "# the same; the application reads 0, 6, 6 Mbit/s, 600 ms each, every 100 ms\n";
        text += &curve(entry.default(&Setup::default()), PULSED);
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/golden/rwnd_{}.txt", entry.name));
        if std::env::var_os("UNBLOAT_BLESS").is_some() {
            std::fs::write(&file, &text).expect("the golden curve can be written");
        }
        let stored = std::fs::read_to_string(&file).unwrap_or_default();
        let differs = stored.lines().zip(text.lines()).position(|(a, b)| a != b);
        assert!(
            stored == text,
            "{} is missing or out of date (first at line {:?}); UNBLOAT_BLESS=1 renews it",
            file.display(),
            differs.map(|line| line + 1)
        );
    }
}

#[test]
fn drwa_settles_at_three_times_the_empty_path_with_full_goodput_in_all_its_forms() {
    let paper: &[(&str, Value)] = &[];
    let rate =
        &[("form", Value::Choice(1)), ("alpha", Value::Count(8)), ("quick", Value::Flag(true))];
    let window = &[("estimator", Value::Choice(1))];
    for settings in [paper, rate, window] {
        let mut path = Path::new(RATE, RTT, with("drwa", settings), Reader::AtOnce, None);
        path.run(Duration::from_secs(15));
        // A segment's own time on the link, 1.5 ms, belongs to the smallest RTT that can be seen. The paper's second
        // estimator sees its first window only after slow start has built a queue.
        let seen = path.law.state().rtt_min.unwrap_or_default();
        let (low, high) =
            (RTT + Duration::from_micros(1_000), if settings == window { 80 } else { 62 });
        assert!(seen >= low && seen <= Duration::from_millis(high), "{settings:?}: {seen}");
        let expected = seen * 3;
        // With that estimator, a window late, the paper's slow average swings for ten seconds before it settles.
        let settled = if settings == window { 130 } else { 80 };
        for row in &path.rows[settled..] {
            let off = row.rtt.0.abs_diff(expected.0);
            assert!(off * 20 <= expected.0, "{settings:?} at {:?}: {}", row.at, row.rtt);
        }
        let full = RATE.0 * MSS / (MSS + 52);
        assert!(path.goodput(5, 15) * 1_000 >= full * 995, "{settings:?}: {}", path.goodput(5, 15));
    }
}

#[test]
fn autotune_fills_a_deep_buffer_and_drwa_and_rledbat_do_not() {
    let rtt = |name: &str| {
        let mut path = Path::new(RATE, RTT, with(name, &[]), Reader::AtOnce, None);
        path.run(Duration::from_secs(15));
        (path.rows.last().map_or(Duration::ZERO, |row| row.rtt), path.goodput(5, 15))
    };
    let (bloated, _) = rtt("autotune");
    assert!(bloated > Duration::from_secs(2), "{bloated}");
    assert!(rtt("drwa").0 < Duration::from_millis(200));
    // LEDBAT++ aims at 60 ms of queue and gives up to a tenth of the time to slowdowns.
    let (rtt, goodput) = rtt("rledbat");
    assert!(rtt < Duration::from_millis(60 + 1 + 2 * 60), "{rtt}");
    assert!(goodput * 100 >= RATE.0 * 80, "{goodput}");
}

#[test]
fn afc_reads_at_the_application_rate_where_classic_flow_control_stalls_at_zero_windows() {
    // AFC slides, limitation 2: 15 Mbit/s, 530 ms, 256 KiB, 0-6-6 Mbit/s: 4 Mbit/s are available.
    let run = |afc: Option<Sender>, law: Rwnd| {
        let mut path = Path::new(Rate(15_000_000), Duration::from_millis(530), law, PULSED, afc);
        path.run(Duration::from_secs(120));
        (path.goodput(10, 120), path.zero_windows, path.lost, path.hidden)
    };
    let classic = run(None, with("fixed", &[("window", Value::Bytes(Bytes(262_144)))]));
    let afc = run(Some(Sender::new(SenderConfig::default())), with("afc", &[]));
    assert!(classic.0 < 2_500_000 && classic.1 > 20, "{classic:?}");
    assert!(afc.0 * 100 >= 4_000_000 * 95, "{afc:?} beside {classic:?}");
    // Component 1 makes the difference, and makes the overflows.
    let without = SenderConfig { rate_term: false, ..SenderConfig::default() };
    let without = run(Some(Sender::new(without)), with("afc", &[]));
    assert!(without.0 < 2_500_000 && without.2 == 0, "{without:?}");
    // Component 2: every one of the overflow losses is hidden.
    assert_eq!(afc.2, afc.3, "{afc:?}");
}

/// What happens to a law: after `wait` µs.
#[derive(Clone, Debug)]
struct Operation {
    wait: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Arrive { bytes: u64, beyond: u64, rtt_us: Option<u64> },
    Read { share: u64 },
    Timer,
    Acknowledge { edge: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let wait = prop_oneof![8 => 0..5_000_u64, 2 => 0..500_000_u64, 1 => 0..400_000_000_u64];
    let bytes =
        prop_oneof![4 => Just(MSS), 2 => 0..100_000_u64, 1 => any::<u64>().prop_map(|x| x >> 20)];
    let rtt = prop_oneof![6 => (1_000..400_000_u64).prop_map(Some), 3 => Just(None),
        1 => any::<u64>().prop_map(|x| Some(x >> 12)), 1 => Just(Some(0))];
    let beyond = prop_oneof![4 => Just(0), 1 => 1..1_000_000_u64];
    let what = prop_oneof![
        6 => (bytes, beyond, rtt).prop_map(|(bytes, beyond, rtt_us)| What::Arrive { bytes, beyond, rtt_us }),
        3 => (0..=100_u64).prop_map(|share| What::Read { share }),
        1 => Just(What::Timer),
        2 => (0..2_000_000_u64).prop_map(|edge| What::Acknowledge { edge }),
    ];
    (wait, what).prop_map(|(wait, what)| Operation { wait, what })
}

/// A value of the parameter, `at` of 0 … 1 through its range.
fn value(param: &Param, at: f64) -> Value {
    let default = (param.default)();
    let choice = |n: usize| Value::Choice(((at * n as f64) as usize).min(n.saturating_sub(1)));
    let Some(range) = param.range else {
        return match param.unit {
            Unit::Flag => Value::Flag(at < 0.5),
            Unit::Choice(words) => choice(words.len()),
            _ => default,
        };
    };
    let (low, high) = range();
    let (low, high) = (low.magnitude().unwrap_or(0.0), high.magnitude().unwrap_or(0.0));
    // By size, so that small values come as often as large ones.
    let x = if low > 0.0 { low * (high / low).powf(at) } else { low + (high - low) * at * at * at };
    let x = x.clamp(low, high);
    match param.unit {
        Unit::Number => Value::Number(x),
        Unit::Count => Value::Count(x as u64),
        Unit::Duration => Value::Duration(Duration(x as u64)),
        Unit::Bytes => Value::Bytes(Bytes(x as u64)),
        Unit::Rate => Value::Rate(Rate(x as u64)),
        Unit::Capacity => Value::Capacity(Capacity::Bytes(Bytes(x as u64))),
        _ => default,
    }
}

fn operate(
    entry: &Entry<Rwnd, Setup>,
    settings: &Settings,
    setup: &Setup,
    operations: &[Operation],
) {
    let mut law = (entry.build)(settings, setup);
    let mut now = Instant(7);
    let (mut received, mut copied, mut edge) = (0_u64, 0_u64, law.window().0);
    let mut beyond = 0;
    for Operation { wait, what } in operations {
        now = now + Duration::from_micros(*wait);
        let (mut cause, mut rtt) = (Cause::Timer, None);
        match what {
            What::Arrive { bytes, beyond: hole, rtt_us } => {
                cause = Cause::Arrived;
                received = received.saturating_add(*bytes);
                beyond = *hole;
                rtt = rtt_us.map(Duration::from_micros);
            }
            What::Read { share } => {
                cause = Cause::Copied;
                copied += ((received - copied) / 100).saturating_mul(*share);
            }
            What::Timer => {}
            What::Acknowledge { edge: more } => {
                edge = edge.max(received.saturating_add(*more));
                law.on_ack_sent(now);
                assert!(!law.wants_ack(), "{}: an ACK has just gone out", entry.name);
                continue;
            }
        }
        let before = law.window();
        let sample = Sample {
            cause,
            received: Bytes(received),
            copied: Bytes(copied),
            out_of_order: Bytes(beyond),
            right_edge: Bytes(edge.max(received)),
            rtt,
        };
        let decided = law.on_sample(now, &sample);
        let (window, buffer) = (law.window(), law.buffer());
        assert!(window > Bytes::ZERO, "{}: window of zero", entry.name);
        assert!(window <= buffer, "{}: {window} of {buffer}", entry.name);
        assert_eq!(decided, (window != before).then_some(window), "{}", entry.name);
        assert!(
            law.next_wakeup().is_none_or(|due| due > now),
            "{}: wake-up in the past",
            entry.name
        );
        assert_eq!(law.state().window, window, "{}", entry.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_operations_closes_or_overflows_a_window(
        operations in prop::collection::vec(operation(), 1..150),
        places in prop::collection::vec(0.0..1.0_f64, 16),
        mss in 1..9_000_u64,
        timestamps: bool,
    ) {
        for entry in TABLE {
            operate(entry, &Settings::defaults(entry.params), &Setup::default(), &operations);
            let anything = entry.params.iter().zip(places.iter().cycle()).map(|(p, at)| value(p, *at));
            let setup = Setup { mss: Bytes(mss), timestamps };
            operate(entry, &Settings(anything.collect()), &setup, &operations);
        }
    }

    #[test]
    fn drwas_integers_are_the_formula_within_rounding(
        rate_form: bool,
        quick: bool,
        alpha in 0..16_u64,
        lambda in 1..=256_u64,
        increment in 0..100_000_u64,
        old in 1..100_000_000_u64,
        old_rate in 1..1_000_000_000_u64,
        bytes in 0..100_000_000_u64,
        rtt_min_us in 1..1_000_000_u64,
        queue_us in 0..5_000_000_u64,
        late_us in 0..1_000_000_u64,
    ) {
        let rtt_us = rtt_min_us + queue_us;
        let elapsed_us = rtt_us + late_us;
        let units = lambda * 16;
        let law = Law {
            rate_form, alpha, lambda: units, lambda_min: units, adaptive: false, mss: 1_448, quick, increment, floor: 2_896, max: 1 << 30,
        };
        let old = Estimate { cwnd: old, rate: old_rate, mean: 0, lambda: 0 };
        let (new, window) = decide(&law, &old, &Round { elapsed_us, bytes, rtt_us, rtt_min_us, beside_us: 0 });

        let (a, l) = (alpha as f64 / 16.0, lambda as f64 / 16.0);
        let average = |old: u64, x: f64| {
            if quick && x > old as f64 { x } else { a * old as f64 + (1.0 - a) * x }
        };
        let cwnd = average(old.cwnd, bytes as f64 * rtt_us as f64 / elapsed_us as f64);
        let rate = average(old.rate, (bytes as f64 * 1e6 / elapsed_us as f64).min((1_u64 << 32) as f64));
        // Each of at most two divisions before the last loses less than one byte (per second), which λ multiplies.
        let (expected, slack) = if rate_form {
            let rtt_min = rtt_min_us as f64 / 1e6;
            (l * rtt_min * rate, (2.0 * rtt_min + 1.0) * l + 1.0)
        } else {
            (l * rtt_min_us as f64 / rtt_us as f64 * cwnd, 2.0 * l + 1.0)
        };
        let expected = (expected + increment as f64).clamp(2_896.0, (1_u64 << 30) as f64);
        let slack = slack + expected * 1e-9;
        prop_assert!((window as f64 - expected).abs() <= slack, "{window} {expected} {slack} {new:?}");
        prop_assert!((new.cwnd as f64 - cwnd).abs() <= 2.0 + cwnd * 1e-9);
    }
}
