//! Data rates.

use core::fmt;
use core::ops::Mul;
use core::str::FromStr;

use crate::parse::{ParseError, scaled};
use crate::text;
use crate::{Bytes, Duration};

/// A data rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Rate(pub u64);

impl Rate {
    /// The number of bits per second.
    #[inline]
    pub const fn bps(self) -> u64 {
        self.0
    }
}

impl Mul<Duration> for Rate {
    type Output = Bytes;
    /// The bytes that this rate carries in `span`: for an RTT, the bandwidth-delay product.
    fn mul(self, span: Duration) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(span.0) / 8 / 1_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::three_digits(f, self.0, [" bit/s", " kbit/s", " Mbit/s", " Gbit/s"])
    }
}

impl FromStr for Rate {
    type Err = ParseError;
    /// Reads `9600 bit/s`, `500 kbit/s`, `12 Mbit/s`, `1 Gbit/s` (powers of ten).
    fn from_str(text: &str) -> Result<Rate, ParseError> {
        scaled(
            text,
            &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)],
        )
        .map(Rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_rate_times_an_rtt_is_the_bdp() {
        // 500 Mbit/s at 50 ms: about 3 MB.
        assert_eq!(Rate(500_000_000) * Duration::from_millis(50), Bytes(3_125_000));
    }

    #[test]
    fn rates_read_and_print_in_powers_of_ten() {
        assert_eq!("12 Mbit/s".parse(), Ok(Rate(12_000_000)));
        assert_eq!(Rate(1_448_000).to_string(), "1.45 Mbit/s");
        assert!("12 MB".parse::<Rate>().is_err());
    }
}
