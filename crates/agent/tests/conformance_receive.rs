//! The kernel separates the two directions' queues at a receiver as the Rust side does, lets a
//! connection grow, and shares what it knows between connections: both run the same streams, of two
//! connections at a time in every third case, and every target must be the same.
//!
//! Needs root and BPF; elsewhere the test says so and ends.

use agent::kernel::layouts::{DrwaLaw, DrwaSample};
use algo::Rng;
use algo::rwnd::drwa::{Config, Drwa, Form};
use algo::rwnd::path::Places;
use algo::rwnd::{Arrival, Cause, Sample, Setup, WindowControl};
use streams::STREAM;
use units::{Bytes, Duration, Instant};

mod streams;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Step {
    now_ns: u64,
    sample: DrwaSample,
    stamp: u32,
    stamped: u32,
    target: u64,
    rtt_min_us: u64,
    towards_us: u32,
    away_us: u32,
    added_us: u32,
    /// Which of two connections, and how it begins with this step: 1: by the far end, 2: by this host.
    which: u16,
    begins: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Bench {
    law: DrwaLaw,
    steps: u32,
    done: u32,
    address: [u32; 4],
    mss: u64,
}

#[allow(unsafe_code)]
mod pod {
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Step {}
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Bench {}
}

/// The smallest window of a socket that the agent sets: the kernel refuses smaller ones.
const MIN_WINDOW: u64 = 4_096;

fn any_config(rng: &mut Rng) -> Config {
    Config {
        form: Form::Agent,
        quick: rng.below(2) == 0,
        alpha: rng.below(16),
        lambda: (17 + rng.below(48)) as f64 / 16.0,
        lambda_min: (rng.below(2) == 0).then(|| (16 + rng.below(16)) as f64 / 16.0),
        min_window: 1 + rng.below(4),
        increment: rng.below(3),
        // Connections within a second or two count as beside each other.
        fair: rng.below(3) > 0,
        ..Config::default()
    }
}

/// A download beside queues that come and go in both directions. The far clock has whole
/// milliseconds; segments come in bursts, and some show no round trip.
fn any_stream(rng: &mut Rng, start: u64, stamped: bool, length: usize) -> Vec<Step> {
    let mut now = start;
    let first_stamp = rng.below(1 << 32) as u32;
    let base = 5_000 + rng.below(80_000);
    let (mut towards, mut away) = (0_u64, 0_u64);
    let (mut received, mut edge) = (0_u64, 65_535_u64);
    let mut found = Vec::new();
    for step in 0..length {
        now += match rng.below(400) {
            0 => rng.below(3_000_000_000),
            1..60 => 0,
            _ => rng.below(4_000_000),
        };
        // Long runs in which one of them fills or empties.
        let fills = (step / 300) % 4;
        let more = |queue: u64, up: bool, rng: &mut Rng| {
            let step = rng.below(1_500);
            if up { (queue + step).min(250_000) } else { queue.saturating_sub(step) }
        };
        towards = more(towards, fills == 1, rng);
        away = more(away, fills == 2, rng);
        let arrived = rng.below(8) > 0;
        if arrived {
            received += rng.below(5) * 1_448;
        }
        edge = edge.max(received + 20_000 + rng.below(1 << 19));
        let rtt_us = if arrived && rng.below(3) > 0 { base + towards + away } else { 0 };
        let sample = DrwaSample {
            received,
            copied: received - rng.below(2) * received.min(1_448),
            right_edge: edge,
            rtt_us: if stamped { rtt_us.max(1_000) * u64::from(rtt_us > 0) } else { 0 },
            arrived: arrived.into(),
            pad: 0,
        };
        let sent_ms = (now / 1_000).saturating_sub(towards) / 1_000;
        let stamp = first_stamp.wrapping_add(sent_ms as u32);
        found.push(Step { now_ns: now, sample, stamp, stamped: stamped.into(), ..Step::default() });
    }
    found
}

#[test]
fn every_target_of_any_receiver_is_the_same_in_the_kernel() {
    let Some(mut kernel) = streams::Bench::load("run_receive", "receive_stream", "receive_bench")
    else {
        return;
    };
    let mut rng = Rng::new(7, "receiving");
    let mut places = Places::default();
    let mut start = 1_000_000_000;
    let (mut targets, mut added) = (std::collections::BTreeSet::new(), 0);
    for case in 0..40_u32 {
        let config = any_config(&mut rng);
        let setup = Setup { mss: Bytes(536 + rng.below(8_000)), timestamps: rng.below(5) > 0 };
        // A second connection begins and ends beside the first.
        let beside = if case % 3 == 2 { STREAM / 4 } else { 0 };
        let mut steps = any_stream(&mut rng, start, setup.timestamps, STREAM - beside);
        steps[0].begins = 1 + rng.below(2) as u16;
        if beside > 0 {
            let start = steps[rng.below(600) as usize].now_ns + 1;
            let mut others = any_stream(&mut rng, start, setup.timestamps, beside);
            others[0].begins = 1 + rng.below(2) as u16;
            steps.extend(others.iter().map(|step| Step { which: 1, ..*step }));
            steps.sort_by_key(|step| step.now_ns);
        }
        // The next connection follows at once, or while what is known of the path is still fresh.
        start = steps.last().unwrap().now_ns + rng.below(2_000_000_000);
        let mut law = DrwaLaw::new(&config, setup.mss.0, setup.timestamps);
        law.floor = law.floor.max(MIN_WINDOW).min(law.max);
        let address = 1 + rng.below(3) as u32;
        let bench = Bench {
            law,
            steps: steps.len() as u32,
            address: [1, 0, 0, address],
            mss: setup.mss.0,
            ..Bench::default()
        };
        kernel.run(bench, &mut steps, |bench| bench.done);
        let mut both = [(); 2].map(|()| Drwa::new(config.clone(), &setup));
        let initial = both[0].window().0;
        for (i, step) in steps.iter().enumerate() {
            let now = Instant(step.now_ns);
            let rtt = (step.sample.rtt_us > 0).then(|| Duration::from_micros(step.sample.rtt_us));
            let arrived = step.sample.arrived == 1;
            let ours = &mut both[usize::from(step.which)];
            // To two addresses.
            let address = u64::from(address) + (u64::from(step.which) << 32);
            if step.begins == 2 {
                ours.on_open(now, address, &places);
            }
            if arrived {
                let stamp = setup.timestamps.then_some(step.stamp);
                let arrival = Arrival { address, stamp, rtt };
                ours.on_arrival(now, &arrival, &mut places);
            }
            let sample = Sample {
                cause: if arrived { Cause::Arrived } else { Cause::Copied },
                received: Bytes(step.sample.received),
                copied: Bytes(step.sample.copied),
                right_edge: Bytes(step.sample.right_edge),
                rtt,
                ..Sample::default()
            };
            ours.on_sample(now, &sample);
            let rtt_min = ours.state().rtt_min.map(|t| t.0 / 1_000);
            let theirs = (
                if step.target == 0 { initial } else { step.target },
                Some(step.rtt_min_us).filter(|us| *us < 30_000_000),
            );
            assert_eq!((ours.window().0, rtt_min), theirs, "case {case}, step {i}: {step:?}");
            targets.insert(step.target);
            added += usize::from(step.added_us > 0);
        }
    }
    eprintln!("{} targets, {added} samples beside an opposite queue", targets.len());
    assert!(targets.len() > 2_000, "the streams make the law move: {}", targets.len());
    assert!(added > 5_000, "beside a queue in the opposite direction: {added}");
}
