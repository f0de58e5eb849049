//! The sending host's own queue, and what probes measure.

use algo::Value;
use scenario::{Device, Firmware, Probe, ProbeKind};
use units::Bytes;

use crate::made::{self, MSS, SENDER, THERE, ms};

#[test]
fn small_queues_hold_a_flow_to_their_limit_and_never_burst_beyond() {
    // TSQ (Linux tcp_small_queue_check): what waits in the host's own queue counts against the
    // flow.
    for limit in [20_000, 128 << 10] {
        let mut s = made::path(10.0, ms(40), 1_000, 10);
        s.bin = ms(10);
        s.flows[0].sender.tsq = Some(Bytes(limit));
        s.nodes[SENDER].device = Some(Device {
            link: THERE,
            qdisc: made::droptail(1_000),
            gate: made::algorithm!(algo::gate, "none"),
            firmware: Firmware { buffer: Bytes(30_000), ..Firmware::default() },
        });
        let results = made::run(&s);
        let most = results.queues.iter().filter(|q| q.stage == "qdisc").map(|q| q.bytes).max();
        let most = most.expect("bins of the queue");
        assert!(most <= limit + 1_500 && most + 3_000 > limit, "{most} of {limit}");
        // As the queue drains, it is filled up again, a packet at a time.
        let sent: Vec<u64> =
            made::series(&results).iter().skip(200).map(|r| r.sent / MSS).collect();
        assert!(sent.iter().all(|n| (6..=11).contains(n)), "{:?}", sent.iter().max());
    }
}

#[test]
fn a_writer_that_waits_for_space_makes_portions_of_a_third_of_its_buffer() {
    // Linux sk_stream_is_writeable. 300 KB at 10 Mbit/s: 100 KB each 83 ms, and the link stays busy.
    let buffer = 300_000;
    let run = |waits_for_space| {
        let mut s = made::path(10.0, ms(40), 1_000, 10);
        s.bin = ms(10);
        s.flows[0].sender.buffer = Bytes(buffer);
        s.flows[0].sender.waits_for_space = waits_for_space;
        let results = made::run(&s);
        made::series(&results).iter().skip(500).map(|r| r.sent).collect::<Vec<u64>>()
    };
    let (flowing, portions) = (run(false), run(true));
    assert!(flowing.iter().all(|sent| (6 * MSS..=11 * MSS).contains(sent)), "{flowing:?}");
    let largest = portions.iter().max().copied().expect("bins");
    assert!((buffer / 3 - 2 * MSS..buffer / 2).contains(&largest), "{largest}");
    let silent = portions.iter().filter(|sent| **sent == 0).count();
    assert!(silent * 2 > portions.len(), "{silent} of {}", portions.len());
    let (all, other): (u64, u64) = (portions.iter().sum(), flowing.iter().sum());
    assert!(all.abs_diff(other) < buffer, "{all} {other}");
}

#[test]
fn without_a_device_there_is_no_queue_of_the_host() {
    let mut s = made::path(10.0, ms(40), 200, 5);
    let without = format!("{:?}", made::run(&s));
    s.flows[0].sender.tsq = Some(Bytes(2_000));
    assert_eq!(format!("{:?}", made::run(&s)), without);
}

#[test]
fn a_probe_is_lost_only_where_it_was_dropped() {
    let mut s = made::path(10.0, ms(400), 200, 3);
    let probe = |kind| Probe {
        name: "probe".into(),
        kind,
        from: 0,
        to: 1,
        start: ms(0),
        every: vec![ms(100)],
        bytes: Bytes(84),
        class: 0,
        ttl: None,
    };
    s.probes = vec![probe(ProbeKind::Ping), probe(ProbeKind::Isochronous)];
    let clean = made::run(&s);
    // Those that are under way at the end have neither an answer nor been lost.
    assert!(clean.probes.iter().any(|p| p.rtt.is_none() && p.owd.is_none()));
    assert!(clean.probes.iter().all(|p| !p.lost));
    s.links[THERE].layers =
        vec![made::algorithm!(algo::link::layer, "loss", "rate" = Value::Number(0.2))];
    let lossy = made::run(&s);
    let lost = lossy.probes.iter().filter(|p| p.lost).count();
    assert!((4..25).contains(&lost), "{lost}");
    assert!(lossy.probes.iter().all(|p| !(p.lost && p.rtt.is_some())));
}
