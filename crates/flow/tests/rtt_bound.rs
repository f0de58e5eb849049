//! At the receiver without timestamps the RTT is known as an upper bound only, and no figure takes it for an RTT.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use capture::flags;
use flow::series::rows::{Flow, RttMethod};
use model::{MS, Point, Script, analyse};
use units::Duration;

/// An upload of 300 segments, its handshake longer by so much than the path's 40 ms.
fn upload(timestamps: bool, longer: Duration) -> Flow {
    let s = Script { segments: 300, timestamps, point: Point::Receiver, ..Script::plain() };
    let mut packets = model::run(&s).0;
    for packet in packets.iter_mut().filter(|p| p.flags & flags::SYN != 0) {
        packet.ip.time = packet.ip.time - longer;
    }
    let a = analyse(&packets);
    a.flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows")
}

#[test]
fn without_timestamps_a_receiver_has_an_upper_bound_and_with_them_an_rtt() {
    let f = upload(false, Duration::ZERO);
    assert_eq!(f.rtt_method, RttMethod::Window);
    let bound = f.rtt_bound_ms.expect("a bound");
    assert!(bound.min >= 40.0, "{bound:?}");
    assert!(f.rtt_ms.is_none() && f.loaded_rtt_ms.is_none() && f.queue_ms.is_none());
    assert!(f.grade.is_none());
    let measured = upload(true, Duration::ZERO);
    assert!(measured.rtt_bound_ms.is_none() && measured.rtt_ms.is_some());
    // Both take the handshake for the path's RTT.
    assert_eq!(f.bdp, measured.bdp);
}

#[test]
fn no_bound_is_below_the_handshake() {
    let free = upload(false, Duration::ZERO).rtt_bound_ms.expect("a bound");
    let longer = Duration((free.p50 * 1e6) as u64);
    assert!(longer > Duration(MS));
    let f = upload(false, longer);
    let handshake = f.initial_rtt_ms.expect("a handshake");
    assert!(handshake > free.p50, "{handshake} ms");
    let bound = f.rtt_bound_ms.expect("a bound");
    assert!(bound.min >= handshake && bound.p50 >= handshake && bound.max >= bound.p95);
}
