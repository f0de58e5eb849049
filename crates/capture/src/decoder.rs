//! Turns a frame into a [`Decoded`] packet.
//!
//! The methods of [`Decoder`] stand in one file per layer, in the order in which a frame meets them:
//! `link` (link layers, tags, LLC, MPLS, PPP), `wlan` (802.11 and its radio headers), `ip` (IPv4,
//! IPv6, transport headers) and `tunnel` (packets inside packets, which start again at `link` or
//! `ip`). This file has the entry point and the fast path: TCP in IPv4 without options in Ethernet
//! without tags, recognised by its fixed bytes. A test compares both paths.

use units::Instant;

use crate::decoded::{Addr, Decoded, TcpOptions, TcpSegment};
use crate::fragment::Fragments;
use crate::frame::Frame;
use crate::view::View;
use crate::{protocol, tcp};

/// Tunnels inside tunnels that are followed; the deepest stacks of mobile cores have five.
const MAX_DEPTH: u8 = 16;

/// Facts about the frame that every layer passes on to the next.
#[derive(Clone, Copy)]
pub(crate) struct FrameContext {
    pub(crate) time: Instant,
    pub(crate) wire_len: u32,
    pub(crate) interface: u32,
    /// Tunnels that may still be entered.
    pub(crate) depth: u8,
}

impl FrameContext {
    /// One tunnel deeper, if that is still allowed.
    pub(crate) fn deeper(self) -> Option<FrameContext> {
        Some(FrameContext { depth: self.depth.checked_sub(1)?, ..self })
    }
}

/// Decodes frames; remembers incomplete IP fragments between them.
#[derive(Default)]
pub struct Decoder {
    pub(crate) fragments: Fragments,
}

impl Decoder {
    /// A decoder without pending fragments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes one frame.
    #[inline]
    pub fn decode(&mut self, frame: &Frame<'_>) -> Decoded {
        let mut decoded = Decoded::Broken;
        self.decode_into(frame, &mut decoded);
        decoded
    }

    /// Decodes one frame into `decoded`. Writing in place avoids a copy of 160 bytes right after
    /// they were written in small pieces, which stalls the processor (no store forwarding).
    #[inline]
    pub fn decode_into(&mut self, frame: &Frame<'_>, decoded: &mut Decoded) {
        if fast_path(frame, decoded).is_none() {
            *decoded = self.decode_any(frame);
        }
    }

    /// The general path, right for every frame.
    #[inline(never)]
    pub(crate) fn decode_any(&mut self, frame: &Frame<'_>) -> Decoded {
        let cx = FrameContext {
            time: frame.time,
            wire_len: frame.wire_len,
            interface: frame.interface,
            depth: MAX_DEPTH,
        };
        let view = View { data: frame.data, wire: frame.wire_len };
        self.link(frame.linktype, view, cx).unwrap_or(Decoded::Broken)
    }
}

/// The headers of a frame that is Ethernet without tags, IPv4 without options, no fragment, TCP; else `None`.
#[inline(always)]
fn plain_tcp<'a>(frame: &Frame<'a>) -> Option<&'a [u8; 54]> {
    const ETHERNET: u16 = 1;
    let head = frame.data.first_chunk::<54>()?;
    let plain = frame.linktype == ETHERNET
        && head[12..15] == [0x08, 0x00, 0x45]
        && head[20] & 0x3f == 0
        && head[21] == 0
        && head[23] == protocol::TCP
        // Both headers; shorter lengths, and 0, need the general path.
        && u16::from_be_bytes([head[16], head[17]]) >= 40;
    if plain { Some(head) } else { None }
}

/// Plain TCP without options or with timestamps alone; `None`, and nothing written, for all else.
#[inline(always)]
fn fast_path(frame: &Frame<'_>, decoded: &mut Decoded) -> Option<()> {
    let head = plain_tcp(frame)?;
    let total_len = u32::from(u16::from_be_bytes([head[16], head[17]]));
    let (tcp, timestamps) = tcp::plain(&frame.data[34..])?;
    let payload = (total_len - 20).checked_sub(tcp)?;
    if payload > 0 && tcp::MIN_FRAME_PACKETS.contains(&total_len) {
        return None;
    }
    if !matches!(decoded, Decoded::Tcp(_)) {
        *decoded = Decoded::Tcp(TcpSegment::default());
    }
    if let Decoded::Tcp(s) = decoded {
        s.ip.time = frame.time;
        s.ip.src = Addr::v4([head[26], head[27], head[28], head[29]]);
        s.ip.dst = Addr::v4([head[30], head[31], head[32], head[33]]);
        s.ip.id = Some(u16::from_be_bytes([head[18], head[19]]));
        s.ip.ttl = head[22];
        s.ip.ecn = head[15] & 3;
        s.ip.total_len = total_len;
        s.ip.wire_len = frame.wire_len;
        s.ip.interface = frame.interface;
        s.src_port = u16::from_be_bytes([head[34], head[35]]);
        s.dst_port = u16::from_be_bytes([head[36], head[37]]);
        s.seq = u32::from_be_bytes([head[38], head[39], head[40], head[41]]);
        s.ack = u32::from_be_bytes([head[42], head[43], head[44], head[45]]);
        s.flags = u16::from_be_bytes([head[46], head[47]]) & 0x1ff;
        s.window = u16::from_be_bytes([head[48], head[49]]);
        s.payload = payload;
        s.maybe_padding = false;
        s.options = TcpOptions { timestamps, ..tcp::NO_OPTIONS };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packets::{ethernet, frame, ipv4, tcp};

    proptest! {
        #[test]
        fn the_fast_and_the_general_path_agree(
            flips in proptest::collection::vec((0_usize..166, any::<u8>()), 0..4),
            kept in 0_usize..=166,
            wire in 0_u32..3000,
        ) {
            let mut bytes = ethernet(0x0800, &ipv4(6, &tcp()));
            for (at, value) in flips {
                bytes[at] = value;
            }
            let f = Frame { wire_len: wire.max(kept as u32), ..frame(1, &bytes[..kept]) };
            prop_assert_eq!(Decoder::new().decode(&f), Decoder::new().decode_any(&f));
        }

        #[test]
        fn any_bytes_of_any_link_type_decode_without_panic(
            linktype in 0_u16..300,
            data in proptest::collection::vec(any::<u8>(), 0..300),
            wire in any::<u32>(),
        ) {
            Decoder::new().decode(&Frame { wire_len: wire, ..frame(linktype, &data) });
        }

        #[test]
        fn any_bytes_behind_any_protocol_decode_without_panic(
            protocol in any::<u8>(),
            fragment in any::<u16>(),
            data in proptest::collection::vec(any::<u8>(), 0..200),
            port in prop::sample::select(vec![2152_u16, 4789, 6081, 3544, 1701, 6635]),
            next in prop::sample::select(vec![0_u8, 6, 17, 43, 44, 47, 51, 60, 135]),
        ) {
            use crate::packets::{ipv4_with, ipv6, udp};
            let mut decoder = Decoder::new();
            for packet in [
                ipv4_with(protocol, 1, fragment, &data),
                ipv4(47, &data),
                ipv4(17, &udp(port, 9, &data)),
                ipv6(next, &data),
            ] {
                decoder.decode(&frame(101, &packet));
            }
        }
    }
}
