//! Records, written from field values: for tests, and for a modem that is played.

use crate::contents::{Block, Sample};
use crate::layout::{self, Fields};
use crate::mac::Report;
use crate::message::FILE_HEADER;
use crate::time::{ModemTime, Tti};

/// A message 0x10 with a record.
pub fn message(code: u16, at: ModemTime, payload: &[u8]) -> Vec<u8> {
    let record = file_record(code, at, payload);
    // The two lengths are alike; the second covers itself.
    [&[0x10, 0], &record[..2], &record].concat()
}

/// A record of a file of records.
pub fn file_record(code: u16, at: ModemTime, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(FILE_HEADER + payload.len()).unwrap_or(u16::MAX);
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(code.to_le_bytes());
    bytes.extend(at.0.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// 0xB066 of a version, with at most 255 samples of at most 255 channels.
pub fn buffer(version: u8, samples: &[Sample]) -> Vec<u8> {
    let row = layout::layout(layout::BUFFER, version.into()).map(|row| row.fields);
    let Some(Fields::Buffer { has_subscription, has_compressed }) = row else { return Vec::new() };
    let mut bytes = Vec::new();
    for sample in samples {
        bytes.extend(has_subscription.then_some(0_u8));
        bytes.extend(packed(sample.tti).to_le_bytes());
        bytes.push(sample.channels.len() as u8);
        for channel in &sample.channels {
            bytes.extend([channel.lcid, channel.priority]);
            bytes.extend(channel.uncompressed.to_le_bytes());
            if has_compressed {
                bytes.extend(channel.compressed.to_le_bytes());
            }
            bytes.extend(channel.retransmitted.to_le_bytes());
            bytes.extend(channel.control.to_le_bytes());
        }
    }
    packet(10, version, samples.len(), &bytes)
}

/// 0xB064 of a version. A report stands alone in the header of its block.
pub fn blocks(version: u8, blocks: &[Block]) -> Vec<u8> {
    let row = layout::layout(layout::BLOCKS, version.into()).map(|row| row.fields);
    let Some(Fields::Blocks { has_cell }) = row else { return Vec::new() };
    let mut bytes = Vec::new();
    for block in blocks {
        let header = match block.report {
            None => vec![0x03],
            Some(Report::Short(group, level)) => vec![0x3d, 0x03, group << 6 | level],
            Some(Report::Truncated(group, level)) => vec![0x3c, 0x03, group << 6 | level],
            Some(Report::Long(levels)) => {
                let bits = levels.iter().fold(0_u32, |bits, level| bits << 6 | u32::from(*level));
                [&[0x3e, 0x03], &bits.to_be_bytes()[1..]].concat()
            }
        };
        if has_cell {
            bytes.extend([1, 0]);
        }
        bytes.extend([0, 0]);
        bytes.extend(packed(block.tti).to_le_bytes());
        bytes.extend(block.granted.to_le_bytes());
        bytes.push(1);
        bytes.extend(block.padding.to_le_bytes());
        bytes.extend([0, 0, header.len() as u8]);
        bytes.extend(header);
    }
    packet(8, version, blocks.len(), &bytes)
}

/// 0xB139 of version 102, with at most 31 transmissions: bytes, times that they were sent before.
pub fn pusch(sent: &[(u16, u8)]) -> Vec<u8> {
    let count = (sent.len() as u16) << 9;
    let mut bytes = vec![102];
    bytes.extend(count.to_le_bytes());
    // No report has a TTI of 0xffff.
    bytes.extend([0, 0xff, 0xff, 0, 0]);
    for (size, before) in sent {
        bytes.extend((u32::from(*before) << 23 | 0xffff).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(size.to_le_bytes());
        bytes.extend([0; 58]);
    }
    bytes
}

/// A record of one sub-packet, filled up to four bytes.
fn packet(id: u8, version: u8, samples: usize, fields: &[u8]) -> Vec<u8> {
    let size = (5 + fields.len()).next_multiple_of(4);
    let mut bytes = vec![1, 1, 0, 0, id, version];
    bytes.extend(u16::try_from(size).unwrap_or(u16::MAX).to_le_bytes());
    bytes.push(samples as u8);
    bytes.extend(fields);
    bytes.resize(4 + size, 0);
    bytes
}

fn packed(tti: Option<Tti>) -> u16 {
    tti.map_or(0xffff, |tti| tti.sfn << 4 | u16::from(tti.subframe))
}
