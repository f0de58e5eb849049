//! RFC 9438 clause by clause.

use super::*;
use units::Duration;

const MSS: u64 = 1448;

fn cubic(change: impl FnOnce(&mut Config)) -> Cubic {
    let mut config = Config { hystart: Kind::Off, ..Config::default() };
    change(&mut config);
    Cubic::new(config, &Setup { initial_window: 1000, ..Setup::default() })
}

fn ack(segments: u64, srtt: Duration) -> Ack {
    Ack {
        acked: Bytes(segments * MSS),
        srtt,
        min_rtt: srtt,
        window_limited: true,
        ..Ack::default()
    }
}

fn loss(segments: u64) -> Loss {
    Loss { lost: Bytes(MSS), in_flight: Bytes(segments * MSS) }
}

/// One window of ACKs each RTT, spread evenly, until `until`; where the window was then.
fn run(cc: &mut Cubic, from: Instant, until: Instant, rtt: Duration) -> f64 {
    let mut rng = Rng::new(1, "test");
    let mut now = from;
    while now < until {
        let step = (rtt.0 as f64 / cc.window.segments()) as u64;
        now = now + Duration(step);
        cc.on_ack(now, &ack(1, rtt), &mut rng);
    }
    cc.window.segments()
}

#[test]
fn a_loss_leaves_seven_tenths_of_the_flight() {
    // RFC 9438 section 4.6.
    let mut cc = cubic(|_| {});
    cc.on_loss(Instant::ZERO, &loss(1000));
    assert_eq!(cc.window(), Bytes(700 * MSS));
    let mut cc = cubic(|_| {});
    cc.on_loss(Instant::ZERO, &loss(400));
    assert_eq!(cc.window(), Bytes(280 * MSS));
    let mut cc = cubic(|c| c.rules = Rules::Linux);
    cc.on_loss(Instant::ZERO, &loss(400));
    assert_eq!(cc.window(), Bytes(700 * MSS));
}

#[test]
fn a_mark_may_leave_one_segment_and_a_loss_two() {
    // RFC 9438 section 4.6.
    let mut cc = cubic(|_| {});
    cc.on_loss(Instant::ZERO, &loss(1));
    assert_eq!(cc.window(), Bytes(2 * MSS));
    let mut cc = cubic(|_| {});
    cc.on_ecn(Instant::ZERO, &loss(1));
    assert_eq!(cc.window(), Bytes(MSS));
    assert_eq!(cc.state().threshold, Some(Bytes(2 * MSS)));
}

#[test]
fn linux_adds_five_percent_per_round_before_the_first_loss() {
    // tcp_cubic.c: cnt ≤ 20 while last_max_cwnd is 0; the cubic curve alone would add nothing in 1 ms.
    let rtt = Duration::from_millis(1);
    let mut grown = [0.0; 2];
    for (rules, grown) in [Rules::Rfc, Rules::Linux].into_iter().zip(&mut grown) {
        let mut cc = cubic(|c| (c.rules, c.reno_friendly) = (rules, false));
        cc.window.leave_slow_start();
        *grown = run(&mut cc, Instant::ZERO, Instant::ZERO + rtt, rtt) - 1000.0;
    }
    assert!(grown[0] < 0.01 && (grown[1] - 50.0).abs() < 2.0, "{grown:?}");
}

#[test]
fn the_window_is_w_max_again_after_k_seconds() {
    // RFC 9438 section 4.2: K = ∛((W_max − cwnd_epoch) / C) = ∛(300 / 0.4) = 9.0856 s.
    let mut cc = cubic(|c| c.reno_friendly = false);
    cc.on_loss(Instant::ZERO, &loss(1000));
    cc.on_ack(Instant::ZERO, &ack(0, Duration::from_millis(1)), &mut Rng::new(1, "test"));
    let rtt = Duration::from_millis(10);
    run(&mut cc, Instant::ZERO, Instant::ZERO + rtt, rtt);
    let epoch = cc.curve.epoch.expect("congestion avoidance has begun");
    assert!((epoch.k - 9.085_602_964).abs() < 1e-6, "{}", epoch.k);
    let at_k = run(&mut cc, Instant::ZERO + rtt, Instant(9_085_602_964), rtt);
    assert!((at_k - 1000.0).abs() < 1.0, "{at_k}");
    assert_eq!(cc.state().phase, "concave");
    // Beyond it the curve is convex: C (t − K)³ above W_max.
    let later = run(&mut cc, Instant(9_085_602_964), Instant(19_085_602_964), rtt);
    assert!((later - 1400.0).abs() < 3.0, "{later}");
    assert_eq!(cc.state().phase, "convex");
}

#[test]
fn reno_friendly_growth_is_0_529_segments_per_round_until_the_lost_ground_is_made_good() {
    // RFC 9438 section 4.3: α = 3 (1 − β) / (1 + β) = 9 / 17. A small window on a short path is in that region.
    let mut cc = cubic(|_| {});
    assert!((cc.alpha - 9.0 / 17.0).abs() < 1e-12);
    cc.on_loss(Instant::ZERO, &loss(20));
    cc.curve.prior = 20.0;
    cc.curve.w_max = Some(20.0);
    let mut rng = Rng::new(1, "test");
    let rtt = Duration::from_millis(1);
    let mut now = Instant::ZERO;
    let mut round = |cc: &mut Cubic| {
        let before = cc.window.segments();
        let mut acked = 0.0;
        while acked < before {
            now = now + Duration((rtt.0 as f64 / before) as u64);
            cc.on_ack(now, &ack(1, rtt), &mut rng);
            acked += 1.0;
        }
        cc.window.segments() - before
    };
    round(&mut cc);
    let growth = round(&mut cc);
    assert!((growth - 0.529).abs() < 0.03, "{growth}");
    assert_eq!(cc.state().phase, "reno_friendly");
    while cc.window.segments() < 21.0 {
        round(&mut cc);
    }
    let growth = round(&mut cc);
    assert!((growth - 1.0).abs() < 0.06, "{growth}");
}

#[test]
fn a_loss_below_the_last_w_max_gives_way() {
    // RFC 9438 section 4.7: W_max = cwnd (1 + β) / 2.
    for (on, expected) in [(true, 700.0 * 0.85), (false, 700.0)] {
        let mut cc = cubic(|c| c.fast_convergence = on);
        cc.on_loss(Instant::ZERO, &loss(1000));
        cc.on_loss(Instant::ZERO, &loss(700));
        assert!((cc.curve.w_max.unwrap_or(0.0) - expected).abs() < 1e-9);
    }
}

#[test]
fn the_window_grows_by_half_per_round_trip_at_most() {
    // RFC 9438 section 4.2: target ≤ 1.5 cwnd; ten rounds of it would be 1.5¹⁰.
    let mut cc = cubic(|c| c.c = 100.0);
    cc.on_loss(Instant::ZERO, &loss(1000));
    let rtt = Duration::from_secs(10);
    run(&mut cc, Instant::ZERO, Instant::ZERO + rtt, rtt);
    let before = cc.window.segments();
    let mut rng = Rng::new(1, "test");
    let now = Instant::ZERO + rtt * 3;
    for _ in 0..before as u64 {
        cc.on_ack(now, &ack(1, rtt), &mut rng);
    }
    let ratio = cc.window.segments() / before;
    // Each ACK adds half a segment.
    assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
}

#[test]
fn time_without_data_does_not_move_along_the_curve() {
    // RFC 9438 section 5.8.
    let rtt = Duration::from_millis(10);
    let mut cc = cubic(|_| {});
    cc.on_loss(Instant::ZERO, &loss(1000));
    let busy = run(&mut cc, Instant::ZERO, Instant(5_000_000_000), rtt);
    let mut rng = Rng::new(1, "test");
    let later = Instant(60_000_000_000);
    let sent = Sent { bytes: Bytes(MSS), in_flight: Bytes::ZERO, app_limited: true };
    cc.on_sent(later, &sent, &mut rng);
    cc.on_ack(later + rtt, &Ack { window_limited: false, ..ack(1, rtt) }, &mut rng);
    assert_eq!(cc.window.segments(), busy);
    cc.on_ack(later + rtt, &ack(1, rtt), &mut rng);
    assert!(cc.window.segments() - busy < 0.1);
}

#[test]
fn after_a_timeout_the_curve_starts_on_its_plateau() {
    // RFC 9438 section 4.8: K = 0, W_max the window at which congestion avoidance begins.
    let mut cc = cubic(|_| {});
    cc.on_timeout(Instant::ZERO, &Timeout { in_flight: Bytes(100 * MSS), count: 1 });
    assert_eq!(cc.window(), Bytes(MSS));
    let rtt = Duration::from_millis(10);
    run(&mut cc, Instant::ZERO, Instant(200_000_000), rtt);
    let epoch = cc.curve.epoch.expect("congestion avoidance has begun");
    assert_eq!((epoch.k, epoch.origin), (0.0, 70.0));
}

#[test]
fn a_spurious_decrease_gives_the_curve_back() {
    // RFC 9438 section 4.9.
    let mut cc = cubic(|_| {});
    cc.on_loss(Instant::ZERO, &loss(1000));
    let rtt = Duration::from_millis(10);
    let before = run(&mut cc, Instant::ZERO, Instant(3_000_000_000), rtt);
    let (w_max, k) = (cc.curve.w_max, cc.curve.epoch.map(|e| e.k));
    cc.on_loss(Instant(3_000_000_000), &loss(700));
    cc.on_spurious(Instant(3_100_000_000));
    assert_eq!(cc.window.segments(), before);
    assert_eq!((cc.curve.w_max, cc.curve.epoch.map(|e| e.k)), (w_max, k));
}

#[test]
fn conservative_slow_start_grows_a_quarter() {
    // RFC 9406 section 4.2.
    let mut cc = Cubic::new(Config::default(), &Setup::default());
    let mut rng = Rng::new(1, "test");
    let mut delivered = 0;
    let mut round = |cc: &mut Cubic, rtt: u64| {
        let (from, before) = (delivered, cc.window.segments());
        for _ in 0..10 {
            delivered += MSS;
            let rtt = Duration::from_millis(rtt);
            let mut ack = Ack { rtt: Some(rtt), delivered: Bytes(delivered), ..ack(1, rtt) };
            ack.rate.prior_delivered = Bytes(from);
            cc.on_ack(Instant::ZERO, &ack, &mut rng);
        }
        cc.window.segments() - before
    };
    assert_eq!(round(&mut cc, 80), 10.0);
    round(&mut cc, 120);
    assert_eq!(round(&mut cc, 120), 2.5);
    for _ in 0..4 {
        round(&mut cc, 120);
    }
    assert_ne!(cc.state().phase, "slow_start");
    assert!(cc.state().threshold.is_some());
}

/// Congestion avoidance by Linux's rules in Reno's region: a window of 10 behind a Reno window of 40.
fn behind_reno(rules: Rules) -> (Cubic, f64) {
    let mut cc = cubic(|c| c.rules = rules);
    cc.window.set(10.0);
    cc.window.leave_slow_start();
    cc.curve.w_max = Some(10.0);
    let rtt = Duration::from_millis(1);
    let mut rng = Rng::new(1, "test");
    cc.on_ack(Instant::ZERO, &ack(1, rtt), &mut rng);
    let mut epoch = cc.curve.epoch.expect("congestion avoidance has begun");
    epoch.reno = 40.0;
    cc.curve.epoch = Some(epoch);
    let before = cc.window.segments();
    cc.on_ack(Instant(1), &ack(1, rtt), &mut rng);
    let grown = cc.window.segments() - before;
    (cc, grown)
}

#[test]
fn the_rfc_sets_renos_window_at_once_and_linux_comes_to_it_by_one_segment_for_two() {
    // tcp_cubic.c, bictcp_update: cnt = max(cwnd / (tcp_cwnd - cwnd), 2).
    let (rfc, _) = behind_reno(Rules::Rfc);
    assert!(rfc.window.segments() >= 40.0);
    let (linux, grown) = behind_reno(Rules::Linux);
    assert!((grown - 0.5).abs() < 1e-9, "{grown}");
    assert_eq!(linux.state().phase, "reno_friendly");
}

#[test]
fn linux_has_no_bound_of_what_one_ack_adds_in_slow_start() {
    for (rules, added) in [(Rules::Rfc, 8), (Rules::Linux, 40)] {
        let mut cc = cubic(|c| c.rules = rules);
        let before = cc.window.segments();
        let rtt = Duration::from_millis(10);
        cc.on_ack(Instant::ZERO, &ack(40, rtt), &mut Rng::new(1, "test"));
        assert_eq!(cc.window.segments() - before, f64::from(added));
    }
}

#[test]
fn linux_forgets_the_smallest_rtt_at_a_timeout_and_discards_the_first_second_of_a_stage() {
    // tcp_cubic.c: bictcp_reset clears delay_min; cubictcp_acked returns within HZ of epoch_start.
    let mut cc = cubic(|c| c.rules = Rules::Linux);
    let mut rng = Rng::new(1, "test");
    let mut at = |cc: &mut Cubic, ms: u64, rtt: u64| {
        let rtt = Duration::from_millis(rtt);
        let seen = Ack { rtt: Some(rtt), ..ack(1, rtt) };
        cc.on_ack(Instant::ZERO + Duration::from_millis(ms), &seen, &mut rng);
        cc.delay_min
    };
    assert_eq!(at(&mut cc, 0, 50), Duration::from_millis(50));
    cc.on_loss(Instant::ZERO, &loss(1000));
    // This ACK begins the stage; it came before the stage, so its sample counts.
    assert_eq!(at(&mut cc, 100, 40), Duration::from_millis(40));
    assert_eq!(at(&mut cc, 1099, 20), Duration::from_millis(40));
    assert_eq!(at(&mut cc, 1100, 30), Duration::from_millis(30));
    cc.on_timeout(Instant::ZERO, &Timeout { in_flight: Bytes(MSS), count: 1 });
    assert_eq!(cc.delay_min, Duration::MAX);
    assert_eq!(at(&mut cc, 2000, 90), Duration::from_millis(90));
}
