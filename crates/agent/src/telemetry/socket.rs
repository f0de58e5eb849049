//! Reports from a Unix socket of type SOCK_SEQPACKET, one record per message. There are two kinds
//! of record, which differ in their first four bytes.
//!
//! The lab's emulator sends them, and `unbloat-modem serve`, which reads a modem's log.
//!
//! **`UBTM`, version 1, 48 bytes**, a finished report. Little endian:
//!
//! | offset | type | |
//! |---|---|---|
//! | 0 | 4 bytes | `UBTM` |
//! | 4 | u16 | version, 1 |
//! | 6 | u16 | source: ignored |
//! | 8 | u64 | number of the report |
//! | 16 | u64 | time for which it is valid, CLOCK_MONOTONIC, ns |
//! | 24 | u64 | bytes in the buffer then |
//! | 32 | u64 | bytes granted since the report before |
//! | 40 | u64 | of them, padding |
//!
//! **`UBTB`, version 1, 32 bytes**, what the diagnostic log of an LTE modem says of one transport
//! block of the uplink (grant, padding, and the buffer status report where it carried one). Its
//! fields are copied, and the modem's time is converted.
//! Little endian:
//!
//! | offset | type | |
//! |---|---|---|
//! | 0 | 4 bytes | `UBTB` |
//! | 4 | u16 | version, 1 |
//! | 6 | u8 | 1: the next four bytes are a buffer status report; 0: it carried none |
//! | 7 | u8 | padding |
//! | 8 | 4 × u8 | levels of the four logical channel groups, 0 … 63 (3GPP TS 36.321 table 6.1.3.1-1) |
//! | 12 | u32 | padding |
//! | 16 | u64 | time of the block, CLOCK_MONOTONIC, ns |
//! | 24 | u32 | bytes granted |
//! | 28 | u32 | of them, padding |
//!
//! Blocks are summed up until one carries a report of the buffer. A level is taken for its upper
//! edge, the last for 150 KB, as the base station has to.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use algo::link::grants::LEVELS;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, socket,
};

use super::{Grade, Report, Source};

/// Interval between two attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// Reports from a Unix socket, in the two records of the table above.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    socket: Option<OwnedFd>,
    /// Sums over blocks since the last report of the buffer: granted, padding.
    blocks: (u64, u64),
}

impl Socket {
    /// Reads a socket, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Socket {
        Socket { path: path.into(), socket: None, blocks: (0, 0) }
    }

    fn connected(&mut self) -> io::Result<&OwnedFd> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let flags = SockFlag::SOCK_CLOEXEC;
                let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
                connect(socket.as_raw_fd(), &UnixAddr::new(&self.path)?)?;
                // Sums from before a disconnection cover an unknown time.
                self.blocks = (0, 0);
                socket
            }
        };
        Ok(self.socket.insert(socket))
    }

    /// Decodes a record: the report that it is or completes; none if it is a block without a report
    /// of the buffer.
    pub fn record(&mut self, bytes: &[u8]) -> io::Result<Option<Report>> {
        match (bytes.get(..4), bytes.get(4..6), bytes.len()) {
            (Some(b"UBTM"), Some([1, 0]), 48) => Ok(Some(Report {
                at_ns: long(bytes, 16),
                occupancy: long(bytes, 24),
                granted: long(bytes, 32),
                padding: long(bytes, 40),
            })),
            (Some(b"UBTB"), Some([1, 0]), 32) => {
                let (granted, padding) = (word(bytes, 24), word(bytes, 28).min(word(bytes, 24)));
                let sums = (&mut self.blocks.0, &mut self.blocks.1);
                *sums.0 = sums.0.saturating_add(granted.into());
                *sums.1 = sums.1.saturating_add(padding.into());
                if bytes[6] != 1 {
                    return Ok(None);
                }
                let (granted, padding) = std::mem::take(&mut self.blocks);
                let occupancy = bytes[8..12].iter().map(|level| edge(*level)).sum();
                Ok(Some(Report { at_ns: long(bytes, 16), occupancy, granted, padding }))
            }
            _ => {
                let what = format!("{} bytes that are no record of ours", bytes.len());
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
        }
    }
}

/// Upper edge of a buffer-status level, bytes.
fn edge(level: u8) -> u64 {
    LEVELS.get(usize::from(level)).or(LEVELS.last()).map_or(0, |edge| u64::from(*edge))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Source for Socket {
    fn name(&self) -> String {
        self.path.display().to_string()
    }
    fn grade(&self) -> Grade {
        Grade::Modem
    }

    fn next(&mut self, timeout: Duration) -> io::Result<Option<Report>> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let socket = match self.connected() {
                Ok(socket) => socket,
                Err(error) => {
                    std::thread::sleep(RECONNECT_INTERVAL.min(left));
                    return Err(error);
                }
            };
            let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            let poll_timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            if poll(&mut waiting, poll_timeout)? == 0 {
                return Ok(None);
            }
            let mut bytes = [0; 64];
            let read = recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT);
            let length = match read {
                Ok(0) => {
                    self.socket = None;
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Ok(length) => length,
                Err(error) => {
                    self.socket = None;
                    return Err(error.into());
                }
            };
            // A block without a report of the buffer is not a report yet.
            match self.record(&bytes[..length]) {
                Ok(None) => {}
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(at_ns: u64, levels: Option<[u8; 4]>, granted: u32, padding: u32) -> Vec<u8> {
        let mut bytes = b"UBTB\x01\0".to_vec();
        bytes.extend([levels.is_some().into(), 0]);
        bytes.extend(levels.unwrap_or([200; 4]));
        bytes.extend([0; 4]);
        bytes.extend(at_ns.to_le_bytes());
        bytes.extend(granted.to_le_bytes());
        bytes.extend(padding.to_le_bytes());
        bytes
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut bytes = b"UBTM\x01\0\x03\0".to_vec();
        for field in [9_u64, 77, 1_500, 2_000, 3] {
            bytes.extend(field.to_le_bytes());
        }
        let report = Socket::new("/nowhere").record(&bytes).unwrap();
        assert_eq!(
            report,
            Some(Report { at_ns: 77, occupancy: 1_500, granted: 2_000, padding: 3 })
        );
    }

    #[test]
    fn transport_blocks_are_summed_up_until_one_reports_the_buffer() {
        let mut source = Socket::new("/nowhere");
        assert_eq!(source.record(&block(1, None, 1_000, 0)).unwrap(), None);
        assert_eq!(source.record(&block(2, None, 500, 600)).unwrap(), None);
        let report = source.record(&block(3, Some([0, 1, 0, 63]), 10, 1)).unwrap().unwrap();
        // 3GPP TS 36.321 table 6.1.3.1-1: level 1 ends at 10 bytes; the last, open, is taken for
        // 150,000.
        assert_eq!(report, Report { at_ns: 3, occupancy: 150_010, granted: 1_510, padding: 501 });
        let report = source.record(&block(4, Some([0; 4]), 20, 20)).unwrap().unwrap();
        assert_eq!(report, Report { at_ns: 4, occupancy: 0, granted: 20, padding: 20 });
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let mut source = Socket::new("/nowhere");
        for wrong in [&b""[..], b"UBTM", b"UBTM\x01\0", &[0; 48], &[255; 64]] {
            assert!(source.record(wrong).is_err(), "{wrong:?}");
        }
        let mut newer = block(1, None, 1, 0);
        newer[4] = 2;
        assert!(source.record(&newer).is_err());
    }

    #[test]
    fn a_missing_source_is_an_error_and_waits_no_longer_than_the_timeout() {
        let mut source = Socket::new("/nowhere/telemetry.sock");
        let begun = Instant::now();
        assert!(source.next(Duration::from_millis(10)).is_err());
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
