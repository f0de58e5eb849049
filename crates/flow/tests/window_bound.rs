//! A capture beside the receiver without timestamps: the window counts as full where it was, whatever the sender knew.

use capture::{Decoded, TcpSegment, flags};
use flow::series::rows::{Flow, Limit};
use flow::{Analyzer, Options};
use units::Duration;

mod segments;

use segments::MSS;

/// A download of `rounds` round trips of 20 ms seen beside the receiver, a flight of `flight` segments in each.
struct Download {
    flight: u32,
    /// Advertised window in bytes.
    window: u32,
    rounds: u32,
    /// Handshake, ms: some hosts answer their first packet late.
    handshake: f64,
    syn: bool,
    /// The receiver's application does not read: its window falls by what it acknowledges, down to 474 bytes.
    stuck: bool,
}

const PLAIN: Download =
    Download { flight: 3, window: 4_800, rounds: 100, handshake: 20.0, syn: true, stuck: false };

fn segment(from_sender: bool, at: f64, flag: u16) -> TcpSegment {
    TcpSegment { window: 4_800, ..segments::segment(from_sender, false, at, flag) }
}

fn flow(d: &Download) -> Flow {
    let mut packets = Vec::new();
    if d.syn {
        let mut syn = segment(true, -d.handshake - 1.0, flags::SYN);
        syn.seq = 999;
        let mut answer = segment(false, -d.handshake - 0.9, flags::SYN | flags::ACK);
        answer.window = d.window as u16;
        answer.seq = 499;
        packets.extend([syn, answer, segment(true, -1.0, flags::ACK)]);
    }
    let (mut sent, mut id) = (0, 0);
    for round in 0..d.rounds {
        let start = f64::from(round) * 20.0;
        let mut window = d.window;
        for n in 0..d.flight {
            let at = start + f64::from(n) * 0.1;
            let mut s = segment(true, at, flags::ACK);
            (s.seq, s.payload) = (1_000 + sent, MSS);
            s.ip.total_len += MSS;
            id += 1;
            s.ip.id = Some(id);
            packets.push(s);
            sent += MSS;
            let mut ack = segment(false, at + 0.05, flags::ACK);
            if d.stuck {
                window -= MSS;
            }
            (ack.ack, ack.window) = (1_000 + sent, window as u16);
            packets.push(ack);
        }
        if d.stuck {
            let mut update = segment(false, start + 19.0, flags::ACK);
            (update.ack, update.window) = (1_000 + sent, d.window as u16);
            packets.push(update);
        }
    }
    let mut analyzer =
        Analyzer::new(Options { bin: Duration::from_millis(100), ..Options::default() });
    for s in &packets {
        analyzer.push(s.ip.time, s.payload + 52, &Decoded::Tcp(*s));
    }
    let a = analyzer.finish(None);
    a.flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows")
}

#[test]
fn a_sender_that_stops_at_the_window_is_limited_by_it() {
    let f = flow(&PLAIN);
    assert_eq!(f.main_limit(), Some(Limit::ReceiveWindow), "{:?}", f.limit_time);
    assert!(f.window_full.as_secs_f64() > 1.8, "{:?}", f.window_full);
}

#[test]
fn a_handshake_that_took_too_long_makes_no_window_full() {
    // With an RTT of 500 ms the window would be full. The data comes sooner than that after the ACKs that permit it.
    let wide = Download { handshake: 500.0, window: 60_000, flight: 12, ..PLAIN };
    let wide = flow(&wide);
    // The first segment that reaches the first window is 0.1 ms before the one that contradicts.
    assert!(wide.window_full.as_secs_f64() < 0.001, "{:?}", wide.limit_time);
}

#[test]
fn a_window_of_one_segment_is_full_whatever_the_round_trip_is() {
    for handshake in [20.0, 500.0] {
        let f = flow(&Download { handshake, window: 1_900, flight: 1, ..PLAIN });
        assert_eq!(f.main_limit(), Some(Limit::ReceiveWindow), "{:?}", f.limit_time);
    }
}

#[test]
fn a_window_with_room_to_spare_is_not_full() {
    let f = flow(&Download { window: 9_000, ..PLAIN });
    assert_eq!(f.window_full.as_secs_f64(), 0.0, "{:?}", f.limit_time);
}

#[test]
fn without_the_handshake_a_window_that_falls_by_what_is_acknowledged_is_in_bytes() {
    let stuck = Download { syn: false, stuck: true, flight: 6, window: 6 * MSS + 474, ..PLAIN };
    let f = flow(&stuck);
    assert_eq!(f.main_limit(), Some(Limit::ReceiveWindow), "{:?}", f.limit_time);
    assert!(f.window_scale.is_none());
    let unknown = flow(&Download { stuck: false, ..stuck });
    assert_eq!(unknown.window_full.as_secs_f64(), 0.0, "its scale may be any");
}
