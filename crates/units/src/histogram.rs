//! Quantiles of a stream of whole numbers (nanoseconds, bytes) in constant memory.
//!
//! The buckets grow with the value, 64 to each power of two, as in HdrHistogram (Gil Tene,
//! hdrhistogram.org: linear sub-buckets inside powers of two). A value below 128 has a bucket of its
//! own. Above, a bucket is at most 1/64 of its lower edge wide and its middle stands for its samples:
//! the error is at most 1/128 = 0.8 %. The smallest and the largest value are exact.
//!
//! Deviation from HdrHistogram: no range is fixed beforehand. The counters cover only the buckets
//! between the smallest and the largest sample, in steps of 16, and nothing is allocated before the
//! first sample. Tens of thousands of flows are alive at a time, and most of them measure a narrow
//! range or have no sample.

use alloc::vec::Vec;

/// min, p50, p95, p99, max of one quantity, with the number of samples. Quantiles come from a
/// log-bucketed histogram (≤ 1 % error); min and max are exact.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Quantiles {
    /// How many samples there are.
    pub count: u64,
    /// The smallest sample, exact.
    pub min: f64,
    /// Median of the samples.
    pub p50: f64,
    /// 95th percentile of the samples.
    pub p95: f64,
    /// 99th percentile of the samples.
    pub p99: f64,
    /// The largest sample, exact.
    pub max: f64,
}

impl Quantiles {
    /// The quantiles of `change(sample)`, where `change` keeps the order of samples.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Quantiles {
        Quantiles {
            count: self.count,
            min: change(self.min),
            p50: change(self.p50),
            p95: change(self.p95),
            p99: change(self.p99),
            max: change(self.max),
        }
    }
}

/// log2 of the sub-buckets per power of two. 6 gives 64: half a bucket is 1/128 of its edge, inside the
/// promised 1 %.
const SUB_BITS: u32 = 6;
/// Sub-buckets per power of two.
const SUB: usize = 1 << SUB_BITS;
/// Counters are added in steps of this many: one cache line of `u32`.
const CHUNK: usize = 16;

/// A log-bucketed histogram of `u64` samples.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Counters of the buckets `base ..`; the length is a multiple of [`CHUNK`].
    counts: Vec<u32>,
    /// Number of the first bucket in `counts`, a multiple of [`CHUNK`].
    base: usize,
    /// Samples of value 0: counted apart, since they would extend `counts` down to bucket 0.
    zeros: u64,
    count: u64,
    min: u64,
    max: u64,
}

/// Number of the bucket of `v` (v > 0); below 128 it is `v` itself.
#[inline]
fn bucket(v: u64) -> usize {
    let exponent = 63 - (v | 1).leading_zeros();
    let shift = exponent.saturating_sub(SUB_BITS);
    ((shift as usize) << SUB_BITS) + (v >> shift) as usize
}

/// The middle of bucket `i`: the value it stands for.
fn middle(i: usize) -> u64 {
    if i < 2 * SUB {
        return i as u64;
    }
    let shift = (i >> SUB_BITS) - 1;
    let low = (((i & (SUB - 1)) + SUB) as u64) << shift;
    low + ((1u64 << shift) >> 1)
}

/// ⌈q · count⌉, at least 1: without `f64::ceil`, which only std has.
fn rank(q: f64, count: u64) -> u64 {
    let exact = q.clamp(0.0, 1.0) * count as f64;
    let whole = exact as u64;
    (whole + u64::from((whole as f64) < exact)).clamp(1, count)
}

/// Adds `n` to a counter, at most up to 2³² − 1. Returns how much was added.
#[inline]
fn raise(counter: &mut u32, n: u32) -> u64 {
    let before = *counter;
    *counter = before.saturating_add(n);
    u64::from(*counter - before)
}

impl Histogram {
    /// An empty histogram; allocates nothing.
    pub const fn new() -> Histogram {
        Histogram { counts: Vec::new(), base: 0, zeros: 0, count: 0, min: 0, max: 0 }
    }

    /// Adds the sample `v`.
    #[inline]
    pub fn record(&mut self, v: u64) {
        self.add(v, 1);
    }

    /// Adds the sample `v` with weight `n` (n > 0): `n` samples of that value. A bucket holds 2³² − 1; what
    /// exceeds that does not count.
    #[inline]
    pub fn add(&mut self, v: u64, n: u64) {
        if self.count == 0 {
            self.min = v;
            self.max = v;
        } else {
            self.min = self.min.min(v);
            self.max = self.max.max(v);
        }
        if v == 0 {
            self.zeros += n;
            self.count += n;
            return;
        }
        let n = n.min(u64::from(u32::MAX)) as u32;
        let i = bucket(v);
        // a bucket below `base` wraps to a huge offset, so one comparison covers both ends
        match self.counts.get_mut(i.wrapping_sub(self.base)) {
            Some(c) => self.count += raise(c, n),
            None => self.add_outside(i, n),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_outside(&mut self, i: usize, n: u32) {
        self.cover(i, i);
        self.count += raise(&mut self.counts[i - self.base], n);
    }

    /// Grows `counts` so that the buckets `from ..= to` lie inside.
    fn cover(&mut self, from: usize, to: usize) {
        let low = from / CHUNK * CHUNK;
        let high = (to / CHUNK + 1) * CHUNK;
        if self.counts.is_empty() {
            self.base = low;
        }
        if low < self.base {
            let more = self.base - low;
            let mut grown = Vec::with_capacity(self.counts.len() + more);
            grown.resize(more, 0);
            grown.extend_from_slice(&self.counts);
            self.counts = grown;
            self.base = low;
        }
        let mut length = high - self.base;
        if length > self.counts.len() {
            // A range beyond a power of two mostly continues to grow, and each step costs an
            // allocation: add half as much again. A narrow range stays exact.
            if self.counts.len() >= SUB {
                length = length.max((self.counts.len() / 2 * 3).next_multiple_of(CHUNK));
            }
            self.counts.reserve_exact(length - self.counts.len());
            self.counts.resize(length, 0);
        }
    }

    /// How many samples there are.
    #[inline]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Whether there is no sample.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Smallest sample, exact; `None` without samples.
    #[inline]
    pub const fn min(&self) -> Option<u64> {
        if self.count == 0 { None } else { Some(self.min) }
    }

    /// Largest sample, exact; `None` without samples.
    #[inline]
    pub const fn max(&self) -> Option<u64> {
        if self.count == 0 { None } else { Some(self.max) }
    }

    /// The sample of rank ⌈q · count⌉ (nearest rank), within 0.8 %; `None` without samples.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        self.at([q]).map(|[v]| v)
    }

    /// The samples of several ranks, given in rising order, in one pass.
    fn at<const N: usize>(&self, quantiles: [f64; N]) -> Option<[u64; N]> {
        if self.count == 0 {
            return None;
        }
        let mut values = [self.max; N];
        let mut ranks =
            quantiles.into_iter().zip(&mut values).map(|(q, out)| (rank(q, self.count), out));
        let mut next = ranks.next();
        let mut passed = self.zeros;
        while let Some((_, out)) = next.take_if(|(rank, _)| *rank <= passed) {
            *out = 0;
            next = ranks.next();
        }
        // A chunk of counters at a time: most chunks lie between two ranks.
        for (line, counts) in self.counts.chunks_exact(CHUNK).enumerate() {
            let Some((rank, _)) = &next else { break };
            let whole = counts.iter().map(|c| u64::from(*c)).sum::<u64>();
            if passed + whole < *rank {
                passed += whole;
                continue;
            }
            for (i, &c) in counts.iter().enumerate() {
                passed += u64::from(c);
                while let Some((_, out)) = next.take_if(|(rank, _)| *rank <= passed) {
                    *out = middle(self.base + line * CHUNK + i).clamp(self.min, self.max);
                    next = ranks.next();
                }
            }
        }
        drop(ranks);
        Some(values)
    }

    /// min, p50, p95, p99, max, each times `scale` (1e-6 turns nanoseconds into milliseconds); `None`
    /// without samples.
    pub fn quantiles(&self, scale: f64) -> Option<Quantiles> {
        let [p50, p95, p99] = self.at([0.50, 0.95, 0.99])?.map(|v| v as f64 * scale);
        let (min, max) = (self.min as f64 * scale, self.max as f64 * scale);
        Some(Quantiles { count: self.count, min, p50, p95, p99, max })
    }

    /// Adds all samples of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.count += other.zeros;
        self.zeros += other.zeros;
        if !other.counts.is_empty() {
            self.cover(other.base, other.base + other.counts.len() - 1);
            let from = other.base - self.base;
            for (mine, theirs) in self.counts[from..].iter_mut().zip(&other.counts) {
                self.count += raise(mine, *theirs);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut h = Histogram::new();
        values.iter().for_each(|&v| h.record(v));
        h
    }

    #[test]
    fn an_empty_histogram_has_no_figures_and_no_memory() {
        let h = Histogram::new();
        assert_eq!((h.quantile(0.5), h.min(), h.max(), h.quantiles(1.0)), (None, None, None, None));
        assert_eq!(h.counts.capacity(), 0);
    }

    #[test]
    fn a_full_bucket_counts_no_more_and_the_ranks_stay_those_of_what_was_counted() {
        let mut h = Histogram::new();
        for _ in 0..4 {
            h.add(1_000, u64::from(u32::MAX));
        }
        h.add(5_000, u64::from(u32::MAX));
        assert_eq!(h.count(), 2 * u64::from(u32::MAX));
        let q = h.quantiles(1.0).unwrap();
        assert!(
            (q.p50 / 1_000.0 - 1.0).abs() < 0.01 && (q.p95 / 5_000.0 - 1.0).abs() < 0.01,
            "{q:?}"
        );
        let mut both = h.clone();
        both.merge(&h);
        assert_eq!(both.count(), h.count(), "both buckets were full");
    }

    #[test]
    fn buckets_follow_one_another_without_gap_or_overlap() {
        let mut last = 0;
        for v in 1..100_000 {
            let i = bucket(v);
            assert!(i == last || i == last + 1, "{v}");
            last = i;
        }
        for i in 1..bucket(u64::MAX) {
            assert_eq!(bucket(middle(i)), i);
        }
        assert_eq!(bucket(u64::MAX), 57 * SUB + 2 * SUB - 1);
    }

    #[test]
    fn zeros_and_the_largest_number_are_counted_without_more_buckets() {
        let mut h = of(&[0, 0, 0, 1_000_000]);
        assert_eq!(h.counts.len(), CHUNK);
        assert_eq!(
            (h.quantile(0.5), h.quantile(0.75), h.quantile(1.0)),
            (Some(0), Some(0), Some(1_000_000))
        );
        h.record(u64::MAX);
        assert_eq!(h.max(), Some(u64::MAX));
        assert_eq!(h.quantile(1.0).map(|v| v >> 57), Some(127));
    }

    #[test]
    fn a_narrow_range_takes_little_memory() {
        // RTTs of 40 … 60 ms, a million samples
        let mut h = Histogram::new();
        for i in 0..1_000_000u64 {
            h.record(40_000_000 + i * 20);
        }
        assert!(h.counts.len() <= 4 * CHUNK, "{}", h.counts.len());
        assert!(std::mem::size_of::<Histogram>() <= 64);
    }

    fn sample() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 0..200u64, 1_000_000..100_000_000u64, any::<u64>()]
    }

    proptest! {
        #[test]
        fn every_quantile_is_within_one_percent_of_the_sorted_list(
            mut values in prop::collection::vec(sample(), 1..400), q in 0.0..=1.0f64,
        ) {
            let h = of(&values);
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let truth = values[rank - 1] as f64;
            let got = h.quantile(q).map_or(f64::NAN, |v| v as f64);
            prop_assert!((got - truth).abs() <= truth / 128.0 + 0.5, "{got} {truth}");
            prop_assert_eq!(h.min(), values.first().copied());
            prop_assert_eq!(h.max(), values.last().copied());
        }

        #[test]
        fn merging_two_is_the_same_as_recording_both(
            a in prop::collection::vec(sample(), 0..100), b in prop::collection::vec(sample(), 0..100),
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let whole = of(&[a, b].concat());
            for q in [0.0, 0.1, 0.5, 0.95, 1.0] {
                prop_assert_eq!(merged.quantile(q), whole.quantile(q));
            }
            prop_assert_eq!(merged.quantiles(1e-6), whole.quantiles(1e-6));
        }
    }
}
