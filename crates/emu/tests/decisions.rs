//! What a direction decides depends on arrivals alone: not on when it is asked, not on who asks,
//! simulator or emulator; and its log is enough to decide the same again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use algo::port::{Outcome, QueueRow};
use algo::{Packet, aqm, gate, link};
use emu::headers::view;
use emu::link_direction::{LinkDirection, Sink};
use emu::log::{Record, Writer, record_of};
use emu::replay::{ReplayError, Replayed, replay};
use proptest::prelude::*;
use scenario::{Document, Scenario, TraceText};
use sim::{Captures, Options};
use units::Instant;

/// Midnight of 2020-01-01 (UTC): the simulator's captures begin there.
const EPOCH_NS: u64 = 1_577_836_800_000_000_000;

fn resolved(text: &str) -> Scenario {
    // Twelve opportunities in 30 ms, repeated: 4.8 Mbit/s.
    let trace = "1\n3\n3\n4\n9\n10\n14\n20\n20\n21\n29\n30\n";
    let read = |_: &str| Ok(TraceText(Arc::from(trace)));
    let document = Document::parse(text).expect("a scenario");
    document.scenario::<&str, &str>(&[], 7, &read).expect("resolved").0
}

fn names<T, S>(table: &[algo::Entry<T, S>]) -> impl Iterator<Item = &'static str> {
    table.iter().map(|entry| entry.name)
}

/// Every medium with something to send at, every layer, every queue, every gate that needs no
/// probes (theirs come over the way back, which a direction alone does not have), and sizes that
/// change in mid-run.
fn scenarios() -> Vec<(String, Scenario)> {
    let base = |medium: &str, queue: &str, layer: &str, device: &str| {
        format!(
            "name = \"any\"\nduration = \"3 s\"\nseed = 7\n[link.up]\n{medium}\ndelay = \"10 ms\"\n{queue}\n{layer}\n\
             [link.down]\nrate = \"20 Mbit/s\"\ndelay = \"10 ms\"\n{device}\n\
             [[change]]\nat = \"1.5 s\"\n\"link.up.delay\" = \"5 ms\"\n\
             [[flow]]\nfrom = \"client\"\n[[flow]]\nfrom = \"server\"\n\
             [[probe]]\nkind = \"isochronous\"\nevery = \"7 ms\"\n"
        )
    };
    let fixed = "rate = \"5 Mbit/s\"";
    let mut found = Vec::new();
    for name in names(aqm::TABLE) {
        let queue = match name {
            "cake" => "queue = { kind = \"cake\", rate = \"4 Mbit/s\" }".to_owned(),
            _ => format!("queue = {{ kind = \"{name}\" }}"),
        };
        found.push((name.to_owned(), base(fixed, &queue, "", "")));
    }
    for name in names(link::TABLE) {
        let medium = match name {
            "fixed" => continue,
            "trace" => "trace = \"made.up\"".to_owned(),
            // The trace's text is no list of rates.
            "rates" => {
                "rate = { profile = [2, 8, 0, 5], unit = \"Mbit/s\", slot = \"300 ms\" }".to_owned()
            }
            _ => format!("medium = {{ kind = \"{name}\" }}"),
        };
        found.push((name.to_owned(), base(&medium, "", "", "")));
    }
    for name in names(link::layer::TABLE) {
        found.push((
            name.to_owned(),
            base(fixed, "", &format!("layers = [{{ kind = \"{name}\" }}]"), ""),
        ));
    }
    for name in names(gate::TABLE).filter(|name| *name != "autorate") {
        let device = format!(
            "[device]\ngate = {{ kind = \"{name}\" }}\nfirmware = {{ buffer = \"60 KB\" }}"
        );
        found.push((format!("gate {name}"), base("medium = \"grants\"", "", "", &device)));
    }
    let change = |at: &str, what: &str| format!("[[change]]\nat = \"{at}\"\n{what}\n");
    for per in ["link", "user"] {
        let queue =
            format!("queue = {{ kind = \"droptail\", limit = \"60 KB\" }}\nqueue_per = \"{per}\"");
        let sizes = change("900 ms", "\"link.up.queue.limit\" = \"9 KB\"")
            + &change("2 s", "\"link.up.queue.limit\" = \"70 packets\"");
        found.push((format!("limits per {per}"), base(fixed, &queue, "", &sizes)));
    }
    let device = "[device]\nfirmware = { buffer = \"60 KB\", wake = \"6 KB\" }\n".to_owned()
        + &change("900 ms", "\"device.firmware.buffer\" = \"9 KB\"")
        + &change("2 s", "\"device.firmware.buffer\" = \"40 KB\"");
    found.push(("firmware buffers".to_owned(), base("medium = \"grants\"", "", "", &device)));
    found.into_iter().map(|(name, text)| (name, resolved(&text))).collect()
}

/// What a direction decided, and its log.
struct Recorded {
    decisions: Vec<(Instant, Record)>,
    log: Writer,
    numbers: Vec<u64>,
}

impl Sink for Recorded {
    fn decided(&mut self, now: Instant, outcome: &Outcome) {
        if let Some(record) = record_of(outcome, |handle| self.numbers[handle as usize]) {
            self.decisions.push((now, record));
            self.log.put(now, &record);
        }
    }
    fn bin(&mut self, _row: QueueRow) {}
}

/// Runs a direction over arrivals; before each one and at the end `wake` may have it advance at times of
/// its own.
fn drive(
    scenario: &Scenario,
    link: usize,
    arrivals: &[(Instant, Packet)],
    mut wake: impl FnMut(&mut LinkDirection, Instant, &mut Recorded),
) -> Recorded {
    let mut direction = LinkDirection::new(scenario, link);
    let mut recorded =
        Recorded { decisions: Vec::new(), log: Writer::new(link as u16), numbers: Vec::new() };
    for (at, packet) in arrivals {
        wake(&mut direction, *at, &mut recorded);
        direction.advance(*at, &mut recorded);
        recorded.log.put(direction.now(), &Record::Arrived(*packet));
        let handle = recorded.numbers.len() as u32;
        recorded.numbers.push(u64::from(handle));
        direction.arrive(*at, Packet { handle, ..*packet }, &mut recorded);
    }
    let end = Instant(scenario.duration.0);
    wake(&mut direction, end, &mut recorded);
    direction.advance(end, &mut recorded);
    recorded.log.put(direction.now(), &Record::Stopped);
    recorded
}

fn asked_in_time(direction: &mut LinkDirection, until: Instant, recorded: &mut Recorded) {
    while let Some(at) = direction.next_due()
        && at < until
    {
        direction.advance(at, recorded);
        while direction.depart(at).is_some() {}
    }
}

fn arrivals() -> impl Strategy<Value = Vec<(Instant, Packet)>> {
    let one = (0..8_000_000_u64, 40..1_500_u32, 0..5_u32, 0..3_u8);
    prop::collection::vec(one, 1..600).prop_map(|all| {
        let mut at = Instant::ZERO;
        let packet = |(gap, bytes, flow, class): (u64, u32, u32, u8)| {
            at = Instant(at.0 + gap);
            let packet = Packet {
                bytes,
                flow_hash: flow,
                host: (flow % 2) as u16,
                class,
                ..Packet::default()
            };
            (at, packet)
        };
        all.into_iter().map(packet).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_caller_that_is_late_gets_the_same_decisions_and_so_does_a_replay(arrivals in arrivals()) {
        for (name, scenario) in scenarios() {
            let end = Instant(scenario.duration.0);
            let arrivals: Vec<_> = arrivals.iter().copied().filter(|(at, _)| *at < end).collect();
            let mut in_time = drive(&scenario, 0, &arrivals, asked_in_time);
            let late = drive(&scenario, 0, &arrivals, |_, _, _| {});
            prop_assert_eq!(&in_time.decisions, &late.decisions, "{}", name);
            let log = in_time.log.swap(Vec::new());
            let again = replay(&scenario, &log);
            let expected = Replayed {
                arrivals: arrivals.len() as u64,
                decisions: in_time.decisions.len() as u64,
            };
            prop_assert!(matches!(&again, Ok(found) if *found == expected), "{}: {:?}", name, again);
        }
    }
}

#[test]
fn a_replay_shows_where_a_decision_differs() {
    let (_, scenario) = scenarios().swap_remove(0);
    let packet = Packet { bytes: 1_500, ..Packet::default() };
    let arrivals: Vec<_> = (0..50).map(|n| (Instant(n * 1_000_000), packet)).collect();
    let mut recorded = drive(&scenario, 0, &arrivals, asked_in_time);
    let log = recorded.log.swap(Vec::new());
    let mut slower = scenario.clone();
    slower.links[0] = resolved(
        "name = \"any\"\n[link.up]\nrate = \"4 Mbit/s\"\ndelay = \"10 ms\"\n[link.down]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n[[flow]]\nfrom = \"client\"",
    )
    .links
    .swap_remove(0);
    assert!(matches!(replay(&slower, &log), Err(ReplayError::Differs { count: 0, .. })));
    assert!(matches!(replay(&scenario, &log[..log.len() - 5]), Ok(_) | Err(ReplayError::Log(_))));
    assert!(replay(&scenario, &log[1..]).is_err());
}

/// Packets of a simulated capture that one node sent to the other, with the run's time.
fn sent_by(path: &Path, node: u8) -> Vec<(Instant, Vec<u8>)> {
    let mut reader = capture::open(path).expect("the simulator's own file");
    let mut found = Vec::new();
    while let Some(frame) = reader.next_frame().expect("whole") {
        if frame.data[12..16] == [10, 0, 0, node] {
            found.push((Instant(frame.time.0 - EPOCH_NS), frame.data.to_vec()));
        }
    }
    found
}

#[test]
fn the_emulator_decides_as_the_simulator_does() {
    let dir = std::env::temp_dir().join(format!("unbloat-parity-{}", std::process::id()));
    let compared = Cell::new(0);
    for (name, scenario) in scenarios() {
        let captures = Captures::create(&scenario, &dir).expect("a directory of our own");
        let (results, files) =
            sim::run_with_captures(&scenario, Options::default(), captures, &mut |_| true)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        let (sent, seen) = (sent_by(&files[0], 1), sent_by(&files[1], 1));
        let packets: Vec<_> = sent
            .iter()
            .map(|(at, bytes)| {
                let view = view(bytes);
                let length = u32::from(u16::from_be_bytes([bytes[2], bytes[3]]));
                let host = scenario.user(0, 1) as u16;
                let flow_hash = view.hash();
                (
                    *at,
                    Packet {
                        bytes: length,
                        flow_hash,
                        host,
                        class: 1,
                        ecn: view.ecn,
                        ..Packet::default()
                    },
                )
            })
            .collect();
        let mut arrived = VecDeque::new();
        drive(&scenario, 0, &packets, |direction, until, recorded| {
            while let Some(at) = direction.next_due()
                && at <= until
            {
                direction.advance(at, recorded);
                while let Some((at, handle)) = direction.depart(at) {
                    arrived.push_back((at, handle));
                }
            }
        });
        let end = Instant(scenario.duration.0);
        let ours: Vec<_> = arrived.iter().filter(|(at, _)| *at <= end).map(|(at, _)| *at).collect();
        let theirs: Vec<_> = seen.iter().map(|(at, _)| *at).collect();
        let differ = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        assert_eq!(differ, None, "{name}: of {} and {} packets", ours.len(), theirs.len());
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let drops = results.stages[0].overflowed
            + results.stages[0].dropped_by_aqm
            + results.stages[0].lost_on_link;
        compared.set(compared.get() + ours.len() as u64 + drops);
    }
    std::fs::remove_dir_all(&dir).expect("ours");
    assert!(compared.get() > 10_000, "{}", compared.get());
}
