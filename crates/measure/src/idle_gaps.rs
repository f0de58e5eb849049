//! How much longer the first packet after a pause takes, and after which pause.
//!
//! signal: the round trip of a packet after a pause, less that of two that follow it at once · model: a radio that no program
//! uses releases its connection after some seconds, or sleeps in cycles (3GPP TS 36.331 section 5.3.3, TS 36.321
//! section 5.7); the first packet wakes it, so the extra time is a step over the pause · action: the steps, each between
//! two pauses that differ by half a second at most (`flow::diagnose::pauses` finds them); until they do, the next pause
//! to try.
//!
//! Source: the sweep of ping intervals of Jiang et al., "Tackling Bufferbloat in 3G/4G Networks", IMC 2012, figure 5, and of
//! MobiPerf (pauses of 0 to 15 s). The halving is this project's: with it a sweep of a few minutes finds what one in
//! steps of half a second takes twenty for.

use algo::Rng;
use flow::diagnose::pauses::{Step, steps};
use serde::Serialize;

/// Pauses of the short sweep, s.
const QUICK_S: [f64; 6] = [0.2, 1.0, 3.0, 6.0, 12.0, 20.0];
const QUICK_REPEATS: usize = 3;
const FULL_REPEATS: usize = 5;
/// A step is known well enough between pauses that differ by less, s.
const WIDTH_S: f64 = 0.5;
/// Of each pause that halves a step: two that agree, since a third of 20 s costs more time than it is worth.
const HALVING: usize = 2;

/// One pause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Silence before the packet, s.
    pub gap_s: f64,
    /// What it took more than those that followed, ms; `None`: it was not answered.
    pub extra_ms: Option<f64>,
}

/// A sweep of pauses.
#[derive(Clone, Debug)]
pub struct Sweep {
    todo: Vec<f64>,
    samples: Vec<Sample>,
}

/// Pauses of the short sweep: six, three times each.
pub fn quick() -> Vec<f64> {
    repeated(&QUICK_S, QUICK_REPEATS)
}

/// Pauses of the long sweep: 0.1 s, every half second to 15 s, and 20 and 30 s, five times each.
pub fn full() -> Vec<f64> {
    let gaps: Vec<f64> =
        [0.1].into_iter().chain((1..=30).map(|n| f64::from(n) / 2.0)).chain([20.0, 30.0]).collect();
    repeated(&gaps, FULL_REPEATS)
}

/// Pauses of a sweep of one's own, three times each.
pub fn each(gaps_s: &[f64]) -> Vec<f64> {
    repeated(gaps_s, QUICK_REPEATS)
}

fn repeated(gaps_s: &[f64], times: usize) -> Vec<f64> {
    gaps_s.iter().flat_map(|gap| std::iter::repeat_n(*gap, times)).collect()
}

impl Sweep {
    /// Over these pauses, in any order.
    pub fn new(mut gaps_s: Vec<f64>, rng: &mut Rng) -> Sweep {
        // What changes with time on the path is then no step.
        for last in (1..gaps_s.len()).rev() {
            gaps_s.swap(last, rng.below(last as u64 + 1) as usize);
        }
        Sweep { todo: gaps_s, samples: Vec::new() }
    }

    /// The next pause to try, s; `None`: all steps are known.
    pub fn next_pause(&mut self) -> Option<f64> {
        if self.todo.is_empty() {
            let wide =
                self.steps().into_iter().find(|step| step.until_s - step.from_s > WIDTH_S)?;
            let middle = f64::midpoint(wide.from_s, wide.until_s);
            self.todo = vec![middle; HALVING];
        }
        self.todo.pop()
    }

    /// Takes what a pause showed.
    pub fn take(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Seconds of silence that are still to come, at least.
    pub fn left_s(&self) -> f64 {
        self.todo.iter().sum()
    }

    /// All pauses so far.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Steps up so far, in the order of pauses.
    pub fn steps(&self) -> Vec<Step> {
        let answered = self.samples.iter().filter_map(|s| Some((s.gap_s, s.extra_ms?)));
        steps(answered.collect())
    }
}

#[cfg(test)]
mod tests {
    use algo::Rng;
    use proptest::prelude::*;

    use super::*;

    /// A sweep over a radio: (pause, extra) of each of its steps, and jitter.
    fn swept(steps: &[(f64, f64)], jitter_ms: f64, gaps: Vec<f64>, seed: u64) -> (Vec<Step>, f64) {
        let mut rng = Rng::new(seed, "radio");
        let mut sweep = Sweep::new(gaps, &mut rng);
        let mut silence_s = 0.0;
        while let Some(gap_s) = sweep.next_pause() {
            silence_s += gap_s;
            let of_radio =
                steps.iter().rev().find(|(after, _)| gap_s > *after).map_or(0.0, |(_, ms)| *ms);
            let extra_ms = Some(of_radio + jitter_ms * (rng.uniform() - 0.5));
            sweep.take(Sample { gap_s, extra_ms });
        }
        (sweep.steps(), silence_s)
    }

    #[test]
    fn a_promotion_is_found_between_two_pauses_half_a_second_apart() {
        for seed in 0..20 {
            let (steps, silence_s) = swept(&[(7.0, 500.0)], 6.0, quick(), seed);
            assert_eq!(steps.len(), 1, "{steps:?}");
            let step = steps[0];
            assert!(step.from_s <= 7.0 && 7.0 < step.until_s, "{step:?}");
            assert!(step.until_s - step.from_s <= WIDTH_S);
            assert!((step.extra_ms - 500.0).abs() < 6.0 && !step.cycle, "{step:?}");
            assert!(silence_s < 200.0, "{silence_s} s");
        }
    }

    #[test]
    fn dozing_and_promotion_are_two_steps_and_a_path_without_either_has_none() {
        let (steps, _) = swept(&[(0.6, 40.0), (11.0, 260.0)], 4.0, quick(), 3);
        let extras: Vec<f64> = steps.iter().map(|step| step.extra_ms.round()).collect();
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert!((extras[0] - 40.0).abs() <= 4.0 && (extras[1] - 220.0).abs() <= 4.0);
        for seed in 0..20 {
            let (steps, silence_s) = swept(&[], 8.0, quick(), seed);
            assert_eq!(steps, [], "jitter alone");
            // Halving one that jitter made shows that it is none.
            assert!(silence_s < 160.0, "seed {seed}: {silence_s} s");
        }
    }

    #[test]
    fn a_packet_that_comes_at_any_moment_of_a_cycle_is_named_so() {
        let mut rng = Rng::new(1, "cycle");
        let mut sweep = Sweep::new(quick(), &mut rng);
        while let Some(gap_s) = sweep.next_pause() {
            let extra_ms = if gap_s > 2.0 { 320.0 * rng.uniform() } else { rng.uniform() };
            sweep.take(Sample { gap_s, extra_ms: Some(extra_ms) });
        }
        assert!(sweep.steps().iter().any(|step| step.cycle), "{:?}", sweep.steps());
    }

    #[test]
    fn packets_that_are_lost_say_nothing() {
        let mut sweep = Sweep::new(quick(), &mut Rng::new(1, "lost"));
        while let Some(gap_s) = sweep.next_pause() {
            sweep.take(Sample { gap_s, extra_ms: None });
        }
        assert_eq!((sweep.steps(), sweep.samples().len()), (vec![], 18));
    }

    proptest! {
        #[test]
        fn any_sweep_ends(extras in prop::collection::vec(-50.0..5000.0, 1..60)) {
            let mut sweep = Sweep::new(full(), &mut Rng::new(2, "any"));
            let mut pauses = 0;
            while let Some(gap_s) = sweep.next_pause() {
                let extra_ms = Some(extras[pauses % extras.len()]);
                sweep.take(Sample { gap_s, extra_ms });
                pauses += 1;
                prop_assert!(pauses < 5_000);
            }
        }
    }
}
