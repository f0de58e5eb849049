//! When segments were lost that their sender sent again.
//!
//! signal: retransmissions that duplicate ACKs or SACK caused, of data that had not arrived · model: none; timeouts are
//! left out, since what follows one repeats what had arrived as well · action: the moments, one per 20 ms, and how many
//! segments were lost in each, for the queue that stood at them (`directions`).

use units::{Duration, Instant};

/// As round trips are stored, beside which a loss is looked for.
const WIDTH: Duration = Duration::from_millis(20);
/// Moments stored for one flow, 16 KB: 41 s of nothing but losses. Beyond, the time for which one stands doubles.
const MAX_LOSSES: usize = 2048;

/// Moments of losses of one flow, in the order in which they were found.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    at: Vec<(Instant, u64)>,
    width: Duration,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses { at: Vec::new(), width: WIDTH }
    }
}

impl Losses {
    /// Segments were lost: at the sender at the time of their copy, at the receiver at that of the segment behind them.
    #[inline(never)]
    pub fn add(&mut self, at: Instant, segments: u64) {
        self.push(at, segments);
        if self.at.len() > MAX_LOSSES {
            self.width = self.width * 2;
            for (at, segments) in std::mem::take(&mut self.at) {
                self.push(at, segments);
            }
        }
    }

    fn push(&mut self, at: Instant, segments: u64) {
        match self.at.last_mut() {
            Some(last) if at.0.abs_diff(last.0.0) < self.width.0 => last.1 += segments,
            _ => self.at.push((at, segments)),
        }
    }

    /// The moments, and the segments that were lost in each.
    pub fn moments(&self) -> &[(Instant, u64)] {
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
            losses.add(ms(at), 1);
        }
        let found = [(100, 3), (120, 1), (500, 2), (300, 1)];
        assert_eq!(losses.moments(), found.map(|(at, segments)| (ms(at), segments)));
    }

    #[test]
    fn a_day_of_losses_stays_bounded_and_keeps_its_beginning_and_its_end() {
        let mut losses = Losses::default();
        (0..864_000).for_each(|i| losses.add(ms(i * 100), 1));
        let found = losses.moments();
        assert!(found.len() <= MAX_LOSSES && found.len() > MAX_LOSSES / 4, "{}", found.len());
        assert_eq!(found.first().map(|first| first.0), Some(ms(0)));
        assert!(found.last().is_some_and(|last| last.0.0 > ms(86_300_000).0));
        assert_eq!(found.iter().map(|one| one.1).sum::<u64>(), 864_000);
    }
}
