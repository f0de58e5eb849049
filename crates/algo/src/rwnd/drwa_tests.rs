//! The law against closed forms, on a fluid path.

use std::collections::VecDeque;

use units::Rate;

use super::*;

const RATE: Rate = Rate(8_000_000);
const RTT_MIN: Duration = Duration::from_millis(60);

/// First windows below the path's 60,000 bytes, so that the first samples see an empty queue, as slow start does.
fn published() -> Config {
    Config { initial: Bytes(28_960), ..Config::default() }
}

/// A window-limited sender over a link with an endless buffer, in steps of 10 ms: what the sender may have in flight
/// beyond the bandwidth-delay product stands in the queue. Returns the RTT and the rate of the last second.
struct Path {
    law: Drwa,
    now: Instant,
    received: Bytes,
    /// What the sender may have in flight, and the larger windows that are under way to it.
    window: Bytes,
    offered: VecDeque<(Instant, Bytes)>,
}

impl Path {
    fn new(config: Config, setup: &Setup) -> Path {
        let law = Drwa::new(config, setup);
        Path {
            window: law.window(),
            law,
            now: Instant::ZERO,
            received: Bytes::ZERO,
            offered: VecDeque::new(),
        }
    }

    /// Runs for `seconds`; what passes is the window per RTT, at most the link's rate.
    fn run(&mut self, seconds: u64, rate: Rate, rtt_min: Duration) -> (Duration, Rate) {
        let step = Duration::from_millis(10);
        let (mut rtt, mut last_second) = (rtt_min, Bytes::ZERO);
        for i in 0..seconds * 100 {
            self.now = self.now + step;
            while self.offered.front().is_some_and(|(due, _)| *due <= self.now) {
                self.window =
                    self.offered.pop_front().map_or(self.window, |(_, w)| w.max(self.window));
            }
            let queueing = self.window / rate;
            rtt = rtt_min.max(queueing);
            let moved = Bytes(self.window.0 * step.0 / rtt.0);
            self.received += moved;
            if i / 100 == seconds - 1 {
                last_second += moved;
            }
            let sample = Sample {
                received: self.received,
                copied: self.received,
                right_edge: self.received + self.law.window().max(self.window),
                rtt: Some(rtt),
                ..Sample::default()
            };
            self.law.on_sample(self.now, &sample);
            let wanted = self.law.window();
            if wanted > self.window {
                self.offered.push_back((self.now + rtt_min, wanted));
            } else {
                // A smaller window takes effect only as data arrives: the right edge stays.
                self.offered.clear();
                self.window = wanted.max(self.window - moved);
            }
        }
        (rtt, last_second.over(Duration::from_secs(1)).unwrap_or_default())
    }
}

fn close(a: Duration, b: Duration) -> bool {
    a.0.abs_diff(b.0) * 20 <= b.0
}

#[test]
fn the_rtt_settles_at_lambda_times_its_minimum_with_full_goodput() {
    for form in [Form::Paper, Form::Rate] {
        for (estimator, lambda) in
            [(Estimator::Timestamps, 48), (Estimator::Window, 48), (Estimator::Timestamps, 32)]
        {
            for (alpha, quick) in [(14, false), (8, false), (8, true)] {
                let factor = lambda as f64 / 16.0;
                let config =
                    Config { form, alpha, quick, lambda: factor, estimator, ..published() };
                let (rtt, rate) =
                    Path::new(config.clone(), &Setup::default()).run(10, RATE, RTT_MIN);
                // The steps of 10 ms round what the window estimator sees up, by at most one step.
                let coarse = if estimator == Estimator::Window {
                    Duration::from_millis(10)
                } else {
                    Duration::ZERO
                };
                let wanted = RTT_MIN * lambda / 16;
                assert!(
                    close(rtt, wanted) || rtt > wanted && rtt < (RTT_MIN + coarse) * lambda / 16,
                    "{config:?}: {rtt:?}"
                );
                assert!(rate.0 * 100 >= RATE.0 * 99, "{config:?}: {rate:?}");
            }
        }
    }
}

#[test]
fn a_long_path_is_filled_by_a_quarter_more_per_rtt_in_the_papers_form_and_by_lambda_with_quick() {
    // 30 Mbit/s, 100 ms: 375,000 bytes, of which the first window is a sixth.
    let after = |quick, seconds| {
        let mut path = Path::new(Config { quick, ..published() }, &Setup::default());
        let (_, rate) = path.run(seconds, Rate(30_000_000), Duration::from_millis(100));
        (path.received, rate)
    };
    assert!(after(true, 1).0.0 * 2 > after(false, 1).0.0 * 3);
    assert!(after(true, 3).1.0 > 29_000_000);
    assert!(after(false, 5).1.0 > 29_000_000);
}

#[test]
fn the_window_shrinks_when_the_link_does_and_grows_back() {
    for form in [Form::Paper, Form::Rate] {
        let mut path = Path::new(Config { form, alpha: 8, ..published() }, &Setup::default());
        path.run(5, RATE, RTT_MIN);
        for rate in [Rate(2_000_000), Rate(16_000_000), RATE] {
            let (rtt, goodput) = path.run(10, rate, RTT_MIN);
            assert!(close(rtt, RTT_MIN * 3), "{form:?} at {rate}: {rtt}");
            assert!(goodput.0 * 100 >= rate.0 * 98, "{form:?} at {rate}: {goodput}");
        }
    }
}

#[test]
fn an_idle_flow_keeps_its_window() {
    let mut path = Path::new(published(), &Setup::default());
    path.run(5, RATE, RTT_MIN);
    let before = path.law.window();
    let at = path.received + Bytes(1448);
    let sample = Sample { received: at, copied: at, rtt: Some(RTT_MIN), ..Sample::default() };
    path.law.on_sample(path.now + Duration::from_secs(20), &sample);
    assert_eq!(path.law.window(), before);
    // The next round is measured again.
    path.now = path.now + Duration::from_secs(20);
    path.run(1, Rate(RATE.0 / 2), RTT_MIN);
    assert_ne!(path.law.window(), before);
}

#[test]
fn a_slow_reader_is_measured_although_it_reads_less_than_once_per_rtt() {
    let mut law = Drwa::new(published(), &Setup::default());
    let mut sample = Sample { rtt: Some(RTT_MIN), ..Sample::default() };
    for i in 1..=200_u64 {
        let now = Instant(i * 10_000_000);
        sample = Sample { cause: Cause::Arrived, received: Bytes(i * 10_000), ..sample };
        law.on_sample(now, &sample);
        if i % 20 == 0 {
            sample = Sample { cause: Cause::Copied, copied: sample.received, ..sample };
            law.on_sample(now, &sample);
        }
    }
    // 1 MB/s: 60,000 bytes per RTT, 200 ms between reads.
    let estimate = law.state().cwnd_estimate.map_or(0, |bytes| bytes.0);
    assert!(estimate.abs_diff(60_000) < 3_000, "{estimate}");
}

#[test]
fn a_latecomer_with_the_shared_minimum_does_not_take_the_queue_for_the_path() {
    let standing = Duration::from_millis(167);
    let alone = Path::new(published(), &Setup::default()).run(30, RATE, standing).0;
    let mut shared = Path::new(published(), &Setup::default());
    shared.law.learn_rtt_min(RTT_MIN);
    let seeded = Config { rtt_min_seed: Some(RTT_MIN), ..published() };
    let seeded = Path::new(seeded, &Setup::default());
    assert!(close(alone, standing * 3), "{alone}");
    assert_eq!(shared.law.state().rtt_min, Some(RTT_MIN));
    assert_eq!(seeded.law.state().rtt_min, Some(RTT_MIN));
    shared.run(10, RATE, standing);
    assert_eq!(shared.law.state().rtt_min, Some(RTT_MIN));
}

#[test]
fn an_aged_minimum_follows_a_longer_route_and_the_papers_does_not() {
    let after = |age| {
        let config =
            Config { rtt_min_age: age, form: Form::Rate, lambda: 1.25, quick: true, ..published() };
        let mut path = Path::new(config, &Setup::default());
        path.run(5, RATE, Duration::from_millis(30));
        path.run(20, RATE, Duration::from_millis(150)).1
    };
    // λ · RTTmin / RTT < 1 starves.
    assert!(after(None).0 < RATE.0 / 2);
    assert!(after(Some(Duration::from_secs(10))).0 * 10 >= RATE.0 * 9);
}

#[test]
fn an_aged_minimum_does_not_take_the_standing_queue_for_a_longer_route() {
    for form in [Form::Paper, Form::Rate] {
        for estimator in [Estimator::Timestamps, Estimator::Window] {
            let age = Some(Duration::from_secs(10));
            let config = Config { form, estimator, rtt_min_age: age, ..published() };
            let mut path = Path::new(config, &Setup::default());
            path.run(5, RATE, RTT_MIN);
            let (begun, at) = (path.received, path.now);
            for _ in 0..20 {
                let (rtt, _) = path.run(5, RATE, RTT_MIN);
                // The window estimator sees the path in steps of 10 ms, and the edges a step late: two, λ times.
                let coarse = if estimator == Estimator::Window { 60 } else { 0 };
                let coarse = Duration::from_millis(coarse);
                assert!(
                    close(rtt, RTT_MIN * 3) || rtt < RTT_MIN * 3 + coarse,
                    "{form:?} {estimator:?}: {rtt}"
                );
            }
            // Ten times in 100 s the queue runs empty, for less than two RTTs each.
            let rate = (path.received - begun).over(path.now.since(at)).unwrap_or_default();
            assert!(rate.0 * 100 >= RATE.0 * 97, "{form:?} {estimator:?}: {rate}");
        }
    }
}

/// Two windows at one bottleneck, decided round by round; their RTTmin may differ. Returns both at the end, and the RTT.
fn two_windows(increment: u64, rtt_min_us: [u64; 2]) -> ([u64; 2], u64) {
    let law = Law {
        rate_form: false,
        alpha: 14,
        lambda: 3 * LAMBDA_ONE,
        lambda_min: 3 * LAMBDA_ONE,
        adaptive: false,
        mss: 1_448,
        quick: false,
        increment,
        floor: 2_896,
        max: MAX_BYTES,
    };
    let (mut windows, mut estimates) = ([160_000, 20_000], [Estimate::default(); 2]);
    let mut rtt_us = 0;
    for _ in 0..10_000 {
        // 1 byte per µs.
        rtt_us = (windows[0] + windows[1]).max(60_000);
        for i in 0..2 {
            let round = Round {
                elapsed_us: rtt_us,
                bytes: windows[i],
                rtt_us,
                rtt_min_us: rtt_min_us[i],
                beside_us: 0,
            };
            (estimates[i], windows[i]) = decide(&law, &estimates[i], &round);
        }
    }
    (windows, rtt_us)
}

#[test]
fn two_windows_keep_their_proportion_and_with_an_increment_become_alike() {
    let ([a, b], _) = two_windows(0, [60_000, 60_000]);
    assert!((a / b).abs_diff(8) <= 1, "{a} {b}");
    // One per cent between two RTTmin is enough to starve one of them.
    let ([a, b], _) = two_windows(0, [60_600, 60_000]);
    assert!(b == 2_896, "{a} {b}");
    let ([a, b], rtt) = two_windows(4 * 1_448, [60_000, 60_000]);
    assert!(a.abs_diff(b) * 100 < a, "{a} {b}");
    // a / λ·BDP for each: 5,792 / 180,000, twice.
    assert!(rtt.abs_diff(180_000 + 2 * 5_792) < 1_000, "{rtt}");
    let ([a, b], _) = two_windows(4 * 1_448, [60_600, 60_000]);
    assert!(a < 2 * b, "{a} {b}");
}

#[test]
fn no_input_overflows_the_decision() {
    let top = Law {
        rate_form: false,
        alpha: 15,
        lambda: u64::MAX,
        lambda_min: u64::MAX,
        adaptive: false,
        mss: u32::MAX.into(),
        quick: false,
        increment: u64::MAX,
        floor: 1,
        max: MAX_BYTES,
    };
    for rate_form in [false, true] {
        for value in [0, 1, u64::MAX] {
            let round = Round {
                elapsed_us: value.min(1),
                bytes: u64::MAX,
                rtt_us: value,
                rtt_min_us: u64::MAX,
                beside_us: u64::MAX,
            };
            let law = Law { rate_form, adaptive: rate_form, ..top };
            let (estimate, window) = decide(
                &law,
                &Estimate { cwnd: MAX_BYTES, rate: MAX_RATE, mean: MAX_RATE, lambda: value },
                &round,
            );
            assert!(window <= MAX_BYTES && estimate.cwnd <= MAX_BYTES && estimate.rate <= MAX_RATE);
        }
    }
}

#[test]
fn a_decision_of_the_independent_port_comes_out_the_same() {
    // α = 1/2, λ = 3: (40,000 + 60,000) / 2 = 50,000; 3 · 50,000 · 60 / 90.
    let law = Law {
        rate_form: false,
        alpha: 8,
        lambda: 3 * LAMBDA_ONE,
        lambda_min: 3 * LAMBDA_ONE,
        adaptive: false,
        mss: 1_448,
        quick: false,
        increment: 0,
        floor: 2_896,
        max: MAX_BYTES,
    };
    let round = Round {
        elapsed_us: 90_000,
        bytes: 60_000,
        rtt_us: 90_000,
        rtt_min_us: 60_000,
        beside_us: 0,
    };
    let (estimate, window) =
        decide(&law, &Estimate { cwnd: 40_000, ..Estimate::default() }, &round);
    assert_eq!((estimate.cwnd, window), (50_000, 100_000));
}

#[test]
fn replayed_samples_give_the_windows_that_were_advertised() {
    let mut path = Path::new(published(), &Setup::default());
    let mut recorded = Vec::new();
    let mut live = Vec::new();
    for i in 1..300_u64 {
        let now = Instant(i * 7_000_000);
        let received = Bytes(i * 9_000);
        let sample = Sample { received, copied: received, rtt: Some(RTT_MIN), ..Sample::default() };
        path.law.on_sample(now, &sample);
        live.push(path.law.window());
        recorded.push((now, sample));
    }
    assert_eq!(replay(published(), &Setup::default(), &recorded), live);
}
