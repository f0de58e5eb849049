//! Which packets the gate refuses, one by one, in the kernel (BPF_PROG_TEST_RUN): reports and
//! packets by hand.
//!
//! Needs root and BPF; elsewhere the test says so and ends.

use agent::cures::gate;
use agent::cures::now_ns;
use agent::kernel::layouts::{GateConfig, GateView};
use aya::maps::Array;
use aya::programs::SchedClassifier;
use aya::{Ebpf, TestRun, TestRunOptions};

mod skip;

/// The program's verdicts: TC_ACT_UNSPEC and TC_ACT_SHOT.
const PASS: u32 = u32::MAX;
const REFUSE: u32 = 2;
/// 2 Mbit/s, and what drains in 20 ms.
const RATE: u64 = 250_000;
const LIMIT: u64 = 5_000;

/// The programs, and when the last report was written.
struct Gate(Ebpf, std::cell::Cell<u64>);

impl Gate {
    /// With a lease of so many seconds, negative: over.
    fn new(lease_s: i64) -> Option<Gate> {
        let mut ebpf = skip::or_skip(gate::load())?;
        let config = GateConfig {
            target_ns: 20_000_000,
            floor: 1_500,
            timeout_ns: 1_000_000_000,
            hold: 1,
            lease_until_ns: now_ns().saturating_add_signed(lease_s * 1_000_000_000),
            link_header: 14,
            ..GateConfig::default()
        };
        Array::try_from(ebpf.map_mut("config").unwrap()).unwrap().set(0, config, 0).unwrap();
        Some(Gate(ebpf, std::cell::Cell::new(0)))
    }

    fn run(&self, program: &str, packet: &[u8]) -> u32 {
        let program: &SchedClassifier = self.0.program(program).unwrap().try_into().unwrap();
        let options = TestRunOptions { data_in: Some(packet), ..TestRunOptions::default() };
        program.test_run(options).unwrap().return_value
    }

    /// A report of now, of a link at [`RATE`] for the last `span_ns`.
    fn report(&self, at_ns: u64, occupancy: u64, span_ns: u64) {
        let mut packet = [0; 48];
        let fields = [at_ns, occupancy, RATE * span_ns / 1_000_000_000, 0];
        for (place, field) in packet[16..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        assert_eq!(self.run("report", &packet), 0);
    }

    /// The rate is known, and the buffer holds so much now.
    fn holding(&self, occupancy: u64) {
        let now = now_ns();
        let begun = self.1.replace(now);
        if begun == 0 {
            for step in (1..=20).rev() {
                self.report(now - step * 20_000_000, occupancy, 20_000_000);
            }
        }
        self.report(now, occupancy, if begun == 0 { 20_000_000 } else { now - begun });
    }

    fn view(&self) -> GateView {
        Array::<_, GateView>::try_from(self.0.map("view").unwrap()).unwrap().get(&0, 0).unwrap()
    }
}

/// An Ethernet frame with IPv4 and TCP or UDP from a port, with so many bytes behind that header.
fn packet(tcp: bool, port: u16, payload: usize) -> Vec<u8> {
    let header = if tcp { 20 } else { 8 };
    let total = (20 + header + payload) as u16;
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([0x45, 0]);
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, if tcp { 6 } else { 17 }, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(port.to_be_bytes());
    bytes.extend(5_201_u16.to_be_bytes());
    if tcp {
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    } else {
        bytes.extend([0; 4]);
    }
    bytes.resize(bytes.len() + payload, 0);
    bytes
}

#[test]
fn without_reports_or_after_the_lease_everything_passes() {
    let Some(gate) = Gate::new(10) else { return };
    assert!((0..100).all(|_| gate.run("egress", &packet(false, 1, 1_400)) == PASS), "no report");
    let Some(gate) = Gate::new(-1) else { return };
    gate.holding(1_000_000);
    assert!((0..100).all(|_| gate.run("egress", &packet(false, 1, 1_400)) == PASS), "no lease");
}

#[test]
fn the_limit_is_what_drains_within_the_target() {
    let Some(gate) = Gate::new(10) else { return };
    gate.holding(3_000);
    let view = gate.view();
    assert_eq!((view.rate, view.limit, view.reported), (RATE, LIMIT, 3_000));
    assert_eq!(view.reports, 21);
}

#[test]
fn the_fat_are_refused_first_then_the_thin_and_the_sparse_and_bare_acknowledgements_last() {
    let Some(gate) = Gate::new(10) else { return };
    gate.holding(0);
    // A flow that has had all of the link lately.
    for _ in 0..40 {
        gate.holding(0);
        assert_eq!(gate.run("egress", &packet(false, 7, 1_400)), PASS);
    }
    let tried = |occupancy: u64, packet: &[u8]| {
        gate.holding(occupancy);
        gate.run("egress", packet)
    };
    let fat = packet(false, 7, 1_400);
    let (name, ping_like) = (packet(false, 53, 40), packet(false, 9_000, 80));
    let bare = packet(true, 443, 0);
    assert_eq!(tried(3 * LIMIT, &fat), REFUSE);
    assert_eq!(tried(3 * LIMIT, &name), PASS);
    assert_eq!(tried(3 * LIMIT, &ping_like), PASS);
    assert_eq!(tried(3 * LIMIT, &bare), PASS);
    // At some occupancy every packet is refused.
    for one in [&fat, &name, &ping_like, &bare] {
        assert_eq!(tried(9 * LIMIT, one), REFUSE);
    }
}

#[test]
fn a_flood_over_many_ports_is_no_crowd_of_sparse_flows() {
    let Some(gate) = Gate::new(10) else { return };
    gate.holding(0);
    let mut passed = 0;
    // Four seconds' worth of the link within moments.
    for port in 0..1_000 {
        gate.holding(0);
        passed += usize::from(gate.run("egress", &packet(false, port, 1_000)) == PASS);
    }
    assert!(passed > 100, "the link is used: {passed}");
    gate.holding(3 * LIMIT);
    let refused = (2_000..2_100)
        .filter(|port| gate.run("egress", &packet(false, *port, 1_000)) == REFUSE)
        .count();
    assert!(refused >= 90, "{refused} of 100 newcomers of a flood are refused above the limit");
}
