//! Reports for the gate of `unbloat-agent`, from records of the modem: the two datagrams that the table in
//! `crates/agent/src/telemetry/socket.rs` describes.
//!
//! signal: records, and when they arrived · model: 0xB064 has each transport block with its grant and the buffer status
//! report that it carried; 0xB066 has the buffer in each TTI, 0xB139 has the blocks that were sent · action: from 0xB064
//! a datagram `UBTB` per block, else from 0xB066 and 0xB139 a datagram `UBTM` per record of the buffer.
//!
//! The agent adds up the grants of all datagrams, and both records list the same blocks. So grants come from one of them
//! alone: from 0xB064 once it was read, and from 0xB139 only after two seconds of transmissions without it. A report
//! without grants would be a link that stands still, so before that there is none. While nothing is transmitted 0xB064
//! has no records, and the agent would take a modem without reports for one that is missing: then an empty buffer by
//! 0xB066 is reported, which is true and has no grants to count twice.
//!
//! Layouts that no record of a modem has confirmed are not used; those of NR are all of this kind.

use std::collections::BTreeSet;

use crate::clock::{Age, Clock, Frames};
use crate::contents::{Block, Contents, Sample, Transmission, parts};
use crate::layout::Basis;
use crate::mac::{GROUPS, Report};
use crate::message::Record;
use crate::summary::{code_text, version_text};

/// More than the records of 0xB064 wait in the modem, so that they come first if they come at all.
const DECISION_NS: u64 = 2_000_000_000;
/// Below the 500 ms after which the agent gives up a modem without reports, with room for a lost one.
const IDLE_NS: u64 = 200_000_000;
/// Samples of 0xB066 are so far apart.
const TTI_NS: u64 = 1_000_000;
const VERSION: u16 = 1;

/// What comes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// A datagram for the agent.
    Datagram(Vec<u8>),
    /// A line for the log.
    Notice(String),
}

/// Makes reports of records.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    clock: Clock,
    frames: Frames,
    /// Of the last buffer status report.
    levels: [u8; GROUPS],
    /// 0xB064 was read.
    has_blocks: bool,
    /// When the first transmission of 0xB139 arrived.
    transmits_since_ns: Option<u64>,
    /// Bytes of transmissions since the last report.
    granted: u64,
    /// When a report of the buffer was made.
    reported_ns: u64,
    number: u64,
    /// Codes and versions that were named because they are not used.
    named: BTreeSet<(u16, u32)>,
}

impl Reports {
    /// Takes a record that arrived at a time of CLOCK_MONOTONIC.
    pub fn record(&mut self, arrived_ns: u64, record: &Record, each: &mut dyn FnMut(Out)) {
        let mut read = Vec::new();
        for part in parts(record) {
            let why = match part.contents {
                Ok((contents, Basis::Seen)) => {
                    read.push(contents);
                    continue;
                }
                Ok((_, Basis::Described)) => {
                    "no record of a modem has confirmed its layout".to_owned()
                }
                Err(unread) => unread.to_string(),
            };
            if self.named.insert((record.code, part.version)) {
                let (code, version) =
                    (code_text(record.code), version_text(record.code, part.version));
                each(Out::Notice(format!("{code} version {version} is not used: {why}")));
            }
        }
        if read.is_empty() {
            return;
        }
        let closed_ns = record.at.ns();
        if self.clock.add(arrived_ns, closed_ns) {
            let text =
                "a clock has stepped by more than 100 ms: no reports until it is known again";
            each(Out::Notice(text.to_owned()));
            (self.frames, self.granted) = (Frames::default(), 0);
        }
        for contents in &read {
            match contents {
                Contents::Blocks { blocks } => self.blocks(arrived_ns, closed_ns, blocks, each),
                Contents::Buffer { samples } => self.buffer(arrived_ns, closed_ns, samples, each),
                Contents::Pusch { reported, transmissions } => {
                    if let Some(tti) = reported {
                        self.frames.add(closed_ns, *tti, Age::Before);
                    }
                    self.transmissions(arrived_ns, transmissions);
                }
                _ => {}
            }
        }
    }

    fn blocks(
        &mut self,
        arrived_ns: u64,
        closed_ns: u64,
        blocks: &[Block],
        each: &mut dyn FnMut(Out),
    ) {
        self.has_blocks = true;
        if let Some(tti) = blocks.last().and_then(|block| block.tti) {
            self.frames.add(closed_ns, tti, Age::Before);
        }
        let is_known = self.frames.is_known();
        for block in blocks {
            if let Some(report) = block.report {
                self.levels = report.levels(self.levels);
            }
            let at_ns = block.tti.and_then(|tti| self.frames.modem_ns(closed_ns, tti));
            // A block whose time is unknown has grants, but says nothing about a time.
            let report = block.report.filter(|_| at_ns.is_some());
            let at_ns = self.clock.monotonic_ns(at_ns.unwrap_or(closed_ns));
            if let (true, Some(at_ns)) = (is_known, at_ns) {
                if report.is_some() {
                    self.reported_ns = arrived_ns;
                }
                each(Out::Datagram(self.block(at_ns, block, report)));
            }
        }
    }

    fn transmissions(&mut self, arrived_ns: u64, transmissions: &[Transmission]) {
        let new = transmissions.iter().filter(|one| one.retransmission == 0);
        let bytes: u64 = new.map(|one| u64::from(one.bytes)).sum();
        if bytes > 0 {
            self.transmits_since_ns.get_or_insert(arrived_ns);
            self.granted = self.granted.saturating_add(bytes);
        }
    }

    fn buffer(
        &mut self,
        arrived_ns: u64,
        closed_ns: u64,
        samples: &[Sample],
        each: &mut dyn FnMut(Out),
    ) {
        let ages = (0..samples.len() as u64).rev();
        let numbered =
            samples.iter().zip(ages).filter_map(|(sample, age)| Some((sample.tti?, age)));
        if let Some((tti, age)) = numbered.last() {
            self.frames.add(closed_ns.saturating_sub(age * TTI_NS), tti, Age::Now);
        }
        let Some(occupancy) = samples.last().map(Sample::occupancy) else { return };
        // What is not reported now belongs to a time without reports, or to blocks that 0xB064 lists.
        let granted = std::mem::take(&mut self.granted);
        let is_due = if self.has_blocks {
            occupancy == 0 && arrived_ns.saturating_sub(self.reported_ns) >= IDLE_NS
        } else {
            let decided = |since: u64| arrived_ns.saturating_sub(since) >= DECISION_NS;
            self.transmits_since_ns.is_some_and(decided)
        };
        if let (true, Some(at_ns)) = (is_due, self.clock.monotonic_ns(closed_ns)) {
            self.reported_ns = arrived_ns;
            let granted = if self.has_blocks { 0 } else { granted };
            each(Out::Datagram(self.report(at_ns, occupancy, granted)));
        }
    }

    fn block(&self, at_ns: u64, block: &Block, report: Option<Report>) -> Vec<u8> {
        let mut bytes = b"UBTB".to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([report.is_some().into(), 0]);
        bytes.extend(report.map_or([0; GROUPS], |_| self.levels));
        bytes.extend([0; 4]);
        bytes.extend(at_ns.to_le_bytes());
        bytes.extend(u32::from(block.granted).to_le_bytes());
        bytes.extend(u32::from(block.padding).to_le_bytes());
        bytes
    }

    fn report(&mut self, at_ns: u64, occupancy: u64, granted: u64) -> Vec<u8> {
        let mut bytes = b"UBTM".to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 2]);
        // 0xB139 does not say how much of a block is padding.
        for field in [self.number, at_ns, occupancy, granted, 0] {
            bytes.extend(field.to_le_bytes());
        }
        self.number += 1;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::Channel;
    use crate::layout;
    use crate::time::{ModemTime, Tti};
    use crate::written;

    const MS: u64 = 1_000_000;
    /// The modem's clock is so far ahead of the host's, in whole units of its time.
    const MODEM: u64 = 1_300_000_000_000_000_000;

    /// A player of records: the host's time, and what came of them.
    #[derive(Default)]
    struct Player {
        reports: Reports,
        notices: Vec<String>,
    }

    impl Player {
        /// A record that is closed at a time of the host and arrives at once; its datagrams.
        fn record(&mut self, ms: u64, code: u16, payload: &[u8]) -> Vec<Vec<u8>> {
            let at = ModemTime::from_ns(MODEM + ms * MS);
            let record = Record { code, at, radio: None, payload };
            let mut datagrams = Vec::new();
            self.reports.record(ms * MS, &record, &mut |out| match out {
                Out::Datagram(bytes) => datagrams.push(bytes),
                Out::Notice(text) => self.notices.push(text),
            });
            datagrams
        }

        fn blocks(&mut self, ms: u64, blocks: &[Block]) -> Vec<Vec<u8>> {
            self.record(ms, layout::BLOCKS, &written::blocks(5, blocks))
        }

        fn buffer(&mut self, ms: u64, bytes: u32) -> Vec<Vec<u8>> {
            let channel = Channel { lcid: 3, compressed: bytes, ..Channel::default() };
            let sample = Sample { tti: None, channels: vec![channel] };
            self.record(ms, layout::BUFFER, &written::buffer(24, &[sample]))
        }

        fn pusch(&mut self, ms: u64, sent: &[(u16, u8)]) -> Vec<Vec<u8>> {
            self.record(ms, layout::PUSCH, &written::pusch(sent))
        }
    }

    fn tti(ms: u64) -> Option<Tti> {
        Some(Tti { sfn: (ms / 10 % 1_024) as u16, subframe: (ms % 10) as u8 })
    }

    fn block(ms: u64, granted: u16, padding: u16, report: Option<Report>) -> Block {
        Block { tti: tti(ms), granted, padding, report }
    }

    fn ubtb(ms: u64, levels: Option<[u8; 4]>, granted: u32, padding: u32) -> Vec<u8> {
        let head = [b"UBTB\x01\0", &[levels.is_some().into(), 0][..]].concat();
        let tail = [granted, padding].map(u32::to_le_bytes).concat();
        [&head, &levels.unwrap_or_default()[..], &[0; 4], &(ms * MS).to_le_bytes(), &tail].concat()
    }

    fn ubtm(number: u64, ms: u64, occupancy: u64, granted: u64) -> Vec<u8> {
        let fields = [number, ms * MS, occupancy, granted, 0].map(u64::to_le_bytes).concat();
        [b"UBTM\x01\0\0\0", &fields[..]].concat()
    }

    /// A player whose clock and frames are known, with blocks each 40 ms up to a time.
    fn with_blocks(until_ms: u64) -> Player {
        let mut player = Player::default();
        for ms in (until_ms - 400..until_ms).step_by(40) {
            player.blocks(ms, &[block(ms, 10, 0, None)]);
        }
        player
    }

    #[test]
    fn a_block_is_a_datagram_at_its_own_time() {
        let mut player = with_blocks(20_000);
        let blocks = [
            block(19_963, 1_000, 0, None),
            block(19_990, 500, 20, Some(Report::Short(1, 9))),
            block(19_991, 500, 0, Some(Report::Truncated(2, 63))),
            block(20_000, 7, 7, Some(Report::Long([1, 2, 3, 4]))),
        ];
        let expected = [
            ubtb(19_963, None, 1_000, 0),
            ubtb(19_990, Some([0, 9, 0, 0]), 500, 20),
            ubtb(19_991, Some([0, 9, 63, 0]), 500, 0),
            ubtb(20_000, Some([1, 2, 3, 4]), 7, 7),
        ];
        assert_eq!(player.blocks(20_000, &blocks), expected);
        assert!(player.notices.is_empty());
    }

    #[test]
    fn a_block_without_a_time_has_grants_and_reports_no_buffer() {
        let mut player = with_blocks(20_000);
        let unknown =
            Block { tti: None, granted: 30, padding: 1, report: Some(Report::Short(0, 5)) };
        let expected = [ubtb(20_000, None, 30, 1), ubtb(20_000, None, 9, 0)];
        let found = player.blocks(20_000, &[unknown, block(20_000, 9, 0, None)]);
        assert_eq!(found, expected);
    }

    #[test]
    fn grants_of_transmissions_are_used_only_where_blocks_are_missing() {
        let mut player = Player::default();
        let mut found = Vec::new();
        for ms in (10_000..13_000).step_by(40) {
            player.pusch(ms, &[(400, 0), (500, 1), (100, 0)]);
            found.extend(player.buffer(ms + 1, 3_000));
        }
        // Two seconds after the first transmission.
        let expected = [ubtm(0, 12_001, 3_000, 500), ubtm(1, 12_041, 3_000, 500)];
        assert_eq!(found[..2], expected);
        assert_eq!(found.len(), 25);

        // Blocks come as well: from now on grants are theirs alone.
        player.blocks(13_000, &[block(13_000, 10, 0, None)]);
        for ms in (13_040..14_000).step_by(40) {
            player.pusch(ms, &[(400, 0)]);
            assert_eq!(player.buffer(ms + 1, 3_000), Vec::<Vec<u8>>::new());
            let found = player.blocks(ms + 2, &[block(ms + 2, 400, 0, Some(Report::Short(0, 1)))]);
            assert!(found.iter().all(|one| one[..4] == *b"UBTB"), "{found:?}");
        }
    }

    #[test]
    fn a_buffer_without_grants_from_anywhere_is_no_report() {
        let mut player = Player::default();
        for ms in (10_000..20_000).step_by(40) {
            let bytes = if ms % 80 == 0 { 0 } else { 3_000 };
            assert_eq!(player.buffer(ms, bytes), Vec::<Vec<u8>>::new());
        }
    }

    #[test]
    fn an_empty_buffer_is_reported_while_no_blocks_come() {
        let mut player = with_blocks(20_000);
        player.blocks(20_000, &[block(20_000, 9, 0, Some(Report::Short(0, 5)))]);
        let found: Vec<_> =
            (20_040..20_480).step_by(40).flat_map(|ms| player.buffer(ms, 0)).collect();
        assert_eq!(found, [ubtm(0, 20_200, 0, 0), ubtm(1, 20_400, 0, 0)]);
        // Data waits, and its grants come later.
        assert_eq!(player.buffer(20_900, 1), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn nothing_is_sent_after_a_step_until_the_clock_is_known_again() {
        let mut player = with_blocks(20_000);
        assert_eq!(player.blocks(20_000, &[block(20_000, 9, 0, None)]).len(), 1);
        // The modem's time is now 3 s less, and its frame numbers go on.
        let found: Vec<_> = (20_040..20_480)
            .step_by(40)
            .map(|ms| {
                let at = ModemTime::from_ns(MODEM + (ms - 3_000) * MS);
                let payload = written::blocks(5, &[block(ms, 9, 0, None)]);
                let record = Record { code: layout::BLOCKS, at, radio: None, payload: &payload };
                let mut sent = Vec::new();
                player.reports.record(ms * MS, &record, &mut |out| sent.push(out));
                sent
            })
            .collect();
        assert!(matches!(&found[0][..], [Out::Notice(text)] if text.contains("stepped")));
        assert!(found[1..5].iter().all(Vec::is_empty), "{found:?}");
        assert_eq!(found[6], [Out::Datagram(ubtb(20_280, None, 9, 0))]);
    }

    #[test]
    fn layouts_that_are_unknown_or_not_confirmed_are_named_once_and_not_used() {
        let mut player = with_blocks(20_000);
        let mut unknown = written::blocks(5, &[block(20_000, 9, 0, Some(Report::Short(0, 5)))]);
        unknown[5] = 99;
        for _ in 0..3 {
            assert_eq!(player.record(20_000, layout::BLOCKS, &unknown), Vec::<Vec<u8>>::new());
        }
        let described = written::blocks(8, &[block(20_000, 9, 0, None)]);
        for _ in 0..3 {
            assert_eq!(player.record(20_000, layout::BLOCKS, &described), Vec::<Vec<u8>>::new());
        }
        assert_eq!(player.notices.len(), 2, "{:?}", player.notices);
        let expected =
            "0xB064 version 99 is not used: unknown layout, begins with 0863180001010000";
        assert!(player.notices[0].starts_with(expected), "{:?}", player.notices);
        assert!(player.notices[1].contains("no record of a modem has confirmed"));
    }
}
