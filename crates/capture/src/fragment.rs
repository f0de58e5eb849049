//! Reassembles IP fragments into one packet of known length, without storing payload.
//!
//! Only the first bytes of the transport header and the list of fragments are stored. The packet gets the time
//! of the fragment that completes it, as in the receiver's IP layer. Overlapping fragments make the whole packet
//! invalid (RFC 5722; no regular IPv4 sender overlaps either). An exact repetition is a duplicate and ignored.

use units::{Duration, Instant};

use crate::decoded::Ip;

/// Packets that may be incomplete at the same time; beyond, the oldest is dropped.
const MAX_PACKETS: usize = 256;
/// Fragments of one packet: 64 KiB at the smallest useful MTU of IPv4; more of them is an attack.
const MAX_PIECES: usize = 256;
/// As `ipfrag_time` in Linux.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes stored of each packet: enough for GTP-U, an inner IPv6 and a full TCP header.
const HEAD: usize = 128;
/// Offset and length in the headers end here (RFC 791); beyond is a "ping of death".
const MAX_END: u32 = 65_535;

/// Identifies the packet that a fragment belongs to (RFC 791 section 3.2; RFC 8200 section 4.5 leaves the protocol out).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) src: u128,
    pub(crate) dst: u128,
    pub(crate) id: u32,
    /// IPv4 protocol; 256 for IPv6, whose identification is per address pair.
    pub(crate) protocol: u16,
}

/// One fragment of a packet.
pub(crate) struct Piece<'a> {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) more: bool,
    /// The captured bytes.
    pub(crate) data: &'a [u8],
    /// Bytes of IP headers in front of the fragmentable part.
    pub(crate) headers: u32,
    /// Protocol that the first fragment names.
    pub(crate) protocol: u8,
}

/// A packet whose fragments are complete.
pub(crate) struct Whole {
    pub(crate) ip: Ip,
    pub(crate) protocol: u8,
    /// Length behind the IP headers.
    pub(crate) len: u32,
    pub(crate) head: [u8; HEAD],
    pub(crate) kept: usize,
}

/// The result of adding a fragment.
#[allow(clippy::large_enum_variant)] // lives on the stack, one at a time
pub(crate) enum Outcome {
    Waiting,
    Complete(Whole),
    Broken,
}

struct Partial {
    key: Key,
    began: Instant,
    ip: Ip,
    protocol: u8,
    headers: u32,
    pieces: Vec<(u32, u32)>,
    covered: u32,
    total: Option<u32>,
    head: [u8; HEAD],
    /// Number of valid bytes in `head`.
    kept: usize,
    overlapped: bool,
}

/// Packets with missing fragments.
#[derive(Default)]
pub(crate) struct Fragments {
    waiting: Vec<Partial>,
}

impl Fragments {
    pub(crate) fn add(&mut self, key: Key, ip: Ip, piece: &Piece<'_>) -> Outcome {
        let end = piece.offset.saturating_add(piece.len);
        if piece.len == 0
            || (piece.more && !piece.len.is_multiple_of(8))
            || end.saturating_add(piece.headers) > MAX_END
        {
            return Outcome::Broken;
        }
        let index = self.slot(key, ip, piece);
        let partial = &mut self.waiting[index];
        match partial.add(ip, piece, end) {
            Outcome::Waiting if partial.total == Some(partial.covered) => {
                let done = self.waiting.swap_remove(index);
                let len = done.covered;
                let ip = Ip { total_len: len + done.headers, time: ip.time, ..done.ip };
                let kept = done.kept.min(len as usize);
                Outcome::Complete(Whole { ip, protocol: done.protocol, len, head: done.head, kept })
            }
            outcome => outcome,
        }
    }

    /// Index of the packet that the fragment belongs to, which may be new.
    fn slot(&mut self, key: Key, ip: Ip, piece: &Piece<'_>) -> usize {
        if let Some(index) = self.waiting.iter().position(|p| p.key == key) {
            if ip.time.since(self.waiting[index].began) <= TIMEOUT {
                return index;
            }
            self.waiting.swap_remove(index);
        }
        if self.waiting.len() >= MAX_PACKETS {
            self.waiting.retain(|p| ip.time.since(p.began) <= TIMEOUT);
        }
        if self.waiting.len() >= MAX_PACKETS {
            let oldest =
                self.waiting.iter().enumerate().min_by_key(|(_, p)| p.began).map(|(i, _)| i);
            if let Some(oldest) = oldest {
                self.waiting.swap_remove(oldest);
            }
        }
        self.waiting.push(Partial {
            key,
            began: ip.time,
            ip: Ip { wire_len: 0, ..ip },
            protocol: piece.protocol,
            headers: piece.headers,
            pieces: Vec::new(),
            covered: 0,
            total: None,
            head: [0; HEAD],
            kept: HEAD,
            overlapped: false,
        });
        self.waiting.len() - 1
    }
}

impl Partial {
    fn add(&mut self, ip: Ip, piece: &Piece<'_>, end: u32) -> Outcome {
        if self.overlapped {
            return Outcome::Broken;
        }
        let at = self.pieces.partition_point(|p| p.0 < piece.offset);
        if self.pieces.get(at) == Some(&(piece.offset, end)) {
            return Outcome::Waiting;
        }
        let overlaps = at > 0 && self.pieces[at - 1].1 > piece.offset
            || self.pieces.get(at).is_some_and(|next| next.0 < end);
        let beyond = match self.total {
            Some(total) => end > total || !piece.more,
            None => !piece.more && self.pieces.last().is_some_and(|p| p.1 > end),
        };
        if overlaps || beyond || self.pieces.len() >= MAX_PIECES {
            self.overlapped = true;
            return Outcome::Broken;
        }
        self.pieces.insert(at, (piece.offset, end));
        self.covered += piece.len;
        self.ip.wire_len = self.ip.wire_len.saturating_add(ip.wire_len);
        // RFC 3168 section 5.3: one fragment that experienced congestion marks the packet.
        if ip.ecn == 3 {
            self.ip.ecn = 3;
        }
        if !piece.more {
            self.total = Some(end);
        }
        let offset = piece.offset as usize;
        if offset == 0 {
            // The first fragment's header is the packet's.
            self.protocol = piece.protocol;
            self.headers = piece.headers;
            let (wire_len, marked) = (self.ip.wire_len, self.ip.ecn == 3);
            self.ip = Ip { wire_len, ecn: if marked { 3 } else { ip.ecn }, ..ip };
        }
        if let Some(space) = self.head.get_mut(offset..) {
            let needed = space.len().min(piece.len as usize);
            let n = needed.min(piece.data.len());
            space[..n].copy_from_slice(&piece.data[..n]);
            if n < needed {
                self.kept = self.kept.min(offset + n);
            }
        }
        Outcome::Waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded::Decoded;
    use crate::decoder::Decoder;
    use crate::packets::{frame, ipv4_with, tcp};

    /// The pieces of [`tcp`] cut every `step` bytes, with identification `id`.
    fn pieces(step: usize, id: u16) -> Vec<Vec<u8>> {
        let whole = tcp();
        let last = (whole.len() - 1) / step;
        let piece = |(i, part): (usize, &[u8])| {
            let more = if i == last { 0 } else { 0x2000 };
            ipv4_with(6, id, more | (i * step / 8) as u16, part)
        };
        whole.chunks(step).enumerate().map(piece).collect()
    }

    fn feed(decoder: &mut Decoder, packets: &[Vec<u8>]) -> Vec<Decoded> {
        packets.iter().map(|p| decoder.decode(&frame(101, p))).collect()
    }

    #[test]
    fn fragments_in_any_order_make_one_segment_of_the_whole_length() {
        for step in [8, 16, 24, 64] {
            for reversed in [false, true] {
                let mut parts = pieces(step, 1);
                if reversed {
                    parts.reverse();
                }
                let mut got = feed(&mut Decoder::new(), &parts);
                let Some(Decoded::Tcp(s)) = got.pop() else { panic!("no segment at the end") };
                assert_eq!((s.payload, s.options.timestamps), (100, Some((3, 4))));
                assert_eq!((s.ip.total_len, s.ip.ecn), (152, 2));
                assert!(got.iter().all(|d| *d == Decoded::Fragment));
            }
        }
    }

    #[test]
    fn a_repeated_fragment_is_ignored_and_an_overlapping_one_invalidates_the_packet() {
        let parts = pieces(64, 1);
        let mut decoder = Decoder::new();
        let got = feed(&mut decoder, &[parts[0].clone(), parts[0].clone()]);
        assert_eq!(got, [Decoded::Fragment, Decoded::Fragment]);
        // The teardrop: a second piece inside the first.
        let inside = ipv4_with(6, 1, 3, &[0; 4]);
        let got = feed(&mut decoder, &[inside, parts[1].clone(), parts[2].clone()]);
        assert_eq!(got, [Decoded::Broken; 3]);
    }

    #[test]
    fn impossible_pieces_are_broken() {
        let mut decoder = Decoder::new();
        let odd = ipv4_with(6, 1, 0x2000, &[0; 9]);
        let empty = ipv4_with(6, 2, 4, &[]);
        let beyond = ipv4_with(6, 3, 0x1fff, &[0; 16]);
        assert_eq!(feed(&mut decoder, &[odd, empty, beyond]), [Decoded::Broken; 3]);
        assert!(decoder.fragments.waiting.is_empty());
        let short_end = [ipv4_with(6, 4, 0x2002, &[0; 8]), ipv4_with(6, 4, 1, &[0; 8])];
        assert_eq!(feed(&mut decoder, &short_end), [Decoded::Fragment, Decoded::Broken]);
        let two_ends = [ipv4_with(6, 5, 2, &[0; 8]), ipv4_with(6, 5, 1, &[0; 8])];
        assert_eq!(feed(&mut decoder, &two_ends), [Decoded::Fragment, Decoded::Broken]);
    }

    #[test]
    fn a_header_that_the_snap_length_cut_in_its_fragment_is_broken_when_complete() {
        let parts = pieces(64, 1);
        let mut decoder = Decoder::new();
        let mut cut = frame(101, &parts[0][..36]);
        cut.wire_len = parts[0].len() as u32;
        assert_eq!(decoder.decode(&cut), Decoded::Fragment);
        assert_eq!(feed(&mut decoder, &parts[1..]), [Decoded::Fragment, Decoded::Broken]);
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_is_dropped() {
        let mut decoder = Decoder::new();
        for id in 0..2_000 {
            let part = &pieces(64, id)[0];
            let mut f = frame(101, part);
            f.time = Instant(u64::from(id));
            assert_eq!(decoder.decode(&f), Decoded::Fragment);
        }
        assert_eq!(decoder.fragments.waiting.len(), MAX_PACKETS);
        assert!(decoder.fragments.waiting.iter().all(|p| p.began >= Instant(2_000 - 256)));
    }

    #[test]
    fn an_identification_used_again_after_the_timeout_begins_a_new_packet() {
        let parts = pieces(64, 1);
        let mut decoder = Decoder::new();
        feed(&mut decoder, &parts[..1]);
        let late = |p| crate::Frame { time: Instant(31_000_000_000), ..frame(101, p) };
        assert_eq!(decoder.decode(&late(&parts[1])), Decoded::Fragment);
        assert_eq!(decoder.decode(&late(&parts[2])), Decoded::Fragment);
        assert!(matches!(decoder.decode(&late(&parts[0])), Decoded::Tcp(_)));
    }

    #[test]
    fn congestion_marked_on_one_fragment_marks_the_packet() {
        for marked in 0..3 {
            let mut parts = pieces(64, 1);
            parts[marked][1] = 3;
            let got = feed(&mut Decoder::new(), &parts);
            let Some(Decoded::Tcp(s)) = got.last() else { panic!("no segment") };
            assert_eq!(s.ip.ecn, 3);
        }
    }
}
