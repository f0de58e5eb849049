//! A decoded packet, as all other crates use it: link layer and tunnels removed, every value valid.
//!
//! Nothing here points into the file. Sizes are those of the IP headers, so a snap length never changes a
//! byte count.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use units::Instant;

/// An IP address as 16 bytes; IPv4 in its mapped form (`::ffff:a.b.c.d`), so that comparing and hashing
/// is the same for both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Addr(pub u128);

impl Addr {
    /// An address from the four bytes of an IPv4 header.
    #[inline]
    pub const fn v4(bytes: [u8; 4]) -> Addr {
        Addr(0xffff_0000_0000 | u32::from_be_bytes(bytes) as u128)
    }
    /// An address from the sixteen bytes of an IPv6 header.
    #[inline]
    pub const fn v6(bytes: [u8; 16]) -> Addr {
        Addr(u128::from_be_bytes(bytes))
    }
    /// Converts to the type of the standard library.
    pub fn to_ip(self) -> IpAddr {
        if self.0 >> 32 == 0xffff {
            IpAddr::V4(Ipv4Addr::from(self.0 as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from(self.0))
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ip().fmt(f)
    }
}

/// TCP flag bits as they stand in bytes 12 and 13 of the header (RFC 9293 section 3.1).
pub mod flags {
    /// The sender has no more data.
    pub const FIN: u16 = 0x001;
    /// Opens a connection; `seq` is the initial sequence number.
    pub const SYN: u16 = 0x002;
    /// Aborts the connection.
    pub const RST: u16 = 0x004;
    /// Asks the receiver to deliver data to the application at once.
    pub const PSH: u16 = 0x008;
    /// The acknowledgement number is valid.
    pub const ACK: u16 = 0x010;
    /// The urgent pointer is valid.
    pub const URG: u16 = 0x020;
    /// ECN echo: the receiver saw a CE mark (RFC 3168).
    pub const ECE: u16 = 0x040;
    /// Congestion window reduced: the answer to ECE (RFC 3168).
    pub const CWR: u16 = 0x080;
}

/// Facts from the innermost IP header and the frame.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ip {
    /// Capture time in nanoseconds since the epoch.
    pub time: Instant,
    /// Source address of the innermost IP header.
    pub src: Addr,
    /// Destination address of the innermost IP header.
    pub dst: Addr,
    /// IPv4 identification; `None` for IPv6 without a fragment header.
    pub id: Option<u16>,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// ECN field: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// Length of the innermost IP packet in bytes, headers included (BIG TCP lengths resolved).
    pub total_len: u32,
    /// Length of the frame on the wire, link layer and tunnels included.
    pub wire_len: u32,
    /// Index of the capture interface.
    pub interface: u32,
}

/// TCP options of one segment that the analysis uses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TcpOptions {
    /// TSval, TSecr (RFC 7323 section 3).
    pub timestamps: Option<(u32, u32)>,
    /// Maximum segment size (RFC 9293 section 3.7.1), on SYN.
    pub mss: Option<u16>,
    /// Window scale shift, capped at 14 (RFC 7323 section 2.3), on SYN.
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018 section 2), on SYN.
    pub sack_permitted: bool,
    /// An MPTCP option (RFC 8684) is present.
    pub mptcp: bool,
    /// Number of SACK blocks in `sacks`.
    pub sack_count: u8,
    /// SACK blocks, left and right edge, in the order of the header; the first may be a DSACK (RFC 2883).
    pub sacks: [(u32, u32); 4],
}

impl TcpOptions {
    /// The SACK blocks that are present.
    #[inline]
    pub fn sack_blocks(&self) -> &[(u32, u32)] {
        &self.sacks[..usize::from(self.sack_count).min(4)]
    }
}

/// The header fields of one TCP segment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TcpSegment {
    /// The IP header around it.
    pub ip: Ip,
    /// TCP source port.
    pub src_port: u16,
    /// TCP destination port.
    pub dst_port: u16,
    /// Sequence number on the wire.
    pub seq: u32,
    /// Acknowledgement number; meaningful with [`flags::ACK`].
    pub ack: u32,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Window field as in the header, not scaled.
    pub window: u16,
    /// Payload bytes by the IP length, whatever the snap length kept.
    pub payload: u32,
    /// The payload may be padding that the IP length includes: `tcp::may_be_padding`.
    pub maybe_padding: bool,
    /// Options; those cut off by the snap length are absent.
    pub options: TcpOptions,
}

impl TcpSegment {
    /// Whether all of `mask` is set.
    #[inline]
    pub fn has(&self, mask: u16) -> bool {
        self.flags & mask == mask
    }
}

/// A packet that is not TCP. It is counted, so that its share of the link is known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Datagram {
    /// The IP header around it.
    pub ip: Ip,
    /// IP protocol number: 17 UDP, 1 ICMP, 58 ICMPv6, others as they are.
    pub protocol: u8,
    /// Source port; for ICMP echo the identifier on both sides, else 0.
    pub src_port: u16,
    /// Destination port; for ICMP echo the identifier on both sides, else 0.
    pub dst_port: u16,
    /// Bytes behind the UDP or ICMP header.
    pub payload: u32,
    /// A request or its answer, where the packet says so.
    pub message: Option<Message>,
}

/// A request, or the answer to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// What speaks.
    pub kind: MessageKind,
    /// The answer, not the request.
    pub answer: bool,
    /// The same in both.
    pub number: u32,
}

/// Protocols whose answers have the number of their request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    /// ICMP and ICMPv6 echo (ping), by sequence number (RFC 792, RFC 4443 section 4).
    Echo,
    /// DNS, by transaction identifier (RFC 1035 section 4.1.1).
    Dns,
    /// A probe of `unbloat measure`, by its number.
    Probe,
}

/// The content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant)] // lives on the stack, one at a time
pub enum Decoded {
    /// A TCP segment in IPv4 or IPv6.
    Tcp(TcpSegment),
    /// UDP, ICMP or another IP protocol.
    Datagram(Datagram),
    /// An IP fragment of a packet that is not complete yet.
    Fragment,
    /// A frame without an IP header (ARP, 802.11 management, …).
    NotIp,
    /// A header that is cut off by the snap length or contradicts itself.
    Broken,
}
