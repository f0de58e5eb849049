//! Clauses of `tcp_bbr.c` one by one, then whole connections over a path.

use std::vec::Vec;

use super::*;
use crate::cc::testing::{MSS, Path, RoundTrips, Summary, measure};

const MS: u64 = 1_000_000;

fn new() -> Bbr {
    Bbr::new(Config::default(), &Setup::default())
}

/// A connection in ProbeBW whose ACKs had this rate so far.
fn probing(rate: u64) -> RoundTrips<Bbr> {
    let mut it = RoundTrips::new(new());
    for _ in 0..5 {
        it.ack(rate, |_| {});
    }
    assert_eq!(it.cc.mode, Mode::ProbeBw);
    it
}

/// tcp_bbr.c, `bbr_check_full_bw_reached`: three rounds below 1.25 times end Startup.
#[test]
fn startup_ends_after_three_rounds_that_grow_by_less_than_a_quarter() {
    let mut it = RoundTrips::new(new());
    for rate in [100_000, 200_000, 400_000, 800_000] {
        it.ack(rate, |_| {});
        assert_eq!(it.cc.state().phase, "startup");
    }
    it.ack(900_000, |ack| ack.in_flight = Bytes(900_000));
    it.ack(990_000, |ack| ack.in_flight = Bytes(900_000));
    assert_eq!(it.cc.state().phase, "startup");
    it.ack(999_000, |ack| ack.in_flight = Bytes(900_000));
    assert_eq!(it.cc.state().phase, "drain");
    // … and Drain ends when one bandwidth-delay product is left.
    it.ack(999_000, |ack| ack.in_flight = Bytes(99_900));
    assert_eq!(it.cc.state().phase, "probe_bw");
}

/// The same function: growth by a quarter restarts the count, application-limited rounds do not count.
#[test]
fn startup_goes_on_while_the_rate_grows_or_the_application_is_slow() {
    let mut it = RoundTrips::new(new());
    for i in 0..12_u64 {
        it.ack(100_000 * 13_u64.pow(i as u32 / 3) / 10_u64.pow(i as u32 / 3), |_| {});
    }
    assert_eq!(it.cc.state().phase, "startup");
    for _ in 0..20 {
        it.ack(50_000, |ack| ack.rate.app_limited = true);
    }
    assert_eq!(it.cc.state().phase, "startup");
}

/// tcp_bbr.c, `bbr_bw_rtts` = 10: the estimate is the largest rate of ten rounds.
#[test]
fn the_bandwidth_is_the_largest_rate_of_ten_rounds() {
    let mut it = probing(1_000_000);
    it.ack(2_000_000, |_| {});
    for _ in 0..10 {
        it.ack(1_000_000, |_| {});
        assert_eq!(it.cc.max_rate.get(), 2e6);
    }
    it.ack(1_000_000, |_| {});
    assert_eq!(it.cc.max_rate.get(), 1e6);
}

/// tcp_bbr.c, `bbr_update_bw`: a slow application does not lower the estimate, a faster sample raises it all the same.
#[test]
fn an_application_limited_rate_counts_only_when_it_is_larger() {
    let mut it = probing(1_000_000);
    for _ in 0..30 {
        it.ack(10_000, |ack| ack.rate.app_limited = true);
    }
    assert_eq!(it.cc.max_rate.get(), 1e6);
    it.ack(1_500_000, |ack| ack.rate.app_limited = true);
    assert_eq!(it.cc.max_rate.get(), 1.5e6);
}

/// tcp_bbr.c, `bbr_pacing_gain` and `bbr_reset_probe_bw_mode`.
#[test]
fn the_gain_cycle_has_eight_phases_in_order_and_never_begins_with_the_one_that_drains() {
    let mut first = Vec::new();
    for seed in 0..200 {
        let mut cc = new();
        let mut rng = Rng::new(seed, "phase");
        cc.enter_probe_bw(Instant::ZERO, &mut rng);
        first.push(cc.phase);
    }
    assert!(!first.contains(&1));
    for phase in [0, 2, 3, 4, 5, 6, 7] {
        assert!(first.contains(&phase), "phase {phase}");
    }
    let mut it = probing(1_000_000);
    let mut gains = Vec::new();
    for _ in 0..24 {
        it.ack(1_000_000, |ack| {
            // RTTs within the phase's length, and the probe's target in flight.
            ack.rtt = Some(Duration::from_millis(99));
            ack.prior_in_flight = Bytes(200_000);
        });
        gains.push(it.cc.pacing_gain);
    }
    let start = gains.iter().position(|g| *g == 1.25).expect("a cycle is eight phases long");
    assert_eq!(gains[start..start + 8], CYCLE);
}

/// tcp_bbr.c, `bbr_is_next_cycle_phase`: the probing phase lasts until 1.25 products are in flight, or something is lost.
#[test]
fn the_probing_phase_waits_for_its_target_or_a_loss() {
    let mut it = probing(1_000_000);
    it.cc.phase = PROBING;
    it.cc.set_gains();
    for _ in 0..5 {
        it.ack(1_000_000, |ack| ack.prior_in_flight = Bytes(100_000));
    }
    assert_eq!(it.cc.phase, PROBING);
    it.ack(1_000_000, |ack| {
        ack.prior_in_flight = Bytes(100_000);
        ack.lost = Bytes(MSS);
    });
    assert_eq!(it.cc.phase, PROBING + 1);
}

/// tcp_bbr.c, `bbr_pacing_margin_percent`: 1 % below the estimate.
#[test]
fn it_paces_one_per_cent_below_the_estimate() {
    let mut it = probing(1_000_000);
    it.cc.phase = 4;
    it.cc.set_gains();
    it.cc.set_pacing(1.0, Duration::ZERO);
    assert_eq!(it.cc.pacing_rate(), Some(Rate(7_920_000)));
}

/// tcp_bbr.c, `bbr_init_pacing_rate_from_rtt`.
#[test]
fn the_first_pacing_rate_is_the_initial_window_over_a_round_trip() {
    let mut cc = new();
    let nominal = 2.885 * 0.99 * 14_480.0 * 8.0 / 0.001;
    let near = |cc: &Bbr, rate: f64| (cc.pacing * 8.0 / rate - 1.0).abs() < 1e-9;
    assert!(near(&cc, nominal));
    // The handshake's RTT, in an ACK that delivers no data.
    let ack = Ack {
        rtt: Some(Duration::from_millis(40)),
        srtt: Duration::from_millis(40),
        min_rtt: Duration::from_millis(40),
        ..Ack::default()
    };
    cc.on_ack(Instant(5), &ack, &mut Rng::new(1, "test"));
    assert!(near(&cc, nominal / 40.0));
    assert_eq!(cc.min_rtt, Duration::from_millis(40));
    assert_eq!(cc.window(), Bytes(14_480));
}

/// tcp_bbr.c, `bbr_update_min_rtt`: after 10 s without a smaller RTT four segments for at least 200 ms and a round;
/// then the estimate is the new one and the window the old one.
#[test]
fn after_ten_seconds_four_segments_for_200_ms_and_a_round_renew_the_rtt() {
    let mut it = probing(1_000_000);
    let window = it.cc.window();
    let entered = loop {
        it.ack(1_000_000, |ack| ack.rtt = Some(Duration::from_millis(120)));
        if it.cc.mode == Mode::ProbeRtt {
            break it.now;
        }
        assert_eq!(it.cc.min_rtt, Duration::from_millis(100));
    };
    assert_eq!(entered.since(Instant(50_100 * MS)), Duration::from_millis(10_100));
    assert_eq!(it.cc.min_rtt, Duration::from_millis(120));
    assert_eq!(it.cc.window(), Bytes(4 * MSS));
    // Above four segments in flight the 200 ms do not begin.
    it.ack(1_000_000, |ack| ack.in_flight = Bytes(50_000));
    it.ack(1_000_000, |ack| ack.in_flight = Bytes(50_000));
    it.ack(50_000, |ack| ack.in_flight = Bytes(4 * MSS));
    let begun = it.now;
    while it.cc.mode == Mode::ProbeRtt {
        assert_eq!(it.cc.window(), Bytes(4 * MSS));
        it.ack(50_000, |ack| ack.in_flight = Bytes(4 * MSS));
    }
    assert!(it.now.since(begun) > Duration::from_millis(200));
    assert!(it.now.since(begun) <= Duration::from_millis(400));
    assert!(it.cc.window() >= window, "{} of {window}", it.cc.window());
    assert_eq!(it.cc.max_rate.get(), 1e6, "the rate in ProbeRTT is not that of the path");
}

/// tcp_bbr.c, `bbr_update_min_rtt`: the mode is set before `bbr_save_cwnd`, which keeps the larger of two windows then.
#[test]
fn a_larger_window_that_was_saved_before_is_kept_at_the_beginning_of_probe_rtt() {
    let mut it = probing(1_000_000);
    let saved = it.cc.window() + Bytes(100 * MSS);
    it.cc.prior_window = saved;
    while it.cc.mode != Mode::ProbeRtt {
        it.ack(1_000_000, |ack| ack.rtt = Some(Duration::from_millis(120)));
    }
    assert_eq!(it.cc.prior_window, saved);
}

/// tcp_bbr.c, `idle_restart`: during idle time the queue has drained already.
#[test]
fn after_idleness_no_probe_rtt_is_needed() {
    let mut it = probing(1_000_000);
    it.now = it.now + Duration::from_secs(11);
    let sent = Sent { bytes: Bytes(MSS), in_flight: Bytes::ZERO, app_limited: true };
    it.cc.on_sent(it.now, &sent, &mut it.rng);
    assert_eq!(it.cc.pacing_rate(), Some(Rate(7_920_000)));
    it.ack(1_000_000, |ack| ack.rtt = Some(Duration::from_millis(130)));
    assert_eq!(it.cc.state().phase, "probe_bw");
    assert_eq!(it.cc.min_rtt, Duration::from_millis(130));
}

/// tcp_bbr.c, `bbr_set_cwnd_to_recover_or_restore`.
#[test]
fn a_loss_conserves_packets_for_one_round_and_the_window_comes_back() {
    let mut it = probing(1_000_000);
    let window = it.cc.window();
    it.cc.on_loss(it.now, &Loss { lost: Bytes(MSS), in_flight: window });
    it.ack(1_000_000, |ack| {
        ack.acked = Bytes(2 * MSS);
        ack.lost = Bytes(3 * MSS);
        ack.in_flight = Bytes(40 * MSS);
        ack.recovery = Recovery::Recovering;
        ack.rate.prior_delivered = Bytes(0);
    });
    assert_eq!(it.cc.window(), Bytes(42 * MSS));
    it.ack(1_000_000, |ack| {
        ack.acked = Bytes(2 * MSS);
        ack.in_flight = Bytes(40 * MSS);
        ack.recovery = Recovery::Recovering;
        ack.rate.prior_delivered = Bytes(0);
    });
    assert_eq!(it.cc.window(), Bytes(42 * MSS), "as much leaves as arrives");
    // The next round grows by what is acknowledged.
    it.ack(1_000_000, |ack| {
        ack.acked = Bytes(2 * MSS);
        ack.recovery = Recovery::Recovering;
    });
    assert_eq!(it.cc.window(), Bytes(44 * MSS));
    it.cc.on_recovered(it.now);
    assert_eq!(it.cc.window(), window);
}

/// tcp_bbr.c, `bbr_set_state` and `tcp_enter_loss`: one segment after a timeout, four after the next ACK, then the old
/// window.
#[test]
fn a_timeout_leaves_one_segment_until_all_losses_are_repaired() {
    let mut it = probing(1_000_000);
    let window = it.cc.window();
    it.cc.on_timeout(it.now, &Timeout { in_flight: window, count: 1 });
    assert_eq!(it.cc.window(), Bytes(MSS));
    it.ack(10_000, |ack| {
        ack.acked = Bytes(MSS);
        ack.recovery = Recovery::Lost;
    });
    assert_eq!(it.cc.window(), Bytes(4 * MSS));
    it.ack(10_000, |ack| ack.recovery = Recovery::Open);
    assert!(it.cc.window() >= window);
}

/// tcp_bbr.c, `bbr_quantization_budget`: two products, three bursts of two segments, an even number.
#[test]
fn the_window_is_two_products_and_three_bursts() {
    let mut it = probing(144_800);
    for _ in 0..40 {
        it.ack(144_800, |ack| ack.acked = Bytes(10 * MSS));
    }
    it.cc.aggregation = Aggregation::new(Bytes(MSS));
    it.cc.phase = 4;
    // 14,480 bytes are ten segments; at 1.16 Mbit/s bursts are single segments, above 1.2 Mbit/s pairs.
    assert_eq!(it.cc.inflight(144_800.0, 2.0), Bytes((20 + 3 + 1) * MSS));
    it.cc.pacing = 2e5;
    assert_eq!(it.cc.inflight(144_800.0, 2.0), Bytes((20 + 6) * MSS));
    it.cc.phase = PROBING;
    assert_eq!(it.cc.inflight(144_800.0, 2.0), Bytes((20 + 6 + 2) * MSS));
}

fn steady(path: &mut Path, cc: &mut Bbr, warm_up: u64, seconds: u64) -> Summary {
    measure(path, cc, warm_up, seconds, Rng::new(9, "bbr"))
}

/// Queue paper, figure 1: the operating point is the bandwidth-delay product, not the buffer.
#[test]
fn on_a_fixed_link_it_fills_the_path_and_leaves_the_deep_buffer_empty() {
    let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(2_000_000));
    let mut cc = new();
    let s = steady(&mut path, &mut cc, 5, 20);
    let bdp = path.bdp() as f64;
    assert!(s.in_flight_mean > bdp && s.in_flight_mean < 2.0 * bdp, "{s:?}");
    assert!(s.goodput > 0.95 * path.goodput(), "{s:?}");
    // A full buffer would be a delay of 1.6 s.
    assert!(s.queue_mean < Duration::from_millis(20), "{}", s.queue_mean);
    assert!(s.queue_max < Duration::from_millis(80), "{}", s.queue_max);
    let rate = cc.max_rate.get() * 8.0;
    assert!((rate / path.goodput() - 1.0).abs() < 0.03, "{rate} of {}", path.goodput());
    assert_eq!(s.loss_rate, 0.0);
}

/// A loss of 1 % that is no congestion does not slow it down.
#[test]
fn random_loss_of_one_per_cent_costs_little() {
    let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(200_000));
    path.loss = 0.01;
    let mut cc = new();
    let s = steady(&mut path, &mut cc, 5, 20);
    assert!(s.goodput > 0.9 * path.goodput(), "{s:?}");
}

/// The rate falls to a tenth: the estimate follows within the filter's ten rounds and the queue drains.
#[test]
fn when_the_link_slows_down_the_queue_drains_within_seconds() {
    let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(2_000_000));
    let mut cc = new();
    steady(&mut path, &mut cc, 5, 1);
    path.rate = Rate(1_000_000);
    let s = steady(&mut path, &mut cc, 12, 5);
    assert!(s.queue_mean < Duration::from_millis(150), "{}", s.queue_mean);
    assert!(s.goodput > 0.9 * path.goodput(), "{s:?}");
}

/// tcp_bbr.c, `bbr_cwnd_min_target`: where the product is two segments the path is full all the same.
#[test]
fn a_path_of_two_segments_is_filled_and_its_queue_stays_a_few_segments() {
    let mut path = Path::new(Rate(240_000), Duration::from_millis(100), Bytes(500_000));
    let mut cc = new();
    let s = steady(&mut path, &mut cc, 20, 60);
    assert!(s.goodput > 0.9 * path.goodput(), "{s:?}");
    // A segment takes 50 ms here.
    assert!(s.queue_mean < Duration::from_millis(400), "{}", s.queue_mean);
}

/// A slow application is not the path: the estimate stays and no queue grows.
#[test]
fn a_slow_application_leaves_the_estimate_alone() {
    let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(2_000_000));
    let mut cc = new();
    steady(&mut path, &mut cc, 5, 1);
    path.app_rate = Some(Rate(1_000_000));
    let s = steady(&mut path, &mut cc, 2, 20);
    assert!(s.queue_max < Duration::from_millis(10), "{}", s.queue_max);
    let rate = cc.max_rate.get() * 8.0;
    assert!((rate / path.goodput() - 1.0).abs() < 0.05, "{rate} of {}", path.goodput());
}
