//! QCUT-D in the kernel knows of the firmware buffer what the Rust side knows, to the byte: both
//! run the same recorded packets and reports, and every estimate, rate, limit and decision must be
//! the same.
//!
//! Needs root and BPF; elsewhere the test says so and ends.

use algo::Rng;
use algo::gate::qcut_d::{self, Config, QcutD};
use algo::gate::{Event, Gate, RING, Setup};
use streams::STREAM;
use units::{Bytes, Duration, Instant};

mod streams;

/// Mirror of `struct qcut_step` in `bpf/conformance.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    now_ns: u64,
    passed: u64,
    /// When written, bytes in the buffer, granted, padding.
    report: [u64; 4],
    reported: u32,
    open: u32,
    bytes: u64,
    rate: u64,
    limit: u64,
}

/// Mirror of `struct qcut_bench` in `bpf/conformance.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Bench {
    target_ns: u64,
    slack_ns: u64,
    floor: u64,
    timeout_ns: u64,
    hold: u32,
    pace: u32,
    steps: u32,
    done: u32,
    /// `struct qcut`, from zeroes on.
    state: [u64; 22],
    ring: [u64; 2 * RING],
}

#[allow(unsafe_code)]
mod pod {
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Step {}
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Bench {}
}

fn in_kernel(kernel: &mut streams::Bench, config: &Config, setup: &Setup, steps: &mut [Step]) {
    let bench = Bench {
        target_ns: config.target.0,
        slack_ns: config.slack.0,
        floor: setup.mtu.0 * (config.floor - 1),
        timeout_ns: config.patience.0,
        hold: config.hold.into(),
        pace: 0,
        steps: steps.len() as u32,
        done: 0,
        state: [0; 22],
        ring: [0; 2 * RING],
    };
    kernel.run(bench, steps, |bench| bench.done);
}

/// An uplink: packets in bursts, a buffer that drains at a rate that changes, reports that are
/// late, overtake each other, stay away, come from a clock ahead, report padding; now and then
/// numbers at the edge of what fits.
fn any_stream(rng: &mut Rng) -> Vec<(Instant, Event)> {
    let mut now = 1 + rng.below(1 << 45);
    let gap = 1 + rng.below(10_000_000);
    let reports = 2 + rng.below(40);
    let age = rng.below(200_000_000);
    let mut rate = 1 + rng.below(20_000_000);
    let (mut held, mut granted, mut drained_at) = (0_u64, 0_u64, now);
    let mut found = Vec::new();
    for _ in 0..STREAM {
        now += match rng.below(500) {
            0 => rng.below(6_000_000_000),
            1..50 => 0,
            _ => rng.below(2 * gap),
        };
        if rng.below(300) == 0 {
            rate = rng.below(20_000_000);
        }
        let air = ((now - drained_at) as u128 * rate as u128 / 1_000_000_000) as u64;
        drained_at = now;
        let sent = air.min(held);
        held -= sent;
        granted += air;
        let event = if rng.below(reports) == 0 {
            let padding = if rng.below(4) == 0 {
                rng.below(granted + 1)
            } else {
                granted.saturating_sub(sent)
            };
            let at = (now + rng.below(20_000_000))
                .saturating_sub(age)
                .saturating_sub(rng.below(10_000_000));
            let event = Event::Report {
                at: Instant(at),
                occupancy: Bytes(if rng.below(1_000) == 0 { rng.next_u64() } else { held }),
                granted: Bytes(if rng.below(1_000) == 0 { rng.next_u64() } else { granted }),
                padding: Bytes(padding),
            };
            granted = 0;
            event
        } else {
            let bytes =
                if rng.below(1_000) == 0 { rng.next_u64() | 1 } else { 40 + rng.below(1_461) };
            held = held.saturating_add(bytes.min(1_500));
            Event::Passed { bytes: Bytes(bytes), flow: 0, bare: false }
        };
        found.push((Instant(now), event));
    }
    found
}

fn as_seen_by_the_kernel((now, event): &(Instant, Event)) -> Step {
    let mut step = Step { now_ns: now.0, ..Step::default() };
    match *event {
        Event::Passed { bytes, .. } => step.passed = bytes.0,
        Event::Report { at, occupancy, granted, padding } => {
            step.report = [at.0, occupancy.0, granted.0, padding.0];
            step.reported = 1;
        }
        Event::Completed { .. } | Event::Probe { .. } => {}
    }
    step
}

#[test]
fn every_estimate_of_any_stream_is_the_same_in_the_kernel() {
    let Some(mut kernel) = streams::Bench::load("run_qcut", "gate_stream", "gate_bench") else {
        return;
    };
    let mut rng = Rng::new(1, "conformance of the gate");
    let (mut open, mut closed, mut slack, mut rates) = (0, 0, 0, std::collections::BTreeSet::new());
    for case in 0..60 {
        let config = Config {
            target: Duration::from_millis(1 + rng.below(200)),
            floor: 1 + rng.below(4),
            hold: rng.below(3) > 0,
            pace: false,
            refuse: false,
            patience: Duration::from_millis(1 + rng.below(2_000)),
            slack: Duration::from_millis(if case % 3 == 0 { 0 } else { rng.below(400) }),
        };
        let setup = Setup { mtu: Bytes(500 + rng.below(9_000)) };
        let stream = any_stream(&mut rng);
        let mut steps: Vec<Step> = stream.iter().map(as_seen_by_the_kernel).collect();
        in_kernel(&mut kernel, &config, &setup, &mut steps);
        let mut ours = QcutD::new(config.clone(), &setup);
        for (i, ((now, event), step)) in stream.iter().zip(&steps).enumerate() {
            ours.on_event(*now, event);
            let state = ours.state(*now);
            let expected = (
                state.occupancy.unwrap().0,
                state.limit.unwrap().0,
                state.rate.map_or(u64::MAX, |rate| rate.0 / 8),
                ours.open(*now),
            );
            let theirs = (step.bytes, step.limit, step.rate, step.open == 1);
            assert_eq!(expected, theirs, "case {case}, event {i}, {event:?}: {config:?}");
            *(if expected.3 { &mut open } else { &mut closed }) += 1;
            rates.insert(expected.2);
            let published =
                qcut_d::limit(expected.2, config.target.0, 0, 0, setup.mtu.0 * (config.floor - 1));
            slack += u32::from(state.rate.is_some() && expected.1 > published);
        }
    }
    assert!(open > 10_000 && closed > 10_000, "the streams open and close it: {open}, {closed}");
    assert!(slack > 10_000, "the streams empty the buffer before the estimate does: {slack}");
    assert!(rates.len() > 1_000, "the streams move the rate: {}", rates.len());
}
