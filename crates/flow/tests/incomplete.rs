//! A transfer of which the capture lacks most of the data, or the ACKs, has counts, but no RTT, limit or finding of its own.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use capture::{TcpSegment, flags};
use flow::series::rows::{CaptureLacks, Flow, Limit};
use model::{MS, Script, analyse};
use units::Duration;

const DATA: Option<CaptureLacks> = Some(CaptureLacks::Data);
const ACKS: Option<CaptureLacks> = Some(CaptureLacks::Acks);

/// A transfer of 60 segments without those packets of which `lost` is true, given the number of the data segment or ACK.
fn without(script: &Script, lost: impl Fn(bool, usize) -> bool) -> Flow {
    let (mut data, mut acks) = (0, 0);
    let keep = |p: &TcpSegment| {
        if p.has(flags::SYN) {
            return true;
        }
        let count = if p.payload > 0 { &mut data } else { &mut acks };
        *count += 1;
        !lost(p.payload > 0, *count)
    };
    let mut keep = keep;
    let kept: Vec<TcpSegment> = model::run(script).0.into_iter().filter(|p| keep(p)).collect();
    let analysis = analyse(&kept);
    let said = analysis.findings.iter().find(|f| f.rule == "capture-quality");
    let flow = analysis.flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows");
    if flow.capture_lacks.is_some() {
        assert!(analysis.findings.iter().all(|f| f.flow.is_none()), "{:?}", analysis.findings);
        let text = &said.expect("the capture's finding says so").text;
        assert!(
            text.contains("of 1 connection most of the data or of the ACKs is missing"),
            "{text}"
        );
        let unknown = [
            flow.rtt_ms.is_none(),
            flow.loaded_rtt_ms.is_none(),
            flow.in_flight_bytes.is_none(),
            flow.bdp.is_none(),
            flow.main_limit().is_none(),
            flow.grade.is_none(),
            flow.loss_rate.is_none(),
        ];
        assert_eq!(unknown, [true; 7], "{flow:?}");
        assert!(flow.data_packets > 0 && flow.payload_bytes.get() > 0, "counts stay");
    } else {
        assert!(flow.rtt_ms.is_some() && flow.main_limit().is_some(), "{flow:?}");
    }
    flow
}

#[test]
fn a_whole_capture_lacks_nothing() {
    assert_eq!(without(&Script::plain(), |_, _| false).capture_lacks, None);
}

#[test]
fn most_of_the_data_missing_all_the_time_is_too_much_and_less_than_half_is_not() {
    let every = |n: usize| without(&Script::plain(), move |data, i| data && !i.is_multiple_of(n));
    assert_eq!(every(3).capture_lacks, DATA);
    let goodput = every(3).goodput.expect("by the ACKs").bps() as f64;
    let whole = without(&Script::plain(), |_, _| false).goodput.expect("goodput").bps() as f64;
    assert!((goodput / whole - 1.0).abs() < 0.1, "{goodput} {whole}");
    let third = without(&Script::plain(), |data, i| data && i.is_multiple_of(3));
    assert_eq!(third.capture_lacks, None);
}

#[test]
fn a_gap_in_a_short_part_of_the_time_leaves_the_rest() {
    // Idle for three seconds after the first segments, then most of a short burst is missing.
    let mut packets = model::run(&Script { segments: 60, cwnd: 60, ..Script::plain() }).0;
    let late = packets.iter().position(|p| p.payload > 0).expect("data") + 12;
    for p in &mut packets[late..] {
        p.ip.time = p.ip.time + Duration::from_secs(3);
    }
    let mut data = 0;
    packets.retain(|p| {
        data += usize::from(p.payload > 0);
        p.payload == 0 || data < 14 || data % 5 == 0
    });
    let flow = analyse(&packets).flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flow");
    assert_eq!(flow.capture_lacks, None, "{flow:?}");
    assert!(flow.main_limit().is_some());
}

#[test]
fn more_in_flight_than_slow_start_allows_shows_that_acks_are_missing() {
    let until = |n: usize| without(&Script::plain(), move |data, i| !data && i > n);
    // 60 segments: with 24 acknowledged slow start allows 34 more.
    assert_eq!(until(10).capture_lacks, ACKS);
    assert_eq!(until(10).goodput, None);
    assert_eq!(until(30).capture_lacks, None);
    let one_way = without(&Script::plain(), |data, _| !data);
    assert_eq!(one_way.capture_lacks, ACKS, "the request is there, and the handshake");
}

#[test]
fn data_beyond_every_window_shown_shows_that_acks_are_missing() {
    // A window of 20 segments; the last ACK acknowledges all.
    let script = Script { segments: 200, cwnd: 64, buffer: 20, ..Script::plain() };
    let acks = model::run(&script).0.iter().filter(|p| p.src_port == 5001).count();
    let kept = |keep: usize| {
        let mut seen = 0;
        let mut packets = model::run(&script).0;
        packets.retain(|p| {
            seen += usize::from(p.src_port == 5001);
            p.src_port == 5000 || seen <= keep || seen + 3 > acks
        });
        analyse(&packets).flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flow")
    };
    assert_eq!(kept(acks).capture_lacks, None);
    assert_eq!(kept(acks / 5).capture_lacks, ACKS);
    let most = kept(acks * 4 / 5);
    assert_eq!(most.capture_lacks, None, "what is known of most decides");
}

#[test]
fn a_receiver_that_fell_silent_is_no_gap_of_the_capture() {
    let mut s = Script { segments: 40, cwnd: 30, gap: MS, ..Script::plain() };
    for segment in 2..40 {
        for transmission in 0..4 {
            s.fates.insert((segment, transmission), model::Fate::Lost { before: false });
        }
    }
    let flow = without(&s, |_, _| false);
    assert_eq!(flow.capture_lacks, None);
    assert!(flow.limit_time[Limit::Timeout as usize] > Duration::ZERO);
}
