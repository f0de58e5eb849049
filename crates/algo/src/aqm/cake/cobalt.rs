//! COBALT: CoDel and BLUE together, the drop law of CAKE.
//!
//! signal: sojourn times, overflow, an empty queue · model: CoDel as a schedule without a separate
//! re-entry rule: while the delay is below target, the count falls step by step at the times at which it
//! would have risen. BLUE is a drop probability that rises with overflow and falls with an empty queue ·
//! action: pass, mark or drop.
//!
//! Sources: Høiland-Jørgensen, Täht, Morton: "Piece of CAKE", 2018; Linux `sch_cake.c`. Deviation: Linux
//! has a list of idle queues in which BLUE decays by one step per `target`; here the same steps happen at
//! once when the queue becomes busy again.

use units::{Duration, Instant};

use crate::Rng;
use crate::aqm::codel::control_law;

/// The parameters of the law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    pub target: Duration,
    pub interval: Duration,
    /// Time of a full packet at the shaped rate.
    pub mtu_time: Duration,
}

/// The decision about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Pass,
    Mark,
    Drop,
}

/// BLUE's step up, 1/256, in 2⁻³² (`cake_set_rate`).
const BLUE_UP: u32 = 1 << 24;
/// BLUE's step down, 1/4096, in 2⁻³² (`cake_set_rate`).
const BLUE_DOWN: u32 = 1 << 20;

/// The state of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cobalt {
    drop_next: Instant,
    blue_changed: Instant,
    idle_since: Instant,
    count: u32,
    blue: u32,
    dropping: bool,
}

impl Cobalt {
    fn due(&self, now: Instant) -> bool {
        self.count > 0 && now >= self.drop_next
    }

    fn forget_one(&mut self, law: &Law) {
        self.count -= 1;
        self.drop_next = control_law(self.drop_next, law.interval, self.count);
    }

    /// The decision about a packet that was just removed. `cobalt_should_drop`.
    #[inline]
    pub fn judge(
        &mut self,
        now: Instant,
        sojourn: Duration,
        markable: bool,
        law: &Law,
        rng: &mut Rng,
    ) -> Verdict {
        // Four packet times: at low rates a few packets alone are longer than the target.
        let over = sojourn > law.target && sojourn > law.mtu_time * 4;
        // The common case: no congestion.
        if !over && self.count == 0 && self.blue == 0 {
            self.dropping = false;
            self.drop_next = now + law.interval;
            return Verdict::Pass;
        }
        self.judge_busy(now, over, markable, law, rng)
    }

    fn judge_busy(
        &mut self,
        now: Instant,
        over: bool,
        markable: bool,
        law: &Law,
        rng: &mut Rng,
    ) -> Verdict {
        let due = self.due(now);
        let mut late = now > self.drop_next;
        if over && !self.dropping {
            self.drop_next = control_law(now, law.interval, self.count);
        }
        self.dropping = over;
        if over {
            self.count = self.count.max(1);
        }
        let mut verdict = Verdict::Pass;
        if due && over {
            verdict = if markable { Verdict::Mark } else { Verdict::Drop };
            self.count = self.count.saturating_add(1);
            self.drop_next = control_law(self.drop_next, law.interval, self.count);
            late = now > self.drop_next;
        } else if due {
            while self.due(now) {
                self.forget_one(law);
            }
            late = now > self.drop_next;
        }
        // BLUE also drops ECN-capable packets: it is meant for unresponsive flows.
        if self.blue > 0 && rng.below(1 << 32) < u64::from(self.blue) {
            verdict = Verdict::Drop;
        }
        if self.count == 0 {
            self.drop_next = now + law.interval;
        } else if late && verdict != Verdict::Drop {
            // Missed drops are not made up for.
            self.drop_next = now;
        }
        verdict
    }

    /// A packet of this queue was dropped by overflow. `cobalt_queue_full`.
    pub fn on_overflow(&mut self, now: Instant, law: &Law) {
        if now.since(self.blue_changed) > law.target {
            self.blue = self.blue.saturating_add(BLUE_UP);
            self.blue_changed = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// The queue was served and is empty. `cobalt_queue_empty`.
    pub fn on_empty(&mut self, now: Instant, law: &Law) {
        if self.blue > 0 && now.since(self.blue_changed) > law.target {
            self.blue = self.blue.saturating_sub(BLUE_DOWN);
            self.blue_changed = now;
        }
        self.dropping = false;
        if self.due(now) {
            self.forget_one(law);
        }
        self.idle_since = now;
    }

    /// The queue is used again after an idle time.
    #[inline]
    pub fn on_busy(&mut self, now: Instant, law: &Law) {
        if self.blue > 0 {
            let idle = now.since(self.idle_since.max(self.blue_changed)).0;
            let steps = idle / law.target.0.max(1);
            let down = steps.saturating_mul(u64::from(BLUE_DOWN));
            self.blue = self.blue.saturating_sub(u32::try_from(down).unwrap_or(u32::MAX));
            if steps > 0 {
                self.blue_changed = now;
            }
        }
        while self.due(now) {
            self.forget_one(law);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;
    const LAW: Law = Law {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        mtu_time: Duration::from_millis(1),
    };

    fn drops(cobalt: &mut Cobalt, from: u64, ms: u64, sojourn: u64, rng: &mut Rng) -> Vec<u64> {
        let sojourn = Duration::from_millis(sojourn);
        (from..from + ms)
            .filter(|t| cobalt.judge(Instant(t * MS), sojourn, false, &LAW, rng) == Verdict::Drop)
            .collect()
    }

    // Piece of CAKE, section III.C: CoDel's schedule, one interval after the delay first passes the target.
    #[test]
    fn the_schedule_is_that_of_codel() {
        let (mut cobalt, mut rng) = (Cobalt::default(), Rng::new(1, "test"));
        assert!(
            drops(&mut cobalt, 1_000, 500, 5, &mut rng).is_empty(),
            "at the target, not over it"
        );
        let at = drops(&mut cobalt, 1_500, 1_000, 20, &mut rng);
        let mut expected = alloc::vec![1_600.0];
        // The count is 2 after the first drop: the interval itself was the first step.
        for n in 2..=at.len() {
            expected.push(expected[n - 2] + 100.0 / (n as f64).sqrt());
        }
        assert!(at.len() > 10);
        for (at, expected) in at.iter().zip(&expected) {
            // Each drop is seen at the next whole millisecond.
            assert!(
                (*at as f64 - expected).abs() <= 1.0,
                "dropped at {at} ms, the law says {expected}"
            );
        }
    }

    #[test]
    fn below_target_the_count_falls_back_at_the_times_at_which_it_would_have_risen() {
        let (mut cobalt, mut rng) = (Cobalt::default(), Rng::new(1, "test"));
        drops(&mut cobalt, 1_000, 1_000, 20, &mut rng);
        let high = cobalt.count;
        assert!(high > 10);
        assert!(drops(&mut cobalt, 2_000, 100, 1, &mut rng).is_empty());
        assert!(cobalt.count < high && cobalt.count > 1, "{} of {high}", cobalt.count);
        drops(&mut cobalt, 2_100, 3_000, 1, &mut rng);
        assert_eq!(cobalt.count, 0);
    }

    #[test]
    fn four_packet_times_are_no_standing_queue_at_a_low_rate() {
        let (mut cobalt, mut rng) = (Cobalt::default(), Rng::new(1, "test"));
        let slow = Law { mtu_time: Duration::from_millis(12), ..LAW };
        let mut any = |sojourn| {
            (0..1_000).any(|t| {
                let now = Instant(t * MS);
                cobalt.judge(now, Duration::from_millis(sojourn), false, &slow, &mut rng)
                    != Verdict::Pass
            })
        };
        assert!(!any(48));
        assert!(any(49));
    }

    // Piece of CAKE, section III.C; `cake_set_rate`: 1/256 up, 1/4096 down, once per target at most.
    #[test]
    fn blue_rises_by_a_256th_with_overflow_and_falls_by_a_4096th_with_emptiness() {
        let mut cobalt = Cobalt::default();
        for t in [10, 12, 15, 16] {
            cobalt.on_overflow(Instant(t * MS), &LAW);
        }
        assert_eq!(cobalt.blue, 2 * BLUE_UP, "12 and 15 come within 5 ms of 10");
        cobalt.on_empty(Instant(30 * MS), &LAW);
        assert_eq!(cobalt.blue, 2 * BLUE_UP - BLUE_DOWN);
        cobalt.on_busy(Instant(50 * MS), &LAW);
        assert_eq!(cobalt.blue, 2 * BLUE_UP - 5 * BLUE_DOWN, "20 ms of idleness are four steps");
        cobalt.on_empty(Instant(51 * MS), &LAW);
        cobalt.on_busy(Instant(900_000 * MS), &LAW);
        assert_eq!((cobalt.blue, cobalt.count), (0, 0));
    }

    #[test]
    fn blue_drops_at_its_probability_even_what_could_be_marked() {
        let (mut cobalt, mut rng) =
            (Cobalt { blue: 1 << 30, ..Cobalt::default() }, Rng::new(1, "test"));
        let n = (0..10_000)
            .filter(|t| {
                cobalt.judge(Instant(t * MS), Duration::ZERO, true, &LAW, &mut rng) == Verdict::Drop
            })
            .count();
        assert!((2_300..2_700).contains(&n), "{n} of 10,000 at a quarter");
    }
}
