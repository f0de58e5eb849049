//! What `unbloat-modem` reads from others: a log of a modem, or what its port sends.
//!
//! signal: bytes · model: the readers of the crate, on bytes alone · action: panics where one of them breaks a promise
//! that its caller leans on.
//!
//! Also compiled into `crates/modem/tests/any_bytes.rs`; so it needs nothing but `modem`.

use std::sync::atomic::{AtomicU64, Ordering};

use modem::contents::{Contents, parts};
use modem::hdlc::Deframer;
use modem::host_clock::fit;
use modem::layout::{CODES, layout};
use modem::log_config::{Mask, Request};
use modem::message::Record;
use modem::reports::{Out, Reports};
use modem::stream::{Damage, Event, Format, Stream};
use modem::summary::Summary;
use modem::timeline::{Moved, timeline};

/// Longest log whose clock is fitted.
const MAX_FITTED_NS: i64 = 60_000_000_000;

/// Frames and records read so far, of whole inputs.
static FRAMES: AtomicU64 = AtomicU64::new(0);
/// They are printed each time so many more were read.
const PRINTED_EVERY: u64 = 100_000;

fn count(frames: u64) {
    let before = FRAMES.fetch_add(frames, Ordering::Relaxed);
    let printed = |frames: u64| frames / PRINTED_EVERY;
    if printed(before + frames) > printed(before) {
        eprintln!("frames: {}", printed(before + frames) * PRINTED_EVERY);
    }
}

/// The first byte: the format, and how long the pieces are. The rest is the stream. How it is cut changes nothing; a
/// record is a part of what came; contents have no more entries than bytes, and a version with a row.
pub fn diag(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let _ = Format::of(bytes);
    let format = if kind & 1 == 0 { Format::Frames } else { Format::Records };
    let whole = events(format, bytes, bytes.len().max(1));
    let cut = events(format, bytes, usize::from(kind / 2) + 1);
    assert_eq!(whole, cut, "how a stream is cut changes nothing");
    count(whole.0);
    if let Ok(log) = timeline(bytes) {
        assert!(log.buffer.is_sorted_by_key(|sample| sample.at_ns));
        assert!(log.grants.is_sorted_by_key(|grant| grant.at_ns));
        let sent: Vec<Moved> =
            log.buffer.iter().map(|s| Moved { at_ns: s.at_ns, bytes: s.bytes }).collect();
        // All offsets of a log of hours take seconds.
        let span = |(first, last): (&Moved, &Moved)| last.at_ns - first.at_ns;
        if sent.first().zip(sent.last()).map(span).is_some_and(|ns| ns < MAX_FITTED_NS) {
            let _ = fit(&sent, &log.buffer, &log.left());
        }
    }
    port(bytes, u64::from(*kind) * 1_000_000);
}

/// What a port sends, as `serve` takes it: answers about the log mask, and records that arrive so far apart. A mask has
/// no more codes than there are, and is put back without what came on top; datagrams are as long as the agent has them.
fn port(bytes: &[u8], apart_ns: u64) {
    let (mut reports, mut arrived_ns, mut notices) = (Reports::default(), 1 << 40, 0);
    Deframer::default().push(bytes, &mut |framed| {
        let Ok(message) = framed else { return };
        let set = Request::Set(Mask::default().with([0xb066]));
        for request in [Request::Read, set].into_iter().chain(Request::of_message(message)) {
            assert_eq!(Request::of_message(&request.message()).as_ref(), Some(&request));
            if let Some(Ok(mask)) = request.answered(message) {
                assert!(mask.codes().iter().all(|code| code >> 12 == 0xb));
                let during = mask.with([0xb881]);
                assert!(during.codes().contains(&0xb881));
                assert_eq!(mask.over(&during).codes(), mask.codes());
            }
        }
        let Some(record) = Record::of_message(message) else { return };
        arrived_ns += apart_ns;
        reports.record(arrived_ns, &record, &mut |out| match out {
            Out::Datagram(datagram) => assert!(matches!(
                (&datagram[..6], datagram.len()),
                (b"UBTB\x01\0", 32) | (b"UBTM\x01\0", 48)
            )),
            Out::Notice(text) => {
                assert!(text.lines().count() == 1 && text.len() < 200);
                notices += 1;
            }
        });
        assert!(notices <= bytes.len());
    });
}

/// What a stream contains, in text, and its end.
fn events(format: Format, bytes: &[u8], piece: usize) -> (u64, String, usize) {
    let (mut stream, mut summary, mut count) = (Stream::new(format), Summary::default(), 0);
    for piece in bytes.chunks(piece) {
        stream.push(piece, &mut |event| {
            count += 1;
            let found = match &event {
                Event::Record(record) => {
                    assert!(record.payload.len() <= bytes.len());
                    parts(record)
                }
                Event::Damage(damage) => {
                    let of_file = matches!(damage, Damage::Length(_));
                    assert_eq!(of_file, format == Format::Records);
                    assert!(!damage.to_string().is_empty());
                    Vec::new()
                }
                Event::Other(_) => Vec::new(),
            };
            if let Event::Record(record) = &event {
                let is_known = CODES.iter().any(|(code, _)| *code == record.code);
                assert!(is_known || found.is_empty());
                for part in &found {
                    if let Ok((contents, _)) = &part.contents {
                        assert!(layout(record.code, part.version).is_some());
                        check(contents, record.payload.len());
                    }
                }
            }
            summary.add(&event, &found);
        });
    }
    let pending = stream.pending();
    assert!(pending <= bytes.len());
    assert!(summary.text().lines().all(|line| line.len() < 120));
    (count, summary.json().to_string(), pending)
}

fn check(contents: &Contents, length: usize) {
    match contents {
        Contents::Buffer { samples } => {
            assert!(3 * samples.len() <= length);
            let channels: usize = samples.iter().map(|sample| sample.channels.len()).sum();
            assert!(12 * channels <= length);
        }
        Contents::Blocks { blocks } => {
            assert!(12 * blocks.len() <= length);
            let levels = blocks.iter().filter_map(|block| block.report);
            assert!(levels.flat_map(|report| report.levels([0; 4])).all(|level| level < 64));
        }
        Contents::Pusch { transmissions, .. } => assert!(64 * transmissions.len() <= length),
        Contents::NrBlocks { nr_blocks } => assert!(20 * nr_blocks.len() <= length),
        Contents::NrReports { nr_reports } => assert!(16 * nr_reports.len() <= length),
        Contents::NrTotals { nr_totals } => assert!(92 * nr_totals.len() <= length),
    }
}
