//! Keeps the packets of a test: their headers, as pcapng, for `unbloat analyze`.
//!
//! A packet socket receives what passes this host's devices; what is neither from nor to the server is left out here. It
//! has no filter in the kernel, which safe code cannot set, so other traffic of the host costs its time as well.
//!
//! A bond and its members, or a bridge and its ports, each show a packet. So each direction is taken from the device on
//! which it was first seen.

use std::fs::File;
use std::io::{self, BufWriter, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use capture::write::Writer;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimeout, ReceiveTimestampns};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, getsockopt, recvmsg,
    setsockopt, socket,
};
use nix::sys::time::{TimeSpec, TimeVal};
use nix::{getsockopt_impl, sockopt_impl};
use units::Instant;

use super::prober::LOOK;
use crate::seen::Recorded;
use crate::socket::stamp;

/// Bytes of each packet, as `unbloat record` keeps: IPv6 and TCP with all options, or a whole probe.
const SNAP: usize = 128;
/// Most bytes of a file: 1.5 million packets, three times a full test at 100 Mbit/s.
const MAX_BYTES: u64 = 256 << 20;
/// Of a record besides its packet: block type, two lengths, interface, time, two lengths, padding.
const RECORD_BYTES: u64 = 35;
/// What waits in the kernel: some tenths of a second at a gigabit per second.
const BUFFER: usize = 32 << 20;
/// Link type of packets without a link layer, LINKTYPE_RAW.
const RAW: u16 = 101;
/// `PACKET_OUTGOING` of `linux/if_packet.h`.
const OUTGOING: u8 = 4;

sockopt_impl!(
    /// `struct tpacket_stats`: packets and drops since it was last read.
    PacketStatistics,
    GetOnly,
    libc::SOL_PACKET,
    libc::PACKET_STATISTICS,
    [u8; 8]
);

/// Why nothing can be captured.
#[derive(Debug, thiserror::Error)]
pub enum NoCapture {
    /// This user may not.
    #[error("--capture needs root or CAP_NET_RAW: use sudo")]
    NotPermitted,
    /// No packet socket.
    #[error("--capture: no packet socket: {0}")]
    Socket(Errno),
    /// No file.
    #[error("{file}: {kind}")]
    File {
        /// Which.
        file: String,
        /// Why.
        kind: io::ErrorKind,
    },
}

/// A capture that may begin.
pub struct Recorder {
    socket: OwnedFd,
    file: File,
}

/// A capture that runs.
pub struct Recording {
    /// On CLOCK_REALTIME, as the kernel's stamps.
    end_ns: Arc<AtomicU64>,
    thread: thread::JoinHandle<Recorded>,
}

impl Recorder {
    /// Checks rights, and makes the file.
    pub fn open(path: &Path) -> Result<Recorder, NoCapture> {
        let socket = socket(
            AddressFamily::Packet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )
        .map_err(|e| match e {
            Errno::EPERM => NoCapture::NotPermitted,
            other => NoCapture::Socket(other),
        })?;
        let prepared = setsockopt(&socket, ReceiveTimestampns, &true).and_then(|()| {
            let wait = TimeVal::new(0, LOOK.as_micros() as i64);
            setsockopt(&socket, ReceiveTimeout, &wait)
        });
        prepared.map_err(NoCapture::Socket)?;
        // Beyond the system's limit where it is allowed.
        if setsockopt(&socket, RcvBufForce, &BUFFER).is_err() {
            let _ = setsockopt(&socket, RcvBuf, &BUFFER);
        }
        let failed =
            |e: io::Error| NoCapture::File { file: path.display().to_string(), kind: e.kind() };
        let file = File::create(path).map_err(failed)?;
        // A file made with sudo belongs to who called sudo.
        let id = |name| std::env::var(name).ok().and_then(|id| id.parse().ok());
        if let (Some(user), Some(group)) = (id("SUDO_UID"), id("SUDO_GID")) {
            // Without the right to give it away it stays root's.
            let _ = fchown(&file, Some(user), Some(group));
        }
        Ok(Recorder { socket, file })
    }

    /// Captures from now on what is from or to an address.
    pub fn begin(self, server: IpAddr) -> Recording {
        // Reading them sets them back: what was dropped before is of no test.
        let _ = getsockopt(&self.socket, PacketStatistics);
        let end_ns = Arc::new(AtomicU64::new(u64::MAX));
        let until = Arc::clone(&end_ns);
        Recording { end_ns, thread: thread::spawn(move || self.run(server, &until)) }
    }

    fn run(self, server: IpAddr, end_ns: &AtomicU64) -> Recorded {
        let mut recorded = Recorded::default();
        if let Err(e) = self.write(server, end_ns, &mut recorded) {
            recorded.failed = Some(e.kind().to_string());
        }
        recorded
    }

    fn write(self, server: IpAddr, end_ns: &AtomicU64, to: &mut Recorded) -> io::Result<()> {
        let mut out = Writer::new(BufWriter::new(self.file), RAW, &[])?;
        let (mut buffer, mut bytes, mut devices) = ([0; SNAP], 0, [None, None]);
        let mut control = nix::cmsg_space!(TimeSpec);
        loop {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let message = match recvmsg::<LinkAddr>(
                self.socket.as_raw_fd(),
                &mut parts,
                Some(&mut control),
                // The length of the whole packet.
                MsgFlags::MSG_TRUNC,
            ) {
                Ok(message) => message,
                // What had arrived by the end has been read.
                Err(Errno::EAGAIN) if end_ns.load(Relaxed) != u64::MAX => break,
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                // A device that goes away.
                Err(Errno::ENETDOWN) => continue,
                Err(e) => return Err(e.into()),
            };
            let (length, from) = (message.bytes, message.address);
            let stamp = stamp(&message)?;
            // On a busy host the next packet is always there already.
            if stamp.is_some_and(|stamp| stamp.as_nanos() as u64 >= end_ns.load(Relaxed)) {
                break;
            }
            let data = &buffer[..length.min(SNAP)];
            let (Some(stamp), Some(from), Some((source, target))) = (stamp, from, ends(data))
            else {
                continue;
            };
            let way = usize::from(target == server);
            if (source != server && target != server)
                || (from.hatype() == libc::ARPHRD_LOOPBACK && from.pkttype() == OUTGOING)
                || *devices[way].get_or_insert(from.ifindex()) != from.ifindex()
            {
                continue;
            }
            bytes += data.len() as u64 + RECORD_BYTES;
            if bytes > MAX_BYTES {
                to.left_out += 1;
                continue;
            }
            out.write(Instant(stamp.as_nanos() as u64), data, length as u32)?;
            to.packets += 1;
        }
        let mut four = [0; 4];
        if let Ok(counts) = getsockopt(&self.socket, PacketStatistics) {
            four.copy_from_slice(&counts[4..]);
        }
        to.dropped = u64::from(u32::from_ne_bytes(four));
        out.report_drops(0, to.dropped)?;
        out.finish().map(drop)
    }
}

impl Recording {
    /// Ends it.
    pub fn end(self) -> Recorded {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.end_ns.store(now.as_nanos() as u64, Relaxed);
        let broke = |_| Recorded { failed: Some("it broke".to_owned()), ..Recorded::default() };
        self.thread.join().unwrap_or_else(broke)
    }
}

/// Source and destination of an IP packet.
fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok().map(Ipv4Addr::from);
    let v6 = |at: usize| <[u8; 16]>::try_from(packet.get(at..at + 16)?).ok().map(Ipv6Addr::from);
    match packet.first()? >> 4 {
        4 => Some((v4(12)?.into(), v4(16)?.into())),
        6 => Some((v6(8)?.into(), v6(24)?.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_packet_are_read_and_a_short_one_has_none() {
        let mut four = [0; 20];
        four[0] = 0x45;
        four[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let ends_of_four = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(ends(&four), Some(ends_of_four));
        assert_eq!(ends(&four[..19]), None);
        let mut six = [0; 40];
        six[0] = 0x60;
        (six[23], six[39]) = (1, 2);
        let ends_of_six = ("::1".parse().unwrap(), "::2".parse().unwrap());
        assert_eq!(ends(&six), Some(ends_of_six));
        assert_eq!((ends(&six[..39]), ends(&[]), ends(&[0x20; 64])), (None, None, None));
    }
}
