//! When segments were lost that their sender sent again.
//!
//! signal: retransmissions that duplicate ACKs or SACK caused, of data that had not arrived · model: none; timeouts are
//! left out, since what follows one repeats what had arrived as well · action: the moments, one per 20 ms, for the
//! queue that stood at them (`directions`).

use units::{Duration, Instant};

/// As round trips are stored, beside which a loss is looked for.
const WIDTH: Duration = Duration::from_millis(20);
/// Moments stored for one flow, 16 KB: 41 s of nothing but losses. Beyond, the time for which one stands doubles.
const MAX_LOSSES: usize = 2048;

/// Moments of losses of one flow, in the order in which they were found.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    at: Vec<Instant>,
    width: Duration,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses { at: Vec::new(), width: WIDTH }
    }
}

impl Losses {
    /// A segment was lost: at the sender at the time of its copy, at the receiver at that of the segment behind it.
    #[inline(never)]
    pub fn add(&mut self, at: Instant) {
        if self.is_new(at) {
            self.at.push(at);
        }
        if self.at.len() > MAX_LOSSES {
            self.width = self.width * 2;
            for at in std::mem::take(&mut self.at) {
                if self.is_new(at) {
                    self.at.push(at);
                }
            }
        }
    }

    fn is_new(&self, at: Instant) -> bool {
        self.at.last().is_none_or(|last| at.0.abs_diff(last.0) >= self.width.0)
    }

    /// The moments.
    pub fn moments(&self) -> &[Instant] {
        &self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    #[test]
    fn losses_within_20_ms_are_one_moment() {
        let mut losses = Losses::default();
        for at in [100, 101, 119, 120, 500, 490, 300] {
            losses.add(ms(at));
        }
        assert_eq!(losses.moments(), [100, 120, 500, 300].map(ms));
    }

    #[test]
    fn a_day_of_losses_stays_bounded_and_keeps_its_beginning_and_its_end() {
        let mut losses = Losses::default();
        (0..864_000).for_each(|i| losses.add(ms(i * 100)));
        let found = losses.moments();
        assert!(found.len() <= MAX_LOSSES && found.len() > MAX_LOSSES / 4, "{}", found.len());
        assert_eq!(found.first(), Some(&ms(0)));
        assert!(found.last().is_some_and(|last| last.0 > ms(86_300_000).0));
    }
}
