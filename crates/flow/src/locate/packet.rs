//! The identity of a packet: fields that stay the same on its path.
//!
//! For TCP these are sequence numbers, timestamps, SACK blocks and lengths. For UDP and ICMP it is a digest of the first
//! bytes of payload, with the sequence number of an ICMP echo. The IP identification decides only between equal packets,
//! and only if it was the same at both points: routers keep it, some NATs rewrite it, and RFC 6864 makes it unique for
//! fragments only. TTL, checksums, window, ECN field and MSS may change on the path and are not used.
//!
//! TCP data is identified by its byte range, so that a GSO/GRO segment of 64 KB matches the segments on the wire.

use std::hash::{Hash, Hasher};

use capture::protocol::{ICMP, ICMPV6, TCP, UDP};
use capture::{Addr, Datagram, Decoded, Frame, Ip, TcpSegment, flags};

use crate::identity::key::Key;

/// Bytes of payload in the digest. Packets of RTP and DNS differ within 12 bytes, those of QUIC behind a header of up to
/// 25 bytes that may be equal in all of them (RFC 9000 section 17.3.1).
pub(crate) const DIGEST: usize = 64;

/// Addresses and ports of a flow in one direction, as seen at one point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tuple {
    pub src: Addr,
    pub dst: Addr,
    pub src_port: u16,
    pub dst_port: u16,
    pub protocol: u8,
}

impl Tuple {
    /// The tuple of the other direction.
    pub fn back(self) -> Tuple {
        Tuple {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            protocol: self.protocol,
        }
    }
}

impl Hash for Tuple {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let src = (self.src, self.src_port);
        let dst = (self.dst, self.dst_port);
        let both = Key::new(self.protocol, src, dst).mix();
        state.write_u64(both ^ u64::from(src > dst).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// The part of packets that all captures contain, so that no comparison uses bytes which one of them cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonContent {
    /// Number of payload bytes behind UDP and ICMP headers.
    pub digest: usize,
    /// Whether all TCP options are included.
    pub options: bool,
}

impl Default for CommonContent {
    fn default() -> CommonContent {
        CommonContent { digest: DIGEST, options: true }
    }
}

/// How a packet is identified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// By its data from this sequence number on, and the time at which it was sent (TSval).
    Data { seq: u32, tsval: Option<u32> },
    /// By a digest of all fields that identify it.
    Digest { key: u64 },
}

/// Identity and variable fields of a packet at a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub tuple: Tuple,
    pub content: Content,
    /// IP identification; 0 for none.
    pub id: u16,
    pub ttl: u8,
    pub ecn: u8,
    /// Window field of TCP, else 0.
    pub window: u16,
    /// Length of IP and transport header, bytes.
    pub header: u32,
    pub payload: u32,
}

#[inline]
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let wide = u128::from(hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (wide as u64) ^ (wide >> 64) as u64
}

impl Packet {
    /// The packet in a frame; `None` if it belongs to no flow.
    #[inline]
    pub fn of(frame: &Frame<'_>, decoded: &Decoded, common: CommonContent) -> Option<Packet> {
        match decoded {
            Decoded::Tcp(s) => Some(of_segment(s, common)),
            Decoded::Datagram(d) => Some(of_datagram(frame, d, common)),
            _ => None,
        }
    }
}

fn of_segment(s: &TcpSegment, common: CommonContent) -> Packet {
    let timestamps = if common.options { s.options.timestamps } else { None };
    let content = if s.payload > 0 && s.flags & (flags::SYN | flags::RST) == 0 {
        Content::Data { seq: s.seq, tsval: timestamps.map(|t| t.0) }
    } else {
        Content::Digest { key: digest_without_data(s, timestamps, common) }
    };
    Packet {
        tuple: Tuple {
            src: s.ip.src,
            dst: s.ip.dst,
            src_port: s.src_port,
            dst_port: s.dst_port,
            protocol: TCP,
        },
        content,
        id: s.ip.id.unwrap_or(0),
        ttl: s.ip.ttl,
        ecn: s.ip.ecn,
        window: s.window,
        header: s.ip.total_len.saturating_sub(s.payload),
        payload: s.payload,
    }
}

/// Digest of a segment without data. ECE and CWR are left out, since some middleboxes clear them (RFC 3168 section
/// 6.1.1.1).
fn digest_without_data(
    s: &TcpSegment,
    timestamps: Option<(u32, u32)>,
    common: CommonContent,
) -> u64 {
    let lasting = s.flags & (flags::FIN | flags::SYN | flags::RST | flags::ACK);
    let ack = if s.has(flags::ACK) { s.ack } else { 0 };
    let mut key = mix(u64::from(TCP), u64::from(s.seq) << 32 | u64::from(ack));
    key = mix(key, u64::from(s.payload) << 16 | u64::from(lasting));
    if let Some((tsval, tsecr)) = timestamps {
        key = mix(key, u64::from(tsval) << 32 | u64::from(tsecr));
    }
    if common.options {
        for (left, right) in s.options.sack_blocks() {
            key = mix(key, u64::from(*left) << 32 | u64::from(*right));
        }
    }
    key
}

fn of_datagram(frame: &Frame<'_>, d: &Datagram, common: CommonContent) -> Packet {
    let mut digest = digest(frame, d, common.digest).unwrap_or(0);
    if !is_distinctive(d, common) {
        // No content was captured: the IP identification is the only difference left.
        digest = mix(digest, u64::from(d.ip.id.unwrap_or(0)));
    }
    Packet {
        tuple: Tuple {
            src: d.ip.src,
            dst: d.ip.dst,
            src_port: d.src_port,
            dst_port: d.dst_port,
            protocol: d.protocol,
        },
        content: Content::Digest {
            key: mix(mix(u64::from(d.protocol), digest), u64::from(d.payload)),
        },
        id: d.ip.id.unwrap_or(0),
        ttl: d.ip.ttl,
        ecn: d.ip.ecn,
        window: 0,
        header: d.ip.total_len.saturating_sub(d.payload),
        payload: d.payload,
    }
}

/// Whether enough was captured to identify a datagram by its content.
fn is_distinctive(d: &Datagram, common: CommonContent) -> bool {
    common.digest >= 4 || matches!(d.protocol, ICMP | ICMPV6)
}

/// The frame from the transport header of a datagram on. It is found behind the IP header with these addresses and this
/// length. `None` for a reassembled packet.
fn transport<'a>(frame: &Frame<'a>, d: &Datagram) -> Option<&'a [u8]> {
    // Maximum length of link layer and tunnel headers before it.
    const MAX_HEADERS: usize = 256;
    let data = frame.data.get(..frame.data.len().min(MAX_HEADERS))?;
    let start = begin_of(data, &d.ip)?;
    let before = if matches!(d.protocol, UDP | ICMP | ICMPV6) { 8 } else { 0 };
    let headers = d.ip.total_len.checked_sub(d.payload)?.checked_sub(before)?;
    frame.data.get(start.checked_add(headers as usize)?..)
}

fn begin_of(data: &[u8], ip: &Ip) -> Option<usize> {
    let be16 = |at: usize| data.get(at..)?.first_chunk().map(|b| u32::from(u16::from_be_bytes(*b)));
    if ip.src.0 >> 32 == 0xffff {
        let mut addresses = [0; 8];
        addresses[..4].copy_from_slice(&(ip.src.0 as u32).to_be_bytes());
        addresses[4..].copy_from_slice(&(ip.dst.0 as u32).to_be_bytes());
        let fits = |at: usize| {
            data.get(at).is_some_and(|b| b >> 4 == 4) && be16(at + 2) == Some(ip.total_len)
        };
        return (0..data.len().saturating_sub(19))
            .find(|at| data[at + 12..at + 20] == addresses && fits(*at));
    }
    let mut addresses = [0; 32];
    addresses[..16].copy_from_slice(&ip.src.0.to_be_bytes());
    addresses[16..].copy_from_slice(&ip.dst.0.to_be_bytes());
    let fits = |at: usize| {
        data.get(at).is_some_and(|b| b >> 4 == 6)
            && be16(at + 4).is_some_and(|len| len.saturating_add(40) == ip.total_len)
    };
    (0..data.len().saturating_sub(39)).find(|at| data[at + 8..at + 40] == addresses && fits(*at))
}

/// Digest of the first payload bytes, and of the number of an echo; `None` if they were not captured.
fn digest(frame: &Frame<'_>, d: &Datagram, max_len: usize) -> Option<u64> {
    let transport = transport(frame, d)?;
    let header = if matches!(d.protocol, UDP | ICMP | ICMPV6) { transport.get(..8)? } else { &[] };
    let mut hash = match (d.protocol, header) {
        // Type and sequence number. NAT rewrites the identifier like a port.
        (ICMP | ICMPV6, [kind, _, _, _, _, _, high, low]) => {
            mix(u64::from(*kind), u64::from(u16::from_be_bytes([*high, *low])) + 1)
        }
        _ => 0,
    };
    let payload = &transport[header.len()..];
    let len = max_len.min(d.payload as usize);
    // With headers alone echoes still differ by their number.
    for chunk in payload.get(..len).unwrap_or_default().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u64::from_be_bytes(word));
    }
    Some(hash)
}

/// Narrows `kept` to what this frame has.
pub(crate) fn narrow(common: &mut CommonContent, frame: &Frame<'_>, decoded: &Decoded) {
    if frame.data.len() >= frame.wire_len as usize {
        return;
    }
    match decoded {
        Decoded::Tcp(s) if (frame.data.len() as u32) < frame.wire_len.saturating_sub(s.payload) => {
            common.options = false;
        }
        Decoded::Datagram(d) => {
            let header = if matches!(d.protocol, UDP | ICMP | ICMPV6) { 8 } else { 0 };
            let has = transport(frame, d).map_or(0, |t| t.len().saturating_sub(header));
            if has < d.payload as usize {
                common.digest = common.digest.min(has);
            }
        }
        _ => {}
    }
}

/// A key without addresses, to find packets of flows behind a NAT; `None` if the content is not distinctive. A GSO
/// segment has the key of the first segment on the wire.
#[inline]
pub(crate) fn sample_key(packet: &Packet, decoded: &Decoded, common: CommonContent) -> Option<u64> {
    match (packet.content, decoded) {
        (Content::Data { seq, tsval }, Decoded::Tcp(s)) => {
            let key = mix(1, u64::from(seq) << 32 | u64::from(s.ack));
            let (val, ecr) =
                if common.options { s.options.timestamps.unwrap_or((0, 0)) } else { (0, 0) };
            debug_assert!(tsval.is_none_or(|t| t == val));
            Some(mix(key, u64::from(val) << 32 | u64::from(ecr)))
        }
        (Content::Digest { key }, Decoded::Tcp(_)) => Some(key),
        (Content::Digest { key }, Decoded::Datagram(d)) => {
            (is_distinctive(d, common) && d.payload > 0).then_some(key)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::Decoder;
    use units::Instant;

    fn udp(src: [u8; 4], port: u16, payload: &[u8], common: usize) -> (Vec<u8>, u32) {
        let total = 28 + payload.len() as u16;
        let mut out = vec![0x45, 0];
        out.extend(total.to_be_bytes());
        out.extend([0, 9, 0, 0, 64, 17, 0, 0]);
        out.extend(src);
        out.extend([192, 0, 2, 1]);
        out.extend(port.to_be_bytes());
        out.extend(53_u16.to_be_bytes());
        out.extend((total - 20).to_be_bytes());
        out.extend([0, 0]);
        out.extend(payload);
        let wire = out.len() as u32;
        out.truncate(28 + common);
        (out, wire)
    }

    fn packet(bytes: &[u8], wire_len: u32, common: CommonContent) -> Packet {
        let frame = Frame { time: Instant(1), interface: 0, linktype: 101, wire_len, data: bytes };
        let decoded = Decoder::new().decode(&frame);
        Packet::of(&frame, &decoded, common).expect("a datagram")
    }

    #[test]
    fn a_datagram_is_known_by_its_payload_whatever_its_addresses() {
        let whole = CommonContent::default();
        let (a, wire) = udp([10, 0, 0, 1], 4000, b"the first of them", 17);
        let (b, _) = udp([203, 0, 113, 9], 61_000, b"the first of them", 17);
        let (c, _) = udp([10, 0, 0, 1], 4000, b"the other of them", 17);
        let key = |bytes: &[u8]| packet(bytes, wire, whole).content;
        assert_eq!(key(&a), key(&b));
        assert_ne!(key(&a), key(&c));
    }

    #[test]
    fn what_one_capture_cut_off_is_compared_nowhere() {
        let (whole, wire) = udp([10, 0, 0, 1], 4000, b"the first of them", 17);
        let (cut, _) = udp([10, 0, 0, 1], 4000, b"the first of them", 6);
        let mut common = CommonContent::default();
        let frame =
            Frame { time: Instant(1), interface: 0, linktype: 101, wire_len: wire, data: &cut };
        narrow(&mut common, &frame, &Decoder::new().decode(&frame));
        assert_eq!(common.digest, 6);
        assert_eq!(packet(&whole, wire, common).content, packet(&cut, wire, common).content);
    }
}
