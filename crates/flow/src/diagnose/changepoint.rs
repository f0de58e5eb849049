//! Change points: where the level of a series shifts, so that a finding can say since when.
//!
//! signal: up to 512 values in order of time, NaN where there is none · model: piecewise constant mean with
//! noise of one strength; the segmentation with the least squared error plus a penalty per change, found
//! exactly by dynamic programming (optimal partitioning: Jackson et al., "An algorithm for optimal
//! partitioning of data on an interval", IEEE Signal Processing Letters 12(2), 2005; the recursion that PELT
//! prunes, Killick et al., JASA 107, 2012) · action: a finding that says "from 22 s on".
//!
//! The noise is estimated from the median of the absolute first differences, which a few jumps do not move.
//! [`onset`] answers the question of the rules: from when on does the series stay above a threshold? It also
//! finds the right point of a slow rise, which a piecewise constant model alone would place in its middle.
//!
//! Deviation: no pruning. At 512 values the full recursion is 130,000 steps, well under a millisecond, and
//! it runs only for flows that already show a problem.

/// Penalty per change in units of σ² ln n. BIC asks for 2 (the new mean and the place); 3 because
/// neighbouring bins of a TCP flow are correlated, which makes white-noise theory see too many changes.
const PENALTY: f64 = 3.0;
/// Noise is taken to be at least this part of the range, so that a nearly constant series with a few outliers
/// (median difference 0) is not cut at every one.
const NOISE_FLOOR: f64 = 0.02;
/// Shortest segment of [`onset`], in values: four bins of 100 ms outlast a single burst of acknowledgements.
const ONSET_SEGMENT: usize = 4;

/// A shift of the mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChangePoint {
    /// First index of the new level.
    pub index: usize,
    /// Mean of the segment before.
    pub before: f64,
    /// Mean of the segment from here on.
    pub after: f64,
}

/// The shifts of the mean of `series`, in order. NaN and infinite values count as missing. No segment has
/// fewer than `min_segment` values.
pub fn change_points(series: &[f64], min_segment: usize) -> Vec<ChangePoint> {
    let (at, values) = present(series);
    let segments = partition(&values, min_segment.max(1));
    segments
        .windows(2)
        .map(|pair| ChangePoint {
            index: at[pair[1].from],
            before: pair[0].mean(&values),
            after: pair[1].mean(&values),
        })
        .collect()
}

/// When a series went above a threshold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Onset {
    /// First index above; 0 (the first value present) when it was above from the start.
    pub index: usize,
    /// One past the last index of the last segment above.
    pub end: usize,
    /// Whether the series had been below before.
    pub risen: bool,
}

/// From when on the level of `series` lies above `threshold` (> 0). If it rises and falls several times: the
/// rise that best divides the series into below and above, the first of equals. `None` if no segment lies
/// above.
pub fn onset(series: &[f64], threshold: f64) -> Option<Onset> {
    let (at, raw) = present(series);
    // below the threshold about linear, above it logarithmic: 50 → 500 ms weighs as much as 500 → 5,000
    let values: Vec<f64> = raw.iter().map(|x| (x.max(0.0) / threshold).ln_1p()).collect();
    let level = std::f64::consts::LN_2; // ln(1 + threshold/threshold)
    let segments = partition(&values, ONSET_SEGMENT);
    // by majority, not by mean: a lone outlier in a short segment makes no level
    let over: Vec<i64> = segments.iter().map(|s| s.count(&values, |v| v >= level)).collect();
    let above: Vec<bool> =
        segments.iter().zip(&over).map(|(s, &n)| 2 * n > s.len() as i64).collect();
    // values on the right side of each rise: those below before it and those above after it
    let mut score: i64 = over.iter().sum();
    let mut best: Option<(i64, usize)> = None;
    for k in 0..segments.len() {
        if above[k] && (k == 0 || !above[k - 1]) && best.is_none_or(|(max, _)| score > max) {
            best = Some((score, k));
        }
        score += segments[k].len() as i64 - 2 * over[k];
    }
    let (_, k) = best?;
    let last = above.iter().rposition(|&a| a)?;
    let before = if k == 0 { segments[k].from } else { segments[k - 1].from };
    let from = crossing(&values[before..segments[k].to], level) + before;
    let end = at.get(segments[last].to).copied().unwrap_or(series.len());
    Some(Onset { index: at[from], end, risen: from > 0 })
}

/// The index that best divides the values below `level` from those above it, the earliest of equals.
fn crossing(values: &[f64], level: f64) -> usize {
    let mut score = values.iter().filter(|v| **v >= level).count() as i64;
    let (mut best, mut index) = (score, 0);
    for (i, &v) in values.iter().enumerate() {
        score += if v < level { 1 } else { -1 };
        if score > best && i + 1 < values.len() {
            (best, index) = (score, i + 1);
        }
    }
    index
}

/// Indices and values of the finite values.
fn present(series: &[f64]) -> (Vec<usize>, Vec<f64>) {
    series.iter().enumerate().filter(|(_, v)| v.is_finite()).map(|(i, &v)| (i, v)).unzip()
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: usize,
    to: usize,
}

impl Span {
    fn len(&self) -> usize {
        self.to - self.from
    }
    fn count(&self, values: &[f64], what: impl Fn(f64) -> bool) -> i64 {
        values[self.from..self.to].iter().filter(|v| what(**v)).count() as i64
    }
    fn mean(&self, values: &[f64]) -> f64 {
        values[self.from..self.to].iter().sum::<f64>() / self.len().max(1) as f64
    }
}

/// Standard deviation of the noise: 1.4826 · median |xᵢ₊₁ − xᵢ| / √2 (normal noise), not below
/// [`NOISE_FLOOR`].
fn noise(values: &[f64]) -> f64 {
    let mut steps: Vec<f64> = values.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
    if steps.is_empty() {
        return 0.0;
    }
    let middle = steps.len() / 2;
    let (_, median, _) = steps.select_nth_unstable_by(middle, f64::total_cmp);
    let robust = 1.4826 * *median / std::f64::consts::SQRT_2;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    robust.max((high - low) * NOISE_FLOOR)
}

/// The cheapest segmentation of `values`, at least one span unless empty.
fn partition(values: &[f64], min_segment: usize) -> Vec<Span> {
    let n = values.len();
    if n == 0 {
        return Vec::new();
    }
    let sigma = noise(values);
    if n < 2 * min_segment || sigma == 0.0 {
        return vec![Span { from: 0, to: n }];
    }
    let penalty = PENALTY * sigma * sigma * (n as f64).ln();
    // prefix sums about the mean, so that the squares do not cancel
    let mean = values.iter().sum::<f64>() / n as f64;
    let mut sums = vec![(0.0, 0.0); n + 1];
    for (i, v) in values.iter().enumerate() {
        let d = v - mean;
        sums[i + 1] = (sums[i].0 + d, sums[i].1 + d * d);
    }
    let cost = |a: usize, b: usize| {
        let s = sums[b].0 - sums[a].0;
        (sums[b].1 - sums[a].1) - s * s / (b - a) as f64
    };
    let mut best = vec![f64::INFINITY; n + 1];
    let mut from = vec![0; n + 1];
    best[0] = -penalty;
    for to in min_segment..=n {
        for a in (0..=to - min_segment).filter(|&a| a == 0 || a >= min_segment) {
            let total = best[a] + cost(a, to) + penalty;
            if total < best[to] {
                best[to] = total;
                from[to] = a;
            }
        }
    }
    let mut spans = Vec::new();
    let mut to = n;
    while to > 0 {
        spans.push(Span { from: from[to], to });
        to = from[to];
    }
    spans.reverse();
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Uniform noise of standard deviation about 0.29, reproducible.
    fn noise_at(i: usize) -> f64 {
        let x = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((x ^ (x >> 32)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let series: Vec<f64> =
            (0..200).map(|i| if i < 73 { 4.0 } else { 9.0 } + 2.0 * noise_at(i)).collect();
        let found = change_points(&series, 5);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].index, 73);
        assert!((found[0].before - 4.0).abs() < 0.3 && (found[0].after - 9.0).abs() < 0.3);
    }

    #[test]
    fn noise_without_a_shift_has_no_change_points() {
        for seed in 0..20 {
            let series: Vec<f64> =
                (0..512).map(|i| 100.0 + 30.0 * noise_at(i + seed * 1000)).collect();
            assert_eq!(change_points(&series, 5), []);
        }
    }

    #[test]
    fn constant_empty_and_missing_series_have_no_change_points() {
        assert_eq!(change_points(&[], 3), []);
        assert_eq!(change_points(&[f64::NAN; 50], 3), []);
        assert_eq!(change_points(&[7.0; 50], 3), []);
        assert_eq!(onset(&[], 1.0), None);
        assert_eq!(onset(&[f64::NAN; 50], 1.0), None);
        assert_eq!(onset(&[0.5; 50], 1.0), None);
    }

    #[test]
    fn indices_are_those_of_the_series_with_its_gaps() {
        let series: Vec<f64> = (0..100)
            .map(|i| match i {
                _ if i % 3 == 1 => f64::NAN,
                0..60 => 1.0 + 0.1 * noise_at(i),
                _ => 5.0 + 0.1 * noise_at(i),
            })
            .collect();
        assert_eq!(change_points(&series, 3).iter().map(|c| c.index).collect::<Vec<_>>(), [60]);
        assert_eq!(onset(&series, 2.0).map(|o| o.index), Some(60));
    }

    #[test]
    fn a_single_outlier_is_not_a_level() {
        let mut series = vec![10.0; 100];
        series[40] = 3000.0;
        assert_eq!(onset(&series, 60.0), None);
    }

    #[test]
    fn the_onset_of_a_slow_rise_is_where_it_crosses_the_threshold() {
        // post 8: flat until 10 s, then up by 400 ms per second
        let series: Vec<f64> = (0..500)
            .map(|i| 20.0 + 8.0 * noise_at(i) + 40.0 * (i as f64 - 100.0).max(0.0))
            .collect();
        let found = onset(&series, 60.0);
        assert!(
            found.is_some_and(|o| (100..=102).contains(&o.index) && o.end == 500 && o.risen),
            "{found:?}"
        );
        // slower: 10 ms per second crosses 60 ms after 4 s
        let series: Vec<f64> =
            (0..500).map(|i| 20.0 + 8.0 * noise_at(i) + (i as f64 - 100.0).max(0.0)).collect();
        let index = onset(&series, 60.0).map_or(0, |o| o.index);
        assert!((136..=144).contains(&index), "{index}");
    }

    #[test]
    fn a_level_above_from_the_beginning_has_not_risen() {
        assert_eq!(onset(&[100.0; 50], 60.0), Some(Onset { index: 0, end: 50, risen: false }));
    }

    #[test]
    fn a_bump_at_the_beginning_yields_to_the_rise_that_lasts() {
        let series: Vec<f64> = (0..300)
            .map(|i| if (10..20).contains(&i) || i >= 150 { 500.0 } else { 10.0 } + 4.0 * noise_at(i))
            .collect();
        assert_eq!(onset(&series, 60.0).map(|o| o.index), Some(150));
    }

    #[test]
    fn a_rise_that_passes_again_is_still_a_rise() {
        let series: Vec<f64> = (0..300)
            .map(|i| if (100..140).contains(&i) { 500.0 } else { 10.0 } + 4.0 * noise_at(i))
            .collect();
        assert_eq!(onset(&series, 60.0), Some(Onset { index: 100, end: 140, risen: true }));
    }

    proptest! {
        #[test]
        fn any_series_gives_ordered_points_with_segments_long_enough(
            series in prop::collection::vec(prop_oneof![Just(f64::NAN), -1e9..1e9, 0.0..1.0f64, Just(f64::INFINITY)], 0..200),
            min in 1usize..8,
        ) {
            let present = series.iter().filter(|v| v.is_finite()).count();
            let points = change_points(&series, min);
            prop_assert!(points.windows(2).all(|w| w[0].index < w[1].index));
            prop_assert!(points.is_empty() || (points.len() + 1) * min <= present);
            if let Some(o) = onset(&series, 0.5) {
                prop_assert!(o.index < o.end && o.end <= series.len());
            }
        }

        #[test]
        fn a_clear_step_is_found_within_one_value(at in 8usize..120, height in 3.0..1e6f64) {
            let series: Vec<f64> =
                (0..128).map(|i| if i < at { 0.0 } else { height } + noise_at(i)).collect();
            let found = onset(&series, height / 2.0);
            prop_assert_eq!(found.map(|o| (o.index.abs_diff(at) <= 1, o.risen)), Some((true, true)));
        }
    }
}
