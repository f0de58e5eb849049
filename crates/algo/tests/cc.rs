//! Every congestion control of the table: the same path, the same seed, the same invariants.
//!
//! Golden curves: each drives a bulk flow through 10 Mbit/s, 40 ms and 200 packets of buffer for a minute; the window of
//! every second is compared with `golden/cc_<name>.txt` (`UNBLOAT_BLESS=1` writes the files). Operation fuzzing: any
//! sequence of events, with any parameters, keeps the window within bounds.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::PathBuf;

use algo::cc::{
    self, Ack, Cc, CongestionControl, Loss, RateSample, Recovery, Sent, Setup, State, Timeout,
};
use algo::{Entry, Rng, Settings, Unit, Value};
use proptest::prelude::*;
use units::{Bytes, Duration, Instant, Rate};

const MSS: Bytes = Bytes(1448);
/// A full packet of 1,500 bytes at 10 Mbit/s.
const SLOT: Duration = Duration::from_micros(1200);
const PROPAGATION: Duration = Duration::from_millis(40);
const BUFFER: u64 = 200;
const SECONDS: u64 = 60;

/// A segment under way, with what the rate sample needs to know of the time when it was sent.
struct Segment {
    number: u64,
    sent: Instant,
    back: Instant,
    dropped: bool,
    delivered: Bytes,
    delivered_at: Instant,
    first_sent: Instant,
    in_flight: Bytes,
    lost: Bytes,
}

/// State of the path at the end of a second.
struct Second {
    state: State,
    /// Packets in the bottleneck's queue.
    queue: u64,
    delivered: Bytes,
}

/// A bulk flow through a drop-tail bottleneck; its receiver acknowledges `per_ack` segments at once. A
/// loss is detected with the ACK of the packet before it, without timeouts. It begins an episode unless
/// the segment was sent before the last episode began.
fn drive(cc: &mut Cc, per_ack: u64) -> Vec<Second> {
    let mut rng = Rng::new(1, "cc");
    let (mut now, mut free, mut next_send) = (Instant::ZERO, Instant::ZERO, Instant::ZERO);
    let mut flight: VecDeque<Segment> = VecDeque::new();
    let (mut in_flight, mut delivered, mut lost) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
    let (mut delivered_at, mut first_sent) = (now, now);
    let (mut srtt, mut min_rtt) = (Duration::ZERO, Duration::MAX);
    let (mut number, mut episode, mut newly_lost, mut unacked) =
        (0, None, Bytes::ZERO, Bytes::ZERO);
    let mut seconds = Vec::new();
    while seconds.len() < SECONDS as usize {
        while in_flight + MSS <= cc.window() && next_send <= now {
            if in_flight == Bytes::ZERO {
                (first_sent, delivered_at) = (now, now);
            }
            cc.on_sent(now, &Sent { bytes: MSS, in_flight, app_limited: false }, &mut rng);
            in_flight += MSS;
            let dropped = free.since(now).0 >= SLOT.0 * BUFFER;
            if !dropped {
                free = free.max(now) + SLOT;
            }
            number += 1;
            let back = free + PROPAGATION;
            flight.push_back(Segment {
                number,
                sent: now,
                back,
                dropped,
                delivered,
                delivered_at,
                first_sent,
                in_flight,
                lost,
            });
            if let Some(rate) = cc.pacing_rate() {
                next_send = next_send.max(now) + MSS / rate;
            }
        }
        let ack_at = flight.front().map_or(Instant(u64::MAX), |segment| segment.back);
        let may_send = in_flight + MSS <= cc.window();
        let event = if may_send && next_send < ack_at { next_send } else { ack_at };
        let second = Instant::ZERO + Duration::from_secs(seconds.len() as u64 + 1);
        if event > second {
            let queue = free.since(second).0 / SLOT.0;
            seconds.push(Second { state: cc.state(), queue, delivered });
            continue;
        }
        now = now.max(event);
        if ack_at > now {
            continue;
        }
        let Some(segment) = flight.pop_front() else { break };
        let prior_in_flight = in_flight;
        in_flight = in_flight - MSS;
        if segment.dropped {
            (lost, newly_lost) = (lost + MSS, newly_lost + MSS);
            if episode.is_none() {
                episode = Some(number);
                cc.on_loss(now, &Loss { lost: MSS, in_flight: prior_in_flight });
            }
            continue;
        }
        if episode.is_some_and(|last| segment.number >= last) {
            episode = None;
            cc.on_recovered(now);
        }
        delivered += MSS;
        unacked += MSS;
        // As long as the next one follows at the bottleneck's pace.
        let follows =
            flight.front().is_some_and(|next| !next.dropped && next.back.since(now) <= SLOT);
        if follows && unacked < MSS * per_ack {
            continue;
        }
        let acked = std::mem::take(&mut unacked);
        let prior_in_flight = in_flight + acked;
        let rtt = now.since(segment.sent);
        min_rtt = min_rtt.min(rtt);
        srtt = if srtt == Duration::ZERO { rtt } else { (srtt * 7 + rtt) / 8 };
        let interval = segment.sent.since(segment.first_sent).max(now.since(segment.delivered_at));
        (delivered_at, first_sent) = (now, segment.sent);
        let rate = RateSample {
            delivered: delivered - segment.delivered,
            interval,
            prior_delivered: segment.delivered,
            in_flight_at_send: segment.in_flight,
            lost: lost - segment.lost,
            app_limited: false,
        };
        let ack = Ack {
            acked,
            delivered,
            rtt: Some(rtt),
            srtt,
            min_rtt,
            one_way: Some(rtt.saturating_sub(PROPAGATION / 2)),
            prior_in_flight,
            in_flight,
            lost: std::mem::take(&mut newly_lost),
            window_limited: prior_in_flight + MSS > cc.window(),
            marked: Bytes::ZERO,
            recovery: if episode.is_some() { Recovery::Recovering } else { Recovery::Open },
            rate,
        };
        cc.on_ack(now, &ack, &mut rng);
    }
    seconds
}

fn entry(name: &str) -> &'static Entry<Cc, Setup> {
    cc::TABLE.iter().find(|entry| entry.name == name).expect("a name of the table")
}

/// One with a parameter that takes words.
fn with(name: &str, parameter: &str, word: &str) -> Cc {
    let entry = entry(name);
    let param = entry.params.iter().find(|p| p.name == parameter).expect("a parameter of it");
    let Unit::Choice(words) = param.unit else { panic!("{parameter} takes no words") };
    let index = words.iter().position(|w| *w == word).expect("one of its words");
    let mut settings = Settings::defaults(entry.params);
    assert!(settings.set(entry.params, parameter, Value::Choice(index)));
    (entry.build)(&settings, &Setup::default())
}

#[test]
fn the_window_of_each_second_is_the_golden_one() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("UNBLOAT_BLESS").is_some_and(|v| v == "1");
    let mut wrong = Vec::new();
    for entry in cc::TABLE {
        let mut text = String::from("t_s window_bytes queue_packets phase\n");
        for (n, second) in drive(&mut entry.default(&Setup::default()), 1).iter().enumerate() {
            let state = second.state;
            writeln!(text, "{} {} {} {}", n + 1, state.window.0, second.queue, state.phase)
                .expect("a String");
        }
        let path = folder.join(format!("cc_{}.txt", entry.name));
        if bless {
            std::fs::create_dir_all(&folder).expect("the folder of golden curves can be made");
            std::fs::write(&path, &text).expect("a golden curve can be written");
            continue;
        }
        let Ok(golden) = std::fs::read_to_string(&path) else {
            wrong.push(format!("{}: no {}", entry.name, path.display()));
            continue;
        };
        if let Some((ours, theirs)) = text.lines().zip(golden.lines()).find(|(a, b)| a != b) {
            wrong.push(format!("{}: now `{ours}`, golden `{theirs}`", entry.name));
        } else if text.lines().count() != golden.lines().count() {
            wrong.push(format!("{}: another number of seconds", entry.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "UNBLOAT_BLESS=1 renews, after a look at the change:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_golden_curve_belongs_to_an_entry_of_the_table() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for file in std::fs::read_dir(folder).expect("the folder of golden curves").flatten() {
        let file = file.file_name().to_string_lossy().into_owned();
        let Some(name) = file.strip_prefix("cc_").and_then(|f| f.strip_suffix(".txt")) else {
            continue;
        };
        assert!(cc::TABLE.iter().any(|entry| entry.name == name), "{file} has no entry");
    }
}

#[test]
fn each_alone_fills_the_link_with_any_number_of_segments_per_ack() {
    for (entry, per_ack) in
        cc::TABLE.iter().flat_map(|entry| [1, 2, 16].map(|per_ack| (entry, per_ack)))
    {
        let seconds = drive(&mut entry.default(&Setup::default()), per_ack);
        let (from, to) = (&seconds[9], &seconds[59]);
        let share =
            (to.delivered - from.delivered).0 as f64 / MSS.0 as f64 / (50e9 / SLOT.0 as f64);
        // Linux's TCP-LP often falls to one segment: after an indication the smallest delay falls at
        // once; the smoothed delay lags and indicates again within the inference phase. Alone on this
        // path, Linux's own formula for the reset (twice the smoothed delay, clocks in step) has 0.559,
        // ours 0.548.
        let min = if entry.name == "lp" { 0.5 } else { 0.95 };
        assert!(
            (min..=1.001).contains(&share),
            "{}, {per_ack} segments per ACK, uses {share:.3} of the link",
            entry.name
        );
    }
}

#[test]
fn cubic_in_all_its_forms_fills_the_link() {
    for (parameter, word) in [("hystart", "linux"), ("hystart", "off"), ("rules", "linux")] {
        let seconds = drive(&mut with("cubic", parameter, word), 1);
        let delivered = (seconds[59].delivered - seconds[9].delivered).0 as f64 / MSS.0 as f64;
        assert!(delivered * SLOT.0 as f64 > 0.95 * 50e9, "{parameter} = {word}");
    }
}

#[test]
fn ledbat_keeps_its_target() {
    // RFC 6817 section 2.2: 100 ms of queue; LEDBAT++ 60 ms, between its slowdowns.
    let seconds = drive(&mut entry("ledbat").default(&Setup::default()), 1);
    for second in &seconds[40..] {
        let delay = SLOT * second.queue;
        assert!((90.0..110.0).contains(&delay.as_millis_f64()), "{delay}");
    }
    let seconds = drive(&mut with("ledbat", "form", "plus_plus"), 1);
    let mut delays: Vec<f64> =
        seconds[20..].iter().map(|s| (SLOT * s.queue).as_millis_f64()).collect();
    delays.sort_by(f64::total_cmp);
    assert!(delays[delays.len() - 1] < 66.0, "{delays:?}");
    assert!(delays[delays.len() / 2] > 30.0, "{delays:?}");
}

#[test]
fn vegas_keeps_two_to_four_packets_in_the_queue() {
    for form in ["paper", "linux"] {
        for second in &drive(&mut with("vegas", "form", form), 1)[20..] {
            // The packet in transmission is not one of the queue.
            assert!((2..=5).contains(&second.queue), "{form}: {}", second.queue);
        }
    }
}

#[test]
fn the_table_is_sound() {
    for (n, entry) in cc::TABLE.iter().enumerate() {
        assert!(!entry.about.is_empty() && !entry.source.is_empty(), "{}", entry.name);
        assert!(
            cc::TABLE[..n].iter().all(|other| other.name != entry.name),
            "{} twice",
            entry.name
        );
        for (m, param) in entry.params.iter().enumerate() {
            let default = (param.default)();
            assert!(param.allows(&default), "{}.{} = {default:?}", entry.name, param.name);
            assert!(!param.about.trim().is_empty(), "{}.{}", entry.name, param.name);
            assert!(entry.params[..m].iter().all(|p| p.name != param.name), "{} twice", param.name);
            if let Some((min, max)) = param.range.map(|range| range()) {
                assert!(min.magnitude() <= max.magnitude(), "{}.{}", entry.name, param.name);
            }
        }
    }
}

/// One event of the fuzzer; numbers are segments and milliseconds.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Sent(u64),
    Ack { segments: u64, rtt: u64, limited: bool, lost: u64, marked: bool },
    Loss,
    Timeout,
    Ecn,
    Recovered,
    Spurious,
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let ack = (1..64u64, 1..3000u64, any::<bool>(), 0..8u64, any::<bool>()).prop_map(
        |(segments, rtt, limited, lost, marked)| {
            // Mostly clean ACKs: one in four with losses, as only small numbers of them are lost.
            Operation::Ack { segments, rtt, limited, lost: lost.saturating_sub(6), marked }
        },
    );
    prop_oneof![
        6 => (1..200u64).prop_map(Operation::Sent),
        12 => ack,
        2 => Just(Operation::Loss),
        1 => Just(Operation::Timeout),
        1 => Just(Operation::Ecn),
        2 => Just(Operation::Recovered),
        1 => Just(Operation::Spurious),
        2 => (0..100_000u64).prop_map(Operation::Wait),
    ]
}

/// Numbers at which arithmetic breaks, and some between.
fn wild() -> impl Strategy<Value = u64> {
    let edges = [
        0,
        1,
        2,
        3,
        1448,
        1 << 20,
        1_000_000_000,
        1 << 32,
        1 << 40,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    prop_oneof![3 => proptest::sample::select(edges.to_vec()), 1 => any::<u64>(), 2 => 0..100_000_000u64]
}

/// Each parameter at its default, its smallest or its largest value.
fn settings(entry: &Entry<Cc, Setup>, choices: &[u8]) -> Settings {
    let mut settings = Settings::defaults(entry.params);
    for (param, choice) in entry.params.iter().zip(choices.iter().cycle()) {
        let value = match (param.unit, param.range.map(|range| range()), choice % 3) {
            (Unit::Choice(words), ..) => Value::Choice(usize::from(*choice) % words.len()),
            (Unit::Flag, ..) => Value::Flag(choice % 2 == 0),
            (_, Some((min, _)), 1) => min,
            (_, Some((_, max)), 2) => max,
            _ => (param.default)(),
        };
        assert!(settings.set(entry.params, param.name, value), "{}.{}", entry.name, param.name);
    }
    settings
}

fn run(
    entry: &Entry<Cc, Setup>,
    choices: &[u8],
    operations: &[Operation],
) -> Result<(), TestCaseError> {
    let mut cc = (entry.build)(&settings(entry, choices), &Setup::default());
    let mut rng = Rng::new(u64::from(choices[0]), "fuzz");
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let (mut in_flight, mut delivered) = (Bytes::ZERO, Bytes::ZERO);
    let (mut srtt, mut min_rtt) = (Duration::ZERO, Duration::MAX);
    let (mut recovery, mut timeouts) = (Recovery::Open, 0);
    for operation in operations {
        let before = cc.window();
        match *operation {
            Operation::Sent(segments) => {
                let bytes = MSS * segments;
                cc.on_sent(now, &Sent { bytes, in_flight, app_limited: false }, &mut rng);
                in_flight += bytes;
            }
            Operation::Ack { segments, rtt, limited, lost, marked } => {
                let acked = (MSS * segments).min(in_flight);
                let lost = (MSS * lost).min(in_flight - acked);
                if acked + lost == Bytes::ZERO {
                    continue;
                }
                let rtt = Duration::from_millis(rtt);
                min_rtt = min_rtt.min(rtt);
                srtt = if srtt == Duration::ZERO { rtt } else { (srtt * 7 + rtt) / 8 };
                let prior_in_flight = in_flight;
                in_flight = in_flight - acked - lost;
                delivered += acked;
                timeouts = 0;
                let ack = Ack {
                    acked,
                    delivered,
                    rtt: Some(rtt),
                    srtt,
                    min_rtt,
                    one_way: Some(rtt / 2),
                    prior_in_flight,
                    in_flight,
                    lost,
                    window_limited: limited,
                    marked: if marked { acked } else { Bytes::ZERO },
                    recovery,
                    rate: RateSample {
                        delivered: prior_in_flight.min(delivered),
                        interval: rtt,
                        prior_delivered: delivered - prior_in_flight,
                        in_flight_at_send: prior_in_flight,
                        lost,
                        app_limited: !limited,
                    },
                };
                cc.on_ack(now, &ack, &mut rng);
                // Under PRR a window grows neither during recovery nor while it is not used.
                if !cc.rules_recovery() && (recovery == Recovery::Recovering || !limited) {
                    prop_assert!(
                        cc.window() <= before,
                        "{}: {before} to {}",
                        entry.name,
                        cc.window()
                    );
                }
            }
            Operation::Loss if recovery == Recovery::Open => {
                cc.on_loss(now, &Loss { lost: MSS.min(in_flight), in_flight });
                recovery = Recovery::Recovering;
            }
            Operation::Ecn if recovery == Recovery::Open => {
                cc.on_ecn(now, &Loss { lost: Bytes::ZERO, in_flight });
                recovery = Recovery::Recovering;
            }
            Operation::Timeout => {
                timeouts += 1;
                cc.on_timeout(now, &Timeout { in_flight, count: timeouts });
                (recovery, in_flight) = (Recovery::Lost, Bytes::ZERO);
            }
            Operation::Recovered if recovery != Recovery::Open => {
                cc.on_recovered(now);
                recovery = Recovery::Open;
            }
            Operation::Spurious => {
                cc.on_spurious(now);
                recovery = Recovery::Open;
            }
            Operation::Wait(ms) => now = now + Duration::from_millis(ms),
            _ => continue,
        }
        now = now + Duration::from_micros(100);
        prop_assert!(cc.window() >= MSS, "{}: {}", entry.name, cc.window());
        prop_assert!(cc.window() < Bytes(1 << 48), "{}: {}", entry.name, cc.window());
        prop_assert!(cc.pacing_rate() != Some(Rate(0)), "{}", entry.name);
        prop_assert_eq!(cc.state().window, cc.window());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_breaks_a_window(
        choices in proptest::collection::vec(any::<u8>(), 16),
        operations in proptest::collection::vec(operation(), 1..250),
    ) {
        for entry in cc::TABLE {
            run(entry, &choices, &operations)?;
        }
    }

    #[test]
    fn no_value_however_wild_panics_or_closes_the_window(
        choices in proptest::collection::vec(any::<u8>(), 16),
        values in proptest::collection::vec(proptest::collection::vec(wild(), 20), 1..40),
    ) {
        for entry in cc::TABLE {
            let mut cc = (entry.build)(&settings(entry, &choices), &Setup::default());
            let mut rng = Rng::new(1, "wild");
            for v in &values {
                let (now, loss) = (Instant(v[0]), Loss { lost: Bytes(v[1]), in_flight: Bytes(v[2]) });
                match v[3] % 8 {
                    0 => {
                        let (bytes, in_flight) = (Bytes(v[4]), Bytes(v[5]));
                        cc.on_sent(now, &Sent { bytes, in_flight, app_limited: v[6] % 2 == 0 }, &mut rng);
                    }
                    1 => cc.on_loss(now, &loss),
                    2 => cc.on_timeout(now, &Timeout { in_flight: loss.in_flight, count: v[4] as u32 }),
                    3 => cc.on_ecn(now, &loss),
                    4 => cc.on_recovered(now),
                    5 => cc.on_spurious(now),
                    _ => {
                        let recovery = [Recovery::Open, Recovery::Recovering, Recovery::Lost];
                        let ack = Ack {
                            acked: Bytes(v[4]),
                            delivered: Bytes(v[5]),
                            rtt: (v[6] % 3 != 0).then_some(Duration(v[6])),
                            srtt: Duration(v[7]),
                            min_rtt: Duration(v[8]),
                            one_way: (v[9] % 3 != 0).then_some(Duration(v[9])),
                            prior_in_flight: Bytes(v[10]),
                            in_flight: Bytes(v[11]),
                            lost: Bytes(v[12]),
                            window_limited: v[13] % 2 == 0,
                            marked: Bytes(v[14]),
                            recovery: recovery[(v[13] % 3) as usize],
                            rate: RateSample {
                                delivered: Bytes(v[15]),
                                interval: Duration(v[16]),
                                prior_delivered: Bytes(v[17]),
                                in_flight_at_send: Bytes(v[18]),
                                lost: Bytes(v[19]),
                                app_limited: v[19] % 2 == 0,
                            },
                        };
                        cc.on_ack(now, &ack, &mut rng);
                    }
                }
                // Packet conservation (BBR) sends as much as was delivered, possibly one byte.
                let least = if cc.rules_recovery() { Bytes(1) } else { MSS };
                prop_assert!(cc.window() >= least, "{}: {}", entry.name, cc.window());
                prop_assert!(cc.pacing_rate() != Some(Rate(0)), "{}", entry.name);
            }
        }
    }
}
