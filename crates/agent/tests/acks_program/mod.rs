//! The BPF program of ACK-window rewriting in tests: its maps, and a packet through it.

use agent::cures::acks;
use agent::kernel::layouts::DrwaLaw;
use agent::kernel::layouts::acks::{AcksConfig, AcksCounters, Traced};
use algo::rwnd::drwa::Config;
use aya::maps::{Array, PerCpuArray};
use aya::programs::SchedClassifier;
use aya::{Ebpf, TestRun, TestRunOptions};

use crate::skip;

/// As many samples as a test may make.
pub const TRACED: u32 = 8_192;

/// What the programs answer: the next one decides, or the packet passes.
const NEXT: u32 = u32::MAX;

pub fn kernel() -> Option<Ebpf> {
    skip::or_skip(acks::load(64, TRACED))
}

pub fn configure(ebpf: &mut Ebpf, down: &Config, up: &Config) -> AcksConfig {
    let config = AcksConfig {
        down: DrwaLaw::new(down, 0, true),
        up: DrwaLaw::new(up, 0, true),
        lease_until_ns: u64::MAX,
        down_start_bytes: 20_000,
        up_start_bytes: 20_000,
        pause_ns: 60_000_000_000,
        link_bytes: 14,
        floor_segments: down.min_window as u32,
        increment_segments: down.increment as u32,
        directions: 3,
        generation: 1,
        tracing: 1,
        ..AcksConfig::default()
    };
    set(ebpf, config);
    let mut traces: Array<_, u32> = Array::try_from(ebpf.map_mut("traces").unwrap()).unwrap();
    traces.set(0, 0, 0).unwrap();
    config
}

pub fn set(ebpf: &mut Ebpf, config: AcksConfig) {
    let mut place: Array<_, AcksConfig> = Array::try_from(ebpf.map_mut("config").unwrap()).unwrap();
    place.set(0, config, 0).unwrap();
}

pub fn traced(ebpf: &Ebpf) -> Vec<Traced> {
    let count: Array<_, u32> = Array::try_from(ebpf.map("traces").unwrap()).unwrap();
    let trace: Array<_, Traced> = Array::try_from(ebpf.map("trace").unwrap()).unwrap();
    (0..count.get(&0, 0).unwrap()).map(|i| trace.get(&i, 0).unwrap()).collect()
}

/// The kernel's time of the last packet.
pub fn handled_ns(ebpf: &Ebpf) -> u64 {
    let at: Array<_, u64> = Array::try_from(ebpf.map("traced_at").unwrap()).unwrap();
    at.get(&0, 0).unwrap()
}

pub fn counters(ebpf: &Ebpf) -> u64 {
    let counters: PerCpuArray<_, AcksCounters> =
        PerCpuArray::try_from(ebpf.map("counters").unwrap()).unwrap();
    counters.get(&0, 0).unwrap().iter().map(|c| c.rewritten).sum()
}

/// Through the program; what came out. None where the kernel itself refuses to make a packet of it.
pub fn through(ebpf: &mut Ebpf, out: bool, packet: &[u8]) -> Option<Vec<u8>> {
    let name = if out { "acks_out" } else { "acks_in" };
    let program: &mut SchedClassifier = ebpf.program_mut(name).unwrap().try_into().unwrap();
    let mut after = vec![0; packet.len() + 64];
    let options = TestRunOptions {
        data_in: Some(packet),
        data_out: Some(&mut after),
        ..TestRunOptions::default()
    };
    let result = program.test_run(options).ok()?;
    assert_eq!(result.return_value, NEXT);
    after.truncate(result.data_size_out as usize);
    Some(after)
}
