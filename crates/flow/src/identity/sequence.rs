//! Sequence numbers without wrap, and sets of byte ranges.
//!
//! Every stream counts its bytes from 0 (the byte after the SYN, or the first byte seen) in 64 bits; a 32-bit
//! number of the wire is placed next to the highest one known (RFC 9293 section 3.4: at most 2³¹ away).

/// A position in a stream's byte sequence. Negative before the first byte that was seen.
pub type Pos = i64;

/// Maps wire sequence numbers of one stream to positions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequence {
    base: u32,
}

impl Sequence {
    /// The stream's byte 0 has the wire number `base`.
    pub fn new(base: u32) -> Sequence {
        Sequence { base }
    }

    /// The position of wire number `seq` that lies nearest to `near`.
    #[inline]
    pub fn position(self, seq: u32, near: Pos) -> Pos {
        let near_wire = self.base.wrapping_add(near as u32);
        near + i64::from(seq.wrapping_sub(near_wire) as i32)
    }
}

/// Disjoint, sorted, half-open ranges. Small in practice (SACK scoreboards, holes), so a vector beats a tree.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    ranges: Vec<(Pos, Pos)>,
    total: u64,
}

impl RangeSet {
    /// No range at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Sum of all lengths.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Highest end, if any.
    #[inline]
    pub fn highest(&self) -> Option<Pos> {
        self.ranges.last().map(|r| r.1)
    }

    /// Whether `[from, to)` lies wholly inside one range.
    pub fn covers(&self, from: Pos, to: Pos) -> bool {
        let i = self.ranges.partition_point(|r| r.1 < to);
        self.ranges.get(i).is_some_and(|r| r.0 <= from && to <= r.1)
    }

    /// Adds `[from, to)`; calls `fresh` for each part that was not yet inside.
    pub fn insert(&mut self, from: Pos, to: Pos, mut fresh: impl FnMut(Pos, Pos)) {
        if from >= to {
            return;
        }
        let first = self.ranges.partition_point(|r| r.1 < from);
        let mut last = first;
        let mut at = from;
        let mut merged = (from, to);
        while let Some(&(start, end)) = self.ranges.get(last) {
            if start > to {
                break;
            }
            if at < start {
                fresh(at, start);
            }
            at = at.max(end);
            merged = (merged.0.min(start), merged.1.max(end));
            self.total -= (end - start) as u64;
            last += 1;
        }
        if at < to {
            fresh(at, to);
        }
        self.total += (merged.1 - merged.0) as u64;
        if last == first + 1 {
            self.ranges[first] = merged;
        } else {
            self.ranges.splice(first..last, [merged]);
        }
    }

    /// Drops everything below `pos`.
    pub fn remove_below(&mut self, pos: Pos) {
        let gone = self.ranges.partition_point(|r| r.1 <= pos);
        if gone > 0 {
            self.total -= self.ranges.drain(..gone).map(|(s, e)| (e - s) as u64).sum::<u64>();
        }
        if let Some(first) = self.ranges.first_mut()
            && first.0 < pos
        {
            self.total -= (pos - first.0) as u64;
            first.0 = pos;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_sequence_number_that_wraps_goes_on_counting() {
        let s = Sequence::new(u32::MAX - 9);
        assert_eq!(s.position(u32::MAX - 9, 0), 0);
        assert_eq!(s.position(5, 0), 15);
        assert_eq!(s.position(u32::MAX - 19, 0), -10);
        let far = 5 * (1i64 << 32) + 77;
        assert_eq!(s.position((u32::MAX - 9).wrapping_add(far as u32), far - 1000), far);
    }

    proptest! {
        #[test]
        fn a_range_set_is_a_set_of_bytes(ops in prop::collection::vec((0i64..60, 1i64..20, any::<bool>()), 1..40)) {
            let mut set = RangeSet::default();
            let mut naive = BTreeSet::new();
            for (from, len, cut) in ops {
                if cut {
                    set.remove_below(from);
                    naive.retain(|b| *b >= from);
                } else {
                    let mut fresh = Vec::new();
                    set.insert(from, from + len, |a, b| fresh.extend(a..b));
                    let expected: Vec<i64> = (from..from + len).filter(|b| naive.insert(*b)).collect();
                    prop_assert_eq!(fresh, expected);
                }
                prop_assert_eq!(set.total(), naive.len() as u64);
                prop_assert_eq!(set.highest(), naive.iter().next_back().map(|b| b + 1));
                for a in 0..80 {
                    prop_assert_eq!(set.covers(a, a + 1), naive.contains(&a));
                }
            }
        }
    }
}
