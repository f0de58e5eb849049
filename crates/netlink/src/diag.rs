//! TCP sockets with the kernel's figures, by `sock_diag` (sock_diag(7)), which needs no rights.
//!
//! `struct tcp_info` is read by offset. It has grown at its end, so an older kernel's is shorter,
//! and fields beyond its end are `None`. A message that is truncated at any byte gives a socket
//! with less data, or none.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::sys::socket::SockProtocol;

use crate::{Attributes, Netlink, Request, attribute, word};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// Bit of established connections in a request, `1 << TCP_ESTABLISHED`.
const ESTABLISHED: u32 = 1 << 1;
/// INET_DIAG_INFO, _CONG, _SKMEMINFO (linux/inet_diag.h).
const INFO: u16 = 2;
const CONG: u16 = 4;
const SKMEMINFO: u16 = 7;
/// INET_DIAG_CGROUP_ID, which the kernel adds unasked (since Linux 5.8).
const CGROUP_ID: u16 = 21;
/// Bits of the states in which a connection has received data or may still receive some:
/// ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK and CLOSING.
const BEGUN: u32 = ESTABLISHED | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// Bytes of `struct inet_diag_sockid`, `struct inet_diag_msg`.
const SOCKID: usize = 48;
const MESSAGE: usize = 72;
/// TCPI_OPT_TIMESTAMPS of `tcpi_options` (linux/tcp.h).
const TIMESTAMPS: u8 = 1;

/// The kernel's figures of a connection. Times in µs, as in `struct tcp_info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Timestamps were negotiated (RFC 7323).
    pub timestamps: bool,
    /// Maximum segment size that is sent.
    pub snd_mss_bytes: u32,
    /// Maximum segment size that was received.
    pub rcv_mss_bytes: u32,
    /// Segments in flight: sent and not acknowledged.
    pub unacked: u32,
    /// Smoothed RTT of sent data; 0: none yet.
    pub rtt_us: u32,
    /// Congestion window of the sender, segments.
    pub snd_cwnd: u32,
    /// RTT of received data, by timestamps' echoes or by windows; 0: none yet.
    pub rcv_rtt_us: u32,
    /// Segments retransmitted so far.
    pub retransmitted: Option<u32>,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes received in order.
    pub bytes_received: Option<u64>,
    /// Data segments received, in order or not; since Linux 4.6.
    pub data_segs_in: Option<u32>,
    /// Bytes in the send buffer that were not sent yet.
    pub notsent_bytes: Option<u32>,
    /// Minimum RTT of sent data within five minutes (net.ipv4.tcp_min_rtt_wlen).
    pub min_rtt_us: Option<u32>,
    /// Most recent delivery rate.
    pub delivery_bytes_per_s: Option<u64>,
    /// Time with data to send, µs.
    pub busy_us: Option<u64>,
    /// Time limited by the peer's receive window, µs.
    pub rwnd_limited_us: Option<u64>,
    /// Time limited by the send buffer, µs.
    pub sndbuf_limited_us: Option<u64>,
    /// Receive window of the peer.
    pub snd_wnd_bytes: Option<u32>,
    /// Receive window that this end advertises (Linux 6.2).
    pub rcv_wnd_bytes: Option<u32>,
}

/// Buffer sizes of a socket (INET_DIAG_SKMEMINFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Received and not read by the application, with overhead.
    pub received_bytes: u32,
    /// Limit of received data: grows by autotuning up to the third value of tcp_rmem.
    pub rcvbuf_bytes: u32,
    /// Limit of data that waits to be sent or acknowledged.
    pub sndbuf_bytes: u32,
}

/// A connection of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Local address and port.
    pub local: (IpAddr, u16),
    /// Remote address and port.
    pub remote: (IpAddr, u16),
    /// Kernel's identifier, unlike that of a later socket with the same ends.
    pub cookie: u64,
    /// Bytes received and not read by the application.
    pub unread_bytes: u32,
    /// Index of the device that it is bound to; 0: none.
    pub device: u32,
    /// Its user.
    pub user: u32,
    /// The cgroup in which it was made (Linux 5.8).
    pub cgroup: Option<u64>,
    /// The kernel's `struct tcp_info`, if it has one.
    pub info: Option<TcpInfo>,
    /// Sizes of its buffers.
    pub memory: Option<Memory>,
    /// Name of its congestion control.
    pub congestion: Option<String>,
}

/// Every established TCP connection of the network namespace, IPv4 and IPv6.
pub fn established() -> io::Result<Vec<Socket>> {
    dump(ESTABLISHED, &[INFO, CONG, SKMEMINFO])
}

/// Every TCP connection of the network namespace that has begun, with its `struct tcp_info` and its
/// congestion control only.
pub fn begun() -> io::Result<Vec<Socket>> {
    dump(BEGUN, &[INFO, CONG])
}

fn dump(states: u32, kinds: &[u16]) -> io::Result<Vec<Socket>> {
    let mut netlink = Netlink::open_for(SockProtocol::NetlinkSockDiag)?;
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let answers = netlink.ask(
            SOCK_DIAG_BY_FAMILY,
            Request::Dump,
            &request(family, states, kinds),
            &Attributes::default(),
        );
        match answers {
            Ok(bodies) => found.extend(bodies.iter().filter_map(|body| parse(body))),
            // Kernels without IPv6 refuse that family.
            Err(_) if family == AF_INET6 => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Encodes `struct inet_diag_req_v2` of linux/inet_diag.h.
fn request(family: u8, states: u32, kinds: &[u16]) -> Vec<u8> {
    let wanted = kinds.iter().fold(0, |bits, kind| bits | 1u8 << (kind - 1));
    let mut request = vec![family, IPPROTO_TCP, wanted, 0];
    request.extend(states.to_ne_bytes());
    request.resize(request.len() + SOCKID, 0);
    request
}

/// One `struct inet_diag_msg` with its attributes.
pub fn parse(body: &[u8]) -> Option<Socket> {
    let fixed = body.get(..MESSAGE)?;
    let attributes = body.get(MESSAGE..)?;
    let port = |at: usize| Some(u16::from_be_bytes(fixed.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| ip(fixed[0], fixed.get(at..at + 16)?);
    let cookie = u64::from(word(fixed, 44)?) | u64::from(word(fixed, 48)?) << 32;
    let name = attribute(attributes, CONG).map(|name| String::from_utf8_lossy(name).into_owned());
    Some(Socket {
        local: (address(8)?, port(4)?),
        remote: (address(24)?, port(6)?),
        cookie,
        unread_bytes: word(fixed, 56)?,
        device: word(fixed, 40)?,
        user: word(fixed, 64)?,
        cgroup: attribute(attributes, CGROUP_ID)
            .and_then(|id| Some(u64::from_ne_bytes(id.get(..8)?.try_into().ok()?))),
        info: attribute(attributes, INFO).and_then(info),
        memory: attribute(attributes, SKMEMINFO).and_then(memory),
        congestion: name
            .map(|name| name.trim_end_matches('\0').to_owned())
            .filter(|name| !name.is_empty()),
    })
}

/// An address; IPv4 in IPv6 is IPv4.
fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?))),
        AF_INET6 => {
            let v6 = Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(..16)?).ok()?);
            Some(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4))
        }
        _ => None,
    }
}

/// Offsets of `struct tcp_info` (linux/tcp.h); they are ABI.
fn info(bytes: &[u8]) -> Option<TcpInfo> {
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    // All ones and zero are "none yet" of the smallest RTT.
    let some_rtt = |us: &u32| *us != u32::MAX && *us != 0;
    Some(TcpInfo {
        timestamps: bytes.get(5)? & TIMESTAMPS != 0,
        snd_mss_bytes: word(bytes, 16)?,
        rcv_mss_bytes: word(bytes, 20)?,
        unacked: word(bytes, 24)?,
        rtt_us: word(bytes, 68)?,
        snd_cwnd: word(bytes, 80)?,
        rcv_rtt_us: word(bytes, 92)?,
        retransmitted: word(bytes, 100),
        bytes_acked: long(120),
        bytes_received: long(128),
        data_segs_in: word(bytes, 152),
        notsent_bytes: word(bytes, 144),
        min_rtt_us: word(bytes, 148).filter(some_rtt),
        delivery_bytes_per_s: long(160),
        busy_us: long(168),
        rwnd_limited_us: long(176),
        sndbuf_limited_us: long(184),
        snd_wnd_bytes: word(bytes, 228),
        rcv_wnd_bytes: word(bytes, 232),
    })
}

/// SK_MEMINFO_RMEM_ALLOC, _RCVBUF, _SNDBUF (linux/sock_diag.h).
fn memory(bytes: &[u8]) -> Option<Memory> {
    Some(Memory {
        received_bytes: word(bytes, 0)?,
        rcvbuf_bytes: word(bytes, 4)?,
        sndbuf_bytes: word(bytes, 12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    /// A message as the kernel writes it, with a `struct tcp_info` of so many bytes.
    fn message(family: u8, tcp_info: usize) -> Vec<u8> {
        let mut body = vec![0; MESSAGE];
        body[0] = family;
        body[4..6].copy_from_slice(&443u16.to_be_bytes());
        body[6..8].copy_from_slice(&50_000u16.to_be_bytes());
        body[8..12].copy_from_slice(&[192, 0, 2, 1]);
        body[24..28].copy_from_slice(&[192, 0, 2, 9]);
        body[44..48].copy_from_slice(&7u32.to_ne_bytes());
        body[56..60].copy_from_slice(&1_234u32.to_ne_bytes());
        body[64..68].copy_from_slice(&1_000u32.to_ne_bytes());
        let mut info = vec![0; 248];
        info[5] = TIMESTAMPS;
        info[68..72].copy_from_slice(&60_000u32.to_ne_bytes());
        info[92..96].copy_from_slice(&1_500_000u32.to_ne_bytes());
        info[128..136].copy_from_slice(&5_000_000u64.to_ne_bytes());
        info[148..152].copy_from_slice(&59_000u32.to_ne_bytes());
        info[232..236].copy_from_slice(&1_600_000u32.to_ne_bytes());
        let memory: Vec<u8> =
            [10u32, 20, 30, 40].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let attributes = Attributes::default()
            .with(CONG, b"cubic\0")
            .with(SKMEMINFO, &memory)
            .with(CGROUP_ID, &5_000_000_000u64.to_ne_bytes())
            .with(INFO, &info[..tcp_info]);
        body.extend(attributes.0);
        body
    }

    #[test]
    fn a_message_is_read_field_by_field() {
        let socket = parse(&message(AF_INET, 248)).unwrap();
        assert_eq!(socket.local, ("192.0.2.1".parse().unwrap(), 443));
        assert_eq!(socket.remote, ("192.0.2.9".parse().unwrap(), 50_000));
        assert_eq!((socket.cookie, socket.unread_bytes), (7, 1_234));
        assert_eq!(socket.congestion.as_deref(), Some("cubic"));
        assert_eq!((socket.user, socket.cgroup), (1_000, Some(5_000_000_000)));
        assert_eq!(
            socket.memory,
            Some(Memory { received_bytes: 10, rcvbuf_bytes: 20, sndbuf_bytes: 40 })
        );
        let info = socket.info.unwrap();
        assert!(info.timestamps);
        assert_eq!(
            (info.rtt_us, info.rcv_rtt_us, info.min_rtt_us),
            (60_000, 1_500_000, Some(59_000))
        );
        assert_eq!((info.bytes_received, info.rcv_wnd_bytes), (Some(5_000_000), Some(1_600_000)));
    }

    #[test]
    fn an_older_kernels_shorter_answer_lacks_its_end_only() {
        // Linux 4.19 had 224 bytes, 4.1 had 136, 3.10 had 104.
        let of = |length| parse(&message(AF_INET, length)).unwrap().info.unwrap();
        assert_eq!((of(224).rcv_wnd_bytes, of(224).min_rtt_us), (None, Some(59_000)));
        assert_eq!((of(136).min_rtt_us, of(136).bytes_received), (None, Some(5_000_000)));
        assert_eq!((of(104).bytes_received, of(104).rcv_rtt_us), (None, 1_500_000));
        assert_eq!(parse(&message(AF_INET, 60)).unwrap().info, None);
    }

    #[test]
    fn a_truncated_message_gives_less_data_and_nothing_wrong() {
        let whole = message(AF_INET, 248);
        let full = parse(&whole).unwrap();
        for cut in 0..whole.len() {
            match parse(&whole[..cut]) {
                None => assert!(cut < MESSAGE, "{cut}"),
                Some(part) => {
                    assert_eq!((part.local, part.remote), (full.local, full.remote));
                    assert!(part.info.is_none() || part.info == full.info, "{cut}");
                    assert!(
                        part.congestion.is_none() || part.congestion == full.congestion,
                        "{cut}"
                    );
                    assert!(part.memory.is_none() || part.memory == full.memory, "{cut}");
                    assert!(part.cgroup.is_none() || part.cgroup == full.cgroup, "{cut}");
                }
            }
        }
        assert_eq!(parse(&message(7, 248)), None, "another family");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_socket_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn any_attributes_behind_a_good_begin_leave_the_begin_as_it_is(
            rest in proptest::collection::vec(any::<u8>(), 0..512)
        ) {
            let mut body = message(AF_INET, 248);
            body.truncate(MESSAGE);
            body.extend(rest);
            prop_assert_eq!(parse(&body).unwrap().remote.1, 50_000);
        }
    }

    fn transfer(address: &str) -> (TcpStream, TcpStream) {
        let listening = TcpListener::bind(address).unwrap();
        let mut client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let (mut server, _) = listening.accept().unwrap();
        let mut buffer = [0; 10_000];
        client.write_all(&buffer).unwrap();
        server.read_exact(&mut buffer).unwrap();
        (client, server)
    }

    #[test]
    fn a_connection_over_loopback_is_found_by_both_ends_with_what_it_carried() {
        let mut tried = 0;
        for address in ["127.0.0.1:0", "[::1]:0"] {
            if TcpListener::bind(address).is_err() {
                continue;
            }
            tried += 1;
            let (client, server) = transfer(address);
            let sockets = established().unwrap();
            let local = client.local_addr().unwrap();
            let of = |ip, port| sockets.iter().find(|socket| socket.local == (ip, port)).unwrap();
            let sender = of(local.ip(), local.port());
            assert_eq!(sender.remote.1, server.local_addr().unwrap().port());
            let (sent, received) = (sender.info.clone().unwrap(), of(local.ip(), sender.remote.1));
            assert!(sent.bytes_acked.unwrap() >= 10_000 && sent.min_rtt_us.is_some(), "{sent:?}");
            assert_eq!(received.info.clone().unwrap().bytes_received, Some(10_000));
            assert!(received.memory.unwrap().rcvbuf_bytes > 0 && sender.congestion.is_some());
        }
        assert!(tried > 0);
    }
}
