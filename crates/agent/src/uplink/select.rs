//! Who holds uploads: the gate, or windows of passing ACKs.
//!
//! signal: whether a modem's reports come · model: losing them is certain at once, having them only after a while; the while becomes longer
//! each time it was wrong · action: the one or the other. While nobody knows, both are in place: two that hold the same queue harm nobody,
//! none lets it grow to seconds.

use std::time::{Duration, Instant};

/// What is known of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A modem tells of its buffer.
    Modem,
    /// The driver tells of its ring, and nobody of what lies behind it.
    Driver,
    /// Nobody tells anything.
    Nobody,
}

/// Who holds uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The gate.
    Gate,
    /// Windows of passing ACKs.
    Acks,
}

/// Reports have to come for so long before the gate is relied upon: twice the default patience.
const STEADY: Duration = Duration::from_secs(2);
/// … and at most for so long.
const STEADIEST: Duration = Duration::from_secs(60);
/// A gate that held for so long was no mistake.
const HELD: Duration = Duration::from_secs(60);

/// See the module text.
#[derive(Clone, Debug)]
pub struct Choice {
    holder: Holder,
    since: Instant,
    steady: Duration,
    heard_since: Option<Instant>,
}

impl Choice {
    /// Windows of passing ACKs, until a modem has reported for a while.
    pub fn new(now: Instant) -> Choice {
        Choice { holder: Holder::Acks, since: now, steady: STEADY, heard_since: None }
    }

    /// Who holds uploads now.
    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// What is known now; whoever takes over, if somebody does. To be called a few times a second.
    pub fn hear(&mut self, now: Instant, heard: Heard) -> Option<Holder> {
        let next = match (heard, self.holder) {
            (Heard::Modem, Holder::Gate) => return None,
            (Heard::Modem, Holder::Acks) => {
                let since = *self.heard_since.get_or_insert(now);
                if now.saturating_duration_since(since) < self.steady {
                    return None;
                }
                Holder::Gate
            }
            (_, holder) => {
                self.heard_since = None;
                if holder == Holder::Acks {
                    return None;
                }
                let held = now.saturating_duration_since(self.since);
                self.steady = if held < HELD { (self.steady * 2).min(STEADIEST) } else { STEADY };
                Holder::Acks
            }
        };
        (self.holder, self.since) = (next, now);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every quarter of a second for so long; how often somebody took over.
    fn run(choice: &mut Choice, now: &mut Instant, seconds: u64, heard: Heard) -> usize {
        (0..seconds * 4)
            .filter(|_| {
                *now += Duration::from_millis(250);
                choice.hear(*now, heard).is_some()
            })
            .count()
    }

    #[test]
    fn the_gate_holds_after_steady_reports_and_windows_take_over_at_once() {
        let mut now = Instant::now();
        let mut choice = Choice::new(now);
        assert_eq!(run(&mut choice, &mut now, 1, Heard::Modem), 0);
        assert_eq!(run(&mut choice, &mut now, 5, Heard::Modem), 1);
        assert_eq!(choice.holder(), Holder::Gate);
        now += Duration::from_millis(1);
        assert_eq!(choice.hear(now, Heard::Nobody), Some(Holder::Acks));
    }

    #[test]
    fn a_driver_alone_or_a_gap_in_the_reports_is_not_enough_for_the_gate() {
        let mut now = Instant::now();
        let mut choice = Choice::new(now);
        assert_eq!(run(&mut choice, &mut now, 60, Heard::Driver), 0);
        for _ in 0..10 {
            assert_eq!(run(&mut choice, &mut now, 1, Heard::Modem), 0);
            assert_eq!(run(&mut choice, &mut now, 1, Heard::Nobody), 0);
        }
        assert_eq!(choice.holder(), Holder::Acks);
    }

    #[test]
    fn reports_that_come_and_go_change_the_holder_more_and_more_rarely() {
        let mut now = Instant::now();
        let mut choice = Choice::new(now);
        let changes: usize = (0..60)
            .map(|_| {
                run(&mut choice, &mut now, 5, Heard::Modem)
                    + run(&mut choice, &mut now, 2, Heard::Nobody)
            })
            .sum();
        // Two seconds, then four; eight never come.
        assert_eq!(changes, 4);
        assert_eq!(choice.holder(), Holder::Acks);
        // Whom it was right to trust for a minute is trusted as before.
        assert_eq!(run(&mut choice, &mut now, 80, Heard::Modem), 1);
        assert_eq!(run(&mut choice, &mut now, 1, Heard::Nobody), 1);
        assert_eq!(run(&mut choice, &mut now, 3, Heard::Modem), 1);
    }
}
