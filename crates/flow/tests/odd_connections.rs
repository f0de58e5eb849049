//! Connections that are odd in one known way: port reuse, missing SYN, one side only, mirror copies, and the like.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use std::collections::BTreeMap;
use std::time::Instant as Clock;

use capture::{Decoded, TcpSegment, flags};
use flow::series::rows::{End, EventKind, Vantage};
use flow::{Analyzer, Options, Select};
use model::{MS, Point, Script, analyse, analyse_with};
use units::{Duration, Instant};

/// An upload of 60 segments with one lost, captured at the sender.
fn script() -> Script {
    Script::one_lost()
}

fn segments(s: &Script) -> Vec<TcpSegment> {
    model::run(s).0
}

fn later(mut all: Vec<TcpSegment>, by: u64) -> Vec<TcpSegment> {
    for s in &mut all {
        s.ip.time = s.ip.time + Duration(by);
        s.ip.id = s.ip.id.map(|id| id.wrapping_add(500));
    }
    all
}

/// From the side of the data's sender.
fn of_sender(s: &TcpSegment) -> bool {
    s.src_port == 5000
}

#[test]
fn a_new_initial_number_on_the_same_ports_is_another_connection() {
    let first = segments(&script());
    // Two seconds later, below and above the numbers of the first.
    for isn in [[900_000_000, 7], [0xf000_0000, 2_500], [1_500, 2_000]] {
        let second = later(segments(&Script { isn, ..script() }), 2_000 * MS);
        let a = analyse(&[first.clone(), second.clone()].concat());
        assert_eq!(a.connections.len(), 2, "{isn:?}");
        for (i, c) in a.connections.iter().enumerate() {
            assert_eq!(
                (c.end_kind, c.syn_seen, c.packets),
                (End::Fin, true, first.len() as u64),
                "{isn:?}"
            );
            let f = &a.flows[2 * i];
            assert_eq!((f.bytes.get(), f.retransmissions_fast), (60 * 1_448, 1), "{isn:?}");
        }
    }
}

#[test]
fn a_connection_cut_off_without_fin_ends_where_the_next_begins() {
    let mut first = segments(&script());
    first.truncate(50);
    let second = later(segments(&Script { isn: [77, 88], ..script() }), 10_000 * MS);
    let a = analyse(&[first, second].concat());
    let ends: Vec<End> = a.connections.iter().map(|c| c.end_kind).collect();
    assert_eq!(ends, [End::Open, End::Fin]);
}

/// Data of the receiver, 1 ms after the SYN of the second connection, and the RST that it is answered with.
fn left_over(first: &[TcpSegment], syn: &TcpSegment) -> [TcpSegment; 2] {
    let mut data = *first.iter().rfind(|s| !of_sender(s)).expect("an answer");
    data.ip.time = syn.ip.time + Duration(MS);
    data.ip.id = Some(4_000);
    (data.payload, data.flags) = (1_448, flags::ACK);
    let mut reset = *syn;
    reset.ip.time = data.ip.time + Duration(MS);
    reset.ip.id = Some(4_001);
    (reset.seq, reset.ack, reset.flags) = (data.ack, 0, flags::RST);
    [data, reset]
}

#[test]
fn data_of_an_earlier_connection_that_arrives_behind_the_next_syn_is_not_of_the_next() {
    let first = segments(&script());
    // Initial numbers of Linux rise by 15.6 million per second, so those of the second are a little higher.
    for isn in [[100_000_000, 99_000_000], [20_000_000, 98_000_000], [0xf000_0000, 2_500]] {
        let second = later(segments(&Script { isn, ..script() }), 2_000 * MS);
        let plain = analyse(&[first.clone(), second.clone()].concat());
        let mut late = second.clone();
        late.splice(1..1, left_over(&first, &second[0]));
        let a = analyse(&[first.clone(), late].concat());
        assert_eq!(a.connections.len(), 2, "{isn:?}");
        let (c, of) = (&a.connections[1], &plain.connections[1]);
        assert_eq!(c.packets, of.packets + 2, "{isn:?}");
        assert_eq!((c.end_kind, c.syn_seen, c.initial_rtt), (End::Fin, true, of.initial_rtt));
        for (f, of) in a.flows[2..].iter().zip(&plain.flows[2..]) {
            assert_eq!(
                (f.bytes, f.retransmitted_bytes),
                (of.bytes, of.retransmitted_bytes),
                "{isn:?}"
            );
            assert_eq!(f.rtt_ms, of.rtt_ms, "{isn:?}");
        }
    }
}

#[test]
fn data_behind_a_syn_whose_answer_was_not_captured_is_of_that_connection() {
    let mut all = segments(&script());
    let mut data = all[1];
    data.flags = flags::ACK;
    data.seq = data.seq.wrapping_add(1);
    data.payload = 1_448;
    // The SYN/ACK is missing from the capture.
    all[1] = data;
    let a = analyse(&all);
    assert_eq!(a.connections.len(), 1);
    assert_eq!(a.flows[1].payload_bytes.get(), 1_448);
}

#[test]
fn a_syn_sent_again_is_the_same_connection_and_gives_no_round_trip() {
    let mut all = segments(&script());
    let mut again = all[0];
    let first = all[0].ip.time;
    again.ip.id = Some(9);
    // The first SYN went out a second before.
    all[0].ip.time = Instant(first.0 - 1_000 * MS);
    all.insert(1, again);
    let a = analyse(&all);
    assert_eq!(a.connections.len(), 1);
    assert_eq!(a.flows[0].bytes.get(), 60 * 1_448);
    // Karn's rule: it is unknown which of them was answered.
    assert_eq!(a.connections[0].initial_rtt, None);
    let rtt = a.flows[0].rtt_ms.expect("data was acknowledged");
    assert!((rtt.min - 40.0).abs() < 1e-6 && rtt.max < 41.0, "{rtt:?}");
}

#[test]
fn two_syns_that_cross_are_one_connection() {
    let all = segments(&script());
    let (mut syn, mut answer) = (all[0], all[1]);
    // RFC 9293 figure 8: both send SYN, both answer with SYN/ACK.
    let mut crossing = answer;
    crossing.flags = flags::SYN;
    crossing.ack = 0;
    crossing.ip.time = Instant(syn.ip.time.0 + 5 * MS);
    crossing.ip.id = Some(3);
    let mut mine = syn;
    mine.flags = flags::SYN | flags::ACK;
    mine.ack = answer.seq.wrapping_add(1);
    mine.ip.time = Instant(syn.ip.time.0 + 6 * MS);
    mine.ip.id = Some(4);
    syn.ip.id = Some(2);
    answer.ip.id = Some(5);
    let whole = [vec![syn, crossing, mine, answer], all[3..].to_vec()].concat();
    let a = analyse(&whole);
    assert_eq!(a.connections.len(), 1);
    assert_eq!(a.connections[0].packets, whole.len() as u64);
    assert_eq!(a.flows[0].bytes.get(), 60 * 1_448);
    assert_eq!((a.flows[0].retransmissions_fast, a.flows[0].window_scale), (1, Some(7)));
}

#[test]
fn without_the_syn_segments_are_counted_as_segments() {
    for point in [Point::Sender, Point::Receiver] {
        let s = Script { point, segments: 200, cwnd: 30, ..script() };
        let all = segments(&s);
        // The handshake and the first round are missing.
        let a = analyse(&all[43..]);
        let c = &a.connections[0];
        let f = a.flows.iter().max_by_key(|f| f.payload_bytes).expect("two flows");
        assert_eq!((a.connections.len(), c.syn_seen, f.window_scale), (1, false, None));
        assert_eq!(f.mss, 1_448, "{point:?}");
        assert_eq!(
            (f.retransmissions, f.retransmissions_fast, f.ambiguous),
            (1, 1, 0),
            "{point:?}"
        );
        assert_eq!(f.retransmitted_bytes.get(), 1_448, "{point:?}");
        assert!(f.loss_rate.is_some_and(|r| r < 0.01), "{:?}", f.loss_rate);
        // 30 segments in flight do not fit 64 windows of 1,448 unscaled: the scale is inferred, and said to be.
        assert!(f.window_scale_inferred || f.vantage != Vantage::Sender, "{point:?}");
    }
}

#[test]
fn both_sequence_spaces_may_wrap_anywhere() {
    let truth = analyse(&segments(&script()));
    for before in [
        1,
        500,
        1_447,
        1_448,
        1_449,
        20 * 1_448,
        21 * 1_448 + 1,
        59 * 1_448,
        60 * 1_448,
        60 * 1_448 + 1,
    ] {
        let isn = [0u32.wrapping_sub(before), u32::MAX];
        let mut a = analyse(&segments(&Script { isn, ..script() }));
        for (flow, same) in a.flows.iter_mut().zip(&truth.flows) {
            assert_eq!(flow.first_seq, isn.get(flow.id as usize).map(|n| n.wrapping_add(1)));
            flow.first_seq = same.first_seq;
        }
        assert_eq!(format!("{:?}", a.flows), format!("{:?}", truth.flows), "{before}");
    }
}

#[test]
fn more_than_four_gigabytes_are_counted_on() {
    let all = segments(&script());
    let mut analyzer = Analyzer::new(Options::default());
    for s in &all[..3] {
        analyzer.push(s.ip.time, s.ip.wire_len, &Decoded::Tcp(*s));
    }
    let data = all.iter().find(|s| s.payload > 0).expect("data");
    let ack = all.iter().rfind(|s| !of_sender(s) && !s.has(flags::FIN)).expect("an ACK");
    let (mut at, mut time) = (data.seq, data.ip.time.0);
    let rounds = 5 * (1u64 << 32) / 60_000;
    for i in 0..rounds {
        time += MS;
        for (model, forward) in [(data, true), (ack, false)] {
            let mut s = *model;
            s.ip.time = Instant(time + u64::from(!forward) * MS / 2);
            s.ip.id = Some(i as u16 | 1);
            s.options = capture::TcpOptions::default();
            if forward {
                (s.seq, s.payload) = (at, 60_000);
                s.ip.total_len = 60_040;
            } else {
                s.ack = at.wrapping_add(60_000);
            }
            analyzer.push(s.ip.time, s.ip.wire_len, &Decoded::Tcp(s));
        }
        at = at.wrapping_add(60_000);
    }
    let a = analyzer.finish(None);
    assert_eq!(a.flows[0].bytes.get(), rounds * 60_000);
    assert_eq!((a.flows[0].retransmissions, a.connections[0].capture_gaps.get()), (0, 0));
}

#[test]
fn a_reset_ends_it_and_what_comes_after_is_still_its_own() {
    let mut all = segments(&script());
    let cut = all.len() - 10;
    let mut rst = all[cut];
    rst.flags = flags::RST | flags::ACK;
    rst.payload = 0;
    rst.options = capture::TcpOptions::default();
    rst.ip.id = Some(12_345);
    all.insert(cut, rst);
    let a = analyse(&all);
    assert_eq!((a.connections.len(), a.connections[0].end_kind), (1, End::Rst));
    assert_eq!(a.connections[0].packets, all.len() as u64);
}

#[test]
fn keep_alives_are_no_zero_window_probes_with_or_without_a_byte() {
    for bytes in [0, 1] {
        let mut all = segments(&script());
        // Idle for minutes before the FIN, with a keep-alive each minute (RFC 9293 section 3.8.4).
        let fin = all.iter().position(|s| s.has(flags::FIN)).expect("a FIN");
        let ack = *all[..fin].iter().rfind(|s| !of_sender(s)).expect("an ACK");
        let mut extra = Vec::new();
        for minute in 1..=3u64 {
            let mut probe = all[fin];
            probe.flags = flags::ACK;
            probe.seq = probe.seq.wrapping_sub(1);
            probe.payload = bytes;
            probe.ip.time = Instant(all[fin].ip.time.0 + minute * 60_000 * MS);
            probe.ip.id = Some(40_000 + minute as u16);
            let mut answer = ack;
            answer.ip.time = probe.ip.time + Duration(40 * MS);
            answer.ip.id = Some(50_000 + minute as u16);
            extra.extend([probe, answer]);
        }
        let rest = later(all.split_off(fin), 300_000 * MS);
        let a = analyse(&[all, extra, rest].concat());
        let f = &a.flows[0];
        assert_eq!(
            (f.keep_alives, f.zero_window_probes, f.retransmissions),
            (3, 0, 1),
            "{bytes} bytes"
        );
        assert_eq!(f.bytes.get(), 60 * 1_448);
    }
}

#[test]
fn zero_window_probes_are_no_keep_alives_with_or_without_a_byte() {
    for probe_byte in [false, true] {
        let s = Script {
            buffer: 8,
            stall: Some((10, 3_000 * MS)),
            probe_byte,
            fates: BTreeMap::new(),
            ..script()
        };
        let (all, truth) = model::run(&s);
        let f = &analyse(&all).flows[0];
        assert!(truth.probes >= 3 && truth.zero_windows == 1, "{truth:?}");
        assert_eq!((f.zero_window_probes, f.keep_alives, f.retransmissions), (truth.probes, 0, 0));
        assert_eq!((f.zero_window_count, f.zero_window), (1, truth.zero_window));
    }
}

#[test]
fn a_subflow_of_multipath_tcp_is_marked() {
    let mut all = segments(&script());
    assert!(!analyse(&all).connections[0].mptcp);
    all[0].options.mptcp = true;
    all[1].options.mptcp = true;
    assert!(analyse(&all).connections[0].mptcp);
}

#[test]
fn a_mirror_that_copies_every_packet_changes_nothing_but_the_count() {
    let once = segments(&script());
    let truth = analyse(&once);
    for lag in [0, 20_000, MS / 2] {
        let mut twice: Vec<TcpSegment> = Vec::new();
        for s in &once {
            let mut copy = *s;
            copy.ip.time = copy.ip.time + Duration(lag);
            twice.extend([*s, copy]);
        }
        twice.sort_by_key(|s| s.ip.time);
        let a = analyse(&twice);
        assert_eq!(
            (a.connections[0].duplicates, a.facts.duplicates),
            (once.len() as u64, once.len() as u64)
        );
        assert_eq!(a.connections[0].packets, once.len() as u64);
        assert_eq!(format!("{:?}", a.flows), format!("{:?}", truth.flows), "copies {lag} ns late");
    }
}

/// Wall-clock time for `packets` of one side: data without ACKs, or ACKs without data.
#[allow(clippy::disallowed_methods)] // what is measured is the program, not the capture
fn one_sided(packets: usize, data: bool) -> std::time::Duration {
    let all = segments(&script());
    let model = all
        .iter()
        .find(|s| if data { s.payload > 0 } else { !of_sender(s) && s.flags == flags::ACK });
    let mut s = *model.expect("a segment of that kind");
    let begin = Clock::now();
    let mut analyzer = Analyzer::new(Options::default());
    for i in 0..packets {
        s.ip.time = s.ip.time + Duration(100_000);
        s.ip.id = Some(i as u16);
        if data {
            // Every hundredth is missing, every thousandth comes again.
            s.seq = s.seq.wrapping_add(if i % 100 == 99 { 2 * 1_448 } else { 1_448 });
            if i % 1_000 == 999 {
                s.seq = s.seq.wrapping_sub(5 * 1_448);
            }
        } else {
            s.ack = s.ack.wrapping_add(1_448);
        }
        analyzer.push(s.ip.time, s.ip.wire_len, &Decoded::Tcp(s));
    }
    let a = analyzer.finish(None);
    assert_eq!((a.connections.len(), a.facts.one_sided), (1, 1));
    begin.elapsed()
}

#[test]
fn one_side_alone_takes_linear_time() {
    for data in [true, false] {
        // tcptrace takes 17 times as long for 200,000 as for 60,000 (19.3 s). The fastest of three runs, doubled, and a
        // tenth of a second for a busy machine.
        let best = |n| (0..3).map(|_| one_sided(n, data)).min().expect("three runs").as_secs_f64();
        let times = [60_000, 120_000, 200_000].map(best);
        println!("data {data}: {times:?} s");
        assert!(times[2] < times[0] * (200.0 / 60.0) * 2.0 + 0.1, "data {data}: {times:?} s");
        assert!(times[1] < times[0] * 4.0 + 0.1, "data {data}: {times:?} s");
    }
}

/// Some captures stamp the packets of two directions out of order.
#[test]
fn spans_of_a_full_window_have_the_flows_sum_where_time_steps_back() {
    let mut all = segments(&Script { buffer: 8, segments: 400, ..script() });
    for s in all.iter_mut().skip(20).step_by(7) {
        s.ip.time = Instant(s.ip.time.0 - 3 * MS);
    }
    let a = analyse_with(Options { events: Select::All, ..Options::default() }, &all);
    assert!(a.facts.backward_steps > 20);
    let spans: f64 =
        a.events.iter().filter(|e| e.kind == EventKind::WindowFull).map(|e| e.value).sum();
    let full = a.flows[0].window_full.as_secs_f64();
    assert!(full > 0.1 && (spans - full).abs() < 1e-6, "{spans} s of spans, {full} s in the flow");
}
