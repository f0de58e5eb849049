//! Each probe is answered once: numbers that were there before, or are older than the window, are refused.
//!
//! signal: number of a probe whose tag is right · model: a window of the latest 1024 numbers, as RFC 4303 section 3.4.3 ·
//! action: new or not.

/// At 200 probes a second this is five seconds: more than the longest that a probe is waited for.
pub const WINDOW: u32 = 1024;
const WORDS: usize = WINDOW as usize / 64;

/// The numbers that were there.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// The largest, plus one.
    next: u64,
    /// Bit n % 1024: number n was there.
    seen: [u64; WORDS],
}

impl Replay {
    /// Whether the number is new; it is old from now on.
    pub fn is_new(&mut self, number: u32) -> bool {
        let number64 = u64::from(number);
        if number64 + u64::from(WINDOW) < self.next {
            return false;
        }
        if number64 >= self.next {
            for passed in self.next..=number64.min(self.next + u64::from(WINDOW) - 1) {
                self.seen[word(passed)] &= !bit(passed);
            }
            if number64 - self.next >= u64::from(WINDOW) {
                self.seen = [0; WORDS];
            }
            self.next = number64 + 1;
        }
        let new = self.seen[word(number64)] & bit(number64) == 0;
        self.seen[word(number64)] |= bit(number64);
        new
    }
}

const fn word(number: u64) -> usize {
    (number % WINDOW as u64 / 64) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_number_is_new_twice_and_recent_ones_are_new_once(
            steps in prop::collection::vec((0_u32..3000, any::<bool>()), 1..300),
        ) {
            let mut window = Replay::default();
            let (mut seen, mut largest) = (HashSet::new(), 0_u32);
            for (step, forward) in steps {
                let number = if forward { largest + step } else { largest.saturating_sub(step) };
                let new = window.is_new(number);
                if seen.contains(&number) {
                    prop_assert!(!new, "{number} twice");
                } else {
                    prop_assert_eq!(new, number + WINDOW > largest || seen.is_empty(), "{} at {}", number, largest);
                }
                if new {
                    seen.insert(number);
                }
                largest = largest.max(number);
            }
        }
    }

    #[test]
    fn the_largest_number_is_taken() {
        let mut window = Replay::default();
        assert!(window.is_new(u32::MAX) && !window.is_new(u32::MAX) && window.is_new(u32::MAX - 1));
        assert!(!window.is_new(0));
    }
}
