//! Simulated frames as bytes: IPv4 with TCP, UDP or ICMP, for capture files that any analyser
//! reads.
//!
//! Headers follow RFC 791 and RFC 9293 with the options of Linux (MSS, SACK permitted, timestamps,
//! window scale, SACK; AFC's rate option as an experimental option by RFC 6994). Checksums are
//! right. The payload is zeros and is not stored.

use std::io::{self, Write};

use algo::rwnd::afc;
use capture::write::Writer;
use units::Instant;

use crate::frame::{Frame, Kind, flags};
use crate::tcp::HEADERS;

/// LINKTYPE_RAW: IP without a link layer.
const LINKTYPE_RAW: u16 = 101;
/// Midnight of 2020-01-01 (UTC): capture tools expect an epoch, and results must not depend on
/// today's date.
const EPOCH_NS: u64 = 1_577_836_800_000_000_000;
/// Port of isochronous and voice packets.
const UDP_PORT: u16 = 4_000;

/// The parameters of a connection that its headers carry.
#[derive(Clone, Copy, Debug, Default)]
pub struct WireParameters {
    /// Node of side 0 and of side 1.
    pub nodes: [u16; 2],
    /// Port of side 0 and of side 1.
    pub ports: [u16; 2],
    /// Initial sequence number of each side.
    pub isn: [u32; 2],
    /// Window scale of each side.
    pub scale: [u8; 2],
    /// Maximum segment size of each side.
    pub mss: [u16; 2],
    /// SACK and timestamps are negotiated.
    pub options: (bool, bool),
    /// ECN is negotiated.
    pub ecn: bool,
    /// Of a ping with a TTL, and of the answer of the router where it expires.
    pub expiring: Option<Expiring>,
}

/// A ping that expires on its way.
#[derive(Clone, Copy, Debug)]
pub struct Expiring {
    /// What is left of its TTL.
    pub ttl: u8,
    /// Where it comes from, and where it was to go.
    pub nodes: [u16; 2],
    /// Its length on the IP layer.
    pub bytes: u16,
}

/// Length of ICMP time exceeded: two headers, and the header and 64 bits of the packet that it quotes (RFC 792).
pub const EXCEEDED_BYTES: u32 = 20 + 8 + 20 + 8;

/// The capture file of one node.
pub struct Tap<W: Write> {
    writer: Writer<W>,
    buffer: Vec<u8>,
}

impl<W: Write> Tap<W> {
    /// A pcapng file with one interface, called like the node.
    pub fn new(out: W, node: &str) -> io::Result<Tap<W>> {
        Ok(Tap {
            writer: Writer::new(out, LINKTYPE_RAW, &[node])?,
            buffer: Vec::with_capacity(128),
        })
    }

    /// Writes a frame that passes the node.
    pub fn write(&mut self, now: Instant, f: &Frame, wire: &WireParameters) -> io::Result<()> {
        let b = &mut self.buffer;
        b.clear();
        let side = usize::from(f.side & 1);
        let protocol = match f.kind {
            Kind::Tcp => 6,
            Kind::Isochronous | Kind::Voice => 17,
            Kind::Ping | Kind::Pong | Kind::Expired | Kind::GatePing | Kind::GatePong => 1,
        };
        // ECN codepoints of RFC 3168: not-ECT, ECT(1), ECT(0), CE.
        let ttl = match wire.expiring {
            Some(expiring) if f.kind == Kind::Ping => expiring.ttl,
            _ => 64,
        };
        let nodes = [wire.nodes[side], wire.nodes[1 - side]];
        ipv4(b, f.ecn as u8, f.identification, (protocol, ttl, f.bytes as u16), nodes);
        match f.kind {
            Kind::Tcp => tcp(b, f, wire),
            Kind::Isochronous | Kind::Voice => {
                b.extend(UDP_PORT.to_be_bytes());
                b.extend(UDP_PORT.to_be_bytes());
                b.extend(((f.bytes - 20) as u16).to_be_bytes());
                // RFC 768: a checksum of 0 means that there is none.
                b.extend([0, 0]);
                b.extend(f.seq.to_be_bytes());
            }
            Kind::Ping | Kind::GatePing => icmp(b, f, 8),
            Kind::Pong | Kind::GatePong => icmp(b, f, 0),
            Kind::Expired => exceeded(b, f, wire),
        }
        self.writer.write(Instant(EPOCH_NS + now.0), b, f.bytes)
    }

    /// Records that the capture lasted to `end`, and flushes; the output itself.
    pub fn finish(mut self, end: Instant) -> io::Result<W> {
        self.writer.report_end(0, Instant(EPOCH_NS + end.0))?;
        self.writer.finish()
    }
}

/// Appends an IPv4 header.
fn ipv4(
    b: &mut Vec<u8>,
    ecn: u8,
    identification: u16,
    (protocol, ttl, bytes): (u8, u8, u16),
    [from, to]: [u16; 2],
) {
    let start = b.len();
    b.extend([0x45, ecn]);
    b.extend(bytes.to_be_bytes());
    b.extend(identification.to_be_bytes());
    b.extend([0x40, 0, ttl, protocol, 0, 0]);
    b.extend(scenario::address(from.into()).octets());
    b.extend(scenario::address(to.into()).octets());
    let sum = checksum(&b[start..], 0);
    b[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
}

/// ICMP time exceeded in transit, with the header and the first 8 bytes of the ping as it arrived.
fn exceeded(b: &mut Vec<u8>, f: &Frame, wire: &WireParameters) {
    let start = b.len();
    b.extend([11, 0, 0, 0, 0, 0, 0, 0]);
    if let Some(Expiring { nodes, bytes, .. }) = wire.expiring {
        ipv4(b, f.ecn as u8, f.ack as u16, (1, 1, bytes), nodes);
        icmp(b, f, 8);
    }
    let sum = checksum(&b[start..], 0);
    b[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
}

fn icmp(b: &mut Vec<u8>, f: &Frame, kind: u8) {
    let start = b.len();
    b.extend([kind, 0, 0, 0]);
    b.extend((f.owner as u16 + 1).to_be_bytes());
    b.extend((f.seq as u16).to_be_bytes());
    let sum = checksum(&b[start..], 0);
    b[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
}

fn tcp(b: &mut Vec<u8>, f: &Frame, w: &WireParameters) {
    let side = usize::from(f.side & 1);
    let syn = f.flags & flags::SYN != 0;
    let fin = f.flags & flags::FIN != 0;
    let start = b.len();
    // The SYN takes number ISN, the first byte ISN + 1.
    let seq =
        if syn { w.isn[side] } else { w.isn[side].wrapping_add(1).wrapping_add(f.seq as u32) };
    let ack = match (f.flags & flags::ACK != 0, syn) {
        (false, _) => 0,
        (true, _) => w.isn[1 - side].wrapping_add(1).wrapping_add(f.ack as u32),
    };
    b.extend(w.ports[side].to_be_bytes());
    b.extend(w.ports[1 - side].to_be_bytes());
    b.extend(seq.to_be_bytes());
    b.extend(ack.to_be_bytes());
    let payload = f.len.saturating_sub(u32::from(fin));
    let mut bits = u8::from(fin) | u8::from(syn) << 1;
    bits |= u8::from(payload > 0) << 3 | u8::from(f.flags & flags::ACK != 0) << 4;
    bits |= u8::from(f.flags & flags::ECE != 0) << 6 | u8::from(f.flags & flags::CWR != 0) << 7;
    if syn && w.ecn {
        // RFC 3168 section 6.1.1: ECE and CWR on the SYN, ECE on the SYN/ACK.
        bits |= if side == 0 { 0xc0 } else { 0x40 };
    }
    b.extend([0, bits]);
    let window = if syn { f.window.min(65_535) } else { (f.window >> w.scale[side]).min(65_535) };
    b.extend((window as u16).to_be_bytes());
    b.extend([0, 0, 0, 0]);
    if syn {
        b.extend([2, 4]);
        b.extend(w.mss[side].to_be_bytes());
        b.extend(if w.options.0 { [4, 2] } else { [1, 1] });
        if w.options.1 {
            stamps(b, f);
        } else {
            b.extend([1; 10]);
        }
        b.extend([1, 3, 3, w.scale[side]]);
    } else {
        if w.options.1 {
            b.extend([1, 1]);
            stamps(b, f);
        }
        if f.sacks > 0 {
            b.extend([1, 1, 5, 2 + 8 * f.sacks]);
            let base = w.isn[1 - side].wrapping_add(1);
            for (from, to) in &f.sack[..usize::from(f.sacks)] {
                b.extend(base.wrapping_add(*from as u32).to_be_bytes());
                b.extend(base.wrapping_add(*to as u32).to_be_bytes());
            }
        }
        if payload == 0
            && let Some(value) = f.rate_option
        {
            b.extend(afc::option::to_wire(value));
            b.extend([1; 3]);
        }
    }
    let header = b.len() - start;
    b[start + 12] = ((header / 4) as u8) << 4;
    debug_assert!(f.bytes >= payload + 20 + header as u32 || f.bytes < HEADERS, "the options fit");
    // Pseudo header of RFC 9293 section 3.1; the payload is zeros and adds nothing but its length.
    let length = header as u32 + payload;
    let pseudo = u32::from(6_u8) + length + words(&b[12..20]);
    let sum = checksum(&b[start..], pseudo);
    b[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
}

fn stamps(b: &mut Vec<u8>, f: &Frame) {
    b.extend([8, 10]);
    b.extend(f.ts_val.to_be_bytes());
    b.extend(f.ts_ecr.to_be_bytes());
}

fn words(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | c.get(1).copied().map_or(0, u32::from)).sum()
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start + words(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use capture::{Decoded, Decoder, Reader};
    use proptest::prelude::*;

    use super::*;

    /// The Internet checksum as RFC 1071 defines it, each carry added at once. 0: what contains its
    /// checksum is right.
    fn judged(bytes: &[u8]) -> u16 {
        let mut sum = 0_u16;
        for pair in bytes.chunks(2) {
            let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
            let (added, carry) = sum.overflowing_add(word);
            sum = added + u16::from(carry);
        }
        !sum
    }

    fn parameters(timestamps: bool) -> WireParameters {
        WireParameters {
            nodes: [0, 299],
            ports: [40_000, 443],
            isn: [u32::MAX - 10, 77],
            scale: [7, 2],
            mss: [1_460, 1_200],
            options: (true, timestamps),
            ecn: false,
            expiring: None,
        }
    }

    /// The stored bytes of a frame, and how a reader of captures decodes them.
    fn written(frame: &Frame, wire: &WireParameters) -> (Vec<u8>, Decoded) {
        let mut tap = Tap::new(Vec::new(), "node").unwrap();
        tap.write(Instant(1_500), frame, wire).unwrap();
        let file = tap.finish(Instant(2_000)).unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        let frame = reader.next_frame().unwrap().unwrap();
        assert_eq!(frame.time, Instant(EPOCH_NS + 1_500));
        (frame.data.to_vec(), Decoder::new().decode(&frame))
    }

    proptest! {
        #[test]
        fn a_segment_is_read_back_with_right_checksums(
            side in 0..2_u8, len in 0..1_400_u32, seq in 0..1_u64 << 33, ack in 0..1_u64 << 33,
            window in 0..1_u64 << 24, stamps in any::<[u32; 2]>(), timestamps in any::<bool>(),
            sacks in 0..=3_u8, identification in any::<u16>(),
        ) {
            let wire = parameters(timestamps);
            let options = if timestamps { 12 } else { 0 } + if sacks > 0 { 4 + 8 * u32::from(sacks) } else { 0 };
            let block = |n: u64| (ack + n * 5_000, ack + n * 5_000 + 1_000);
            let frame = Frame {
                side,
                flags: flags::ACK,
                len,
                seq,
                ack,
                window,
                sacks,
                sack: [block(1), block(2), block(3)],
                ts_val: stamps[0],
                ts_ecr: stamps[1],
                bytes: 40 + options + len,
                identification,
                ecn: algo::Ecn::Capable0,
                ..Frame::default()
            };
            let (bytes, decoded) = written(&frame, &wire);
            prop_assert_eq!(judged(&bytes[..20]), 0, "the IP header");
            let length = frame.bytes - 20;
            let mut segment = bytes[12..20].to_vec();
            segment.extend([0, 6]);
            segment.extend((length as u16).to_be_bytes());
            segment.extend(&bytes[20..]);
            segment.resize(12 + length as usize, 0);
            prop_assert_eq!(judged(&segment), 0, "the segment, its payload being zeros");
            let Decoded::Tcp(seen) = decoded else { panic!("{decoded:?}") };
            let (own, other) = (usize::from(side), usize::from(1 - side));
            prop_assert_eq!((seen.src_port, seen.dst_port), (wire.ports[own], wire.ports[other]));
            prop_assert_eq!(seen.payload, len);
            prop_assert_eq!((seen.ip.total_len, seen.ip.wire_len), (frame.bytes, frame.bytes));
            prop_assert_eq!((seen.ip.id, seen.ip.ecn), (Some(identification), 2));
            // Stream numbers begin one behind the initial sequence number, modulo 2³².
            let number = |isn: u32, at: u64| (u64::from(isn) + 1 + at) as u32;
            prop_assert_eq!(seen.seq, number(wire.isn[own], seq));
            prop_assert_eq!(seen.ack, number(wire.isn[other], ack));
            let shown = u64::from(seen.window) << wire.scale[own];
            prop_assert!(shown <= window && (window - shown < 1 << wire.scale[own] || seen.window == 65_535));
            prop_assert_eq!(seen.options.timestamps, timestamps.then_some((stamps[0], stamps[1])));
        }
    }

    #[test]
    fn pings_have_right_checksums_and_a_datagram_its_length() {
        let wire = parameters(false);
        for (kind, icmp) in [(Kind::Ping, 8), (Kind::Pong, 0), (Kind::GatePing, 8)] {
            let frame = Frame { kind, bytes: 84, seq: 300, owner: 2, ..Frame::default() };
            let (bytes, _) = written(&frame, &wire);
            assert_eq!((judged(&bytes[..20]), judged(&bytes[20..])), (0, 0));
            assert_eq!((bytes[9], bytes[20]), (1, icmp));
            assert_eq!(bytes[24..28], [0, 3, 1, 44], "identifier 3, number 300");
        }
        let frame = Frame { kind: Kind::Voice, bytes: 200, side: 1, ..Frame::default() };
        let (bytes, decoded) = written(&frame, &wire);
        assert_eq!(judged(&bytes[..20]), 0);
        assert_eq!((bytes[9], &bytes[24..26]), (17, &[0, 180][..]));
        // From node 299 to node 0.
        assert_eq!(bytes[12..20], [10, 0, 1, 44, 10, 0, 0, 1]);
        assert!(matches!(decoded, Decoded::Datagram(_)), "{decoded:?}");
    }
}
