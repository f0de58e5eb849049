//! A whole log in the order of the modem's clock: bytes in the buffer, blocks that left it, and what was not read.
//!
//! signal: times of records, and the TTIs of their entries · model: a record is written when its newest sample of the
//! buffer is taken; TTIs are 1 ms apart and their numbers begin again after 10.24 s · action: each entry gets the time of
//! its own TTI, not that of its record, which may be 40 ms later.
//!
//! Where a log has records of several radios, those of the radio with the most records count.

use std::collections::BTreeMap;

use crate::contents::{Contents, parts};
use crate::layout::Basis;
use crate::message::Record;
use crate::stream::{Event, Format, Stream};
use crate::time::Tti;

/// One TTI, and all of them until their numbers begin again.
const TTI_NS: i64 = 1_000_000;
const CYCLE_NS: i64 = 10_240 * TTI_NS;
/// A block older than this when its record was written: its TTI belongs to another cell. Modems hand over records of at
/// most 100 ms.
const MAX_AGE_NS: i64 = 200_000_000;
/// What the clocks of record and TTI may differ by, so that a block seems to be younger than its record: 2 ms were
/// measured, in a public log.
const TOLERANCE_NS: i64 = 2_000_000;

/// Times beyond it, the year 2053, are damage; sums and differences of smaller ones are numbers, too.
const LATEST_NS: i64 = 1 << 61;

/// Bytes in the buffer in one TTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Time of the modem, ns.
    pub at_ns: i64,
    /// Bytes that wait in all logical channels.
    pub bytes: u64,
}

/// Bytes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// When, ns.
    pub at_ns: i64,
    /// How many.
    pub bytes: u64,
}

/// What a block is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Built by the MAC: 0xB064, or 0xB872 in NR.
    Mac,
    /// Sent by the physical layer: 0xB139.
    Phy,
}

/// A block that carried bytes out of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Time of the modem, ns.
    pub at_ns: i64,
    /// Which record has it.
    pub layer: Layer,
    /// Its size.
    pub granted: u64,
    /// Bytes of it that are padding; the physical layer does not know.
    pub padding: Option<u64>,
    /// Times that it was sent before.
    pub retransmission: u8,
}

/// A record, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// When the modem closed it, ns of its clock.
    pub at_ns: i64,
    /// Which record.
    pub code: u16,
    /// Which layout.
    pub version: u32,
    /// Samples or blocks in it.
    pub entries: u32,
    /// Another decoder describes its layout; none was there to check it with.
    pub is_described: bool,
    /// Why it was not read.
    pub unread: Option<String>,
}

/// Why a file is no log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLog {
    /// It has no byte.
    #[error("empty")]
    Empty,
    /// It has neither frames nor records.
    #[error("neither frames of DIAG nor records of a .dlf file")]
    Neither,
}

/// A log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Samples of the buffer, by time.
    pub buffer: Vec<Occupancy>,
    /// Blocks, by time.
    pub grants: Vec<Grant>,
    /// Records in the order of the log, those of all radios.
    pub batches: Vec<Batch>,
    /// Frames that were damaged, or 1 where a file of records breaks off.
    pub damaged: u64,
}

impl Timeline {
    /// The layer whose blocks say what left the buffer: the MAC's where there are any, since they have the padding.
    pub fn layer(&self) -> Layer {
        let has_mac = self.grants.iter().any(|grant| grant.layer == Layer::Mac);
        if has_mac { Layer::Mac } else { Layer::Phy }
    }

    /// Bytes that left the buffer: grants less padding, without what was sent again.
    pub fn left(&self) -> Vec<Moved> {
        let layer = self.layer();
        let new = self.grants.iter().filter(|g| g.layer == layer && g.retransmission == 0);
        new.map(|grant| Moved {
            at_ns: grant.at_ns,
            bytes: grant.granted.saturating_sub(grant.padding.unwrap_or(0)),
        })
        .collect()
    }
}

/// Reads a whole log.
pub fn timeline(bytes: &[u8]) -> Result<Timeline, NoLog> {
    if bytes.is_empty() {
        return Err(NoLog::Empty);
    }
    let mut stream = Stream::new(Format::of(bytes).ok_or(NoLog::Neither)?);
    let mut reading = Reading::default();
    stream.push(bytes, &mut |event| match event {
        Event::Record(record) => reading.add(&record),
        Event::Damage(_) => reading.damaged += 1,
        Event::Other(_) => {}
    });
    reading.damaged += u64::from(stream.pending() > 0);
    Ok(reading.finish())
}

#[derive(Default)]
struct Reading {
    radios: BTreeMap<Option<u32>, Radio>,
    batches: Vec<Batch>,
    damaged: u64,
}

/// What one radio logged.
#[derive(Default)]
struct Radio {
    records: u64,
    buffer: Vec<Occupancy>,
    /// Blocks whose times are those of their records, with their TTIs.
    grants: Vec<(Grant, Option<Tti>)>,
    /// Time of a record and when TTI 0 was, modulo the cycle.
    phases: Vec<(i64, i64)>,
}

impl Reading {
    fn add(&mut self, record: &Record) {
        let at_ns = i64::try_from(record.at.ns()).unwrap_or(i64::MAX).min(LATEST_NS);
        for part in parts(record) {
            let radio = self.radios.entry(record.radio).or_default();
            radio.records += 1;
            let (entries, is_described, unread) = match &part.contents {
                Ok((contents, basis)) => {
                    (radio.add(at_ns, contents), *basis == Basis::Described, None)
                }
                Err(unread) => (0, false, Some(unread.to_string())),
            };
            let (code, version) = (record.code, part.version);
            self.batches.push(Batch { at_ns, code, version, entries, is_described, unread });
        }
    }

    fn finish(self) -> Timeline {
        let mut main =
            self.radios.into_values().max_by_key(|radio| radio.records).unwrap_or_default();
        main.phases.sort_by_key(|(seen_ns, _)| *seen_ns);
        let (mut buffer, mut grants) = (main.buffer, Vec::with_capacity(main.grants.len()));
        for (grant, tti) in main.grants {
            let age = tti.and_then(|tti| age(&main.phases, grant.at_ns, tti)).unwrap_or(0);
            grants.push(Grant { at_ns: grant.at_ns.saturating_sub(age), ..grant });
        }
        buffer.sort_by_key(|sample| sample.at_ns);
        buffer.dedup_by_key(|sample| sample.at_ns);
        grants.sort_by_key(|grant| grant.at_ns);
        Timeline { buffer, grants, batches: self.batches, damaged: self.damaged }
    }
}

impl Radio {
    /// Takes the entries of a part; how many they are.
    fn add(&mut self, at_ns: i64, contents: &Contents) -> u32 {
        let length = match contents {
            Contents::Buffer { samples } => {
                for (sample, age) in samples.iter().rev().zip(0..) {
                    let at_ns = at_ns.saturating_sub(age * TTI_NS);
                    self.buffer.push(Occupancy { at_ns, bytes: sample.occupancy() });
                    if let Some(tti) = sample.tti {
                        self.phases.push((at_ns, phase(at_ns, tti)));
                    }
                }
                samples.len()
            }
            Contents::Blocks { blocks } => {
                for block in blocks {
                    let (granted, padding) = (block.granted.into(), Some(block.padding.into()));
                    let layer = Layer::Mac;
                    let grant = Grant { at_ns, layer, granted, padding, retransmission: 0 };
                    self.grants.push((grant, block.tti));
                }
                blocks.len()
            }
            Contents::Pusch { reported, transmissions } => {
                if let Some(tti) = reported {
                    self.phases.push((at_ns, phase(at_ns, *tti)));
                }
                for sent in transmissions {
                    let (granted, layer) = (sent.bytes.into(), Layer::Phy);
                    let retransmission = sent.retransmission;
                    let grant = Grant { at_ns, layer, granted, padding: None, retransmission };
                    self.grants.push((grant, sent.tti));
                }
                transmissions.len()
            }
            // Slots have no length here, since the record does not name the numerology: the time is that of the record.
            Contents::NrBlocks { nr_blocks } => {
                for block in nr_blocks {
                    let padding = Some(u64::from(block.granted.saturating_sub(block.built)));
                    let (granted, layer) = (block.granted.into(), Layer::Mac);
                    let grant = Grant { at_ns, layer, granted, padding, retransmission: 0 };
                    self.grants.push((grant, None));
                }
                nr_blocks.len()
            }
            Contents::NrReports { nr_reports } => nr_reports.len(),
            Contents::NrTotals { nr_totals } => nr_totals.len(),
        };
        u32::try_from(length).unwrap_or(u32::MAX)
    }
}

/// When TTI 0 was, within a cycle.
fn phase(at_ns: i64, tti: Tti) -> i64 {
    let count = i64::from(tti.since(Tti { sfn: 0, subframe: 0 }));
    at_ns.saturating_sub(count * TTI_NS).rem_euclid(CYCLE_NS)
}

/// How old a block of `tti` is at `at_ns`, by the TTI that was seen last before; `None` where none was, or where it does
/// not fit.
fn age(phases: &[(i64, i64)], at_ns: i64, tti: Tti) -> Option<i64> {
    let before = phases.partition_point(|(seen_ns, _)| *seen_ns <= at_ns);
    let (_, zero_ns) = phases.get(before.saturating_sub(1))?;
    let age = (phase(at_ns, tti) - zero_ns + TOLERANCE_NS).rem_euclid(CYCLE_NS) - TOLERANCE_NS;
    (age <= MAX_AGE_NS).then_some(age.max(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::{Block, Channel, Sample};
    use crate::hdlc::frame;
    use crate::layout;
    use crate::time::ModemTime;
    use crate::written;

    const MS: u64 = 1_000_000;

    fn sample(bytes: u32, tti: Option<u16>) -> Sample {
        let channels = vec![Channel { lcid: 3, compressed: bytes, ..Channel::default() }];
        Sample { tti: tti.and_then(Tti::counted), channels }
    }

    fn block(granted: u16, padding: u16, tti: u16) -> Block {
        Block { tti: Tti::counted(tti), granted, padding, report: None }
    }

    fn record(code: u16, at_ms: u64, payload: &[u8]) -> Vec<u8> {
        frame(&written::message(code, ModemTime::from_ns(at_ms * MS), payload))
    }

    #[test]
    fn samples_and_blocks_have_the_times_of_their_ttis() {
        // TTI 10,239 at 5,000 ms; the record of blocks is written 7 ms after its newest block.
        let buffer = written::buffer(24, &[sample(5, Some(10_238)), sample(7, None)]);
        let blocks = written::blocks(5, &[block(100, 1, 10_235), block(200, 0, 2)]);
        let log = [record(layout::BUFFER, 5_000, &buffer), record(layout::BLOCKS, 5_010, &blocks)]
            .concat();
        let found = timeline(&log).unwrap();
        let times = |ns: i64| ns / 1_000_000;
        let samples: Vec<_> = found.buffer.iter().map(|s| (times(s.at_ns), s.bytes)).collect();
        assert_eq!(samples, [(4_999, 5), (5_000, 7)]);
        let grants: Vec<_> =
            found.grants.iter().map(|g| (times(g.at_ns), g.granted, g.padding)).collect();
        assert_eq!(grants, [(4_996, 100, Some(1)), (5_003, 200, Some(0))]);
        assert_eq!(found.batches.iter().map(|b| b.entries).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn blocks_of_another_cell_or_without_a_known_tti_have_the_time_of_their_record() {
        let blocks = written::blocks(5, &[block(100, 1, 1)]);
        let alone = timeline(&record(layout::BLOCKS, 5_010, &blocks)).unwrap();
        assert_eq!(alone.grants[0].at_ns, 5_010_000_000);
        let buffer = written::buffer(24, &[sample(7, Some(4_000))]);
        let log = [record(layout::BUFFER, 5_000, &buffer), record(layout::BLOCKS, 5_010, &blocks)]
            .concat();
        assert_eq!(timeline(&log).unwrap().grants[0].at_ns, 5_010_000_000);
    }

    #[test]
    fn damage_and_unread_records_are_counted_and_what_is_no_log_is_refused() {
        let buffer = written::buffer(24, &[sample(7, None)]);
        let mut unknown = buffer.clone();
        unknown[5] = 99;
        let mut damaged = record(layout::BUFFER, 5_000, &buffer);
        damaged[20] ^= 1;
        let known = record(layout::BUFFER, 5_000, &buffer);
        let log = [known.clone(), damaged, record(layout::BUFFER, 5_040, &unknown), known].concat();
        let found = timeline(&log).unwrap();
        assert_eq!((found.damaged, found.batches.len(), found.buffer.len()), (1, 3, 1));
        assert!(found.batches[1].unread.as_deref().unwrap().starts_with("unknown layout"));
        assert_eq!(timeline(b""), Err(NoLog::Empty));
        assert_eq!(timeline(b"no log at all"), Err(NoLog::Neither));
    }
}
