//! Layouts of records: one row per record and version. What has no row is unknown, and is not read.
//!
//! Sources: records of modems in MobileInsight's example logs and in the tests of SCAT, and the two decoders' lists of
//! fields. Facts only: nothing here is their text. The levels in 0xB873 are described nowhere, so they are not read.

use serde::Serialize;

/// How sure a layout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Records of modems were read with it, to their last byte.
    Seen,
    /// Another decoder describes it; there was no record to check it with. The gate does not use it.
    Described,
}

/// What a record consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// LTE: bytes in the buffer of each logical channel, a sample per TTI.
    Buffer {
        /// A sample begins with a number of the subscription.
        has_subscription: bool,
        /// Bytes before and after header compression are two fields.
        has_compressed: bool,
    },
    /// LTE: transport blocks as the MAC builds them.
    Blocks {
        /// A block begins with numbers of subscription and cell.
        has_cell: bool,
    },
    /// LTE: transmissions on the PUSCH.
    Pusch {
        /// Bytes of one transmission.
        length: usize,
        /// Where the size of its block is, u16.
        size: usize,
        /// Where the number of retransmissions is: the byte of a u32, the bit in it, how many bits.
        retransmission: (usize, u32, u32),
    },
    /// NR: transport blocks as layer 2 builds them.
    NrBlocks,
    /// NR: buffer status reports.
    NrReports,
    /// NR: totals of transport blocks.
    NrTotals {
        /// Bytes of the totals of one carrier.
        length: usize,
        /// Where the number of new blocks is, u32; that of retransmitted ones follows.
        blocks: usize,
    },
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The record.
    pub code: u16,
    /// The version of its sub-packet (0xB064, 0xB066), its major and minor version in 16 bits each (0xB881), or else
    /// its own.
    pub version: u32,
    /// What it consists of.
    pub fields: Fields,
    /// How sure that is.
    pub basis: Basis,
}

/// LTE MAC, transport blocks of the uplink.
pub const BLOCKS: u16 = 0xb064;
/// LTE MAC, buffer status of the uplink.
pub const BUFFER: u16 = 0xb066;
/// LTE physical layer, report of transmissions on the PUSCH.
pub const PUSCH: u16 = 0xb139;
/// NR layer 2, transport blocks of the uplink.
pub const NR_BLOCKS: u16 = 0xb872;
/// NR layer 2, buffer status reports of the uplink.
pub const NR_REPORTS: u16 = 0xb873;
/// NR MAC, totals of transport blocks of the uplink.
pub const NR_TOTALS: u16 = 0xb881;

/// All records that are read, and their names. A modem is asked for these and no others.
pub const CODES: [(u16, &str); 6] = [
    (BLOCKS, "LTE MAC UL transport blocks"),
    (BUFFER, "LTE MAC UL buffer status"),
    (PUSCH, "LTE PUSCH transmissions"),
    (NR_BLOCKS, "NR L2 UL transport blocks"),
    (NR_REPORTS, "NR L2 UL buffer reports"),
    (NR_TOTALS, "NR MAC UL block totals"),
];

const fn blocks(version: u32, has_cell: bool, basis: Basis) -> Layout {
    Layout { code: BLOCKS, version, fields: Fields::Blocks { has_cell }, basis }
}

const fn buffer(
    version: u32,
    has_subscription: bool,
    has_compressed: bool,
    basis: Basis,
) -> Layout {
    let fields = Fields::Buffer { has_subscription, has_compressed };
    Layout { code: BUFFER, version, fields, basis }
}

const fn pusch(version: u32, length: usize, basis: Basis) -> Layout {
    let fields = Fields::Pusch { length, size: 8, retransmission: (0, 23, 5) };
    Layout { code: PUSCH, version, fields, basis }
}

/// All layouts.
pub const LAYOUTS: [Layout; 18] = [
    blocks(1, false, Basis::Seen),
    blocks(2, true, Basis::Seen),
    blocks(3, true, Basis::Seen),
    blocks(5, true, Basis::Seen),
    blocks(8, true, Basis::Described),
    buffer(3, false, false, Basis::Seen),
    buffer(5, false, true, Basis::Described),
    buffer(24, true, true, Basis::Seen),
    Layout {
        code: PUSCH,
        version: 43,
        fields: Fields::Pusch { length: 64, size: 12, retransmission: (20, 26, 3) },
        basis: Basis::Seen,
    },
    pusch(102, 68, Basis::Seen),
    pusch(122, 68, Basis::Described),
    pusch(124, 84, Basis::Described),
    pusch(144, 92, Basis::Described),
    pusch(145, 92, Basis::Described),
    Layout { code: NR_BLOCKS, version: 4, fields: Fields::NrBlocks, basis: Basis::Described },
    Layout { code: NR_REPORTS, version: 2, fields: Fields::NrReports, basis: Basis::Described },
    Layout {
        code: NR_TOTALS,
        version: 2 << 16,
        fields: Fields::NrTotals { length: 92, blocks: 44 },
        basis: Basis::Described,
    },
    Layout {
        code: NR_TOTALS,
        version: 2 << 16 | 1,
        fields: Fields::NrTotals { length: 96, blocks: 48 },
        basis: Basis::Described,
    },
];

/// The layout of a version.
pub fn layout(code: u16, version: u32) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|row| (row.code, row.version) == (code, version))
}

/// The name of a record that is read.
pub fn name(code: u16) -> Option<&'static str> {
    CODES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_alone_and_has_a_name_and_every_name_a_row() {
        for (at, row) in LAYOUTS.iter().enumerate() {
            assert_eq!(layout(row.code, row.version), Some(&LAYOUTS[at]));
            assert!(name(row.code).is_some(), "{row:?}");
        }
        for (code, name) in CODES {
            assert!(LAYOUTS.iter().any(|row| row.code == code), "{name}");
        }
        assert_eq!(layout(BUFFER, 4), None);
    }
}
