//! Whatever happens in whatever order: no panic, open means what the limit says, and a closed gate opens again once the
//! device has drained.

use algo::Settings;
use algo::gate::{AnyGate, Event, Gate, Limit, Setup, TABLE};
use proptest::prelude::*;
use units::{Bytes, Duration, Instant};

/// An operation, with numbers that mean what the operation makes of them.
#[derive(Clone, Debug)]
enum Op {
    Pass(u64),
    Complete(u64),
    Report { age: u64, occupancy: u64, granted: u64, padding: u64 },
    Probe { delay: u64, moved: u64, span: u64 },
    Wait(u64),
    Jump,
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1..3_000_u64, 4 => 0..300_000_u64, 1 => Just(u64::MAX), 1 => Just(0)]
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..200_000_000_u64, 1 => Just(0), 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        // No packet is longer than the length field of its header can say.
        6 => (0..65_536_u64).prop_map(Op::Pass),
        4 => size().prop_map(Op::Complete),
        4 => (span(), size(), size(), size()).prop_map(|(age, occupancy, granted, padding)| Op::Report {
            age,
            occupancy,
            granted,
            padding
        }),
        3 => (span(), size(), span()).prop_map(|(delay, moved, span)| Op::Probe { delay, moved, span }),
        4 => (0..50_000_000_u64).prop_map(Op::Wait),
        1 => Just(Op::Jump),
    ]
}

/// Open, limit, state and wake-up agree.
fn agree(name: &str, gate: &AnyGate, now: Instant) {
    let open = gate.open(now);
    match gate.limit(now) {
        Limit::None => assert!(open, "{name}: closed without a limit"),
        Limit::Bytes(limit) => {
            let below =
                gate.state(now).occupancy.expect("who limits bytes knows how many there are");
            assert_eq!(open, below <= limit, "{name}: {below} below, limit {limit}");
        }
        Limit::Rate(rate) => assert!(rate.0 > 0, "{name}: rate zero"),
    }
    if let Some(at) = gate.next_wakeup(now) {
        assert!(!open, "{name}: open, and yet to be woken");
        assert!(at > now, "{name}: to be woken at {at:?}, now {now:?}");
        assert!(gate.open(at), "{name}: still closed at the time at which it says that it opens");
    }
}

/// The device drains all that it has and says so, in the ways that `completes` and `reports` leave it.
fn drains(name: &str, gate: &mut AnyGate, mut now: Instant, completes: bool, reports: bool) {
    for round in 0..64 {
        if gate.open(now) {
            return;
        }
        // Half of the rounds go on a little, so that events and not time alone have to open it.
        now = match gate.next_wakeup(now) {
            Some(at) if round % 2 == 0 => at,
            _ => now + Duration::from_millis(5),
        };
        if completes {
            gate.on_event(now, &Event::Completed { bytes: Bytes(u64::MAX) });
        }
        if reports {
            let granted = Bytes(1_500);
            let event =
                Event::Report { at: now, occupancy: Bytes::ZERO, granted, padding: Bytes::ZERO };
            gate.on_event(now, &event);
        }
    }
    panic!("{name}: closed for ever: {:?}", gate.state(now));
}

fn play(name: &str, gate: &mut AnyGate, ops: &[Op]) -> Instant {
    let mut now = Instant(1_000_000_000);
    for op in ops {
        match *op {
            Op::Pass(bytes) if gate.open(now) => {
                gate.on_event(now, &Event::Passed { bytes: Bytes(bytes), flow: 0, bare: false })
            }
            Op::Pass(_) => {}
            Op::Complete(bytes) => gate.on_event(now, &Event::Completed { bytes: Bytes(bytes) }),
            Op::Report { age, occupancy, granted, padding } => gate.on_event(
                now,
                &Event::Report {
                    // u64::MAX turns into a report of the future.
                    at: if age == u64::MAX { Instant(u64::MAX) } else { now - Duration(age) },
                    occupancy: Bytes(occupancy),
                    granted: Bytes(granted),
                    padding: Bytes(padding),
                },
            ),
            Op::Probe { delay, moved, span } => gate.on_event(
                now,
                &Event::Probe { delay: Duration(delay), moved: Bytes(moved), span: Duration(span) },
            ),
            Op::Wait(ns) => now = now + Duration(ns),
            Op::Jump => now = gate.next_wakeup(now).filter(|at| at.0 < 1 << 62).unwrap_or(now),
        }
        agree(name, gate, now);
    }
    now
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_gate_keeps_the_contract(
        ops in proptest::collection::vec(op(), 1..200),
        mtu in 1..65_536_u64,
    ) {
        for entry in TABLE {
            let setup = Setup { mtu: Bytes(mtu) };
            let mut gate = entry.default(&setup);
            let now = play(entry.name, &mut gate, &ops);
            drains(entry.name, &mut gate.clone(), now, true, false);
            drains(entry.name, &mut gate, now, true, true);
        }
    }

    #[test]
    fn every_gate_keeps_the_contract_at_the_ends_of_its_parameters(
        ops in proptest::collection::vec(op(), 1..60),
        picks in proptest::collection::vec(0..3_u8, 8),
    ) {
        for entry in TABLE {
            let mut settings = Settings::defaults(entry.params);
            for (param, pick) in entry.params.iter().zip(&picks) {
                if let Some(range) = param.range {
                    let (min, max) = range();
                    match pick {
                        0 => prop_assert!(settings.set(entry.params, param.name, min)),
                        1 => prop_assert!(settings.set(entry.params, param.name, max)),
                        _ => {}
                    }
                }
            }
            let mut gate = (entry.build)(&settings, &Setup::default());
            let now = play(entry.name, &mut gate, &ops);
            drains(entry.name, &mut gate, now, true, true);
        }
    }
}
