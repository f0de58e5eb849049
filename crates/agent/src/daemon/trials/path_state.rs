//! RTT and rate of what is tried, before and during a trial: they decide how much delay the trial permits.

use crate::cures::FlowStatus;
use crate::cures::trial::permitted_rtt_us;
use crate::kernel::layouts::acks::Flow;

/// Payload of a segment on most paths.
const SEGMENT: u64 = 1_448;

/// RTT and its minimum (µs) and the rate (bytes per second) of a flow, or the means of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathState {
    pub(super) rtt_us: u64,
    pub(super) rtt_min_us: u64,
    pub(super) rate: u64,
}

impl PathState {
    /// Means by rate: what their common queue has.
    pub(super) fn mean<'a>(
        flows: impl Iterator<Item = &'a FlowStatus> + Clone,
    ) -> Option<PathState> {
        let rate: u64 = flows.clone().map(|flow| flow.rate).sum();
        let mean = |of: fn(&FlowStatus) -> u64| {
            let sum: u128 =
                flows.clone().map(|flow| u128::from(of(flow)) * u128::from(flow.rate)).sum();
            u64::try_from(sum / u128::from(rate.max(1))).ok()
        };
        let (rtt_us, rtt_min_us) = (mean(|flow| flow.rtt_us)?, mean(|flow| flow.rtt_min_us)?);
        (rate > 0 && rtt_us > 0).then_some(PathState { rtt_us, rtt_min_us, rate })
    }

    /// Between this one and the next: three parts and one.
    pub(super) fn towards(self, next: PathState) -> PathState {
        let mean = |old: u64, new: u64| old - old / 4 + new / 4;
        PathState {
            rtt_us: mean(self.rtt_us, next.rtt_us),
            rtt_min_us: self.rtt_min_us.min(next.rtt_min_us),
            rate: mean(self.rate, next.rate),
        }
    }

    /// The RTT that a trial permits, µs: a window of few segments has to grow by one at least.
    pub(super) fn permitted_us(self) -> u64 {
        permitted_rtt_us(self.rtt_us) + SEGMENT * 1_000_000 / self.rate.max(1)
    }
}

/// RTT and rate in the direction that carries more.
pub(super) fn path(flow: &Flow) -> Option<PathState> {
    let way = if flow.up.law.rate >= flow.down.law.rate { &flow.up } else { &flow.down };
    let (rtt_us, rtt_min_us, rate) = (way.law.rtt_us, way.law.rtt_min_us, way.law.rate);
    (rate > 0 && rtt_us > 0).then_some(PathState { rtt_us, rtt_min_us, rate })
}
