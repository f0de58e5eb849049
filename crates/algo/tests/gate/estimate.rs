//! The integer estimate of QCUT against its formula (section 6) in plain floating point, and step by step against
//! the same integers in one pass.

use algo::gate::{Event, Gate, Limit, Occupancy, RING, Setup, Slack, occupancy_at, qcut_d};
use proptest::prelude::*;
use units::{Bytes, Duration, Instant};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// After so many ns a packet of so many bytes passes.
    Pass(u64, u32),
    /// A report, so many ns old, with bytes held, granted, and padding.
    Report(u64, u64, u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4_000_000_u64, 40..1_501_u32).prop_map(|(ns, bytes)| Step::Pass(ns, bytes)),
        1 => (0..120_000_000_u64, 0..300_000_u64, 0..20_000_u64, 0..2_000_u64)
            .prop_map(|(age, held, granted, padding)| Step::Report(age, held, granted, padding)),
    ];
    proptest::collection::vec(step, 1..300)
}

/// Section 6 as it is written: everything is kept, every question starts from the last report.
#[derive(Default)]
struct Naive {
    rate: Option<f64>,
    interval: Option<(u64, f64)>,
    passed: Vec<(u64, u32)>,
    report: Option<(u64, u64)>,
}

impl Naive {
    fn report(&mut self, at: u64, held: u64, moved: f64) {
        match self.interval {
            None => self.interval = Some((at, 0.0)),
            Some((begun, sum)) => {
                let span = at.saturating_sub(begun) as f64 / 1e9;
                let sum = sum + moved;
                if span >= 0.020 {
                    for _ in 0..((span * 1e9) as u64 / 20_000_000).min(16) {
                        self.rate =
                            Some(self.rate.map_or(sum / span, |r| r + 0.25 * (sum / span - r)));
                    }
                    self.interval = Some((at, 0.0));
                } else {
                    self.interval = Some((begun, sum));
                }
            }
        }
        if self.report.is_none_or(|(written, _)| at >= written) {
            self.report = Some((at, held));
        }
    }

    fn bytes(&self, now: u64) -> f64 {
        let rate = self.rate.unwrap_or(0.0);
        let (written, held) = self.report.unwrap_or((0, 0));
        let (mut b, mut t) = (held as f64, written);
        for &(time, bytes) in
            self.passed.iter().filter(|(time, _)| self.report.is_none() || *time > written)
        {
            let sent = b.min(rate * (time - t) as f64 / 1e9);
            b = b - sent + f64::from(bytes);
            t = time;
        }
        b - b.min(rate * (now - t) as f64 / 1e9)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_integers_are_the_paper_s_formula_to_the_last_bytes(steps in steps()) {
        let mut ours = Occupancy::new(false, Slack::default());
        let mut naive = Naive::default();
        let mut now = 1_000_000_000_u64;
        let mut written = 0;
        for step in steps {
            match step {
                Step::Pass(ns, bytes) => {
                    now += ns;
                    ours.on_passed(Instant(now), Bytes(u64::from(bytes)));
                    naive.passed.push((now, bytes));
                }
                Step::Report(age, held, granted, padding) => {
                    // Reports come in the order in which they were written.
                    let at = (now - age).max(written);
                    written = at;
                    ours.on_report(Instant(now), Instant(at), Bytes(held), Bytes(granted), Bytes(padding));
                    naive.report(at, held, granted.saturating_sub(padding) as f64);
                }
            }
            // Each step of the average loses less than a byte/s, four in the long run; each packet less than a byte.
            if let (Some(ours), Some(naive)) = (ours.bytes_per_second(), naive.rate) {
                prop_assert!((ours as f64 - naive).abs() <= 5.0, "{ours} {naive}");
            }
            let (a, b) = (ours.bytes(Instant(now)).0 as f64, naive.bytes(now));
            let age = (now - written.min(now)) as f64 / 1e9;
            prop_assert!((a - b).abs() <= 2.0 + RING as f64 + 5.0 * age, "{a} {b}");
        }
    }

    #[test]
    fn step_by_step_is_bit_for_bit_the_single_pass(steps in steps()) {
        let mut ours = Occupancy::new(false, Slack::default());
        let mut passed: Vec<(u64, u32)> = Vec::new();
        let (mut written, mut reported) = (0, 0);
        let mut now = 1_000_000_000_u64;
        let mut received = false;
        for step in steps {
            match step {
                Step::Pass(ns, bytes) => {
                    now += ns;
                    ours.on_passed(Instant(now), Bytes(u64::from(bytes)));
                    passed.push((now, bytes));
                }
                Step::Report(age, held, granted, padding) => {
                    let at = (now - age).max(written);
                    ours.on_report(Instant(now), Instant(at), Bytes(held), Bytes(granted), Bytes(padding));
                    (written, reported, received) = (at, held, true);
                    passed.retain(|(time, _)| *time > at);
                }
            }
            if received {
                let rate = ours.bytes_per_second().unwrap_or(0);
                let later = now + 1_234_567;
                prop_assert_eq!(ours.bytes(Instant(later)).0, occupancy_at(reported, written, &passed, rate, later));
            }
        }
    }
}

#[test]
fn a_worked_example_of_qcut_s_formula() {
    // 1 MB/s: 20,000 bytes in each interval of 20 ms. At 100 ms the buffer held 10,000 bytes; packets of 1,500 passed
    // at 104 and 120 ms. At 104: 10,000 − 4,000 + 1,500 = 7,500; at 120: 0 + 1,500; at 121: 500.
    let ms = |t: u64| Instant(t * 1_000_000);
    let mut estimate = Occupancy::new(false, Slack::default());
    for t in (0..100).step_by(20) {
        estimate.on_report(ms(t), ms(t), Bytes::ZERO, Bytes(21_000), Bytes(1_000));
    }
    estimate.on_passed(ms(104), Bytes(1_500));
    estimate.on_passed(ms(120), Bytes(1_500));
    estimate.on_report(ms(120), ms(100), Bytes(10_000), Bytes(21_000), Bytes(1_000));
    assert_eq!(estimate.bytes_per_second(), Some(1_000_000));
    assert_eq!(estimate.bytes(ms(120)), Bytes(1_500));
    assert_eq!(estimate.bytes(ms(121)), Bytes(500));
    assert_eq!(estimate.bytes(ms(130)), Bytes::ZERO);
}

#[test]
fn the_average_moves_by_a_quarter_each_twenty_milliseconds() {
    let ms = |t: u64| Instant(t * 1_000_000);
    let mut estimate = Occupancy::new(false, Slack::default());
    let mut report = |t, moved| {
        estimate.on_report(ms(t), ms(t), Bytes::ZERO, Bytes(moved), Bytes::ZERO);
        estimate.bytes_per_second()
    };
    assert_eq!(report(0, 99_999), None);
    assert_eq!(report(20, 20_000), Some(1_000_000));
    // Reports every 5 ms make one interval of four.
    assert_eq!(report(25, 0), Some(1_000_000));
    assert_eq!(report(30, 0), Some(1_000_000));
    assert_eq!(report(35, 0), Some(1_000_000));
    assert_eq!(report(40, 0), Some(750_000));
    // One of 60 ms counts as three: 0.75³
    assert_eq!(report(100, 0), Some(316_406));
}

#[test]
fn an_interval_in_which_data_ran_out_raises_a_held_average_but_does_not_lower_it() {
    let ms = |t: u64| Instant(t * 1_000_000);
    let after = |hold, granted: u64, padding: u64| {
        let mut estimate = Occupancy::new(hold, Slack::default());
        estimate.on_report(ms(0), ms(0), Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        estimate.on_report(ms(20), ms(20), Bytes(9_000), Bytes(20_000), Bytes::ZERO);
        estimate.on_report(ms(40), ms(40), Bytes(9_000), Bytes(granted), Bytes(padding));
        estimate.bytes_per_second()
    };
    // 4,000 bytes moved of 8,000 that were granted: the air could have borne more.
    assert_eq!(after(true, 8_000, 4_000), Some(1_000_000));
    assert_eq!(after(true, 44_000, 4_000), Some(1_250_000));
    // Without padding the air was the limit, or as good as without it.
    assert_eq!(after(true, 4_000, 0), Some(800_000));
    assert_eq!(after(true, 4_400, 400), Some(800_000));
    // QCUT section 6 as it is written.
    assert_eq!(after(false, 8_000, 4_000), Some(800_000));
}

#[test]
fn qcut_d_allows_twenty_milliseconds_of_the_rate_or_two_packets() {
    let floor = 1_500;
    assert_eq!(qcut_d::limit(1_000_000, 20_000_000, 0, 0, floor), 20_000);
    assert_eq!(qcut_d::limit(10_000, 20_000_000, 0, 0, floor), floor);
    let mut gate = qcut_d::QcutD::new(qcut_d::Config::default(), &Setup::default());
    let mut now = Instant::ZERO;
    for _ in 0..20 {
        let event = Event::Report {
            at: now,
            occupancy: Bytes::ZERO,
            granted: Bytes(5_000),
            padding: Bytes::ZERO,
        };
        gate.on_event(now, &event);
        now = now + Duration::from_millis(5);
    }
    assert_eq!(gate.limit(now), Limit::Bytes(Bytes(20_000)));
    let mut passed = 0;
    while gate.open(now) {
        gate.on_event(now, &Event::Passed { bytes: Bytes(1_500), flow: 0, bare: false });
        passed += 1;
    }
    // B ≤ 20,000 lets the fourteenth pass at 19,500, and no more: T_F = 21 ms.
    assert_eq!(passed, 14);
    // 1,000 bytes too many at 1 MB/s.
    assert_eq!(gate.next_wakeup(now), Some(now + Duration::from_millis(1)));
}
