//! Extra buffer time for a link whose rate jumps. Integers only.
//!
//! signal: a report of an empty buffer, for a time at which the estimate still had packets in it
//! (overestimate) · model: starvation. The link sent faster than its average and stood idle behind a
//! gate that was still closed. If the rate changes by factors from one tenth of a second to the next,
//! every peak starves the link, because reports are older than the peaks · action: extra time on top
//! of the target. It rises while the link starves and falls slowly while data flows without
//! starvation. The bytes for that time are computed from the larger of two rates: QCUT's, and an
//! average over about a second. After a pause QCUT's rate is near zero; its limit would empty the
//! link at once, which would keep the rate near zero.
//!
//! Source: dynamic queue limits (Linux `lib/dynamic_queue_limits.c`) do the same for a driver's ring,
//! with completions in place of reports. On a link of constant rate the estimate is wrong by no more
//! than the packet on the air, and the extra time stays at zero.

use super::rate_over;

/// Time between two steps: with the lab modem's report every 5 ms, each step weighs 20 reports.
const STEP_NS: u64 = 100_000_000;
/// The link starves if more than one report in this many shows starvation. With one in six or
/// fewer, slow links with long pauses lose up to a third of their throughput. With one in sixteen, a
/// host whose packets are a few milliseconds late makes a steady link look starved.
const STARVED_ONE_IN: u64 = 8;
/// Rise per step: 150 ms more within half a second.
const UP_NS: u64 = 30_000_000;
/// Fall per step, as a part of the current value: it halves in 3.5 s.
const DOWN_ONE_IN: u64 = 50;
/// The same without a single starved report: it halves in 2.4 s.
const DOWN_ONE_IN_NEVER_STARVED: u64 = 35;
/// Warm-up: steps with data (two seconds) before anything is added. Until then the rate estimate
/// rises from zero, and every report shows starvation.
const WARM_UP_STEPS: u64 = 20;
/// A step's weight in the slow average is one in eight: about a second.
const SLOW_ONE_IN: u64 = 8;

/// The extra time of one link, and what it is computed from.
#[derive(Clone, Debug, Default)]
pub struct Slack {
    /// Upper bound of `slack`, ns.
    max: u64,
    /// Overestimates up to this many bytes are normal: one packet is on the air, and part of another
    /// is on its way into the device. With one packet alone a steady link looks starved now and
    /// then, and its p95 is 120 ms instead of 91.
    margin: u64,
    /// When the current step began, ns.
    begun: Option<u64>,
    /// Reports in the current step, and how many of them showed starvation.
    reports: u64,
    starved: u64,
    /// Bytes that left the device in the current step.
    drained: u64,
    /// Bytes per second over about a second, of steps with data.
    rate: u64,
    /// Steps with data, up to [`WARM_UP_STEPS`].
    warm_up: u64,
    /// Added to the target, ns.
    slack: u64,
}

impl Slack {
    /// At most `max` nanoseconds; overestimates up to `margin` bytes are normal.
    pub fn new(max: u64, margin: u64) -> Slack {
        Slack { max, margin, ..Slack::default() }
    }

    /// A report written at `at` (ns), with the bytes drained since the previous report. If it shows
    /// an empty buffer, `overestimate` is what the estimate still had in it, else 0.
    pub fn on_report(&mut self, at: u64, drained: u64, overestimate: u64) {
        let Some(begun) = self.begun else {
            // The interval before the first report has no known beginning.
            self.begun = Some(at);
            return;
        };
        self.reports += 1;
        self.starved += u64::from(overestimate > self.margin);
        self.drained = self.drained.saturating_add(drained);
        let span = at.saturating_sub(begun);
        if span < STEP_NS {
            return;
        }
        if self.drained > 0 && self.warm_up < WARM_UP_STEPS {
            self.warm_up += 1;
        } else if self.starved * STARVED_ONE_IN > self.reports {
            self.slack = self.slack.saturating_add(UP_NS).min(self.max);
        } else if self.drained > 0 {
            // Only with data: an outage or an idle sender does not show that less is enough.
            let down = if self.starved > 0 { DOWN_ONE_IN } else { DOWN_ONE_IN_NEVER_STARVED };
            self.slack -= self.slack.div_ceil(down);
        }
        if self.drained > 0 {
            let sample = rate_over(self.drained, span);
            self.rate = match self.rate {
                0 => sample,
                rate => (rate * (SLOW_ONE_IN - 1) + sample) / SLOW_ONE_IN,
            };
        }
        (self.begun, self.reports, self.starved, self.drained) = (Some(at), 0, 0, 0);
    }

    /// Extra time on top of the target, ns.
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
    const MAX: u64 = 150 * MS;

    /// The size of one packet.
    const MARGIN: u64 = 1_500;

    /// A report of `drained` bytes every 5 ms for `for_ms`; one in `starved` shows starvation.
    fn run(slack: &mut Slack, from_ms: u64, for_ms: u64, drained: u64, starved: u64) {
        for i in 0..for_ms / 5 {
            let is_starved = starved > 0 && i % starved == 0;
            let overestimate = if is_starved { MARGIN + 1 } else { MARGIN };
            slack.on_report((from_ms + i * 5) * MS, drained, overestimate);
        }
    }

    #[test]
    fn the_slack_rises_while_the_link_starves_and_falls_when_it_does_not() {
        let mut slack = Slack::new(MAX, MARGIN);
        run(&mut slack, 0, 2_010, 1_250, 4);
        assert_eq!(slack.ns(), 0, "warm-up");
        run(&mut slack, 2_010, 400, 1_250, 4);
        assert_eq!(slack.ns(), 4 * UP_NS);
        assert_eq!(slack.rate(), 250_000);
        run(&mut slack, 2_410, 5_000, 1_250, 4);
        assert_eq!(slack.ns(), MAX);
        run(&mut slack, 7_410, 3_500, 1_250, 20);
        assert!((MAX / 3..MAX * 3 / 5).contains(&slack.ns()), "{}", slack.ns());
        run(&mut slack, 10_910, 3_500, 1_250, 0);
        assert!(slack.ns() < MAX / 4, "{}", slack.ns());
        run(&mut slack, 14_410, 200_000, 1_250, 0);
        assert_eq!(slack.ns(), 0);
    }

    #[test]
    fn rare_starvation_adds_nothing() {
        let mut slack = Slack::new(MAX, MARGIN);
        run(&mut slack, 0, 60_000, 1_250, 10);
        assert_eq!(slack.ns(), 0);
    }

    #[test]
    fn a_time_without_data_changes_nothing() {
        let mut slack = Slack::new(MAX, MARGIN);
        run(&mut slack, 0, 4_005, 1_250, 1);
        run(&mut slack, 4_005, 60_000, 0, 0);
        assert_eq!((slack.ns(), slack.rate()), (MAX, 250_000));
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
