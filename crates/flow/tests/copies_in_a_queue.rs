//! Where every segment is sent again, no RTT can be sampled (Karn's rule). The newest copies still show a queue.

use capture::{Decoded, TcpSegment, flags};
use flow::series::rows::{Flow, Limit};
use flow::{Analyzer, Options};
use units::Duration;

mod segments;

use segments::MSS;

fn segment(from_sender: bool, ms: u64, flag: u16, id: u16) -> TcpSegment {
    let mut s = segments::segment(from_sender, true, ms as f64, flag);
    (s.ip.id, s.window) = (Some(id), 60_000);
    s
}

/// An upload over 40 ms, seen at the sender: a segment per 370 ms, a copy 320 ms after each but the first, the ACK `after`
/// ms after the copy.
fn upload(after: u64) -> Flow {
    let mut packets = Vec::new();
    let mut syn = segment(true, 0, flags::SYN, 1);
    syn.seq = 999;
    let mut answer = segment(false, 40, flags::SYN | flags::ACK, 1);
    answer.seq = 499;
    packets.extend([syn, answer, segment(true, 40, flags::ACK, 2)]);
    for n in 0..60_u64 {
        let at = 50 + n * 370;
        for (copy, wait) in [0, 320].into_iter().enumerate().take(if n == 0 { 1 } else { 2 }) {
            let mut s = segment(true, at + wait, flags::ACK, (10 + n * 2 + copy as u64) as u16);
            (s.seq, s.payload) = (1_000 + n as u32 * MSS, MSS);
            s.ip.total_len += MSS;
            packets.push(s);
        }
        let mut ack = segment(false, at + if n == 0 { 41 } else { 320 + after }, flags::ACK, 20);
        ack.ack = 1_000 + (n as u32 + 1) * MSS;
        packets.push(ack);
    }
    let mut analyzer =
        Analyzer::new(Options { bin: Duration::from_millis(10), ..Options::default() });
    packets.sort_by_key(|s| s.ip.time);
    for s in &packets {
        analyzer.push(s.ip.time, s.payload + 52, &Decoded::Tcp(*s));
    }
    let a = analyzer.finish(None);
    let f = a.flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows");
    assert_eq!(f.retransmissions, 59);
    assert_eq!(f.rtt_ms.map(|q| q.count), Some(1), "that of the first segment");
    f
}

#[test]
fn copies_that_come_back_late_show_a_queue() {
    // Each copy waits 79 ms where the path takes 40.
    let f = upload(79);
    assert_eq!(f.main_limit(), Some(Limit::Bufferbloat), "{:?}", f.limit_time);
}

#[test]
fn copies_that_come_back_in_the_time_of_the_path_show_none() {
    let f = upload(41);
    assert_eq!(f.limit_time[Limit::Bufferbloat as usize], Duration::ZERO, "{:?}", f.limit_time);
}

#[test]
fn what_comes_back_sooner_than_the_path_allows_answers_an_earlier_copy() {
    let f = upload(20);
    assert_eq!(f.limit_time[Limit::Bufferbloat as usize], Duration::ZERO, "{:?}", f.limit_time);
}
