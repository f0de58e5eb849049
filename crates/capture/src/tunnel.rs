//! Packets inside packets.
//!
//! Sources: RFC 2784/2890 (GRE), RFC 2637 (PPTP), draft-foschiano-erspan, RFC 2003/4213 (IP in IP), RFC 7348
//! (VXLAN), RFC 8926 (Geneve), 3GPP TS 29.281 (GTP-U), RFC 4380 (Teredo), RFC 2661 (L2TP), RFC 7510 (MPLS in
//! UDP), RFC 3378 (EtherIP), RFC 4023 (MPLS in IP). `None` means that nothing readable is inside; the
//! outer packet counts then. A UDP port is no proof of a tunnel. So the tunnel's own header must be valid,
//! and it must contain an IP packet that fits.

use crate::decoded::Decoded;
use crate::decoder::{Decoder, FrameContext};
use crate::link::carries_ip;
use crate::protocol::{ETHERIP, GRE, IPV4, IPV6, MPLS_IN_IP};
use crate::view::View;

// Registered UDP ports (IANA).
const L2TP_PORT: u16 = 1701;
const GTP_U_PORT: u16 = 2152;
const TEREDO_PORT: u16 = 3544;
const VXLAN_PORT: u16 = 4789;
/// Used for VXLAN by Linux before the registration.
const VXLAN_LINUX_PORT: u16 = 8472;
const GENEVE_PORT: u16 = 6081;
const MPLS_PORT: u16 = 6635;

impl Decoder {
    /// The packet inside a tunnel with an IP protocol number.
    pub(crate) fn ip_tunnel(
        &mut self,
        protocol: u8,
        view: View<'_>,
        cx: FrameContext,
    ) -> Option<Decoded> {
        let inner = match protocol {
            IPV4 => self.ipv4(view, cx),
            IPV6 => self.ipv6(view, cx),
            GRE => self.gre(view, cx),
            ETHERIP => self.ethernet(view.skip(2)?, cx),
            MPLS_IN_IP => self.mpls(view, cx),
            _ => None,
        };
        inner.filter(carries_ip)
    }

    /// The packet inside a tunnel over UDP, recognised by the port on either side.
    pub(crate) fn udp_tunnel(
        &mut self,
        ports: (u16, u16),
        view: View<'_>,
        cx: FrameContext,
    ) -> Option<Decoded> {
        let is = |port| ports.0 == port || ports.1 == port;
        let inner = if is(GTP_U_PORT) {
            self.gtp(view, cx)
        } else if is(VXLAN_PORT) || is(VXLAN_LINUX_PORT) {
            self.vxlan(view, cx)
        } else if is(GENEVE_PORT) {
            self.geneve(view, cx)
        } else if is(TEREDO_PORT) {
            self.teredo(view, cx)
        } else if is(L2TP_PORT) {
            self.l2tp(view, cx)
        } else if is(MPLS_PORT) {
            self.mpls(view, cx)
        } else {
            None
        };
        inner.filter(carries_ip)
    }

    fn gre(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        const CHECKSUM: u16 = 0x8000;
        const ROUTING: u16 = 0x4000;
        const KEY: u16 = 0x2000;
        const SEQUENCE: u16 = 0x1000;
        /// PPTP's own flag.
        const ACKNOWLEDGEMENT: u16 = 0x0080;
        let (flags, kind) = (view.be16(0)?, view.be16(2)?);
        let version = flags & 7;
        if flags & ROUTING != 0 || version > 1 {
            return None;
        }
        let mut header = 4;
        for (flag, applies) in
            [(CHECKSUM, true), (KEY, true), (SEQUENCE, true), (ACKNOWLEDGEMENT, version == 1)]
        {
            if applies && flags & flag != 0 {
                header += 4;
            }
        }
        let rest = view.skip(header)?;
        match kind {
            // ERSPAN: type I has no sequence number and no header of its own.
            0x88be if flags & SEQUENCE == 0 => self.ethernet(rest, cx),
            0x88be => self.ethernet(rest.skip(8)?, cx),
            0x22eb => self.erspan_3(rest, cx),
            // Aruba access points send the 802.11 frame.
            0x8200..=0x8210 => self.wlan(rest, 0, cx),
            // WCCP: version 2 has a redirect header, which never begins like IPv4.
            0x883e if rest.u8(0)? >> 4 == 4 => self.ipv4(rest, cx),
            0x883e => self.ipv4(rest.skip(4)?, cx),
            _ => self.network(kind, rest, cx),
        }
    }

    fn erspan_3(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let last = view.be16(10)?;
        let rest = view.skip(if last & 1 != 0 { 20 } else { 12 })?;
        // Frame type: 0 Ethernet, 2 IP.
        match last >> 10 & 31 {
            2 => self.ip(rest, cx),
            _ => self.ethernet(rest, cx),
        }
    }

    fn gtp(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        /// Message type of user data.
        const G_PDU: u8 = 255;
        let (flags, kind, len) = (view.u8(0)?, view.u8(1)?, view.be16(2)?);
        // Version 1, protocol type GTP.
        if flags & 0xf0 != 0x30 || kind != G_PDU || u32::from(len) + 8 > view.wire {
            return None;
        }
        let mut rest = view.cut(u32::from(len) + 8).skip(8)?;
        // Any of extension, sequence number, N-PDU number brings all three fields.
        if flags & 7 != 0 {
            let mut next = if flags & 4 != 0 { rest.u8(3)? } else { 0 };
            rest = rest.skip(4)?;
            while next != 0 {
                let header = usize::from(rest.u8(0)?) * 4;
                if header == 0 {
                    return None;
                }
                next = rest.u8(header - 1)?;
                rest = rest.skip(header)?;
            }
        }
        self.fitting_ip(rest, cx)
    }

    fn vxlan(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        // The flag that says that the network identifier is valid; a byte that every extension leaves zero.
        if view.u8(0)? & 8 == 0 || view.u8(7)? != 0 {
            return None;
        }
        self.ethernet(view.skip(8)?, cx)
    }

    fn geneve(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let first = view.u8(0)?;
        // Version 0; control packets carry none of the user's.
        if first >> 6 != 0 || view.u8(1)? & 0x80 != 0 {
            return None;
        }
        self.network(view.be16(2)?, view.skip(8 + usize::from(first & 0x3f) * 4)?, cx)
    }

    fn teredo(&mut self, mut view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        if view.be16(0)? == 1 {
            let (id, authentication) = (usize::from(view.u8(2)?), usize::from(view.u8(3)?));
            // Both values, a nonce of eight bytes, a confirmation byte.
            view = view.skip(4 + id + authentication + 9)?;
        }
        if view.be16(0)? == 0 {
            view = view.skip(8)?;
        }
        if view.u8(0)? >> 4 == 6 { self.fitting_ip(view, cx) } else { None }
    }

    fn l2tp(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        const CONTROL: u16 = 0x8000;
        const LENGTH: u16 = 0x4000;
        const SEQUENCE: u16 = 0x0800;
        const OFFSET: u16 = 0x0200;
        let flags = view.be16(0)?;
        if flags & 15 != 2 || flags & CONTROL != 0 {
            return None;
        }
        // Flags, tunnel and session identifier.
        let mut header = 6;
        if flags & LENGTH != 0 {
            header += 2;
        }
        if flags & SEQUENCE != 0 {
            header += 4;
        }
        if flags & OFFSET != 0 {
            header += 2 + usize::from(view.be16(header)?);
        }
        self.ppp(view.skip(header)?, cx)
    }

    /// An IP packet that is no longer than what carries it.
    fn fitting_ip(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let len = match view.u8(0)? >> 4 {
            4 => u32::from(view.be16(2)?),
            6 => u32::from(view.be16(4)?) + 40,
            _ => return None,
        };
        if len > view.wire { None } else { self.ip(view, cx) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{
        arrives, datagram, decode, ethernet, ipv4, ipv6, join, tcp, tcp_with, udp,
    };

    fn four() -> Vec<u8> {
        ipv4(6, &tcp())
    }
    fn in_udp(port: u16, inside: &[u8]) -> Vec<u8> {
        ipv4(17, &udp(5000, port, inside))
    }

    #[test]
    fn ip_in_ip_is_followed_in_all_four_combinations() {
        arrives(101, &ipv4(4, &four()));
        arrives(101, &ipv4(41, &ipv6(6, &tcp())));
        arrives(101, &ipv6(4, &four()));
        arrives(101, &ipv6(41, &ipv6(6, &tcp())));
        arrives(101, &ipv4(97, &join(&[&[0x30, 0], &ethernet(0x0800, &four())])));
        arrives(101, &ipv4(137, &join(&[&[0, 1, 0x41, 64], &four()])));
    }

    #[test]
    fn gre_with_any_of_its_optional_fields_is_followed() {
        arrives(101, &ipv4(47, &join(&[&[0, 0, 8, 0], &four()])));
        arrives(101, &ipv4(47, &join(&[&[0xb0, 0, 8, 0], &[0; 12], &four()])));
        arrives(
            101,
            &ipv4(47, &join(&[&[0x20, 0, 0x65, 0x58], &[0; 4], &ethernet(0x0800, &four())])),
        );
        arrives(
            101,
            &ipv4(47, &join(&[&[0x30, 0x81, 0x88, 0x0b], &[0; 12], &[0xff, 3, 0, 0x21], &four()])),
        );
        arrives(101, &ipv4(47, &join(&[&[0, 0, 0x88, 0x3e], &[0x80, 0, 0, 0], &four()])));
        let wlan = join(&[&[0x08, 1], &[0; 22], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &four()]);
        arrives(101, &ipv4(47, &join(&[&[0, 0, 0x82, 0], &wlan])));
    }

    #[test]
    fn erspan_of_all_three_types_is_followed() {
        let inner = ethernet(0x0800, &four());
        arrives(101, &ipv4(47, &join(&[&[0, 0, 0x88, 0xbe], &inner])));
        arrives(101, &ipv4(47, &join(&[&[0x10, 0, 0x88, 0xbe], &[0; 4], &[0x10; 8], &inner])));
        arrives(
            101,
            &ipv4(47, &join(&[&[0x10, 0, 0x22, 0xeb], &[0; 4], &[0x20; 10], &[0, 0], &inner])),
        );
        arrives(
            101,
            &ipv4(
                47,
                &join(&[&[0x10, 0, 0x22, 0xeb], &[0; 4], &[0x20; 10], &[0, 1], &[0; 8], &inner]),
            ),
        );
        arrives(
            101,
            &ipv4(47, &join(&[&[0x10, 0, 0x22, 0xeb], &[0; 4], &[0x20; 10], &[8, 0], &four()])),
        );
    }

    #[test]
    fn a_gre_keepalive_counts_as_gre() {
        let d = datagram(101, &ipv4(47, &[0, 0, 0, 0]));
        assert_eq!((d.protocol, d.payload), (47, 4));
    }

    #[test]
    fn vxlan_and_geneve_are_followed() {
        let inner = ethernet(0x0800, &four());
        arrives(101, &in_udp(4789, &join(&[&[8, 0, 0, 0, 0, 0, 1, 0], &inner])));
        arrives(101, &in_udp(8472, &join(&[&[8, 0, 0, 0, 0, 0, 1, 0], &inner])));
        arrives(101, &in_udp(6081, &join(&[&[2, 0, 0x65, 0x58, 0, 0, 1, 0], &[0; 8], &inner])));
        arrives(101, &in_udp(6081, &join(&[&[0, 0, 8, 0, 0, 0, 1, 0], &four()])));
    }

    #[test]
    fn gtp_user_data_is_followed_through_sequence_number_and_extension_headers() {
        let len = |extra: usize| ((four().len() + extra) as u16).to_be_bytes();
        arrives(101, &in_udp(2152, &join(&[&[0x30, 255], &len(0), &[0, 0, 0, 9], &four()])));
        arrives(
            101,
            &in_udp(2152, &join(&[&[0x32, 255], &len(4), &[0, 0, 0, 9], &[0, 1, 0, 0], &four()])),
        );
        // A PDU session container, then another extension header.
        let extensions = [0, 0, 0, 0x85, 1, 0x10, 9, 0x40, 1, 1, 2, 0];
        arrives(
            101,
            &in_udp(2152, &join(&[&[0x34, 255], &len(12), &[0, 0, 0, 9], &extensions, &four()])),
        );
    }

    #[test]
    fn gtp_that_is_no_user_data_or_lies_stays_a_datagram() {
        let whole = (four().len() as u16).to_be_bytes();
        for inside in [
            join(&[&[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]]),
            join(&[&[0x50, 255], &whole, &[0; 4], &four()]),
            join(&[&[0x30, 255, 0xff, 0xff, 0, 0, 0, 0], &four()]),
            join(&[&[0x30, 255, 0, 60, 0, 0, 0, 0], &four()]),
            join(&[&[0x34, 255, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0x85, 0], &four()]),
        ] {
            let d = datagram(101, &in_udp(2152, &inside));
            assert_eq!((d.dst_port, d.payload as usize), (2152, inside.len()));
        }
    }

    #[test]
    fn teredo_is_followed_behind_authentication_and_origin() {
        let six = ipv6(6, &tcp());
        arrives(101, &in_udp(3544, &six));
        arrives(101, &in_udp(3544, &join(&[&[0, 0], &[1; 6], &six])));
        arrives(101, &in_udp(3544, &join(&[&[0, 1, 0, 0], &[0; 9], &[0, 0], &[1; 6], &six])));
    }

    #[test]
    fn l2tp_data_and_mpls_in_udp_are_followed() {
        let ppp = join(&[&[0xff, 3, 0, 0x21], &four()]);
        arrives(101, &in_udp(1701, &join(&[&[0, 2, 0, 1, 0, 1], &ppp])));
        arrives(
            101,
            &in_udp(1701, &join(&[&[0x4a, 2, 0, 9, 0, 1, 0, 1, 0, 0, 0, 0, 0, 2, 7, 7], &ppp])),
        );
        assert_eq!(
            datagram(101, &in_udp(1701, &join(&[&[0xc8, 2, 0, 12], &[0; 8]]))).dst_port,
            1701
        );
        arrives(101, &in_udp(6635, &join(&[&[0, 1, 0x41, 64], &four()])));
    }

    #[test]
    fn what_does_not_parse_inside_leaves_the_outer_datagram() {
        let arp = join(&[&[8, 0, 0, 0, 0, 0, 1, 0], &ethernet(0x0806, &[0; 28])]);
        let d = datagram(101, &in_udp(4789, &arp));
        assert_eq!((d.src_port, d.dst_port, d.payload as usize), (5000, 4789, arp.len()));
        assert_eq!(datagram(101, &in_udp(4789, &[0; 60])).dst_port, 4789);
        assert_eq!(datagram(101, &in_udp(6081, &[0x40; 60])).dst_port, 6081);
    }

    #[test]
    fn a_bomb_of_tunnels_ends_at_a_bounded_depth() {
        let mut packet = ipv4(6, &tcp_with(0x10, &[], 0));
        for _ in 0..1000 {
            packet = ipv4(4, &packet);
        }
        let d = datagram(101, &packet);
        assert_eq!(d.protocol, 4);
        let mut frame = ethernet(0x0800, &four());
        for _ in 0..2000 {
            frame = ethernet(0x88e7, &join(&[&[0; 4], &frame]));
        }
        assert_eq!(decode(1, &frame), Decoded::Broken);
    }
}
