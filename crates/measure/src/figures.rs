//! Figures of a phase, each with an interval, and the grade that they allow.
//!
//! signal: added delay of each probe in the order of time, infinite for a lost one · model: probes near each other in time
//! are alike, so draws with replacement take whole blocks of them · action: quantiles, their 90 % intervals, and a grade
//! where the interval of p95 lies within one step, or two.
//!
//! The stationary bootstrap of Politis and Romano (JASA 89, 1994): blocks of random, geometrically distributed length.

use algo::Rng;
use flow::diagnose::grade::{STEPS, grade};

/// Draws: the ends of a 90 % interval are then themselves known to a few per cent of their rank.
const DRAWS: usize = 500;
/// Mean length of a block. Of 0.25, 0.5 and 1 s it covered best over series of 5 to 20 s.
const BLOCK_S: f64 = 0.5;
/// Ends of the 90 % interval among the draws. A test has 10 to 40 blocks, and so few vary less than the process: on
/// simulated queues with a memory of 0.1 to 0.2 s the draws between 5 % and 95 % contained the true p95 in 79 % of the
/// cases, those between 1 % and 99 % in 90 %. A memory of 0.4 s in ten seconds leaves 69 %; no choice of these two
/// numbers repairs that.
const TAILS: (f64, f64) = (0.01, 0.99);
/// Fewer probes give no grade: ten of 200 lie above p95.
pub const MIN_PROBES: usize = 200;

/// A quantile and its 90 % interval, ms; infinite where it falls on lost probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Of all probes.
    pub ms: f64,
    /// The interval's lower end.
    pub low_ms: f64,
    /// The interval's upper end.
    pub high_ms: f64,
}

/// What one direction did in one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Probes that count, lost ones among them.
    pub probes: usize,
    /// Lost ones.
    pub lost: usize,
    /// Median of the added delay.
    pub p50: Quantile,
    /// Its upper quartile, ms.
    pub p75_ms: f64,
    /// Its ninth decile, ms.
    pub p90_ms: f64,
    /// What the grade is given for.
    pub p95: Quantile,
    /// The highest.
    pub p99: Quantile,
    /// Mean difference between successive delays, ms; `None` where there are no two.
    pub jitter_ms: Option<f64>,
    /// The queue still grew: see [`is_rising`].
    pub rising: bool,
    /// How long the queue was before, where it was as long as it is at the end, ms: see [`Figures::after`].
    pub regained_ms: Option<f64>,
}

/// A smaller rise is none: half of what an A allows. The window law lets the queue of a path of 20 ms swing between a quarter and
/// three quarters of that, over seconds; with 5 ms two of four measurements of a cured uplink had no grade.
const MIN_RISE_MS: f64 = 15.0;

/// Probes that show how long a queue was: a fifth of a second at 50 a second. Fewer may be delayed by something else.
const MIN_THERE: usize = 10;

/// Whether the queue still grew at the end: the median of the last third is above that of the first by more than 20 %
/// and `MIN_RISE_MS`, or that of the last tenth is above that of all by as much. A load fills a deep buffer over seconds; what is
/// measured meanwhile is less than what stays. The queue that CUBIC keeps swings by less (its β is 0.7: between 0.85 and
/// 1.2 of its mean where the buffer is as large as the path).
pub fn is_rising(delays_ms: &[f64]) -> bool {
    let Some(end_ms) = end_ms(delays_ms) else {
        return false;
    };
    let (n, third) = (delays_ms.len(), delays_ms.len() / 3);
    let above = |high: f64, low: f64| high > low + f64::max(MIN_RISE_MS, 0.2 * low);
    above(median(&delays_ms[n - third..]), median(&delays_ms[..third]))
        || above(end_ms, median(delays_ms))
}

/// The median of the last tenth; `None` where that is no probe.
fn end_ms(delays_ms: &[f64]) -> Option<f64> {
    let (n, tenth) = (delays_ms.len(), delays_ms.len() / 10);
    (tenth > 0).then(|| median(&delays_ms[n - tenth..]))
}

/// A grade, as far as the interval allows one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One step.
    One(&'static str),
    /// The interval spans two steps; the better one first.
    Two(&'static str, &'static str),
    /// None, and why.
    None(String),
}

impl Verdict {
    /// As it is printed.
    pub fn words(&self) -> String {
        match self {
            Verdict::One(grade) => (*grade).to_owned(),
            Verdict::Two(better, worse) => format!("{better} or {worse}"),
            Verdict::None(_) => "none".to_owned(),
        }
    }

    /// Why there is none.
    pub fn why(&self) -> Option<&str> {
        match self {
            Verdict::None(why) => Some(why),
            _ => None,
        }
    }
}

/// The value of which `share` of the sorted values are no larger.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The median of some values, one at least.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

impl Figures {
    /// Of delays in the order of time, `per_s` of them in a second; `None` without any.
    pub fn of(delays_ms: &[f64], per_s: f64, rng: &mut Rng) -> Option<Figures> {
        if delays_ms.is_empty() {
            return None;
        }
        let mut sorted = delays_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let shares = [0.5, 0.95, 0.99];
        let mut draws: [Vec<f64>; 3] = Default::default();
        let ends = 1.0 / (BLOCK_S * per_s).max(1.0);
        let mut drawn = vec![0.0; delays_ms.len()];
        for _ in 0..DRAWS {
            let mut at = 0;
            for (n, value) in drawn.iter_mut().enumerate() {
                at = if n == 0 || rng.chance(ends) {
                    rng.below(delays_ms.len() as u64) as usize
                } else {
                    (at + 1) % delays_ms.len()
                };
                *value = delays_ms[at];
            }
            drawn.sort_by(f64::total_cmp);
            for (share, draws) in shares.iter().zip(&mut draws) {
                draws.push(quantile(&drawn, *share));
            }
        }
        let with_interval = |which: usize| {
            let mut found = draws[which].clone();
            found.sort_by(f64::total_cmp);
            Quantile {
                ms: quantile(&sorted, shares[which]),
                low_ms: quantile(&found, TAILS.0),
                high_ms: quantile(&found, TAILS.1),
            }
        };
        let arrived: Vec<f64> = delays_ms.iter().copied().filter(|d| d.is_finite()).collect();
        let jitter_ms = (arrived.len() > 1).then(|| {
            arrived.windows(2).map(|w| (w[1] - w[0]).abs()).sum::<f64>()
                / (arrived.len() - 1) as f64
        });
        Some(Figures {
            probes: delays_ms.len(),
            lost: delays_ms.len() - arrived.len(),
            p50: with_interval(0),
            p75_ms: quantile(&sorted, 0.75),
            p90_ms: quantile(&sorted, 0.9),
            p95: with_interval(1),
            p99: with_interval(2),
            jitter_ms,
            rising: is_rising(delays_ms),
            regained_ms: None,
        })
    }

    /// The same, of `delays_ms` that followed on `before_ms` of the same load.
    ///
    /// A queue that rises to where it has been is no buffer that is still being filled: a sender has backed off and regains its
    /// window, which takes CUBIC `K` = ∛(0.3 W / 0.4) seconds (RFC 9438, section 4.2), seven at 20 Mbit/s and 300 ms. Its delay will
    /// reach what it was, so the grade counts with that and need not be withheld.
    pub fn after(mut self, delays_ms: &[f64], before_ms: &[f64]) -> Figures {
        if let Some(end_ms) = end_ms(delays_ms).filter(|_| self.rising) {
            let mut before: Vec<f64> =
                before_ms.iter().copied().filter(|ms| ms.is_finite()).collect();
            before.sort_by(f64::total_cmp);
            let longest = before.len().checked_sub(MIN_THERE).map(|n| before[n]);
            self.regained_ms = longest.filter(|ms| *ms >= end_ms);
        }
        self
    }

    /// Whether the queue still grew to a length that is not known.
    pub fn still_fills(&self) -> bool {
        self.rising && self.regained_ms.is_none()
    }

    /// Share of probes that were lost.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / self.probes as f64
    }

    /// Whether more probes would say little more: the interval of p95 is narrower than 20 % of it, or 5 ms.
    pub fn is_certain(&self) -> bool {
        self.probes >= MIN_PROBES
            && !self.rising
            && self.p95.high_ms - self.p95.low_ms < f64::max(0.2 * self.p95.ms, 5.0)
    }

    /// The grade that p95 and its interval allow.
    pub fn verdict(&self) -> Verdict {
        if self.probes < MIN_PROBES {
            return Verdict::None(format!(
                "{} probes are too few: a grade needs {MIN_PROBES}",
                self.probes
            ));
        }
        let step = |ms: f64| STEPS.iter().position(|(below, _)| ms < *below).unwrap_or(STEPS.len());
        let high_ms = self.p95.high_ms.max(self.regained_ms.unwrap_or(0.0));
        let (best, worst) = (grade(self.p95.low_ms), grade(high_ms));
        // Nothing is worse than the last step.
        if self.still_fills() && step(self.p95.low_ms) < STEPS.len() {
            return Verdict::None(format!("the delay still rose at the end: {best} at best"));
        }
        match step(high_ms) - step(self.p95.low_ms) {
            0 => Verdict::One(best),
            1 => Verdict::Two(best, worst),
            _ => {
                Verdict::None(format!("the delay varied too much: anything from {best} to {worst}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(delays: &[f64]) -> Figures {
        Figures::of(delays, 50.0, &mut Rng::new(1, "bootstrap")).unwrap()
    }

    /// Delays of a queue: a first-order autoregression with a memory of 0.4 s, around 100 ms.
    fn queue(seed: u64, n: usize, memory: f64) -> Vec<f64> {
        let mut rng = Rng::new(seed, "queue");
        let mut x = rng.normal();
        (0..n)
            .map(|_| {
                x = memory * x + rng.normal() * (1.0_f64 - memory * memory).sqrt();
                100.0 + 20.0 * x
            })
            .collect()
    }

    #[test]
    fn lost_probes_are_infinite_delays() {
        let mut delays: Vec<f64> = (0..400).map(|n| f64::from(n % 40)).collect();
        for n in (0..400).step_by(12) {
            delays[n] = f64::INFINITY;
        }
        let found = figures(&delays);
        assert_eq!((found.probes, found.lost), (400, 34));
        assert!(found.p95.ms.is_infinite() && found.p90_ms.is_finite());
        assert!(found.jitter_ms.is_some_and(f64::is_finite));
        assert!(!found.is_certain());
    }

    #[test]
    fn the_grade_is_that_of_a_certain_p95_and_is_withheld_otherwise() {
        assert_eq!(figures(&queue(1, 1000, 0.8)).verdict(), Verdict::One("C"));
        assert_eq!(figures(&queue(1, 199, 0.8)).verdict().words(), "none");
        let near: Vec<f64> = queue(2, 600, 0.8).iter().map(|d| d + 400.0 - 132.0).collect();
        assert_eq!(figures(&near).verdict(), Verdict::Two("D", "F"));
        let wild: Vec<f64> =
            (0..300).map(|n| if n % 100 < 6 { f64::from(n) * 4.0 } else { 1.0 }).collect();
        assert!(figures(&wild).verdict().why().is_some_and(|why| why.contains("varied")));
    }

    #[test]
    fn a_queue_that_still_grows_has_no_grade_unless_it_is_the_last() {
        let grows = |by: f64| (0..400).map(|n| f64::from(n) * by).collect::<Vec<f64>>();
        let found = figures(&grows(0.3));
        assert!(found.rising && !found.is_certain());
        assert_eq!(found.verdict().why(), Some("the delay still rose at the end: C at best"));
        // Where it rises to what it was before, that is its end, and both grades are possible; a longer queue is not known from
        // fewer probes than ten, nor from a shorter queue.
        let verdict = |before: &[f64]| figures(&grows(0.3)).after(&grows(0.3), before).verdict();
        assert_eq!(verdict(&[150.0; 10]), Verdict::One("C"));
        assert_eq!(verdict(&[250.0; 10]), Verdict::Two("C", "D"));
        assert!(verdict(&[150.0; 9]).why().is_some());
        assert!(verdict(&[100.0; 50]).why().is_some());
        assert!(verdict(&[f64::INFINITY; 50]).why().is_some());
        let level = vec![150.0; 400];
        assert_eq!(figures(&level).after(&level, &[900.0; 50]).regained_ms, None);
        let late: Vec<f64> = grows(1.0).iter().map(|ms| ms + 500.0).collect();
        assert_eq!(figures(&late).verdict(), Verdict::One("F"));
        // It stands at 90 ms, and grows in the last fifth only.
        let step: Vec<f64> = (0..240).map(|n| if n < 200 { 90.0 } else { 130.0 }).collect();
        assert!(figures(&step).rising);
        // CUBIC's queue in a buffer of 240 ms on a path of 20 ms: 30 % down every 2 s, then up again.
        let cubic: Vec<f64> = (0..240).map(|n| 160.0 + 0.8 * f64::from(n % 100)).collect();
        assert!(!figures(&cubic).rising);
    }

    #[test]
    fn the_interval_contains_the_true_p95_about_nine_times_in_ten() {
        let truth = 100.0 + 20.0 * 1.645;
        let held = (0..200)
            .filter(|seed| {
                let p95 = figures(&queue(*seed, 500, 0.8)).p95;
                p95.low_ms <= truth && truth <= p95.high_ms
            })
            .count();
        assert!((172..=196).contains(&held), "{held} of 200");
    }

    #[test]
    fn draws_without_blocks_would_be_too_certain() {
        let delays = queue(5, 500, 0.8);
        let block = figures(&delays).p95;
        let single = Figures::of(&delays, 0.01, &mut Rng::new(1, "bootstrap")).unwrap().p95;
        assert!(block.high_ms - block.low_ms > 1.5 * (single.high_ms - single.low_ms));
    }

    #[test]
    fn nothing_has_no_figures() {
        assert_eq!(Figures::of(&[], 50.0, &mut Rng::new(1, "bootstrap")), None);
    }
}
