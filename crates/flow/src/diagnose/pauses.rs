//! After which pause the next packet takes longer, and by how much.
//!
//! signal: pauses without a packet, and what the first packet after each took more than usual · model: a radio that no program
//! uses releases its connection after some seconds, or sleeps in cycles (3GPP TS 36.331 section 5.3.3, TS 36.321
//! section 5.7); the first packet wakes it, so the extra time is a step over the pause · action: the steps, each between
//! the longest pause without it and the shortest one with it
//!
//! Source: the sweep of ping intervals of Jiang et al., "Tackling Bufferbloat in 3G/4G Networks", IMC 2012, figure 5. The rule
//! `radio-promotion` searches a capture with it, `unbloat measure --idle-gaps` its own sweep.

use crate::diagnose::changepoint::change_points;

/// Of all pairs of a packet before a step and one after it, in so many the later one took longer (Mann and Whitney 1947):
/// jitter has levels, too, but they overlap.
const APART: f64 = 0.95;
/// Packets of a level: with two, jitter of 8 ms is one in a sweep of twenty.
const LEVEL: usize = 3;
/// A smaller extra is no step: as the bound of accuracy of a delay.
const MIN_EXTRA_MS: f64 = 5.0;
/// Waits after a step that vary by more than this part of it are those of a cycle: a packet comes at any moment of it.
const CYCLE: f64 = 0.5;
/// With fewer samples the smallest and the largest say nothing of a cycle.
const CYCLE_SAMPLES: usize = 6;

/// From some pause on the next packet takes longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The longest pause without it, s.
    pub from_s: f64,
    /// The shortest pause with it, s.
    pub until_s: f64,
    /// How much longer: the median, ms.
    pub extra_ms: f64,
    /// The least, ms.
    pub low_ms: f64,
    /// The most, ms.
    pub high_ms: f64,
    /// Packets after such a pause.
    pub samples: usize,
    /// It varies as much as where a radio sleeps in cycles.
    pub cycle: bool,
}

/// Steps up in pauses (s) and extra times (ms), in the order of pauses.
pub fn steps(mut pauses: Vec<(f64, f64)>) -> Vec<Step> {
    // Packets after one pause stay in the order of time: by size they would be a rise of their own.
    pauses.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (gaps, extras): (Vec<f64>, Vec<f64>) = pauses.into_iter().unzip();
    let mut changes: Vec<usize> = change_points(&extras, LEVEL)
        .iter()
        .map(|change| whole(&gaps, change.index))
        .filter(|at| (1..gaps.len()).contains(at))
        .collect();
    changes.dedup();
    let begins = std::iter::once(0).chain(changes.iter().copied());
    let ends = changes.iter().skip(1).copied().chain([gaps.len()]);
    let around = begins.zip(changes.iter().copied()).zip(ends);
    around
        .filter_map(|((begin, at), end)| {
            let before = median(&extras[begin..at]);
            let mut after: Vec<f64> = extras[at..end].iter().map(|ms| ms - before).collect();
            after.sort_by(f64::total_cmp);
            let (low_ms, high_ms) = (*after.first()?, *after.last()?);
            let extra_ms = median(&after);
            let pairs = extras[begin..at].iter().flat_map(|a| after.iter().map(move |b| (a, b)));
            let (all, later) = pairs
                .fold((0, 0), |(all, later), (a, b)| (all + 1, later + i32::from(b + before > *a)));
            let apart = f64::from(later) >= APART * f64::from(all);
            (extra_ms >= MIN_EXTRA_MS && apart).then_some(Step {
                from_s: gaps[at - 1],
                until_s: gaps[at],
                extra_ms,
                low_ms,
                high_ms,
                samples: after.len(),
                cycle: after.len() >= CYCLE_SAMPLES && high_ms - low_ms > CYCLE * extra_ms,
            })
        })
        .collect()
}

/// The boundary between two different pauses that is nearest to a place in their order: packets after one pause are
/// on one side.
fn whole(gaps: &[f64], at: usize) -> usize {
    let gap = gaps[at];
    let (first, end) =
        (gaps.partition_point(|other| *other < gap), gaps.partition_point(|other| *other <= gap));
    if at - first < end - at { first } else { end }
}

/// The median; zero of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}
