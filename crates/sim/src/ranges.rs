//! Sets of byte ranges: what a receiver has beyond a hole, what a sender knows to be delivered.

/// Disjoint, sorted, half-open ranges that do not touch.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ranges: Vec<(u64, u64)>,
    total: u64,
}

impl Ranges {
    /// Number of bytes covered.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether none is covered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges in order.
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// End of the last range.
    pub fn end(&self) -> Option<u64> {
        self.ranges.last().map(|r| r.1)
    }

    /// The range that contains `at`.
    pub fn around(&self, at: u64) -> Option<(u64, u64)> {
        let i = self.ranges.partition_point(|r| r.1 <= at);
        self.ranges.get(i).copied().filter(|r| r.0 <= at)
    }

    /// Adds `from .. to`, calling `new` with each part that was not covered.
    pub fn insert(&mut self, from: u64, to: u64, mut new: impl FnMut(u64, u64)) {
        if from >= to {
            return;
        }
        // The first range that touches or overlaps, and the first behind it that does not.
        let first = self.ranges.partition_point(|r| r.1 < from);
        let mut behind = first;
        let (mut low, mut high, mut at) = (from, to, from);
        while let Some(&(start, end)) = self.ranges.get(behind) {
            if start > to {
                break;
            }
            if at < start {
                new(at, start.min(to));
                self.total += start.min(to) - at;
            }
            at = at.max(end);
            low = low.min(start);
            high = high.max(end);
            behind += 1;
        }
        if at < to {
            new(at, to);
            self.total += to - at;
        }
        if behind == first {
            self.ranges.insert(first, (low, high));
        } else {
            self.ranges[first] = (low, high);
            if behind > first + 1 {
                self.ranges.drain(first + 1..behind);
            }
        }
    }

    /// Forgets everything below `edge`; the number of bytes forgotten.
    pub fn remove_below(&mut self, edge: u64) -> u64 {
        let mut gone = 0;
        let whole = self.ranges.partition_point(|r| r.1 <= edge);
        for r in self.ranges.drain(..whole) {
            gone += r.1 - r.0;
        }
        if let Some(first) = self.ranges.first_mut()
            && first.0 < edge
        {
            gone += edge - first.0;
            first.0 = edge;
        }
        self.total -= gone;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_reported_once_and_the_total_agrees_with_a_plain_set() {
        let mut ranges = Ranges::default();
        let mut plain = [false; 200];
        let mut x = 7_u64;
        for step in 0..2_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let from = (x >> 40) % 190;
            let to = from + (x >> 20) % 10;
            let mut reported = Vec::new();
            ranges.insert(from, to, |a, b| reported.extend(a..b));
            let fresh: Vec<u64> = (from..to).filter(|&i| !plain[i as usize]).collect();
            assert_eq!(reported, fresh);
            (from..to).for_each(|i| plain[i as usize] = true);
            if step % 40 == 39 {
                let edge = (x >> 50) % 150;
                ranges.remove_below(edge);
                (0..edge).for_each(|i| plain[i as usize] = false);
            }
            assert_eq!(ranges.total(), plain.iter().filter(|&&b| b).count() as u64);
            assert!(ranges.as_slice().windows(2).all(|w| w[0].1 < w[1].0));
        }
    }
}
