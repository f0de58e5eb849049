//! Finds the retransmissions that were spurious: the receiver had the data already.
//!
//! signal: DSACK blocks (RFC 2883), and the timestamps that ACKs echo (Eifel detection, RFC 3522 section 3.2).
//!
//! model: retransmissions are stored by range, a segment each. Three things show that one of a range was spurious:
//! 1. the range was acknowledged before the retransmission passed the capture;
//! 2. the first ACK that begins with the range echoes a TSval older than that of its first retransmission. The receiver
//!    echoes the segment that moved its left edge (RFC 7323 section 4.3), so this was the original, and no
//!    retransmission of the range was needed;
//! 3. a DSACK: each reports one arrival too many of every byte in it.
//!
//! The receiver reports with 3 what is known by 1 or 2 as well, so a range counts the larger of both.
//!
//! The original arrived where *all* retransmissions of its range are known to be spurious. One DSACK beside two
//! retransmissions says that two of three copies arrived, and the original may be the lost one. Where later data had
//! arrived before the first retransmission, an original that arrived was late.
//!
//! action: [`Spurious::acknowledged`] and [`Spurious::dsack`] return the segments found; each is counted once.
//!
//! Deviation: RFC 3522 looks at the first retransmission of a recovery alone. Here every range is judged by itself,
//! because a capture shows all of them.

use std::collections::BTreeMap;

use crate::identity::sequence::Pos;

/// Maximum number of ranges stored: as many as segments in flight (`Scoreboard::MAX_ENTRIES`), 8 MB. Beyond, the one
/// lowest in the stream is dropped; what a DSACK says of it later is not counted.
const MAX_RANGES: usize = 1 << 17;

/// Retransmissions of one segment.
#[derive(Clone, Copy, Debug)]
struct Range {
    end: Pos,
    /// TSval of the first retransmission.
    first_tsval: Option<u32>,
    /// Number of retransmissions.
    sent: u32,
    /// Of these, spurious by acknowledgements.
    acknowledged: u32,
    /// Of these, spurious by DSACK.
    reported: u32,
    /// Later data had arrived before the first retransmission, and that the original arrived is not known yet.
    overtaken: bool,
}

impl Range {
    fn spurious(&self) -> u32 {
        self.acknowledged.max(self.reported)
    }

    /// Adds what `change` finds in the range that begins at `start` to `found`.
    fn note(&mut self, start: Pos, found: &mut Found, change: impl FnOnce(&mut Range)) {
        let before = self.spurious();
        change(self);
        let more = self.spurious() - before;
        let late = self.overtaken && self.spurious() == self.sent;
        self.overtaken &= !late;
        found.segments += u64::from(more);
        found.bytes += u64::from(more) * (self.end - start) as u64;
        found.late += u64::from(late);
    }
}

/// Retransmissions found to be spurious.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Number of segments.
    pub segments: u64,
    /// Their payload.
    pub bytes: u64,
    /// Originals that are known to have arrived after later data: reordering on the path.
    pub late: u64,
}

/// The retransmissions of one stream.
#[derive(Debug, Default)]
pub struct Spurious {
    /// By first byte.
    ranges: BTreeMap<Pos, Range>,
    /// Length of the longest range so far.
    longest: Pos,
}

impl Spurious {
    /// `[start, end)` was retransmitted in segments of `mss` bytes with `tsval`. `arrived`: it had been acknowledged
    /// before, so it is spurious. `overtaken`: ACKs showed that data above it had arrived.
    pub fn sent(
        &mut self,
        (start, end): (Pos, Pos),
        mss: u32,
        tsval: Option<u32>,
        arrived: bool,
        overtaken: bool,
    ) {
        let step = Pos::from(mss.max(1));
        let mut at = start;
        while at < end {
            let to = end.min(at + step);
            let range = self.ranges.entry(at).or_insert(Range {
                end: to,
                first_tsval: tsval,
                sent: 0,
                acknowledged: 0,
                reported: 0,
                overtaken: overtaken && !arrived,
            });
            range.end = range.end.max(to);
            range.sent += 1;
            range.acknowledged += u32::from(arrived);
            self.longest = self.longest.max(range.end - at);
            at = to;
            if self.ranges.len() > MAX_RANGES {
                self.ranges.pop_first();
            }
        }
    }

    /// The cumulative ACK moved from `una` to `to`; the ACK echoes `echoed`.
    pub fn acknowledged(&mut self, una: Pos, to: Pos, echoed: u32) -> Found {
        let mut found = Found::default();
        if let Some(range) = self.ranges.get_mut(&una)
            && range.end <= to
            && range.first_tsval.is_some_and(|first| (echoed.wrapping_sub(first) as i32) < 0)
        {
            range.note(una, &mut found, |r| r.acknowledged = r.sent);
        }
        found
    }

    /// The receiver reported `[left, right)` as received once more.
    pub fn dsack(&mut self, left: Pos, right: Pos) -> Found {
        let mut found = Found::default();
        // Ranges may overlap where segments were cut differently: each byte of the report stands for one retransmission.
        let mut covered = left;
        for (&start, range) in self.ranges.range_mut(left - self.longest..right) {
            if range.end <= covered || range.reported >= range.sent {
                continue;
            }
            if start >= covered || start <= left {
                range.note(start, &mut found, |r| r.reported += 1);
                covered = range.end;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 100;

    fn found(segments: u64, late: u64) -> Found {
        Found { segments, bytes: segments * u64::from(MSS), late }
    }

    fn stored(ranges: &[(Pos, Pos)]) -> Spurious {
        let mut s = Spurious::default();
        for range in ranges {
            s.sent(*range, MSS, Some(50), false, true);
        }
        s
    }

    #[test]
    fn one_dsack_marks_one_of_two_retransmissions_of_a_range() {
        let mut s = stored(&[(0, 100), (0, 100)]);
        assert_eq!(s.dsack(0, 100), found(1, 0), "two of three copies arrived: which is unknown");
        assert_eq!(s.dsack(0, 100), found(1, 1), "all three did, the original among them");
        assert_eq!(s.dsack(0, 100), found(0, 0), "a duplicate made by the network");
    }

    #[test]
    fn one_dsack_over_several_segments_marks_each() {
        let mut s = stored(&[(0, 300)]);
        assert_eq!(s.dsack(100, 300), found(2, 2));
        assert_eq!(s.dsack(0, 300), found(1, 1), "the two others were sent once");
        assert_eq!(s.dsack(300, 400), found(0, 0));
    }

    #[test]
    fn overlapping_ranges_share_one_dsack() {
        let mut s = stored(&[(0, 100), (50, 150)]);
        assert_eq!(s.dsack(0, 100), found(1, 1));
        assert_eq!(s.dsack(50, 150), found(1, 1));
    }

    #[test]
    fn an_old_echo_makes_all_retransmissions_of_the_range_spurious() {
        let mut s = stored(&[(0, 100), (0, 100), (100, 200)]);
        assert_eq!(s.acknowledged(0, 200, 49), found(2, 1), "nothing is known of the second range");
        assert_eq!(s.dsack(0, 100), found(0, 0), "known already");
        assert_eq!(s.dsack(100, 200), found(1, 1));
    }

    #[test]
    fn the_echo_of_the_retransmission_or_of_a_part_proves_nothing() {
        let mut s = stored(&[(0, 100)]);
        assert_eq!(s.acknowledged(0, 100, 50), found(0, 0));
        assert_eq!(s.acknowledged(0, 60, 49), found(0, 0));
        let mut s = Spurious::default();
        s.sent((0, 100), MSS, None, false, true);
        assert_eq!(s.acknowledged(0, 100, 49), found(0, 0), "without timestamps");
    }

    #[test]
    fn echoes_wrap() {
        let mut s = Spurious::default();
        s.sent((0, 100), MSS, Some(2), false, false);
        assert_eq!(s.acknowledged(0, 100, u32::MAX - 3), found(1, 0));
    }

    #[test]
    fn what_had_arrived_is_not_counted_again_by_its_dsack() {
        let mut s = Spurious::default();
        s.sent((0, 100), MSS, None, true, true);
        assert_eq!(s.dsack(0, 100), found(0, 0));
    }

    #[test]
    fn beyond_the_maximum_the_lowest_range_is_dropped() {
        let mut s = Spurious::default();
        let mss = Pos::from(MSS);
        let end = (MAX_RANGES as Pos + 1) * mss;
        s.sent((0, end), MSS, None, false, false);
        assert_eq!(s.ranges.len(), MAX_RANGES);
        assert_eq!(s.dsack(0, mss), found(0, 0));
        assert_eq!(s.dsack(mss, 2 * mss), found(1, 0));
        assert_eq!(s.dsack(end - mss, end), found(1, 0));
    }
}
