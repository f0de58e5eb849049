//! The kernel decides as the Rust side does, from the same samples: both run the same streams, and
//! every window must be the same.
//!
//! Needs root and BPF; elsewhere the test says so and ends.

use agent::kernel::layouts::{Drwa as KernelDrwa, DrwaLaw, DrwaSample};
use algo::Rng;
use algo::rwnd::drwa::{Config, Drwa, Estimator, Form};
use algo::rwnd::{Cause, Sample, Setup, WindowControl};
use streams::STREAM;
use units::{Bytes, Duration, Instant};

mod streams;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Step {
    now_ns: u64,
    sample: DrwaSample,
    window: u64,
    rtt_us: u64,
    rtt_min_us: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Bench {
    law: DrwaLaw,
    state: KernelDrwa,
    steps: u32,
    done: u32,
}

#[allow(unsafe_code)]
mod pod {
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Step {}
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Bench {}
}

fn in_kernel(kernel: &mut streams::Bench, law: DrwaLaw, seed: Option<u64>, steps: &mut [Step]) {
    let mut state = KernelDrwa::default();
    if let Some(seed) = seed {
        state.window = law.initial.clamp(law.floor, law.max);
        state.rtt_min_us = seed;
        state.flags[3] = 1;
    }
    kernel.run(Bench { law, state, steps: steps.len() as u32, done: 0 }, steps, |bench| bench.done);
}

/// Any law within its bounds.
fn any_config(rng: &mut Rng) -> Config {
    let mut flag = |n: u64| rng.below(n) == 0;
    let (rate, quick, window, aged, seeded) = (flag(2), flag(2), flag(3), flag(2), flag(3));
    Config {
        form: if rate { Form::Rate } else { Form::Paper },
        estimator: if window { Estimator::Window } else { Estimator::Timestamps },
        quick,
        alpha: rng.below(16),
        lambda: (1 + rng.below(256)) as f64 / 16.0,
        lambda_min: (rng.below(2) == 0).then(|| (1 + rng.below(64)) as f64 / 16.0),
        min_window: 1 + rng.below(20),
        increment: if rng.below(2) == 0 { 0 } else { rng.below(30) },
        initial: Bytes(1_448 + rng.below(1 << 20)),
        max: Bytes(65_536 + rng.below(1 << 30)),
        rtt_min_age: aged.then(|| Duration::from_millis(100 + rng.below(5_000))),
        rtt_min_seed: seeded.then(|| Duration::from_micros(1 + rng.below(100_000))),
        fair: false,
    }
}

/// A connection: bursts, pauses, a reader that is late at times, RTTs that follow a queue, echoes
/// that are missing.
fn any_stream(rng: &mut Rng) -> Vec<(Instant, Sample)> {
    let mut now = rng.below(1 << 45);
    let (mut received, mut copied, mut edge) = (0_u64, 0_u64, 65_535_u64);
    let gap = 10_000 + rng.below(3_000_000);
    let slow = rng.below(4) == 0;
    let mut rtt_us = 1_000 + rng.below(300_000);
    let mut found = Vec::new();
    for _ in 0..STREAM {
        now += match rng.below(200) {
            0 => rng.below(5_000_000_000),
            1..10 => 0,
            _ => rng.below(2 * gap),
        };
        let arrived = rng.below(5) > 0;
        if arrived {
            received += rng.below(40) * 1_448;
        }
        if !slow || rng.below(30) == 0 {
            copied = received;
        }
        edge = edge.max(received + rng.below(1 << 22));
        rtt_us = (rtt_us + rng.below(4_000)).saturating_sub(rng.below(4_000)).max(1);
        if rng.below(500) == 0 {
            rtt_us = 1 + rng.below(40_000_000);
        }
        let rtt = (arrived && rng.below(3) > 0).then(|| Duration::from_micros(rtt_us));
        let cause = if arrived { Cause::Arrived } else { Cause::Copied };
        let sample = Sample {
            cause,
            received: Bytes(received),
            copied: Bytes(copied),
            right_edge: Bytes(edge),
            rtt,
            ..Sample::default()
        };
        found.push((Instant(now), sample));
    }
    found
}

fn as_seen_by_the_kernel((now, sample): &(Instant, Sample)) -> Step {
    let arrived = sample.cause == Cause::Arrived;
    let sample = DrwaSample {
        received: sample.received.0,
        copied: sample.copied.0,
        right_edge: sample.right_edge.0,
        rtt_us: sample.rtt.map_or(0, |rtt| rtt.0 / 1_000),
        arrived: arrived.into(),
        pad: 0,
    };
    Step { now_ns: now.0, sample, ..Step::default() }
}

#[test]
fn every_window_of_any_stream_is_the_same_in_the_kernel() {
    let Some(mut kernel) = streams::Bench::load("run_drwa", "stream", "bench") else { return };
    let mut rng = Rng::new(1, "conformance");
    let mut windows = std::collections::BTreeSet::new();
    for case in 0..60 {
        let config = any_config(&mut rng);
        let setup = Setup { mss: Bytes(536 + rng.below(8_000)), timestamps: rng.below(4) > 0 };
        let stream = any_stream(&mut rng);
        let mut steps: Vec<Step> = stream.iter().map(as_seen_by_the_kernel).collect();
        let law = DrwaLaw::new(&config, setup.mss.0, setup.timestamps);
        let seed = config.rtt_min_seed.map(|seed| (seed.0 / 1_000).clamp(1, 30_000_000));
        in_kernel(&mut kernel, law, seed, &mut steps);
        let mut ours = Drwa::new(config.clone(), &setup);
        for (i, ((now, sample), step)) in stream.iter().zip(&steps).enumerate() {
            ours.on_sample(*now, sample);
            let state = ours.state();
            let (rtt, rtt_min) =
                (state.rtt.map_or(0, |t| t.0 / 1_000), state.rtt_min.map(|t| t.0 / 1_000));
            let theirs =
                (step.window, step.rtt_us, Some(step.rtt_min_us).filter(|us| *us < 30_000_000));
            assert_eq!(
                (ours.window().0, rtt, rtt_min),
                theirs,
                "case {case}, sample {i}: {config:?}"
            );
            windows.insert(ours.window().0);
        }
    }
    assert!(windows.len() > 400, "the streams make the law move: {}", windows.len());
}
