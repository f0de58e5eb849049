//! Pauses of a flow: the gaps stored for `radio-promotion`, and pauses in which the capture lacks data.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use capture::{TcpSegment, flags};
use flow::Analysis;
use flow::series::rows::{Limit, Value};
use model::{MS, Script, analyse};
use units::Instant;

const PAUSE: u64 = 3_000 * MS;
/// RTT of the first segment after a pause, and of the next.
const LATE: u64 = 600 * MS;
const USUAL: u64 = 40 * MS;

/// `wakeups` pauses, two segments after each, the first answered late. Those after the first `repeated` pauses are sent
/// twice, so that their ACKs give no sample (Karn's rule).
fn after_pauses(wakeups: usize, repeated: usize) -> Vec<TcpSegment> {
    let s = Script { segments: 2 * wakeups, cwnd: 1, timestamps: false, ..Script::plain() };
    let packets = model::run(&s).0;
    let mut now = packets[0].ip.time;
    let mut sent = 0;
    let mut rewritten = Vec::new();
    for mut p in packets {
        if p.flags & flags::SYN != 0 {
            now = p.ip.time;
        } else if p.payload > 0 {
            let first = sent % 2 == 0;
            now = Instant(now.0 + if first { PAUSE } else { MS });
            p.ip.time = now;
            if sent / 2 < repeated {
                rewritten.push(p);
                let mut again = p;
                again.ip.id = p.ip.id.map(|id| id.wrapping_add(30_000));
                now = Instant(now.0 + LATE);
                again.ip.time = now;
                p = again;
            }
            sent += 1;
        } else if sent > 0 {
            now = Instant(now.0 + if sent % 2 == 1 { LATE } else { USUAL });
            p.ip.time = now;
        }
        rewritten.push(p);
    }
    rewritten
}

fn wakeups_of(a: &Analysis) -> f64 {
    let finding = a.findings.iter().find(|f| f.rule == "radio-promotion").expect("a finding");
    match finding.values.iter().find(|(key, _)| *key == "wakeups") {
        Some((_, Value::Number(n))) => *n,
        _ => panic!("{:?}", finding.values),
    }
}

// Before the first data there is no pause, so one fewer than scripted is found.

#[test]
fn beyond_the_cap_the_first_wakeups_stand_for_all() {
    assert_eq!(wakeups_of(&analyse(&after_pauses(21, 0))), 20.0);
    assert_eq!(wakeups_of(&analyse(&after_pauses(33, 0))), 32.0);
    assert_eq!(wakeups_of(&analyse(&after_pauses(50, 0))), 32.0);
}

#[test]
fn a_wakeup_without_a_sample_takes_no_place() {
    assert_eq!(wakeups_of(&analyse(&after_pauses(60, 40))), 20.0);
    assert_eq!(wakeups_of(&analyse(&after_pauses(80, 40))), 32.0);
}

/// An upload that pauses for 10 s after half of its data. The first `missing` segments after the pause are not captured.
fn with_pause(missing: usize) -> Analysis {
    let s = Script { segments: 200, cwnd: 1, timestamps: false, ..Script::plain() };
    let mut data = 0;
    let packets: Vec<TcpSegment> = model::run(&s)
        .0
        .into_iter()
        .filter_map(|mut p| {
            data += usize::from(p.payload > 0);
            if data > 100 {
                p.ip.time = Instant(p.ip.time.0 + 10_000 * MS);
            }
            // The ACKs of what is missing are missing as well, but for the last.
            let last = p.payload == 0 && data == 100 + missing;
            (data <= 100 || data > 100 + missing || last).then_some(p)
        })
        .collect();
    analyse(&packets)
}

#[test]
fn a_pause_in_which_the_capture_lacks_data_is_no_idle_application() {
    let share = |a: &Analysis, limit: Limit| {
        let f = a.flows.iter().max_by_key(|f| f.payload_bytes).expect("flows");
        f.limit_time[limit as usize].as_secs_f64()
    };
    let whole = with_pause(0);
    assert!(share(&whole, Limit::Application) > 9.5, "nothing is missing: the sender was idle");
    assert!(whole.findings.iter().any(|f| f.rule == "application-limited"));
    let part = with_pause(50);
    assert!(part.connections[0].capture_gaps.get() >= 49 * 1_448);
    assert!(share(&part, Limit::Application) < 1.0, "{}", share(&part, Limit::Application));
    assert!(share(&part, Limit::Unknown) > 9.5, "{}", share(&part, Limit::Unknown));
    assert!(part.findings.iter().all(|f| f.rule != "application-limited"));
}

#[test]
fn the_wait_for_a_round_trip_is_no_pause_of_the_application_without_timestamps() {
    // Rounds of ten segments in 10 ms, then 490 ms until their ACKs bring the next ones.
    let script = Script {
        segments: 200,
        timestamps: false,
        point: model::Point::Receiver,
        delay: [250 * MS; 2],
        ..Script::plain()
    };
    let share = |script: &Script| {
        let analysis = analyse(&model::run(script).0);
        let flow = analysis.flows.iter().max_by_key(|f| f.payload_bytes).expect("flow").clone();
        assert!(analysis.findings.iter().all(|f| f.rule != "application-limited"));
        flow.limit_share(Limit::Application).expect("limits")
    };
    assert!(share(&script) < 0.05, "{}", share(&script));
}
