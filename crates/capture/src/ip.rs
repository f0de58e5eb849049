//! IPv4 and IPv6 headers, down to the transport protocol.
//!
//! Sources: RFC 791, RFC 8200 (extension headers), RFC 2675 (jumbograms), RFC 4302 (authentication header).
//! Lengths are those of the headers. Where the header cannot hold the length (BIG TCP, TSO: 0 in the field), it is what
//! the frame had left on the wire. An IP length beyond the frame is believed, as captures are cut by tools that adapt
//! the frame length and not the packet.

use crate::decoded::{Addr, Datagram, Decoded, Ip};
use crate::decoder::{Decoder, Seen};
use crate::fragment::{Key, Outcome, Piece};
use crate::tcp;
use crate::view::View;

const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// The authentication header of IPsec.
const AUTHENTICATION: u8 = 51;
/// Protocol number in [`Key`] for IPv6.
const ANY_PROTOCOL: u16 = 256;
/// RFC 2675 section 3: a jumbo length up to here is an error.
const MAX_PLAIN: u32 = 65_535;

impl Decoder {
    /// By the version in the first nibble.
    pub(crate) fn ip(&mut self, view: View<'_>, seen: Seen) -> Option<Decoded> {
        match view.u8(0)? >> 4 {
            4 => self.ipv4(view, seen),
            6 => self.ipv6(view, seen),
            _ => Some(Decoded::NotIp),
        }
    }

    pub(crate) fn ipv4(&mut self, view: View<'_>, seen: Seen) -> Option<Decoded> {
        let head = view.data.first_chunk::<20>()?;
        let header = u32::from(head[0] & 15) * 4;
        let field = u32::from(u16::from_be_bytes([head[2], head[3]]));
        let total_len = if field == 0 { view.wire } else { field };
        if head[0] >> 4 != 4 || header < 20 || total_len < header {
            return None;
        }
        let id = u16::from_be_bytes([head[4], head[5]]);
        let ip = Ip {
            time: seen.time,
            src: Addr::v4([head[12], head[13], head[14], head[15]]),
            dst: Addr::v4([head[16], head[17], head[18], head[19]]),
            id: Some(id),
            ttl: head[8],
            ecn: head[1] & 3,
            total_len,
            wire_len: seen.wire_len,
            interface: seen.interface,
        };
        let protocol = head[9];
        let payload = view.skip(header as usize)?.cut(total_len - header);
        let fragment = u16::from_be_bytes([head[6], head[7]]);
        if fragment & (MORE_FRAGMENTS | OFFSET) == 0 {
            return self.upper(protocol, payload, ip, seen);
        }
        let key = Key { src: ip.src.0, dst: ip.dst.0, id: u32::from(id), protocol: u16::from(protocol) };
        self.fragment(key, fragment, payload, header, protocol, ip, seen)
    }

    pub(crate) fn ipv6(&mut self, view: View<'_>, seen: Seen) -> Option<Decoded> {
        let head = view.data.first_chunk::<40>()?;
        if head[0] >> 4 != 6 {
            return None;
        }
        let field = u32::from(u16::from_be_bytes([head[4], head[5]]));
        let mut next = head[6];
        let after = view.skip(40)?;
        let len = match (field, next) {
            (0, 0) => jumbo(after)?.unwrap_or(after.wire),
            (0, 59) => 0,
            (0, _) => after.wire,
            (len, _) => len,
        };
        let [_, _, _, _, _, _, _, _, addresses @ ..] = head;
        let (src, dst) = (addresses.first_chunk::<16>()?, addresses.last_chunk::<16>()?);
        let mut ip = Ip {
            time: seen.time,
            src: Addr::v6(*src),
            dst: Addr::v6(*dst),
            id: None,
            ttl: head[7],
            ecn: head[1] >> 4 & 3,
            total_len: len.checked_add(40)?,
            wire_len: seen.wire_len,
            interface: seen.interface,
        };
        let mut rest = after.cut(len);
        // Each round takes at least eight bytes off, so the length bounds it.
        loop {
            let header = match next {
                // Hop-by-hop, routing, destination options, mobility, HIP, Shim6.
                0 | 43 | 60 | 135 | 139 | 140 => extension(rest)?,
                AUTHENTICATION => authentication(rest)?,
                44 => {
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
                    return self.fragment(key, fragment, rest, headers, next, ip, seen);
                }
                _ => return self.transport(next, rest, ip, seen),
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
        seen: Seen,
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
                self.upper(whole.protocol, view, whole.ip, seen)
            }
        }
    }

    /// Skips what may stand between the IP header and the transport; IPv6 hides more behind a fragment header.
    fn upper(&mut self, mut next: u8, mut rest: View<'_>, ip: Ip, seen: Seen) -> Option<Decoded> {
        loop {
            let header = match next {
                AUTHENTICATION => authentication(rest)?,
                43 | 60 | 135 | 139 | 140 if ip.src.0 >> 32 != 0xffff => extension(rest)?,
                _ => break,
            };
            next = rest.u8(0)?;
            rest = take(rest, header)?;
        }
        self.transport(next, rest, ip, seen)
    }

    fn transport(&mut self, protocol: u8, view: View<'_>, ip: Ip, seen: Seen) -> Option<Decoded> {
        let plain = |src_port, dst_port, payload| {
            Some(Decoded::Datagram(Datagram { ip, protocol, src_port, dst_port, payload }))
        };
        match protocol {
            6 => Some(tcp::decode(view.data, view.wire, ip)),
            17 => {
                let (src_port, dst_port) = (view.be16(0)?, view.be16(2)?);
                let field = u32::from(view.be16(4)?);
                if view.wire < 8 || view.data.len() < 8 {
                    return None;
                }
                // Zero stands for a jumbogram (RFC 2675 section 4); more than IP carried cannot be.
                let len = if (8..=view.wire).contains(&field) { field } else { view.wire };
                let inside = view.cut(len).skip(8)?;
                let inner = seen.deeper().and_then(|s| self.udp_tunnel((src_port, dst_port), inside, s));
                inner.or_else(|| plain(src_port, dst_port, len - 8))
            }
            1 | 58 => {
                let echo = matches!((protocol, view.u8(0)), (1, Some(0 | 8)) | (58, Some(128 | 129)));
                let id = if echo { view.be16(4).unwrap_or(0) } else { 0 };
                plain(id, id, view.wire.saturating_sub(8))
            }
            // DCCP, SCTP, UDP-Lite: ports where UDP has them.
            33 | 132 | 136 => plain(view.be16(0).unwrap_or(0), view.be16(2).unwrap_or(0), view.wire),
            _ => {
                let inner = seen.deeper().and_then(|s| self.ip_tunnel(protocol, view, s));
                inner.or_else(|| plain(0, 0, view.wire))
            }
        }
    }
}

/// Length of an IPv6 extension header.
fn extension(view: View<'_>) -> Option<u32> {
    Some((u32::from(view.u8(1)?) + 1) * 8)
}

/// Length of an authentication header, which leaves everything behind it readable.
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
            0xc2 => {
                let len = view.be32(at + 2)?;
                return if view.u8(at + 1)? == 4 && len > MAX_PLAIN { Some(Some(len)) } else { None };
            }
            _ => at += 2 + usize::from(view.u8(at + 1)?),
        }
    }
    Some(None)
}
