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

#[test]
fn no_bound_is_below_the_minimum_of_another_connection_of_the_same_hosts() {
    let s = Script { segments: 300, timestamps: false, point: Point::Receiver, ..Script::plain() };
    let mut bounded = model::run(&s).0;
    // Without a handshake nothing of this connection is measured; TTLs say that the capture is beside the receiver.
    bounded.retain(|p| p.flags & flags::SYN == 0);
    for p in &mut bounded {
        p.ip.ttl = if p.payload > 0 { 52 } else { 64 };
    }
    let free = upload(false, Duration::ZERO).rtt_bound_ms.expect("a bound");
    let far = Script { timestamps: true, delay: [300 * MS, 300 * MS], isn: [7, 8], ..s };
    for later in [false, true] {
        let mut measured = model::run(&far).0;
        for p in &mut measured {
            for port in [&mut p.src_port, &mut p.dst_port] {
                *port += u16::from(*port == 5000);
            }
            // Far enough apart that the first is closed, and has its rows, before the second begins.
            p.ip.time = p.ip.time + Duration(u64::from(later) * 100_000 * MS);
        }
        for p in &mut bounded {
            p.ip.time = p.ip.time + Duration(u64::from(!later) * 200_000 * MS);
        }
        let packets = if later {
            [&bounded[..], &measured[..]].concat()
        } else {
            [&measured[..], &bounded[..]].concat()
        };
        let a = analyse(&packets);
        let f = a.flows.iter().find(|f| f.rtt_bound_ms.is_some()).expect("a bound");
        let least = a.flows.iter().filter_map(|f| f.rtt_ms).map(|q| q.min).fold(f64::MAX, f64::min);
        assert!(least > free.p50, "{least} ms measured");
        let bound = f.rtt_bound_ms.expect("a bound");
        assert!(bound.min >= 0.99 * least && bound.p50 <= bound.p95, "{bound:?}, {least} ms");
    }
}
