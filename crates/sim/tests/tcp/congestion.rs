//! What the congestion controls make of it, in closed forms.

use algo::Value;
use units::Bytes;

use crate::made::{self, MSS, ms};

#[test]
fn slow_start_doubles_each_round_trip() {
    let mut s = made::path(1_000.0, ms(100), 10_000, 1);
    s.bin = ms(100);
    let results = made::run(&s);
    // Bins of a round trip: the SYN, then 10, 20, 40 … segments.
    let sent: Vec<u64> = made::series(&results).iter().map(|r| r.sent / MSS).collect();
    assert_eq!(&sent[..6], &[10, 20, 40, 80, 160, 320], "{sent:?}");
}

#[test]
fn the_initial_window_is_not_paced_and_the_next_one_is() {
    let mut s = made::path(1_000.0, ms(100), 10_000, 1);
    s.flows[0].sender.congestion = made::algorithm!(algo::cc, "bbr");
    s.bin = ms(10);
    let results = made::run(&s);
    let sent: Vec<u64> = made::series(&results).iter().map(|r| r.sent / MSS).collect();
    assert_eq!(&sent[..10], &[10, 0, 0, 0, 0, 0, 0, 0, 0, 0], "{sent:?}");
    assert!(sent[10..20].iter().sum::<u64>() > 15, "{sent:?}");
    assert!(sent[10..20].iter().all(|n| *n < 10), "{sent:?}");
}

#[test]
fn newreno_halves_and_adds_a_segment_per_round_trip() {
    // RFC 5681: from half of the path's capacity back to the whole.
    let mut s = made::path(12.0, ms(50), 50, 40);
    s.flows[0].receiver.ack_every = 1;
    let results = made::run(&s);
    let row = made::data(&results);
    assert_eq!(row.retransmissions, row.lost_packets);
    let cwnd: Vec<f64> =
        made::series(&results).iter().skip(100).map(|r| r.cwnd as f64 / MSS as f64).collect();
    let most = cwnd.iter().copied().fold(0.0, f64::max);
    let least = cwnd.iter().copied().fold(f64::MAX, f64::min);
    // 50 packets of path and 50 of queue.
    assert!((98.0..106.0).contains(&most), "{most}");
    assert!((least / most - 0.5).abs() < 0.03, "{least} of {most}");
}

#[test]
fn cubic_is_back_at_its_old_window_after_k_seconds() {
    // RFC 9438 section 4.2: K = cbrt(W_max (1 − β) / C), C = 0.4, β = 0.7.
    let mut s = made::path(100.0, ms(100), 200, 60);
    s.flows[0].sender.congestion =
        made::algorithm!(algo::cc, "cubic", "fast_convergence" = Value::Flag(false));
    s.flows[0].receiver.window = made::fixed(16 << 20);
    s.flows[0].sender.buffer = Bytes(32 << 20);
    let results = made::run(&s);
    let series: Vec<(f64, f64)> = made::series(&results)
        .iter()
        .map(|r| ((r.t.0 + r.span.0) as f64 / 1e9, r.cwnd as f64 / MSS as f64))
        .collect();
    // The falls: the last bin before each and its window.
    let falls: Vec<(f64, f64)> =
        series.windows(2).filter(|w| w[1].1 < 0.9 * w[0].1).map(|w| w[0]).collect();
    assert!(falls.len() >= 4, "{falls:?}");
    for pair in falls[1..].windows(2) {
        // 833 segments of path and 200 of queue are W_max each time.
        let (begin, w_max) = pair[0];
        assert!((1_020.0..1_050.0).contains(&w_max), "{falls:?}");
        let k = (w_max * 0.3 / 0.4).cbrt();
        // A burst can overflow the queue a few segments before W_max, where the curve is flat.
        let span = pair[1].0 - begin;
        assert!(span > 0.65 * k && span < 1.35 * k, "K {k} s, {falls:?}");
        for share in [0.2, 0.4, 0.6] {
            let t = share * k;
            let curve = 0.4 * (t - k).powi(3) + w_max;
            let at = series.iter().find(|r| r.0 >= begin + t).expect("a bin").1;
            assert!((at / curve - 1.0).abs() < 0.02, "{at} at {share} K, {curve} on the curve");
        }
    }
}

#[test]
fn bbr_fills_the_pipe_without_filling_the_buffer() {
    for name in ["bbr", "bbr3"] {
        let mut s = made::path(20.0, ms(60), 2_000, 30);
        s.warmup = ms(5_000);
        s.flows[0].sender.congestion = made::algorithm!(algo::cc, name);
        let results = made::run(&s);
        let row = made::data(&results);
        let rate = row.goodput.expect("data").0 as f64 / 1e6;
        assert!(rate > 0.93 * 20.0 * 1_448.0 / 1_500.0, "{name}: {rate} Mbit/s");
        let bdp = 20e6 / 8.0 * 0.060 * 1_448.0 / 1_500.0;
        // Medians of each bin's largest: a probe for bandwidth has 1.25 BDP in flight.
        let in_flight = row.in_flight_bytes.expect("series").p50 / bdp;
        assert!(in_flight < 1.3, "{name}: {in_flight} BDP");
        assert!(row.queue_ms.expect("data").p50 < 20.0, "{name}: {row:?}");
        assert_eq!(row.retransmissions, 0, "{name}");
    }
}

#[test]
fn marks_of_codel_replace_drops_and_count_once_per_round_trip() {
    // RFC 3168 section 6.1.2.
    let mut s = made::path(10.0, ms(50), 1_000, 20);
    s.bin = ms(10);
    s.flows[0].sender.ecn = true;
    s.links[made::THERE].queue = made::algorithm!(algo::aqm, "codel", "ecn" = Value::Flag(true));
    let results = made::run(&s);
    let row = made::data(&results);
    assert_eq!((row.lost_packets, row.retransmissions), (0, 0), "{row:?}");
    assert!(row.ecn_ce >= 4, "{row:?}");
    let series = made::series(&results);
    let falls: Vec<_> = series.windows(2).filter(|w| w[1].cwnd * 10 < w[0].cwnd * 9).collect();
    assert!(falls.len() >= 4);
    for w in &falls {
        assert!(
            w[1].cwnd * 100 >= w[0].cwnd * 48,
            "{} after {} at {:?}",
            w[1].cwnd,
            w[0].cwnd,
            w[1].t
        );
    }
    for pair in falls.windows(2) {
        assert!(
            pair[1][1].t.0 - pair[0][1].t.0 >= ms(40).0,
            "{:?} and {:?}",
            pair[0][1].t,
            pair[1][1].t
        );
    }
    let got = made::mbit_between(&results, ms(5_000), ms(20_000));
    // Reno's saw tooth between a half and the whole of a path without much of a queue.
    assert!(got > 7.5, "{got} Mbit/s");
    // Without ECN the same queue drops.
    s.flows[0].sender.ecn = false;
    let dropped = made::run(&s);
    assert!(made::data(&dropped).lost_packets >= 4);
    assert_eq!(made::data(&dropped).ecn_ce, 0);
}

#[test]
fn low_priority_uses_an_idle_path_and_leaves_it_when_another_flow_comes() {
    let mut s = made::path(20.0, ms(50), 200, 60);
    s.flows[0].sender.congestion = made::algorithm!(algo::cc, "lp");
    let alone = made::run(&s);
    let rate = made::mbit_between(&alone, ms(10_000), ms(60_000));
    assert!(rate > 10.0, "{rate} Mbit/s on an idle path");
    let mut other = made::transfer(made::SENDER, made::RECEIVER, "cubic");
    other.name = "other".into();
    other.start = ms(20_000);
    s.flows.push(other);
    let both = made::run(&s);
    let bytes = |flow: u32| {
        let rows = both.samples.iter().filter(|r| r.flow == flow * 2 && r.t.0 > ms(30_000).0);
        rows.map(|r| r.delivered).sum::<u64>()
    };
    assert!(bytes(0) * 10 < bytes(1), "{} beside {}", bytes(0), bytes(1));
}

#[test]
fn idleness_brings_the_initial_window_back() {
    // RFC 5681 section 4.1.
    let burst = |restart: bool| {
        let mut s = made::path(1_000.0, ms(50), 10_000, 4);
        s.flows[0].sender.slow_start_after_idle = restart;
        s.flows[0].app = scenario::App::Requests {
            request: Bytes(300),
            responses: vec![Bytes(200 * MSS)],
            thinks: vec![ms(1_000)],
        };
        let seen = made::payloads(&made::segments(&s, made::SENDER));
        let data: Vec<_> = seen.iter().filter(|p| p.payload > 300).collect();
        // The second answer's first burst.
        let second = data.get(200).expect("a second answer");
        data[200..].iter().filter(|p| made::at_ms(p, second) < 20.0).count()
    };
    assert_eq!(burst(true), 10);
    assert!(burst(false) > 50);
}

#[test]
fn pacing_spreads_a_window_over_the_round_trip() {
    let gaps = |pacing: bool| {
        let mut s = made::path(1_000.0, ms(100), 10_000, 3);
        s.flows[0].sender.pacing = pacing;
        s.flows[0].receiver.window = made::fixed(50 * MSS);
        let data = made::payloads(&made::segments(&s, made::SENDER));
        let late: Vec<_> = data.iter().filter(|p| made::at_ms(p, &data[0]) > 1_000.0).collect();
        late.windows(2).filter(|w| made::at_ms(w[1], w[0]) < 0.5).count() as f64 / late.len() as f64
    };
    assert!(gaps(false) > 0.9, "{}", gaps(false));
    assert!(gaps(true) < 0.6, "{}", gaps(true));
}

#[test]
fn what_is_paced_leaves_in_pairs_and_one_by_one_where_the_rate_is_low() {
    // Linux `tcp_tso_autosize` and `bbr_min_tso_segs`: above 1.2 Mbit/s two segments at least.
    let pairs = |mbps: f64| {
        let mut s = made::path(mbps, ms(20), 100, 10);
        s.flows[0].sender.congestion = made::algorithm!(algo::cc, "bbr");
        let data = made::payloads(&made::segments(&s, made::SENDER));
        let late: Vec<_> = data.iter().filter(|p| made::at_ms(p, &data[0]) > 3_000.0).collect();
        late.windows(2).filter(|w| made::at_ms(w[1], w[0]) < 0.1).count() as f64 / late.len() as f64
    };
    let (fast, slow) = (pairs(4.0), pairs(0.8));
    assert!((0.4..0.6).contains(&fast), "{fast}");
    assert!(slow < 0.05, "{slow}");
}

#[test]
fn round_trips_of_the_warm_up_are_no_part_of_the_statistics() {
    let mut s = made::path(10.0, ms(20), 30, 8);
    let mut longer = s.links[made::THERE].clone();
    longer.delay = ms(110);
    let what = vec![scenario::Changed::Link(made::THERE, longer)];
    s.changes.push(scenario::Change { at: ms(3_000), what });
    let whole = made::data(&made::run(&s)).rtt_ms.expect("data").min;
    s.warmup = ms(4_000);
    let after = made::data(&made::run(&s)).rtt_ms.expect("data").min;
    assert!(whole < 25.0 && after >= 120.0, "{whole} and {after} ms");
}
