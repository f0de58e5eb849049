//! Link layers, down to the IP header.
//!
//! Sources: the LINKTYPE_ registry of tcpdump.org (layouts), IEEE 802.1Q/802.1ad/802.1ah (tags), RFC 1042
//! (SNAP), RFC 3032 (MPLS), RFC 4448 (pseudowires), RFC 1661/1662 (PPP), RFC 2516 (PPPoE). Padding and frame
//! check sequences are left out by the IP length further up.

use crate::decoded::Decoded;
use crate::decoder::{Decoder, FrameContext};
use crate::view::View;

/// Values up to here are lengths, not types (IEEE 802.3 clause 3.2.6).
const MAX_LENGTH: u16 = 1500;

impl Decoder {
    pub(crate) fn link(
        &mut self,
        linktype: u16,
        view: View<'_>,
        cx: FrameContext,
    ) -> Option<Decoded> {
        match linktype {
            // BSD loopback (host order) and OpenBSD loopback (network order).
            0 | 108 => self.family(view.be32(0)?, view.skip(4)?, cx),
            1 => self.ethernet(view, cx),
            6 => self.token_ring(view, cx),
            9 | 50 => self.ppp(view, cx),
            10 => self.fddi(view, cx),
            12 | 14 | 101 => self.ip(view, cx),
            51 => self.pppoe(view, cx),
            100 | 106 => self.llc(view, cx),
            104 => self.network(view.be16(2)?, view.skip(4)?, cx),
            105 => self.wlan(view, 0, cx),
            // OpenBSD's IPsec interface: family, SPI, flags.
            109 => self.ip(view.skip(12)?, cx),
            113 => self.network(view.be16(14)?, view.skip(16)?, cx),
            // OpenBSD's packet filter log: its length, then the family.
            117 => {
                let header = (usize::from(view.u8(0)?) + 3) & !3;
                self.family(u32::from(view.u8(1)?), view.skip(header)?, cx)
            }
            119 => self.prism(view, cx),
            127 => self.radiotap(view, cx),
            // Apple's packet tap: length, next type, link type, all little-endian.
            149 | 258 => {
                let header = view.be32(0)?.swap_bytes() as usize;
                let inner = view.be32(8)?.swap_bytes();
                let deeper = cx.deeper()?;
                if header < 12 {
                    None
                } else {
                    self.link(u16::try_from(inner).ok()?, view.skip(header)?, deeper)
                }
            }
            163 => self.avs(view, cx),
            // A direction in front of PPP, with the control byte or in place of the address.
            166 => self.ppp(view.skip(2)?, cx),
            // Per-packet information: version, flags, length, link type, the last two little-endian.
            192 => {
                let header = usize::from(view.be16(2)?.swap_bytes());
                let inner = view.be32(4)?.swap_bytes();
                let deeper = cx.deeper()?;
                if header < 8 {
                    None
                } else {
                    self.link(u16::try_from(inner).ok()?, view.skip(header)?, deeper)
                }
            }
            204 => self.ppp(view.skip(1)?, cx),
            228 => self.ipv4(view, cx),
            229 => self.ipv6(view, cx),
            239 => self.nflog(view, cx),
            276 => self.network(view.be16(0)?, view.skip(20)?, cx),
            _ => Some(Decoded::NotIp),
        }
    }

    /// Address family in either byte order; IPv6 has a number of its own on every BSD.
    fn family(&mut self, family: u32, rest: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let family = if family > 0xffff { family.swap_bytes() } else { family };
        match family {
            2 => self.ipv4(rest, cx),
            10 | 24 | 26 | 28 | 30 => self.ipv6(rest, cx),
            _ => Some(Decoded::NotIp),
        }
    }

    pub(crate) fn ethernet(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        self.network(view.be16(12)?, view.skip(14)?, cx)
    }

    /// What an Ethernet type, or a length in its place, announces.
    pub(crate) fn network(
        &mut self,
        mut kind: u16,
        mut rest: View<'_>,
        cx: FrameContext,
    ) -> Option<Decoded> {
        loop {
            // Each tag takes bytes off, so the frame bounds the rounds.
            let tag = match kind {
                // VLAN, provider bridging and its three older numbers.
                0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300 => 2,
                // IEEE 802.1BR tag; Cisco metadata.
                0x893f | 0x8909 => 6,
                _ => break,
            };
            kind = rest.be16(tag)?;
            rest = rest.skip(tag + 2)?;
        }
        match kind {
            0x0800 => self.ipv4(rest, cx),
            0x86dd => self.ipv6(rest, cx),
            0x8847 | 0x8848 => self.mpls(rest, cx),
            0x8864 => self.pppoe(rest, cx),
            0x880b => self.ppp(rest, cx),
            0x6558 => self.ethernet(rest, cx.deeper()?),
            // Backbone bridging: service tag of four bytes, then the customer's frame.
            0x88e7 => self.ethernet(rest.skip(4)?, cx.deeper()?),
            // 4 is Linux's cooked number for a frame that begins with LLC; 0x8870 announces one too long for
            // a length.
            4 | 0x8870 => self.llc(rest, cx),
            5..=MAX_LENGTH => self.llc(rest.cut(rest.wire.min(u32::from(kind))), cx),
            _ => Some(Decoded::NotIp),
        }
    }

    pub(crate) fn llc(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        match (view.u8(0)?, view.u8(1)?, view.u8(2)?) {
            (0xaa, 0xaa, 3) => {
                let oui = view.be32(2)? & 0xff_ffff;
                let (kind, rest) = (view.be16(6)?, view.skip(8)?);
                match (oui, kind) {
                    // RFC 1042, and the bridge tunnel of IEEE 802.1H.
                    (0 | 0x0000f8, _) if kind > MAX_LENGTH => self.network(kind, rest, cx),
                    // RFC 2684 section 5.2: bridged Ethernet, two bytes of padding first.
                    (0x0080c2, 1 | 7) => self.ethernet(rest.skip(2)?, cx.deeper()?),
                    _ => Some(Decoded::NotIp),
                }
            }
            // The LLC number of IP itself.
            (6, 6, 3) => self.ip(view.skip(3)?, cx),
            // ISO network layer identifiers.
            (0xfe, 0xfe, 3) => match view.u8(3)? {
                0xcc => self.ipv4(view.skip(4)?, cx),
                0x8e => self.ipv6(view.skip(4)?, cx),
                0xcf => self.ppp(view.skip(4)?, cx),
                _ => Some(Decoded::NotIp),
            },
            _ => Some(Decoded::NotIp),
        }
    }

    /// Behind the bottom of the stack nothing says what follows: the first nibble does (RFC 4928), if what
    /// it announces makes sense; else an Ethernet pseudowire with or without a control word.
    pub(crate) fn mpls(&mut self, mut view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        loop {
            let bottom = view.u8(2)? & 1 != 0;
            view = view.skip(4)?;
            if bottom {
                break;
            }
        }
        let inner = cx.deeper()?;
        let first = view.u8(0)? >> 4;
        let tries = [
            if first == 4 || first == 6 { self.ip(view, cx) } else { None },
            if first == 0 { view.skip(4).and_then(|v| self.ethernet(v, inner)) } else { None },
        ];
        match tries.into_iter().flatten().find(carries_ip) {
            Some(decoded) => Some(decoded),
            None if first == 4 || first == 6 => match self.ethernet(view, inner) {
                Some(decoded) if carries_ip(&decoded) => Some(decoded),
                _ => None,
            },
            None => Some(self.ethernet(view, inner).filter(carries_ip).unwrap_or(Decoded::NotIp)),
        }
    }

    /// Version and type, code (0 is session data), session, length.
    fn pppoe(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let (version, code, len) = (view.u8(0)?, view.u8(1)?, view.be16(4)?);
        if version != 0x11 || code != 0 {
            return Some(Decoded::NotIp);
        }
        let rest = view.skip(6)?;
        let len = u32::from(len);
        let mut decoded = self.ppp(rest.cut(rest.wire.min(len)), cx)?;
        if rest.wire > len {
            let protocol = 2 - u32::from(rest.u8(0)? & 1);
            without_padding(&mut decoded, len.saturating_sub(protocol));
        }
        Some(decoded)
    }

    /// PPP with or without address and control, with the protocol in one byte or two; Cisco's HDLC instead,
    /// where its address says so.
    pub(crate) fn ppp(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let rest = match (view.u8(0)?, view.u8(1)?) {
            (0xff, 3) => view.skip(2)?,
            (0x0f | 0x8f, 0) => return self.network(view.be16(2)?, view.skip(4)?, cx),
            _ => view,
        };
        let (protocol, rest) = match rest.u8(0)? {
            // An odd first byte is the whole protocol (RFC 1661 section 6.5).
            short if short & 1 != 0 => (u16::from(short), rest.skip(1)?),
            _ => (rest.be16(0)?, rest.skip(2)?),
        };
        match protocol {
            0x0021 => self.ipv4(rest, cx),
            0x0057 => self.ipv6(rest, cx),
            0x0281 | 0x0283 => self.mpls(rest, cx),
            _ => Some(Decoded::NotIp),
        }
    }

    /// Frame control, two addresses, LLC.
    fn fddi(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        // Asynchronous and synchronous LLC frames.
        if view.u8(0)? & 0x70 != 0x50 {
            return Some(Decoded::NotIp);
        }
        self.llc(view.skip(13)?, cx)
    }

    /// Access and frame control, two addresses, the route if the source address announces one, LLC.
    fn token_ring(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        if view.u8(1)? & 0xc0 != 0x40 {
            return Some(Decoded::NotIp);
        }
        let route = if view.u8(8)? & 0x80 != 0 { usize::from(view.u8(14)? & 0x1f) } else { 0 };
        self.llc(view.skip(14 + route)?, cx)
    }

    /// Family, version, resource; then attributes in the byte order of the host, of which number 9 is the
    /// packet.
    fn nflog(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let family = view.u8(0)?;
        let mut rest = view.skip(4)?;
        while rest.data.len() >= 4 {
            let (mut len, mut kind) = (rest.be16(0)?.swap_bytes(), rest.be16(2)?.swap_bytes());
            // The first attribute is small, so a large type shows the other order.
            if kind > 255 {
                (len, kind) = (len.swap_bytes(), kind.swap_bytes());
            }
            let len = usize::from(len);
            if len < 4 {
                return None;
            }
            if kind == 9 {
                let packet = rest.cut(rest.wire.min(len as u32)).skip(4)?;
                return match family {
                    2 => self.ipv4(packet, cx),
                    10 => self.ipv6(packet, cx),
                    _ => Some(Decoded::NotIp),
                };
            }
            rest = rest.skip(len.next_multiple_of(4))?;
        }
        Some(Decoded::NotIp)
    }
}

/// Whether an IP packet came out.
pub(crate) fn carries_ip(decoded: &Decoded) -> bool {
    matches!(decoded, Decoded::Tcp(_) | Decoded::Datagram(_) | Decoded::Fragment)
}

/// The frame goes on after the `room` bytes that PPPoE says it carries: what is beyond is padding of Ethernet, also where an
/// IP length includes it (some access routers adapt it to the padded frame).
fn without_padding(decoded: &mut Decoded, room: u32) {
    if let Decoded::Tcp(s) = decoded {
        let padding = s.ip.total_len.saturating_sub(room).min(s.payload);
        s.ip.total_len -= padding;
        s.payload -= padding;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{arrives, decode, ethernet, ipv4, ipv6, join, segment, tcp};

    const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

    fn four() -> Vec<u8> {
        ipv4(6, &tcp())
    }
    fn six() -> Vec<u8> {
        ipv6(6, &tcp())
    }

    #[test]
    fn ethernet_carries_both_versions_and_its_padding_is_no_payload() {
        arrives(1, &ethernet(0x0800, &four()));
        arrives(1, &ethernet(0x86dd, &six()));
        let padded =
            join(&[&ethernet(0x0800, &ipv4(6, &crate::packets::tcp_with(0x10, &[], 0))), &[0; 6]]);
        assert_eq!(segment(1, &padded).payload, 0);
        assert_eq!(segment(1, &padded).ip.wire_len, 60);
    }

    #[test]
    fn tags_of_any_depth_are_passed() {
        let mut inside = join(&[&[0, 5, 8, 0], &four()]);
        for kind in [0x88a8_u16, 0x9100, 0x9200, 0x8100, 0x8100] {
            arrives(1, &ethernet(kind, &inside));
            inside = join(&[&[0x20, 9], &kind.to_be_bytes(), &inside]);
        }
        arrives(1, &ethernet(0x88a8, &join(&[&[0, 5, 0x81, 0, 0, 6, 0, 200], &SNAP, &four()])));
        arrives(1, &ethernet(0x893f, &join(&[&[0; 6], &[8, 0], &four()])));
    }

    #[test]
    fn backbone_bridging_carries_the_customers_frame() {
        arrives(1, &ethernet(0x88e7, &join(&[&[0, 0, 0, 1], &ethernet(0x0800, &four())])));
    }

    #[test]
    fn mpls_stacks_end_in_ip_or_in_a_pseudowire_with_or_without_control_word() {
        let labels = [0, 1, 0x40, 64, 0, 2, 0x41, 64];
        arrives(1, &ethernet(0x8847, &join(&[&labels, &four()])));
        arrives(1, &ethernet(0x8848, &join(&[&labels, &six()])));
        arrives(1, &ethernet(0x8847, &join(&[&labels, &[0; 4], &ethernet(0x0800, &four())])));
        arrives(1, &ethernet(0x8847, &join(&[&labels, &ethernet(0x0800, &four())])));
        let mut like_ip = ethernet(0x0800, &four());
        like_ip[0] = 0x40;
        arrives(1, &ethernet(0x8847, &join(&[&labels, &like_ip])));
        assert_eq!(decode(1, &ethernet(0x8847, &join(&[&labels, &[0x10; 40]]))), Decoded::NotIp);
    }

    #[test]
    fn ppp_comes_with_and_without_address_and_with_a_short_protocol() {
        for prefix in
            [&[0xff, 3, 0, 0x21][..], &[0, 0x21], &[0x21], &[0xff, 3, 0x21], &[0x0f, 0, 8, 0]]
        {
            arrives(9, &join(&[prefix, &four()]));
            arrives(50, &join(&[prefix, &four()]));
            arrives(204, &join(&[&[1], prefix, &four()]));
            arrives(1, &ethernet(0x880b, &join(&[prefix, &four()])));
        }
        arrives(9, &join(&[&[0xff, 3, 0, 0x57], &six()]));
        arrives(166, &join(&[&[0, 3, 0, 0x21], &four()]));
        assert_eq!(decode(9, &[0xff, 3, 0xc0, 0x21, 1, 2, 3, 4]), Decoded::NotIp);
    }

    #[test]
    fn pppoe_sessions_are_read_and_discovery_is_not_ip() {
        let len = (four().len() + 2) as u16;
        let session = join(&[&[0x11, 0, 0, 1], &len.to_be_bytes(), &[0, 0x21], &four()]);
        arrives(51, &session);
        arrives(1, &ethernet(0x8864, &session));
        let short = join(&[&[0x11, 0, 0, 1], &(len - 1).to_be_bytes(), &[0x21], &four()]);
        arrives(1, &ethernet(0x8864, &short));
        assert_eq!(decode(1, &ethernet(0x8863, &[0x11, 9, 0, 0, 0, 0])), Decoded::NotIp);
    }

    #[test]
    fn padding_behind_a_pppoe_session_is_no_payload_though_the_ip_length_includes_it() {
        let payload = |room: usize, frame: usize| {
            let mut session = join(&[&[0x11, 0, 0, 1], &[0, 0], &[0, 0x21], &four()]);
            session[4..6].copy_from_slice(&((room + 2) as u16).to_be_bytes());
            session.truncate(8 + frame);
            match decode(1, &ethernet(0x8864, &session)) {
                Decoded::Tcp(s) => (s.payload as usize, s.ip.total_len as usize),
                other => panic!("{other:?}"),
            }
        };
        let whole = four().len();
        let (data, _) = payload(whole, whole);
        assert_eq!(payload(whole - 6, whole), (data - 6, whole - 6), "six bytes of padding");
        assert_eq!(payload(whole, whole - 6), (data, whole), "cut by the capture");
    }

    #[test]
    fn raw_ip_is_recognised_by_its_version() {
        for linktype in [12, 14, 101] {
            arrives(linktype, &four());
            arrives(linktype, &six());
        }
        arrives(228, &four());
        arrives(229, &six());
        arrives(109, &join(&[&[0; 12], &four()]));
    }

    #[test]
    fn loopback_families_are_read_in_both_byte_orders() {
        for linktype in [0, 108] {
            arrives(linktype, &join(&[&[2, 0, 0, 0], &four()]));
            arrives(linktype, &join(&[&[0, 0, 0, 2], &four()]));
            for family in [10, 24, 28, 30] {
                arrives(linktype, &join(&[&[family, 0, 0, 0], &six()]));
                arrives(linktype, &join(&[&[0, 0, 0, family], &six()]));
            }
            assert_eq!(decode(linktype, &[0, 0, 0, 7, 1, 2]), Decoded::NotIp);
        }
        arrives(117, &join(&[&[61, 2], &[0; 62], &four()]));
    }

    #[test]
    fn linux_cooked_captures_of_both_versions_are_read() {
        let header = |kind: [u8; 2]| join(&[&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0], &kind]);
        arrives(113, &join(&[&header([8, 0]), &four()]));
        arrives(113, &join(&[&header([0x81, 0]), &[0, 3, 0x86, 0xdd], &six()]));
        arrives(113, &join(&[&header([0, 4]), &SNAP, &four()]));
        arrives(276, &join(&[&[8, 0], &[0; 18], &four()]));
        assert_eq!(decode(276, &join(&[&[8, 6], &[0; 46]])), Decoded::NotIp);
    }

    #[test]
    fn llc_is_followed_on_ethernet_fddi_token_ring_and_atm() {
        let len = ((SNAP.len() + four().len()) as u16).to_be_bytes();
        arrives(1, &join(&[&[0; 12], &len, &SNAP, &four()]));
        arrives(10, &join(&[&[0x57], &[0; 12], &SNAP, &four()]));
        arrives(6, &join(&[&[0x10, 0x40], &[0; 12], &SNAP, &four()]));
        let routed =
            join(&[&[0x10, 0x40], &[0; 6], &[0x80; 6], &[6, 0, 1, 2, 3, 4], &SNAP, &four()]);
        arrives(6, &routed);
        arrives(100, &join(&[&SNAP, &four()]));
        arrives(100, &join(&[&[0xfe, 0xfe, 3, 0xcc], &four()]));
        arrives(
            100,
            &join(&[&[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0], &ethernet(0x0800, &four())]),
        );
        arrives(104, &join(&[&[0x0f, 0, 8, 0], &four()]));
        assert_eq!(
            decode(1, &join(&[&[0; 12], &[0, 38, 0x42, 0x42, 3], &[0; 40]])),
            Decoded::NotIp
        );
    }

    #[test]
    fn nflog_attributes_are_walked_in_both_byte_orders() {
        let packet = four();
        let len = (packet.len() + 4) as u16;
        let little =
            join(&[&[2, 0, 0, 0, 5, 0, 2, 0, 9, 0, 0, 0], &len.to_le_bytes(), &[9, 0], &packet]);
        let big =
            join(&[&[2, 0, 0, 0, 0, 8, 0, 1, 0, 0, 8, 0], &len.to_be_bytes(), &[0, 9], &packet]);
        arrives(239, &little);
        arrives(239, &big);
        assert_eq!(decode(239, &[2, 0, 0, 0, 2, 0, 9, 0]), Decoded::Broken);
    }

    #[test]
    fn a_link_type_may_stand_inside_a_packet_tap_header() {
        let inner = ethernet(0x0800, &four());
        arrives(192, &join(&[&[0, 0, 8, 0, 1, 0, 0, 0], &inner]));
        arrives(258, &join(&[&[12, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0], &inner]));
        assert_eq!(decode(192, &[0, 0, 8, 0, 192, 0, 0, 0].repeat(40)), Decoded::Broken);
    }

    #[test]
    fn an_unknown_link_type_is_not_ip() {
        assert_eq!(decode(220, &[0; 80]), Decoded::NotIp);
    }
}
