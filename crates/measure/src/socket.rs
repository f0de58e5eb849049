//! What is set and read of the kernel's sockets: times of arrival, congestion control, `TCP_INFO`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::sockopt::{Linger, ReceiveTimestampns, TcpCongestion};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, getsockopt, recvmsg, setsockopt,
};
use nix::sys::time::TimeSpec;
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

use crate::wire::message::StreamInfo;

/// Unsent bytes in a socket: a queue here would be none of the path. As the specification of this program.
const NOTSENT_LOWAT: usize = 128 << 10;
/// Of `struct tcp_info` as Linux 4.19 has it; later kernels append fields, and cut them off for who asks for fewer bytes.
const INFO: usize = 224;

sockopt_impl!(
    /// `TCP_INFO`, unread.
    TcpInfoBytes,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u8; INFO]
);
sockopt_impl!(
    /// Most unsent bytes with which a socket still takes more.
    NotsentLowat,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_NOTSENT_LOWAT,
    usize
);

/// An address without the form that IPv6 sockets give to IPv4.
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), v6.port()),
            // As it is: a link-local address is worth nothing without its interface.
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// What limits of one host count by: its address, or the network of 64 bits around it with IPv6, in which a host may have as many
/// addresses as it likes (RFC 7934).
pub fn host(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// A UDP socket whose datagrams come with the time of their arrival.
pub fn stamped(local: SocketAddr, wait: Duration) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(local)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    socket.set_read_timeout(Some(wait))?;
    Ok(socket)
}

/// A datagram that was received.
pub struct Received {
    /// Its length.
    pub length: usize,
    /// The sender.
    pub from: Option<SocketAddr>,
    /// When, on CLOCK_REALTIME.
    pub stamp: Option<Duration>,
}

/// When the kernel received a message, on CLOCK_REALTIME, at a socket that has these times.
pub fn stamp<S>(message: &RecvMsg<'_, '_, S>) -> nix::Result<Option<Duration>> {
    Ok(message.cmsgs()?.find_map(|c| match c {
        ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
        _ => None,
    }))
}

/// Receives one datagram; an error where none comes in the socket's time.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let stamp = stamp(&message)?;
    let from = message.address.and_then(|a| match (a.as_sockaddr_in(), a.as_sockaddr_in6()) {
        (Some(v4), _) => Some(SocketAddr::V4((*v4).into())),
        (None, Some(v6)) => Some(SocketAddr::V6((*v6).into())),
        (None, None) => None,
    });
    Ok(Received { length: message.bytes, from: from.map(plain), stamp })
}

/// Makes a socket one that carries a load: what is unsent stays short, reads and writes return after `wait`, and its end
/// throws away what is in it. Why the congestion control is another than wanted, where it is.
pub fn prepare(socket: &TcpStream, cc: Option<&str>, wait: Duration) -> io::Result<Option<String>> {
    limit_unsent(socket, NOTSENT_LOWAT)?;
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(socket, Linger, &at_once)?;
    socket.set_read_timeout(Some(wait))?;
    socket.set_write_timeout(Some(wait))?;
    let Some(cc) = cc else { return Ok(None) };
    let set = setsockopt(socket, TcpCongestion, &OsString::from(cc));
    Ok(set.err().map(|e| format!("{cc}: {}", e.desc())))
}

/// Has a socket take no more while it has this many unsent bytes.
fn limit_unsent(socket: &TcpStream, bytes: usize) -> io::Result<()> {
    Ok(setsockopt(socket, NotsentLowat, &bytes)?)
}

/// Of TLS, before the socket: a record. What waits here is a queue that no path has.
pub const TLS_UNSENT_BYTES: usize = 4 << 10;
/// Unsent bytes in a socket of HTTP, as time at its rate: the 5 ms of draft-ietf-ippm-responsiveness-09, section 5.1.1.
const UNSENT: Duration = Duration::from_millis(5);
/// At least two segments, so that an ACK is answered by one at once; at most what a load of our own has.
const UNSENT_BYTES: std::ops::RangeInclusive<u64> = 2 * 1448..=NOTSENT_LOWAT as u64;

/// Keeps what waits unsent in a socket at 5 ms of its rate; that many bytes. What gives it more at a time exceeds it.
pub fn keep_unsent_short(socket: &TcpStream) -> io::Result<usize> {
    let of_time = info(socket).delivery_bps / 8 * UNSENT.as_millis() as u64 / 1000;
    let unsent = of_time.clamp(*UNSENT_BYTES.start(), *UNSENT_BYTES.end()) as usize;
    limit_unsent(socket, unsent)?;
    Ok(unsent)
}

/// What the kernel says of a socket.
pub fn info(socket: &TcpStream) -> StreamInfo {
    let cc = getsockopt(socket, TcpCongestion).unwrap_or_default();
    let Ok(bytes) = getsockopt(socket, TcpInfoBytes) else { return StreamInfo::default() };
    let four = |at: usize| {
        let mut field = [0; 4];
        field.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(field)
    };
    let eight = |at: usize| {
        let mut field = [0; 8];
        field.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(field)
    };
    // Offsets of `struct tcp_info` (include/uapi/linux/tcp.h); the kernel never moves a field.
    StreamInfo {
        id: 0,
        cc: cc.to_string_lossy().into_owned(),
        why: None,
        mss: four(16),
        unacked: four(24),
        rtt_us: four(68),
        cwnd: four(80),
        retrans: four(100),
        acked: eight(120),
        notsent: four(144),
        min_rtt_us: four(148),
        delivery_bps: eight(160).saturating_mul(8),
        busy_us: eight(168),
        rwnd_us: eight(176),
        sndbuf_us: eight(184),
        quic: None,
    }
}

/// Bytes that a socket sent, those that it sent again included, and the latter alone; as Linux has them from 4.19 on.
pub fn sent(socket: &TcpStream) -> Option<(u64, u64)> {
    let bytes = getsockopt(socket, TcpInfoBytes).ok()?;
    // `tcpi_bytes_sent` and `tcpi_bytes_retrans`.
    let eight = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some((eight(200)?, eight(208)?))
}

/// Congestion controls of this host; root may use all of them, others those that are allowed.
pub fn congestion_controls() -> Vec<String> {
    let which = if nix::unistd::geteuid().is_root() { "available" } else { "allowed" };
    fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control"))
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_says_what_a_connection_did() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        assert_eq!(prepare(&one, Some("reno"), Duration::from_millis(100)).unwrap(), None);
        one.write_all(&[7; 5000]).unwrap();
        other.read_exact(&mut [0; 5000]).unwrap();
        let said = info(&one);
        assert_eq!(said.cc, "reno");
        assert_eq!(said.acked, 5001, "and the SYN");
        assert!(said.rtt_us > 0 && said.rtt_us < 1_000_000 && said.cwnd >= 10);
        assert!(said.min_rtt_us <= said.rtt_us);
        assert!((536..=65_535).contains(&said.mss));
        assert_eq!(sent(&one), Some((5000, 0)));
    }

    #[test]
    fn a_host_is_an_address_or_a_network_of_ipv6() {
        let of = |text: &str| host(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:3::1"), of("2001:db8:1:2::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn an_unknown_congestion_control_is_no_error_but_a_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let why = prepare(&one, Some("none-such"), Duration::from_millis(100)).unwrap();
        assert!(why.is_some_and(|why| why.starts_with("none-such: ")));
    }

    #[test]
    fn a_datagram_comes_with_its_time_and_sender() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (one, other) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            stamped(any, Duration::from_secs(5)).unwrap(),
        );
        one.send_to(b"hello", other.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 16];
        let got = receive(&other, &mut buffer).unwrap();
        assert_eq!((got.length, got.from), (5, Some(one.local_addr().unwrap())));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(got.stamp.is_some_and(|at| now.abs_diff(at) < Duration::from_secs(5)));
    }
}
