//! Amounts of data.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};
use core::str::FromStr;

use crate::parse::{ParseError, scaled};
use crate::text;
use crate::{Duration, Rate};

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Bytes(pub u64);

impl Bytes {
    /// An amount of zero bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// The number of bytes.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The rate that moves this much in `span`; `None` for no time.
    pub fn over(self, span: Duration) -> Option<Rate> {
        if span.0 == 0 {
            return None;
        }
        let bits = u128::from(self.0) * 8 * 1_000_000_000 / u128::from(span.0);
        Some(Rate(u64::try_from(bits).unwrap_or(u64::MAX)))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    #[inline]
    fn add(self, o: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(o.0))
    }
}
impl AddAssign for Bytes {
    #[inline]
    fn add_assign(&mut self, o: Bytes) {
        *self = *self + o;
    }
}
impl Sub for Bytes {
    type Output = Bytes;
    #[inline]
    fn sub(self, o: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(o.0))
    }
}
impl Mul<u64> for Bytes {
    type Output = Bytes;
    #[inline]
    fn mul(self, k: u64) -> Bytes {
        Bytes(self.0.saturating_mul(k))
    }
}
impl Div<Rate> for Bytes {
    type Output = Duration;
    /// The time that `rate` needs for this much; the longest duration at rate zero.
    fn div(self, rate: Rate) -> Duration {
        if rate.0 == 0 {
            return Duration::MAX;
        }
        let ns = u128::from(self.0) * 8 * 1_000_000_000 / u128::from(rate.0);
        Duration(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::three_digits(f, self.0, [" B", " KB", " MB", " GB"])
    }
}

impl FromStr for Bytes {
    type Err = ParseError;
    /// Reads `1500 B`, `300 KB` (1,000), `256 KiB` (1,024), `3 MB`, `1 GiB`.
    fn from_str(text: &str) -> Result<Bytes, ParseError> {
        scaled(
            text,
            &[
                ("B", 1),
                ("KB", 1_000),
                ("kB", 1_000),
                ("KiB", 1 << 10),
                ("MB", 1_000_000),
                ("MiB", 1 << 20),
                ("GB", 1_000_000_000),
                ("GiB", 1 << 30),
            ],
        )
        .map(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn bytes_over_a_rate_are_a_duration() {
        assert_eq!(Bytes(1_250_000) / Rate(10_000_000), Duration::from_secs(1));
        assert_eq!(Bytes(1) / Rate(0), Duration::MAX);
    }

    #[test]
    fn bytes_over_a_duration_are_a_rate() {
        assert_eq!(Bytes(1_250_000).over(Duration::from_secs(1)), Some(Rate(10_000_000)));
        assert_eq!(Bytes(1).over(Duration::ZERO), None);
    }

    #[test]
    fn kilobytes_are_a_thousand_and_kibibytes_1024() {
        assert_eq!("3 KB".parse(), Ok(Bytes(3_000)));
        assert_eq!("3 KiB".parse(), Ok(Bytes(3_072)));
        assert_eq!(Bytes(3_140_000).to_string(), "3.14 MB");
    }
}
