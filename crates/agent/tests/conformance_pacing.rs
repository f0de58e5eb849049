//! Pacing below the gate in the kernel is what the Rust side decides, to the byte: both run the same
//! packets, reports and estimates, and every share, mean and rate must be the same.
//!
//! Needs root and BPF; elsewhere the test says so and ends.

use algo::Rng;
use algo::gate::FLOWS;
use algo::gate::pacing::Pacer;
use streams::STREAM;
use units::Instant;

mod streams;

/// Mirror of `struct pacing_step` in `bpf/conformance.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    now_ns: u64,
    bytes: u64,
    flow: u32,
    bare: u32,
    rate: u64,
    occupancy: u64,
    full: u64,
    target_ns: u64,
    floor: u64,
    pace: u64,
    part: u64,
    mean: u64,
    deviation: u64,
}

/// Mirror of `struct pacing_bench` in `bpf/conformance.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Bench {
    steps: u32,
    done: u32,
    /// When swept, part, acknowledgments, steadiness, share.
    state: [u64; 9],
    accounts: [u64; FLOWS],
}

#[allow(unsafe_code)]
mod pod {
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Step {}
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Bench {}
}

/// Packets of a few flows or of many, acknowledgments that come and stay away, a rate that is steady or
/// jumps; now and then numbers at the edge of what fits.
fn any_stream(rng: &mut Rng) -> Vec<Step> {
    let mut now_ns = 1 + rng.below(1 << 45);
    let gap = 1 + rng.below(4_000_000);
    let (flows, acks) = (1 + rng.below(400), rng.below(20));
    let (mut rate, jumps, spread) =
        (1 + rng.below(20_000_000), 100 + rng.below(4_000), rng.below(50));
    let (target_ns, floor) = (10_000_000 + rng.below(100_000_000), rng.below(6_000));
    let any = |rng: &mut Rng, below: u64| match rng.below(2_000) {
        0 => u64::from(u32::MAX),
        _ => rng.below(below),
    };
    let one = |_| {
        now_ns += match rng.below(300) {
            0 => rng.below(4_000_000_000),
            1..40 => 0,
            _ => rng.below(2 * gap),
        };
        if rng.below(jumps) == 0 {
            rate = any(rng, 20_000_000);
        }
        let near = rate.saturating_sub(rate / 100 * rng.below(spread + 1));
        let bare = rng.below(20) < acks;
        let report = rng.below(4) == 0;
        let size = if bare { 52 } else { 1 + any(rng, 60_000) };
        Step {
            now_ns,
            bytes: if report { 0 } else { size },
            flow: rng.below(flows) as u32,
            bare: (bare && !report).into(),
            rate: near.min(u32::MAX.into()),
            occupancy: any(rng, 200_000),
            full: any(rng, 200_000),
            target_ns,
            floor,
            ..Step::default()
        }
    };
    (0..STREAM).map(one).collect()
}

#[test]
fn every_rate_of_any_stream_is_the_same_in_the_kernel() {
    let Some(mut kernel) = streams::Bench::load("run_pacing", "pacing_stream", "pacing_bench")
    else {
        return;
    };
    let mut rng = Rng::new(1, "conformance of pacing");
    let (mut paced, mut unpaced, mut parts) = (0, 0, std::collections::BTreeSet::new());
    for case in 0..40 {
        let mut steps = any_stream(&mut rng);
        let bench = Bench { steps: STREAM as u32, done: 0, state: [0; 9], accounts: [0; FLOWS] };
        kernel.run(bench, &mut steps, |bench| bench.done);
        let mut pacer = Pacer::default();
        for (n, step) in steps.iter().enumerate() {
            let now = Instant(step.now_ns);
            match step.bytes {
                0 => pacer.on_report(now, step.rate),
                bytes => pacer.on_passed(now, step.flow, bytes, step.bare == 1),
            }
            pacer.decide(now, step.rate, step.occupancy, step.full, step.target_ns, step.floor);
            let expected = (pacer.pace().unwrap_or(0), pacer.part(), pacer.steadiness());
            let found = (step.pace, step.part, (step.mean, step.deviation));
            let expected = (expected.0, expected.1, (expected.2.mean, expected.2.deviation));
            assert_eq!(found, expected, "case {case}, step {n}: {step:?}");
            paced += u32::from(step.pace > 0);
            unpaced += u32::from(step.pace == 0);
            parts.insert(step.part);
        }
    }
    assert!(paced > 10_000 && unpaced > 10_000 && parts.len() > 1_000, "{paced} {unpaced}");
}
