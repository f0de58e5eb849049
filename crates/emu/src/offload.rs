//! Segmentation offload at the two ends of a link: large segments are segmented before the queue
//! (TSO), and packets that arrive together are coalesced (GRO).
//!
//! A TUN device puts a virtio header before each packet (VIRTIO 1.2 section 5.1.6). [`segment`]
//! makes of a large TCP segment the packets that a network card would have sent, each queued,
//! delayed and lost by itself. [`Coalesced`] collects packets of one flow that are due at the same
//! moment, as a receiving card does. A gigabit needs this: one system call for up to 64 KB instead
//! of one per packet.
//!
//! Transport checksums stay partial (the pseudo-header's sum) between two TUN devices that both
//! offload them, as between a virtual machine and its host. Deviation: IPv6 extension headers are
//! not followed. Such a packet is neither segmented nor coalesced, and passes as it is.

use crate::headers::{TCP, View, sum, view};

/// Length of the virtio header before each packet.
pub const HEADER: usize = 10;
/// The transport checksum has to be finished (VIRTIO_NET_HDR_F_NEEDS_CSUM).
const NEEDS_CHECKSUM: u8 = 1;
/// Kinds of segmentation offload (VIRTIO_NET_HDR_GSO_*).
const TCP4: u8 = 1;
const TCP6: u8 = 4;
/// Flag beside the kind: the first segment carries CWR.
const ECN: u8 = 0x80;
/// Flags in byte 13 of the TCP header.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;
const CWR: u8 = 128;
/// IP and TCP headers with all their options: 60 each.
const HEADERS: usize = 120;
/// Largest number of packets handed over together; 64 KB are 45 full ones.
pub const MAX_PACKETS: usize = 44;

/// The fields of a virtio header that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Virtio {
    /// The transport checksum is partial.
    pub partial: bool,
    /// Payload of each segment, where the packet has to be segmented.
    pub segment_size: Option<u16>,
}

impl Virtio {
    /// Reads the virtio header of a packet.
    pub fn read(bytes: &[u8; HEADER]) -> Virtio {
        let segment = u16::from_ne_bytes([bytes[4], bytes[5]]);
        let kind = bytes[1] & !ECN;
        Virtio {
            partial: bytes[0] & NEEDS_CHECKSUM != 0,
            segment_size: (matches!(kind, TCP4 | TCP6) && segment > 0).then_some(segment),
        }
    }

    /// The header of a packet that is handed over by itself.
    pub fn write(partial: bool, packet: &[u8]) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        if partial {
            let view = view(packet);
            let field = if view.protocol == TCP { 16 } else { 6 };
            checksum_place(&mut bytes, view.transport, field);
        }
        bytes
    }
}

fn checksum_place(bytes: &mut [u8; HEADER], transport: usize, field: u16) {
    bytes[0] = NEEDS_CHECKSUM;
    bytes[6..8].copy_from_slice(&(transport as u16).to_ne_bytes());
    bytes[8..10].copy_from_slice(&field.to_ne_bytes());
}

/// Sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1) over a transport part of
/// so many bytes.
fn pseudo(view: &View, length: usize) -> u16 {
    let addresses = if view.version == 4 { 4 } else { 16 };
    let start = u64::from(view.protocol)
        + length as u64
        + u64::from(sum(0, &view.source[..addresses]))
        + u64::from(sum(0, &view.destination[..addresses]));
    sum(start, &[])
}

/// Length of the IP and TCP headers of a segment; `None` if they are not all there.
fn headers(packet: &[u8], view: &View) -> Option<usize> {
    let words = packet.get(view.transport + 12)? >> 4;
    let length = view.transport + usize::from(words) * 4;
    (words >= 5 && length <= packet.len() && length <= HEADERS).then_some(length)
}

/// Sets the lengths and checksums of a segment's headers for so much payload.
fn set_lengths(head: &mut [u8], view: &View, payload: usize) {
    let total = head.len() + payload;
    if view.version == 4 {
        head[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        head[10..12].fill(0);
        let check = !sum(0, &head[..view.transport]);
        head[10..12].copy_from_slice(&check.to_be_bytes());
    } else {
        head[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
    }
    let check = pseudo(view, total - view.transport);
    head[view.transport + 16..view.transport + 18].copy_from_slice(&check.to_be_bytes());
}

/// Segments a large segment; `emit` gets headers and payload of each packet, their checksums
/// partial. False: it is not one, and has to be queued as it is.
pub fn segment(packet: &[u8], size: u16, mut emit: impl FnMut(&[u8], &[u8])) -> bool {
    let view = view(packet);
    if view.protocol != TCP {
        return false;
    }
    let Some(length) = headers(packet, &view) else { return false };
    let (head, payload) = packet.split_at(length);
    if payload.is_empty() {
        return false;
    }
    let mut headers_of_piece = [0; HEADERS];
    let headers_of_piece = &mut headers_of_piece[..length];
    let transport = view.transport;
    let first_id = u16::from_be_bytes([head[4], head[5]]);
    let pieces = payload.len().div_ceil(usize::from(size));
    for (i, piece) in payload.chunks(usize::from(size)).enumerate() {
        headers_of_piece.copy_from_slice(head);
        if view.version == 4 {
            headers_of_piece[4..6].copy_from_slice(&first_id.wrapping_add(i as u16).to_be_bytes());
        }
        let sequence = view.sequence.wrapping_add((i * usize::from(size)) as u32);
        headers_of_piece[transport + 4..transport + 8].copy_from_slice(&sequence.to_be_bytes());
        let flags = &mut headers_of_piece[transport + 13];
        if i + 1 < pieces {
            *flags &= !(FIN | PSH);
        }
        if i > 0 {
            *flags &= !CWR;
        }
        set_lengths(headers_of_piece, &view, piece.len());
        emit(headers_of_piece, piece);
    }
    true
}

/// Consecutive packets of one flow, to be handed over as one.
#[derive(Default)]
pub struct Coalesced {
    head: Vec<u8>,
    view: View,
    segment: usize,
    payload: usize,
    handles: Vec<u32>,
    closed: bool,
}

impl Coalesced {
    /// The packets, in order.
    pub fn handles(&self) -> &[u32] {
        &self.handles
    }

    /// Removes all packets.
    pub fn clear(&mut self) {
        self.handles.clear();
        self.payload = 0;
        self.closed = false;
    }

    /// Length of the headers of each packet; the payload follows them.
    pub fn head_length(&self) -> usize {
        self.head.len()
    }

    /// Adds a packet if it continues where the last one ended and differs in nothing else.
    pub fn coalesce(&mut self, handle: u32, packet: &[u8]) -> bool {
        if self.handles.is_empty() {
            return self.begin(handle, packet);
        }
        let length = self.head.len();
        let total = packet.len();
        let payload = total.wrapping_sub(length);
        if self.closed
            || self.handles.len() == MAX_PACKETS
            || total <= length
            || payload > self.segment
            || length + self.payload + payload > usize::from(u16::MAX)
            || !self.continues(packet)
        {
            return false;
        }
        self.payload += payload;
        self.handles.push(handle);
        let flags = packet[self.view.transport + 13];
        self.head[self.view.transport + 13] |= flags & (PSH | FIN);
        self.closed = payload < self.segment || flags & (PSH | FIN) != 0;
        true
    }

    fn begin(&mut self, handle: u32, packet: &[u8]) -> bool {
        let view = view(packet);
        if view.protocol != TCP {
            return false;
        }
        let Some(length) = headers(packet, &view) else { return false };
        let flags = packet[view.transport + 13];
        let payload = packet.len() - length;
        if payload == 0 || flags & ACK == 0 || flags & (SYN | RST | URG | CWR) != 0 {
            return false;
        }
        self.head.clear();
        self.head.extend_from_slice(&packet[..length]);
        self.view = view;
        self.segment = payload;
        self.payload = payload;
        self.handles.push(handle);
        self.closed = flags & (PSH | FIN) != 0;
        true
    }

    /// Same flow, next byte, and all else alike but for length, identification, checksums, PSH and
    /// FIN.
    fn continues(&self, packet: &[u8]) -> bool {
        let t = self.view.transport;
        let head = &self.head;
        let n = head.len();
        let sequence = self.view.sequence.wrapping_add(self.payload as u32);
        let ip = if self.view.version == 4 {
            packet[..2] == head[..2] && packet[6..10] == head[6..10] && packet[12..t] == head[12..t]
        } else {
            packet[..4] == head[..4] && packet[6..t] == head[6..t]
        };
        let flags = !(PSH | FIN);
        ip && packet[t..t + 4] == head[t..t + 4]
            && packet[t + 4..t + 8] == sequence.to_be_bytes()
            && packet[t + 8..t + 13] == head[t + 8..t + 13]
            && packet[t + 13] & flags == head[t + 13] & flags
            && packet[t + 14..t + 16] == head[t + 14..t + 16]
            && packet[t + 18..n] == head[t + 18..n]
    }

    /// The virtio header and the packet's headers for all of it.
    pub fn finish(&mut self) -> ([u8; HEADER], &[u8]) {
        set_lengths(&mut self.head, &self.view, self.payload);
        let mut bytes = [0; HEADER];
        bytes[1] = if self.view.version == 4 { TCP4 } else { TCP6 };
        bytes[2..4].copy_from_slice(&(self.head.len() as u16).to_ne_bytes());
        bytes[4..6].copy_from_slice(&(self.segment as u16).to_ne_bytes());
        checksum_place(&mut bytes, self.view.transport, 16);
        (bytes, &self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::checksum;
    use proptest::prelude::*;

    /// A segment with timestamps and so much payload, as a host with offload sends it.
    fn large(version: u8, payload: usize, flags: u8) -> Vec<u8> {
        let mut p = Vec::new();
        if version == 4 {
            p.extend([0x45, 2, 0, 0, 0, 9, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            p.extend([0x60, 0x20, 0, 0, 0, 0, TCP, 64]);
            p.extend([0xfd; 16]);
            p.extend([0xfe; 16]);
        }
        p.extend([
            0x0f, 0xa0, 0x13, 0x89, 0xff, 0xff, 0xff, 0, 0, 0, 0, 5, 0x80, flags, 1, 0, 0, 0, 0, 0,
        ]);
        p.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        p.extend((0..payload).map(|i| i as u8));
        p
    }

    fn pieces(packet: &[u8], size: u16) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        assert!(segment(packet, size, |head, payload| found.push([head, payload].concat())));
        found
    }

    /// Finishes the partial checksum, then sums header and payload as a receiver does.
    fn receives(packet: &[u8]) -> bool {
        let v = view(packet);
        let mut p = packet.to_vec();
        let check = !sum(0, &p[v.transport..]);
        p[v.transport + 16..v.transport + 18].copy_from_slice(&check.to_be_bytes());
        sum(u64::from(pseudo(&v, p.len() - v.transport)), &p[v.transport..]) == 0xffff
    }

    #[test]
    fn a_large_segment_becomes_the_packets_that_a_card_would_send() {
        for version in [4, 6] {
            let whole = large(version, 3_000, ACK | PSH);
            let found = pieces(&whole, 1_448);
            assert_eq!(found.len(), 3);
            let views: Vec<View> = found.iter().map(|p| view(p)).collect();
            let t = views[0].transport;
            // The sequence number wraps.
            assert_eq!(views[1].sequence, 0xffff_ff00_u32.wrapping_add(1_448));
            assert_eq!(found.iter().map(|p| p[t + 13] & PSH).collect::<Vec<_>>(), [0, 0, PSH]);
            assert!(found.iter().all(|p| receives(p)));
            let payload: Vec<u8> = found.iter().flat_map(|p| p[t + 32..].to_vec()).collect();
            assert_eq!(payload, whole[t + 32..]);
            if version == 4 {
                assert!(found.iter().all(|p| sum(0, &p[..20]) == 0xffff));
                assert_eq!(found.iter().map(|p| p[5]).collect::<Vec<_>>(), [9, 10, 11]);
            }
        }
    }

    #[test]
    fn what_was_cut_is_joined_to_the_same_bytes() {
        for version in [4, 6] {
            let whole = large(version, 10_000, ACK | PSH);
            let found = pieces(&whole, 1_448);
            let mut coalesced = Coalesced::default();
            for (i, piece) in found.iter().enumerate() {
                assert!(coalesced.coalesce(i as u32, piece), "{i}");
            }
            assert!(!coalesced.coalesce(9, &found[0]), "nothing follows the last piece");
            let head = coalesced.head_length();
            let (virtio, bytes) = coalesced.finish();
            let read = Virtio::read(&virtio);
            assert_eq!(read, Virtio { partial: true, segment_size: Some(1_448) });
            let again: Vec<u8> =
                [bytes, &found.iter().flat_map(|p| p[head..].to_vec()).collect::<Vec<_>>()]
                    .concat();
            assert!(receives(&again));
            assert_eq!(again[head..], whole[head..]);
            assert_eq!(pieces(&again, 1_448), found);
        }
    }

    /// A packet whose partial checksum the receiver finished, judged by another sum over another
    /// pseudo-header.
    fn is_right(packet: &[u8]) -> bool {
        let v4 = packet[0] >> 4 == 4;
        let transport = if v4 { 20 } else { 40 };
        let mut whole: Vec<u8> = if v4 {
            let length = (packet.len() - 20) as u16;
            [&packet[12..20], &[0, TCP], &length.to_be_bytes()].concat()
        } else {
            let length = (packet.len() - 40) as u32;
            [&packet[8..40], &length.to_be_bytes(), &[0, 0, 0, TCP]].concat()
        };
        let pseudo = whole.len();
        whole.extend(&packet[transport..]);
        // The field contains the pseudo-header's sum: the rest is added, and it is complete.
        let finished = checksum(&whole[pseudo..]);
        whole[pseudo + 16..pseudo + 18].copy_from_slice(&finished.to_be_bytes());
        checksum(&whole) == 0 && (!v4 || checksum(&packet[..20]) == 0)
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_carry_every_byte_once_with_right_headers(
            six in any::<bool>(), payload in 1..5_000_usize, size in 1..2_000_u16, sequence in any::<u32>()
        ) {
            let mut whole = large(if six { 6 } else { 4 }, payload, ACK | PSH | FIN | CWR);
            let t = if six { 40 } else { 20 };
            whole[t + 4..t + 8].copy_from_slice(&sequence.to_be_bytes());
            let found = pieces(&whole, size);
            prop_assert_eq!(found.len(), payload.div_ceil(usize::from(size)));
            let mut next = sequence;
            for (i, piece) in found.iter().enumerate() {
                prop_assert!(is_right(piece), "piece {i}");
                let number = u32::from_be_bytes([piece[t + 4], piece[t + 5], piece[t + 6], piece[t + 7]]);
                prop_assert_eq!(number, next);
                next = next.wrapping_add((piece.len() - t - 32) as u32);
                let flags = piece[t + 13];
                // The first piece reduces the window, the last one ends the stream (RFC 3168, 9293).
                prop_assert_eq!(flags & CWR != 0, i == 0);
                prop_assert_eq!(flags & (FIN | PSH) != 0, i + 1 == found.len());
                let length = if six {
                    40 + usize::from(u16::from_be_bytes([piece[4], piece[5]]))
                } else {
                    usize::from(u16::from_be_bytes([piece[2], piece[3]]))
                };
                prop_assert_eq!(length, piece.len());
            }
            prop_assert_eq!(next, sequence.wrapping_add(payload as u32));
            let data: Vec<u8> = found.iter().flat_map(|p| p[t + 32..].to_vec()).collect();
            prop_assert_eq!(&data[..], &whole[t + 32..]);
        }
    }

    #[test]
    fn the_header_of_one_packet_names_the_place_of_its_checksum() {
        let place = |bytes: [u8; HEADER]| {
            (
                bytes[0],
                u16::from_ne_bytes([bytes[6], bytes[7]]),
                u16::from_ne_bytes([bytes[8], bytes[9]]),
            )
        };
        // Offsets of the checksum: 16 in TCP's header (RFC 9293), 6 in UDP's (RFC 768).
        assert_eq!(place(Virtio::write(true, &large(4, 10, ACK))), (1, 20, 16));
        assert_eq!(place(Virtio::write(true, &large(6, 10, ACK))), (1, 40, 16));
        assert_eq!(place(Virtio::write(true, &crate::testing::datagram(0, 60))), (1, 20, 6));
        assert_eq!(Virtio::write(false, &large(4, 10, ACK)), [0; HEADER]);
        // A large segment of UDP is none that TCP could cut.
        let udp = [1, 5, 0, 0, 0xa8, 5, 0, 0, 0, 0];
        assert_eq!(Virtio::read(&udp), Virtio { partial: true, segment_size: None });
    }

    #[test]
    fn another_flow_a_hole_or_a_mark_is_not_joined() {
        let found = pieces(&large(4, 8_000, ACK), 1_448);
        let mut changed = vec![found[2].clone(); 4];
        changed[0][21] ^= 1; // port
        changed[1][1] |= 3; // CE
        changed[2][47] ^= 1; // timestamp
        changed[3][35] ^= 1; // window
        for other in changed.iter().chain([&found[3]]) {
            let mut coalesced = Coalesced::default();
            assert!(coalesced.coalesce(0, &found[0]) && coalesced.coalesce(1, &found[1]));
            assert!(!coalesced.coalesce(2, other));
            assert!(coalesced.coalesce(2, &found[2]));
        }
        let syn = large(4, 0, SYN);
        assert!(!Coalesced::default().coalesce(0, &syn));
    }

    #[test]
    fn nothing_cut_short_panics() {
        let whole = large(4, 100, ACK);
        for end in 0..whole.len() {
            segment(&whole[..end], 10, |_, _| {});
            let mut coalesced = Coalesced::default();
            coalesced.coalesce(0, &whole[..end]);
            let mut coalesced = Coalesced::default();
            coalesced.coalesce(0, &pieces(&whole, 50)[0]);
            coalesced.coalesce(1, &whole[..end]);
        }
    }
}
