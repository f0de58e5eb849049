//! The rate over time as a hidden Markov model, of which rates are drawn.
//!
//! signal: slots with a rate, or with a lower bound of it · model: the logarithm of the rate is one of many levels. From
//! slot to slot it drifts (Laplace) or jumps to a rate that was seen. A slot with a queue shows the rate with an error of a
//! packet, of a tick and of what interpolation adds; one without shows that the rate is no smaller (a censored
//! observation) · action: forward filter and backward sampling give rates over time, as likely as each other
//!
//! How far the rate drifts and how often it jumps are taken from a table, whichever explains the slots best (empirical
//! Bayes). A constant link so has a narrow band also where no queue stood, and a cellular one a wide one.
//!
//! Source: Rabiner, "A tutorial on hidden Markov models", Proc. IEEE 77(2), 1989. Frühwirth-Schnatter, "Data augmentation
//! and dynamic linear models", J. Time Series Analysis 15(2), 1994 (forward filter, backward sampling). Bothra et al.,
//! "Veritas", SIGCOMM 2023 uses such draws for the bandwidth of video sessions. Levels here are finer than the error of a
//! slot, and a draw lies anywhere within its levels.

use algo::Rng;

use crate::slots::{Seen, Slots};

/// Step between levels, of the logarithm, and the largest number of levels: beyond, steps grow.
const STEP: f64 = 0.005;
const MAX_LEVELS: usize = 1000;
/// The smallest rate that counts, bit/s: below it, a link stands still.
const MIN_BPS: f64 = 10_000.0;
/// The rate is looked for from half of the smallest to four times the largest one that was seen.
const BELOW: f64 = 0.5;
const ABOVE: f64 = 4.0;
/// Relative error of a slot beside packet and tick: arrivals between two trips are interpolated.
const ERROR: f64 = 0.03;
/// Relative error that all slots have in common, as that of the finding `bottleneck-rate`: a clock that drifts, ACKs that were
/// delayed, mixed sizes of packets. Its 90 % interval is 0.5 % to both sides.
const COMMON: f64 = 0.003;
/// Errors by which a rate may be below what arrived in a slot. A link that is just not busy for certain delivers its rate in
/// slot after slot: were that less likely than a faster link, many of them would exclude it.
const BOUND: f64 = 3.0;
/// Slots that show anything at all: a host that stood still.
const WRONG: f64 = 0.01;
/// Mean drift of the logarithm from slot to slot, and the probability of a jump, that are tried.
const DRIFTS: [f64; 6] = [0.001, 0.004, 0.016, 0.064, 0.18, 0.5];
const JUMPS: [f64; 3] = [0.001, 0.01, 0.1];
/// Part of the jumps that go to any level: a rate that was never seen with a queue.
const ANYWHERE: f64 = 0.1;
/// Within this, of the logarithm, lies a rate that was seen.
const NEAR: f64 = 0.05;

/// How the rate changes from slot to slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habit {
    /// Mean drift of its logarithm.
    pub drift: f64,
    /// Probability of a jump.
    pub jump: f64,
}

/// A fitted model.
pub(crate) struct Chain {
    pub habit: Habit,
    /// Logarithms.
    levels: Vec<f64>,
    step: f64,
    /// Probabilities of each slot's levels, given it and the slots before.
    filtered: Vec<Vec<f64>>,
    jumps_to: Vec<f64>,
    /// Of the kernel of the drift, by level.
    norms: Vec<f64>,
}

impl Chain {
    /// The habit that explains the slots best, and what is known of each slot then.
    pub fn fitted(slots: &Slots) -> Chain {
        let (levels, step) = levels(slots);
        let likely: Vec<Vec<f64>> =
            slots.seen.iter().map(|seen| likelihoods(slots, *seen, &levels)).collect();
        let jumps_to = jumps_to(slots, &levels);
        let with = |habit: Habit| {
            let norms = kernel(&vec![1.0; levels.len()], decay(habit, step));
            let mut chain = Chain {
                habit,
                levels: levels.clone(),
                step,
                filtered: Vec::with_capacity(likely.len()),
                jumps_to: jumps_to.clone(),
                norms,
            };
            let score = chain.filter(&likely);
            (score, chain)
        };
        let habits = DRIFTS
            .iter()
            .flat_map(|drift| JUMPS.iter().map(|jump| Habit { drift: *drift, jump: *jump }));
        let mut best: Option<(f64, Chain)> = None;
        for (score, chain) in habits.map(with) {
            if best.as_ref().is_none_or(|(most, _)| score > *most) {
                best = Some((score, chain));
            }
        }
        match best {
            Some((_, chain)) => chain,
            None => with(Habit { drift: DRIFTS[0], jump: JUMPS[0] }).1,
        }
    }

    /// Forward; the logarithm of the likelihood of all slots.
    fn filter(&mut self, likely: &[Vec<f64>]) -> f64 {
        let mut score = 0.0;
        let mut before: Option<Vec<f64>> = None;
        for now in likely {
            // Before the first slot every level is as likely.
            let mut after = match &before {
                Some(before) => self.moved(before),
                None => vec![1.0 / self.levels.len() as f64; self.levels.len()],
            };
            for (p, likely) in after.iter_mut().zip(now) {
                *p *= likely;
            }
            let sum: f64 = after.iter().sum();
            after.iter_mut().for_each(|p| *p /= sum);
            score += libm::log(sum);
            self.filtered.push(after.clone());
            before = Some(after);
        }
        score
    }

    /// Probabilities of the next slot's levels.
    fn moved(&self, before: &[f64]) -> Vec<f64> {
        let each: Vec<f64> = before.iter().zip(&self.norms).map(|(p, norm)| p / norm).collect();
        let drifted = kernel(&each, decay(self.habit, self.step));
        let jump = self.habit.jump;
        drifted.iter().zip(&self.jumps_to).map(|(p, to)| (1.0 - jump) * p + jump * to).collect()
    }

    /// Rates, bit/s, slot by slot: backward from the last one.
    pub fn draw(&self, random: &mut Rng) -> Vec<f64> {
        let decay = decay(self.habit, self.step);
        let mut drawn: Vec<f64> = Vec::with_capacity(self.filtered.len());
        // What all slots have in common, for it does not average out.
        let common = (random.uniform() - 0.5) * self.step + COMMON * random.normal();
        let mut next: Option<usize> = None;
        for known in self.filtered.iter().rev() {
            let weights: Vec<f64> = match next {
                None => known.clone(),
                Some(next) => {
                    let jump = self.habit.jump * self.jumps_to[next];
                    let to = |level: usize| {
                        let away = level.abs_diff(next) as f64;
                        (1.0 - self.habit.jump) * libm::pow(decay, away) / self.norms[level] + jump
                    };
                    known.iter().enumerate().map(|(level, p)| p * to(level)).collect()
                }
            };
            let level = chosen(&weights, random);
            next = Some(level);
            drawn.push(libm::exp(self.levels[level] + common));
        }
        drawn.reverse();
        drawn
    }
}

/// What is left of the kernel of the drift a level further.
fn decay(habit: Habit, step: f64) -> f64 {
    libm::exp(-step / habit.drift)
}

/// Sums over all levels, each weighted by `decay` to the power of its distance: one pass up and one down.
fn kernel(values: &[f64], decay: f64) -> Vec<f64> {
    let mut sums = values.to_vec();
    let mut below = 0.0;
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += below;
        below = (below + value) * decay;
    }
    let mut above = 0.0;
    for (sum, value) in sums.iter_mut().zip(values).rev() {
        *sum += above;
        above = (above + value) * decay;
    }
    sums
}

/// An index, by weight.
fn chosen(weights: &[f64], random: &mut Rng) -> usize {
    let mut left = random.uniform() * weights.iter().sum::<f64>();
    for (at, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return at;
        }
    }
    weights.len().saturating_sub(1)
}

fn of(seen: Seen) -> f64 {
    match seen {
        Seen::Rate { bps, .. } | Seen::AtLeast { bps } => bps,
    }
}

/// Logarithms of the rates that are looked at, and their distance.
fn levels(slots: &Slots) -> (Vec<f64>, f64) {
    let with_queue = slots.seen.iter().filter(|seen| matches!(seen, Seen::Rate { .. }));
    let smallest = with_queue.map(|seen| of(*seen)).fold(f64::INFINITY, f64::min);
    let largest = slots.seen.iter().map(|seen| of(*seen)).fold(MIN_BPS, f64::max);
    let from = libm::log((smallest * BELOW).clamp(MIN_BPS, largest));
    let to = libm::log(largest * ABOVE);
    let step = STEP.max((to - from) / MAX_LEVELS as f64);
    let count = ((to - from) / step) as usize + 1;
    ((0..count).map(|at| from + at as f64 * step).collect(), step)
}

/// How likely each level makes what a slot shows.
fn likelihoods(slots: &Slots, seen: Seen, levels: &[f64]) -> Vec<f64> {
    let width_s = slots.width.as_secs_f64();
    let at = |level: &f64| {
        let rate = libm::exp(*level);
        let error = |seconds: f64| {
            let packet = slots.packet_bits / seconds;
            let tick = rate * slots.tick_s / seconds;
            libm::sqrt(packet * packet + tick * tick + (ERROR * rate) * (ERROR * rate))
        };
        match seen {
            Seen::Rate { bps, busy_s } => {
                let error = error(busy_s);
                let z = (bps - rate) / error;
                let density = libm::exp(-0.5 * z * z) / error;
                // A slot that shows nothing has any rate up to the largest one.
                (1.0 - WRONG) * density + WRONG / libm::exp(levels[levels.len() - 1])
            }
            Seen::AtLeast { bps } => {
                let z = (rate - bps) / error(width_s) + BOUND;
                (1.0 - WRONG) * 0.5 * libm::erfc(-z / core::f64::consts::SQRT_2) + WRONG
            }
        }
    };
    levels.iter().map(at).collect()
}

/// Where jumps go: rates that were seen with a queue, and anywhere.
fn jumps_to(slots: &Slots, levels: &[f64]) -> Vec<f64> {
    let mut weights = vec![0.0; levels.len()];
    for slot in &slots.seen {
        let Seen::Rate { bps, .. } = slot else { continue };
        let seen = libm::log(bps.max(MIN_BPS));
        let near =
            |level: &f64| libm::exp(-0.5 * ((level - seen) / NEAR) * ((level - seen) / NEAR));
        let each: Vec<f64> = levels.iter().map(near).collect();
        let sum = each.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        weights.iter_mut().zip(each).for_each(|(weight, near)| *weight += near / sum);
    }
    let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let anywhere = ANYWHERE / levels.len() as f64;
    weights.iter().map(|weight| (1.0 - ANYWHERE) * weight / sum + anywhere).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Duration, Instant};

    fn seen(slots: Vec<Seen>) -> Slots {
        Slots {
            from: Instant(0),
            width: Duration::from_millis(100),
            arrived: Vec::new(),
            seen: slots,
            packet_bits: 12_000.0,
            tick_s: 0.001,
        }
    }

    fn queued(bps: f64) -> Seen {
        Seen::Rate { bps, busy_s: 0.1 }
    }

    /// The 5 %, 50 % and 95 % quantile of 200 draws in one slot.
    fn band(chain: &Chain, at: usize) -> [f64; 3] {
        let mut random = Rng::new(1, "fit");
        let mut values: Vec<f64> = (0..200).map(|_| chain.draw(&mut random)[at]).collect();
        values.sort_unstable_by(f64::total_cmp);
        [values[10], values[100], values[190]]
    }

    /// Measured with an error of 2 %.
    fn noisy(bps: f64, random: &mut Rng) -> f64 {
        bps * (1.0 + 0.02 * random.normal())
    }

    #[test]
    fn a_constant_link_has_a_narrow_band_also_where_no_queue_stood() {
        let mut random = Rng::new(2, "noise");
        let slots = (0..200).map(|at| match at {
            50..150 => Seen::AtLeast { bps: 1e6 },
            _ => queued(noisy(4e6, &mut random)),
        });
        let chain = Chain::fitted(&seen(slots.collect()));
        for at in [10, 100, 190] {
            let [low, middle, high] = band(&chain, at);
            assert!((middle / 4e6 - 1.0).abs() < 0.02, "{at}: {middle}");
            assert!(low < 4e6 && high > 4e6 && high < 1.15 * low, "{at}: {low} {high}");
        }
        assert!(chain.habit.drift <= 0.004, "{:?}", chain.habit);
    }

    #[test]
    fn slots_in_which_the_rate_arrives_without_a_queue_do_not_raise_it() {
        let slots = (0..400).map(|at| match at {
            0..20 => queued(4e6),
            _ => Seen::AtLeast { bps: 4e6 },
        });
        let [low, middle, _] = band(&Chain::fitted(&seen(slots.collect())), 300);
        assert!(low < 4e6 && (middle / 4e6 - 1.0).abs() < 0.03, "{low} {middle}");
    }

    #[test]
    fn a_rate_that_moves_has_a_wide_band_where_no_queue_stood_and_above_what_arrived() {
        let mut random = Rng::new(3, "noise");
        let mut rate = 4e6;
        let slots: Vec<Seen> = (0..300)
            .map(|at| {
                rate *= libm::exp(0.2 * random.normal());
                match at {
                    150..200 => Seen::AtLeast { bps: 3e6 },
                    _ => queued(noisy(rate, &mut random)),
                }
            })
            .collect();
        let chain = Chain::fitted(&seen(slots));
        let [low, _, high] = band(&chain, 175);
        assert!(high > 1.5 * low && low > 2.6e6, "{low} {high}");
        assert!(chain.habit.drift >= 0.064, "{:?}", chain.habit);
    }

    #[test]
    fn a_step_is_found_to_a_slot_and_an_outage_stays_one() {
        let mut random = Rng::new(4, "noise");
        let slots = (0..200).map(|at| match at {
            100..105 => queued(0.0),
            0..100 => queued(noisy(1e7, &mut random)),
            _ => queued(noisy(4e6, &mut random)),
        });
        let chain = Chain::fitted(&seen(slots.collect()));
        for (at, rate) in [(98, 1e7), (107, 4e6)] {
            let [low, _, high] = band(&chain, at);
            assert!(low < rate && high > rate && high < 1.15 * low, "{at}: {low} {high}");
        }
        assert!(band(&chain, 102)[2] < 3e5, "{:?}", band(&chain, 102));
    }

    #[test]
    fn the_kernel_is_the_sum_over_all_levels() {
        let values = [1.0, 0.0, 2.0, 0.5];
        let direct = (0..4).map(|i: usize| {
            (0..4usize).map(|j| values[j] * libm::pow(0.5, i.abs_diff(j) as f64)).sum::<f64>()
        });
        for (fast, slow) in kernel(&values, 0.5).iter().zip(direct) {
            assert!((fast - slow).abs() < 1e-12);
        }
    }
}
