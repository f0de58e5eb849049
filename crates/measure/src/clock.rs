//! The clock of this end: CLOCK_MONOTONIC_RAW, which no time server disturbs.
//!
//! The kernel stamps received datagrams on CLOCK_REALTIME. Both clocks are read right after the datagram, and what has
//! passed since the stamp is subtracted; a step of CLOCK_REALTIME in between is noticed and the stamp left out.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A stamp that is older is no time in a socket's buffer but a step of the clock.
const OLDEST: i64 = 1_000_000_000;

/// A clock. Tests give one end another: ahead, and of another rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Ahead of the host's clock, ns.
    pub ahead_ns: i64,
    /// Gains so many parts per million.
    pub fast_ppm: f64,
}

fn read(id: ClockId) -> i64 {
    // These two clocks exist on every Linux.
    clock_gettime(id).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec())
}

impl Clock {
    /// Now, ns.
    pub fn now(&self) -> i64 {
        self.of_host(read(ClockId::CLOCK_MONOTONIC_RAW))
    }

    /// The same moment on this clock and in Unix time, ns.
    pub fn with_unix(&self) -> (i64, i64) {
        (self.now(), read(ClockId::CLOCK_REALTIME))
    }

    fn of_host(&self, raw: i64) -> i64 {
        raw + self.ahead_ns + (raw as f64 * self.fast_ppm * 1e-6) as i64
    }

    /// When something arrived that the kernel stamped on CLOCK_REALTIME.
    pub fn of_stamp(&self, stamp: Option<Duration>) -> i64 {
        // In this order: an interruption in between makes the arrival late. An early one would pull down the line below
        // all delays, and with it every other delay.
        let real = read(ClockId::CLOCK_REALTIME);
        let raw = read(ClockId::CLOCK_MONOTONIC_RAW);
        let since = stamp
            .and_then(|stamp| i64::try_from(stamp.as_nanos()).ok())
            .map(|stamp| real - stamp)
            .filter(|since| (0..OLDEST).contains(since));
        self.of_host(raw - since.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_taken_back_to_its_time_and_a_step_is_not() {
        let clock = Clock::default();
        let real = read(ClockId::CLOCK_REALTIME) as u64;
        let before = clock.now();
        let old = clock.of_stamp(Some(Duration::from_nanos(real - 50_000_000)));
        assert!((before - old - 50_000_000).abs() < 20_000_000);
        for step in [real + 10_000_000_000, real - 10_000_000_000] {
            assert!(clock.of_stamp(Some(Duration::from_nanos(step))) >= before);
        }
        assert!(clock.of_stamp(None) >= before);
    }

    #[test]
    fn a_clock_of_a_test_is_ahead_and_fast() {
        let (host, other) = (Clock::default(), Clock { ahead_ns: 10_000_000_000, fast_ppm: 100.0 });
        let raw = host.now();
        assert_eq!(other.of_host(raw), raw + 10_000_000_000 + (raw as f64 * 1e-4) as i64);
    }
}
