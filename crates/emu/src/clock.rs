//! The one file that reads clocks.

use nix::time::{ClockId, clock_gettime};
use units::Instant;

fn read(clock: ClockId) -> u64 {
    // Neither clock can fail on Linux; a zero would only make everything due at once.
    clock_gettime(clock).map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

/// The time of CLOCK_MONOTONIC in ns.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME, ns since 1970: what captures are stamped with.
pub fn unix_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// The run's time: CLOCK_MONOTONIC since the run's start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// CLOCK_MONOTONIC at the run's zero, ns.
    pub zero_ns: u64,
}

impl Clock {
    /// Now; zero before the start.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant(monotonic_ns().saturating_sub(self.zero_ns))
    }
}
