//! A warm-up is left out of distributions, shares and goodput; counters and series cover everything.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use capture::TcpSegment;
use flow::{Analysis, Options, Select};
use model::{MS, Script};
use units::{Bytes, Duration, Instant};

const MSS: u64 = 1_448;

/// An upload whose windows of ten segments take a round trip of 40 ms each; one segment is lost early.
fn segments() -> Vec<TcpSegment> {
    model::run(&Script { segments: 600, ..Script::one_lost() }).0
}

fn analyse(measured_from: Instant, until: Instant) -> Analysis {
    let options = Options { samples: Select::All, measured_from, until, ..Options::default() };
    model::analyse_with(options, &segments())
}

const END: Instant = Instant(u64::MAX);

fn start() -> Instant {
    segments().first().map_or(Instant::ZERO, |s| s.ip.time)
}

#[test]
fn distributions_and_goodput_begin_after_the_warm_up() {
    let from = start() + Duration(1_000 * MS);
    let (whole, part) = (analyse(Instant::ZERO, END), analyse(from, END));
    let (all, late) = (&whole.flows[0], &part.flows[0]);
    let count = |f: &flow::series::rows::Flow| f.rtt_ms.map_or(0, |q| q.count);
    // Each segment but the lost one gives a sample when its ACK comes; those that came before are forgotten.
    let acked = |from: Instant| {
        let ack = |s: &&TcpSegment| s.src_port != 5000 && s.ip.time >= from && s.payload == 0;
        segments().iter().filter(ack).map(|s| s.ack).collect::<std::collections::BTreeSet<_>>()
    };
    let (before, after) = (acked(start()).len() - acked(from).len(), acked(from).len());
    assert!(before > 100 && after > 100, "{before} {after}");
    assert!(count(late).abs_diff(after as u64) <= 2, "{} of {after}", count(late));
    assert!(count(all) > count(late) + 100);
    let bytes =
        acked(from).last().zip(acked(from).first()).map_or(0, |(a, b)| u64::from(a - b) + MSS);
    let expected = Bytes(bytes).over(late.active).map_or(0, units::Rate::bps);
    let goodput = late.goodput.map_or(0, units::Rate::bps);
    assert!(goodput.abs_diff(expected) <= expected / 100, "{goodput} {expected}");
    let shares: u64 = late.limit_time.iter().map(|t| t.as_nanos()).sum();
    assert!(shares.abs_diff(late.active.as_nanos()) <= 100 * MS, "{shares}");
}

#[test]
fn counters_and_series_cover_the_warm_up_too() {
    let from = start() + Duration(1_000 * MS);
    let (whole, part) = (analyse(Instant::ZERO, END), analyse(from, END));
    let (all, late) = (&whole.flows[0], &part.flows[0]);
    assert_eq!(
        (all.bytes, all.data_packets, all.packets),
        (late.bytes, late.data_packets, late.packets)
    );
    assert_eq!((all.retransmissions, late.retransmissions), (1, 1));
    assert_eq!(all.peak, late.peak);
    let sum = |a: &Analysis| a.samples.iter().map(|s| s.delivered.get()).sum::<u64>();
    assert_eq!(sum(&whole), sum(&part));
    assert_eq!(whole.samples.len(), part.samples.len());
}

#[test]
fn the_smallest_round_trip_of_the_warm_up_stays_the_paths() {
    // The handshake's 40 ms are the base for the queueing delay, though every sample after the warm-up is longer or equal.
    let part = analyse(start() + Duration(1_000 * MS), END);
    let queue = part.flows[0].queue_ms.map_or(f64::NAN, |q| q.min);
    let loaded = part.flows[0].loaded_rtt_ms.map_or(f64::NAN, |q| q.min);
    assert!((loaded - queue - 40.0).abs() < 0.01, "{loaded} {queue}");
}

#[test]
fn a_connection_that_ended_in_the_warm_up_has_no_distributions() {
    let part = analyse(start() + Duration(3_600_000 * MS), END);
    let flow = &part.flows[0];
    assert_eq!((flow.rtt_ms, flow.in_flight_bytes, flow.goodput), (None, None, None));
    assert_eq!(flow.bytes, Bytes(600 * MSS));
}

#[test]
fn packets_past_the_end_are_not_read() {
    let until = start() + Duration(1_000 * MS);
    let part = analyse(Instant::ZERO, until);
    assert!(part.facts.end <= until);
    let inside = segments().iter().filter(|s| s.ip.time <= until).count() as u64;
    assert!(inside < segments().len() as u64);
    assert_eq!(part.packets.all, inside);
}

#[test]
fn a_flow_says_with_which_sequence_number_it_begins() {
    let a = analyse(Instant::ZERO, END);
    assert_eq!([a.flows[0].first_seq, a.flows[1].first_seq], [Some(1_001), Some(2_001)]);
}
