//! A capture that stores an ACK before the data which it acknowledges, as one with several receive queues does.

use capture::{Decoded, TcpSegment, flags};
use flow::series::rows::{Flow, Limit};
use flow::{Analyzer, Options};
use units::Duration;

mod segments;

use segments::{MSS, segment};

/// Segments of the transfer, and of which every tenth is stored after its ACK.
const SEGMENTS: u32 = 400;

/// A download seen beside the receiver: a segment each 5 ms, its ACK 30 µs later. Every tenth segment is stored `late_ms`
/// after its ACK.
fn download(late_ms: f64) -> Flow {
    let mut packets = Vec::new();
    let mut syn = segment(true, false, -1.0, flags::SYN);
    syn.seq = 999;
    let mut answer = segment(false, false, -0.9, flags::SYN | flags::ACK);
    answer.seq = 499;
    packets.extend([syn, answer, segment(true, false, -0.5, flags::ACK)]);
    for n in 0..SEGMENTS {
        let at = f64::from(n) * 5.0;
        let ack_at = at + 0.03;
        let late = n % 10 == 9;
        let mut data = segment(true, false, if late { ack_at + late_ms } else { at }, flags::ACK);
        (data.seq, data.payload) = (1_000 + n * MSS, MSS);
        data.ip.total_len += MSS;
        let mut ack = segment(false, false, ack_at, flags::ACK);
        (ack.ack, ack.window) = (1_000 + (n + 1) * MSS, 60_000);
        packets.extend([data, ack]);
    }
    packets.sort_by_key(|s: &TcpSegment| s.ip.time);
    let mut analyzer = Analyzer::new(Options::default());
    for s in &packets {
        analyzer.push(s.ip.time, s.payload + 52, &Decoded::Tcp(*s));
    }
    analyzer.finish(None).flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows")
}

#[test]
fn data_stored_right_after_its_ack_was_sent_once() {
    let flow = download(0.01);
    assert_eq!((flow.retransmissions, flow.bytes.0), (0, u64::from(SEGMENTS * MSS)));
    assert_eq!(flow.limit_time[Limit::CongestionWindow as usize], Duration::ZERO);
}

#[test]
fn data_seen_later_was_sent_again() {
    assert_eq!(download(2.1).retransmissions, u64::from(SEGMENTS / 10));
}
