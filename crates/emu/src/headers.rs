//! The header fields of an IP packet that a queue needs: flow, class, ECN, addresses; and the CE
//! mark, the one thing that a queue changes.
//!
//! Fields are at fixed offsets (RFC 791, RFC 8200). A truncated or unknown packet counts as a flow
//! of its addresses alone. [`mark`] sets CE (RFC 3168 section 5) and computes the checksum again.
//! Deviation: IPv6 extension headers are not followed. A packet with one has no ports; its flow is
//! that of its addresses and the number of the extension header. The crate `capture` decodes a
//! whole packet into owned fields; here the offsets are needed, for changes in place.

use algo::Ecn;

/// IANA protocol number of TCP.
pub const TCP: u8 = 6;
/// IANA protocol number of UDP.
pub const UDP: u8 = 17;

/// DSCP that a node gives packets of the most urgent band: expedited forwarding (RFC 3246).
const EXPEDITED: u8 = 46;
/// … and of the least: class selector 1 (RFC 2474; the lower effort of RFC 3662).
const LOWER_EFFORT: u8 = 8;

/// The header fields of a packet that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// 4 or 6; 0 if it is neither.
    pub version: u8,
    /// Protocol number of the IP payload.
    pub protocol: u8,
    /// Offset of the transport header.
    pub transport: usize,
    /// Source address; an IPv4 address is in the first four bytes.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Ports of TCP and UDP, else 0.
    pub ports: [u16; 2],
    /// Sequence number of a TCP segment.
    pub sequence: u32,
    /// Differentiated services code point.
    pub dscp: u8,
    /// ECN field of the IP header.
    pub ecn: Ecn,
}

/// Reads the headers; what is not there is left at zero.
pub fn view(packet: &[u8]) -> View {
    let mut view = View::default();
    let Some(first) = packet.first() else { return view };
    let traffic_class;
    match first >> 4 {
        4 if packet.len() >= 20 => {
            view.version = 4;
            view.protocol = packet[9];
            view.transport = usize::from(first & 15) * 4;
            view.source[..4].copy_from_slice(&packet[12..16]);
            view.destination[..4].copy_from_slice(&packet[16..20]);
            traffic_class = packet[1];
            // Later fragments carry no ports (RFC 791 section 3.2), and a header has five words at least (section 3.1).
            let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0;
            if fragment || view.transport < 20 {
                view.transport = packet.len();
            }
        }
        6 if packet.len() >= 40 => {
            view.version = 6;
            view.protocol = packet[6];
            view.transport = 40;
            view.source.copy_from_slice(&packet[8..24]);
            view.destination.copy_from_slice(&packet[24..40]);
            traffic_class = packet[0] << 4 | packet[1] >> 4;
        }
        _ => return view,
    }
    view.dscp = traffic_class >> 2;
    view.ecn = match traffic_class & 3 {
        0 => Ecn::NotCapable,
        1 => Ecn::Capable1,
        2 => Ecn::Capable0,
        _ => Ecn::Marked,
    };
    if matches!(view.protocol, TCP | UDP)
        && let Some(ports) = packet.get(view.transport..view.transport + 4)
    {
        view.ports =
            [u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])];
    }
    if view.protocol == TCP
        && let Some(s) = packet.get(view.transport + 4..view.transport + 8)
    {
        view.sequence = u32::from_be_bytes([s[0], s[1], s[2], s[3]]);
    }
    view
}

impl View {
    /// A hash of the five-tuple.
    pub fn hash(&self) -> u32 {
        // FNV-1a over words, then a finaliser (murmur3's), so that low bits are good enough for a
        // bucket number.
        let mut x = 0xcbf2_9ce4_8422_2325_u64 ^ u64::from(self.protocol);
        let ports = u32::from(self.ports[0]) << 16 | u32::from(self.ports[1]);
        let words = self.source.chunks_exact(4).chain(self.destination.chunks_exact(4));
        for word in words.map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]])).chain([ports]) {
            x = (x ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        x ^= x >> 33;
        x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
        (x ^ x >> 33) as u32
    }

    /// The priority band that its DSCP stands for.
    pub fn class(&self) -> u8 {
        match self.dscp {
            EXPEDITED => 0,
            LOWER_EFFORT => 2,
            _ => 1,
        }
    }
}

/// Sets congestion experienced. Packets that are not ECN-capable never come here: queues mark no
/// others.
pub fn mark(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 20 => {
            packet[1] |= 3;
            let length = usize::from(packet[0] & 15) * 4;
            if packet.len() >= length {
                packet[10..12].fill(0);
                let sum = !sum(0, &packet[..length]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Some(6) if packet.len() >= 40 => packet[1] |= 3 << 4,
        _ => {}
    }
}

/// Ones' complement sum of 16-bit words (RFC 1071), folded.
pub fn sum(start: u64, bytes: &[u8]) -> u16 {
    let mut total = start;
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        total += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        total += u64::from(*last) << 8;
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::checksum;
    use proptest::prelude::*;

    /// A TCP segment from 10.0.0.1:4000 to 10.0.0.2:5001, ECT(0), expedited.
    fn packet() -> Vec<u8> {
        let mut p =
            vec![0x45, 46 << 2 | 2, 0, 44, 0, 1, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let check = !sum(0, &p);
        p[10..12].copy_from_slice(&check.to_be_bytes());
        p.extend([
            0x0f, 0xa0, 0x13, 0x89, 0, 0, 1, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0, 1, 2, 3,
            4,
        ]);
        p
    }

    #[test]
    fn the_fields_of_a_segment_are_read() {
        let view = view(&packet());
        assert_eq!((view.version, view.protocol, view.transport), (4, TCP, 20));
        assert_eq!((view.ports, view.sequence), ([4_000, 5_001], 256));
        assert_eq!((view.ecn, view.class()), (Ecn::Capable0, 0));
    }

    #[test]
    fn a_header_of_fewer_words_than_it_needs_has_no_ports_and_is_cut_into_no_packets() {
        for words in 0..5 {
            let mut short = packet();
            short[0] = 0x40 | words;
            assert_eq!(view(&short).ports, [0, 0]);
            assert!(!crate::offload::segment(&short, 1, |_, _| panic!("a packet")));
        }
    }

    #[test]
    fn a_mark_leaves_a_good_checksum() {
        let mut p = packet();
        mark(&mut p);
        assert_eq!(view(&p).ecn, Ecn::Marked);
        assert_eq!(sum(0, &p[..20]), 0xffff);
    }

    #[test]
    fn the_sum_is_that_of_rfc_1071_and_of_a_header_from_the_wire() {
        // Section 3 of the RFC: these words sum to ddf2.
        assert_eq!(sum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8,
            0, 0xc7,
        ];
        assert_eq!((sum(0, &header), checksum(&header)), (0xffff, 0));
    }

    #[test]
    fn the_fields_of_ipv6_are_read_and_its_mark_touches_nothing_else() {
        // Traffic class b8 | 1: expedited forwarding, ECT(1); flow label abcde; UDP.
        let mut p = vec![0x6b, 0x9a, 0xbc, 0xde, 0, 12, UDP, 64];
        p.extend([0x20; 16]);
        p.extend([0x21; 16]);
        p.extend([0, 53, 0xc0, 0, 0, 12, 0, 0, 1, 2, 3, 4]);
        let seen = view(&p);
        assert_eq!((seen.version, seen.protocol, seen.transport), (6, UDP, 40));
        assert_eq!((seen.source, seen.destination), ([0x20; 16], [0x21; 16]));
        assert_eq!((seen.ports, seen.sequence), ([53, 0xc000], 0));
        assert_eq!((seen.dscp, seen.ecn, seen.class()), (46, Ecn::Capable1, 0));
        let before = p.clone();
        mark(&mut p);
        assert_eq!((p[1], view(&p).ecn), (0xba, Ecn::Marked));
        assert_eq!((p[0], &p[2..]), (before[0], &before[2..]));
    }

    #[test]
    fn a_later_fragment_has_no_ports_and_the_first_has() {
        let mut first = packet();
        first[6] = 0x20; // more fragments
        assert_eq!(view(&first).ports, [4_000, 5_001]);
        let mut later = packet();
        later[7] = 185;
        assert_eq!((view(&later).ports, view(&later).sequence), ([0, 0], 0));
        assert_eq!(view(&later).source[..4], [10, 0, 0, 1]);
    }

    #[test]
    fn bands_are_those_of_three_code_points() {
        for (dscp, band) in [(46, 0), (8, 2), (0, 1), (10, 1), (34, 1), (63, 1)] {
            let mut p = packet();
            p[1] = dscp << 2;
            assert_eq!(view(&p).class(), band, "{dscp}");
        }
    }

    #[test]
    fn a_thousand_connections_spread_over_the_buckets_of_a_queue() {
        let mut buckets = [0; 1_024];
        for port in 40_000..41_024_u16 {
            let mut p = packet();
            p[20..22].copy_from_slice(&port.to_be_bytes());
            buckets[view(&p).hash() as usize % 1_024] += 1;
        }
        // Random choice leaves 1/e of the buckets empty, and hardly ever puts eight in one.
        let empty = buckets.iter().filter(|n| **n == 0).count();
        assert!((320..=435).contains(&empty), "{empty}");
        assert!(buckets.iter().all(|n| *n <= 8));
    }

    proptest! {
        #[test]
        fn a_mark_changes_ecn_and_checksum_alone_with_any_options(
            words in 5..=15_u8, tos in any::<u8>(), rest in prop::collection::vec(any::<u8>(), 80)
        ) {
            let length = usize::from(words) * 4;
            let mut p = rest;
            (p[0], p[1]) = (0x40 | words, tos);
            p[10..12].fill(0);
            let check = checksum(&p[..length]);
            p[10..12].copy_from_slice(&check.to_be_bytes());
            let before = p.clone();
            mark(&mut p);
            prop_assert_eq!(checksum(&p[..length]), 0);
            prop_assert_eq!(p[1], tos | 3);
            prop_assert_eq!((p[0], &p[2..10], &p[12..]), (before[0], &before[2..10], &before[12..]));
            if tos & 3 == 3 {
                prop_assert_eq!(&p, &before, "a marked packet stays as it is");
            }
        }

        #[test]
        fn the_sum_is_that_of_another_way_to_count(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(!sum(0, &bytes), checksum(&bytes));
        }
    }

    #[test]
    fn flows_differ_by_their_ports_and_directions() {
        let a = view(&packet());
        let mut other = packet();
        other[21] += 1;
        assert_ne!(a.hash(), view(&other).hash());
        assert_eq!(a.hash(), view(&packet()).hash());
    }

    #[test]
    fn nothing_cut_short_or_strange_panics() {
        let whole = packet();
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            view(&cut);
            mark(&mut cut);
        }
        let mut options = whole;
        options[0] = 0x4f;
        view(&options[..24]);
        mark(&mut options[..24]);
    }
}
