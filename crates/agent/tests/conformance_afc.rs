//! AFC's rate term asks in the kernel for the buffer that the Rust side asks for, to the byte, from
//! the same ACKs.
//!
//! Needs root and BPF; elsewhere the test says so and ends.

use agent::kernel::layouts::DrwaSample;
use algo::Rng;
use algo::rwnd::afc::backed::{AckSample, Backed};
use streams::STREAM;
use units::{Bytes, Duration, Instant};

mod streams;

/// Mirror of `struct backed_step` in `bpf/conformance.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    now_ns: u64,
    rtt_us: u64,
    sample: DrwaSample,
    rate: u64,
    buffer: u64,
}

/// `struct backed_bench`; the state from zeroes on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Bench {
    own: u64,
    rtt_min_us: u64,
    steps: u32,
    done: u32,
    state: [u64; 9],
}

#[allow(unsafe_code)]
mod pod {
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Step {}
    // SAFETY: integers only, without padding.
    unsafe impl aya::Pod for super::Bench {}
}

/// A connection: bursts, pauses of sender and reader, windows that close, clocks that stand.
fn any_stream(rng: &mut Rng) -> Vec<Step> {
    let mut now = rng.below(1 << 45);
    let (mut received, mut copied, mut edge) = (0_u64, 0_u64, 65_535_u64);
    let gap = 10_000 + rng.below(30_000_000);
    let buffer = 4_096 + rng.below(1 << 20);
    let mut reads = true;
    let mut rtt_us = 1_000 + rng.below(600_000);
    let mut found = Vec::new();
    for _ in 0..STREAM {
        now += match rng.below(200) {
            0 => rng.below(20_000_000_000),
            1..10 => 0,
            _ => rng.below(2 * gap),
        };
        received += (rng.below(40) * 1_448).min(edge.saturating_sub(received));
        if rng.below(100) == 0 {
            reads = !reads;
        }
        if reads {
            copied = received.min(copied + rng.below(60_000));
        }
        edge = edge.max(copied + buffer);
        rtt_us = (rtt_us + rng.below(4_000)).saturating_sub(rng.below(4_000));
        let sample = DrwaSample { received, copied, right_edge: edge, ..DrwaSample::default() };
        found.push(Step { now_ns: now, rtt_us, sample, ..Step::default() });
    }
    found
}

#[test]
fn every_buffer_of_any_stream_is_the_same_in_the_kernel() {
    let Some(mut kernel) = streams::Bench::load("run_backed", "backed_stream", "backed_bench")
    else {
        return;
    };
    let mut rng = Rng::new(1, "conformance afc");
    let mut buffers = std::collections::BTreeSet::new();
    for case in 0..60 {
        let (own, rtt_min_us) = (rng.below(1 << 21), rng.below(2_000_000));
        let mut steps = any_stream(&mut rng);
        let bench = Bench { own, rtt_min_us, steps: steps.len() as u32, ..Bench::default() };
        kernel.run(bench, &mut steps, |bench| bench.done);
        let mut ours = Backed::default();
        for (i, step) in steps.iter().enumerate() {
            let DrwaSample { received, copied, right_edge, .. } = step.sample;
            let (received, copied, right_edge) =
                (Bytes(received), Bytes(copied), Bytes(right_edge));
            let rtt = Duration::from_micros(step.rtt_us);
            ours.on_ack(Instant(step.now_ns), &AckSample { received, copied, right_edge, rtt });
            let buffer = ours.buffer(Bytes(own), Duration::from_micros(rtt_min_us)).0;
            assert_eq!((ours.rate(), buffer), (step.rate, step.buffer), "case {case}, ACK {i}");
            buffers.insert(buffer);
        }
    }
    assert!(buffers.len() > 400, "the streams make the law move: {}", buffers.len());
}
