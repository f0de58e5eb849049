//! IPv4 and IPv6 headers, down to the transport protocol.
//!
//! Sources: RFC 791, RFC 8200 (extension headers), RFC 2675 (jumbograms), RFC 4302 (authentication header).
//! Lengths are those of the headers. Where the header cannot hold the length (BIG TCP, TSO: 0 in the field),
//! it is what the frame had left on the wire. An IP length beyond the frame counts, because some tools
//! cut packets and adapt the frame length but not the packet's.

use crate::decoded::{Addr, Datagram, Decoded, Ip, Message, MessageKind};
use crate::decoder::{Decoder, FrameContext};
use crate::fragment::{Key, Outcome, Piece};
use crate::message;
use crate::protocol::{
    AUTHENTICATION, DCCP, DESTINATION_OPTIONS, FRAGMENT, HIP, HOP_BY_HOP, ICMP, ICMPV6, MOBILITY,
    NO_NEXT_HEADER, ROUTING, SCTP, SHIM6, TCP, UDP, UDP_LITE,
};
use crate::tcp;
use crate::view::View;

/// Flag and mask in the fragment field of IPv4 (RFC 791).
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

// ICMP types of echo request and reply (RFC 792, RFC 4443).
const ICMP_ECHO_REPLY: u8 = 0;
const ICMP_ECHO: u8 = 8;
const ICMPV6_ECHO: u8 = 128;
const ICMPV6_ECHO_REPLY: u8 = 129;

/// IPv6 option type of the jumbo payload (RFC 2675 section 2).
const JUMBO_PAYLOAD: u8 = 0xc2;
/// Stands in [`Key`] for IPv6, whose identification is per address pair and not per protocol.
const ANY_PROTOCOL: u16 = 256;
/// RFC 2675 section 3: a jumbo length up to here is an error.
const MAX_PLAIN: u32 = 65_535;

impl Decoder {
    /// Reads an IP packet of the version in its first four bits.
    pub(crate) fn ip(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        match view.u8(0)? >> 4 {
            4 => self.ipv4(view, cx),
            6 => self.ipv6(view, cx),
            _ => Some(Decoded::NotIp),
        }
    }

    pub(crate) fn ipv4(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let head = view.data.first_chunk::<20>()?;
        let header = u32::from(head[0] & 15) * 4;
        let field = u32::from(u16::from_be_bytes([head[2], head[3]]));
        let total_len = if field == 0 { view.wire } else { field };
        if head[0] >> 4 != 4 || header < 20 || total_len < header {
            return None;
        }
        let id = u16::from_be_bytes([head[4], head[5]]);
        let ip = Ip {
            time: cx.time,
            src: Addr::v4([head[12], head[13], head[14], head[15]]),
            dst: Addr::v4([head[16], head[17], head[18], head[19]]),
            id: Some(id),
            ttl: head[8],
            ecn: head[1] & 3,
            total_len,
            wire_len: cx.wire_len,
            interface: cx.interface,
        };
        let protocol = head[9];
        let payload = view.skip(header as usize)?.cut(total_len - header);
        let fragment = u16::from_be_bytes([head[6], head[7]]);
        if fragment & (MORE_FRAGMENTS | OFFSET) == 0 {
            return self.upper(protocol, payload, ip, cx);
        }
        let key =
            Key { src: ip.src.0, dst: ip.dst.0, id: u32::from(id), protocol: u16::from(protocol) };
        self.fragment(key, fragment, payload, header, protocol, ip, cx)
    }

    pub(crate) fn ipv6(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let head = view.data.first_chunk::<40>()?;
        if head[0] >> 4 != 6 {
            return None;
        }
        let field = u32::from(u16::from_be_bytes([head[4], head[5]]));
        let mut next = head[6];
        let after = view.skip(40)?;
        let len = match (field, next) {
            (0, 0) => jumbo(after)?.unwrap_or(after.wire),
            (0, NO_NEXT_HEADER) => 0,
            (0, _) => after.wire,
            (len, _) => len,
        };
        let [_, _, _, _, _, _, _, _, addresses @ ..] = head;
        let (src, dst) = (addresses.first_chunk::<16>()?, addresses.last_chunk::<16>()?);
        let mut ip = Ip {
            time: cx.time,
            src: Addr::v6(*src),
            dst: Addr::v6(*dst),
            id: None,
            ttl: head[7],
            ecn: head[1] >> 4 & 3,
            total_len: len.checked_add(40)?,
            wire_len: cx.wire_len,
            interface: cx.interface,
        };
        let mut rest = after.cut(len);
        // Each round takes at least eight bytes off, so the length bounds it.
        loop {
            let header = match next {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6 => {
                    extension(rest)?
                }
                AUTHENTICATION => authentication(rest)?,
                FRAGMENT => {
                    let field = rest.be16(2)?;
                    let id = rest.be32(4)?;
                    // The offset stands three bits further up than in IPv4, in the same unit.
                    let fragment = field >> 3 | if field & 1 != 0 { MORE_FRAGMENTS } else { 0 };
                    ip.id = Some(id as u16);
                    next = rest.u8(0)?;
                    rest = take(rest, 8)?;
                    if fragment == 0 {
                        continue;
                    }
                    let headers = ip.total_len - rest.wire;
                    let key = Key { src: ip.src.0, dst: ip.dst.0, id, protocol: ANY_PROTOCOL };
                    return self.fragment(key, fragment, rest, headers, next, ip, cx);
                }
                _ => return self.transport(next, rest, ip, cx),
            };
            next = rest.u8(0)?;
            rest = take(rest, header)?;
        }
    }

    #[allow(clippy::too_many_arguments)] // two callers, and a struct would only repeat Piece
    fn fragment(
        &mut self,
        key: Key,
        field: u16,
        rest: View<'_>,
        headers: u32,
        protocol: u8,
        ip: Ip,
        cx: FrameContext,
    ) -> Option<Decoded> {
        let piece = Piece {
            offset: u32::from(field & OFFSET) * 8,
            len: rest.wire,
            more: field & MORE_FRAGMENTS != 0,
            data: rest.data,
            headers,
            protocol,
        };
        match self.fragments.add(key, ip, &piece) {
            Outcome::Waiting => Some(Decoded::Fragment),
            Outcome::Broken => None,
            Outcome::Complete(whole) => {
                let view = View { data: &whole.head[..whole.kept], wire: whole.len };
                self.upper(whole.protocol, view, whole.ip, cx)
            }
        }
    }

    /// Skips extension headers between the IP header and the transport header. In IPv6 more of them may
    /// follow a fragment header.
    fn upper(
        &mut self,
        mut next: u8,
        mut rest: View<'_>,
        ip: Ip,
        cx: FrameContext,
    ) -> Option<Decoded> {
        loop {
            let header = match next {
                AUTHENTICATION => authentication(rest)?,
                ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6
                    if ip.src.0 >> 32 != 0xffff =>
                {
                    extension(rest)?
                }
                _ => break,
            };
            next = rest.u8(0)?;
            rest = take(rest, header)?;
        }
        self.transport(next, rest, ip, cx)
    }

    fn transport(
        &mut self,
        protocol: u8,
        view: View<'_>,
        ip: Ip,
        cx: FrameContext,
    ) -> Option<Decoded> {
        let datagram = |src_port, dst_port, payload, message| {
            Some(Decoded::Datagram(Datagram { ip, protocol, src_port, dst_port, payload, message }))
        };
        match protocol {
            TCP => Some(tcp::decode(view.data, view.wire, ip)),
            UDP => {
                let (src_port, dst_port) = (view.be16(0)?, view.be16(2)?);
                let field = u32::from(view.be16(4)?);
                if view.wire < 8 || view.data.len() < 8 {
                    return None;
                }
                // Zero stands for a jumbogram (RFC 2675 section 4); more than IP carried cannot be.
                let len = if (8..=view.wire).contains(&field) { field } else { view.wire };
                let inside = view.cut(len).skip(8)?;
                let inner =
                    cx.deeper().and_then(|s| self.udp_tunnel((src_port, dst_port), inside, s));
                let ports = (src_port, dst_port);
                inner.or_else(|| {
                    datagram(src_port, dst_port, len - 8, message::in_udp(ports, inside))
                })
            }
            ICMP | ICMPV6 => {
                let answer = match (protocol, view.u8(0)) {
                    (ICMP, Some(ICMP_ECHO)) | (ICMPV6, Some(ICMPV6_ECHO)) => Some(false),
                    (ICMP, Some(ICMP_ECHO_REPLY)) | (ICMPV6, Some(ICMPV6_ECHO_REPLY)) => Some(true),
                    _ => None,
                };
                let id = answer.and_then(|_| view.be16(4)).unwrap_or(0);
                let message = answer.zip(view.be16(6)).map(|(answer, number)| Message {
                    kind: MessageKind::Echo,
                    answer,
                    number: number.into(),
                });
                datagram(id, id, view.wire.saturating_sub(8), message)
            }
            // Their ports stand where those of UDP do.
            DCCP | SCTP | UDP_LITE => {
                datagram(view.be16(0).unwrap_or(0), view.be16(2).unwrap_or(0), view.wire, None)
            }
            _ => {
                let inner = cx.deeper().and_then(|s| self.ip_tunnel(protocol, view, s));
                inner.or_else(|| datagram(0, 0, view.wire, None))
            }
        }
    }
}

/// Length of an IPv6 extension header.
fn extension(view: View<'_>) -> Option<u32> {
    Some((u32::from(view.u8(1)?) + 1) * 8)
}

/// Length of an authentication header (RFC 4302).
fn authentication(view: View<'_>) -> Option<u32> {
    Some((u32::from(view.u8(1)?) + 2) * 4)
}

/// Skips an extension header; `None` when the packet's length or what was kept ends within it.
fn take(view: View<'_>, header: u32) -> Option<View<'_>> {
    if header > view.wire { None } else { view.skip(header as usize) }
}

/// The jumbo payload option of a hop-by-hop header, `Some(None)` without one, `None` when it is wrong.
fn jumbo(view: View<'_>) -> Option<Option<u32>> {
    let end = (usize::from(view.u8(1)?) + 1) * 8;
    let mut at = 2;
    while at < end {
        match view.u8(at)? {
            0 => at += 1,
            JUMBO_PAYLOAD => {
                let len = view.be32(at + 2)?;
                return if view.u8(at + 1)? == 4 && len > MAX_PLAIN {
                    Some(Some(len))
                } else {
                    None
                };
            }
            _ => at += 2 + usize::from(view.u8(at + 1)?),
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{
        DST, SRC, arrives, datagram, decode, frame, ipv4, ipv4_with, ipv6, join, segment, tcp,
        tcp_with, udp,
    };

    #[test]
    fn the_header_fields_are_handed_on() {
        let ip = segment(101, &ipv4(6, &tcp())).ip;
        assert_eq!((ip.src, ip.dst), (Addr::v4(SRC), Addr::v4(DST)));
        assert_eq!((ip.id, ip.ttl, ip.ecn, ip.total_len), (Some(7), 64, 2, 152));
        let ip = segment(101, &ipv6(6, &tcp())).ip;
        assert_eq!((ip.id, ip.ttl, ip.ecn, ip.total_len), (None, 60, 2, 172));
        assert_eq!(ip.src.to_string(), "2001:db8::1");
    }

    #[test]
    fn ipv4_options_are_skipped() {
        let mut packet = ipv4(6, &join(&[&[1; 8], &tcp()]));
        packet[0] = 0x47;
        arrives(101, &packet);
    }

    #[test]
    fn a_length_of_zero_means_what_the_frame_has_left() {
        for (mut packet, at) in
            [(ipv4(6, &tcp_with(0x10, &[], 80_000)), 2), (ipv6(6, &tcp_with(0x10, &[], 80_000)), 4)]
        {
            packet[at..at + 2].fill(0);
            let mut cut = frame(101, &packet[..80]);
            cut.wire_len = packet.len() as u32;
            let Decoded::Tcp(s) = Decoder::new().decode(&cut) else { panic!("no segment") };
            assert_eq!((s.payload, s.ip.total_len as usize), (80_000, packet.len()));
        }
    }

    #[test]
    fn a_jumbogram_has_its_length_and_a_short_one_is_wrong() {
        let with = |len: u32| {
            let mut packet = ipv6(
                0,
                &join(&[&[6, 0, 0xc2, 4], &len.to_be_bytes(), &tcp_with(0x10, &[], 80_000)]),
            );
            packet[4..6].fill(0);
            packet
        };
        assert_eq!(segment(101, &with(80_028)).payload, 80_000);
        assert_eq!(decode(101, &with(60_000)), Decoded::Broken);
    }

    #[test]
    fn extension_headers_and_the_authentication_header_are_skipped() {
        let chain = join(&[
            &[43, 0, 1, 4, 0, 0, 0, 0],
            &[60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[51, 0, 1, 4, 0, 0, 0, 0],
            &[135, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[6, 0, 0, 0, 0, 0, 0, 0],
            &tcp(),
        ]);
        arrives(101, &ipv6(0, &chain));
        arrives(101, &ipv4(51, &join(&[&[6, 4], &[0; 22], &tcp()])));
    }

    #[test]
    fn ten_thousand_nested_headers_do_not_exhaust_the_stack() {
        assert_eq!(
            decode(101, &ipv4(51, &[51, 0, 0, 0, 0, 0, 0, 0].repeat(8_000))),
            Decoded::Broken
        );
        assert_eq!(
            decode(101, &ipv6(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(8_000))),
            Decoded::Broken
        );
    }

    #[test]
    fn udp_icmp_and_other_protocols_are_counted_with_their_ports() {
        let d = datagram(101, &ipv4(17, &udp(53, 5353, &[0; 30])));
        assert_eq!((d.protocol, d.src_port, d.dst_port, d.payload), (17, 53, 5353, 30));
        let d = datagram(101, &ipv4(1, &[8, 0, 0, 0, 0x12, 0x34, 0, 1, 9, 9]));
        assert_eq!((d.protocol, d.src_port, d.dst_port, d.payload), (1, 0x1234, 0x1234, 2));
        let echo = |answer| Some(Message { kind: MessageKind::Echo, answer, number: 1 });
        assert_eq!(d.message, echo(false));
        let d = datagram(101, &ipv6(58, &[129, 0, 0, 0, 0x12, 0x34, 0, 1]));
        assert_eq!((d.protocol, d.src_port, d.payload, d.message), (58, 0x1234, 0, echo(true)));
        let d = datagram(101, &ipv4(1, &[3, 1, 0, 0, 0, 0, 0, 0]));
        assert_eq!((d.src_port, d.dst_port), (0, 0));
        let d = datagram(101, &ipv4(50, &[0; 40]));
        assert_eq!((d.protocol, d.payload), (50, 40));
    }

    #[test]
    fn contradictions_are_broken() {
        let good = ipv4(6, &tcp());
        for (at, value) in [(0, 0x44), (0, 0x35), (3, 10)] {
            let mut packet = good.clone();
            packet[at] = value;
            packet[2] = 0;
            assert_eq!(decode(228, &packet), Decoded::Broken, "byte {at} = {value:#x}");
        }
        assert_eq!(decode(101, &ipv4(17, &[0; 7])), Decoded::Broken);
        assert_eq!(decode(229, &ipv4(6, &tcp())), Decoded::Broken);
    }

    #[test]
    fn an_atomic_fragment_is_a_packet() {
        arrives(101, &ipv6(44, &join(&[&[6, 0, 0, 0, 0, 0, 0, 9], &tcp()])));
        let s = segment(101, &ipv6(44, &join(&[&[6, 0, 0, 0, 0, 1, 0, 9], &tcp()])));
        assert_eq!(s.ip.id, Some(9));
    }

    #[test]
    fn ipv6_fragments_are_put_together_behind_extension_headers() {
        let whole = join(&[&[6, 0, 1, 4, 0, 0, 0, 0], &tcp()]);
        let mut decoder = Decoder::new();
        let first = ipv6(44, &join(&[&[60, 0, 0, 1, 0, 0, 0, 9], &whole[..64]]));
        let last = ipv6(44, &join(&[&[60, 0, 0, 64, 0, 0, 0, 9], &whole[64..]]));
        assert_eq!(decoder.decode(&frame(101, &last)), Decoded::Fragment);
        let Decoded::Tcp(s) = decoder.decode(&frame(101, &first)) else { panic!("no segment") };
        assert_eq!((s.payload, s.ip.id), (100, Some(9)));
        assert_eq!(s.ip.wire_len as usize, first.len() + last.len());
    }

    #[test]
    fn a_fragmented_tunnel_is_entered_when_it_is_complete() {
        let inner = ipv4(4, &ipv4(6, &tcp()));
        let outer = &inner[20..];
        let mut decoder = Decoder::new();
        let first = ipv4_with(4, 3, 0x2000, &outer[..80]);
        let last = ipv4_with(4, 3, 10, &outer[80..]);
        assert_eq!(decoder.decode(&frame(101, &first)), Decoded::Fragment);
        let Decoded::Tcp(s) = decoder.decode(&frame(101, &last)) else { panic!("no segment") };
        assert_eq!(s.payload, 100);
    }
}
