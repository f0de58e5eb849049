//! The buffer status report in the header of a transport block of LTE.
//!
//! Source: 3GPP TS 36.321 sections 6.1.2 (sub-headers) and 6.1.3 (control elements). A sub-header is one byte: bit 5
//! says that another follows, bits 0 … 4 are the LCID. Those of data have a length behind them, but for the last.
//! Control elements follow the sub-headers, in their order.

use algo::link::grants::LEVELS;
use serde::Serialize;

const HAS_NEXT: u8 = 0x20;
/// In the first byte of a length: it has 15 bits and not 7.
const IS_LONG: u8 = 0x80;
/// LCIDs up to this one carry data.
const MAX_DATA: u8 = 10;
const HEADROOM: u8 = 0x1a;
const C_RNTI: u8 = 0x1b;
const TRUNCATED: u8 = 0x1c;
const SHORT: u8 = 0x1d;
const LONG: u8 = 0x1e;
const PADDING: u8 = 0x1f;
/// Sub-headers that are read: more than a block has logical channels, elements and bytes of padding.
const MAX_SUB_HEADERS: usize = 32;

/// Logical channel groups.
pub const GROUPS: usize = 4;

/// A buffer status report: levels of the table 6.1.3.1-1, 0 … 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Report {
    /// Of all four groups.
    Long([u8; GROUPS]),
    /// Of the only group with data: group, level.
    Short(u8, u8),
    /// Of one group, where others have data as well: group, level.
    Truncated(u8, u8),
}

impl Report {
    /// Levels of all groups after this report; `before` are those of the report before.
    pub fn levels(self, before: [u8; GROUPS]) -> [u8; GROUPS] {
        let with = |mut levels: [u8; GROUPS], group: u8, level| {
            levels[usize::from(group) % GROUPS] = level;
            levels
        };
        match self {
            Report::Long(levels) => levels,
            Report::Short(group, level) => with([0; GROUPS], group, level),
            Report::Truncated(group, level) => with(before, group, level),
        }
    }
}

/// The most bytes that a level stands for; those of the last, open one are 150,000.
pub fn bytes_of(level: u8) -> u64 {
    LEVELS.get(usize::from(level)).or(LEVELS.last()).map_or(0, |edge| u64::from(*edge))
}

/// The report in a header; `None` where it has none, or where an unknown element stands in front of it.
pub fn report(header: &[u8]) -> Option<Report> {
    let (mut rest, mut elements, mut count) = (header, [0; MAX_SUB_HEADERS], 0);
    loop {
        let (first, behind) = rest.split_first()?;
        rest = behind;
        let lcid = first & 0x1f;
        *elements.get_mut(count)? = lcid;
        count += 1;
        if first & HAS_NEXT == 0 {
            break;
        }
        if lcid <= MAX_DATA {
            let bytes = if rest.first()? & IS_LONG == 0 { 1 } else { 2 };
            rest = rest.get(bytes..)?;
        }
    }
    for lcid in &elements[..count] {
        let skipped = match *lcid {
            0..=MAX_DATA | PADDING => 0,
            HEADROOM => 1,
            C_RNTI => 2,
            SHORT | TRUNCATED => {
                let byte = *rest.first()?;
                let kind = if *lcid == SHORT { Report::Short } else { Report::Truncated };
                return Some(kind(byte >> 6, byte & 63));
            }
            LONG => {
                let [a, b, c] = *rest.first_chunk::<3>()?;
                let bits = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
                return Some(Report::Long([18, 12, 6, 0].map(|shift| (bits >> shift) as u8 & 63)));
            }
            // Its length is unknown, and so is where the next element begins.
            _ => return None,
        };
        rest = rest.get(skipped..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_found_behind_data_headroom_and_padding() {
        // Long report, headroom, 33 bytes of data, padding; levels of four groups are 0 0 0 0; headroom 23.
        assert_eq!(
            report(&[0x3e, 0x3a, 0x21, 0x21, 0x1f, 0, 0, 0, 0x17]),
            Some(Report::Long([0; 4]))
        );
        // Headroom in front of a short report: group 2, level 9.
        assert_eq!(report(&[0x3a, 0x3d, 0x01, 0x17, 2 << 6 | 9]), Some(Report::Short(2, 9)));
        // A truncated one behind a C-RNTI; data of 300 bytes, whose length has two bytes.
        let header = [0x3b, 0x3c, 0x21, 0x81, 0x2c, 0x1f, 0xab, 0xcd, 3 << 6 | 63];
        assert_eq!(report(&header), Some(Report::Truncated(3, 63)));
        // Levels 1, 2, 3, 60 in 24 bits.
        let levels = [1 << 2, 2 << 4, 3 << 6 | 60];
        assert_eq!(report(&[&[0x1e], &levels[..]].concat()), Some(Report::Long([1, 2, 3, 60])));
    }

    #[test]
    fn a_header_without_a_report_or_that_is_cut_off_has_none() {
        for header in [&[][..], &[0x01], &[0x3a, 0x01, 0x17], &[0x3e, 0x1f, 0, 0], &[0x3d], &[0x21]]
        {
            assert_eq!(report(header), None, "{header:x?}");
        }
        // An element of unknown length in front.
        assert_eq!(report(&[0x39, 0x1d, 1, 2]), None);
        assert_eq!(report(&[0x3f; 80]), None);
    }

    #[test]
    fn levels_follow_from_the_kind_of_report() {
        let before = [5, 6, 7, 8];
        assert_eq!(Report::Long([1, 2, 3, 4]).levels(before), [1, 2, 3, 4]);
        assert_eq!(Report::Short(2, 9).levels(before), [0, 0, 9, 0]);
        assert_eq!(Report::Truncated(2, 9).levels(before), [5, 6, 9, 8]);
    }

    #[test]
    fn levels_are_bytes_of_the_table() {
        // MobileInsight's table has 12,403 and 24,687 here; the standard 12,043 and 26,487.
        assert_eq!(
            [0, 1, 46, 51, 62, 63, 255].map(bytes_of),
            [0, 10, 12_043, 26_487, 150_000, 150_000, 150_000]
        );
    }
}
