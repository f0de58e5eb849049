//! Contents of records, by the rows of [`crate::layout::LAYOUTS`].
//!
//! No length field is trusted: reading ends at the end of the payload, and a record counts only if its fields end
//! where it ends. Sub-packets are filled up to four bytes. A layout that is wrong for a record shows there.

use serde::Serialize;

use crate::bytes::{byte, long, short, word};
use crate::layout::{self, Basis, Fields, Layout};
use crate::mac::{self, Report};
use crate::message::Record;
use crate::time::Tti;

/// Bytes that may fill up a sub-packet.
const MAX_FILL: usize = 3;
/// Bytes of an unknown layout that a message shows.
const PREFIX: usize = 16;
/// Header of a record that consists of sub-packets; its version.
const PACKET: (usize, u8) = (4, 1);
/// Header of a sub-packet, with the number of samples.
const SUB_HEADER: usize = 5;

/// A record or a sub-packet of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// As in [`Layout::version`].
    pub version: u32,
    /// What it contains.
    pub contents: Result<(Contents, Basis), Unread>,
}

/// Why a part was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// Its version has no row.
    #[error("unknown layout, begins with {0}")]
    Unknown(String),
    /// Its fields do not end where the part ends.
    #[error("a record of {0} bytes that does not fit its layout")]
    Misfit(usize),
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Contents {
    /// Samples of the buffer, the newest last.
    Buffer {
        /// One per TTI.
        samples: Vec<Sample>,
    },
    /// Transport blocks, the newest last.
    Blocks {
        /// In the order of their TTIs.
        blocks: Vec<Block>,
    },
    /// Transmissions, the newest last.
    Pusch {
        /// When the report was made.
        #[serde(skip_serializing_if = "Option::is_none")]
        reported: Option<Tti>,
        /// In the order of their TTIs.
        transmissions: Vec<Transmission>,
    },
    /// Transport blocks of NR.
    NrBlocks {
        /// In the order of their slots.
        nr_blocks: Vec<NrBlock>,
    },
    /// Buffer status reports of NR, without their levels.
    NrReports {
        /// In the order of their slots.
        nr_reports: Vec<NrReport>,
    },
    /// Totals of NR since the modem began to count.
    NrTotals {
        /// One per carrier.
        nr_totals: Vec<NrTotals>,
    },
}

/// The buffer in one TTI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Unknown in most samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tti: Option<Tti>,
    /// Logical channels that exist.
    pub channels: Vec<Channel>,
}

/// Bytes that wait in a logical channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// Its number.
    pub lcid: u8,
    /// 1 is the highest.
    pub priority: u8,
    /// New data whose headers are not compressed yet.
    pub uncompressed: u32,
    /// New data, ready to be sent.
    pub compressed: u32,
    /// Data that RLC sends again.
    pub retransmitted: u32,
    /// Control data of RLC.
    pub control: u16,
}

/// A transport block of LTE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// When it was built.
    pub tti: Option<Tti>,
    /// Bytes that the base station granted.
    pub granted: u16,
    /// Bytes of them that were filled with padding.
    pub padding: u16,
    /// The buffer status report that it carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// A transmission on the PUSCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Transmission {
    /// When it was sent.
    pub tti: Option<Tti>,
    /// Size of its transport block.
    pub bytes: u16,
    /// Times that the block was sent before.
    pub retransmission: u8,
}

/// A transport block of NR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NrBlock {
    /// System frame number.
    pub sfn: u16,
    /// Slot within it.
    pub slot: u8,
    /// Bytes that the base station granted.
    pub granted: u32,
    /// Bytes of them that carry something.
    pub built: u32,
    /// Of a short buffer status report: the logical channel group and its level, 0 … 31.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_report: Option<(u8, u8)>,
}

/// A buffer status report of NR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NrReport {
    /// System frame number.
    pub sfn: u16,
    /// Slot within it.
    pub slot: u8,
    /// Why it was sent: bit 0 a timer, bit 2 new data.
    pub reason: u8,
    /// The logical channel groups that it reports, a bit for each.
    pub groups: u8,
}

/// Totals of one carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NrTotals {
    /// Bytes of blocks that were sent for the first time.
    pub new_bytes: u64,
    /// Bytes of blocks that were sent again.
    pub retransmitted_bytes: u64,
    /// Blocks that were sent for the first time.
    pub new_blocks: u32,
    /// Blocks that were sent again.
    pub retransmitted_blocks: u32,
}

impl Sample {
    /// All bytes that wait. In records of modems one of the two kinds of new data is 0 while the other is not, so
    /// that they are different data and add up.
    pub fn occupancy(&self) -> u64 {
        let of = |channel: &Channel| {
            let new = u64::from(channel.uncompressed) + u64::from(channel.compressed);
            new + u64::from(channel.retransmitted) + u64::from(channel.control)
        };
        self.channels.iter().map(of).sum()
    }
}

/// The parts of a record; none if its code is not one of [`layout::CODES`].
pub fn parts(record: &Record) -> Vec<Part> {
    let payload = record.payload;
    match record.code {
        layout::BLOCKS | layout::BUFFER => sub_packets(record.code, payload),
        layout::PUSCH => vec![part(record.code, byte(payload, 0).map(u32::from), payload)],
        // Of the totals the minor version is first, so that the word has the major one in its upper half.
        layout::NR_BLOCKS | layout::NR_REPORTS | layout::NR_TOTALS => {
            vec![part(record.code, word(payload, 0), payload)]
        }
        _ => Vec::new(),
    }
}

fn sub_packets(code: u16, payload: &[u8]) -> Vec<Part> {
    let (mut begin, version) = PACKET;
    let mut found = Vec::new();
    if byte(payload, 0) != Some(version) {
        let version = byte(payload, 0).unwrap_or_default().into();
        return vec![Part { version, contents: Err(unknown(payload)) }];
    }
    for _ in 0..byte(payload, 1).unwrap_or_default() {
        let rest = payload.get(begin..).unwrap_or_default();
        let (Some(version), Some(size)) = (byte(rest, 1), short(rest, 2).map(usize::from)) else {
            found.push(Part { version: 0, contents: Err(Unread::Misfit(payload.len())) });
            break;
        };
        // A size of 0 would never end; one beyond the record is no size.
        if size < SUB_HEADER || size > rest.len() {
            let contents = Err(Unread::Misfit(payload.len()));
            found.push(Part { version: version.into(), contents });
            break;
        }
        found.push(part(code, Some(version.into()), &rest[..size]));
        begin += size;
    }
    found
}

fn part(code: u16, version: Option<u32>, bytes: &[u8]) -> Part {
    let Some(version) = version else {
        return Part { version: 0, contents: Err(Unread::Misfit(bytes.len())) };
    };
    let contents = match layout::layout(code, version) {
        None => Err(unknown(bytes)),
        Some(row) => read(row, bytes)
            .map(|contents| (contents, row.basis))
            .ok_or(Unread::Misfit(bytes.len())),
    };
    Part { version, contents }
}

fn unknown(bytes: &[u8]) -> Unread {
    let prefix = &bytes[..bytes.len().min(PREFIX)];
    Unread::Unknown(prefix.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn read(row: &Layout, bytes: &[u8]) -> Option<Contents> {
    let mut at = Cursor { bytes, at: 0 };
    let contents = match row.fields {
        Fields::Buffer { has_subscription, has_compressed } => {
            let samples =
                (0..at.samples()?).map(|_| sample(&mut at, has_subscription, has_compressed));
            Contents::Buffer { samples: samples.collect::<Option<_>>()? }
        }
        Fields::Blocks { has_cell } => {
            let blocks = (0..at.samples()?).map(|_| block(&mut at, has_cell));
            Contents::Blocks { blocks: blocks.collect::<Option<_>>()? }
        }
        Fields::Pusch { length, size, retransmission } => {
            let header = at.take(8)?;
            // Nine bits of the cell's number are below the number of transmissions.
            let count = short(header, 1)? >> 9 & 31;
            let all = (0..count).map(|_| transmission(at.take(length)?, size, retransmission));
            let transmissions = all.collect::<Option<_>>()?;
            Contents::Pusch { reported: Tti::counted(short(header, 4)?), transmissions }
        }
        Fields::NrBlocks => Contents::NrBlocks { nr_blocks: nr_blocks(&mut at)? },
        Fields::NrReports => {
            let count = word(at.take(8)?, 4)? & 15;
            let nr_reports = (0..count).map(|_| nr_report(&mut at));
            Contents::NrReports { nr_reports: nr_reports.collect::<Option<_>>()? }
        }
        Fields::NrTotals { length, blocks } => {
            let count = byte(at.take(20)?, 15)?;
            let nr_totals = (0..count).map(|_| totals(at.take(length)?, blocks));
            Contents::NrTotals { nr_totals: nr_totals.collect::<Option<_>>()? }
        }
    };
    (bytes.len() - at.at <= MAX_FILL).then_some(contents)
}

fn sample(at: &mut Cursor, has_subscription: bool, has_compressed: bool) -> Option<Sample> {
    if has_subscription {
        at.take(1)?;
    }
    let header = at.take(3)?;
    let channels = (0..header[2]).map(|_| {
        let fields = at.take(if has_compressed { 16 } else { 12 })?;
        // Without the field for compressed data all new data is in the first.
        let behind = if has_compressed { 10 } else { 6 };
        Some(Channel {
            lcid: fields[0],
            priority: fields[1],
            uncompressed: word(fields, 2)?,
            compressed: if has_compressed { word(fields, 6)? } else { 0 },
            retransmitted: word(fields, behind)?,
            control: short(fields, behind + 4)?,
        })
    });
    let channels = channels.collect::<Option<_>>()?;
    Some(Sample { tti: Tti::packed(short(header, 0)?), channels })
}

fn block(at: &mut Cursor, has_cell: bool) -> Option<Block> {
    if has_cell {
        at.take(2)?;
    }
    let fields = at.take(12)?;
    // Process and RNTI, TTI, grant, RLC's units, padding, two codes of the report, length of the header.
    let header = at.take(fields[11].into())?;
    Some(Block {
        tti: Tti::packed(short(fields, 2)?),
        granted: short(fields, 4)?,
        padding: short(fields, 7)?,
        report: mac::report(header),
    })
}

fn transmission(fields: &[u8], size: usize, field: (usize, u32, u32)) -> Option<Transmission> {
    let (place, bit, bits) = field;
    let retransmission = word(fields, place)? >> bit & ((1 << bits) - 1);
    let tti = Tti::counted(short(fields, 0)?);
    Some(Transmission { tti, bytes: short(fields, size)?, retransmission: retransmission as u8 })
}

fn nr_blocks(at: &mut Cursor) -> Option<Vec<NrBlock>> {
    let mut found = Vec::new();
    for _ in 0..byte(at.take(8)?, 4)? & 15 {
        let slot = at.take(8)?;
        for _ in 0..slot[4] & 15 {
            let fields = at.take(20)?;
            let elements = at.take((fields[16] & 63).into())?;
            found.push(NrBlock {
                sfn: short(slot, 2)? & 0x3ff,
                slot: slot[0],
                granted: word(fields, 4)?,
                built: word(fields, 8)?,
                short_report: nr_short_report(elements),
            });
        }
    }
    Some(found)
}

/// In the control elements of a block, each behind its LCID (3GPP TS 38.321 table 6.2.1-2): 61 is a short report,
/// 57 a power headroom of two bytes. Behind another one nothing is read.
fn nr_short_report(elements: &[u8]) -> Option<(u8, u8)> {
    let mut rest = elements;
    loop {
        match *rest {
            [lcid, report, ..] if lcid & 63 == 61 => return Some((report >> 5, report & 31)),
            [lcid, _, _, ref behind @ ..] if lcid & 63 == 57 => rest = behind,
            _ => return None,
        }
    }
}

fn nr_report(at: &mut Cursor) -> Option<NrReport> {
    let fields = at.take(12)?;
    let bits = word(fields, 5)?;
    let groups = (bits >> 10) as u8;
    at.take((bits >> 18 & 15) as usize)?;
    // What follows is not described, but its length: of two groups it is twice that of one.
    at.take(if groups.count_ones() == 2 { 8 } else { 4 })?;
    let sfn = short(fields, 2)? & 0x3ff;
    Some(NrReport { sfn, slot: fields[0], reason: bits as u8 & 7, groups })
}

fn totals(fields: &[u8], blocks: usize) -> Option<NrTotals> {
    Some(NrTotals {
        new_bytes: long(fields, 0)?,
        retransmitted_bytes: long(fields, 8)?,
        new_blocks: word(fields, blocks)?,
        retransmitted_blocks: word(fields, blocks + 4)?,
    })
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    /// Skips the header of a sub-packet: how many samples it has.
    fn samples(&mut self) -> Option<u8> {
        self.take(SUB_HEADER).map(|header| header[SUB_HEADER - 1])
    }
}
