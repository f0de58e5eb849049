//! Measures whether a cure costs goodput, by an on/off experiment on live traffic.
//!
//! signal: bytes that arrived, several times a second · model: goodput with the cure, then without
//! it for a few seconds, then with it again. The span without the cure is compared with the better
//! of the two spans around it, so that a link that became faster counts as no regression · action:
//! lift and restore; withdraw where goodput without the cure is more than a twentieth higher. The
//! caller passes the time.
//!
//! A single flow without its cure takes bandwidth from the others; that is no cost of the cure. So
//! where only one flow is lifted, the sum of all flows has to grow, too, by half of its gain.
//!
//! A trial may add a little delay for a short time. The caller lifts a cure only so far that a full
//! link adds [`MORE_DELAY`] to the RTT: a cure that throttles shows a gain all the same, since what
//! the flow gains widens its window further. Once the RTT has risen, the span without the cure ends
//! `MAX_DELAYED` after the lift. While it has not, the whole span is measured, since a sender
//! whose cwnd has to grow first shows a gain late.
//!
//! Each trial without a regression doubles the time to the next. A withdrawn cure gets another
//! chance, also after longer and longer.

use serde::Serialize;
use units::{Duration, Instant};

/// Constants of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Goodput has to be higher by so many per mille without the cure for it to be withdrawn.
    pub gain: u64,
    /// Each of the three spans; that without the cure is shorter where it adds delay. Several
    /// round trips, also of a phone with a queue.
    pub span: Duration,
    /// After restoring: until the path has noticed; not counted.
    pub settle: Duration,
    /// From the start of the cure to its first trial.
    pub every: Duration,
    /// The longest time between trials.
    pub rarest: Duration,
    /// A span with fewer bytes is not judged, unless the cure is what limits: the senders had no
    /// more to send.
    pub busy: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            gain: 50,
            span: Duration::from_secs(3),
            settle: Duration::from_secs(1),
            every: Duration::from_secs(60),
            rarest: Duration::from_secs(1_800),
            busy: 65_536,
        }
    }
}

/// What a trial may add to the RTT. Below 50 ms, since a window gains a segment at least, and since
/// a rate that is measured too high adds some.
pub const MORE_DELAY: Duration = Duration::from_millis(30);
/// On a longer path that is too little: a span has few round trips, in each of which a window may
/// grow by what is permitted. So it is half of the RTT there. An eighth did not show each time that
/// windows for 60 ms throttle a path of 530 ms.
const LONG_RTT_US: u64 = 240_000;
const MORE_DELAY_PART: u64 = 2;
/// A trial that adds delay ends so long after the lift: 2 s, less the time between two looks and
/// that in which the queue drains.
const MAX_DELAYED: Duration = Duration::from_millis(1_500);
/// Not counted after the lift: a larger window acts one round trip later.
const REACTION: Duration = Duration::from_millis(500);

/// The RTT that a trial permits on a path with this RTT, µs.
pub fn permitted_rtt_us(rtt_us: u64) -> u64 {
    let part = if rtt_us >= LONG_RTT_US { rtt_us / MORE_DELAY_PART } else { 0 };
    rtt_us + part.max(MORE_DELAY.0 / 1_000)
}

/// Whether the RTT during a trial shows that the queue has grown: by a quarter of what is
/// permitted, which is more than its jitter. All in µs.
pub fn risen(before_us: u64, permitted_us: u64, now_us: u64) -> bool {
    now_us.saturating_sub(before_us) >= permitted_us.saturating_sub(before_us) / 4
}

/// A cure that was put back and does not act within this is not judged.
const UNSETTLED: Duration = Duration::from_secs(30);

/// What has to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave the cure as it is.
    Keep,
    /// Lift the cure for a while.
    Lift,
    /// Put the lifted cure back.
    Restore,
    /// Take it away: it cost goodput.
    Withdraw(Verdict),
    /// Put a withdrawn one back, for another chance.
    Retry,
}

/// What a trial found, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The better of the spans with the cure.
    pub with: u64,
    /// The span without the cure.
    pub without: u64,
}

/// How a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// No trial runs.
    Resting,
    /// Spans are being measured, with the cure or without.
    Trying,
    /// The cure was withdrawn.
    Withdrawn,
}

/// Bytes, or bytes per second: of the flow on trial, and of all flows on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sums {
    own: u64,
    all: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No trial runs before `until`.
    Resting { until: Instant },
    /// With the cure, before.
    Before { since: Instant, bytes: Sums },
    /// Lifted, not counted yet.
    Lifting { since: Instant, before: Sums },
    /// The span without the cure is measured.
    Without { since: Instant, bytes: Sums, before: Sums },
    /// Restored, not counted yet.
    Restoring { since: Instant, before: Sums, without: Sums },
    /// With the cure, after.
    After { since: Instant, bytes: Sums, before: Sums, without: Sums },
    /// The cure is withdrawn until then.
    Withdrawn { until: Instant },
}

/// The state of a cure between and during its trials.
#[derive(Clone, Debug)]
pub struct Trial {
    config: Config,
    phase: Phase,
    wait: Duration,
    last: Option<Verdict>,
    /// The last trial came to a verdict.
    concluded: bool,
    settled: bool,
    held: bool,
    delayed: bool,
    /// When the last trial began to lift.
    lifted_at: Instant,
}

impl Trial {
    /// For a cure that begins now.
    pub fn new(config: Config, now: Instant) -> Trial {
        let phase = Phase::Resting { until: later(now, config.every) };
        Trial {
            config,
            phase,
            wait: config.every,
            last: None,
            concluded: false,
            settled: true,
            held: false,
            delayed: true,
            lifted_at: now,
        }
    }

    /// Whether the cure is lifted or withdrawn.
    pub fn lifted(&self) -> bool {
        matches!(
            self.phase,
            Phase::Lifting { .. } | Phase::Without { .. } | Phase::Withdrawn { .. }
        )
    }

    /// Whether the cure is withdrawn.
    pub fn withdrawn(&self) -> bool {
        self.stage() == Stage::Withdrawn
    }

    /// Whether a trial runs, or the cure is withdrawn.
    pub fn stage(&self) -> Stage {
        match self.phase {
            Phase::Resting { .. } => Stage::Resting,
            Phase::Withdrawn { .. } => Stage::Withdrawn,
            _ => Stage::Trying,
        }
    }

    /// Whether there is something to do or to measure now; otherwise no bytes need be counted.
    pub fn due(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Resting { until } | Phase::Withdrawn { until } => now >= until,
            _ => true,
        }
    }

    /// When a withdrawn cure gets another chance.
    pub fn again(&self) -> Option<Instant> {
        match self.phase {
            Phase::Withdrawn { until } => Some(until),
            _ => None,
        }
    }

    /// What the last trial found.
    pub fn last(&self) -> Option<Verdict> {
        self.last
    }

    /// Whether the latest trial came to that verdict, and not an earlier one.
    pub fn concluded(&self) -> bool {
        self.concluded
    }

    /// Asks for a trial now, on suspicion of a regression. A trial that runs goes on.
    pub fn suspect(&mut self, now: Instant) {
        if let Phase::Resting { until } = &mut self.phase {
            *until = now;
        }
    }

    /// Whether a cure that was put back acts already: an open window closes only as data arrives, and
    /// a queue takes time to drain. Spans before that are not judged.
    pub fn settle(&mut self, settled: bool) {
        self.settled = settled;
    }

    /// Whether the cure is what limits: then even a span with few bytes is judged. Otherwise a cure
    /// that starves its flow would never be tried.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether lifting has added delay, or may have.
    pub fn delay(&mut self, delayed: bool) {
        self.delayed = delayed;
    }

    /// Whether the cure is lifted for a moment, to measure without it.
    pub fn measures_without(&self) -> bool {
        self.lifted() && !self.withdrawn()
    }

    /// When a lifted cure has to be looked at, however rare looks are: whether it adds delay, and so ends, is
    /// known only then.
    pub fn next_look(&self) -> Option<Instant> {
        match self.phase {
            Phase::Lifting { since, .. } => Some(later(since, REACTION)),
            Phase::Without { .. } => Some(later(self.lifted_at, MAX_DELAYED)),
            _ => None,
        }
    }

    /// Whether the cure has been put back, and the last span decides.
    pub fn judging(&self) -> bool {
        matches!(self.phase, Phase::Restoring { .. } | Phase::After { .. })
    }

    /// `bytes`: all that arrived so far. To be called several times a second.
    pub fn on_progress(&mut self, now: Instant, bytes: u64) -> Action {
        self.on_shared_progress(now, bytes, bytes)
    }

    /// The same where one of several flows is tried; `all`: bytes of all flows on this path.
    pub fn on_shared_progress(&mut self, now: Instant, own: u64, all: u64) -> Action {
        let bytes = Sums { own, all };
        let (span, settle) = (self.config.span, self.config.settle);
        match self.phase {
            Phase::Resting { until } if now >= until && self.settled => {
                self.phase = Phase::Before { since: now, bytes };
                Action::Keep
            }
            Phase::Before { since, bytes: from } if now.since(since) >= span => {
                let Some(before) = self.rate(from, bytes, now.since(since), self.least()) else {
                    return self.rest(now, false);
                };
                self.phase = Phase::Lifting { since: now, before };
                self.lifted_at = now;
                Action::Lift
            }
            Phase::Lifting { since, before } if now.since(since) >= REACTION => {
                self.phase = Phase::Without { since: now, bytes, before };
                Action::Keep
            }
            Phase::Without { since, bytes: from, before } if self.measured(now, since) => {
                let over = now.since(since);
                let Some(without) = self.rate(from, bytes, over, 1) else {
                    self.rest(now, false);
                    return Action::Restore;
                };
                if !self.gained(before, without) {
                    // The senders may have had no more to send.
                    let busy = without.own >= per_second(self.config.busy, span);
                    if busy {
                        self.last = Some(Verdict { with: before.own, without: without.own });
                    }
                    self.rest(now, busy);
                    return Action::Restore;
                }
                self.phase = Phase::Restoring { since: now, before, without };
                Action::Restore
            }
            // A cure that never settles cannot be judged.
            Phase::Restoring { since, .. } if now.since(since) >= UNSETTLED => {
                self.rest(now, false)
            }
            Phase::Restoring { since, before, without }
                if self.settled && now.since(since) >= settle =>
            {
                self.phase = Phase::After { since: now, bytes, before, without };
                Action::Keep
            }
            Phase::After { since, bytes: from, before, without } if now.since(since) >= span => {
                // A transfer that has ended meanwhile is no measure.
                let Some(after) = self.rate(from, bytes, now.since(since), self.least()) else {
                    return self.rest(now, false);
                };
                let with = Sums { own: before.own.max(after.own), all: before.all.max(after.all) };
                let verdict = Verdict { with: with.own, without: without.own };
                self.last = Some(verdict);
                if !self.gained(with, without) {
                    return self.rest(now, true);
                }
                self.longer();
                self.phase = Phase::Withdrawn { until: later(now, self.wait) };
                Action::Withdraw(verdict)
            }
            Phase::Withdrawn { until } if now >= until => {
                // Its first trial comes soon: it has been found guilty before.
                self.phase = Phase::Resting { until: later(now, settle) };
                Action::Retry
            }
            _ => Action::Keep,
        }
    }

    /// Whether the span without the cure has been long enough.
    fn measured(&self, now: Instant, since: Instant) -> bool {
        let over = now.since(since);
        over >= self.config.span
            || self.delayed && over.0 > 0 && now.since(self.lifted_at) >= MAX_DELAYED
    }

    /// Rests until the next trial: longer after no regression, the same after no verdict.
    fn rest(&mut self, now: Instant, no_regression: bool) -> Action {
        self.concluded = no_regression;
        if no_regression {
            self.longer();
        }
        self.phase = Phase::Resting { until: later(now, self.wait) };
        Action::Keep
    }

    fn longer(&mut self) {
        self.wait = Duration(self.wait.0.saturating_mul(2)).min(self.config.rarest);
    }

    fn gained(&self, with: Sums, without: Sums) -> bool {
        let own = u128::from(without.own) * 1_000
            > u128::from(with.own) * u128::from(1_000 + self.config.gain);
        let (gain, more) =
            (without.own.saturating_sub(with.own), without.all.saturating_sub(with.all));
        own && more >= gain / 2
    }

    /// So much has to come in a span with the cure.
    fn least(&self) -> u64 {
        if self.held { 1 } else { self.config.busy }
    }

    /// Bytes per second, where enough came.
    fn rate(&self, from: Sums, to: Sums, over: Duration, least: u64) -> Option<Sums> {
        if to.own.saturating_sub(from.own) < least {
            return None;
        }
        let rate = |from: u64, to: u64| per_second(to.saturating_sub(from), over);
        Some(Sums { own: rate(from.own, to.own), all: rate(from.all, to.all) })
    }
}

fn per_second(bytes: u64, over: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(over.0.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn later(now: Instant, by: Duration) -> Instant {
    Instant(now.0.saturating_add(by.0))
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
