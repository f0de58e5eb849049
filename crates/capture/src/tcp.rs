//! TCP segment headers.
//!
//! Sources: RFC 9293 section 3.1, RFC 7323 (timestamps, window scale), RFC 2018 (SACK), RFC 8684 (MPTCP). The
//! payload length follows from the IP length, however much was captured. An option that the snap length cut
//! off, or whose length is invalid, ends the list; the options before it count.

use crate::decoded::{Decoded, Ip, TcpOptions, TcpSegment, flags};

const FIXED: usize = 20;
/// Lengths of an IP packet in the shortest Ethernet frame (IEEE 802.3, 60 bytes without check sequence): with and without an
/// 802.1Q tag.
pub(crate) const MIN_FRAME_PACKETS: [u32; 2] = [42, 46];
/// RFC 7323 section 2.3: larger shifts are treated as 14.
const MAX_SHIFT: u8 = 14;
/// A header without options.
pub(crate) const NO_OPTIONS: TcpOptions = TcpOptions {
    timestamps: None,
    mss: None,
    window_scale: None,
    sack_permitted: false,
    mptcp: false,
    sack_count: 0,
    sacks: [(0, 0); 4],
};

/// Header length and timestamps of a segment that has no options, or timestamps in the place that nearly every
/// segment has them; `None` for all else. `data` begins at the TCP header.
#[inline(always)]
pub(crate) fn plain(data: &[u8]) -> Option<(u32, Option<(u32, u32)>)> {
    let (head, rest) = data.split_first_chunk::<FIXED>()?;
    match (head[12] >> 4, rest.first_chunk::<12>()) {
        (5, _) => Some((20, None)),
        // NOP, NOP, timestamps: what RFC 7323 appendix A recommends.
        (8, Some([1, 1, 8, 10, ts @ ..])) => Some((32, Some(pair(ts)))),
        _ => None,
    }
}

/// `data` begins at the TCP header; `len` is the length of header and payload by the IP header.
pub(crate) fn decode(data: &[u8], len: u32, ip: Ip) -> Decoded {
    let Some((head, rest)) = data.split_first_chunk::<FIXED>() else { return Decoded::Broken };
    let header = usize::from(head[12] >> 4) * 4;
    if header < FIXED || header as u32 > len {
        return Decoded::Broken;
    }
    let payload = len - header as u32;
    let mut options = NO_OPTIONS;
    let syn = u16::from(head[13]) & flags::SYN != 0;
    read_options(rest.get(..header - FIXED).unwrap_or(rest), syn, &mut options);
    Decoded::Tcp(TcpSegment {
        ip,
        src_port: u16::from_be_bytes([head[0], head[1]]),
        dst_port: u16::from_be_bytes([head[2], head[3]]),
        seq: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        ack: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
        flags: u16::from_be_bytes([head[12], head[13]]) & 0x1ff,
        window: u16::from_be_bytes([head[14], head[15]]),
        payload,
        maybe_padding: may_be_padding(data, header, payload, ip.total_len),
        options,
    })
}

/// Whether the payload can be padding of the shortest Ethernet frame, which some devices count in the IP length: zeros up to
/// exactly that length, without PSH. A sender sets PSH on the last of its data (RFC 9293 section 3.9.1.2). Only the numbers
/// that follow decide: `flow` does.
fn may_be_padding(data: &[u8], header: usize, payload: u32, total_len: u32) -> bool {
    payload > 0
        && MIN_FRAME_PACKETS.contains(&total_len)
        && u16::from(data[13]) & (flags::PSH | flags::URG) == 0
        && data
            .get(header..header + payload as usize)
            .is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

#[inline]
fn pair(b: &[u8; 8]) -> (u32, u32) {
    (u32::from_be_bytes([b[0], b[1], b[2], b[3]]), u32::from_be_bytes([b[4], b[5], b[6], b[7]]))
}

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

#[cfg(test)]
mod tests {
    use crate::decoded::{Decoded, TcpOptions, flags};
    use crate::packets::{decode as decoded, ethernet, ipv4, ipv6, segment, tcp, tcp_with};

    fn options(flags: u16, bytes: &[u8]) -> TcpOptions {
        segment(1, &ethernet(0x0800, &ipv4(6, &tcp_with(flags, bytes, 0)))).options
    }

    #[test]
    fn a_syn_has_mss_scale_sack_and_timestamps_and_the_scale_is_capped() {
        let bytes = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 200];
        let o = options(flags::SYN, &bytes);
        assert_eq!((o.mss, o.window_scale, o.sack_permitted), (Some(1460), Some(14), true));
        assert_eq!(o.timestamps, Some((1, 0)));
        let o = options(flags::ACK, &bytes);
        assert_eq!((o.mss, o.window_scale, o.sack_permitted), (None, None, false));
    }

    #[test]
    fn sack_blocks_keep_their_order_and_a_wrong_length_is_ignored() {
        let two = [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
        assert_eq!(options(flags::ACK, &two).sack_blocks(), &[(1, 2), (3, 4)]);
        let wrong = [5, 7, 0, 0, 0, 1, 0, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8, 1, 1];
        let o = options(flags::ACK, &wrong);
        assert_eq!((o.sack_count, o.timestamps), (0, Some((9, 8))));
    }

    #[test]
    fn zeros_up_to_the_shortest_frame_may_be_padding() {
        let maybe = |flags, payload: &[u8]| {
            let packet = ipv4(6, &[&tcp_with(flags, &[], 0), payload].concat());
            segment(1, &ethernet(0x0800, &packet)).maybe_padding
        };
        assert_eq!([2, 6].map(|n| maybe(flags::ACK, &[0; 6][..n])), [true; 2]);
        assert_eq!([0, 1, 3, 5].map(|n| maybe(flags::ACK, &[0; 6][..n])), [false; 4]);
        assert!(!maybe(flags::ACK | flags::PSH, &[0; 6]), "the last of the data");
        assert!(!maybe(flags::ACK, &[0, 0, 0, 0, 0, 1]), "not zeros");
        let v6 = ipv6(6, &[&tcp_with(flags::ACK, &[], 0), &[0; 6][..]].concat());
        assert!(!segment(1, &ethernet(0x86dd, &v6)).maybe_padding, "IPv6 needs no padding");
    }

    #[test]
    fn mptcp_is_noticed() {
        assert!(options(flags::SYN, &[30, 4, 0, 0x81]).mptcp);
    }

    #[test]
    fn an_option_of_invalid_length_ends_the_list() {
        for lie in [[8, 10, 0, 0], [2, 0, 0, 0], [2, 1, 0, 0], [8, 255, 0, 0]] {
            let mut bytes = vec![2, 4, 5, 0xb4];
            bytes.extend(lie);
            assert_eq!(
                options(flags::SYN, &bytes),
                TcpOptions { mss: Some(1460), ..TcpOptions::default() }
            );
        }
    }

    #[test]
    fn the_snap_length_takes_options_but_never_bytes_of_payload() {
        let whole = ethernet(0x0800, &ipv4(6, &tcp()));
        for kept in 0..whole.len() {
            let mut frame = crate::packets::frame(1, &whole[..kept]);
            frame.wire_len = whole.len() as u32;
            match crate::Decoder::new().decode(&frame) {
                Decoded::Tcp(s) => {
                    assert!(kept >= 54);
                    assert_eq!(s.payload, 100);
                    assert_eq!(
                        s.options.timestamps,
                        (kept >= 66).then_some((3, 4)),
                        "{kept} bytes kept"
                    );
                }
                other => {
                    assert!(kept < 54);
                    assert_eq!(other, Decoded::Broken);
                }
            }
        }
    }

    #[test]
    fn a_header_shorter_than_itself_or_longer_than_its_packet_is_broken() {
        for offset in [0x40, 0xf0] {
            let mut header = tcp_with(0x10, &[], 0);
            header[12] = offset;
            assert_eq!(decoded(1, &ethernet(0x0800, &ipv4(6, &header))), Decoded::Broken);
        }
    }
}
