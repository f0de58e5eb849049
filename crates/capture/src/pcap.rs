//! The pcap format: a file header of 24 bytes, then records.
//!
//! Source: draft-ietf-opsawg-pcap; versions below 2.4 and the modified (Kuznetzov) records as libpcap reads
//! them. Some patched systems (Red Hat 6.1, SuSE 6.3) wrote longer record headers than their magic number
//! says. As in Wireshark, the first two records decide.

use std::io::Read;

use crate::buffer::Buffer;
use crate::error::{OpenError, ReadError};
use crate::frame::{Interface, Record, max_record};
use crate::order::Order;

/// Bytes of the file header.
pub(crate) const FILE_HEADER: usize = 24;
/// Bytes of a record header; the modified one adds interface index, protocol and packet type, an early form of it
/// two CPU numbers.
const RECORD_HEADER: usize = 16;
const MODIFIED_RECORD_HEADER: usize = 24;
const EARLY_RECORD_HEADER: usize = 28;
/// Maximum seconds between the first two records when their header length is in doubt: a day.
const MAX_RECORD_GAP: u32 = 86_400;

/// Order of the two length fields of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    /// Until version 2.2: the original length came first.
    OriginalFirst,
    /// Version 2.3: both were written; the smaller one is the captured length.
    Either,
}

pub(crate) struct Pcap {
    order: Order,
    /// Nanoseconds per unit of the fraction.
    unit: u64,
    record_header: usize,
    lengths: Lengths,
    linktype: u16,
    max_record: u32,
}

impl Pcap {
    /// `Err(None)` when this is no pcap file at all.
    pub(crate) fn open(
        head: &[u8],
        interfaces: &mut Vec<Interface>,
    ) -> Result<Pcap, Option<OpenError>> {
        let Some(magic) = head.first_chunk::<4>() else { return Err(None) };
        let (order, unit, record_header) = match u32::from_be_bytes(*magic) {
            0xa1b2_c3d4 => (Order::Big, 1_000, RECORD_HEADER),
            0xd4c3_b2a1 => (Order::Little, 1_000, RECORD_HEADER),
            0xa1b2_3c4d => (Order::Big, 1, RECORD_HEADER),
            0x4d3c_b2a1 => (Order::Little, 1, RECORD_HEADER),
            0xa1b2_cd34 => (Order::Big, 1_000, MODIFIED_RECORD_HEADER),
            0x34cd_b2a1 => (Order::Little, 1_000, MODIFIED_RECORD_HEADER),
            _ => return Err(None),
        };
        if head.len() < FILE_HEADER {
            let needed = FILE_HEADER as u64;
            return Err(Some(OpenError::Truncated { needed, got: head.len() as u64 }));
        }
        let (major, minor) = (order.u16(head, 4), order.u16(head, 6));
        let lengths = match (major, minor) {
            (2, 0..=2) => Lengths::OriginalFirst,
            (2, 3) => Lengths::Either,
            (2, _) => Lengths::CapturedFirst,
            // libpcap knows files of this version with the lengths of 2.2.
            (543, 0) => Lengths::OriginalFirst,
            _ => return Err(Some(OpenError::Version { major, minor })),
        };
        let snaplen = order.u32(head, 16);
        // The upper half describes frame check sequences, which the IP length leaves out anyway.
        let linktype = (order.u32(head, 20) & 0xffff) as u16;
        interfaces.push(Interface {
            name: String::new(),
            linktype,
            snaplen,
            reported_drops: None,
            ended: None,
        });
        let mut pcap =
            Pcap { order, unit, record_header, lengths, linktype, max_record: max_record(snaplen) };
        pcap.select_record_header(head);
        Ok(pcap)
    }

    /// Selects the longer record header of a patched system where only that one leads to a second record.
    fn select_record_header(&mut self, head: &[u8]) {
        let longer = match self.record_header {
            RECORD_HEADER => MODIFIED_RECORD_HEADER,
            _ => EARLY_RECORD_HEADER,
        };
        if self.lengths == Lengths::CapturedFirst
            && self.leads_on(head, self.record_header) == Some(false)
            && self.leads_on(head, longer) == Some(true)
        {
            self.record_header = longer;
        }
    }

    /// Whether something that looks like a record follows the first one; `None` where `head` does not reach.
    fn leads_on(&self, head: &[u8], record_header: usize) -> Option<bool> {
        let first = head.get(FILE_HEADER..FILE_HEADER + RECORD_HEADER)?;
        let captured = self.order.u32(first, 8);
        if captured > self.max_record {
            return Some(false);
        }
        let at = FILE_HEADER + record_header + captured as usize;
        let second = head.get(at..at + RECORD_HEADER)?;
        let plausible = self.order.u32(second, 0).abs_diff(self.order.u32(first, 0))
            <= MAX_RECORD_GAP
            && u64::from(self.order.u32(second, 4)) * self.unit < 1_000_000_000
            && self.order.u32(second, 8) <= self.max_record.min(self.order.u32(second, 12));
        Some(plausible)
    }

    #[inline(always)]
    pub(crate) fn next<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
    ) -> Result<Option<Record>, ReadError> {
        if !buffer.has(self.record_header) {
            return match buffer.at_end(self.record_header) {
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        let Some(head) = buffer.ready().first_chunk::<RECORD_HEADER>() else { return Ok(None) };
        let seconds = self.order.u32(head, 0);
        let fraction = self.order.u32(head, 4);
        let (mut captured, mut original) = (self.order.u32(head, 8), self.order.u32(head, 12));
        let swap = match self.lengths {
            Lengths::CapturedFirst => false,
            Lengths::OriginalFirst => true,
            Lengths::Either => captured > original,
        };
        if swap {
            std::mem::swap(&mut captured, &mut original);
        }
        if captured > self.max_record {
            let why = "captured length exceeds the maximum";
            return Err(ReadError::Corrupt { offset: buffer.offset(), why });
        }
        let len = captured as usize;
        let record = self.record_header + len;
        if !buffer.has(record) {
            return match buffer.at_end(record) {
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        let from = buffer.start + self.record_header;
        buffer.consume(record);
        let time = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit;
        let wire_len = original.max(captured);
        Ok(Some(Record { time, interface: 0, linktype: self.linktype, wire_len, from, len }))
    }
}
