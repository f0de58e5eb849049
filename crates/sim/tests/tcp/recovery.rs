//! Losses, delays that look like losses, and the way back.

use algo::Value;
use scenario::Scenario;
use sim::record::FlowRow;
use units::Duration;

use crate::made::{self, BACK, MSS, SENDER, THERE, ms};

/// Half a second into a transfer limited by a window of 51 segments (12 Mbit/s, so 1 ms per packet,
/// no queue to speak of): the path is full of data and the loss can be placed.
fn steady() -> Scenario {
    let mut s = made::path(12.0, ms(50), 1_000, 4);
    s.flows[0].receiver.window = made::fixed(51 * MSS);
    s
}

fn row(s: &Scenario) -> FlowRow {
    made::data(&made::run(s)).clone()
}

#[test]
fn a_single_loss_costs_one_fast_retransmission_and_no_timeout() {
    for congestion in ["newreno", "cubic", "bbr"] {
        let mut s = steady();
        s.flows[0].sender.congestion = made::algorithm!(algo::cc, congestion);
        // A packet takes 1 ms: exactly one starts in this millisecond.
        made::lose(&mut s, THERE, ms(1_500), Duration::from_micros(990));
        let row = row(&s);
        assert_eq!(row.lost_packets, 1, "{congestion}");
        assert_eq!((row.retransmissions, row.retransmissions_fast), (1, 1), "{congestion} {row:?}");
        assert_eq!((row.timeouts, row.retransmissions_spurious), (0, 0), "{congestion}");
        assert_eq!(row.recoveries, 1, "{congestion}");
    }
}

#[test]
fn each_lost_segment_of_a_burst_is_sent_again_once() {
    let mut s = steady();
    made::lose(&mut s, THERE, ms(1_500), ms(12));
    let row = row(&s);
    assert!((10..=13).contains(&row.lost_packets), "{row:?}");
    assert_eq!(row.retransmissions, row.lost_packets);
    assert_eq!((row.timeouts, row.recoveries, row.retransmissions_spurious), (0, 1, 0), "{row:?}");
}

#[test]
fn a_retransmission_that_is_lost_is_sent_again_without_a_timeout() {
    // RFC 8985: RACK sees by time that the retransmission is lost, too.
    let mut s = steady();
    made::lose(&mut s, THERE, ms(1_500), Duration::from_micros(990));
    // The hole shows 50 ms after the segment behind it was sent; its retransmission goes out then.
    made::lose(&mut s, THERE, ms(1_549), ms(4));
    let row = row(&s);
    assert!(row.lost_packets >= 2, "{row:?}");
    assert_eq!(row.retransmissions, row.lost_packets, "{row:?}");
    assert_eq!((row.timeouts, row.retransmissions_spurious), (0, 0), "{row:?}");
}

#[test]
fn without_sack_newreno_repairs_one_loss_per_round_trip() {
    // RFC 6582 section 3.2.
    for (span_us, losses) in [(990, 1), (2_990, 3)] {
        let mut s = steady();
        s.flows[0].sender.sack = false;
        made::lose(&mut s, THERE, ms(1_500), Duration::from_micros(span_us));
        let row = row(&s);
        assert_eq!(row.lost_packets, losses, "{row:?}");
        assert_eq!((row.retransmissions, row.timeouts), (losses, 0), "{row:?}");
        assert_eq!(row.recoveries, 1, "{row:?}");
    }
}

#[test]
fn without_sack_a_saw_tooth_goes_on_for_long() {
    let mut s = made::path(10.0, ms(50), 40, 30);
    s.flows[0].sender.sack = false;
    let results = made::run(&s);
    let row = made::data(&results);
    assert!(row.recoveries >= 3, "{row:?}");
    assert_eq!(row.timeouts, 0, "{row:?}");
    let got = made::mbit_between(&results, ms(5_000), ms(30_000));
    assert!(got > 9.0, "{got} Mbit/s");
}

#[test]
fn a_tail_that_is_lost_is_found_by_a_probe() {
    // RFC 8985 section 7: a probe after two round trips, and no timeout.
    let mut s = made::path(12.0, ms(50), 1_000, 5);
    // Written from 100 to 600 ms: the last segments are lost, and nothing follows that could show
    // it.
    s.flows[0].app =
        scenario::App::Rates { rates: vec![units::Rate(4_000_000), units::Rate(0)], slot: ms(500) };
    s.duration = ms(1_080);
    made::lose(&mut s, THERE, ms(546), ms(40));
    let results = made::run(&s);
    let row = made::data(&results);
    assert!((1..=4).contains(&row.lost_packets), "{row:?}");
    assert_eq!(row.retransmissions_tail_probe, 1, "{row:?}");
    assert_eq!((row.timeouts, row.retransmissions_spurious), (0, 0), "{row:?}");
    assert_eq!(row.retransmissions, row.lost_packets, "{row:?}");
    assert_eq!(row.bytes, 250_000, "{row:?}");
}

#[test]
fn acks_that_are_held_make_a_probe_in_place_of_a_timeout() {
    // A round trip of 300 ms and a timeout of 500 ms, by a steady transfer: the oldest segment has waited for 300 ms when the
    // last ACK comes, so that the probe is 200 ms later, and the timeout 500 ms behind the probe.
    for (held_ms, timeouts) in [(600, 0), (800, 1)] {
        let mut s = made::path(12.0, ms(300), 1_000, 8);
        s.flows[0].receiver.window = made::fixed(301 * MSS);
        made::stall(&mut s, BACK, ms(5_000), ms(held_ms));
        let row = row(&s);
        assert_eq!((row.timeouts, row.lost_packets), (timeouts, 0), "{held_ms} ms: {row:?}");
        assert_eq!(row.retransmissions_tail_probe, 1, "{held_ms} ms: {row:?}");
    }
}

#[test]
fn a_path_that_becomes_slower_does_not_make_a_probe_a_loss() {
    // RFC 8985 section 7.4.2: an ACK that only reaches the end of the probe proves no loss.
    let mut s = made::path(12.0, ms(50), 1_000, 5);
    s.flows[0].app =
        scenario::App::Rates { rates: vec![units::Rate(4_000_000), units::Rate(0)], slot: ms(500) };
    made::stall(&mut s, THERE, ms(1_490), ms(250));
    let row = row(&s);
    assert_eq!(row.lost_packets, 0);
    assert!(row.retransmissions_tail_probe >= 1, "{row:?}");
    assert_eq!(row.recoveries, 0, "{row:?}");
}

#[test]
fn a_whole_window_lost_costs_a_timeout_that_is_not_taken_back() {
    let mut s = steady();
    made::lose(&mut s, THERE, ms(1_500), ms(600));
    let row = row(&s);
    assert!(row.timeouts >= 1, "{row:?}");
    assert_eq!(row.undone, 0, "{row:?}");
    assert_eq!(row.retransmissions_spurious, 0, "{row:?}");
    assert_eq!(row.retransmissions, row.lost_packets, "{row:?}");
    assert!(row.bytes > 2_000_000, "{row:?}");
}

#[test]
fn new_data_that_arrives_after_a_timeout_does_not_take_it_back() {
    // RFC 5682 section 3.1 step 3: only data from before the timeout proves that nothing was lost.
    let mut s = made::path(12.0, ms(50), 1_000, 4);
    s.flows[0].app = scenario::App::Rates { rates: vec![units::Rate(4_000_000)], slot: ms(500) };
    made::lose(&mut s, THERE, ms(1_500), ms(380));
    let row = row(&s);
    assert!(row.timeouts >= 1, "{row:?}");
    assert_eq!((row.undone, row.retransmissions_spurious), (0, 0), "{row:?}");
}

#[test]
fn a_stall_that_only_delays_costs_a_timeout_that_is_taken_back() {
    // RFC 5682, RFC 3522.
    for timestamps in [true, false] {
        let mut s = steady();
        s.flows[0].sender.timestamps = timestamps;
        made::stall(&mut s, THERE, ms(1_500), ms(600));
        let results = made::run(&s);
        let row = made::data(&results);
        assert_eq!(row.lost_packets, 0);
        assert!(row.timeouts >= 1, "{row:?}");
        assert_eq!(row.undone, 1, "timestamps {timestamps} {row:?}");
        if !timestamps {
            // RACK cannot know then whether it was the retransmission that arrived, and takes the
            // rest for lost.
            continue;
        }
        // Two probes and a retransmission at most, and no second copy of the window.
        assert!(row.retransmissions <= 3, "{row:?}");
        let series = made::series(&results);
        let before = series.iter().find(|r| r.t.0 == ms(1_400).0).expect("a bin").cwnd;
        let after = series.iter().find(|r| r.t.0 == ms(2_500).0).expect("a bin").cwnd;
        assert!(after >= before, "timestamps {timestamps}: {before} became {after}");
    }
}

#[test]
fn a_spurious_copy_is_reported_by_dsack() {
    // RFC 2883: the tail-loss probe and the retransmission after the timeout arrive twice.
    let mut s = steady();
    made::stall(&mut s, THERE, ms(1_500), ms(600));
    let row = row(&s);
    assert!(row.retransmissions_spurious >= 1, "{row:?}");
    assert_eq!(row.retransmissions_spurious, row.retransmissions, "{row:?}");
}

#[test]
fn lost_acks_do_not_make_losses() {
    let mut s = steady();
    s.links[BACK].layers =
        vec![made::algorithm!(algo::link::layer, "loss", "rate" = Value::Number(0.1))];
    let row = row(&s);
    assert_eq!(row.lost_packets, 0);
    assert_eq!((row.retransmissions_fast, row.timeouts), (0, 0), "{row:?}");
}

#[test]
fn reordering_does_not_collapse_the_window() {
    // RFC 8985 section 6.2 step 4: the reordering window adapts where DSACK shows that
    // retransmissions were in vain.
    for congestion in ["newreno", "cubic"] {
        let mut s = made::path(10.0, ms(50), 1_000, 20);
        s.flows[0].sender.congestion = made::algorithm!(algo::cc, congestion);
        s.flows[0].receiver.window = made::fixed(100 * MSS);
        s.links[THERE].layers = vec![made::algorithm!(
            algo::link::layer,
            "jitter",
            "mean" = Value::Duration(ms(3)),
            "spread" = Value::Duration(ms(3)),
            "reorder" = Value::Flag(true),
        )];
        let results = made::run(&s);
        let row = made::data(&results);
        assert_eq!(row.lost_packets, 0);
        assert_eq!(row.timeouts, 0, "{congestion} {row:?}");
        assert!(row.retransmissions * 1_000 < row.data_packets, "{congestion} {row:?}");
        let got = made::mbit_between(&results, ms(5_000), ms(20_000));
        assert!(got > 8.5, "{congestion}: {got} Mbit/s");
    }
}

#[test]
fn events_stay_in_proportion_to_packets_where_packets_overtake() {
    let mut s = made::path(50.0, ms(50), 1_000, 10);
    s.flows[0].receiver.window = made::fixed(300 * MSS);
    let plain = made::run(&s);
    s.links[THERE].layers = vec![made::algorithm!(
        algo::link::layer,
        "jitter",
        "mean" = Value::Duration(ms(3)),
        "spread" = Value::Duration(ms(3)),
        "reorder" = Value::Flag(true),
    )];
    let jittery = made::run(&s);
    let per_packet = |r: &sim::Results| r.engine_events as f64 / r.data_packets as f64;
    assert!(
        per_packet(&jittery) < 2.0 * per_packet(&plain),
        "{} {}",
        per_packet(&jittery),
        per_packet(&plain)
    );
}

#[test]
fn random_loss_is_repaired_segment_by_segment() {
    for seed in 1..=3 {
        let mut s = made::path(12.0, ms(50), 1_000, 20);
        s.seed = seed;
        s.flows[0].receiver.window = made::fixed(60 * MSS);
        s.links[THERE].layers =
            vec![made::algorithm!(algo::link::layer, "loss", "rate" = Value::Number(0.005))];
        let row = row(&s);
        assert!(row.lost_packets > 20, "{row:?}");
        // All but those whose retransmission is still to come at the end.
        assert!(row.lost_packets - row.retransmissions <= 3, "{row:?}");
        assert!(row.retransmissions <= row.lost_packets + 1, "{row:?}");
        assert!(row.retransmissions_spurious <= 1, "{row:?}");
    }
}

#[test]
fn the_timeout_doubles_while_nothing_comes_back() {
    // RFC 6298 section 5.5.
    let mut s = steady();
    s.duration = Duration::from_secs(12);
    made::lose(&mut s, THERE, ms(1_500), ms(6_000));
    let seen = made::segments(&s, SENDER);
    let retransmissions: Vec<f64> = {
        let mut next = seen[0].seq.wrapping_add(1);
        let mut times = Vec::new();
        for p in made::payloads(&seen) {
            if p.seq.wrapping_sub(next) > 1 << 31 {
                times.push(made::at_ms(&p, &seen[0]));
            }
            next = if p.seq.wrapping_add(p.payload).wrapping_sub(next) < 1 << 31 {
                p.seq.wrapping_add(p.payload)
            } else {
                next
            };
        }
        times.into_iter().filter(|t| *t < 7_400.0).collect()
    };
    let steps: Vec<f64> = retransmissions.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(retransmissions.len() >= 4, "{retransmissions:?}");
    for pair in steps[1..].windows(2) {
        assert!((pair[1] / pair[0] - 2.0).abs() < 0.01, "{steps:?}");
    }
}
