//! A driver of the lab's tests: a modem with a DIAG port whose records are made of the emulator's reports.
//!
//! `played TELEMETRY BATCH_MS blocks|buffer` reads the socket of `unbloat-emu`, and writes the port's name to its output.
//! Each BATCH_MS it closes a record with all that was reported since; 0: each report is a record. `blocks`: 0xB064, a
//! transport block per report, at the time of the report. `buffer`: 0xB139 with the same blocks, then 0xB066, as old as
//! its newest sample. Ends with its input.

mod fake;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use fake::Modem;
use modem::contents::{Block, Channel, Sample};
use modem::hdlc::frame;
use modem::layout;
use modem::log_config::Mask;
use modem::mac::{Report, bytes_of};
use modem::time::{ModemTime, Tti};
use modem::written;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, socket,
};
use nix::time::{ClockId, clock_gettime};

/// The modem's clock is ahead of this host's.
const MODEM_NS: u64 = 1_300_000_000_000_000_000;
/// Transmissions in one record of 0xB139.
const MAX_SENT: usize = 31;

/// A report of the emulator.
#[derive(Clone, Copy)]
struct Reported {
    at_ns: u64,
    occupancy: u64,
    granted: u16,
    padding: u16,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, telemetry, batch, kind] = &arguments[..] else {
        eprintln!("usage: played TELEMETRY BATCH_MS blocks|buffer");
        std::process::exit(2);
    };
    let batch_ns = batch.parse::<u64>().expect("milliseconds") * 1_000_000;
    let reports = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None)
        .expect("a socket");
    let address = UnixAddr::new(telemetry.as_str()).expect("a short path");
    connect(reports.as_raw_fd(), &address).expect("the emulator's socket");
    let mut modem = Modem::new(Mask::default());
    println!("{}", modem.path.display());
    let (mut waiting, mut due_ns) = (Vec::new(), now_ns() + batch_ns);
    loop {
        let left = Duration::from_nanos(due_ns.saturating_sub(now_ns()));
        match wait(&modem, &reports, left) {
            [true, _, _] => break,
            [_, true, _] => modem.answer(Duration::ZERO),
            [_, _, true] => match report(&reports) {
                Some(report) => waiting.push(report),
                None => break,
            },
            _ => {}
        }
        if now_ns() < due_ns || waiting.is_empty() {
            continue;
        }
        let closed_ns = now_ns();
        let frames = if kind == "blocks" { blocks(&waiting, closed_ns) } else { buffer(&waiting) };
        // As a modem that is not asked for records.
        if !modem.mask.codes().is_empty() && modem.send(&frames).is_err() {
            break;
        }
        waiting.clear();
        // On a fixed grid; without a batch always.
        due_ns = closed_ns.checked_div(batch_ns).map_or(0, |batches| (batches + 1) * batch_ns);
    }
}

/// Waits for the end of the input, a request, a report, or the end of a batch.
fn wait(modem: &Modem, reports: &OwnedFd, left: Duration) -> [bool; 3] {
    let input = io::stdin();
    let mut waiting = [input.as_fd(), modem.master.as_fd(), reports.as_fd()]
        .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    // Rounded up: a wait of 0 ms again and again would take a processor. Without a batch a report wakes it.
    let timeout = match left.as_nanos() {
        0 => PollTimeout::from(100_u8),
        ns => PollTimeout::try_from(ns.div_ceil(1_000_000) as i32).unwrap_or(PollTimeout::MAX),
    };
    poll(&mut waiting, timeout).expect("poll");
    waiting.map(|one| one.revents().is_some_and(|events| !events.is_empty()))
}

fn report(reports: &OwnedFd) -> Option<Reported> {
    let mut bytes = [0; 64];
    let length = recv(reports.as_raw_fd(), &mut bytes, MsgFlags::empty()).ok()?;
    assert!(length == 0 || (length, &bytes[..4]) == (48, b"UBTM"), "a report of the emulator");
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let short = |at| u16::try_from(long(at)).unwrap_or(u16::MAX);
    let read =
        Reported { at_ns: long(16), occupancy: long(24), granted: short(32), padding: short(40) };
    (length > 0).then_some(read)
}

/// 0xB064, closed now.
fn blocks(reports: &[Reported], closed_ns: u64) -> Vec<u8> {
    let block = |one: &Reported| Block {
        tti: Some(tti(one.at_ns)),
        granted: one.granted,
        padding: one.padding.min(one.granted),
        report: Some(Report::Short(2, level(one.occupancy))),
    };
    let blocks: Vec<Block> = reports.iter().map(block).collect();
    message(layout::BLOCKS, closed_ns, &written::blocks(5, &blocks))
}

/// 0xB139 and 0xB066, closed with the last report.
fn buffer(reports: &[Reported]) -> Vec<u8> {
    let last = reports[reports.len() - 1];
    let sent: Vec<(u16, u8)> =
        reports.iter().filter(|one| one.granted > 0).map(|one| (one.granted, 0)).collect();
    let bytes = u32::try_from(last.occupancy).unwrap_or(u32::MAX);
    let channel = Channel { lcid: 3, priority: 9, compressed: bytes, ..Channel::default() };
    let sample = Sample { tti: Some(tti(last.at_ns)), channels: vec![channel] };
    let sent = sent.chunks(MAX_SENT).map(written::pusch);
    let mut frames: Vec<u8> =
        sent.flat_map(|payload| message(layout::PUSCH, last.at_ns, &payload)).collect();
    frames.extend(message(layout::BUFFER, last.at_ns, &written::buffer(24, &[sample])));
    frames
}

fn message(code: u16, at_ns: u64, payload: &[u8]) -> Vec<u8> {
    frame(&written::message(code, ModemTime::from_ns(MODEM_NS + at_ns), payload))
}

/// Frame numbers begin with the host's clock.
fn tti(at_ns: u64) -> Tti {
    let ms = at_ns / 1_000_000;
    Tti { sfn: (ms / 10 % 1_024) as u16, subframe: (ms % 10) as u8 }
}

/// The level whose upper edge the emulator has reported.
fn level(bytes: u64) -> u8 {
    (0..63).find(|level| bytes_of(*level) >= bytes).unwrap_or(63)
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    Duration::from(now).as_nanos() as u64
}
