//! What the gate refuses in the kernel is what the Rust side refuses, to the byte: both get the same limits,
//! accounts and round trips.
//!
//! Needs root and BPF; elsewhere the test says so and ends.

use algo::Rng;
use algo::gate::refusal::{BUSY_FULL, Segment, allowed, busy, longer_us, reaction_ms, train};
use streams::STREAM;

mod streams;

/// Mirror of `struct refusal_step` in `bpf/conformance.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    limit: u64,
    fair: u64,
    before: u64,
    after: u64,
    rate: u64,
    busy: u64,
    idle_ns: u64,
    srtt_us: u64,
    rtt_min_us: u64,
    refused_lately: u32,
    alone: u32,
    busy_now: u32,
    pad: u32,
    allowed: u64,
    train: u64,
    busy_then: u64,
    reaction_ms: u64,
}

/// Mirror of `struct refusal_bench` in `bpf/conformance.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Bench {
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

/// A segment at a gate; now and then with numbers at the edge of what fits.
fn any_step(rng: &mut Rng) -> Step {
    let any = |rng: &mut Rng, below: u64| match rng.below(200) {
        0 => u64::from(u32::MAX),
        1 => 0,
        _ => rng.below(below),
    };
    let before = any(rng, 60_000);
    let below = rng.below(10);
    Step {
        limit: any(rng, 40_000),
        fair: any(rng, 60_000),
        before: if below == 0 { before % 200 } else { before },
        after: before + 52 + rng.below(60_000),
        rate: any(rng, 20_000_000),
        busy: rng.below(BUSY_FULL + 1),
        idle_ns: any(rng, 2_000_000_000),
        srtt_us: any(rng, 4_000_000),
        rtt_min_us: any(rng, 300_000),
        refused_lately: rng.below(3) as u32 / 2,
        alone: rng.below(8) as u32 / 7,
        busy_now: rng.below(2) as u32,
        ..Step::default()
    }
}

#[test]
fn every_segment_of_any_flow_finds_the_same_gate_in_the_kernel() {
    let Some(mut kernel) = streams::Bench::load("run_refusal", "refusal_stream", "refusal_bench")
    else {
        return;
    };
    let mut rng = Rng::new(1, "conformance of refusals");
    let (mut kinds, mut trains) = (std::collections::BTreeMap::new(), 0);
    for case in 0..40 {
        let mut steps: Vec<Step> = (0..STREAM).map(|_| any_step(&mut rng)).collect();
        let bench = Bench { steps: STREAM as u32, done: 0 };
        kernel.run(bench, &mut steps, |bench| bench.done);
        for (n, step) in steps.iter().enumerate() {
            let segment = Segment {
                before: step.before,
                after: step.after,
                refused_lately: step.refused_lately == 1,
                alone: step.alone == 1,
            };
            let reaction = reaction_ms(step.srtt_us);
            let expected = (
                allowed(step.limit, step.fair, segment),
                train(step.busy, step.rate, longer_us(reaction, step.rtt_min_us)),
                busy(step.busy, step.busy_now == 1, step.idle_ns),
                reaction,
            );
            let found = (step.allowed, step.train, step.busy_then, step.reaction_ms);
            assert_eq!(found, expected, "case {case}, step {n}: {step:?}");
            // One and a half, two or four limits, or one packet's.
            *kinds.entry((2 * step.allowed).checked_div(step.limit)).or_insert(0) += 1;
            trains += u32::from(step.train > 0);
        }
    }
    for limits in [3, 4, 8] {
        assert!(
            kinds.get(&Some(limits)).is_some_and(|count| *count > 1_000),
            "{limits}: {kinds:?}"
        );
    }
    assert!(trains > 10_000, "{trains}");
}
