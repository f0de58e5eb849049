//! What a sender's cuts show: the window before a loss or mark and that after it, counted in segments.
//!
//! model: Reno keeps a half (RFC 5681 section 3.1), CUBIC seven tenths (RFC 9438 section 4.6), both rounded to segments.
//! What others keep depends on the path: Westwood what fits into it without a queue (`tcp_westwood.c`), YeAH all but the
//! queue (`tcp_yeah.c`), H-TCP a half until its throughput is steady, then the smallest RTT's share of the largest
//! (`tcp_htcp.c`). A few cuts of these may lie near a half or seven tenths; not all of them do.
//! Windows are in segments.

/// How far a cut may lie from seven tenths, as a share of the window: a segment in sixteen, and what recovery leaves.
const RATIO_TOLERANCE: f64 = 0.06;
/// And in segments: rounding takes less than one.
const ROUNDED: f64 = 0.9;
/// How far a cut may lie from a half: a segment, and a little; the round of the loss may have grown by one.
const WHOLE_SEGMENT: f64 = 1.1;
/// And as a share of a large window.
const HALF_SHARE: f64 = 0.03;
/// Share of the cuts that must be so.
const HALVED_SHARE: f64 = 0.75;
/// A cut that is further off than this is no cut by that factor: in segments, and as a share of the window.
const FAR: f64 = 2.0;
const FAR_SHARE: f64 = 0.05;
/// Share of the cuts that may be that far off, because retransmissions were lost as well, or a cut was undone.
const FAR_CUTS: f64 = 0.1;
/// How near to the half, as a share of the window, Westwood's cut must lie before it must be kept apart from Reno's.
const PATH_ALIKE: f64 = 0.12;
/// And segments to which the middle cut must then be Reno's.
const ALIKE_OFF: f64 = 0.75;
/// What remains, at least, where the sender did not react to what was seen.
pub(super) const IGNORED: f64 = 0.93;

/// One cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub before: f64,
    pub after: f64,
    /// What of the window before did not wait in the queue, by the RTT.
    pub path: f64,
    /// The next loss or mark came in the round after it.
    pub pressed: bool,
}

impl Cut {
    pub fn ratio(&self) -> f64 {
        self.after / self.before
    }

    /// Segments that remain above those which a factor leaves.
    fn off(&self, factor: f64) -> f64 {
        self.after - factor * self.before
    }

    /// What is too far from a factor to be a cut by it.
    fn far(&self) -> f64 {
        FAR.max(FAR_SHARE * self.before)
    }
}

/// Whether the cuts are Reno's: to the half, counted in segments, and not to what the path holds.
pub(super) fn to_the_half(cuts: &[Cut]) -> bool {
    // Far from the sender a mark or a retransmission may be seen a round before the window is cut.
    let cuts: Vec<Cut> =
        cuts.iter().filter(|c| !(c.pressed && c.ratio() >= IGNORED)).copied().collect();
    let near = |c: &Cut| c.off(0.5).abs() <= WHOLE_SEGMENT.max(HALF_SHARE * c.before);
    let westwoods = middle(&cuts, |c| (c.path / c.before - 0.5).abs()) <= PATH_ALIKE;
    share(&cuts, near) >= HALVED_SHARE
        && share(&cuts, |c| c.off(0.5) > c.far()) <= FAR_CUTS
        && (!westwoods || middle(&cuts, |c| c.off(0.5)).abs() <= ALIKE_OFF)
}

/// Whether the cuts are CUBIC's: to seven tenths, and few to less.
pub(super) fn to_seven_tenths(cuts: &[Cut], at_least: f64) -> bool {
    let near = |c: &Cut| c.off(0.7).abs() <= ROUNDED.max(RATIO_TOLERANCE * c.before);
    share(cuts, near) >= at_least && share(cuts, |c| c.off(0.7) < -c.far()) <= FAR_CUTS
}

/// The middle share that remained.
pub(super) fn median_ratio(cuts: &[Cut]) -> Option<f64> {
    median(cuts.iter().map(Cut::ratio).collect())
}

/// The middle window before a cut.
pub(super) fn median_window(cuts: &[Cut]) -> f64 {
    middle(cuts, |c| c.before)
}

/// The middle of `values`, the upper of two.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn middle(cuts: &[Cut], of: impl Fn(&Cut) -> f64) -> f64 {
    median(cuts.iter().map(of).collect()).unwrap_or(f64::INFINITY)
}

fn share(cuts: &[Cut], of: impl Fn(&Cut) -> bool) -> f64 {
    cuts.iter().filter(|c| of(c)).count() as f64 / cuts.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(before: f64, after: f64, path: f64) -> Cut {
        Cut { before, after, path, pressed: false }
    }

    #[test]
    fn a_small_window_is_halved_to_within_a_segment() {
        assert!(to_the_half(&[cut(18.0, 10.0, 14.0); 4]));
        assert!(!to_the_half(&[cut(18.0, 11.0, 14.0); 4]));
        assert!(to_seven_tenths(&[cut(17.0, 12.0, 14.0); 4], 0.6));
        assert!(to_seven_tenths(&[cut(11.0, 7.0, 8.0); 4], 0.6));
        assert!(!to_seven_tenths(&[cut(17.0, 10.0, 14.0); 4], 0.6));
    }

    #[test]
    fn where_the_path_holds_the_half_a_segment_more_is_westwoods() {
        assert!(to_the_half(&[cut(28.0, 14.0, 16.0); 4]));
        assert!(!to_the_half(&[cut(28.0, 15.0, 16.0); 4]));
        assert!(to_the_half(&[cut(34.0, 18.0, 28.0); 4]));
    }

    #[test]
    fn some_cuts_to_much_more_than_the_half_are_yeahs() {
        let mut cuts = vec![cut(52.0, 26.0, 30.0); 20];
        assert!(to_the_half(&cuts));
        cuts.extend([cut(60.0, 53.0, 36.0); 3]);
        assert!(!to_the_half(&cuts));
    }

    #[test]
    fn a_sender_that_halved_at_first_is_not_cubic() {
        let mut cuts = vec![cut(18.0, 9.0, 14.0); 3];
        cuts.extend([cut(17.0, 11.0, 14.0); 20]);
        assert!(!to_seven_tenths(&cuts, 0.6));
        assert!(to_seven_tenths(&cuts[2..], 0.6));
    }

    #[test]
    fn a_mark_that_is_seen_a_round_early_is_no_cut() {
        let mut cuts = vec![cut(121.0, 62.0, 100.0); 4];
        cuts.extend([Cut { pressed: true, ..cut(121.0, 120.0, 100.0) }; 3]);
        assert!(to_the_half(&cuts));
    }
}
