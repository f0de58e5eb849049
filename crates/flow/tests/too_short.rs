//! A transfer of few segments, round trips or milliseconds has counts and RTTs, but no rate, limit or grade.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use flow::series::rows::Flow;
use model::{Fate, MS, Point, Script, analyse};

/// The data direction of a script at 40 ms of RTT and 10 segments in flight, unless it says otherwise.
fn data(s: &Script) -> Flow {
    let a = analyse(&model::run(s).0);
    assert!(a.findings.iter().all(|f| f.rule != "receive-window" && f.rule != "bufferbloat"));
    a.flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows")
}

fn judged(f: &Flow) -> bool {
    let values = [f.goodput.is_some(), f.peak.is_some(), f.bdp.is_some(), f.main_limit().is_some()];
    assert_eq!(values, [!f.too_short; 4], "{f:?}");
    assert!(f.rtt_ms.is_some() && f.bytes.get() > 0, "counts and RTTs stay");
    !f.too_short
}

#[test]
fn eleven_segments_in_three_round_trips_are_judged_and_fewer_are_not() {
    let of = |segments, gap| Script { segments, gap, ..Script::plain() };
    assert!(!judged(&data(&of(10, 100 * MS))), "an initial window, however slowly it is sent");
    assert!(judged(&data(&of(11, 100 * MS))));
    assert!(!judged(&data(&of(11, MS))), "two round trips");
    assert!(judged(&data(&of(60, MS))), "six");
}

#[test]
fn without_an_rtt_data_of_which_none_follows_an_ack_is_not_judged() {
    let of = |cwnd, seen: usize| {
        let s =
            Script { segments: 40, cwnd, gap: 2 * MS, point: Point::Receiver, ..Script::plain() };
        let packets = model::run(&s).0;
        // Neither handshake nor request: nothing shows the RTT.
        let data: Vec<_> = packets.into_iter().skip_while(|p| p.payload == 0).take(seen).collect();
        let a = analyse(&data);
        a.flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows")
    };
    let one_flight = of(40, 38);
    assert!(one_flight.rtt_ms.is_none(), "{one_flight:?}");
    assert!(one_flight.active.as_millis_f64() > 20.0);
    assert!(one_flight.too_short, "all data left before an ACK arrived");
    assert!(!of(5, 80).too_short, "eight flights");
}

#[test]
fn a_transfer_over_loopback_in_a_millisecond_is_not_judged() {
    let s = Script { gap: 1_000, delay: [5_000, 5_000], ..Script::plain() };
    assert!(!judged(&data(&s)), "60 segments in more than 6 round trips of 10 µs");
}

#[test]
fn a_wait_for_a_timeout_is_a_limit_however_few_segments_there_are() {
    let mut s = Script { segments: 5, ..Script::plain() };
    for transmission in 0..2 {
        s.fates.insert((4, transmission), Fate::Lost { before: false });
    }
    let f = data(&s);
    assert!(f.timeouts > 0);
    assert!(judged(&f));
}
