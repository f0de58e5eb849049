//! Reads frames from a capture file of any format, byte order, time resolution and compression.
//!
//! Sources: the pcap and pcapng Internet-Drafts (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).
//! Deviations, because real files need them: a record may be longer than the snap length says; a captured
//! length above the original length raises the latter; packets of an interface that was never described are
//! skipped and counted ([`Reader::skipped`]); simple packets, which carry no time, take that of the frame
//! before them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use units::Instant;

use crate::buffer::Buffer;
use crate::error::{OpenError, ReadError};
use crate::foreign;
use crate::frame::{Frame, Interface};
use crate::pcap::Pcap;
use crate::pcapng::Pcapng;
use crate::source::{Limit, unpack};

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
    Done,
}

/// Reads the frames of a capture one by one.
pub struct Reader<R: Read> {
    buffer: Buffer<R>,
    format: Format,
    interfaces: Vec<Interface>,
    skipped: u64,
}

impl<R: Read> Reader<R> {
    /// Opens a capture; compression and format are recognised by the first bytes.
    pub fn new(input: R) -> Result<Self, OpenError> {
        Self::limited(input, None)
    }

    /// As [`Reader::new`]; input that unpacks to more than the limit is an error ([`ReadError::too_large`]).
    pub fn limited(input: R, limit: Option<Limit>) -> Result<Self, OpenError> {
        let unpacked = unpack(input, limit).map_err(OpenError::Decompress)?;
        let head = unpacked.head.as_slice();
        let mut interfaces = Vec::new();
        let opened = if Pcapng::recognise(head) {
            Ok(Format::Pcapng(Pcapng::new()))
        } else {
            Pcap::open(head, &mut interfaces).map(Format::Pcap)
        };
        let format = match (opened, unpacked.failure) {
            (Ok(format), failure) => {
                let mut buffer = Buffer::new(unpacked.source, head, unpacked.packed, failure);
                let format = match format {
                    Format::Pcapng(mut ng) => {
                        ng.open(&mut buffer)?;
                        Format::Pcapng(ng)
                    }
                    pcap => {
                        buffer.consume(crate::pcap::FILE_HEADER);
                        pcap
                    }
                };
                return Ok(Reader { buffer, format, interfaces, skipped: 0 });
            }
            (Err(_), Some(failure)) if unpacked.packed => OpenError::Decompress(failure),
            (Err(_), Some(failure)) => OpenError::Io(failure),
            (Err(Some(error)), None) => error,
            (Err(None), None) => OpenError::NotACapture { looks_like: foreign::name(head) },
        };
        Err(format)
    }

    /// The next frame; `None` at the end, and from then on after an error.
    #[inline(always)] // two callers; otherwise the record would be moved through memory
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        let found = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.buffer),
            Format::Pcapng(ng) => {
                ng.next(&mut self.buffer, &mut self.interfaces, &mut self.skipped)
            }
            Format::Done => Ok(None),
        };
        match found {
            Ok(Some(f)) => Ok(Some(Frame {
                time: Instant(f.time),
                interface: f.interface,
                linktype: f.linktype,
                wire_len: f.wire_len,
                data: self.buffer.bytes.get(f.from..f.from + f.len).unwrap_or_default(),
            })),
            Ok(None) => {
                self.format = Format::Done;
                Ok(None)
            }
            Err(e) => {
                self.format = Format::Done;
                Err(e)
            }
        }
    }

    /// The interfaces described so far; more may follow in a pcapng file.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Number of bytes consumed of the decompressed input.
    pub fn offset(&self) -> u64 {
        self.buffer.offset()
    }

    /// Number of packets skipped because their interface was never described or their block is invalid.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// Opens the capture file at `path`.
pub fn open(path: &Path) -> Result<Reader<Box<dyn Read + Send>>, OpenError> {
    let file = File::open(path).map_err(OpenError::Io)?;
    Reader::new(Box::new(file))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::*;
    use crate::write::Writer;

    const FIRST: Instant = Instant(1_700_000_000_123_456_789);

    /// Time, interface, length on the wire and data of a frame.
    type Seen = (u64, u32, u32, Vec<u8>);

    /// All frames, then how reading ended.
    fn all(bytes: &[u8]) -> (Vec<Seen>, Option<ReadError>) {
        let mut reader = Reader::new(bytes).expect("opens");
        let mut frames = Vec::new();
        loop {
            match reader.next_frame() {
                Ok(Some(f)) => frames.push((f.time.0, f.interface, f.wire_len, f.data.to_vec())),
                Ok(None) => return (frames, None),
                Err(e) => {
                    assert!(
                        matches!(reader.next_frame(), Ok(None)),
                        "nothing comes after an error"
                    );
                    return (frames, Some(e));
                }
            }
        }
    }

    fn pcap(magic: u32, version: (u16, u16), big: bool, records: &[u8]) -> Vec<u8> {
        let two = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let four = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut out = four(magic).to_vec();
        out.extend(two(version.0));
        out.extend(two(version.1));
        // The link type carries the flags of a frame check sequence.
        for field in [0, 0, 96, 0x2400_0001] {
            out.extend(four(field));
        }
        out.extend(records);
        out
    }

    fn record(big: bool, fields: &[u32], data: &[u8]) -> Vec<u8> {
        let order = |f: &u32| if big { f.to_be_bytes() } else { f.to_le_bytes() };
        let mut out: Vec<u8> = fields.iter().flat_map(order).collect();
        out.extend(data);
        out
    }

    fn packed_gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).expect("memory");
        out.finish().expect("memory")
    }

    fn three_frames() -> Vec<u8> {
        let mut w = Writer::new(Vec::new(), 1, &["eth0", "wlan0"]).expect("memory");
        for i in 0..3u32 {
            let data = vec![i as u8; 60 + i as usize];
            w.write_on(i % 2, Instant(FIRST.0 + u64::from(i)), &data, 1500).expect("memory");
        }
        w.report_drops(1, 17).expect("memory");
        w.report_end(0, Instant(FIRST.0 + 5_000_000_000)).expect("memory");
        w.finish().expect("memory")
    }

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_too_large() {
        const LIMIT: Option<Limit> = Some(Limit { ratio: 200, harmless: 1 << 16 });
        let read = |packed: &[u8], limit| {
            let mut reader = Reader::limited(packed, limit)?;
            Ok::<_, OpenError>(loop {
                match reader.next_frame() {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            })
        };
        // Zeros are packets of no bytes. They pack into a thousandth.
        let bomb = pcap(0xa1b2_c3d4, (2, 4), false, &vec![0; 4 << 20]);
        let layers = [
            packed_gzip(&bomb),
            zstd::encode_all(&bomb[..], 1).expect("memory"),
            packed_gzip(&packed_gzip(&bomb)),
        ];
        for packed in &layers {
            let end = read(packed, LIMIT).expect("opens").expect("ends early");
            assert!(end.too_large().is_some(), "{end}");
            assert!(
                end.to_string()
                    .ends_with("than 200 times its size, which no capture does; stopped")
            );
            let whole = read(packed, None).expect("opens").map(|e| e.to_string());
            assert_eq!(whole, None, "no limit");
        }
        let small = packed_gzip(&pcap(0xa1b2_c3d4, (2, 4), false, &[0; 1 << 15]));
        let strict = Some(Limit { ratio: 1, harmless: 1 << 16 });
        assert!(read(&small, strict).expect("opens").is_none(), "harmless at any ratio");
        let real = packed_gzip(&three_frames());
        assert!(read(&real, LIMIT).expect("opens").is_none());
        let Some(cut) = read(&layers[0][..layers[0].len() / 100], LIMIT).expect("opens") else {
            panic!("it breaks off")
        };
        assert!(cut.too_large().is_none(), "damage is no size: {cut}");
        // The first bytes of a capture may be too many by themselves.
        let none =
            read(&layers[2], Some(Limit { ratio: 0, harmless: 100 })).expect_err("too large");
        assert!(none.too_large().is_some(), "{none}");
    }

    #[test]
    fn pcap_is_read_in_both_byte_orders_and_resolutions() {
        for big in [false, true] {
            let r = record(big, &[10, 999_999, 4, 1500], b"abcd");
            for (magic, time) in [(0xa1b2_c3d4, 10_999_999_000), (0xa1b2_3c4d, 10_000_999_999)] {
                let file = pcap(magic, (2, 4), big, &r);
                let (frames, end) = all(&file);
                assert_eq!(frames, [(time, 0, 1500, b"abcd".to_vec())]);
                assert!(end.is_none());
                assert_eq!(Reader::new(&file[..]).expect("opens").interfaces()[0].linktype, 1);
            }
        }
    }

    #[test]
    fn old_and_modified_pcap_records_are_read() {
        let old = record(true, &[1, 0, 1500, 4], b"abcd");
        assert_eq!(all(&pcap(0xa1b2_c3d4, (2, 2), true, &old)).0[0].2, 1500);
        assert_eq!(all(&pcap(0xa1b2_c3d4, (2, 3), true, &old)).0[0].2, 1500);
        let modified = record(true, &[1, 0, 4, 1500, 3, 0], b"abcd");
        assert_eq!(
            all(&pcap(0xa1b2_cd34, (2, 4), true, &modified)).0,
            [(1_000_000_000, 0, 1500, b"abcd".to_vec())]
        );
    }

    #[test]
    fn longer_record_headers_than_the_magic_number_promises_are_found_out() {
        // Fields written, where four and six are promised.
        for (magic, written) in [(0xa1b2_c3d4, 6), (0xa1b2_cd34, 7)] {
            for big in [false, true] {
                let mut records = Vec::new();
                for i in 0..3_u8 {
                    let fields = [900_000_000 + u32::from(i), 5, 60, 60, 3, 0x0800_0000, 9];
                    records.extend(record(big, &fields[..written], &[i; 60]));
                }
                let (frames, end) = all(&pcap(magic, (2, 4), big, &records));
                assert!(end.is_none(), "{end:?}");
                assert_eq!(frames.len(), 3);
                assert_eq!(frames[2], (900_000_002_000_005_000, 0, 60, vec![2; 60]));
            }
        }
    }

    #[test]
    fn a_broken_second_record_does_not_change_the_first() {
        let mut records = record(false, &[1_000, 5, 60, 60], &[7; 60]);
        records.extend(record(false, &[0xffff_ffff, 0xffff_ffff, 0xffff_ffff, 0], &[8; 60]));
        let (frames, end) = all(&pcap(0xa1b2_c3d4, (2, 4), false, &records));
        assert_eq!(frames, [(1_000_000_005_000, 0, 60, vec![7; 60])]);
        assert!(matches!(end, Some(ReadError::Corrupt { .. })));
    }

    #[test]
    fn what_is_written_is_read_back_packed_or_not() {
        let file = three_frames();
        let (plain, end) = all(&file);
        assert!(end.is_none());
        assert_eq!(plain.len(), 3);
        assert_eq!(plain[1], (FIRST.0 + 1, 1, 1500, vec![1; 61]));
        let zstd = zstd::encode_all(&file[..], 1).expect("memory");
        for packed in
            [packed_gzip(&file), zstd.clone(), packed_gzip(&zstd), packed_gzip(&packed_gzip(&file))]
        {
            assert_eq!(all(&packed).0, plain);
        }
        let mut reader = Reader::new(&file[..]).expect("opens");
        while reader.next_frame().expect("good").is_some() {}
        let names: Vec<_> =
            reader.interfaces().iter().map(|i| (i.name.as_str(), i.reported_drops)).collect();
        assert_eq!(names, [("eth0", None), ("wlan0", Some(17))]);
        let ends = [Some(Instant(FIRST.0 + 5_000_000_000)), None];
        assert_eq!([0, 1].map(|i| reader.interfaces()[i].ended), ends);
        assert_eq!(reader.offset(), file.len() as u64);
    }

    #[test]
    fn a_plain_pcap_is_written_and_read_back() {
        let mut w = Writer::pcap(Vec::new(), 276).expect("memory");
        w.write(FIRST, b"abc", 70_000).expect("memory");
        let file = w.finish().expect("memory");
        assert_eq!(all(&file).0, [(FIRST.0, 0, 70_000, b"abc".to_vec())]);
    }

    #[test]
    fn gzip_members_one_after_the_other_are_one_file() {
        let file = three_frames();
        let two = [packed_gzip(&file[..150]), packed_gzip(&file[150..])].concat();
        assert_eq!(all(&two).0, all(&file).0);
    }

    #[test]
    fn a_record_larger_than_the_buffer_makes_it_grow() {
        let mut w = Writer::new(Vec::new(), 1, &[]).expect("memory");
        for size in [100, 3_000_000, 100] {
            w.write(FIRST, &vec![7; size], 0).expect("memory");
        }
        let (frames, end) = all(&w.finish().expect("memory"));
        assert!(end.is_none());
        assert_eq!(frames.iter().map(|f| f.3.len()).collect::<Vec<_>>(), [100, 3_000_000, 100]);
    }

    #[test]
    fn truncation_anywhere_delivers_what_came_before_and_says_where() {
        let file = three_frames();
        let (whole, _) = all(&file);
        let mut seen = 0;
        for len in 120..file.len() {
            let (frames, end) = all(&file[..len]);
            assert_eq!(frames, whole[..frames.len()]);
            assert!(frames.len() >= seen);
            seen = frames.len();
            if let Some(e) = end {
                let ReadError::Truncated { offset, needed, got } = e else { panic!("{e}") };
                assert_eq!(offset + got, len as u64);
                assert!(needed > got);
            }
        }
        assert_eq!(seen, 3);
    }

    #[test]
    fn damaged_packing_delivers_what_came_before() {
        let mut w = Writer::new(Vec::new(), 1, &[]).expect("memory");
        let mut noise = 1_u32;
        for i in 0..2_000 {
            let data: Vec<u8> = (0..400)
                .map(|_| {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (noise >> 24) as u8
                })
                .collect();
            w.write(Instant(i), &data, 400).expect("memory");
        }
        let file = w.finish().expect("memory");
        for packed in [packed_gzip(&file), zstd::encode_all(&file[..], 1).expect("memory")] {
            let (frames, end) = all(&packed[..packed.len() / 2]);
            assert!(frames.len() > 500, "{} frames", frames.len());
            assert!(matches!(end, Some(ReadError::Decompress { .. })), "{end:?}");
        }
    }

    #[test]
    fn a_length_beyond_belief_is_corrupt_with_its_place() {
        let mut records = record(true, &[1, 0, 4, 4], b"abcd");
        records.extend(record(true, &[1, 0, 0x1fff_ffff, 4], b"abcd"));
        let (frames, end) = all(&pcap(0xa1b2_c3d4, (2, 4), true, &records));
        assert_eq!(frames.len(), 1);
        assert!(matches!(end, Some(ReadError::Corrupt { offset: 44, .. })), "{end:?}");
    }

    #[test]
    fn foreign_files_are_refused_by_name() {
        for (bytes, name) in [
            (&b""[..], "an empty file"),
            (b"snoop\0\0\0\0\0\0\x02\0\0\0\x04", "a snoop file"),
            (b"<!DOCTYPE html><html>", "HTML"),
            (b"{\"a\": 1}\n", "text"),
            (b"BZh91AY", "a bzip2 file"),
            (
                b"version https://git-lfs.github.com/spec/v1\n",
                "a git LFS pointer, not the file itself",
            ),
            (&[0; 100], "nothing known"),
        ] {
            match Reader::new(bytes).err() {
                Some(OpenError::NotACapture { looks_like }) => assert_eq!(looks_like, name),
                other => panic!("{other:?} for {name}"),
            }
        }
        assert!(matches!(
            Reader::new(&[0xa1, 0xb2, 0xc3, 0xd4, 0][..]),
            Err(OpenError::Truncated { got: 5, .. })
        ));
        let archaic = pcap(0xa1b2_c3d4, (1, 0), true, &[]);
        assert!(matches!(
            Reader::new(&archaic[..]),
            Err(OpenError::Version { major: 1, minor: 0 })
        ));
    }

    #[test]
    fn a_reader_that_fails_differs_from_a_file_that_ends() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("cable pulled"))
            }
        }
        let file = three_frames();
        let mut reader = Reader::new(file[..file.len() - 3].chain(Fails)).expect("opens");
        let mut frames = 0;
        let end = loop {
            match reader.next_frame() {
                Ok(Some(_)) => frames += 1,
                Ok(None) => panic!("no error"),
                Err(e) => break e,
            }
        };
        assert_eq!(frames, 3);
        assert!(matches!(end, ReadError::Io { .. }));
        assert!(matches!(Reader::new(Fails), Err(OpenError::Io(_))));
    }
}
