//! Records of modems, and records rebuilt from field values, by the table of layouts.

use modem::contents::{
    Block, Channel, Contents, NrBlock, NrReport, NrTotals, Sample, Transmission, Unread, parts,
};
use modem::layout::{self, Basis, Fields, LAYOUTS};
use modem::mac::Report;
use modem::message::Record;
use modem::time::{ModemTime, Tti};
use modem::written;

/// See its first lines for origin and licence.
const MESSAGES: &str = include_str!("data/mobileinsight.txt");

fn record(code: u16, payload: &[u8]) -> Record<'_> {
    Record { code, at: ModemTime(0), radio: None, payload }
}

/// The contents of a record of one part.
fn read(code: u16, payload: &[u8]) -> Result<Contents, Unread> {
    let mut found = parts(&record(code, payload));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).contents.map(|(contents, _)| contents)
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// A message of the file of messages.
fn message(layout: &str) -> Vec<u8> {
    let line = MESSAGES.lines().find(|line| line.starts_with(layout)).unwrap();
    bytes(line.split(' ').nth(2).unwrap())
}

fn of_modem(layout: &str) -> Contents {
    let message = message(layout);
    let record = Record::of_message(&message).unwrap();
    read(record.code, record.payload).unwrap()
}

fn tti(sfn: u16, subframe: u8) -> Option<Tti> {
    Some(Tti { sfn, subframe })
}

#[test]
fn transport_blocks_of_a_phone_are_read() {
    // 49 bytes granted; headroom and a long report with its sub-headers, and RLC's 2 bytes: 42 are left.
    let report = Some(Report::Long([0; 4]));
    let block = Block { tti: tti(978, 5), granted: 49, padding: 42, report };
    assert_eq!(of_modem("0xB064.1"), Contents::Blocks { blocks: vec![block] });
}

#[test]
fn buffers_of_two_phones_are_read_a_sample_per_tti() {
    let Contents::Buffer { samples } = of_modem("0xB066.3") else { panic!() };
    let occupancy: Vec<u64> = samples.iter().map(Sample::occupancy).collect();
    assert_eq!((samples.len(), &occupancy[..5]), (40, &[9, 9, 9, 9, 0][..]));
    assert_eq!(occupancy.iter().max(), Some(&542));

    let Contents::Buffer { samples } = of_modem("0xB066.24") else { panic!() };
    let occupancy: Vec<u64> = samples.iter().map(Sample::occupancy).collect();
    assert_eq!(occupancy[14..26], [0, 12, 12, 12, 12, 12, 12, 12, 12, 12, 10, 4]);
    let known = samples.iter().enumerate().filter_map(|(at, sample)| Some((at, sample.tti?)));
    let (first, begin) = known.clone().next().unwrap();
    for (at, tti) in known {
        assert_eq!(usize::from(tti.since(begin)), at - first, "samples are 1 ms apart");
    }
}

#[test]
fn transmissions_of_two_phones_are_read() {
    let sent =
        |sfn, subframe| Transmission { tti: tti(sfn, subframe), bytes: 9, retransmission: 0 };
    let expected = Contents::Pusch { reported: tti(571, 2), transmissions: vec![sent(571, 1)] };
    assert_eq!(of_modem("0xB139.43"), expected);
    let expected = Contents::Pusch { reported: tti(556, 3), transmissions: vec![sent(555, 7)] };
    assert_eq!(of_modem("0xB139.102"), expected);
}

#[test]
fn every_layout_of_the_buffer_is_read_as_it_was_written() {
    let channel = |lcid, uncompressed, compressed| Channel {
        lcid,
        priority: 9,
        uncompressed,
        compressed,
        retransmitted: 70_000,
        control: 3,
    };
    for row in LAYOUTS {
        let Fields::Buffer { has_compressed, .. } = row.fields else { continue };
        let of = |n| if has_compressed { channel(3, 0, n) } else { channel(3, n, 0) };
        let samples = vec![
            Sample { tti: None, channels: vec![] },
            Sample { tti: tti(1_023, 9), channels: vec![of(1), of(u32::MAX)] },
        ];
        let payload = written::buffer(row.version as u8, &samples);
        assert_eq!(read(row.code, &payload), Ok(Contents::Buffer { samples }), "{row:?}");
    }
}

#[test]
fn every_layout_of_transport_blocks_is_read_as_it_was_written() {
    for row in LAYOUTS.iter().filter(|row| matches!(row.fields, Fields::Blocks { .. })) {
        let block = |report| Block { tti: tti(0, 0), granted: 65_535, padding: 113, report };
        let blocks = vec![
            block(None),
            block(Some(Report::Short(1, 63))),
            block(Some(Report::Truncated(3, 1))),
            block(Some(Report::Long([0, 20, 40, 63]))),
        ];
        let payload = written::blocks(row.version as u8, &blocks);
        assert_eq!(read(row.code, &payload), Ok(Contents::Blocks { blocks }), "{row:?}");
    }
}

#[test]
fn every_layout_of_transmissions_finds_size_and_retransmissions() {
    for row in LAYOUTS {
        let Fields::Pusch { length, size, retransmission: (place, bit, _) } = row.fields else {
            continue;
        };
        let mut sent = vec![0; length];
        sent[size..size + 2].copy_from_slice(&1_479_u16.to_le_bytes());
        sent[place..place + 4].copy_from_slice(&(2_u32 << bit).to_le_bytes());
        sent[0..2].copy_from_slice(&5_557_u16.to_le_bytes());
        let header = [row.version as u8, 30, 2 << 1, 0, 0xb7, 0x15, 0, 0];
        let payload = [&header[..], &sent, &sent].concat();
        let one = Transmission { tti: tti(555, 7), bytes: 1_479, retransmission: 2 };
        let expected = Contents::Pusch { reported: tti(555, 9), transmissions: vec![one; 2] };
        assert_eq!(read(row.code, &payload), Ok(expected), "{row:?}");
        let cut = &payload[..payload.len() - 1];
        assert_eq!(read(row.code, cut), Err(Unread::Misfit(cut.len())));
    }
}

#[test]
fn records_of_nr_are_read_by_their_descriptions() {
    let header = |version: u32, count: u8| [&version.to_le_bytes()[..], &[count, 0, 0, 0]].concat();
    // Slot 3 of frame 513 with a block of 1,000 bytes, of which 900 are used. Headroom, then a short report: group 2,
    // level 17.
    let mut payload = header(4, 1);
    payload.extend([3, 0, 1, 2, 1, 0, 0, 0]);
    payload.extend([0, 0, 0, 1]);
    payload.extend([1_000_u32, 900].map(u32::to_le_bytes).concat());
    payload.extend([3, 3, 0, 0, 5, 0, 0, 0]);
    payload.extend([57, 40, 50, 61, 2 << 5 | 17]);
    let block =
        NrBlock { sfn: 513, slot: 3, granted: 1_000, built: 900, short_report: Some((2, 17)) };
    let expected = Contents::NrBlocks { nr_blocks: vec![block] };
    assert_eq!(read(layout::NR_BLOCKS, &payload), Ok(expected));

    // A report for new data on groups 0 and 2, with one channel.
    let mut payload = header(2, 1);
    payload.extend([3, 0, 1, 2, 0]);
    payload.extend((4_u32 | 5 << 10 | 1 << 18).to_le_bytes());
    payload.extend([0; 3 + 1 + 8]);
    let report = NrReport { sfn: 513, slot: 3, reason: 4, groups: 5 };
    let expected = Contents::NrReports { nr_reports: vec![report] };
    assert_eq!(read(layout::NR_REPORTS, &payload), Ok(expected));

    for (minor, length, blocks) in [(0, 92, 44), (1, 96, 48)] {
        let mut payload = vec![minor, 0, 2, 0];
        payload.resize(20, 0);
        payload[15] = 1;
        let mut fields = vec![0; length];
        fields[0..8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        fields[8..16].copy_from_slice(&77_u64.to_le_bytes());
        fields[blocks..blocks + 8].copy_from_slice(&[5_u32, 6].map(u32::to_le_bytes).concat());
        payload.extend(fields);
        let totals = NrTotals {
            new_bytes: 1 << 40,
            retransmitted_bytes: 77,
            new_blocks: 5,
            retransmitted_blocks: 6,
        };
        let expected = Contents::NrTotals { nr_totals: vec![totals] };
        assert_eq!(read(layout::NR_TOTALS, &payload), Ok(expected));
    }
}

#[test]
fn an_unknown_version_is_named_and_the_parts_beside_it_are_read() {
    let known = written::buffer(24, &[Sample { tti: None, channels: vec![] }]);
    let mut payload = known.clone();
    payload[1] = 2;
    payload.extend(&known[4..]);
    payload[5] = 99;
    let found = parts(&record(layout::BUFFER, &payload));
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].version, 99);
    assert_eq!(found[0].contents, Err(Unread::Unknown("0a630c000100ffff00000000".to_owned())));
    assert!(matches!(&found[1].contents, Ok((Contents::Buffer { .. }, Basis::Seen))));
    // Another version of the record itself.
    assert!(matches!(read(layout::BUFFER, &[2, 1, 0, 0, 10, 24]), Err(Unread::Unknown(_))));
    assert_eq!(parts(&record(0xb0c0, &known)), []);
}

#[test]
fn sizes_of_nothing_or_beyond_the_record_end_it() {
    let known = written::buffer(24, &[Sample { tti: None, channels: vec![] }]);
    for size in [0_u16, 4, 13, 60_000] {
        let mut payload = known.clone();
        payload[1] = 255;
        payload[6..8].copy_from_slice(&size.to_le_bytes());
        assert_eq!(read(layout::BUFFER, &payload), Err(Unread::Misfit(payload.len())), "{size}");
    }
    // More samples than there are, and fewer.
    for samples in [0, 2, 255] {
        let mut payload = known.clone();
        payload[8] = samples;
        let expected = Err(Unread::Misfit(payload.len() - 4));
        assert_eq!(read(layout::BUFFER, &payload), expected, "{samples}");
    }
}
