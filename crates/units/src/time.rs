//! Points in time and spans of it, in whole nanoseconds.
//!
//! Arithmetic saturates, as in the whole crate: a capture's clock that ran backwards gives a span of
//! zero, not a panic.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};
use core::str::FromStr;

use crate::parse::{ParseError, scaled};
use crate::text;

/// A point in time: nanoseconds since an origin that the run defines (the epoch for captures, the
/// start of the run for simulations).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(pub u64);

/// A span of time in nanoseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Duration(pub u64);

impl Instant {
    /// The origin of the run.
    pub const ZERO: Instant = Instant(0);

    /// Nanoseconds since the origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin, with fraction.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time from `earlier` to `self`; zero where the clock ran backwards.
    #[inline]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// Seconds from `origin` to `self`, negative where `self` is earlier.
    #[inline]
    pub fn seconds_from(self, origin: Instant) -> f64 {
        if self.0 >= origin.0 {
            (self.0 - origin.0) as f64 / 1e9
        } else {
            -((origin.0 - self.0) as f64 / 1e9)
        }
    }
}

impl Duration {
    /// A span of no time.
    pub const ZERO: Duration = Duration(0);
    /// The longest span: stands for "never" and "unknown".
    pub const MAX: Duration = Duration(u64::MAX);

    /// A span of whole nanoseconds.
    #[inline]
    pub const fn from_nanos(ns: u64) -> Duration {
        Duration(ns)
    }
    /// A span of whole microseconds.
    #[inline]
    pub const fn from_micros(us: u64) -> Duration {
        Duration(us.saturating_mul(1_000))
    }
    /// A span of whole milliseconds.
    #[inline]
    pub const fn from_millis(ms: u64) -> Duration {
        Duration(ms.saturating_mul(1_000_000))
    }
    /// A span of whole seconds.
    #[inline]
    pub const fn from_secs(s: u64) -> Duration {
        Duration(s.saturating_mul(1_000_000_000))
    }
    /// The span in nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// The span in milliseconds, with fraction.
    #[inline]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// The span in seconds, with fraction.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Difference, zero where `other` is longer.
    #[inline]
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(d.0))
    }
}
impl Sub<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(d.0))
    }
}
impl Add for Duration {
    type Output = Duration;
    #[inline]
    fn add(self, d: Duration) -> Duration {
        Duration(self.0.saturating_add(d.0))
    }
}
impl AddAssign for Duration {
    #[inline]
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}
impl Mul<u64> for Duration {
    type Output = Duration;
    #[inline]
    fn mul(self, k: u64) -> Duration {
        Duration(self.0.saturating_mul(k))
    }
}
impl Div<u64> for Duration {
    type Output = Duration;
    #[inline]
    fn div(self, k: u64) -> Duration {
        Duration(self.0.checked_div(k).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::three_digits(f, self.0, [" ns", " µs", " ms", " s"])
    }
}

impl FromStr for Duration {
    type Err = ParseError;
    /// Reads `20 ms`, `1.5 s`, `250 us`, `250 µs`, `10 ns`, `2 min`, `1 h`.
    fn from_str(text: &str) -> Result<Duration, ParseError> {
        scaled(
            text,
            &[
                ("ns", 1),
                ("us", 1_000),
                ("µs", 1_000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
                ("min", 60_000_000_000),
                ("h", 3_600_000_000_000),
            ],
        )
        .map(Duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_clock_that_ran_backwards_gives_zero_not_a_panic() {
        assert_eq!(Instant(5).since(Instant(9)), Duration::ZERO);
        assert_eq!(Instant(5).seconds_from(Instant(1_000_000_005)), -1.0);
    }

    #[test]
    fn durations_read_and_print_with_their_unit() {
        assert_eq!("20 ms".parse(), Ok(Duration::from_millis(20)));
        assert_eq!("1.5s".parse(), Ok(Duration::from_millis(1500)));
        assert_eq!("1.5h".parse(), "90 min".parse::<Duration>());
        assert_eq!(Duration::from_micros(1500).to_string(), "1.50 ms");
        assert_eq!(Duration::from_secs(60).to_string(), "60 s");
        assert!("20".parse::<Duration>().is_err());
    }
}
