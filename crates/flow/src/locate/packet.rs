//! What makes a packet recognisable at another point of its path.
//!
//! signal: a decoded frame · model: what routers leave alone. Of TCP sequence numbers, timestamps, SACK blocks and
//! lengths; of UDP and ICMP a digest over the first bytes of the payload, the echo's sequence number. The IP
//! identification (RFC 6864: unique only for fragments, kept by routers, rewritten by some NATs) decides only
//! between alike packets, and only where it was found to survive. TTL, checksums, window, ECN field and MSS may
//! change on the way and take no part · action: [`Packet`]
//!
//! Data is known by its byte range, so that one segment of 64 KB (TSO, GRO) meets the many that it was on the wire.

use std::hash::{Hash, Hasher};

use capture::{Addr, Datagram, Decoded, Frame, Ip, TcpSegment, flags};

use crate::packet::key::Key;

/// Bytes of a datagram's payload that are looked at: RTP and DNS tell packets apart within 12, QUIC behind a header of up
/// to 25 that may be the same in all of them (RFC 9000 section 17.3.1).
pub(crate) const DIGEST: usize = 64;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const UDP: u8 = 17;

/// A flow in one direction, as one point sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tuple {
    pub src: Addr,
    pub dst: Addr,
    pub src_port: u16,
    pub dst_port: u16,
    pub protocol: u8,
}

impl Tuple {
    /// The other direction.
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

/// What every one of the captures kept of its packets, so that nothing is compared that one of them cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// Bytes of payload behind UDP and ICMP headers.
    pub digest: usize,
    /// TCP options.
    pub options: bool,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { digest: DIGEST, options: true }
    }
}

/// How a packet is found again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// By the bytes it carries, from this sequence number on, and the moment at which they were sent (TSval).
    Data { seq: u32, tsval: Option<u32> },
    /// By a digest of all that identifies it.
    Bare { key: u64 },
}

/// A packet at a point.
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
    /// Bytes of IP and transport header.
    pub header: u32,
    pub payload: u32,
}

#[inline]
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let wide = u128::from(hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (wide as u64) ^ (wide >> 64) as u64
}

impl Packet {
    /// Of a frame; `None` for what is no packet of a flow.
    #[inline]
    pub fn of(frame: &Frame<'_>, decoded: &Decoded, kept: Kept) -> Option<Packet> {
        match decoded {
            Decoded::Tcp(s) => Some(of_segment(s, kept)),
            Decoded::Datagram(d) => Some(of_datagram(frame, d, kept)),
            _ => None,
        }
    }
}

fn of_segment(s: &TcpSegment, kept: Kept) -> Packet {
    let timestamps = if kept.options { s.options.timestamps } else { None };
    let content = if s.payload > 0 && s.flags & (flags::SYN | flags::RST) == 0 {
        Content::Data { seq: s.seq, tsval: timestamps.map(|t| t.0) }
    } else {
        Content::Bare { key: bare_key(s, timestamps, kept) }
    };
    Packet {
        tuple: Tuple {
            src: s.ip.src,
            dst: s.ip.dst,
            src_port: s.src_port,
            dst_port: s.dst_port,
            protocol: 6,
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

/// Of a segment without data. ECE and CWR may be cleared on the way (RFC 3168 section 6.1.1.1 tells of such boxes).
fn bare_key(s: &TcpSegment, timestamps: Option<(u32, u32)>, kept: Kept) -> u64 {
    let lasting = s.flags & (flags::FIN | flags::SYN | flags::RST | flags::ACK);
    let ack = if s.has(flags::ACK) { s.ack } else { 0 };
    let mut key = mix(6, u64::from(s.seq) << 32 | u64::from(ack));
    key = mix(key, u64::from(s.payload) << 16 | u64::from(lasting));
    if let Some((tsval, tsecr)) = timestamps {
        key = mix(key, u64::from(tsval) << 32 | u64::from(tsecr));
    }
    if kept.options {
        for (left, right) in s.options.sack_blocks() {
            key = mix(key, u64::from(*left) << 32 | u64::from(*right));
        }
    }
    key
}

fn of_datagram(frame: &Frame<'_>, d: &Datagram, kept: Kept) -> Packet {
    let mut digest = digest(frame, d, kept.digest).unwrap_or(0);
    if !telling(d, kept) {
        // Nothing of the content was kept: what is left to tell packets apart.
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
        content: Content::Bare {
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

/// Whether enough was kept to tell a datagram by its content.
fn telling(d: &Datagram, kept: Kept) -> bool {
    kept.digest >= 4 || matches!(d.protocol, ICMP | ICMP6)
}

/// Where the transport header of a datagram lies in its frame: behind the IP header with its addresses and length.
/// `None` for a packet that came in fragments.
fn transport<'a>(frame: &Frame<'a>, d: &Datagram) -> Option<&'a [u8]> {
    // Link layer and tunnels stand before it; more than this never does.
    const FURTHEST: usize = 256;
    let data = frame.data.get(..frame.data.len().min(FURTHEST))?;
    let start = begin_of(data, &d.ip)?;
    let before = if matches!(d.protocol, UDP | ICMP | ICMP6) { 8 } else { 0 };
    let headers = d.ip.total_len.checked_sub(d.payload)?.checked_sub(before)?;
    frame.data.get(start.checked_add(headers as usize)?..)
}

fn begin_of(data: &[u8], ip: &Ip) -> Option<usize> {
    let be16 = |at: usize| data.get(at..)?.first_chunk().map(|b| u32::from(u16::from_be_bytes(*b)));
    if ip.src.0 >> 32 == 0xffff {
        let mut wanted = [0; 8];
        wanted[..4].copy_from_slice(&(ip.src.0 as u32).to_be_bytes());
        wanted[4..].copy_from_slice(&(ip.dst.0 as u32).to_be_bytes());
        let fits = |at: usize| {
            data.get(at).is_some_and(|b| b >> 4 == 4) && be16(at + 2) == Some(ip.total_len)
        };
        return (0..data.len().saturating_sub(19))
            .find(|at| data[at + 12..at + 20] == wanted && fits(*at));
    }
    let mut wanted = [0; 32];
    wanted[..16].copy_from_slice(&ip.src.0.to_be_bytes());
    wanted[16..].copy_from_slice(&ip.dst.0.to_be_bytes());
    let fits = |at: usize| {
        data.get(at).is_some_and(|b| b >> 4 == 6)
            && be16(at + 4).is_some_and(|len| len.saturating_add(40) == ip.total_len)
    };
    (0..data.len().saturating_sub(39)).find(|at| data[at + 8..at + 40] == wanted && fits(*at))
}

/// Over the first bytes of what is behind the header, and over an echo's number; `None` where they were not kept.
fn digest(frame: &Frame<'_>, d: &Datagram, most: usize) -> Option<u64> {
    let transport = transport(frame, d)?;
    let header = if matches!(d.protocol, UDP | ICMP | ICMP6) { transport.get(..8)? } else { &[] };
    let mut hash = match (d.protocol, header) {
        // Type and sequence number; the identifier is rewritten by NAT like a port.
        (ICMP | ICMP6, [kind, _, _, _, _, _, high, low]) => {
            mix(u64::from(*kind), u64::from(u16::from_be_bytes([*high, *low])) + 1)
        }
        _ => 0,
    };
    let payload = &transport[header.len()..];
    let wanted = most.min(d.payload as usize);
    // A capture that keeps headers alone still tells echoes apart.
    for chunk in payload.get(..wanted).unwrap_or_default().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u64::from_be_bytes(word));
    }
    Some(hash)
}

/// Narrows `kept` to what this frame has.
pub(crate) fn narrow(kept: &mut Kept, frame: &Frame<'_>, decoded: &Decoded) {
    if frame.data.len() >= frame.wire_len as usize {
        return;
    }
    match decoded {
        Decoded::Tcp(s) if (frame.data.len() as u32) < frame.wire_len.saturating_sub(s.payload) => {
            kept.options = false;
        }
        Decoded::Datagram(d) => {
            let header = if matches!(d.protocol, UDP | ICMP | ICMP6) { 8 } else { 0 };
            let has = transport(frame, d).map_or(0, |t| t.len().saturating_sub(header));
            if has < d.payload as usize {
                kept.digest = kept.digest.min(has);
            }
        }
        _ => {}
    }
}

/// A key without addresses, for finding packets of flows that a NAT has renamed; `None` for what is not unique enough.
/// A segment of 64 KB has the key of the first one that it becomes on the wire.
#[inline]
pub(crate) fn sample_key(packet: &Packet, decoded: &Decoded, kept: Kept) -> Option<u64> {
    match (packet.content, decoded) {
        (Content::Data { seq, tsval }, Decoded::Tcp(s)) => {
            let key = mix(1, u64::from(seq) << 32 | u64::from(s.ack));
            let (val, ecr) =
                if kept.options { s.options.timestamps.unwrap_or((0, 0)) } else { (0, 0) };
            debug_assert!(tsval.is_none_or(|t| t == val));
            Some(mix(key, u64::from(val) << 32 | u64::from(ecr)))
        }
        (Content::Bare { key }, Decoded::Tcp(_)) => Some(key),
        (Content::Bare { key }, Decoded::Datagram(d)) => {
            (telling(d, kept) && d.payload > 0).then_some(key)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::Decoder;
    use units::Instant;

    fn udp(src: [u8; 4], port: u16, payload: &[u8], kept: usize) -> (Vec<u8>, u32) {
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
        out.truncate(28 + kept);
        (out, wire)
    }

    fn packet(bytes: &[u8], wire_len: u32, kept: Kept) -> Packet {
        let frame = Frame { time: Instant(1), interface: 0, linktype: 101, wire_len, data: bytes };
        let decoded = Decoder::new().decode(&frame);
        Packet::of(&frame, &decoded, kept).expect("a datagram")
    }

    #[test]
    fn a_datagram_is_known_by_its_payload_whatever_its_addresses() {
        let whole = Kept::default();
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
        let mut kept = Kept::default();
        let frame =
            Frame { time: Instant(1), interface: 0, linktype: 101, wire_len: wire, data: &cut };
        narrow(&mut kept, &frame, &Decoder::new().decode(&frame));
        assert_eq!(kept.digest, 6);
        assert_eq!(packet(&whole, wire, kept).content, packet(&cut, wire, kept).content);
    }
}
