//! Totals, series and captures of a run count the same things, and figures of simple runs are those
//! of a calculation by hand.

mod made;

use made::{MSS, RECEIVER, SENDER, ms};
use proptest::prelude::*;
use scenario::{App, Change, Changed, Probe, ProbeKind, Scenario};
use sim::record::{FlowRow, Results};
use units::{Bytes, Duration, Instant, Rate};

/// A full segment on the IP layer: 20 bytes of IP, 20 of TCP, 12 of timestamps.
const PACKET: u64 = MSS + 52;

/// Everything that is counted twice is the same twice.
fn agrees(s: &Scenario, results: &Results) {
    for flow in &results.flows {
        let rows: Vec<_> = results.samples.iter().filter(|row| row.flow == flow.id).collect();
        let sum =
            |of: fn(&sim::record::SampleRow) -> u64| rows.iter().map(|row| of(row)).sum::<u64>();
        assert_eq!(sum(|row| row.sent), flow.payload_bytes, "sent by flow {}", flow.id);
        assert_eq!(sum(|row| row.delivered), flow.bytes, "delivered to flow {}", flow.id);
        assert_eq!(sum(|row| row.retransmissions), flow.retransmissions);
        assert_eq!(sum(|row| row.window_full.0), flow.window_full.0);
        assert!(flow.payload_bytes >= flow.bytes);
        let lost =
            |row: &&sim::record::EventRow| row.flow == flow.id && row.kind.starts_with("drop");
        assert_eq!(results.events.iter().filter(lost).count() as u64, flow.lost_packets);
        for pair in rows.windows(2) {
            assert_eq!(pair[0].t + pair[0].span, pair[1].t, "bins without gaps");
        }
        for row in &rows {
            assert!(row.window_full <= row.span && row.t.0 + row.span.0 <= s.duration.0);
        }
        if let Some(shares) = flow.shares {
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
    let delivered: u64 = results.flows.iter().map(|flow| flow.bytes).sum();
    assert_eq!(results.delivered, Bytes(delivered));
    // Each packet passes one link here.
    let stages = || results.stages.iter().filter(|row| row.stage == "queue");
    let c = &results.conservation;
    assert_eq!(stages().map(|row| row.packets).sum::<u64>(), c.sent);
    assert_eq!(stages().map(|row| row.overflowed + row.dropped_by_aqm).sum::<u64>(), c.dropped);
    assert_eq!(stages().map(|row| row.lost_on_link).sum::<u64>(), c.lost);
    let received: u64 = results.connections.iter().map(|row| row.packets).sum();
    assert_eq!(received, c.delivered, "there is only TCP");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn totals_are_the_sums_of_the_series(
        mbit in 1.0..30.0_f64, rtt in 2..200_u64, queue in 3..200_u64, bin in 30..700_u64,
        loss in 0..3_u64, segments in prop::option::of(1..800_u64), reads in any::<bool>(),
        millis in 1_000..3_500_u64, both in any::<bool>(),
    ) {
        let mut s = made::path(mbit, ms(rtt), queue, 1);
        (s.duration, s.bin) = (ms(millis), ms(bin));
        if loss > 0 {
            s.links[0].layers = vec![
                made::algorithm!(algo::link::layer, "loss", "rate" = algo::Value::Number(loss as f64 / 100.0))
            ];
        }
        if let Some(segments) = segments {
            s.flows[0].app = made::file(segments);
        }
        if reads {
            let rates = vec![Rate((mbit * 4e5) as u64), Rate(0)];
            s.flows[0].receiver.read = scenario::Read::Profile { rates, slot: ms(300), tick: ms(10) };
            s.flows[0].receiver.window = made::fixed(100_000);
        }
        if both {
            s.flows.push(made::transfer(RECEIVER, SENDER, "cubic"));
        }
        agrees(&s, &made::run(&s));
    }
}

/// The last FIN again, on the way when its answer was: both sides are closed, and the answer to it is in a bin of its own.
#[test]
fn what_comes_after_the_end_of_a_connection_leaves_no_gap_between_its_bins() {
    for rtt in (60..160).step_by(2) {
        let mut s = made::path(21.4, ms(rtt), 20, 3);
        s.bin = ms(33);
        s.flows[0].app = made::file(105);
        let rates = vec![Rate(8_560_000), Rate(0)];
        s.flows[0].receiver.read = scenario::Read::Profile { rates, slot: ms(300), tick: ms(10) };
        s.flows[0].receiver.window = made::fixed(100_000);
        agrees(&s, &made::run(&s));
    }
}

/// A file over a path on which a full packet takes 1 ms, 20 ms each way.
fn one_file(segments: u64) -> Scenario {
    let mut s = made::path(12.0, ms(40), 1_000, 4);
    s.flows[0].app = made::file(segments);
    s.flows[0].sender.initial_window = 100;
    s
}

#[test]
fn a_file_in_one_flight_has_the_figures_of_a_calculation_by_hand() {
    // 40 segments fit the 65,535 bytes that the window of a SYN can advertise (RFC 7323).
    let results = made::run(&one_file(40));
    let flow = made::data(&results);
    assert_eq!(flow.bytes, 40 * MSS);
    assert_eq!((flow.payload_bytes, flow.data_packets, flow.retransmissions), (40 * MSS, 40, 0));
    // The ACK of the handshake, 52 bytes, goes first; then 40 packets of 1 ms, and the delay.
    let active = Duration(52 * 8 * 1_000 / 12 + 60_000_000);
    assert_eq!(flow.active, active);
    let goodput = flow.goodput.unwrap().bps() as f64;
    let by_hand = 40.0 * MSS as f64 * 8.0 / active.as_secs_f64();
    assert!((goodput / by_hand - 1.0).abs() < 1e-6, "{goodput}");
    // The n-th packet waits for the n before it: 0 to 39 ms.
    let queue = flow.queue_ms.unwrap();
    assert!(queue.min < 0.1 && (queue.max / 39.0 - 1.0).abs() < 0.01, "{queue:?}");
    assert!((queue.p50 / 19.5 - 1.0).abs() < 0.04, "{queue:?}");
    let stage = &results.stages[0];
    assert_eq!((stage.overflowed, stage.dropped_by_aqm, stage.lost_on_link), (0, 0, 0));
    // The FIN takes a number behind the last byte.
    assert_eq!(flow.in_flight_bytes.unwrap().max, (40 * MSS + 1) as f64);
}

#[test]
fn packets_and_bytes_of_a_connection_are_those_of_its_capture() {
    let s = one_file(300);
    let results = made::run(&s);
    let [connection] = &results.connections[..] else { panic!("one connection") };
    assert!(connection.closed);
    let seen = made::segments(&s, RECEIVER);
    assert_eq!(connection.packets, seen.len() as u64);
    assert_eq!(connection.bytes, seen.iter().map(|p| u64::from(p.ip.total_len)).sum::<u64>());
    let payload: u64 = seen.iter().map(|p| u64::from(p.payload)).sum();
    assert_eq!((payload, made::data(&results).bytes), (300 * MSS, 300 * MSS));
    let data_side = |port: u16| {
        let own = seen.iter().filter(|p| p.src_port == port);
        own.map(|p| u64::from(p.ip.total_len)).sum::<u64>()
    };
    let wire: Vec<u64> = results.flows.iter().map(|flow| flow.wire_bytes).collect();
    assert_eq!(wire, [data_side(connection.a_port), data_side(connection.b_port)]);
    // The SYN/ACK is back after 40 ms, a packet of 60 bytes each way and nothing before it.
    let first_trip = connection.initial_rtt.unwrap();
    assert!(first_trip >= ms(40) && first_trip < ms(41), "{first_trip:?}");
    let last = seen.last().unwrap().ip.time.0 - EPOCH_NS;
    assert!(
        connection.end.0 >= last && connection.end.0 - last <= 21_000_000,
        "its last ACK is on its way"
    );
}

/// Midnight of 2020-01-01 (UTC): captures begin there.
const EPOCH_NS: u64 = 1_577_836_800_000_000_000;

/// Payload rate of a link of so many Mbit/s that is never idle.
fn payload_bps(mbit: f64) -> f64 {
    mbit * 1e6 * MSS as f64 / PACKET as f64
}

fn peak_of(s: &Scenario) -> f64 {
    let results = made::run(s);
    made::data(&results).peak.expect("data was delivered").bps() as f64
}

#[test]
fn the_best_second_is_never_faster_than_the_link_whatever_the_bins() {
    for bin in [10, 50, 100, 130, 250, 300, 400, 700, 900, 1_000, 1_500] {
        let mut s = made::path(8.0, ms(20), 30, 6);
        // Nothing is lost: what waited behind a hole would count in the second that fills it.
        s.flows[0].receiver.window = made::fixed(40 * MSS);
        s.bin = ms(bin);
        let share = peak_of(&s) / payload_bps(8.0);
        // A packet more or less at the borders, and what a bin's bytes are spread over.
        assert!((0.97..1.01).contains(&share), "bins of {bin} ms: {share:.3} of the link's rate");
    }
}

/// A link of 4 Mbit/s that has 8 Mbit/s for one second from `at` on.
fn fast_second(at: u64) -> Scenario {
    let mut s = made::path(4.0, ms(20), 20, 4);
    let slow = s.links[0].clone();
    let fast = made::link(SENDER, RECEIVER, 8.0, ms(10), 20);
    s.changes = vec![
        Change { at: ms(at), what: vec![Changed::Link(0, fast)] },
        Change { at: ms(at + 1_000), what: vec![Changed::Link(0, slow)] },
    ];
    s.changes.retain(|change| change.at < s.duration);
    s
}

#[test]
fn the_best_second_is_found_wherever_it_is() {
    for at in [1_000, 2_000, 3_000] {
        let share = peak_of(&fast_second(at)) / payload_bps(8.0);
        assert!(share > 0.9, "from {at} ms on: {share:.3}");
    }
}

#[test]
fn what_came_before_the_warm_up_is_in_no_rate() {
    let mut s = made::path(12.0, ms(20), 20, 6);
    let slow = made::link(SENDER, RECEIVER, 3.0, ms(10), 20);
    s.changes = vec![Change { at: ms(2_000), what: vec![Changed::Link(0, slow)] }];
    s.warmup = ms(3_000);
    let results = made::run(&s);
    let flow = made::data(&results);
    let share = flow.goodput.unwrap().bps() as f64 / payload_bps(3.0);
    assert!((0.97..1.01).contains(&share), "{share}");
    let link = results.stages[0].throughput.unwrap().bps() as f64 / 3e6;
    assert!((0.98..1.001).contains(&link), "{link}");
    // Bytes are those of the whole run, before the warm-up too.
    assert!(flow.bytes as f64 * 8.0 > payload_bps(12.0) * 1.5 + payload_bps(3.0) * 3.5);
    let begins = results.samples.iter().find(|row| row.flow == flow.id).unwrap().t;
    assert_eq!(begins, Instant::ZERO, "series begin at 0");
}

/// What a flow is limited by, in the order of [`sim::record::Limit::ALL`].
fn share(flow: &FlowRow, limit: sim::record::Limit) -> f64 {
    let place = sim::record::Limit::ALL.iter().position(|l| *l == limit).unwrap();
    flow.shares.unwrap()[place]
}

#[test]
fn what_limits_a_sender_is_what_the_scenario_made_it() {
    use sim::record::Limit;
    let base = || made::path(8.0, ms(40), 400, 8);
    // 10 KB per 40 ms are 2 Mbit/s, a quarter of the link.
    let mut window = base();
    window.flows[0].receiver.window = made::fixed(10 * MSS);
    let mut application = base();
    application.flows[0].app = App::Rates { rates: vec![Rate(1_000_000)], slot: ms(1_000) };
    // 400 packets of 1.5 ms are 600 ms of standing queue.
    let mut bloat = base();
    bloat.flows[0].sender.congestion = made::algorithm!(algo::cc, "cubic");
    for (s, limit, least) in [
        (window, Limit::ReceiveWindow, 0.9),
        (application, Limit::Application, 0.9),
        (bloat, Limit::Bufferbloat, 0.75),
    ] {
        let results = made::run(&s);
        let found = share(made::data(&results), limit);
        assert!(found > least, "{limit:?}: {found} of {:?}", made::data(&results).shares);
    }
}

#[test]
fn probes_of_an_idle_path_take_the_time_of_their_bits_and_the_delay() {
    let mut s = made::path(8.0, ms(40), 100, 2);
    s.flows.clear();
    let probe = |name: &str, kind, start| Probe {
        name: name.into(),
        kind,
        from: SENDER,
        to: RECEIVER,
        start: ms(start),
        every: vec![ms(30), ms(70)],
        bytes: Bytes(100),
        class: 1,
        ttl: None,
    };
    s.probes = vec![probe("ping", ProbeKind::Ping, 0), probe("one way", ProbeKind::Isochronous, 5)];
    let results = made::run(&s);
    // 100 bytes take 100 µs at 8 Mbit/s and 0.8 µs at 1 Gbit/s.
    let (there, back) = (Duration(20_100_000), Duration(20_000_800));
    for (index, first) in [(0, 0), (1, 5)] {
        let rows: Vec<_> = results
            .probes
            .iter()
            .filter(|row| row.probe == index && row.t.0 < s.duration.0)
            .collect();
        let times: Vec<u64> = rows.iter().map(|row| row.t.0 / 1_000_000 - first).collect();
        let expected: Vec<u64> = (0..20).flat_map(|n| [n * 100, n * 100 + 30]).collect();
        assert_eq!(times, expected, "intervals in turn");
        for row in rows.iter().filter(|row| row.t.0 < 1_900_000_000) {
            let found = (row.rtt, row.owd, row.lost);
            match index {
                0 => assert_eq!(found, (Some(there + back), None, false)),
                _ => assert_eq!(found, (None, Some(there), false)),
            }
        }
    }
    assert_eq!(results.delivered, Bytes(0));
}
