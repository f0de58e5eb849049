//! Time as a modem writes it into its records.
//!
//! The upper 48 bits are units of 1.25 ms since 1980-01-06, the lower 16 bits are chips / 32 of CDMA within a unit:
//! 1.2288 MHz × 1.25 ms × 32 = 49,152. A modem without a network counts from its start.

use serde::{Serialize, Serializer};

/// Parts of a unit.
const PARTS: u64 = 49_152;
/// Nanoseconds of a unit.
const UNIT_NS: u64 = 1_250_000;

/// A time as it stands in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModemTime(pub u64);

impl ModemTime {
    /// Nanoseconds since 1980-01-06; a time beyond 584 years is the last.
    pub fn ns(self) -> u64 {
        let part = (self.0 & 0xffff) * UNIT_NS / PARTS;
        (self.0 >> 16).saturating_mul(UNIT_NS).saturating_add(part)
    }

    /// The time so many nanoseconds after 1980-01-06, rounded up to a part.
    pub fn from_ns(ns: u64) -> ModemTime {
        // Rounded up, so that `ns` of it is not less.
        ModemTime((ns / UNIT_NS) << 16 | (ns % UNIT_NS * PARTS).div_ceil(UNIT_NS))
    }
}

impl Serialize for ModemTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.ns())
    }
}

/// A TTI of LTE: frame 0 … 1023, subframe 0 … 9, each 1 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tti {
    /// System frame number.
    pub sfn: u16,
    /// Subframe within it.
    pub subframe: u8,
}

/// TTIs until frame numbers begin again.
const CYCLE: u16 = 10_240;

impl Tti {
    /// From the form of the MAC's records: frame in the upper twelve bits, subframe in the lower four.
    /// `None` where there is no such TTI; 0xffff is *unknown*.
    pub fn packed(word: u16) -> Option<Tti> {
        let (sfn, subframe) = (word >> 4, (word & 15) as u8);
        (sfn < 1_024 && subframe < 10).then_some(Tti { sfn, subframe })
    }

    /// From the form of the physical layer's records: frame · 10 + subframe.
    pub fn counted(count: u16) -> Option<Tti> {
        (count < CYCLE).then_some(Tti { sfn: count / 10, subframe: (count % 10) as u8 })
    }

    /// TTIs from `earlier` to this one, 0 … 10,239.
    pub fn since(self, earlier: Tti) -> u16 {
        let count = |tti: Tti| tti.sfn * 10 + u16::from(tti.subframe);
        (count(self) + CYCLE - count(earlier)) % CYCLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_and_parts_are_nanoseconds() {
        assert_eq!(ModemTime(0).ns(), 0);
        assert_eq!(ModemTime(1 << 16 | 24_576).ns(), 1_875_000);
        assert!(ModemTime(u64::MAX).ns() > ModemTime(u64::MAX >> 8).ns());
    }

    #[test]
    fn ttis_are_read_in_both_forms_and_count_across_the_cycle() {
        assert_eq!(Tti::packed(0x2346), Some(Tti { sfn: 0x234, subframe: 6 }));
        assert_eq!(Tti::packed(0x234a), None);
        assert_eq!(Tti::packed(0xffff), None);
        assert_eq!(Tti::counted(5_555), Some(Tti { sfn: 555, subframe: 5 }));
        assert_eq!(Tti::counted(10_240), None);
        let (last, first) = (Tti::counted(10_239).unwrap(), Tti::counted(0).unwrap());
        assert_eq!((first.since(last), last.since(first)), (1, 10_239));
    }

    proptest! {
        #[test]
        fn a_time_that_is_written_is_read_to_the_part(ns in 0..1_u64 << 61) {
            let read = ModemTime::from_ns(ns).ns();
            prop_assert!(read.abs_diff(ns) <= UNIT_NS / PARTS + 1, "{} {}", read, ns);
        }
    }
}
