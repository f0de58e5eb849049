//! Looks made by hand, and what a run says of them.

use super::*;

fn flow(cure: &str, port: u16, bytes: u64, rtt_ms: f64) -> Value {
    json!({
        "cure": cure, "remote": "192.0.2.1", "remote_port": 443, "local_port": port, "bytes": bytes,
        "rate_bps": 8_000_000, "rtt_ms": rtt_ms, "rtt_min_ms": 60.0,
    })
}

/// A phase of a second with a download of so many bytes at that RTT.
fn phase(bytes: u64, rtt_ms: f64) -> Phase {
    let (mut flow_bytes, mut phase) = (FlowBytes::default(), Phase::default());
    for (number, sent) in [0, bytes].into_iter().enumerate() {
        let status = json!({"flows": [flow("receive", 50_000, sent, rtt_ms)]});
        phase.add(flow_bytes.sample(&status, Duration::from_secs(number as u64)), &[]);
    }
    phase
}

#[test]
fn bytes_between_looks_are_goodput_and_weigh_the_rtt() {
    let (mut flow_bytes, mut phase) = (FlowBytes::default(), Phase::default());
    let samples = [
        (0, json!({"flows": [flow("receive", 1, 5_000_000, 100.0)]})),
        (
            1,
            json!({"flows": [flow("receive", 1, 6_000_000, 200.0), flow("receive", 2, 9_000_000, 900.0)]}),
        ),
        (
            2,
            json!({"flows": [flow("receive", 1, 6_000_000, 200.0), flow("receive", 2, 9_250_000, 60.0)]}),
        ),
    ];
    for (at, status) in samples {
        phase.add(flow_bytes.sample(&status, Duration::from_secs(at)), &[50.0, 70.0]);
    }
    let figures = phase.to_json();
    // What the first sample found came before it; a flow that is new then counts what its rate allows
    // in a second.
    assert_eq!(figures["downloads"]["bytes"], 2_250_000.0);
    assert_eq!(figures["downloads"]["goodput_bps"], 9_000_000.0);
    assert_eq!(
        (&figures["downloads"]["rtt_ms_p50"], &figures["downloads"]["rtt_ms_p95"]),
        (&json!(200.0), &json!(900.0))
    );
    assert_eq!(figures["uploads"]["rtt_ms_p50"], Value::Null);
    assert_eq!(
        (&figures["probe"]["count"], &figures["probe"]["rtt_ms_p95"]),
        (&json!(6), &json!(70.0))
    );
}

#[test]
fn a_download_that_two_cures_see_counts_once() {
    for order in [["receive", "acks down"], ["acks down", "receive"]] {
        let (mut flow_bytes, mut phase) = (FlowBytes::default(), Phase::default());
        for (at, bytes) in [(0, 0), (1, 1_000_000)] {
            let flows: Vec<Value> = order.iter().map(|cure| flow(cure, 1, bytes, 100.0)).collect();
            phase.add(flow_bytes.sample(&json!({"flows": flows}), Duration::from_secs(at)), &[]);
        }
        assert_eq!(phase.to_json()["downloads"]["bytes"], 1_000_000.0);
    }
}

#[test]
fn the_sentence_is_honest_about_what_happened() {
    let said = |before: (u64, f64), after: (u64, f64)| {
        let verdict = verdict(&phase(before.0, before.1), &phase(after.0, after.1));
        (verdict.helped, verdict.text)
    };
    let (helped, text) = said((1_000_000, 1_560.0), (990_000, 180.0));
    assert_eq!(helped, Some(true));
    assert_eq!(text, "Downloads: it helped, RTT fell from 1560 to 180 ms at 99 % of the goodput.");
    let (helped, text) = said((1_000_000, 1_560.0), (700_000, 180.0));
    assert_eq!(helped, Some(false));
    assert!(text.contains("but at 70 % of the goodput"), "{text}");
    assert_eq!(said((1_000_000, 300.0), (500_000, 300.0)).0, Some(false));
    assert!(said((1_000_000, 300.0), (1_000_000, 290.0)).1.contains("RTT stayed at 290 ms"));
    assert!(said((1_000_000, 300.0), (1_000_000, 500.0)).1.contains("RTT rose from 300 to 500 ms"));
    assert!(said((1_000_000, 62.0), (1_000_000, 61.0)).1.contains("there was no queue to cure"));
    assert_eq!(said((0, 0.0), (0, 0.0)).0, None);
    assert!(said((0, 0.0), (0, 0.0)).1.starts_with("Nothing flowed"));
    assert!(said((0, 0.0), (1_000_000, 90.0)).1.contains("came through before the cure"));
    assert!(said((1_000_000, 90.0), (0, 0.0)).1.contains("hardly anything came through after"));
}

#[test]
fn what_is_no_flow_is_passed_over() {
    let mut flow_bytes = FlowBytes::default();
    for status in
        [json!(null), json!({"flows": 3}), json!({"flows": [null, {"cure": 3}, {"cure": "gate"}]})]
    {
        assert!(flow_bytes.sample(&status, Duration::from_secs(1)).flows.is_empty());
    }
    let negative =
        json!({"flows": [{"cure": "receive", "bytes": -5, "rate_bps": -1, "rtt_ms": -3}]});
    let step = flow_bytes.sample(&negative, Duration::from_secs(2));
    assert_eq!(step.flows, [(0, 0.0, 0.0, 0.0)]);
}

#[test]
fn a_hole_that_fills_is_no_faster_link() {
    // Sixteen half seconds at 7.7 Mbit/s; in the first phase what waited behind a loss comes at once.
    let phase = |bytes: &[f64]| {
        let mut phase = Phase::default();
        for one in bytes {
            phase.add(Interval { span_s: 0.5, flows: vec![(0, *one, 1_500.0, 60.0)] }, &[]);
        }
        phase
    };
    let step = 7.7e6 / 8.0 / 2.0;
    let mut before = phase(&[&[3.0 * step], &[step; 7][..]].concat());
    let mut after = phase(&[step; 8]);
    assert!(before.goodput_bps(0) > 9e6);
    cap_goodput(&mut before, &mut after);
    assert_eq!((before.goodput_bps(0), after.goodput_bps(0)), (7.7e6, 7.7e6));
    // A link that was faster before remains so; a phase without traffic has no rate.
    let (mut before, mut after) = (phase(&[4.0 * step; 8]), phase(&[step; 8]));
    cap_goodput(&mut before, &mut after);
    assert_eq!((before.goodput_bps(0), after.goodput_bps(0)), (4.0 * 7.7e6, 7.7e6));
    assert_eq!((before.goodput_bps(1), after.ways[1].link_bps), (0.0, None));
}

#[test]
fn the_table_has_both_halves() {
    let text = table(&phase(1_000_000, 1_560.0), &phase(990_000, 180.0));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["before", "after"]);
    assert_eq!(rows[1], ["downloads,", "Mbit/s", "8.00", "7.92"]);
    assert_eq!(rows[2], ["downloads,", "RTT", "p50,", "ms", "1560", "180"]);
    assert_eq!(rows[4], ["uploads,", "Mbit/s", "0.00", "0.00"]);
}

#[test]
fn what_came_since_a_decision_is_not_counted_in_the_next_half() {
    // Decisions are 1.5 s apart, samples phase a second: bytes stand still between them.
    let (mut flow_bytes, mut rates) = (FlowBytes::default(), Vec::new());
    for sample in 0..12u64 {
        let decided = sample * 500 / 1_500 * 1_500;
        let status = json!({"flows": [{
            "cure": "receive", "remote": "192.0.2.1", "bytes": decided * 1_000, "rate_bps": 8_000_000,
            "rtt_ms": 1_500.0, "rtt_min_ms": 60.0, "age_ms": sample * 500 - decided,
        }]});
        let step = flow_bytes.sample(&status, Duration::from_millis(sample * 500));
        rates.push(step.goodput()["downloads"].as_f64());
    }
    assert_eq!(rates[0], None);
    assert!(rates[1..].iter().all(|rate| *rate == Some(8_000_000.0)), "{rates:?}");
    // It has stopped: what was taken for granted meanwhile is not counted twice.
    let silent = json!({"flows": [{
        "cure": "receive", "remote": "192.0.2.1", "bytes": 4_500_000, "rate_bps": 8_000_000, "rtt_ms": 60.0, "age_ms": 5_000,
    }]});
    assert_eq!(flow_bytes.sample(&silent, Duration::from_secs(6)).goodput()["downloads"], 0.0);
}
