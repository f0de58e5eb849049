//! The receive window: closed forms, closing and opening, and that an advertised edge is never
//! retracted.

use algo::Value;
use scenario::{App, Read, Scenario, WindowUpdate};
use units::{Bytes, Duration, Rate};

use crate::made::{self, MSS, RECEIVER, SENDER, THERE, at_ms, ms};
use sim::record::Limit;

#[test]
fn a_window_gives_its_size_per_round_trip() {
    for segments in [4, 10, 22, 44] {
        let mut s = made::path(1_000.0, ms(100), 1_000, 20);
        s.flows[0].receiver.window = made::fixed(segments * MSS);
        let results = made::run(&s);
        let got = made::mbit_between(&results, ms(5_000), ms(15_000));
        // The first of a burst waits for the second to be acknowledged with it: one serialisation
        // time.
        let rtt = 0.1 + 1_500.0 * 8.0 / 1e9;
        let expected = (segments * MSS) as f64 * 8.0 / rtt / 1e6;
        assert!(
            (got / expected - 1.0).abs() < 0.01,
            "{segments} segments: {got} Mbit/s, not {expected}"
        );
        let shares = made::data(&results).shares.expect("time passed");
        assert!(shares[Limit::ReceiveWindow as usize] > 0.95, "{shares:?}");
        assert_eq!(made::data(&results).retransmissions, 0);
    }
}

#[test]
fn the_wire_says_what_the_simulator_counts() {
    let mut s = made::path(20.0, ms(40), 50, 4);
    s.flows[0].receiver.window = made::fixed(100_000);
    s.flows[0].receiver.read =
        Read::Profile { rates: vec![Rate(7_000_000)], slot: ms(1_000), tick: ms(10) };
    let seen = made::segments(&s, RECEIVER);
    let scale = seen[1].options.window_scale.expect("a scale");
    let advertised = seen.iter().filter(|p| p.src_port == seen[1].src_port);
    let scale_of = |p: &capture::TcpSegment| if p.options.mss.is_some() { 0 } else { scale };
    let most = advertised.map(|p| u64::from(p.window) << scale_of(p)).max().expect("ACKs");
    let row = made::run(&s);
    assert_eq!(made::data(&row).rwnd_max, Some(most));
}

#[test]
fn a_fixed_buffer_is_offered_in_the_finest_steps_that_hold_it() {
    // Linux tcp_select_initial_window: the buffer that is set clamps the window, and the scale with
    // it.
    for (bytes, scale) in [(65_535, 0), (65_536, 1), (262_000, 2), (262_144, 3), (3_000_000, 6)] {
        let mut s = made::path(20.0, ms(40), 50, 1);
        s.flows[0].receiver.window = made::fixed(bytes);
        assert_eq!(made::segments(&s, RECEIVER)[1].options.window_scale, Some(scale), "{bytes}");
    }
}

/// The right edge that each ACK advertises may not be left of an earlier one (RFC 9293 section
/// 3.8.6).
pub fn assert_edge_never_moves_back(seen: &[capture::TcpSegment], context: &str) {
    let mut ends: Vec<(u16, Option<u8>, u32, u32)> = Vec::new();
    for p in seen {
        if p.options.mss.is_some() {
            ends.push((p.src_port, p.options.window_scale, p.seq, 0));
            continue;
        }
        let Some(end) = ends.iter_mut().find(|e| e.0 == p.src_port) else { continue };
        let edge = p.ack.wrapping_add(u32::from(p.window) << end.1.unwrap_or(0));
        if end.3 != 0 {
            assert!(
                edge.wrapping_sub(end.3) < 1 << 31,
                "{context}: {p:?} offers {edge}, after {}",
                end.3
            );
        }
        end.3 = edge;
    }
}

#[test]
fn the_edge_never_moves_back_with_a_slow_reader() {
    for bytes in [10_000, 40_001, 65_535, 300_000] {
        let mut s = made::path(20.0, ms(40), 50, 6);
        s.flows[0].receiver.window = made::fixed(bytes);
        let rates = vec![Rate(0), Rate(3_000_000), Rate(1_000_000)];
        s.flows[0].receiver.read = Read::Profile { rates, slot: ms(700), tick: ms(7) };
        assert_edge_never_moves_back(&made::segments(&s, RECEIVER), &format!("{bytes} bytes"));
    }
}

#[test]
fn the_edge_never_moves_back_behind_a_middlebox() {
    for (name, law) in [
        ("fixed", made::fixed(30_001)),
        ("small", made::fixed(5_000)),
        ("drwa", made::algorithm!(algo::rwnd, "drwa")),
        ("autotune", made::algorithm!(algo::rwnd, "autotune")),
    ] {
        let mut s = made::path(8.0, ms(40), 300, 6);
        s.nodes[SENDER].window = Some(law);
        // What the sender obeys is seen when it has been rewritten: the data's left and right.
        let results = made::run(&s);
        let row = made::data(&results);
        assert!(row.bytes > 500_000, "{name}: {row:?}");
        if name == "fixed" {
            assert!(row.in_flight_bytes.expect("series").max <= 30_001.0, "{row:?}");
        }
    }
}

#[test]
fn a_reader_that_stops_closes_the_window_and_probes_keep_it_alive() {
    let mut s = made::path(20.0, ms(40), 200, 12);
    s.flows[0].receiver.window = made::fixed(200_000);
    let rates = vec![Rate(8_000_000), Rate(0)];
    s.flows[0].receiver.read = Read::Profile { rates, slot: ms(3_000), tick: ms(20) };
    let results = made::run(&s);
    let row = made::data(&results);
    assert_eq!(row.zero_window_count, 2, "{row:?}");
    assert!(row.zero_window_probes >= 4, "{row:?}");
    let zero_s = row.zero_window.as_secs_f64();
    assert!((5.0..6.0).contains(&zero_s), "{zero_s}");
    assert_eq!((row.retransmissions, row.timeouts), (0, 0), "a closed window is no loss");
    let shares = row.shares.expect("time passed");
    assert!((0.40..0.52).contains(&shares[Limit::ZeroWindow as usize]), "{shares:?}");
    // What was read is what came.
    let read = 8e6 / 8.0 * 6.0;
    assert!((row.bytes as f64 - read).abs() < 210_000.0, "{} of {read}", row.bytes);
}

#[test]
fn window_probes_are_a_byte_below_and_come_at_growing_intervals() {
    // RFC 9293 section 3.8.6.1.
    let mut s = made::path(20.0, ms(40), 200, 12);
    s.flows[0].receiver.window = made::fixed(60_000);
    let rates = vec![Rate(8_000_000), Rate(0)];
    s.flows[0].receiver.read = Read::Profile { rates, slot: ms(6_000), tick: ms(20) };
    let seen = made::segments(&s, SENDER);
    let data_port = seen[0].src_port;
    let mut next = seen[0].seq.wrapping_add(1);
    let mut probes = Vec::new();
    for p in seen.iter().filter(|p| p.src_port == data_port) {
        if p.payload == 0 && p.seq == next.wrapping_sub(1) && p.options.mss.is_none() {
            probes.push(at_ms(p, &seen[0]));
        }
        next = next.max(p.seq.wrapping_add(p.payload));
    }
    assert!(probes.len() >= 3, "{probes:?}");
    let steps: Vec<f64> = probes.windows(2).map(|w| w[1] - w[0]).collect();
    for pair in steps.windows(2).take(3) {
        assert!((pair[1] / pair[0] - 2.0).abs() < 0.2, "{steps:?}");
    }
}

#[test]
fn a_window_below_a_segment_still_moves_data() {
    let mut s = made::path(10.0, ms(40), 50, 10);
    s.flows[0].receiver.window = made::fixed(1_000);
    let results = made::run(&s);
    // Segments of half the largest window that was ever advertised (Linux tcp_bound_to_half_wnd),
    // each acknowledged late, because it is no full one: about ten a second, not one for each
    // persist timer.
    let bytes = made::data(&results).bytes;
    assert!(bytes > 50_000, "{bytes} bytes");
}

#[test]
fn drwa_and_rledbat_hold_a_bloated_queue_down() {
    let bulk = |window| {
        let mut s = made::path(5.0, ms(50), 1_000, 20);
        s.warmup = ms(5_000);
        s.flows[0].sender.congestion = made::algorithm!(algo::cc, "cubic");
        s.flows[0].receiver.window = window;
        let results = made::run(&s);
        let row = made::data(&results).clone();
        (row.goodput.expect("data").0 as f64 / 1e6, row.queue_ms.expect("data").p50)
    };
    let (_, bloat) = bulk(made::fixed(4 << 20));
    assert!(bloat > 1_000.0, "{bloat} ms");
    for name in ["drwa", "rledbat"] {
        let (rate, queue) = bulk(made::algorithm!(algo::rwnd, name));
        assert!(queue < 200.0 && rate > 4.2, "{name}: {rate} Mbit/s, {queue} ms");
    }
}

#[test]
fn a_sender_without_data_is_limited_by_its_application() {
    let mut s = made::path(50.0, ms(40), 200, 10);
    s.flows[0].app = App::Rates { rates: vec![Rate(2_000_000)], slot: ms(1_000) };
    let results = made::run(&s);
    let row = made::data(&results);
    let shares = row.shares.expect("time passed");
    assert!(shares[Limit::Application as usize] > 0.95, "{shares:?}");
    let got = made::mbit_between(&results, ms(2_000), ms(8_000));
    assert!((got / 2.0 - 1.0).abs() < 0.01, "{got}");
}

#[test]
fn the_send_buffer_bounds_what_is_in_flight() {
    let mut s = made::path(50.0, ms(100), 2_000, 5);
    s.flows[0].sender.buffer = Bytes(64_000);
    let results = made::run(&s);
    let row = made::data(&results);
    assert!(row.in_flight_bytes.expect("series").max <= 64_000.0);
    let expected = 64_000.0 / MSS as f64;
    let got = made::mbit_between(&results, ms(2_000), ms(4_500)) * 1e6 / 8.0 * 0.1 / MSS as f64;
    assert!((got - expected.floor()).abs() < 1.5, "{got} segments a round trip of {expected}");
}

#[test]
fn jitter_and_loss_do_not_move_the_edge_back() {
    for seed in 0..6 {
        let mut s = made::path(10.0, ms(40), 60, 3);
        s.seed = seed;
        s.links[THERE].layers = vec![
            made::algorithm!(algo::link::layer, "loss", "rate" = Value::Number(0.02)),
            made::algorithm!(
                algo::link::layer,
                "jitter",
                "mean" = Value::Duration(ms(5)),
                "spread" = Value::Duration(ms(5)),
                "reorder" = Value::Flag(true),
            ),
        ];
        s.flows[0].receiver.window = made::fixed(20_000 + 7_777 * seed);
        s.flows[0].receiver.read = Read::Profile {
            rates: vec![Rate(2_000_000), Rate(9_000_000)],
            slot: ms(300),
            tick: ms(10),
        };
        assert_edge_never_moves_back(&made::segments(&s, RECEIVER), &format!("seed {seed}"));
    }
}

#[test]
fn counted_in_segments_a_pausing_reader_closes_the_window_once_per_period() {
    // The AFC slides' limitation 2: 1.45 Mbit/s and 328 zero windows in 600 s. Slot and tick are a
    // fit.
    let mut s = made::path(15.6, ms(530), 8_000, 600);
    let flow = &mut s.flows[0];
    flow.sender.congestion = made::transfer(0, 1, "newreno").sender.congestion;
    flow.sender.initial_window = 1;
    flow.sender.mss = Bytes(1_000);
    flow.sender.timestamps = false;
    flow.sender.slow_start_after_idle = false;
    flow.receiver.window = made::fixed(262_144);
    flow.receiver.ack_every = 1;
    flow.receiver.window_update = WindowUpdate::Segment;
    let rates = vec![Rate(0), Rate(6_000_000), Rate(6_000_000)];
    flow.receiver.read = Read::Profile { rates, slot: ms(600), tick: ms(100) };
    let results = made::run(&s);
    let row = made::data(&results);
    let got = row.bytes as f64 * 8.0 / 600e6;
    assert!((1.38..1.52).contains(&got), "{got} Mbit/s");
    assert!((312..345).contains(&row.zero_window_count), "{}", row.zero_window_count);
    // Today's receiver advertises the freed buffer in full.
    s.flows[0].receiver.window_update = WindowUpdate::Linux;
    assert!(made::data(&made::run(&s)).bytes as f64 * 8.0 / 600e6 > 2.0);
}

#[test]
fn afc_repairs_what_the_full_buffer_refused_and_follows_the_pausing_reader() {
    // The slides' limitation 2 again, where 4 Mbit/s are available: classic flow control gets 1.5
    // of them.
    let mut s = made::path(15.6, ms(530), 8_000, 120);
    let flow = &mut s.flows[0];
    flow.sender.congestion = made::transfer(0, 1, "newreno").sender.congestion;
    flow.sender.mss = Bytes(1_000);
    flow.sender.timestamps = false;
    flow.sender.slow_start_after_idle = false;
    flow.receiver.window =
        made::algorithm!(algo::rwnd, "afc", "buffer" = Value::Bytes(Bytes(262_144)));
    flow.receiver.ack_every = 1;
    flow.receiver.window_update = WindowUpdate::Segment;
    let rates = vec![Rate(0), Rate(6_000_000), Rate(6_000_000)];
    flow.receiver.read = Read::Profile { rates, slot: ms(600), tick: ms(100) };
    let results = made::run(&s);
    let got = made::mbit_between(&results, ms(20_000), ms(120_000));
    assert!(got > 3.8, "{got} Mbit/s");
    assert!(made::data(&results).retransmissions > 0, "nothing was refused");
    assert_eq!(made::data(&results).timeouts, 0);
}

/// AFC with a reader that stands for 10 s and reads for 20 s.
fn afc_with_pauses() -> Scenario {
    let mut s = made::path(15.6, ms(530), 8_000, 60);
    let flow = &mut s.flows[0];
    flow.sender.congestion = made::transfer(0, 1, "newreno").sender.congestion;
    flow.sender.timestamps = false;
    flow.receiver.window =
        made::algorithm!(algo::rwnd, "afc", "buffer" = Value::Bytes(Bytes(262_144)));
    let rates = vec![Rate(6_000_000), Rate(0), Rate(6_000_000)];
    flow.receiver.read = Read::Profile { rates, slot: ms(10_000), tick: ms(100) };
    s
}

#[test]
fn afc_sends_nothing_but_probes_to_a_full_buffer_whose_reader_stands() {
    let s = afc_with_pauses();
    let results = made::run(&s);
    // The profile begins with the connection, about 0.8 s late. The buffer is full by 11.2 s, and the
    // sender stops one RTT after it knows; reading starts again at 20.8 s.
    assert!(made::mbit_between(&results, ms(12_000), ms(20_000)) < 0.01);
    let paused = made::series(&results);
    let paused = paused.iter().filter(|s| (ms(12_000).0..ms(20_000).0).contains(&s.t.0));
    let again: u64 = paused.map(|s| s.retransmissions).sum();
    assert_eq!(again, 0);
    // Two RTTs for the refused data, then the reader's 6 Mbit/s.
    assert!(made::mbit_between(&results, ms(23_000), ms(33_000)) > 5.0, "it goes on");
}

#[test]
fn afc_goes_on_at_the_next_probe_where_the_acks_that_reopen_the_window_are_lost() {
    let mut s = afc_with_pauses();
    // Reading starts again at 20.8 s and empties the buffer in 0.35 s; nothing it says of that arrives.
    made::lose(&mut s, made::BACK, ms(20_500), ms(1_500));
    let seen = made::segments(&s, SENDER);
    let from = seen[0].src_port;
    let sent: Vec<(f64, u32)> = seen
        .iter()
        .filter(|p| p.src_port == from)
        .map(|p| (at_ms(p, &seen[0]), p.payload))
        .filter(|(at, _)| (13_000.0..40_000.0).contains(at))
        .collect();
    // RFC 9293 section 3.8.6.1: the interval between probes doubles, and no more than that.
    let first_data = sent.iter().position(|(_, payload)| *payload > 0).expect("it goes on");
    let probes = &sent[..first_data];
    let steps: Vec<f64> = probes.windows(2).map(|w| w[1].0 - w[0].0).collect();
    assert!(!steps.is_empty() && steps.windows(2).all(|w| w[1] < w[0] * 2.2), "{probes:?}");
    let (last_probe, resumed) = (probes[first_data - 1].0, sent[first_data].0);
    // One round trip of the probe that the reader's host answers, and its ACK's share of a tick.
    assert!(last_probe > 21_400.0 && resumed - last_probe < 650.0, "{probes:?}, {resumed}");
    assert!(made::mbit_between(&made::run(&s), ms(30_000), ms(36_000)) > 5.0, "at full rate");
}

#[test]
fn a_reader_that_its_processor_limits_gets_its_share_and_loses_nothing() {
    // (work in us per KB, share, busy processes, what it can read in Mbit/s)
    for (work_us, cpu, background, can) in
        [(200, 0.2, 0, 8.0), (200, 0.2, 3, 2.0), (20, 0.2, 3, 20.0), (20, 1.0, 0, 400.0)]
    {
        let mut s = made::path(6.0, ms(20), 60, 30);
        s.flows[0].receiver.window = made::fixed(256 << 10);
        s.flows[0].receiver.read =
            Read::Processor { work_per_kb: Duration::from_micros(work_us), cpu, background };
        let results = made::run(&s);
        let got = made::mbit_between(&results, ms(10_000), ms(30_000));
        let expected = f64::min(can, 6.0 * 1_448.0 / 1_500.0);
        assert!((got / expected - 1.0).abs() < 0.05, "{got} Mbit/s, not {expected}");
        let shares = made::data(&results).shares.expect("time passed");
        let limited = shares[Limit::ReceiveWindow as usize] + shares[Limit::ZeroWindow as usize];
        assert_eq!(limited > 0.5, can < 6.0, "{can} Mbit/s: {shares:?}");
    }
}

#[test]
fn a_file_is_read_to_its_end_by_a_reader_that_its_processor_limits() {
    let mut s = made::path(20.0, ms(20), 60, 30);
    s.flows[0].app = App::File { bytes: Bytes(3_000_001), every: None };
    s.flows[0].receiver.window = made::fixed(64 << 10);
    s.flows[0].receiver.read =
        Read::Processor { work_per_kb: Duration::from_millis(1), cpu: 0.3, background: 1 };
    let results = made::run(&s);
    assert_eq!(made::data(&results).bytes, 3_000_001);
}
