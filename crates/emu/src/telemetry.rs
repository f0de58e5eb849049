//! The modem's reports on a local socket: what an agent on the phone reads.
//!
//! When a report reaches the kernel of the phone, every program connected to a Unix socket of type
//! SOCK_SEQPACKET gets a record. A program that does not read misses records. A record has 48
//! bytes, little endian:
//!
//! | offset | type | |
//! |---|---|---|
//! | 0 | u32 | 0x4d544255, `UBTM` |
//! | 4 | u16 | version, 1 |
//! | 6 | u16 | node |
//! | 8 | u64 | number of the report, from 0 |
//! | 16 | u64 | when the modem wrote it, CLOCK_MONOTONIC in ns |
//! | 24 | u64 | bytes in the firmware buffer then (upper edge of the level in a buffer status
//!   report) |
//! | 32 | u64 | bytes granted by the base station since the report before |
//! | 40 | u64 | of them, filled with padding |

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen, send,
    socket,
};
use std::os::fd::FromRawFd;

/// First four bytes of a record.
pub const MAGIC: u32 = u32::from_le_bytes(*b"UBTM");
/// Version of the record.
pub const VERSION: u16 = 1;
/// Bytes of a record.
pub const LENGTH: usize = 48;

/// The socket, and the programs connected to it.
pub struct Telemetry {
    node: u16,
    socket: OwnedFd,
    path: PathBuf,
    readers: Vec<OwnedFd>,
    sent: u64,
}

impl Telemetry {
    /// Listens at a path; an older file there is a leftover and removed.
    pub fn listen(path: &Path, node: u16) -> io::Result<Telemetry> {
        if path.exists() {
            std::fs::remove_file(path)?;
        }
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        listen(&socket, Backlog::new(8)?)?;
        Ok(Telemetry { node, socket, path: path.to_owned(), readers: Vec::new(), sent: 0 })
    }

    /// Sends a report to all connected readers.
    pub fn send(&mut self, written_ns: u64, [occupancy, granted, padding]: [u64; 3]) {
        self.accept_readers();
        let record = record(self.node, self.sent, [written_ns, occupancy, granted, padding]);
        self.sent += 1;
        self.readers.retain(|reader| {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            !matches!(send(reader.as_raw_fd(), &record, flags), Err(error) if error != nix::errno::Errno::EAGAIN)
        });
    }

    #[allow(unsafe_code)]
    fn accept_readers(&mut self) {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        while let Ok(fd) = accept4(self.socket.as_raw_fd(), flags) {
            // SAFETY: accept4 returns a new descriptor that nothing else owns.
            self.readers.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // It may have been removed with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn record(node: u16, number: u64, fields: [u64; 4]) -> [u8; LENGTH] {
    let mut record = [0; LENGTH];
    record[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    record[4..6].copy_from_slice(&VERSION.to_le_bytes());
    record[6..8].copy_from_slice(&node.to_le_bytes());
    record[8..16].copy_from_slice(&number.to_le_bytes());
    for (to, field) in record[16..].chunks_exact_mut(8).zip(fields) {
        to.copy_from_slice(&field.to_le_bytes());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{connect, recv};

    #[test]
    fn a_connected_client_reads_every_report_and_may_leave() {
        let dir = std::env::temp_dir().join(format!("unbloat-telemetry-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory of our own");
        let path = dir.join("telemetry.sock");
        let mut telemetry = Telemetry::listen(&path, 3).expect("a socket");
        telemetry.send(1, [0, 0, 0]);
        let reader = || {
            let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None)
                .expect("a socket");
            connect(fd.as_raw_fd(), &UnixAddr::new(&path).expect("short")).expect("it listens");
            fd
        };
        let (one, two) = (reader(), reader());
        telemetry.send(77, [1_500, 2_000, 3]);
        drop(two);
        telemetry.send(78, [0, 0, 0]);
        telemetry.send(79, [0, 0, 0]);
        let mut bytes = [0; 100];
        assert_eq!(recv(one.as_raw_fd(), &mut bytes, MsgFlags::empty()), Ok(LENGTH));
        assert_eq!(bytes[..LENGTH], record(3, 1, [77, 1_500, 2_000, 3]));
        assert_eq!(&bytes[..4], b"UBTM");
        drop(telemetry);
        assert!(!path.exists());
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
