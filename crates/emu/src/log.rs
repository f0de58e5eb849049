//! The decision log of one direction: every arrival and every outcome.
//!
//! Each arrival and outcome of a [`crate::link_direction::LinkDirection`] is a record of
//! `LINK.decisions`: numbers as LEB128, times as differences.
//!
//! The format, version 1. A file begins with `UBDL`, version and index of the link (both u16,
//! little endian). Records:
//!
//! | tag | record | fields after the tag |
//! |---|---|---|
//! | 0 | a packet arrived | time, IP bytes, flow hash, host, class · 4 + ECN |
//! | 1 | it starts on the link | time, back, time to its arrival at the far end, marked (0 or 1) |
//! | 2 | it is gone | time, back, 0 no room, 1 the discipline's choice, 2 on the link |
//! | 3 | it left the operating system's queue | time, back |
//! | 4 | the kernel read a report of the modem | time, its age, bytes in the buffer, granted,
//!   padding |
//! | 5 | the far kernel did not take it | time, back, error number |
//! | 6 | the direction stopped | time |
//! | 7 | a probe of the gate came back | time, round trip |
//!
//! *time* is in ns since the record before, *back* how many packets arrived since this one. A data packet over a plain link
//! is about 20 bytes of log.

use algo::gate::Event;
use algo::port::{Loss, Outcome};
use algo::{Ecn, Packet};
use units::{Bytes, Duration, Instant};

/// First bytes of a file.
pub const MAGIC: [u8; 4] = *b"UBDL";
/// Version of the format.
pub const VERSION: u16 = 1;

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record {
    /// A packet arrived; it is the next in number. Its handle and time of entry are not in the log.
    Arrived(Packet),
    /// Packet `number` starts on the link.
    Started {
        /// Number of the packet.
        number: u64,
        /// When it arrives at the far end.
        arrives: Instant,
        /// It carries a mark now.
        marked: bool,
    },
    /// Packet `number` was dropped or lost.
    Gone(u64, Loss),
    /// It left the operating system's queue for the firmware.
    Passed(u64),
    /// The kernel read a report.
    Reported {
        /// When the modem wrote it.
        at: Instant,
        /// Occupancy, granted bytes, padding.
        reported: [u64; 3],
    },
    /// The far kernel refused it with this error number.
    Refused(u64, i32),
    /// The direction stopped at this time.
    Stopped,
    /// A probe of the gate came back after so long.
    Probed(Duration),
}

/// Writes the records of one direction.
pub struct Writer {
    bytes: Vec<u8>,
    last: Instant,
    arrivals: u64,
}

impl Writer {
    /// A log of the link with this index, with its file header.
    pub fn new(link: u16) -> Writer {
        let mut bytes = Vec::with_capacity(1 << 16);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(link.to_le_bytes());
        Writer { bytes, last: Instant::ZERO, arrivals: 0 }
    }

    /// Bytes written and not taken yet.
    pub fn pending(&self) -> usize {
        self.bytes.len()
    }

    /// Takes what was written, giving an empty buffer for it.
    pub fn swap(&mut self, empty: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.bytes, empty)
    }

    /// Adds a record; `now` never goes back.
    #[inline]
    pub fn put(&mut self, now: Instant, record: &Record) {
        let since = now.since(self.last).0;
        self.last = self.last.max(now);
        let arrivals = self.arrivals;
        let back = |number: u64| arrivals.wrapping_sub(number);
        match *record {
            Record::Arrived(packet) => {
                self.head(0, since);
                self.number(u64::from(packet.bytes));
                self.number(u64::from(packet.flow_hash));
                self.number(u64::from(packet.host));
                self.number(u64::from(packet.class) * 4 + packet.ecn as u64);
                self.arrivals += 1;
            }
            Record::Started { number, arrives, marked } => {
                self.head(1, since);
                self.number(back(number));
                self.number(arrives.since(now).0);
                self.bytes.push(u8::from(marked));
            }
            Record::Gone(number, loss) => {
                self.head(2, since);
                self.number(back(number));
                self.bytes.push(match loss {
                    Loss::Overflow => 0,
                    Loss::Aqm => 1,
                    Loss::Link => 2,
                });
            }
            Record::Passed(number) => {
                self.head(3, since);
                self.number(back(number));
            }
            Record::Reported { at, reported } => {
                self.head(4, since);
                self.number(now.since(at).0);
                reported.into_iter().for_each(|value| self.number(value));
            }
            Record::Refused(number, error) => {
                self.head(5, since);
                self.number(back(number));
                self.number(error.unsigned_abs().into());
            }
            Record::Stopped => self.head(6, since),
            Record::Probed(rtt) => {
                self.head(7, since);
                self.number(rtt.0);
            }
        }
    }

    fn head(&mut self, tag: u8, since: u64) {
        self.bytes.push(tag);
        self.number(since);
    }

    /// Writes a number as LEB128.
    #[inline]
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// The record of an outcome; `number` is its packet's.
pub fn record_of(outcome: &Outcome, number: impl FnOnce(u32) -> u64) -> Option<Record> {
    Some(match outcome {
        Outcome::Started(packet, arrives) => Record::Started {
            number: number(packet.handle),
            arrives: *arrives,
            marked: packet.ecn == Ecn::Marked,
        },
        Outcome::Gone(packet, loss) => Record::Gone(number(packet.handle), *loss),
        Outcome::LeftQueue(packet) => Record::Passed(number(packet.handle)),
        Outcome::Reported(Event::Report { at, occupancy, granted, padding }) => Record::Reported {
            at: *at,
            reported: [occupancy, granted, padding].map(|b: &Bytes| b.0),
        },
        Outcome::Reported(_) => return None,
    })
}

/// Why a log cannot be read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogError {
    /// Not the beginning of a log.
    #[error("not a decision log of version {VERSION}")]
    NotALog,
    /// It ends within a record.
    #[error("decision log ends within the record at byte {0}")]
    Cut(usize),
    /// There is no such record.
    #[error("decision log: no record has the tag {tag} at byte {at}")]
    Unknown {
        /// The unknown tag.
        tag: u8,
        /// Offset in the log.
        at: usize,
    },
}

/// Reads the records of one direction.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    last: Instant,
    arrivals: u64,
    /// Index of the link.
    pub link: u16,
}

impl<'a> Reader<'a> {
    /// Reads the file header.
    pub fn new(bytes: &'a [u8]) -> Result<Reader<'a>, LogError> {
        match bytes {
            [a, b, c, d, v0, v1, l0, l1, ..]
                if [*a, *b, *c, *d] == MAGIC && u16::from_le_bytes([*v0, *v1]) == VERSION =>
            {
                let link = u16::from_le_bytes([*l0, *l1]);
                Ok(Reader { bytes, at: 8, last: Instant::ZERO, arrivals: 0, link })
            }
            _ => Err(LogError::NotALog),
        }
    }

    /// The next record with its time; `None` at the end.
    #[allow(clippy::should_implement_trait)] // it may fail in between, which an iterator cannot say and go on
    pub fn next(&mut self) -> Result<Option<(Instant, Record)>, LogError> {
        let start = self.at;
        let Some(&tag) = self.bytes.get(start) else { return Ok(None) };
        self.at += 1;
        let cut = LogError::Cut(start);
        let now = Instant(self.last.0.saturating_add(self.number().ok_or(cut)?));
        let mut number = || self.number().ok_or(cut);
        let record = match tag {
            0 => {
                let bytes = number()? as u32;
                let flow_hash = number()? as u32;
                let host = number()? as u16;
                let mixed = number()?;
                self.arrivals += 1;
                Record::Arrived(Packet {
                    handle: 0,
                    bytes,
                    flow_hash,
                    host,
                    class: (mixed / 4) as u8,
                    ecn: [Ecn::NotCapable, Ecn::Capable1, Ecn::Capable0, Ecn::Marked]
                        [(mixed % 4) as usize],
                    enqueued: Instant::ZERO,
                })
            }
            1 => {
                let back = number()?;
                let after = number()?;
                let marked = number()? == 1;
                let arrives = Instant(now.0.saturating_add(after));
                Record::Started { number: self.arrivals.wrapping_sub(back), arrives, marked }
            }
            2 => {
                let back = number()?;
                let loss = match number()? {
                    0 => Loss::Overflow,
                    1 => Loss::Aqm,
                    _ => Loss::Link,
                };
                Record::Gone(self.arrivals.wrapping_sub(back), loss)
            }
            3 => {
                let back = number()?;
                Record::Passed(self.arrivals.wrapping_sub(back))
            }
            4 => {
                let age = number()?;
                let reported = [number()?, number()?, number()?];
                Record::Reported { at: Instant(now.0.saturating_sub(age)), reported }
            }
            5 => {
                let back = number()?;
                let error = number()? as i32;
                Record::Refused(self.arrivals.wrapping_sub(back), error)
            }
            6 => Record::Stopped,
            7 => Record::Probed(Duration(number()?)),
            tag => return Err(LogError::Unknown { tag, at: start }),
        };
        self.last = now;
        Ok(Some((now, record)))
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record(arrivals: u64) -> impl Strategy<Value = Record> {
        let number = 0..=arrivals;
        prop_oneof![
            (any::<u32>(), any::<u32>(), any::<u16>(), 0..8_u8).prop_map(
                |(bytes, flow_hash, host, class)| {
                    Record::Arrived(Packet { bytes, flow_hash, host, class, ..Packet::default() })
                }
            ),
            (number.clone(), 0..1_u64 << 40, any::<bool>()).prop_map(|(number, at, marked)| {
                Record::Started { number, arrives: Instant(1 << 41 | at), marked }
            }),
            number.clone().prop_map(|n| Record::Gone(n, Loss::Aqm)),
            number.clone().prop_map(Record::Passed),
            (0..1_u64 << 40, any::<[u64; 3]>())
                .prop_map(|(at, reported)| Record::Reported { at: Instant(at), reported }),
            (number, 0..200).prop_map(|(n, error)| Record::Refused(n, error)),
            Just(Record::Stopped),
            any::<u64>().prop_map(|ns| Record::Probed(Duration(ns))),
        ]
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let mut writer = Writer::new(0x0102);
        let arrived = Packet {
            bytes: 1_500,
            flow_hash: 5,
            host: 1,
            class: 2,
            ecn: Ecn::Capable0,
            ..Packet::default()
        };
        writer.put(Instant(300), &Record::Arrived(arrived));
        let started = Record::Started { number: 0, arrives: Instant(428), marked: true };
        writer.put(Instant(300), &started);
        writer.put(Instant(301), &Record::Gone(0, Loss::Link));
        writer.put(Instant(301), &Record::Refused(0, 105));
        writer.put(Instant(303), &Record::Stopped);
        let mut expected = b"UBDL\x01\x00\x02\x01".to_vec();
        // LEB128: 300 is ac 02, 1,500 is dc 0b, 128 is 80 01.
        expected.extend([0, 0xac, 0x02, 0xdc, 0x0b, 5, 1, 2 * 4 + 2]);
        expected.extend([1, 0, 1, 0x80, 0x01, 1]);
        expected.extend([2, 1, 1, 2]);
        expected.extend([5, 0, 1, 105]);
        expected.extend([6, 2]);
        assert_eq!(writer.pending(), expected.len());
        assert_eq!(writer.swap(Vec::new()), expected);
        assert_eq!(writer.pending(), 0);
    }

    #[test]
    fn what_is_no_log_is_refused_by_its_first_bytes() {
        for bytes in
            [&b""[..], b"UBDL\x01\x00\x00", b"UBDX\x01\x00\x00\x00", b"UBDL\x02\x00\x00\x00"]
        {
            assert_eq!(Reader::new(bytes).err(), Some(LogError::NotALog), "{bytes:?}");
        }
        let header = b"UBDL\x01\x00\x07\x00";
        assert_eq!(Reader::new(header).map(|r| r.link), Ok(7));
    }

    #[test]
    fn a_record_that_is_cut_or_unknown_is_named_by_its_offset() {
        let read = |tail: &[u8]| {
            let log = [&b"UBDL\x01\x00\x00\x00\x06\x05"[..], tail].concat();
            let mut reader = Reader::new(&log).unwrap();
            assert_eq!(reader.next(), Ok(Some((Instant(5), Record::Stopped))));
            reader.next()
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[3, 0]), Err(LogError::Cut(10)));
        assert_eq!(read(&[3, 0x80]), Err(LogError::Cut(10)));
        assert_eq!(read(&[8, 0]), Err(LogError::Unknown { tag: 8, at: 10 }));
        // A number of more than ten bytes fits no 64 bits.
        assert_eq!(read(&[[6].as_slice(), &[0xff; 11]].concat()), Err(LogError::Cut(10)));
    }

    proptest! {
        /// Numbers of packets are written as distances: they come back whatever arrived between.
        #[test]
        fn records_between_arrivals_name_the_same_packets(records in prop::collection::vec(any_record(40), 1..80)) {
            let mut writer = Writer::new(0);
            for record in &records {
                writer.put(Instant(1 << 40), record);
            }
            let bytes = writer.swap(Vec::new());
            let mut reader = Reader::new(&bytes).unwrap();
            for record in &records {
                prop_assert_eq!(reader.next(), Ok(Some((Instant(1 << 40), *record))));
            }
        }

        #[test]
        fn every_record_is_read_as_it_was_written(records in prop::collection::vec(any_record(0), 0..50)) {
            let mut writer = Writer::new(3);
            let mut now = Instant(1 << 40);
            for record in &records {
                now = Instant(now.0 + 1_000);
                writer.put(now, record);
            }
            let bytes = writer.swap(Vec::new());
            let mut reader = Reader::new(&bytes).unwrap();
            prop_assert_eq!(reader.link, 3);
            let mut at = Instant(1 << 40);
            for record in &records {
                at = Instant(at.0 + 1_000);
                prop_assert_eq!(reader.next(), Ok(Some((at, *record))));
            }
            prop_assert_eq!(reader.next(), Ok(None));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut whole = MAGIC.to_vec();
            whole.extend([1, 0, 0, 0]);
            whole.extend(bytes);
            let mut reader = Reader::new(&whole).unwrap();
            while let Ok(Some(_)) = reader.next() {}
        }
    }
}
