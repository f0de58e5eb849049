//! Links made by hand: when a cure is lifted, withdrawn, and put back.

use super::*;

/// A link whose goodput depends on the time and on whether the cure is there; all that was done to it, with the second.
fn run(
    config: Config,
    seconds: u64,
    rate: impl Fn(u64, bool) -> u64,
) -> (Trial, Vec<(u64, Action)>) {
    let mut trial = Trial::new(config, Instant::ZERO);
    let (mut bytes, mut done) = (0, Vec::new());
    for tenth in 1..seconds * 10 {
        bytes += rate(tenth / 10, !trial.lifted()) / 10;
        match trial.on_progress(Instant(tenth * 100_000_000), bytes) {
            Action::Keep => {}
            action => done.push((tenth / 10, action)),
        }
    }
    (trial, done)
}

#[test]
fn a_cure_that_costs_nothing_is_lifted_rarely_and_stays() {
    let (trial, done) = run(Config::default(), 1_000, |_, _| 240_000);
    let lifts: Vec<u64> =
        done.iter().filter(|(_, a)| *a == Action::Lift).map(|(at, _)| *at).collect();
    assert_eq!(lifts.len(), 4, "{done:?}");
    assert!(lifts.windows(3).all(|w| w[2] - w[1] > 3 * (w[1] - w[0]) / 2), "{lifts:?}");
    assert!(done.iter().all(|(_, a)| matches!(a, Action::Lift | Action::Restore)));
    assert!(!trial.lifted());
}

#[test]
fn a_trial_that_adds_delay_is_lifted_for_less_than_two_seconds_another_for_a_whole_span() {
    let lifted = |delayed: bool| {
        let (mut trial, mut bytes, mut done) =
            (Trial::new(Config::default(), Instant::ZERO), 0, Vec::new());
        trial.delay(delayed);
        for quarter in 1..400 {
            bytes += 60_000;
            let now = Instant(quarter * 250_000_000);
            let action = trial.on_progress(now, bytes);
            done.extend((action != Action::Keep).then_some((now, action)));
        }
        let [(up, Action::Lift), (down, Action::Restore), ..] = done[..] else {
            panic!("{done:?}")
        };
        assert!(trial.concluded());
        down.since(up)
    };
    assert_eq!(lifted(true), Duration::from_millis(1_500));
    assert_eq!(lifted(false), Duration::from_millis(3_500));
}

#[test]
fn however_rare_the_looks_are_a_trial_that_adds_delay_ends_in_time() {
    let mut trial = Trial::new(Config::default(), Instant::ZERO);
    trial.delay(true);
    let (mut now, mut lifted, mut restored) = (Instant::ZERO, None, None);
    while restored.is_none() && now < Instant(100_000_000_000) {
        // As the daemon waits.
        let usual = later(now, Duration::from_millis(4_000));
        now = trial.next_look().filter(|look| *look > now).map_or(usual, |look| look.min(usual));
        match trial.on_progress(now, now.0 / 4_000) {
            Action::Lift => lifted = Some(now),
            Action::Restore => restored = Some(now),
            _ => {}
        }
    }
    assert_eq!(restored.unwrap().since(lifted.unwrap()), MAX_DELAYED);
    assert_eq!(trial.next_look(), None);
}

#[test]
fn a_gain_that_comes_late_is_found_where_no_delay_is_added() {
    // A sender whose cwnd grows by a fiftieth in a quarter of a second.
    let mut trial = Trial::new(Config::default(), Instant::ZERO);
    let (mut bytes, mut rate, mut withdrawn) = (0, 60_000, false);
    trial.delay(false);
    for quarter in 1..400 {
        rate = if trial.lifted() { rate + 1_200 } else { 60_000 };
        bytes += rate;
        let action = trial.on_progress(Instant(quarter * 250_000_000), bytes);
        withdrawn |= matches!(action, Action::Withdraw(_));
    }
    assert!(withdrawn);
}

#[test]
fn a_trial_permits_less_than_fifty_milliseconds_more_or_half_of_a_long_round_trip() {
    assert_eq!(permitted_rtt_us(60_000), 90_000);
    assert_eq!(permitted_rtt_us(180_000), 210_000);
    assert_eq!(permitted_rtt_us(800_000), 1_200_000);
    assert!(!risen(180_000, 210_000, 187_000) && risen(180_000, 210_000, 188_000));
}

#[test]
fn few_bytes_without_the_cure_are_a_gain_where_it_starved_its_flow_and_no_verdict_elsewhere() {
    let verdict = |with: u64, without: u64| {
        let mut trial = Trial::new(Config::default(), Instant::ZERO);
        trial.hold(true);
        let mut bytes = 0;
        for quarter in 1..330 {
            bytes += if trial.lifted() { without } else { with };
            trial.on_progress(Instant(quarter * 250_000_000), bytes);
        }
        (trial.withdrawn(), trial.last())
    };
    assert!(verdict(1_000, 3_000).0);
    assert_eq!(verdict(3_000, 3_000), (false, None));
}

#[test]
fn a_cure_that_costs_more_than_a_twentieth_is_withdrawn_and_the_figures_said() {
    let (trial, done) =
        run(Config::default(), 120, |_, cured| if cured { 200_000 } else { 240_000 });
    let Some((_, Action::Withdraw(verdict))) = done.last() else { panic!("{done:?}") };
    assert!(
        verdict.with.abs_diff(200_000) < 4_000 && verdict.without.abs_diff(240_000) < 4_000,
        "{verdict:?}"
    );
    assert!(trial.withdrawn() && trial.lifted());
    assert_eq!(trial.last(), Some(*verdict));
}

#[test]
fn four_per_cent_are_not_enough() {
    let (trial, done) =
        run(Config::default(), 600, |_, cured| if cured { 200_000 } else { 208_000 });
    assert!(!done.iter().any(|(_, a)| matches!(a, Action::Withdraw(_))), "{done:?}");
    assert!(!trial.lifted());
}

#[test]
fn a_link_that_becomes_faster_during_the_trial_is_no_regression() {
    // The span without the cure begins at about 64 s; from then on the link carries twice as much.
    let (_, done) = run(Config::default(), 100, |s, _| if s < 64 { 100_000 } else { 200_000 });
    assert!(done.iter().any(|(_, a)| *a == Action::Restore));
    assert!(!done.iter().any(|(_, a)| matches!(a, Action::Withdraw(_))), "{done:?}");
}

#[test]
fn an_idle_link_is_left_alone() {
    let (trial, done) = run(Config::default(), 1_000, |_, _| 1_000);
    assert_eq!(done, []);
    assert!(!trial.lifted());
}

#[test]
fn a_transfer_that_ends_while_it_is_lifted_leaves_the_cure_in_place() {
    let (trial, done) = run(Config::default(), 100, |s, _| if s < 65 { 200_000 } else { 0 });
    let last = done.last().map(|(_, action)| *action);
    assert_eq!(last, Some(Action::Restore), "{done:?}");
    assert!(!trial.lifted());
}

#[test]
fn a_withdrawn_cure_gets_another_chance_and_is_withdrawn_for_longer_if_it_still_costs() {
    let (_, done) = run(Config::default(), 2_000, |_, cured| if cured { 100_000 } else { 240_000 });
    let at = |wanted: fn(&Action) -> bool| -> Vec<u64> {
        done.iter().filter(|(_, a)| wanted(a)).map(|(at, _)| *at).collect()
    };
    let (withdrawn, again) =
        (at(|a| matches!(a, Action::Withdraw(_))), at(|a| *a == Action::Retry));
    assert!(again.len() >= 2, "{done:?}");
    let spans: Vec<u64> = again.iter().zip(&withdrawn).map(|(a, w)| a - w).collect();
    assert!(spans.windows(2).all(|w| w[1] > w[0]), "{spans:?}");
}

#[test]
fn a_suspicion_makes_it_soon() {
    let mut trial = Trial::new(Config::default(), Instant::ZERO);
    trial.suspect(Instant(1_000_000_000));
    assert_eq!(trial.on_progress(Instant(1_000_000_000), 0), Action::Keep);
    assert_eq!(trial.on_progress(Instant(4_100_000_000), 1_000_000), Action::Lift);
}

#[test]
fn any_sequence_of_times_and_bytes_is_no_panic_and_lifts_are_always_followed_by_their_end() {
    let mut rng = algo::Rng::new(7, "trial");
    for _ in 0..200 {
        let mut trial = Trial::new(Config::default(), Instant(rng.below(1 << 40)));
        let (mut now, mut bytes, mut lifted) = (rng.below(u64::MAX), rng.below(u64::MAX), false);
        for _ in 0..300 {
            now = now.saturating_add(rng.below(20_000_000_000));
            bytes = if rng.below(20) == 0 {
                rng.below(u64::MAX)
            } else {
                bytes.saturating_add(rng.below(1 << 24))
            };
            match trial.on_progress(Instant(now), bytes) {
                Action::Lift => {
                    assert!(!lifted);
                    lifted = true;
                }
                Action::Restore => {
                    assert!(lifted);
                    lifted = false;
                }
                Action::Withdraw(_) => {
                    assert!(!lifted);
                    lifted = true;
                }
                Action::Retry => {
                    assert!(lifted);
                    lifted = false;
                }
                Action::Keep => {}
            }
            assert_eq!(lifted, trial.lifted());
        }
    }
}

#[test]
fn what_one_flow_takes_from_another_is_no_cost_of_its_cure() {
    // Lifted, it gets nine tenths of the link that both share; or what no other flow used.
    let run = |others: fn(bool) -> u64| {
        let mut trial = Trial::new(Config::default(), Instant::ZERO);
        let (mut own, mut all, mut withdrawn) = (0, 0, false);
        for tenth in 1..1_200 {
            let rate = if trial.lifted() { 180_000 } else { 100_000 };
            own += rate / 10;
            all += (rate + others(trial.lifted())) / 10;
            let action = trial.on_shared_progress(Instant(tenth * 100_000_000), own, all);
            withdrawn |= matches!(action, Action::Withdraw(_));
        }
        withdrawn
    };
    assert!(!run(|lifted| if lifted { 20_000 } else { 100_000 }));
    assert!(run(|_| 100_000));
}

#[test]
fn nothing_is_counted_while_nothing_is_due() {
    let mut trial = Trial::new(Config::default(), Instant::ZERO);
    assert_eq!((trial.due(Instant(1)), trial.stage()), (false, Stage::Resting));
    trial.suspect(Instant(1));
    assert!(trial.due(Instant(1)));
    trial.on_progress(Instant(1), 0);
    assert_eq!((trial.due(Instant(2)), trial.stage()), (true, Stage::Trying));
}

#[test]
fn no_verdict_is_found_before_the_cure_acts_again() {
    // Put back at about 68 s; for ten more seconds the window is as open as it was without.
    let mut trial = Trial::new(Config::default(), Instant::ZERO);
    let (mut bytes, mut back, mut withdrawn) = (0, None, None);
    for tenth in 1..1_200 {
        let acts = back.is_none_or(|at| tenth > at + 100);
        trial.settle(acts);
        bytes += if trial.lifted() || !acts { 24_000 } else { 20_000 };
        match trial.on_progress(Instant(tenth * 100_000_000), bytes) {
            Action::Restore => back = Some(tenth),
            Action::Withdraw(verdict) => withdrawn = withdrawn.or(Some(verdict)),
            _ => {}
        }
    }
    assert!(
        withdrawn.is_some_and(|verdict| verdict.with.abs_diff(200_000) < 8_000),
        "{withdrawn:?}"
    );
}

#[test]
fn a_cure_that_starves_is_tried_although_little_comes() {
    let starved = |held: bool| {
        let mut trial = Trial::new(Config::default(), Instant::ZERO);
        let (mut bytes, mut done) = (0, Vec::new());
        for tenth in 1..3_000 {
            bytes += if trial.lifted() { 24_000 } else { 600 };
            trial.hold(held);
            done.push(trial.on_progress(Instant(tenth * 100_000_000), bytes));
        }
        done.iter().filter(|action| matches!(action, Action::Withdraw(_))).count()
    };
    assert_eq!(starved(false), 0, "a flow that wants no more than that");
    assert!(starved(true) > 0);
}

#[test]
fn a_transfer_that_ends_while_it_is_judged_is_no_regression() {
    let mut trial = Trial::new(Config::default(), Instant::ZERO);
    let (mut bytes, mut judged) = (0, 0);
    for tenth in 1..1_500 {
        // It ends soon after the cure has come back from its first trial.
        judged += u64::from(trial.judging());
        let ended = judged > 20;
        bytes += if ended {
            0
        } else if trial.lifted() {
            24_000
        } else {
            600
        };
        trial.hold(!ended);
        let action = trial.on_progress(Instant(tenth * 100_000_000), bytes);
        assert!(!matches!(action, Action::Withdraw(_)), "at {tenth}");
    }
    assert!(judged > 20);
}
