//! IEEE 802.11 data frames, and the radio headers in front of them.
//!
//! Sources: IEEE 802.11-2020 section 9.3.2 (data frames), radiotap.org, the Prism and AVS layouts of
//! tcpdump.org. Of an aggregate (A-MSDU) only the first subframe is read; later fragments of a frame and
//! encrypted frames carry no readable IP header.

use crate::decoded::Decoded;
use crate::decoder::{Decoder, FrameContext};
use crate::view::View;

/// Radiotap flag: padding to four bytes between header and payload.
const PADDED: u8 = 0x20;

impl Decoder {
    /// A frame that begins with frame control; `flags` are radiotap's.
    pub(crate) fn wlan(&mut self, view: View<'_>, flags: u8, cx: FrameContext) -> Option<Decoded> {
        let (kind, control) = (view.u8(0)?, view.u8(1)?);
        let data = kind & 0x0c == 0x08;
        // Subtypes with this bit carry no data.
        let null = kind & 0x40 != 0;
        let protected = control & 0x40 != 0;
        if kind & 3 != 0 || !data || null || protected {
            return Some(Decoded::NotIp);
        }
        let fragment = view.be16(22)?.swap_bytes() & 15;
        if fragment != 0 {
            return Some(Decoded::NotIp);
        }
        // Both "to" and "from the distribution system": a fourth address.
        let mut header = if control & 3 == 3 { 30 } else { 24 };
        let mut aggregate = false;
        if kind & 0x80 != 0 {
            aggregate = view.u8(header)? & 0x80 != 0;
            header += 2;
            // "Order" on a QoS frame announces four bytes of HT control.
            if control & 0x80 != 0 {
                header += 4;
            }
        }
        if flags & PADDED != 0 {
            header = header.next_multiple_of(4);
        }
        if aggregate {
            // Subframe: two addresses and a length.
            header += 14;
        }
        self.llc(view.skip(header)?, cx)
    }

    pub(crate) fn radiotap(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let header = usize::from(view.be16(2)?.swap_bytes());
        if view.u8(0)? != 0 || header < 8 {
            return None;
        }
        let present = view.be32(4)?.swap_bytes();
        let (mut fields, mut word) = (8, present);
        while word & 1 << 31 != 0 && fields < header {
            word = view.be32(fields)?.swap_bytes();
            fields += 4;
        }
        let flags = if present & 2 == 0 {
            0
        } else if present & 1 == 0 {
            view.u8(fields)?
        } else {
            // The time stamp in front is aligned to its own eight bytes.
            view.u8(fields.next_multiple_of(8) + 8)?
        };
        self.wlan(view.skip(header)?, flags, cx)
    }

    /// 144 bytes in all known drivers, but the length is in the header; AVS headers appear under this number
    /// too.
    pub(crate) fn prism(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        if view.be32(0)? & 0xffff_f000 == 0x8021_1000 {
            return self.avs(view, cx);
        }
        let field = view.be32(4)?;
        let header = if field > 0xffff { field.swap_bytes() } else { field };
        if header < 8 { None } else { self.wlan(view.skip(header as usize)?, 0, cx) }
    }

    /// Magic and version, length.
    pub(crate) fn avs(&mut self, view: View<'_>, cx: FrameContext) -> Option<Decoded> {
        let header = view.be32(4)? as usize;
        if header < 8 { None } else { self.wlan(view.skip(header)?, 0, cx) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{arrives, decode, ipv4, join, tcp};

    const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

    fn body() -> Vec<u8> {
        join(&[&SNAP, &ipv4(6, &tcp())])
    }

    #[test]
    fn data_frames_with_three_and_four_addresses_and_qos_are_read() {
        arrives(105, &join(&[&[0x08, 0x01], &[0; 22], &body()]));
        arrives(105, &join(&[&[0x08, 0x03], &[0; 28], &body()]));
        arrives(105, &join(&[&[0x88, 0x02], &[0; 22], &[0, 0], &body()]));
        arrives(105, &join(&[&[0x88, 0x82], &[0; 22], &[0, 0, 1, 2, 3, 4], &body()]));
    }

    #[test]
    fn the_first_subframe_of_an_aggregate_is_read() {
        arrives(105, &join(&[&[0x88, 0x02], &[0; 22], &[0x80, 0], &[0; 14], &body()]));
    }

    #[test]
    fn encrypted_empty_and_management_frames_are_not_ip() {
        for (kind, control) in [(0x08, 0x41), (0x48, 0x01), (0x80, 0), (0xd4, 0)] {
            assert_eq!(decode(105, &join(&[&[kind, control], &[0; 80]])), Decoded::NotIp);
        }
        assert_eq!(decode(105, &join(&[&[8, 1], &[0; 20], &[1, 0], &body()])), Decoded::NotIp);
    }

    #[test]
    fn radiotap_is_skipped_by_its_length_and_its_padding_flag_is_obeyed() {
        let plain = join(&[&[0x08, 0x01], &[0; 22], &body()]);
        arrives(127, &join(&[&[0, 0, 8, 0, 0, 0, 0, 0], &plain]));
        let padded = join(&[&[0x88, 0x01], &[0; 24], &[0, 0], &body()]);
        arrives(127, &join(&[&[0, 0, 9, 0, 2, 0, 0, 0, 0x20], &padded]));
        let stamped =
            [0, 0, 25, 0, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x20, 0, 0, 0, 0, 0, 0, 0, 0];
        arrives(127, &join(&[&stamped, &padded]));
        let extended = [0, 0, 13, 0, 2, 0, 0, 0x80, 0, 0, 0, 0, 0x20];
        arrives(127, &join(&[&extended, &padded]));
    }

    #[test]
    fn prism_and_avs_headers_are_skipped() {
        let plain = join(&[&[0x08, 0x01], &[0; 22], &body()]);
        arrives(119, &join(&[&[0x44, 0, 0, 0, 144, 0, 0, 0], &[0; 136], &plain]));
        let avs = join(&[&[0x80, 0x21, 0x10, 1, 0, 0, 0, 64], &[0; 56], &plain]);
        arrives(119, &avs);
        arrives(163, &avs);
    }
}
