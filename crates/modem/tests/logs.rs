//! Public logs of phones: every record is read to its last byte. `UNBLOAT_MODEM_LOGS` names their folder, or they are in
//! `modem-logs` of the folder that `UNBLOAT_SHARED` names; without them these tests are skipped.
//!
//! They are examples/logs and unit-test/test-logs of mobile-insight/mobileinsight-core, commit 4330fa9.

use std::collections::BTreeMap;
use std::path::PathBuf;

use modem::contents::{Contents, parts};
use modem::stream::{Event, Format, Stream};
use modem::timeline::timeline;

/// Records by code and version, entries of them, damaged frames.
type Counts = (BTreeMap<(u16, u32), (usize, usize)>, usize);

fn folder() -> Option<PathBuf> {
    let shared = || Some(PathBuf::from(std::env::var_os("UNBLOAT_SHARED")?).join("modem-logs"));
    let folder = std::env::var_os("UNBLOAT_MODEM_LOGS").map(PathBuf::from).or_else(shared)?;
    folder.is_dir().then_some(folder)
}

/// A log; `None`, with a line that says so, where it is absent.
fn log(name: &str) -> Option<Vec<u8>> {
    let bytes = folder().and_then(|folder| std::fs::read(folder.join(name)).ok());
    if bytes.is_none() {
        eprintln!("skipped: no {name} in UNBLOAT_MODEM_LOGS or UNBLOAT_SHARED/modem-logs");
    }
    bytes
}

/// Counts of a log.
fn counts(name: &str) -> Option<Counts> {
    let bytes = log(name)?;
    let (mut read, mut damaged) = (BTreeMap::new(), 0);
    let mut stream = Stream::new(Format::of(&bytes).expect("a log"));
    for piece in bytes.chunks(4_096) {
        stream.push(piece, &mut |event| match event {
            Event::Record(record) => {
                for part in parts(&record) {
                    let (contents, _) = part.contents.expect("a known layout that fits");
                    let of = read.entry((record.code, part.version)).or_insert((0, 0));
                    of.0 += 1;
                    of.1 += match contents {
                        Contents::Buffer { samples } => samples.len(),
                        Contents::Blocks { blocks } => blocks.len(),
                        Contents::Pusch { transmissions, .. } => transmissions.len(),
                        other => panic!("{other:?}"),
                    };
                }
            }
            Event::Other(_) => {}
            Event::Damage(_) => damaged += 1,
        });
    }
    assert_eq!(stream.pending(), 0);
    Some((read, damaged))
}

#[test]
fn a_log_of_probes_has_buffers_and_transmissions() {
    let Some(found) = counts("latency_sample.mi2log") else { return };
    let expected = [((0xb066, 24), (1_461, 58_440)), ((0xb139, 102), (1_169, 1_193))];
    assert_eq!(found, (expected.into(), 0));
}

#[test]
fn logs_of_older_phones_have_transport_blocks() {
    if let Some(found) = counts("tmobile.mi2log") {
        assert_eq!(found, ([((0xb064, 1), (100, 546))].into(), 0));
    }
    if let Some(found) = counts("att.mi2log") {
        assert_eq!(found, ([((0xb064, 1), (86, 930))].into(), 0));
    }
    if let Some(found) = counts("att-iphone.mi2log") {
        let expected = [((0xb064, 1), (3, 11)), ((0xb066, 3), (12, 480)), ((0xb139, 43), (9, 11))];
        assert_eq!(found, (expected.into(), 0));
    }
}

#[test]
fn damage_is_counted_and_does_not_end_a_log() {
    // Its recorder began within a frame.
    if let Some(found) = counts("cmcc.mi2log") {
        assert_eq!(found, ([].into(), 1));
    }
}

#[test]
fn the_buffer_falls_when_a_block_leaves_it() {
    let Some(bytes) = log("latency_sample.mi2log") else { return };
    let found = timeline(&bytes).unwrap();
    let falls: Vec<i64> = found
        .buffer
        .windows(2)
        .filter(|pair| pair[1].bytes < pair[0].bytes)
        .map(|pair| pair[1].at_ns)
        .collect();
    let distance = |at_ns: i64| {
        let next = falls.partition_point(|fall| *fall < at_ns);
        let near = [next.checked_sub(1), Some(next)].into_iter().flatten();
        near.filter_map(|place| falls.get(place)).map(|fall| fall.abs_diff(at_ns)).min()
    };
    let new: Vec<i64> =
        found.grants.iter().filter(|g| g.retransmission == 0).map(|g| g.at_ns).collect();
    let close = new.iter().filter(|at| distance(**at).is_some_and(|ns| ns <= 2_500_000)).count();
    // 1,004 of 1,124; the others carried what came in the same TTI, or padding alone.
    assert!(close * 10 > new.len() * 8, "{close} of {}", new.len());
}
