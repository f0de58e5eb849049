//! How much more than the target has to lie below a link whose rate jumps. Integers only.
//!
//! signal: a report that tells of an empty buffer at a time for which the estimate still had packets in it · model: the link took
//! them faster than its average, so that it stood idle behind a gate that was not yet open; where the rate differs by
//! factors from one tenth of a second to the next, every peak does that, because reports are older than the peaks ·
//! action: more time, up while the link runs dry, down slowly while it moves without. The bytes for that time are taken
//! at the larger of two rates: QCUT's, and one over about a second, since after a pause the first is near zero, its
//! limit empties the link at once, and that keeps it near zero.
//!
//! It is what dynamic queue limits do for a driver's ring (Linux lib/dynamic_queue_limits.c), with reports in place of
//! completions. A link of constant rate is never emptied by more than the packet on the air before the estimate says so,
//! whoever sends, and there it does nothing.

use super::rate_over;

/// Time between two steps: with the reports of 5 ms that the lab's modem writes, 20 are weighed each time.
const STEP_NS: u64 = 100_000_000;
/// Dry in more than this part of the reports is too much. At a sixth and below, slow links with long pauses lose up to a third of
/// their throughput; at a sixteenth, a host that is late by some milliseconds with its packets makes a steady link look dry.
const DRY: u64 = 8;
/// Up by so much a step: 150 ms more within half a second. Down by a part of itself: half of it in 3.5 s, or in 2.4 s where
/// the link did not run dry at all.
const UP_NS: u64 = 30_000_000;
const DOWN: u64 = 50;
const DOWN_FULL: u64 = 35;
/// Steps with data before anything is added, two seconds: until then the rate is being learnt from below, and every report says dry.
const LEARNT: u64 = 20;
/// The weight of a step in the slow average is one in eight: about a second.
const SLOW: u64 = 8;

/// See the module text.
#[derive(Clone, Debug, Default)]
pub struct Slack {
    /// No more than this is ever added, ns.
    most: u64,
    /// So many bytes too many in the estimate mean nothing: a packet is on the air, part of another on its way into the device. With one alone a
    /// steady link looks dry now and then, and its p95 is 120 ms instead of 91.
    margin: u64,
    /// When the step began; what it has seen.
    begun: Option<u64>,
    reports: u64,
    dry: u64,
    moved: u64,
    /// Bytes per second over about a second, of steps in which something moved.
    rate: u64,
    /// Steps with data, up to [`LEARNT`].
    learnt: u64,
    /// What is added to the target.
    slack: u64,
}

impl Slack {
    /// No more than `most` nanoseconds; estimates may be wrong by `margin` bytes.
    pub fn new(most: u64, margin: u64) -> Slack {
        Slack { most, margin, ..Slack::default() }
    }

    /// A report written at `at`, of bytes moved since the one before; `surplus` where it told of an empty buffer: what the
    /// estimate still had in it.
    pub fn on_report(&mut self, at: u64, moved: u64, surplus: u64) {
        let Some(begun) = self.begun else {
            // What was moved before the first report was written has no known beginning.
            self.begun = Some(at);
            return;
        };
        self.reports += 1;
        self.dry += u64::from(surplus > self.margin);
        self.moved = self.moved.saturating_add(moved);
        let span = at.saturating_sub(begun);
        if span < STEP_NS {
            return;
        }
        if self.moved > 0 && self.learnt < LEARNT {
            self.learnt += 1;
        } else if self.dry * DRY > self.reports {
            self.slack = self.slack.saturating_add(UP_NS).min(self.most);
        } else if self.moved > 0 {
            // Neither an outage nor a pause of the sender shows that less would do.
            self.slack -= self.slack.div_ceil(if self.dry > 0 { DOWN } else { DOWN_FULL });
        }
        if self.moved > 0 {
            let sample = rate_over(self.moved, span);
            self.rate =
                if self.rate == 0 { sample } else { (self.rate * (SLOW - 1) + sample) / SLOW };
        }
        (self.begun, self.reports, self.dry, self.moved) = (Some(at), 0, 0, 0);
    }

    /// Added to the target, ns.
    pub fn ns(&self) -> u64 {
        self.slack
    }

    /// Bytes per second over about a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MOST: u64 = 150 * MS;

    /// A packet.
    const MARGIN: u64 = 1_500;

    /// Reports every 5 ms for so long, of so many bytes each, every `dry`-th of them dry.
    fn run(slack: &mut Slack, from_ms: u64, for_ms: u64, moved: u64, dry: u64) {
        for i in 0..for_ms / 5 {
            let surplus = if dry > 0 && i % dry == 0 { MARGIN + 1 } else { MARGIN };
            slack.on_report((from_ms + i * 5) * MS, moved, surplus);
        }
    }

    #[test]
    fn a_link_that_runs_dry_gets_more_and_gives_it_back_when_it_does_not() {
        let mut slack = Slack::new(MOST, MARGIN);
        run(&mut slack, 0, 2_010, 1_250, 4);
        assert_eq!(slack.ns(), 0, "the rate is being learnt");
        run(&mut slack, 2_010, 400, 1_250, 4);
        assert_eq!(slack.ns(), 4 * UP_NS);
        assert_eq!(slack.rate(), 250_000);
        run(&mut slack, 2_410, 5_000, 1_250, 4);
        assert_eq!(slack.ns(), MOST);
        run(&mut slack, 7_410, 3_500, 1_250, 20);
        assert!((MOST / 3..MOST * 3 / 5).contains(&slack.ns()), "{}", slack.ns());
        run(&mut slack, 10_910, 3_500, 1_250, 0);
        assert!(slack.ns() < MOST / 4, "{}", slack.ns());
        run(&mut slack, 14_410, 200_000, 1_250, 0);
        assert_eq!(slack.ns(), 0);
    }

    #[test]
    fn now_and_then_is_not_too_often() {
        let mut slack = Slack::new(MOST, MARGIN);
        run(&mut slack, 0, 60_000, 1_250, 10);
        assert_eq!(slack.ns(), 0);
    }

    #[test]
    fn a_time_in_which_nothing_moves_changes_nothing() {
        let mut slack = Slack::new(MOST, MARGIN);
        run(&mut slack, 0, 4_005, 1_250, 1);
        run(&mut slack, 4_005, 60_000, 0, 0);
        assert_eq!((slack.ns(), slack.rate()), (MOST, 250_000));
    }

    #[test]
    fn no_report_is_too_large() {
        let mut slack = Slack::new(u64::MAX, 0);
        for at in [0, 1, u64::MAX, 5, u64::MAX] {
            slack.on_report(at, u64::MAX, u64::MAX);
        }
        assert!(slack.rate() <= u64::from(u32::MAX));
    }
}
