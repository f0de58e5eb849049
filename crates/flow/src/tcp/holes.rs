//! Bytes of a stream that are missing in the capture, until a late segment brings them or an ACK passes them.

use std::collections::VecDeque;

use crate::identity::sequence::Pos;
use crate::tcp::retransmission::Hole;

/// Maximum number of holes; in a capture of one side no ACK closes any. 16,384 single losses within one window are
/// more than a window has. Beyond, the oldest is dropped: data that fills it later counts as a retransmission, and what
/// never comes is no gap of the capture.
const MAX_HOLES: usize = 1 << 14;

/// The holes of one stream, in order of sequence.
#[derive(Debug, Default)]
pub struct Holes(VecDeque<Hole>);

impl Holes {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `una` lies in the lowest hole: some of the missing bytes were acknowledged.
    #[inline]
    pub fn contains(&self, una: Pos) -> bool {
        self.0.front().is_some_and(|h| h.from < una)
    }

    /// Adds a hole above all others.
    pub fn push(&mut self, hole: Hole) {
        if self.0.len() >= MAX_HOLES {
            self.0.pop_front();
        }
        self.0.push_back(hole);
    }

    /// Takes `[start, end)` out of the lowest hole that lacks any of it. Returns that hole as it was, and the number of
    /// bytes filled.
    pub fn fill(&mut self, start: Pos, end: Pos) -> Option<(Hole, u64)> {
        let i = self.0.partition_point(|h| h.to <= start);
        let hole = *self.0.get(i).filter(|h| h.from < end)?;
        let (from, to) = (start.max(hole.from), end.min(hole.to));
        self.0.remove(i);
        if to < hole.to {
            self.0.insert(i, Hole { from: to, ..hole });
        }
        if hole.from < from {
            self.0.insert(i, Hole { to: from, ..hole });
        }
        Some((hole, (to - from) as u64))
    }

    /// Removes the holes below `una`; returns their bytes.
    pub fn close(&mut self, una: Pos) -> u64 {
        let mut missing = 0;
        while let Some(h) = self.0.front().filter(|h| h.to <= una) {
            missing += (h.to - h.from) as u64;
            self.0.pop_front();
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Instant;

    fn hole(from: Pos, to: Pos) -> Hole {
        Hole { from, to, since: Instant::ZERO, ip_id: 0, tsval: None }
    }

    fn bounds(holes: &Holes) -> Vec<(Pos, Pos)> {
        holes.0.iter().map(|h| (h.from, h.to)).collect()
    }

    #[test]
    fn a_late_segment_fills_the_middle_and_acks_close_the_rest() {
        let mut holes = Holes::default();
        holes.push(hole(0, 100));
        holes.push(hole(200, 300));
        assert_eq!(holes.fill(40, 60).map(|(h, n)| (h.from, h.to, n)), Some((0, 100, 20)));
        assert_eq!(bounds(&holes), [(0, 40), (60, 100), (200, 300)]);
        assert!(holes.fill(100, 200).is_none());
        assert_eq!(holes.fill(250, 400).map(|(_, n)| n), Some(50));
        assert_eq!(holes.close(90), 40);
        assert_eq!([60, 61, 100].map(|una| holes.contains(una)), [false, true, true]);
        assert_eq!(bounds(&holes), [(60, 100), (200, 250)]);
        assert_eq!(holes.close(300), 90);
        assert!(holes.is_empty());
    }

    #[test]
    fn beyond_the_maximum_the_oldest_hole_is_dropped() {
        let mut holes = Holes::default();
        for i in 0..=MAX_HOLES as Pos {
            holes.push(hole(10 * i, 10 * i + 5));
        }
        assert_eq!(holes.0.len(), MAX_HOLES);
        assert!(holes.fill(0, 5).is_none());
        assert_eq!(holes.fill(10, 15).map(|(_, n)| n), Some(5));
    }
}
