//! How much of a processor some work may take: a share of the time, and some savings.
//!
//! Work that waits until its share has grown is late exactly when it is wanted: on a busy host the
//! same work takes several times as long. What was not used before is saved, and spent then.

use std::time::{Duration, Instant};

/// The processor time that is left.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// One part in so many of the time.
    share: u32,
    /// Most that is saved.
    most: Duration,
    /// What is left, or what was spent in advance.
    left_ns: i128,
    at: Instant,
}

impl Budget {
    /// With full savings.
    pub(crate) fn new(share: u32, most: Duration, now: Instant) -> Budget {
        Budget { share, most, left_ns: most.as_nanos() as i128, at: now }
    }

    /// Whether so much is saved; work may then take more than that.
    pub(crate) fn has(&mut self, saved: Duration, now: Instant) -> bool {
        let grown = now.duration_since(self.at).as_nanos() / u128::from(self.share.max(1));
        self.left_ns = (self.left_ns + grown as i128).min(self.most.as_nanos() as i128);
        self.at = now;
        self.left_ns >= saved.as_nanos() as i128
    }

    /// Takes what some work has used. What it owes is at most what grows within `longest`.
    pub(crate) fn spend(&mut self, took: Duration, longest: Duration) {
        let most = (longest / self.share.max(1)).as_nanos() as i128;
        self.left_ns = (self.left_ns - took.as_nanos() as i128).max(-most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_are_spent_at_once_and_what_is_owed_is_waited_for_but_not_for_ever() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let (took, longest) = (Duration::from_millis(30), Duration::from_secs(10));
        let mut budget = Budget::new(100, Duration::from_millis(50), begun);
        for _ in 0..2 {
            assert!(budget.has(Duration::ZERO, at(0)));
            budget.spend(took, longest);
        }
        assert!(!budget.has(Duration::ZERO, at(999)), "10 ms are owed, a hundredth of a second");
        assert!(budget.has(Duration::ZERO, at(1_000)));
        assert!(!budget.has(Duration::from_millis(1), at(1_000)));
        assert!(budget.has(Duration::from_millis(50), at(1_000_000)));
        assert!(!budget.has(Duration::from_millis(51), at(2_000_000)), "no more is saved");
        budget.spend(Duration::from_secs(60), longest);
        assert!(!budget.has(Duration::ZERO, at(2_009_990)));
        assert!(budget.has(Duration::ZERO, at(2_010_010)));
    }
}
