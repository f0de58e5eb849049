//! When working conditions are reached, and when responsiveness is known: draft-ietf-ippm-responsiveness-09, section 4.4.
//!
//! signal: bytes and responsiveness of each interval · model: goodput is saturated, and responsiveness after it, when the
//! standard deviation of the last MAD moving averages is below SDT of the latest one · action: go on, or report.
//!
//! Deviation: each of both stages has half of the time at most, as the draft proposes for its confidence. Where goodput is not
//! saturated by then, responsiveness is measured all the same, and neither is of high confidence.

use serde::Serialize;

pub use crate::saturation::AVERAGED;
use crate::saturation::{is_steady, moving_average};

/// How sure a figure is, in the draft's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Of fewer than MAD intervals.
    Low,
    /// Not stable in its time.
    Medium,
    /// Stable.
    High,
}

/// What follows an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Goodput is not saturated yet.
    Goodput,
    /// It is, or has had its time: responsiveness is measured.
    Responsiveness,
    /// The responsiveness of this interval is the result.
    Over,
}

/// The state of a test.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Intervals of each stage at most.
    limit: usize,
    bytes: Vec<Vec<f64>>,
    averages: Vec<Vec<f64>>,
    goodput: Option<Confidence>,
    responsiveness: Vec<Option<f64>>,
    is_over: bool,
}

impl Rule {
    /// Of so many loaded directions at once, with so many intervals at most for each stage.
    pub fn new(directions: usize, limit: usize) -> Rule {
        let none = vec![Vec::new(); directions];
        Rule {
            limit,
            bytes: none.clone(),
            averages: none,
            goodput: None,
            responsiveness: Vec::new(),
            is_over: false,
        }
    }

    /// Takes the bytes of each direction in an interval, and the responsiveness of the last MAD intervals, RPM.
    pub fn interval(&mut self, bytes: &[f64], rpm: Option<f64>) -> Stage {
        for ((all, averages), new) in self.bytes.iter_mut().zip(&mut self.averages).zip(bytes) {
            all.push(*new);
            averages.push(moving_average(all));
        }
        let intervals = self.bytes.first().map_or(0, Vec::len);
        if self.goodput.is_none() {
            if self.averages.iter().all(|averages| is_steady(averages)) {
                self.goodput = Some(Confidence::High);
            } else if intervals >= self.limit {
                let of = if intervals < AVERAGED { Confidence::Low } else { Confidence::Medium };
                self.goodput = Some(of);
            }
            return match self.goodput {
                None => Stage::Goodput,
                Some(_) => Stage::Responsiveness,
            };
        }
        self.responsiveness.push(rpm);
        self.is_over = self.is_responsiveness_stable();
        if self.is_over || self.responsiveness.len() >= self.limit {
            Stage::Over
        } else {
            Stage::Responsiveness
        }
    }

    fn is_responsiveness_stable(&self) -> bool {
        let latest = &self.responsiveness[self.responsiveness.len().saturating_sub(AVERAGED)..];
        // An interval without a probe is no interval without delay.
        latest.iter().copied().collect::<Option<Vec<f64>>>().is_some_and(|all| is_steady(&all))
    }

    /// Intervals until it is over, at most.
    pub fn intervals_left(&self) -> usize {
        let now = self.bytes.first().map_or(0, Vec::len);
        match self.goodput {
            None => 2 * self.limit - now,
            Some(_) => self.limit - self.responsiveness.len(),
        }
    }

    /// Of the goodput.
    pub fn goodput_confidence(&self) -> Confidence {
        self.goodput.unwrap_or(Confidence::Low)
    }

    /// Of the responsiveness; never higher than that of the working conditions under which it was measured.
    pub fn confidence(&self) -> Confidence {
        let own = match self.responsiveness.len() {
            _ if self.is_over => Confidence::High,
            intervals if intervals < AVERAGED => Confidence::Low,
            _ => Confidence::Medium,
        };
        own.min(self.goodput_confidence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals until it is over, and both confidences, where `of(interval)` gives bytes and RPM.
    fn led(
        limit: usize,
        of: impl Fn(usize) -> (f64, Option<f64>),
    ) -> (usize, Confidence, Confidence) {
        let mut rule = Rule::new(1, limit);
        for interval in 0..100 {
            let (bytes, rpm) = of(interval);
            if rule.interval(&[bytes], rpm) == Stage::Over {
                return (interval + 1, rule.goodput_confidence(), rule.confidence());
            }
        }
        panic!("it has no end");
    }

    #[test]
    fn a_steady_path_takes_mad_intervals_for_each_stage() {
        assert_eq!(led(10, |_| (1e6, Some(500.0))), (8, Confidence::High, Confidence::High));
    }

    #[test]
    fn goodput_comes_first() {
        // Responsiveness is stable from the beginning, but counts only under working conditions.
        let grows = |n: usize| (1e6 * 2_f64.powi(n.min(4) as i32), Some(500.0));
        let (intervals, goodput, rpm) = led(20, grows);
        assert!(intervals >= 4 + 4 + 4, "{intervals}");
        assert_eq!((goodput, rpm), (Confidence::High, Confidence::High));
    }

    #[test]
    fn what_never_settles_has_medium_confidence_and_an_end() {
        let swings = |n: usize| (if (n + 2) % 8 < 4 { 1e6 } else { 9e6 }, Some(500.0));
        assert_eq!(led(6, swings), (10, Confidence::Medium, Confidence::Medium));
        let restless = |n: usize| (1e6, Some(if n.is_multiple_of(2) { 100.0 } else { 900.0 }));
        assert_eq!(led(6, restless), (10, Confidence::High, Confidence::Medium));
    }

    #[test]
    fn an_interval_without_probes_blocks_high_confidence() {
        let missing = |n: usize| (1e6, (!n.is_multiple_of(3)).then_some(500.0));
        assert_eq!(led(6, missing).2, Confidence::Medium);
        assert_eq!(led(3, |_| (1e6, Some(500.0))).2, Confidence::Low, "no time for MAD intervals");
    }

    #[test]
    fn both_directions_have_to_be_saturated() {
        let mut rule = Rule::new(2, 10);
        for interval in 0..4 {
            let stage = rule.interval(&[1e6, 1e5 * 3_f64.powi(interval)], Some(500.0));
            assert_eq!(stage, Stage::Goodput);
        }
        let more = (0..10).find(|_| rule.interval(&[1e6, 8.1e6], None) != Stage::Goodput);
        assert!(more.is_some_and(|n| n >= 3));
    }

    #[test]
    fn nothing_that_moves_is_not_saturated() {
        assert_eq!(led(5, |_| (0.0, Some(500.0))).1, Confidence::Medium);
    }
}
