//! Reads a number with a unit: `20 ms`, `1.5 Mbit/s`, `256 KiB`.

use core::fmt;

/// Why a quantity could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// The text does not begin with a number.
    Number,
    /// The unit is missing or belongs to another quantity.
    Unit,
    /// The value does not fit 64 bits.
    Range,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Number => "expected a number and a unit, such as 20 ms",
            ParseError::Unit => "unit missing or not one of this quantity",
            ParseError::Range => "value out of range",
        })
    }
}

impl core::error::Error for ParseError {}

/// Splits `text` into number and unit and scales by the unit's factor, exactly, to nine decimals.
pub(crate) fn scaled(text: &str, table: &[(&str, u64)]) -> Result<u64, ParseError> {
    let text = text.trim();
    let digits_end =
        text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let unit = unit.trim();
    let factor = table.iter().find(|(name, _)| *name == unit).map(|(_, f)| *f);
    let (whole, frac) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && frac.is_empty() || frac.contains('.') {
        return Err(ParseError::Number);
    }
    let factor = factor.ok_or(ParseError::Unit)?;
    let mut value: u128 = 0;
    for c in whole.bytes().filter(|c| *c != b'_') {
        value = value * 10 + u128::from(c - b'0');
        if value > u128::from(u64::MAX) {
            return Err(ParseError::Range);
        }
    }
    let mut total = value * u128::from(factor);
    let mut rest: u128 = 0;
    let mut denominator: u128 = 1;
    // Nine decimals keep the product inside 128 bits and resolve every unit of the tables.
    for c in frac.bytes().filter(|c| *c != b'_').take(9) {
        rest = rest * 10 + u128::from(c - b'0');
        denominator *= 10;
    }
    total += u128::from(factor) * rest / denominator;
    u64::try_from(total).map_err(|_| ParseError::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_scales_exactly() {
        assert_eq!(scaled("0.1 s", &[("s", 1_000_000_000)]), Ok(100_000_000));
        assert_eq!(scaled("1_000 B", &[("B", 1)]), Ok(1_000));
    }

    #[test]
    fn other_text_is_an_error_with_its_reason() {
        assert_eq!(scaled("ms", &[("ms", 1)]), Err(ParseError::Number));
        assert_eq!(scaled("5 parsecs", &[("ms", 1)]), Err(ParseError::Unit));
        assert_eq!(scaled("99999999999999999999 B", &[("B", 1)]), Err(ParseError::Range));
        assert_eq!(scaled("1.2.3 B", &[("B", 1)]), Err(ParseError::Number));
    }
}
