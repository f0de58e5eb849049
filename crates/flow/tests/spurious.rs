//! Spurious retransmissions of a whole window: ACKs that are 10 s late, as behind a deep buffer, while the retransmission
//! timer of the sender sends everything again.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use capture::{TcpSegment, flags};
use flow::Analysis;
use flow::series::rows::Flow;
use model::{MS, Script, analyse};
use units::{Duration, Instant};

const SEGMENTS: usize = 1_813;
const MSS: u32 = 1_448;

/// What the receiver's ACKs report.
#[derive(Clone, Copy)]
struct Evidence {
    dsack: bool,
    timestamps: bool,
}

/// A transfer that is captured at the sender. All segments are lost on the path once if `lost`; then the
/// retransmissions are needed.
fn late_acks(evidence: Evidence, lost: bool) -> Vec<TcpSegment> {
    let script = Script {
        segments: SEGMENTS,
        cwnd: SEGMENTS,
        buffer: 2 * SEGMENTS as u64,
        gap: MS / 10,
        timestamps: evidence.timestamps,
        scale: Some(9),
        ..Script::plain()
    };
    let all = model::run(&script).0;
    let of_sender = |s: &TcpSegment| s.src_port == 5000;
    let handshake = all.iter().position(|s| s.payload > 0).expect("data");
    let mut packets: Vec<TcpSegment> = all[..handshake].to_vec();
    let data: Vec<TcpSegment> =
        all.iter().filter(|s| of_sender(s) && s.payload > 0).copied().collect();
    assert_eq!(data.len(), SEGMENTS);
    let ack = *all.iter().rfind(|s| !of_sender(s) && s.has(flags::ACK)).expect("an ACK");
    packets.extend(&data);
    let sent = data[SEGMENTS - 1].ip.time;
    // The timer fires once; then segment after segment goes out again.
    let again: Vec<TcpSegment> = (0u64..)
        .zip(&data)
        .map(|(i, s)| stamped(*s, sent + Duration(300 * MS + i * MS / 10), i, 500))
        .collect();
    packets.extend(&again);
    let first = sent + Duration(10_000 * MS);
    for (i, s) in (0u64..).zip(&data) {
        let mut a = stamped(ack, first + Duration(i * MS), i, 0);
        a.flags = flags::ACK;
        a.ack = s.seq.wrapping_add(MSS);
        if let Some((_, echo)) = &mut a.options.timestamps {
            let echoed = if lost { &again[i as usize] } else { s };
            *echo = echoed.options.timestamps.expect("timestamps").0;
        }
        packets.push(a);
    }
    let end = first + Duration(SEGMENTS as u64 * MS);
    if evidence.dsack && !lost {
        for (i, s) in (0u64..).zip(&data) {
            let mut a = *packets.last().expect("packets");
            a.ip.time = end + Duration(i * MS);
            a.ip.id = a.ip.id.map(|id| id.wrapping_add(1));
            a.options.sack_count = 1;
            a.options.sacks[0] = (s.seq, s.seq.wrapping_add(MSS));
            packets.push(a);
        }
    }
    packets
}

/// The segment at another time, with a TSval `later_ms` later.
fn stamped(mut s: TcpSegment, time: Instant, i: u64, later_ms: u32) -> TcpSegment {
    s.ip.time = time;
    s.ip.id = Some(30_000u16.wrapping_add(i as u16));
    if let Some((tsval, _)) = &mut s.options.timestamps {
        *tsval = tsval.wrapping_add(later_ms);
    }
    s
}

fn data(a: &Analysis) -> &Flow {
    a.flows.iter().max_by_key(|f| f.payload_bytes).expect("flows")
}

#[test]
fn a_window_sent_again_for_nothing_is_no_loss_by_dsack_or_by_timestamps() {
    for (dsack, timestamps) in [(true, true), (true, false), (false, true)] {
        let a = analyse(&late_acks(Evidence { dsack, timestamps }, false));
        let f = data(&a);
        let what = format!("DSACK {dsack}, timestamps {timestamps}");
        assert_eq!(f.retransmissions, SEGMENTS as u64, "{what}");
        assert_eq!(f.retransmissions_spurious, SEGMENTS as u64, "{what}");
        assert_eq!(f.loss_rate, Some(0.0), "{what}");
        assert_eq!(f.out_of_order, 0, "{what}");
        assert!(a.findings.iter().all(|f| f.rule != "loss-limited"), "{what}");
    }
}

#[test]
fn without_evidence_or_with_real_loss_they_count_as_loss() {
    for (evidence, lost) in [
        (Evidence { dsack: false, timestamps: false }, false),
        (Evidence { dsack: false, timestamps: true }, true),
    ] {
        let a = analyse(&late_acks(evidence, lost));
        let f = data(&a);
        assert_eq!((f.retransmissions, f.retransmissions_spurious), (SEGMENTS as u64, 0));
        assert_eq!(f.loss_rate, Some(0.5));
    }
}
