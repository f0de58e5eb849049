//! Packets built by hand, for the tests of every layer.

use units::Instant;

use crate::decoded::{Datagram, Decoded, TcpSegment};
use crate::decoder::Decoder;
use crate::frame::Frame;

pub(crate) const SRC: [u8; 4] = [10, 0, 0, 1];
pub(crate) const DST: [u8; 4] = [192, 0, 2, 7];
pub(crate) const PAYLOAD: usize = 100;

pub(crate) fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// A TCP header with these option bytes (a multiple of four) and flags, and a payload of `payload` bytes.
pub(crate) fn tcp_with(flags: u16, options: &[u8], payload: usize) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let mut out = vec![0x9c, 0x40, 0x01, 0xbb]; // 40000 → 443
    out.extend(1_000_u32.to_be_bytes());
    out.extend(2_000_u32.to_be_bytes());
    let offset = ((20 + options.len()) / 4) as u16;
    out.extend((offset << 12 | flags).to_be_bytes());
    out.extend(512_u16.to_be_bytes());
    out.extend([0; 4]);
    out.extend(options);
    out.extend(vec![0x55; payload]);
    out
}

/// The segment that most tests carry through their layers.
pub(crate) fn tcp() -> Vec<u8> {
    tcp_with(0x18, &[1, 1, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4], PAYLOAD)
}

pub(crate) fn udp(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = src.to_be_bytes().to_vec();
    out.extend(dst.to_be_bytes());
    out.extend(((payload.len() + 8) as u16).to_be_bytes());
    out.extend([0, 0]);
    out.extend(payload);
    out
}

/// An IPv4 packet; `fragment` is the field with flags and offset.
pub(crate) fn ipv4_with(protocol: u8, id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, 2];
    out.extend(((payload.len() + 20) as u16).to_be_bytes());
    out.extend(id.to_be_bytes());
    out.extend(fragment.to_be_bytes());
    out.extend([64, protocol, 0, 0]);
    out.extend(SRC);
    out.extend(DST);
    out.extend(payload);
    out
}

pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(protocol, 7, 0x4000, payload)
}

pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x60, 0x20, 0, 0];
    out.extend((payload.len() as u16).to_be_bytes());
    out.extend([next, 60]);
    out.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    out.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    out.extend(payload);
    out
}

pub(crate) fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &kind.to_be_bytes(), payload])
}

pub(crate) fn frame(linktype: u16, data: &[u8]) -> Frame<'_> {
    Frame { time: Instant(5), interface: 0, linktype, wire_len: data.len() as u32, data }
}

pub(crate) fn decode(linktype: u16, data: &[u8]) -> Decoded {
    Decoder::new().decode(&frame(linktype, data))
}

/// The segment in the frame.
#[track_caller]
pub(crate) fn segment(linktype: u16, data: &[u8]) -> TcpSegment {
    match decode(linktype, data) {
        Decoded::Tcp(segment) => segment,
        other => panic!("no segment but {other:?}"),
    }
}

/// The datagram in the frame.
#[track_caller]
pub(crate) fn datagram(linktype: u16, data: &[u8]) -> Datagram {
    match decode(linktype, data) {
        Decoded::Datagram(datagram) => datagram,
        other => panic!("no datagram but {other:?}"),
    }
}

/// Holds when the frame leads to the segment of [`tcp`], whole.
#[track_caller]
pub(crate) fn arrives(linktype: u16, data: &[u8]) {
    let s = segment(linktype, data);
    assert_eq!((s.src_port, s.dst_port, s.seq, s.ack), (40_000, 443, 1_000, 2_000));
    assert_eq!(s.payload as usize, PAYLOAD);
    assert_eq!(s.options.timestamps, Some((3, 4)));
    assert_eq!(s.ip.wire_len as usize, data.len());
}
