//! Queues and firmware buffers that change their size in mid-run: delays by a calculation by hand.
//!
//! Packets of 1,500 bytes arrive each millisecond at a link on which each lasts 2 ms (6 Mbit/s). So a
//! full queue of 60 KB has 40 packets and 80 ms, one of 24 KB has 16 packets and 32 ms.

mod made;

use algo::{Capacity, Value};
use made::{RECEIVER, SENDER, ms};
use scenario::{
    Algorithm, Change, Changed, Device, Firmware, Probe, ProbeKind, QueuePer, Scenario,
};
use units::{Bytes, Duration};

const LARGE: u64 = 60_000;
const SMALL: u64 = 24_000;
/// When the size changes, in ms.
const CHANGED_AT: u64 = 5_000;
/// Propagation, and how long a packet lasts on the link.
const DELAY_MS: f64 = 10.0;
const PACKET_MS: f64 = 2.0;

fn bytes(limit: u64) -> Capacity {
    Capacity::Bytes(Bytes(limit))
}

fn droptail(limit: u64) -> Algorithm {
    made::algorithm!(algo::aqm, "droptail", "limit" = Value::Capacity(bytes(limit)))
}

/// Twice as many packets as the link carries, for 10 s.
fn overload(what: Option<Changed>) -> Scenario {
    let mut s = made::path(6.0, ms(20), 1_000, 10);
    s.flows.clear();
    s.probes.push(Probe {
        name: "load".into(),
        kind: ProbeKind::Isochronous,
        from: SENDER,
        to: RECEIVER,
        start: ms(0),
        every: vec![ms(1)],
        bytes: Bytes(1_500),
        class: 1,
        ttl: None,
    });
    s.changes.extend(what.map(|what| Change { at: ms(CHANGED_AT), what: vec![what] }));
    s
}

/// With a droptail queue of so many bytes at first.
fn queued(first: u64, then: Option<u64>, per: QueuePer) -> Scenario {
    let mut s = overload(then.map(|limit| Changed::QueueLimit(0, bytes(limit))));
    s.links[0].queue = droptail(first);
    s.links[0].queue_per = per;
    s
}

/// Of each packet: when it was sent, and how long it waited in the queue; `None`: it was lost.
fn waits(s: &Scenario) -> Vec<(Duration, Option<f64>)> {
    let rows = made::run(s).probes;
    let wait = |owd: Duration| owd.as_secs_f64() * 1e3 - DELAY_MS - PACKET_MS;
    rows.iter().map(|row| (Duration(row.t.0), row.owd.map(wait))).collect()
}

/// The longest wait of what was sent in this time, ms.
fn longest(waits: &[(Duration, Option<f64>)], from: u64, to: u64) -> f64 {
    let sent = waits.iter().filter(|(at, _)| (ms(from)..ms(to)).contains(at));
    sent.filter_map(|(_, wait)| *wait).fold(0.0, f64::max)
}

fn near(limit: u64, wait: f64) {
    // A packet that arrives while another is on the link waits for a part of that one only.
    let full = limit as f64 * 8.0 / 6_000.0;
    assert!(wait > full - PACKET_MS && wait <= full + 1e-6, "{wait} ms, and {limit} bytes");
}

#[test]
fn the_longest_wait_is_the_limit_at_that_time_divided_by_the_rate() {
    for per in [QueuePer::Link, QueuePer::User] {
        for (first, then) in [(LARGE, SMALL), (SMALL, LARGE)] {
            let waits = waits(&queued(first, Some(then), per));
            near(first, longest(&waits, 1_000, CHANGED_AT));
            near(then, longest(&waits, CHANGED_AT, 9_000));
        }
    }
}

#[test]
fn a_queue_longer_than_its_new_limit_drains_in_full_and_takes_no_packet_meanwhile() {
    let (changed, kept) = (
        waits(&queued(LARGE, Some(SMALL), QueuePer::Link)),
        waits(&queued(LARGE, None, QueuePer::Link)),
    );
    let before = changed.iter().filter(|(at, _)| *at < ms(CHANGED_AT)).count();
    assert_eq!(before, 5_000);
    assert_eq!(changed[..before], kept[..before], "what was sent before waits and arrives as ever");
    // The last of them waits for a queue of the old limit, long after the change.
    let last = changed[..before].iter().rev().find_map(|(_, wait)| *wait);
    near(LARGE, last.expect("half of them arrive"));
    // 24 packets too many leave in 48 ms.
    let first = changed[before..].iter().find(|(_, wait)| wait.is_some()).expect("it goes on");
    assert!((ms(CHANGED_AT + 46)..=ms(CHANGED_AT + 50)).contains(&first.0), "{first:?}");
}

#[test]
fn a_firmware_buffer_keeps_its_packets_and_has_the_delay_of_its_new_size() {
    let device = |size| Device {
        link: 0,
        qdisc: made::droptail(100_000),
        gate: made::algorithm!(algo::gate, "none"),
        firmware: Firmware { buffer: Bytes(size), ..Firmware::default() },
    };
    for (first, then) in [(LARGE, SMALL), (SMALL, LARGE)] {
        let mut s = overload(Some(Changed::FirmwareBuffer(SENDER, Bytes(then))));
        s.nodes[SENDER].device = Some(device(first));
        let results = made::run(&s);
        let longest = |from: u64, to: u64| {
            let rows = results.queues.iter().filter(|row| row.stage == "firmware" && row.link == 0);
            let bins = rows.filter(|row| (ms(from).0..ms(to).0).contains(&row.t.0));
            let most = bins.clone().map(|row| row.bytes).max().expect("bins");
            (bins.map(|row| row.delay_max).max().expect("bins").as_secs_f64() * 1e3, most)
        };
        // All that it has before a packet, and the packet's own time on the air. The last bin before
        // the change ends after it.
        for (size, (delay, most)) in
            [(first, longest(1_000, CHANGED_AT - 100)), (then, longest(CHANGED_AT + 200, 9_000))]
        {
            near(size, delay - PACKET_MS);
            assert!(most <= size, "{most} bytes in {size}");
        }
        let stage = &results.stages[0];
        assert_eq!((stage.overflowed, stage.dropped_by_aqm, stage.lost_on_link), (0, 0, 0));
        // It is never idle: one packet each 2 ms arrives, the change or not.
        let arrived = results.probes.iter().filter(|row| row.owd.is_some()).count();
        assert!((4_990..=5_000).contains(&arrived), "{arrived}");
    }
}
