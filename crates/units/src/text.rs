//! Numbers as text for people: how many digits, and which unit.
//!
//! Every output chooses its own [`Step`]s, because a table of narrow columns and a sentence need
//! different numbers of digits; the way to apply them is the same.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// The format of the values below a bound: `value / divisor` with `decimals` digits, then the unit.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Values below this one have this format.
    pub below: f64,
    /// The unit's size, in the unit of the value.
    pub divisor: f64,
    /// Digits after the point.
    pub decimals: usize,
    /// The unit with the blank before it.
    pub unit: &'static str,
}

/// A step of a scale, for tables in one line each.
pub const fn step(below: f64, divisor: f64, decimals: usize, unit: &'static str) -> Step {
    Step { below, divisor, decimals, unit }
}

/// `value` in the format of the first step that it is below, or of the last one.
pub fn scaled(value: f64, steps: &[Step]) -> String {
    match steps.iter().find(|step| value < step.below).or(steps.last()) {
        Some(step) => {
            format!("{:.*}{}", step.decimals, value / step.divisor, step.unit)
        }
        None => format!("{value}"),
    }
}

/// Three significant digits and the unit for a factor of 1, 10³, 10⁶ or 10⁹; whole numbers have no
/// decimals.
pub(crate) fn three_digits(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: [&str; 4],
) -> fmt::Result {
    let (divisor, unit) = match value {
        0..1_000 => (1.0, units[0]),
        1_000..1_000_000 => (1e3, units[1]),
        1_000_000..1_000_000_000 => (1e6, units[2]),
        _ => (1e9, units[3]),
    };
    let value = value as f64 / divisor;
    let decimals = match value {
        v if v >= 99.95 || v == (v as u64) as f64 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    write!(f, "{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_above_the_value_formats_it() {
        let steps =
            [step(9.95, 1.0, 1, " ms"), step(999.5, 1.0, 0, " ms"), step(f64::MAX, 1e3, 1, " s")];
        assert_eq!(scaled(8.34, &steps), "8.3 ms");
        assert_eq!(scaled(9.95, &steps), "10 ms");
        assert_eq!(scaled(2_130.0, &steps), "2.1 s");
        assert_eq!(scaled(f64::INFINITY, &steps), "inf s");
    }
}
