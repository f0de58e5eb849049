//! When the receiver acknowledges, and the contents of its ACKs.

use algo::Value;
use capture::TcpSegment;
use units::Duration;

use crate::made::{self, MSS, RECEIVER, THERE, at_ms, ms};

fn acks(seen: &[TcpSegment]) -> Vec<TcpSegment> {
    let port = seen[1].src_port;
    seen.iter()
        .filter(|p| p.src_port == port && p.payload == 0 && p.options.mss.is_none())
        .copied()
        .collect()
}

/// A window that is open from the beginning: the largest of a SYN.
const OPEN: u64 = 65_535;

/// Bytes from each ACK to the next.
fn steps(seen: &[TcpSegment]) -> Vec<u32> {
    acks(seen).windows(2).map(|w| w[1].ack.wrapping_sub(w[0].ack)).collect()
}

#[test]
fn every_second_segment_is_acknowledged_once_the_quick_acks_are_over() {
    // RFC 9293 section 3.8.6.3; Linux acknowledges the first sixteen segments one by one.
    let mut s = made::path(10.0, ms(40), 1_000, 2);
    s.flows[0].receiver.window = made::fixed(OPEN);
    let steps = steps(&made::segments(&s, RECEIVER));
    // Sixteen ACKs are fifteen steps.
    assert!(steps[..15].iter().all(|step| u64::from(*step) == MSS), "{:?}", &steps[..15]);
    let later = &steps[20..];
    let double = later.iter().filter(|step| u64::from(**step) == 2 * MSS).count();
    assert!(double * 100 > later.len() * 98, "{double} of {}", later.len());
    assert!(later.iter().all(|step| u64::from(*step) <= 2 * MSS));
}

#[test]
fn each_segment_is_acknowledged_while_the_window_grows() {
    // Linux `tcp_grow_window`: two segments per segment, and an ACK for each.
    let mut s = made::path(10.0, ms(40), 1_000, 2);
    s.flows[0].receiver.window = made::fixed(OPEN + 200 * MSS);
    let seen = made::segments(&s, RECEIVER);
    let steps = steps(&seen);
    let single = steps.iter().take_while(|step| u64::from(**step) == MSS).count();
    // A hundred segments open it. Sixteen more, and the first, are quick in any case.
    assert!((100..=118).contains(&single), "{single} one by one");
    let scale = seen[1].options.window_scale.expect("a scale");
    let windows = acks(&seen).iter().map(|p| u64::from(p.window) << scale).collect::<Vec<_>>();
    let most = windows.windows(2).map(|w| w[1].saturating_sub(w[0])).max().expect("ACKs");
    assert!(most <= 2 * MSS + (1 << scale), "the window grew by {most} bytes at once");
    assert!(windows[99] + 3 * MSS > OPEN + 200 * MSS, "{} bytes", windows[99]);
}

#[test]
fn a_lone_segment_is_acknowledged_after_the_delay() {
    let mut s = made::path(10.0, ms(40), 1_000, 3);
    s.flows[0].receiver.window = made::fixed(OPEN);
    s.flows[0].app = scenario::App::Requests {
        request: units::Bytes(300),
        responses: vec![units::Bytes(900)],
        thinks: vec![ms(100)],
    };
    s.flows[0].receiver.ack_delay = ms(30);
    let seen = made::segments(&s, RECEIVER);
    let port = seen[1].src_port;
    let data: Vec<_> = seen.iter().filter(|p| p.src_port != port && p.payload > 0).collect();
    // The fortieth answer, when no ACK is quick any more.
    let answer = data[data.len() - 3];
    let ack = seen
        .iter()
        .find(|p| p.src_port == port && p.ack == answer.seq.wrapping_add(answer.payload))
        .expect("an ACK");
    let waited = at_ms(ack, answer);
    let expected = if data.len() > 18 { 30.0 } else { 0.0 };
    assert!((waited - expected).abs() < 0.1, "{waited} ms after {} answers", data.len());
}

#[test]
fn a_hole_is_reported_with_sack_and_a_duplicate_with_dsack() {
    // RFC 2018 section 4: the first block holds the segment that caused the ACK.
    let mut s = made::path(10.0, ms(40), 1_000, 2);
    made::lose(&mut s, THERE, ms(300), Duration::from_micros(1_250));
    let seen = made::segments(&s, RECEIVER);
    let with = acks(&seen).into_iter().filter(|p| p.options.sack_count > 0).collect::<Vec<_>>();
    assert!(with.len() > 10);
    for pair in with.windows(2) {
        let (before, after) = (pair[0].options.sacks[0], pair[1].options.sacks[0]);
        if pair[0].ack == pair[1].ack {
            assert_eq!(before.0, after.0);
            assert_eq!(
                u64::from(after.1.wrapping_sub(before.1)),
                MSS,
                "each segment beyond the hole is reported at once"
            );
        }
    }
}

#[test]
fn timestamps_echo_the_oldest_segment_that_an_ack_covers() {
    // RFC 7323 section 4.3.
    let mut s = made::path(4.0, ms(40), 1_000, 2);
    s.flows[0].receiver.ack_delay = ms(200);
    let seen = made::segments(&s, RECEIVER);
    let port = seen[1].src_port;
    let mut covered: Vec<(u32, u32)> = Vec::new();
    let mut acked = seen[2].ack;
    for p in &seen[3..] {
        let (val, echo) = p.options.timestamps.expect("agreed on");
        if p.src_port != port {
            if p.payload > 0 {
                covered.push((p.seq.wrapping_add(p.payload), val));
            }
        } else if p.ack != acked {
            let first = covered.first().expect("data before its ACK");
            assert_eq!(echo, first.1);
            covered.retain(|(end, _)| p.ack.wrapping_sub(*end) > 1 << 31);
            acked = p.ack;
        }
    }
}

#[test]
fn reordering_is_reported_once_and_without_false_holes() {
    let mut s = made::path(10.0, ms(40), 1_000, 5);
    s.links[THERE].layers = vec![made::algorithm!(
        algo::link::layer,
        "jitter",
        "mean" = Value::Duration(ms(4)),
        "spread" = Value::Duration(ms(4)),
        "reorder" = Value::Flag(true),
    )];
    let results = made::run(&s);
    assert_eq!(made::data(&results).lost_packets, 0);
    assert_eq!(results.connections.len(), 1);
    let seen = made::segments(&s, RECEIVER);
    assert!(acks(&seen).iter().any(|p| p.options.sack_count > 0), "some segments overtake others");
}
