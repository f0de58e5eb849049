//! TCP segment headers.
//!
//! Sources: RFC 9293 section 3.1, RFC 7323 (timestamps, window scale), RFC 2018 (SACK), RFC 8684 (MPTCP).
//! The payload is what the IP length says, whatever was kept. Options that the snap length cut off, or that lie about
//! their length, end the list; what stood before them counts.

use crate::decoded::{Decoded, Ip, TcpOptions, TcpSegment, flags};

const FIXED: usize = 20;
/// RFC 7323 section 2.3: larger shifts are treated as 14.
const MAX_SHIFT: u8 = 14;
/// NOP, NOP, timestamps of 10 bytes: what RFC 7323 appendix A recommends and nearly every segment carries.
const NOP_NOP_TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];

/// `data` begins at the TCP header; `len` is the length of header and payload by the IP header.
#[inline]
pub(crate) fn decode(data: &[u8], len: u32, ip: Ip) -> Decoded {
    let Some((head, rest)) = data.split_first_chunk::<FIXED>() else { return Decoded::Broken };
    let header = usize::from(head[12] >> 4) * 4;
    if header < FIXED || header as u32 > len {
        return Decoded::Broken;
    }
    let flags = u16::from_be_bytes([head[12], head[13]]) & 0x1ff;
    let listed = header - FIXED;
    let options = rest.get(..listed).unwrap_or(rest);
    let mut segment = TcpSegment {
        ip,
        src_port: u16::from_be_bytes([head[0], head[1]]),
        dst_port: u16::from_be_bytes([head[2], head[3]]),
        seq: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        ack: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
        flags,
        window: u16::from_be_bytes([head[14], head[15]]),
        payload: len - header as u32,
        options: TcpOptions::default(),
    };
    match options.first_chunk::<12>() {
        Some(o) if options.len() == 12 && o[..4] == NOP_NOP_TIMESTAMPS => {
            segment.options.timestamps = Some(pair(&[o[4], o[5], o[6], o[7], o[8], o[9], o[10], o[11]]));
        }
        _ if listed != 0 => read_options(options, flags & flags::SYN != 0, &mut segment.options),
        _ => {}
    }
    Decoded::Tcp(segment)
}

#[inline]
fn pair(b: &[u8; 8]) -> (u32, u32) {
    (u32::from_be_bytes([b[0], b[1], b[2], b[3]]), u32::from_be_bytes([b[4], b[5], b[6], b[7]]))
}

#[inline(never)]
fn read_options(mut rest: &[u8], syn: bool, options: &mut TcpOptions) {
    while let Some((&kind, after)) = rest.split_first() {
        match kind {
            0 => return,
            1 => {
                rest = after;
                continue;
            }
            _ => {}
        }
        let Some(&len) = after.first() else { return };
        let Some(body) = rest.get(2..usize::from(len)) else { return };
        match (kind, body.len()) {
            (2, 2) if syn => options.mss = Some(u16::from_be_bytes([body[0], body[1]])),
            (3, 1) if syn => options.window_scale = Some(body[0].min(MAX_SHIFT)),
            (4, 0) if syn => options.sack_permitted = true,
            (5, 8 | 16 | 24 | 32) => {
                options.sack_count = 0;
                for (block, edge) in options.sacks.iter_mut().zip(body.chunks_exact(8)) {
                    *block = edge.first_chunk::<8>().map(pair).unwrap_or_default();
                    options.sack_count += 1;
                }
            }
            (8, 8) => options.timestamps = body.first_chunk().map(pair),
            (30, _) => options.mptcp = true,
            _ => {}
        }
        rest = &rest[usize::from(len)..];
    }
}
