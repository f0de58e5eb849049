//! Any bytes go through reader and decoder without a panic and without unbounded memory.

use capture::write::Writer;
use capture::{Decoder, Reader};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use units::Instant;

/// Reads to the end; the number of frames.
fn drain(bytes: &[u8]) -> usize {
    let Ok(mut reader) = Reader::new(bytes) else { return 0 };
    let mut decoder = Decoder::new();
    let mut count = 0;
    while let Ok(Some(frame)) = reader.next_frame() {
        decoder.decode(&frame);
        assert!(
            frame.data.len() <= bytes.len() * 2000,
            "a frame larger than the file, even packed"
        );
        assert!(frame.wire_len as usize >= frame.data.len());
        count += 1;
    }
    count
}

/// Failing inputs are kept beside this file.
fn config() -> ProptestConfig {
    let failure_persistence =
        Some(Box::new(FileFailurePersistence::WithSource("regressions")) as _);
    ProptestConfig { failure_persistence, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_bytes_behind_any_magic_are_read_without_panic(
        magic in prop::sample::select(vec![
            vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0],
            vec![0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 2],
            vec![0xa1, 0xb2, 0xcd, 0x34, 0, 2, 0, 4],
            vec![0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a],
            vec![0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d],
            vec![0x1f, 0x8b, 8, 0],
            vec![0x28, 0xb5, 0x2f, 0xfd],
            vec![],
        ]),
        tail in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        drain(&[magic, tail].concat());
    }

    #[test]
    fn pcapng_blocks_of_any_content_are_read_without_panic(
        blocks in proptest::collection::vec((0_u32..8, proptest::collection::vec(any::<u8>(), 0..80)), 0..12),
    ) {
        let mut file = Writer::new(Vec::new(), 1, &["eth0"])?.finish()?;
        for (kind, mut body) in blocks {
            body.resize(body.len().next_multiple_of(4), 0);
            let total = body.len() as u32 + 12;
            file.extend(kind.to_le_bytes());
            file.extend(total.to_le_bytes());
            file.extend(body);
            file.extend(total.to_le_bytes());
        }
        drain(&file);
    }

    #[test]
    fn what_was_written_comes_back(
        packets in proptest::collection::vec(
            (any::<u32>(), 0_u64..4_000_000_000_000_000_000, proptest::collection::vec(any::<u8>(), 0..200)),
            0..20,
        ),
        linktype in any::<u16>(),
        plain in any::<bool>(),
    ) {
        let mut writer =
            if plain { Writer::pcap(Vec::new(), linktype)? } else { Writer::new(Vec::new(), linktype, &[])? };
        for (wire, time, data) in &packets {
            writer.write(Instant(*time), data, *wire)?;
        }
        let file = writer.finish()?;
        let mut reader = Reader::new(&file[..])?;
        for (wire, time, data) in &packets {
            let frame = reader.next_frame()?.expect("as many frames as were written");
            prop_assert_eq!(frame.time, Instant(*time));
            prop_assert_eq!(frame.linktype, linktype);
            prop_assert_eq!(frame.wire_len, (*wire).max(data.len() as u32));
            prop_assert_eq!(frame.data, &data[..]);
        }
        prop_assert!(reader.next_frame()?.is_none());
    }
}
