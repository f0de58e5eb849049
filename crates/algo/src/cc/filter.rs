//! The maximum or minimum over a sliding window of time or rounds, from three samples.
//!
//! Kathleen Nichols' algorithm, as in Linux `lib/win_minmax.c`. It stores the best sample of the window
//! and the best ones of its later parts, which follow when the best is too old. Memory is constant.
//! The result is exact while the signal is flat or improves; otherwise it is a value at most one
//! window old. Times (nanoseconds or rounds) must not run backwards.

/// One sample of [`Windowed`].
#[derive(Clone, Copy, Debug, Default)]
struct Sample<V> {
    at: u64,
    value: V,
}

/// A windowed maximum ([`Windowed::max`]) or minimum ([`Windowed::min`]); use each instance for only
/// one of the two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windowed<V> {
    best: [Sample<V>; 3],
}

impl<V: Copy + PartialOrd> Windowed<V> {
    /// A filter with one sample.
    pub fn new(at: u64, value: V) -> Windowed<V> {
        Windowed { best: [Sample { at, value }; 3] }
    }

    /// The best value of the window.
    #[inline]
    pub fn get(&self) -> V {
        self.best[0].value
    }

    /// Discards all samples except this one.
    #[inline]
    pub fn reset(&mut self, at: u64, value: V) {
        *self = Windowed::new(at, value);
    }

    /// Adds a value; returns the maximum of the last `window`.
    #[inline]
    pub fn max(&mut self, window: u64, at: u64, value: V) -> V {
        self.update(window, Sample { at, value }, |new, old| new >= old)
    }

    /// Adds a value; returns the minimum of the last `window`.
    #[inline]
    pub fn min(&mut self, window: u64, at: u64, value: V) -> V {
        self.update(window, Sample { at, value }, |new, old| new <= old)
    }

    #[inline]
    fn update(&mut self, window: u64, new: Sample<V>, beats: impl Fn(V, V) -> bool) -> V {
        let [first, second, third] = &mut self.best;
        // An equal value is better because it is younger.
        if beats(new.value, first.value) || new.at.saturating_sub(third.at) > window {
            self.reset(new.at, new.value);
            return new.value;
        }
        if beats(new.value, second.value) {
            *second = new;
            *third = new;
        } else if beats(new.value, third.value) {
            *third = new;
        }
        let age = new.at.saturating_sub(first.at);
        if age > window {
            *first = *second;
            *second = *third;
            *third = new;
            if new.at.saturating_sub(first.at) > window {
                *first = *second;
                *second = *third;
            }
        } else if second.at == first.at && age > window / 4 {
            // A quarter of the window without a second sample: take this one.
            *second = new;
            *third = new;
        } else if third.at == second.at && age > window / 2 {
            *third = new;
        }
        self.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_maximum_is_remembered_for_the_window_and_then_replaced_by_the_best_of_the_rest() {
        let mut filter = Windowed::new(0, 0_u64);
        filter.max(10, 1, 100);
        for round in 2..=11 {
            assert_eq!(filter.max(10, round, 50), 100, "round {round}");
        }
        assert_eq!(filter.max(10, 12, 40), 50);
    }

    #[test]
    fn a_minimum_is_remembered_likewise() {
        let mut filter = Windowed::new(0, u64::MAX);
        filter.min(10, 1, 20);
        assert_eq!(filter.min(10, 11, 30), 20);
        assert_eq!(filter.min(10, 12, 35), 30);
    }

    #[test]
    fn after_a_gap_longer_than_the_window_only_the_new_value_counts() {
        let mut filter = Windowed::new(0, 9_u64);
        assert_eq!(filter.max(10, 30, 1), 1);
    }

    #[test]
    fn the_answer_is_never_above_the_true_maximum_nor_below_the_newest_value() {
        let mut rng = crate::Rng::new(3, "filter");
        let mut filter = Windowed::new(0, 0_u64);
        let mut seen: Vec<(u64, u64)> = Vec::new();
        for at in 1..2_000_u64 {
            let value = rng.below(1_000);
            seen.push((at, value));
            let got = filter.max(10, at, value);
            let true_max = seen.iter().filter(|(t, _)| at - t <= 10).map(|(_, v)| *v).max();
            assert!(Some(got) <= true_max, "at {at}: {got} of {true_max:?}");
            assert!(got >= value);
        }
    }
}
