//! Clauses of draft-ietf-ccwg-bbr one by one, then whole connections over a path.

use std::vec::Vec;

use super::*;
use crate::cc::testing::{MSS, Path, RoundTrips, Summary, measure};

const MS: u64 = 1_000_000;

fn new() -> Bbr3 {
    Bbr3::new(Config::default(), &Setup::default())
}

/// A connection that has just entered `phase`, after ACKs of this rate.
fn until(rate: u64, phase: Phase) -> RoundTrips<Bbr3> {
    let mut it = RoundTrips::new(new());
    for _ in 0..200 {
        if it.cc.phase == phase {
            return it;
        }
        it.ack(rate, |_| {});
    }
    panic!("{phase:?} is never reached, {:?} is", it.cc.phase);
}

/// Section 5.3.1.2 and appendix "Exiting STARTUP on Bandwidth Plateau".
#[test]
fn startup_ends_after_three_rounds_that_grow_by_less_than_a_quarter() {
    let mut it = RoundTrips::new(new());
    for rate in [100_000, 200_000, 400_000, 800_000] {
        it.ack(rate, |_| {});
        assert_eq!(it.cc.state().phase, "startup");
    }
    for rate in [850_000, 900_000] {
        it.ack(rate, |ack| ack.in_flight = Bytes(900_000));
        assert_eq!(it.cc.state().phase, "startup");
    }
    it.ack(950_000, |ack| ack.in_flight = Bytes(900_000));
    assert_eq!(it.cc.state().phase, "drain");
    assert_eq!(it.cc.pacing_gain(), 0.5);
}

/// Appendix "Never Exiting PROBE_UP (or STARTUP) When Application-Limited With No Loss".
#[test]
fn a_slow_application_does_not_end_startup() {
    let mut it = RoundTrips::new(new());
    for _ in 0..50 {
        it.ack(100_000, |ack| ack.rate.app_limited = true);
    }
    assert_eq!(it.cc.state().phase, "startup");
}

/// Section 5.3.1.3: a round of recovery with six losses and more than 2 % of the flight.
#[test]
fn startup_ends_on_six_losses_that_are_more_than_two_per_cent() {
    let losing = |losses: u64, share: u64| {
        let mut it = RoundTrips::new(new());
        for rate in [100_000, 200_000, 400_000, 800_000] {
            it.ack(rate, |_| {});
        }
        let round_began = it.delivered;
        for i in 0..losses {
            it.ack(16_000, |ack| {
                ack.lost = Bytes(MSS);
                ack.recovery = Recovery::Recovering;
                ack.rate.prior_delivered = Bytes(round_began - 1_000 + i);
            });
        }
        it.ack(1_600_000, |ack| {
            ack.in_flight = Bytes(1_600_000);
            ack.recovery = Recovery::Recovering;
            ack.rate.in_flight_at_send = Bytes(160_000);
            ack.rate.lost = Bytes(1_600 * share);
        });
        it.cc
    };
    let cc = losing(6, 3);
    assert_eq!(cc.state().phase, "drain");
    // The bound is the data delivered in the round, at least the product.
    assert_eq!(cc.inflight_longterm, Bytes(160_000));
    assert_eq!(losing(5, 3).state().phase, "startup");
    assert_eq!(losing(6, 1).state().phase, "startup");
}

/// Section 5.3.2 and appendix "Exiting DRAIN Based on Time".
#[test]
fn drain_ends_at_one_product_or_after_three_rounds() {
    let mut it = until(1_000_000, Phase::Down);
    it.cc.enter_drain();
    it.ack(1_000_000, |ack| ack.in_flight = Bytes(100_001));
    assert_eq!(it.cc.phase, Phase::Drain);
    it.ack(1_000_000, |ack| ack.in_flight = Bytes(100_000));
    assert_eq!(it.cc.phase, Phase::Cruise, "no excess has to drain");
    it.cc.enter_drain();
    for _ in 0..3 {
        it.ack(1_000_000, |ack| ack.in_flight = Bytes(150_000));
        assert_eq!(it.cc.phase, Phase::Drain);
    }
    it.ack(1_000_000, |ack| ack.in_flight = Bytes(150_000));
    assert_eq!(it.cc.phase, Phase::Down);
}

/// Section 5.3.3: Down, Cruise, Refill for a round, Up until three rounds bring no more, Down.
#[test]
fn the_cycle_is_down_cruise_refill_up() {
    let mut it = until(1_000_000, Phase::Cruise);
    let mut phases: Vec<(Phase, u32)> = Vec::new();
    for _ in 0..80 {
        match phases.last_mut() {
            Some((phase, rounds)) if *phase == it.cc.phase => *rounds += 1,
            _ => phases.push((it.cc.phase, 1)),
        }
        it.ack(1_000_000, |ack| ack.in_flight = Bytes(90_000));
        it.cc.probe_rtt_min_at = it.now;
    }
    let order: Vec<Phase> = phases.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(order[..4], [Phase::Cruise, Phase::Refill, Phase::Up, Phase::Down], "{phases:?}");
    assert_eq!(order[4], Phase::Cruise, "{phases:?}");
    assert_eq!(phases[1].1, 1);
    assert_eq!(phases[2].1, 3);
    // "Time Scale for Bandwidth Probing": 2 to 3 s between probes.
    let wait = phases[3].1 + phases[4].1;
    assert!((20..=31).contains(&wait), "{phases:?}");
}

/// Section 5.3.3, IsRenoCoexistenceProbeTime: a product of few segments is probed after as many rounds, as Reno would grow.
#[test]
fn a_small_product_is_probed_after_as_many_rounds_as_it_has_segments() {
    let mut it = until(10 * 14_480, Phase::Down);
    let mut rounds = 0;
    while it.cc.phase != Phase::Refill {
        it.ack(10 * 14_480, |_| {});
        rounds += 1;
    }
    assert!((9..=11).contains(&rounds), "{rounds}");
}

/// Section 5.5.10.2, HandleInflightTooHigh: more than 2 % lost while probing cuts the long-term bound to what was in
/// flight, at least 0.7 of the target, and ends the probe.
#[test]
fn a_probe_that_loses_more_than_two_per_cent_sets_the_longterm_bound() {
    let mut it = until(1_000_000, Phase::Up);
    assert_eq!(it.cc.inflight_longterm, UNBOUNDED);
    let lose = |it: &mut RoundTrips<Bbr3>, flight: u64, lost: u64| {
        it.cc.on_loss(it.now, &Loss { lost: Bytes(lost), in_flight: Bytes(flight) });
        it.ack(1_000_000, |ack| {
            ack.lost = Bytes(lost);
            ack.rate.lost = Bytes(lost);
            ack.rate.in_flight_at_send = Bytes(flight);
            ack.in_flight = Bytes(flight);
            ack.recovery = Recovery::Recovering;
        });
    };
    let mut tolerated = RoundTrips { cc: it.cc.clone(), rng: it.rng.clone(), ..it };
    lose(&mut tolerated, 125_000, 2_400);
    assert_eq!(tolerated.cc.phase, Phase::Up);
    assert_eq!(tolerated.cc.inflight_longterm, UNBOUNDED);
    let mut deep = RoundTrips { cc: it.cc.clone(), rng: it.rng.clone(), ..it };
    lose(&mut deep, 30_000, 4_000);
    assert_eq!(deep.cc.inflight_longterm, Bytes(70_000));
    lose(&mut it, 125_000, 4_000);
    assert_eq!(it.cc.phase, Phase::Down);
    // 121,000 were out before what was lost; 2 % are passed when x more are: 0.02 (121,000 + x) = x.
    assert_eq!(it.cc.inflight_longterm, Bytes(121_000 + 2_469));
    // InflightWithHeadroom: 15 % remain for other flows.
    assert_eq!(it.cc.with_headroom(), Bytes(123_469 - 18_520));
    // Section 5.5.11: undone if the loss was spurious.
    it.cc.on_spurious(it.now);
    assert_eq!(it.cc.inflight_longterm, UNBOUNDED);
    assert_eq!(it.cc.phase, Phase::Refill);
}

/// Section 5.5.10.3: elsewhere a lossy round leaves the larger of what was delivered and 0.7 of the short-term bound.
#[test]
fn a_lossy_round_in_cruise_reduces_the_shortterm_bounds_and_the_next_probe_resets_them() {
    let mut it = until(1_000_000, Phase::Cruise);
    let window = it.cc.window();
    let lossy = |ack: &mut Ack| {
        ack.lost = Bytes(MSS);
        ack.recovery = Recovery::Recovering;
    };
    // The round of the first loss delivered as much as before …
    it.ack(300_000, lossy);
    it.ack(300_000, lossy);
    assert_eq!(it.cc.rate_shortterm, 1e6);
    let near = |bytes: Bytes, expected: f64| (bytes.0 as f64 / expected - 1.0).abs() < 0.02;
    assert!(near(it.cc.inflight_shortterm, 0.7 * window.0 as f64), "{}", it.cc.inflight_shortterm);
    // … the next one 0.3 of it.
    it.ack(300_000, lossy);
    it.ack(300_000, |ack| ack.recovery = Recovery::Recovering);
    assert!((it.cc.rate_shortterm - 0.7e6).abs() < 1.0, "{}", it.cc.rate_shortterm);
    assert!(near(it.cc.inflight_shortterm, 0.49 * window.0 as f64), "{}", it.cc.inflight_shortterm);
    assert_eq!(it.cc.window(), it.cc.inflight_shortterm);
    assert_eq!(it.cc.rate, it.cc.rate_shortterm);
    while it.cc.phase != Phase::Refill {
        it.ack(500_000, |_| {});
    }
    assert_eq!(it.cc.rate, 1e6);
    assert_eq!(it.cc.inflight_shortterm, UNBOUNDED);
}

/// Section 5.3.3, "Accelerating to Probe for Bandwidth": the long-term bound grows by 1, 2, 4 … segments per round.
#[test]
fn the_longterm_bound_grows_by_one_two_four_segments_per_round() {
    let mut it = until(1_000_000, Phase::Refill);
    it.cc.inflight_longterm = Bytes(120_000);
    it.cc.window = Bytes(120_000);
    let mut steps = Vec::new();
    for _ in 0..4 {
        let before = it.cc.inflight_longterm;
        it.ack(1_300_000, |ack| {
            ack.in_flight = Bytes(110_000);
            ack.rate.in_flight_at_send = Bytes(110_000);
        });
        steps.push((it.cc.inflight_longterm - before).0 / MSS);
    }
    // The window's worth is delivered a little more than once per round here.
    assert_eq!(steps, [0, 1, 2, 4]);
}

/// Section 5.3.3, "Exit Conditions for Bandwidth Probing": where the bound, not the path, keeps the rate from growing, the probe goes on.
#[test]
fn a_plateau_at_the_longterm_bound_does_not_end_the_probe() {
    let mut it = until(1_000_000, Phase::Up);
    it.cc.full_now = true;
    it.cc.inflight_longterm = it.cc.window;
    let ack = Ack { window_limited: true, in_flight: Bytes(100_000), ..Ack::default() };
    assert!(!it.cc.must_go_down(&ack, 1e6));
    assert!(!it.cc.full_now);
    it.cc.full_now = true;
    it.cc.inflight_longterm = UNBOUNDED;
    assert!(it.cc.must_go_down(&ack, 1e6));
}

/// Section 5.3.3, "Precautionary Bandwidth Probing": after a lossy probe the next one only touches the bound, and a
/// whole one follows when that is safe.
#[test]
fn after_a_lossy_probe_the_next_one_is_cautious() {
    let mut it = until(1_000_000, Phase::Up);
    it.cc.too_high = true;
    it.cc.inflight_longterm = Bytes(110_000);
    it.ack(1_000_000, |ack| ack.in_flight = Bytes(110_000));
    assert_eq!(it.cc.phase, Phase::Down);
    assert!(it.cc.precautionary && !it.cc.too_high);
    it.ack(1_000_000, |_| {});
    assert_eq!(it.cc.phase, Phase::Refill);
}

/// Section 5.5.6, MaxBwFilterLen = 2: the cycle before the last one does not count.
#[test]
fn the_bandwidth_is_the_largest_rate_of_two_cycles() {
    let mut it = until(1_000_000, Phase::Cruise);
    it.cc.max_rates = [0.0, 2e6];
    let mut cycles = 0;
    while it.cc.max_rate() > 1e6 {
        let before = it.cc.phase;
        it.ack(1_000_000, |ack| ack.in_flight = Bytes(90_000));
        it.cc.probe_rtt_min_at = it.now;
        cycles += u32::from(before == Phase::Up && it.cc.phase == Phase::Down);
    }
    assert_eq!(cycles, 2);
}

/// Section 5.6.2: 1 % below the estimate; InitPacingRate before there is one.
#[test]
fn it_paces_one_per_cent_below_the_estimate() {
    let mut it = until(1_000_000, Phase::Cruise);
    it.ack(1_000_000, |_| {});
    assert_eq!(it.cc.pacing_rate(), Some(Rate(7_920_000)));
    let mut cc = new();
    let handshake = Ack {
        rtt: Some(Duration::from_millis(40)),
        srtt: Duration::from_millis(40),
        min_rtt: Duration::from_millis(40),
        ..Ack::default()
    };
    cc.on_ack(Instant(9), &handshake, &mut it.rng);
    assert!((cc.pacing - 2.77 * 14_480.0 / 0.04).abs() < 1.0);
    assert_eq!(cc.min_rtt, Duration::from_millis(40));
}

/// Section 5.3.4, ProbeRTTInterval, ProbeRTTDuration: every 5 s without a smaller RTT, half a product for at least 200 ms and a round.
#[test]
fn probe_rtt_keeps_half_a_product_in_flight_for_200_ms() {
    let mut it = until(1_000_000, Phase::Cruise);
    let slow = |ack: &mut Ack| ack.rtt = Some(Duration::from_millis(150));
    while it.cc.phase != Phase::ProbeRtt {
        assert!(it.now < Instant(60_000 * MS));
        it.ack(1_000_000, slow);
    }
    assert_eq!(it.now.since(Instant(50_100 * MS)), Duration::from_millis(5_100));
    assert_eq!(it.cc.window(), Bytes(50_000), "half of 100 ms at 1 MB/s, not of 150 ms");
    assert_eq!(it.cc.min_rtt, Duration::from_millis(100), "which counts for 10 s");
    it.ack(1_000_000, |ack| ack.in_flight = Bytes(80_000));
    let begun = it.now + Duration::from_millis(100);
    while it.cc.phase == Phase::ProbeRtt {
        assert_eq!(it.cc.window(), Bytes(50_000));
        it.ack(500_000, slow);
    }
    let lasted = it.now.since(begun);
    assert!(
        lasted > Duration::from_millis(200) && lasted <= Duration::from_millis(400),
        "{lasted}"
    );
    assert_eq!(it.cc.phase, Phase::Cruise);
    assert_eq!(it.cc.max_rate(), 1e6, "the rate in ProbeRTT is not that of the path");
    assert!(it.cc.window() > Bytes(150_000));
}

/// Section 5.5.7: the smallest RTT expires after 10 s.
#[test]
fn a_longer_path_replaces_the_rtt_after_ten_seconds() {
    let mut it = until(1_000_000, Phase::Cruise);
    let begun = Instant(50_100 * MS);
    while it.cc.min_rtt == Duration::from_millis(100) {
        it.ack(1_000_000, |ack| ack.rtt = Some(Duration::from_millis(150)));
    }
    assert_eq!(it.cc.min_rtt, Duration::from_millis(150));
    let took = it.now.since(begun);
    assert!(took > Duration::from_secs(10) && took < Duration::from_millis(10_300), "{took}");
}

/// Section 5.4: after idleness it paces at the estimate, and the RTT needs no probe.
#[test]
fn after_idleness_no_probe_rtt_is_needed() {
    let mut it = until(1_000_000, Phase::Cruise);
    it.now = it.now + Duration::from_secs(11);
    let sent = Sent { bytes: Bytes(MSS), in_flight: Bytes::ZERO, app_limited: true };
    it.cc.on_sent(it.now, &sent, &mut it.rng);
    it.ack(1_000_000, |ack| ack.rtt = Some(Duration::from_millis(130)));
    assert!(it.cc.phase.is_probe_bw());
    assert_eq!(it.cc.min_rtt, Duration::from_millis(130));
}

/// Section 5.6.4.4, OnEnterRTO and RestoreCwnd.
#[test]
fn a_timeout_leaves_one_segment_until_all_losses_are_repaired() {
    let mut it = until(1_000_000, Phase::Cruise);
    let window = it.cc.window();
    it.cc.on_timeout(it.now, &Timeout { in_flight: window, count: 1 });
    assert_eq!(it.cc.window(), Bytes(MSS));
    it.ack(10_000, |ack| {
        ack.acked = Bytes(MSS);
        ack.recovery = Recovery::Lost;
    });
    assert_eq!(it.cc.window(), Bytes(4 * MSS));
    it.cc.on_recovered(it.now);
    assert_eq!(it.cc.window(), window);
}

fn steady(path: &mut Path, cc: &mut Bbr3, warm_up: u64, seconds: u64) -> Summary {
    measure(path, cc, warm_up, seconds, Rng::new(9, "bbr3"))
}

#[test]
fn on_a_fixed_link_it_fills_the_path_and_leaves_the_deep_buffer_empty() {
    let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(2_000_000));
    let mut cc = new();
    let s = steady(&mut path, &mut cc, 5, 20);
    let bdp = path.bdp() as f64;
    assert!(s.in_flight_mean > bdp && s.in_flight_mean < 2.0 * bdp, "{s:?}");
    assert!(s.goodput > 0.93 * path.goodput(), "{s:?}");
    // A full buffer would be a delay of 1.6 s.
    assert!(s.queue_mean < Duration::from_millis(30), "{s:?}");
    assert!(s.queue_max < Duration::from_millis(80), "{s:?}");
    let rate = cc.max_rate() * 8.0;
    assert!((rate / path.goodput() - 1.0).abs() < 0.03, "{rate} of {}", path.goodput());
    for phase in ["probe_bw_down", "probe_bw_cruise", "probe_bw_refill", "probe_bw_up", "probe_rtt"]
    {
        assert!(s.phases.contains(&phase), "{s:?}");
    }
    assert!(s.rtt_min < Duration::from_millis(44), "{s:?}");
}

/// Section 5.5.10.2: a buffer of a quarter of the product causes little loss, because the long-term
/// bound adapts to it.
#[test]
fn a_shallow_buffer_is_respected() {
    let mut path = Path::new(Rate(20_000_000), Duration::from_millis(40), Bytes(25_000));
    let mut cc = new();
    let s = steady(&mut path, &mut cc, 5, 30);
    assert!(cc.inflight_longterm < UNBOUNDED);
    assert!(s.loss_rate < 0.02, "{s:?}");
    assert!(s.goodput > 0.75 * path.goodput(), "{s:?}");
}

/// LossThresh: random loss far below the threshold costs some of the rate, until the next probe.
#[test]
fn random_loss_of_half_a_per_cent_is_tolerated() {
    let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(200_000));
    path.loss = 0.005;
    let mut cc = new();
    let s = steady(&mut path, &mut cc, 5, 30);
    assert!(s.goodput > 0.7 * path.goodput(), "{s:?}");
}

#[test]
fn when_the_link_slows_down_the_queue_drains_within_seconds() {
    let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(2_000_000));
    let mut cc = new();
    steady(&mut path, &mut cc, 5, 1);
    path.rate = Rate(3_000_000);
    let s = steady(&mut path, &mut cc, 15, 10);
    assert!(s.queue_mean < Duration::from_millis(40), "{s:?}");
    assert!(s.goodput > 0.9 * path.goodput(), "{s:?}");
}

/// The known limit at the head of `bbr3/mod.rs`: only a finished probe replaces the estimate, and a
/// probe takes four rounds. If the queue makes rounds so long that ProbeRTT always comes first, the
/// estimate stays.
#[test]
fn after_a_fall_to_a_tenth_with_an_infinite_buffer_the_rate_follows_only_if_probes_can_finish() {
    let queue = |interval: u64| {
        let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(2_000_000));
        let config =
            Config { probe_rtt_interval: Duration::from_secs(interval), ..Config::default() };
        let mut cc = Bbr3::new(config, &Setup::default());
        steady(&mut path, &mut cc, 5, 1);
        path.rate = Rate(1_000_000);
        steady(&mut path, &mut cc, 30, 10).queue_mean
    };
    assert!(queue(30) < Duration::from_millis(100), "{}", queue(30));
    assert!(queue(5) > Duration::from_secs(2), "{}", queue(5));
}

/// The same fall with a buffer of 60 KB: losses bound the flight.
#[test]
fn after_a_fall_to_a_tenth_with_a_finite_buffer_the_rate_follows_by_loss() {
    let mut path = Path::new(Rate(10_000_000), Duration::from_millis(40), Bytes(60_000));
    let mut cc = new();
    steady(&mut path, &mut cc, 5, 1);
    path.rate = Rate(1_000_000);
    let s = steady(&mut path, &mut cc, 15, 10);
    assert!(s.queue_mean < Duration::from_millis(150), "{s:?}");
    assert!(s.goodput > 0.85 * path.goodput(), "{s:?}");
}

#[test]
fn when_the_link_gets_faster_the_rate_follows_within_seconds() {
    let mut path = Path::new(Rate(2_000_000), Duration::from_millis(40), Bytes(2_000_000));
    let mut cc = new();
    steady(&mut path, &mut cc, 5, 1);
    path.rate = Rate(20_000_000);
    let s = steady(&mut path, &mut cc, 20, 10);
    assert!(s.goodput > 0.9 * path.goodput(), "{s:?}");
}

/// MinPipeCwnd, section 5.6.4.3: where the product is two segments the path is full all the same.
#[test]
fn a_path_of_two_segments_is_filled_and_its_queue_stays_a_few_segments() {
    let mut path = Path::new(Rate(240_000), Duration::from_millis(100), Bytes(500_000));
    let mut cc = new();
    let s = steady(&mut path, &mut cc, 20, 60);
    assert!(s.goodput > 0.9 * path.goodput(), "{s:?}");
    // A segment takes 50 ms here.
    assert!(s.queue_mean < Duration::from_millis(400), "{s:?}");
}
