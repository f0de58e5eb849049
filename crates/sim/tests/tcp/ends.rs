//! Handshake, first flight, close.

use capture::flags;

use units::{Bytes, Duration, Rate};

use crate::made::{self, MSS, RECEIVER, SENDER, at_ms, ms};

#[test]
fn three_segments_open_and_ten_follow_at_once() {
    // RFC 9293 section 3.5, RFC 6928.
    let s = made::path(100.0, ms(50), 100, 1);
    let seen = made::segments(&s, SENDER);
    let [syn, syn_ack, ack] = [&seen[0], &seen[1], &seen[2]];
    assert!(syn.has(flags::SYN) && !syn.has(flags::ACK));
    assert!(syn_ack.has(flags::SYN | flags::ACK));
    assert_eq!(syn_ack.ack, syn.seq.wrapping_add(1));
    assert!(ack.has(flags::ACK) && !ack.has(flags::SYN));
    assert_eq!((ack.seq, ack.ack), (syn.seq.wrapping_add(1), syn_ack.seq.wrapping_add(1)));
    for options in [syn.options, syn_ack.options] {
        assert_eq!(options.mss, Some(1_460));
        assert!(
            options.sack_permitted
                && options.timestamps.is_some()
                && options.window_scale.is_some()
        );
    }
    assert!((at_ms(syn_ack, syn) - 50.0).abs() < 0.1);
    let first: Vec<_> =
        made::payloads(&seen).into_iter().filter(|p| at_ms(p, syn) < 90.0).collect();
    assert_eq!(first.len(), 10);
    assert!(first.iter().all(|p| u64::from(p.payload) == MSS && at_ms(p, syn) < 51.0));
}

#[test]
fn on_a_path_slower_than_the_timer_of_a_syn_its_timestamp_gives_the_round_trip() {
    // RFC 7323 section 4.1: without it the timer would not know the path, and the first data would
    // be sent twice.
    let mut s = made::path(10.0, ms(1_500), 2_000, 20);
    let results = made::run(&s);
    let row = made::data(&results);
    assert_eq!((row.timeouts, row.retransmissions), (0, 0), "{row:?}");
    s.flows[0].sender.timestamps = false;
    assert!(made::data(&made::run(&s)).timeouts > 0);
}

#[test]
fn a_syn_that_is_lost_is_sent_again_after_a_second() {
    // RFC 6298 section 2.1.
    let mut s = made::path(10.0, ms(50), 100, 3);
    s.links[made::THERE].layers.clear();
    made::lose(&mut s, made::THERE, ms(0), ms(10));
    s.flows[0].start = ms(5);
    let seen = made::segments(&s, SENDER);
    assert!(seen[0].has(flags::SYN) && seen[1].has(flags::SYN));
    assert!((at_ms(&seen[1], &seen[0]) - 1_000.0).abs() < 0.1);
    assert!(made::data(&made::run(&s)).bytes > 0);
}

#[test]
fn the_end_of_a_file_closes_both_sides() {
    let mut s = made::path(10.0, ms(50), 100, 5);
    s.flows[0].app = made::file(25);
    let results = made::run(&s);
    let connection = &results.connections[0];
    assert!(connection.closed);
    assert!(connection.end.0 < ms(1_000).0, "{:?}", connection.end);
    assert_eq!(made::data(&results).bytes, 25 * MSS);
    assert_eq!(made::data(&results).retransmissions, 0);
    for node in [SENDER, RECEIVER] {
        let seen = made::segments(&s, node);
        let fins: Vec<_> = seen.iter().filter(|p| p.has(flags::FIN)).collect();
        assert_eq!(fins.len(), 2);
        assert_ne!(fins[0].src_port, fins[1].src_port);
        // The FIN takes a number of its own, and the last word acknowledges it.
        let last = seen.last().expect("segments");
        assert_eq!(last.ack, fins[1].seq.wrapping_add(fins[1].payload).wrapping_add(1));
    }
}

#[test]
fn a_fin_that_is_lost_comes_again() {
    let mut s = made::path(10.0, ms(50), 100, 5);
    s.flows[0].app = made::file(5);
    // Five segments leave 50 ms after the SYN and take 6 ms.
    made::lose(&mut s, made::THERE, ms(54), ms(20));
    let results = made::run(&s);
    assert!(results.connections[0].closed);
    assert_eq!(made::data(&results).bytes, 5 * MSS);
    assert!(made::data(&results).lost_packets >= 1);
}

#[test]
fn a_transfer_that_is_stopped_closes_too() {
    let mut s = made::path(10.0, ms(50), 100, 5);
    s.flows[0].stop = Some(ms(2_000));
    let results = made::run(&s);
    assert!(results.connections[0].closed);
    assert!(results.connections[0].end.0 < ms(2_400).0);
}

#[test]
fn the_side_that_receives_may_open() {
    let mut s = made::path(10.0, ms(50), 100, 2);
    s.flows[0].sender_opens = false;
    let results = made::run(&s);
    assert_eq!(results.connections[0].a, RECEIVER);
    assert!(made::data(&results).bytes > 1_000_000);
    assert_eq!(made::data(&results).id, 1);
}

#[test]
fn a_lone_fin_is_no_data() {
    let mut s = made::path(10.0, ms(50), 100, 5);
    s.flows[0].app = made::file(5);
    // Five segments and the FIN leave 50 ms after the SYN and take 6 ms: only the FIN is lost.
    made::lose(&mut s, made::THERE, Duration::from_micros(56_120), ms(20));
    let results = made::run(&s);
    let row = made::data(&results);
    assert!(results.connections[0].closed);
    assert_eq!(
        (row.data_packets, row.payload_bytes, row.lost_packets, row.retransmissions),
        (5, 5 * MSS, 0, 0)
    );
}

#[test]
fn a_fin_waits_for_the_window_like_any_byte() {
    let mut s = made::path(10.0, ms(50), 100, 20);
    // In whole numbers of the 128 bytes in which the field counts: nothing is rounded.
    let mss = 11 * 128;
    s.flows[0].sender.mss = Bytes(mss);
    s.flows[0].app = scenario::App::File { bytes: Bytes(16 * mss), every: None };
    s.flows[0].receiver.window = made::fixed(16 * mss);
    let read = scenario::Read::Profile {
        rates: vec![Rate(0), Rate(8_000_000)],
        slot: ms(5_000),
        tick: ms(50),
    };
    s.flows[0].receiver.read = read;
    let results = made::run(&s);
    let row = made::data(&results);
    assert!(results.connections[0].closed);
    assert!(row.zero_window_count >= 1, "{row:?}");
    assert_eq!((row.timeouts, row.retransmissions, row.bytes), (0, 0, 16 * mss), "{row:?}");
}
