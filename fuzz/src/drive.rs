//! One function per fuzz target: bytes in, the public API of `capture` and `flow` run over them,
//! panic on what must never be.
//!
//! `file_readers`, `whole_capture`: the bytes are a file. `link_layers`: link type, then frames
//! with a length before each. `tcp_options`: the options of a TCP header. `ip_fragments`: how a
//! known packet is cut and shuffled. `scripted_segments`: eight bytes per TCP segment between two
//! hosts.

use capture::{
    Addr, Decoded, Decoder, Frame, Ip, LINKTYPES, Reader, TcpOptions, TcpSegment, flags,
};
use flow::{Analyzer, Options, Select};
use units::{Duration, Instant};

use crate::invariants;

/// A compressed input may unpack to a thousand times its size; the rest of a bomb teaches nothing
/// new.
const MAX_UNPACKED: u64 = 16 << 20;
/// More packets only make one run slower.
const MAX_PACKETS: u64 = 20_000;

/// Reads the bytes as a file, to the end or the first error.
pub fn file_readers(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let mut before = 0;
    loop {
        let frame = match reader.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert!(matches!(reader.next_frame(), Ok(None)), "nothing comes after an error");
                break;
            }
        };
        assert!(frame.wire_len as usize >= frame.data.len());
        let interface = frame.interface as usize;
        let linktype = frame.linktype;
        assert_eq!(reader.interfaces().get(interface).map(|i| i.linktype), Some(linktype));
        let offset = reader.offset();
        assert!(offset > before, "every frame takes bytes");
        before = offset;
        if offset > MAX_UNPACKED {
            break;
        }
    }
}

/// Decodes frames of one link type: two bytes of link type (an index below 256, the number itself
/// above), then frames, each behind two bytes of length (the top bit: cut the frame in half, as a
/// snap length does).
pub fn link_layers(bytes: &[u8]) {
    let Some((kind, mut rest)) = bytes.split_first_chunk::<2>() else { return };
    let kind = u16::from_be_bytes(*kind);
    let linktype =
        if kind < 256 { LINKTYPES[usize::from(kind) % LINKTYPES.len()].0 } else { kind - 256 };
    let mut decoder = Decoder::new();
    let mut time = 1_000_000_000;
    let mut so_far = 0;
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let len = u16::from_be_bytes(*len);
        let (data, tail) = tail.split_at(usize::from(len & 0x7fff).min(tail.len()));
        rest = tail;
        let kept = if len & 0x8000 != 0 { &data[..data.len() / 2] } else { data };
        time += 1_000;
        let frame = Frame {
            time: Instant(time),
            interface: 0,
            linktype,
            wire_len: data.len() as u32,
            data: kept,
        };
        so_far += frame.wire_len;
        check(&decoder.decode(&frame), &frame, so_far);
    }
}

/// A packet that was fragmented has the bytes of all its frames, of which there were `so_far`.
fn check(decoded: &Decoded, frame: &Frame<'_>, so_far: u32) {
    match decoded {
        Decoded::Tcp(s) => {
            assert!(s.ip.total_len >= s.payload + 20, "{s:?}");
            assert_eq!(s.ip.time, frame.time);
            assert!((frame.wire_len..=so_far).contains(&s.ip.wire_len), "{s:?}");
            assert!(
                s.options.sack_count <= 4 && s.options.window_scale.is_none_or(|w| w <= 14),
                "{s:?}"
            );
        }
        Decoded::Datagram(d) => {
            assert!(d.ip.total_len >= d.payload, "{d:?}");
            assert_eq!(d.ip.time, frame.time);
            assert!((frame.wire_len..=so_far).contains(&d.ip.wire_len), "{d:?}");
        }
        Decoded::Fragment | Decoded::NotIp | Decoded::Broken => {}
    }
}

/// An IPv4 packet round `segment`.
fn ipv4(id: u16, fragment: u16, segment: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, 0];
    out.extend(((segment.len() + 20) as u16).to_be_bytes());
    out.extend(id.to_be_bytes());
    out.extend(fragment.to_be_bytes());
    out.extend([64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    out.extend(segment);
    out
}

/// A TCP header with these options, then `payload` bytes.
fn tcp(flags: u16, options: &[u8], payload: usize) -> Vec<u8> {
    let mut out = vec![0x9c, 0x40, 0x01, 0xbb, 0, 0, 3, 0xe8, 0, 0, 7, 0xd0];
    let offset = (20 + options.len().next_multiple_of(4)) / 4;
    out.extend(((offset as u16) << 12 | flags).to_be_bytes());
    out.extend([2, 0, 0, 0, 0, 0]);
    out.extend(options);
    out.resize(offset * 4, 0);
    out.resize(offset * 4 + payload, 0x55);
    out
}

const RAW_IP: u16 = 101;

/// Two bytes of flags, then options: decoded whole and cut at every byte; what the cut lost is
/// absent, what it kept is the same or absent; and the analyser takes both.
pub fn tcp_options(bytes: &[u8]) {
    let Some((head, options)) = bytes.split_first_chunk::<2>() else { return };
    let bits = u16::from_be_bytes(*head);
    let packet = ipv4(
        1,
        0x4000,
        &tcp(bits & 0x1ff, &options[..options.len().min(40)], usize::from(bits >> 9)),
    );
    let wire_len = packet.len() as u32;
    let decode = |kept: usize| {
        let data = &packet[..kept];
        let frame = Frame { time: Instant(1), interface: 0, linktype: RAW_IP, wire_len, data };
        let decoded = Decoder::new().decode(&frame);
        check(&decoded, &frame, frame.wire_len);
        decoded
    };
    let Decoded::Tcp(whole) = decode(packet.len()) else { panic!("a whole header is a segment") };
    for kept in 0..packet.len() {
        if let Decoded::Tcp(cut) = decode(kept) {
            assert_eq!((cut.payload, cut.flags, cut.seq), (whole.payload, whole.flags, whole.seq));
        }
    }
    let mut back = whole;
    std::mem::swap(&mut back.ip.src, &mut back.ip.dst);
    std::mem::swap(&mut back.src_port, &mut back.dst_port);
    back.seq = whole.ack;
    back.ack = whole.seq.wrapping_add(whole.payload);
    let mut analyzer = Analyzer::new(everything());
    for (i, segment) in [whole, back, whole, back].into_iter().enumerate() {
        push(
            &mut analyzer,
            TcpSegment { ip: Ip { time: Instant(i as u64 * 40_000_000), ..segment.ip }, ..segment },
        );
    }
    invariants::hold(&analyzer.finish(None), BIN);
}

/// Cuts a TCP packet into fragments at multiples of eight, sends them as the bytes say (order,
/// copies, other identifications, overlaps), and checks this of the decoder: when all pieces of the
/// one packet were sent once and nothing else, the segment comes out.
pub fn ip_fragments(bytes: &[u8]) {
    let Some((&[payload, piece], script)) = bytes.split_first_chunk::<2>() else { return };
    let segment = tcp(0x18, &[], usize::from(payload) * 8);
    let piece = (usize::from(piece) % 64 + 1) * 8;
    let pieces: Vec<&[u8]> = segment.chunks(piece).collect();
    if pieces.len() < 2 {
        return;
    }
    let mut decoder = Decoder::new();
    let mut sent = vec![0_u32; pieces.len()];
    let mut clean = true;
    let mut arrived = 0;
    for (i, op) in script.iter().take(4 * pieces.len()).enumerate() {
        let which = usize::from(*op) % pieces.len();
        let odd = *op >= 0xf0;
        let id = if odd { u16::from(*op) } else { 7 };
        // An odd one also claims to begin eight bytes earlier: an overlap.
        let at = (which * piece / 8).saturating_sub(usize::from(*op == 0xff));
        let more = if which + 1 < pieces.len() { 0x2000 } else { 0 };
        let packet = ipv4(id, more | at as u16, pieces[which]);
        let time = Instant(1_000_000_000 + i as u64 * 1_000_000);
        let frame = Frame {
            time,
            interface: 0,
            linktype: RAW_IP,
            wire_len: packet.len() as u32,
            data: &packet,
        };
        clean &= !odd && sent[which] == 0;
        sent[which] += 1;
        let decoded = decoder.decode(&frame);
        match decoded {
            Decoded::Tcp(s) => {
                assert!(s.ip.total_len >= s.payload + 20);
                if clean {
                    assert_eq!((s.seq, s.payload as usize), (1000, usize::from(payload) * 8));
                }
                arrived += 1;
            }
            Decoded::Broken => assert!(!clean, "a clean fragment is never broken"),
            _ => {}
        }
    }
    if clean && sent.iter().all(|n| *n == 1) {
        assert_eq!(arrived, 1, "all pieces once are one packet");
    }
}

/// The default width of a bin of [`Options`].
const BIN: Duration = Duration::from_millis(100);

fn everything() -> Options {
    Options {
        samples: Select::All,
        events: Select::All,
        segments: Select::All,
        max_segments: 1_000,
        ..Options::default()
    }
}

fn push(analyzer: &mut Analyzer, segment: TcpSegment) {
    analyzer.push(segment.ip.time, segment.ip.wire_len, &Decoded::Tcp(segment));
}

/// The bytes are a file: read, decoded, analysed with every series.
pub fn whole_capture(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let mut decoder = Decoder::new();
    let mut analyzer = Analyzer::new(everything());
    let mut packets = 0;
    while let Ok(Some(frame)) = reader.next_frame() {
        let decoded = decoder.decode(&frame);
        analyzer.push(frame.time, frame.wire_len, &decoded);
        packets += 1;
        if packets >= MAX_PACKETS || reader.offset() > MAX_UNPACKED {
            break;
        }
    }
    let analysis = analyzer.finish(None);
    assert_eq!(analysis.packets.all, packets);
    invariants::hold(&analysis, BIN);
}

/// Initial sequence numbers close below the wrap, so that a few segments cross it.
const BASE: [u32; 2] = [u32::MAX - 3_000, u32::MAX - 50];

/// The bytes are a conversation, eight per segment; see [`segment`].
pub fn scripted_segments(bytes: &[u8]) {
    let Some((&[options, near, far], script)) = bytes.split_first_chunk::<3>() else { return };
    let bin = Duration::from_millis([100, 1, 10, 5_000][usize::from(options) % 4]);
    let mut analyzer = Analyzer::new(Options { bin, ..everything() });
    let mut time = 1_700_000_000_000_000_000;
    let mut count = 0;
    for op in script.chunks_exact(8).take(2_000) {
        let s = segment(op, [near, far], count, &mut time);
        push(&mut analyzer, s);
        count += 1;
    }
    let analysis = analyzer.finish(None);
    assert_eq!(analysis.packets.tcp, u64::from(count));
    invariants::hold(&analysis, bin);
}

/// 0: direction (bit 7), flags (bits 0–3: index), SACK (4), timestamps (5), SYN options (6) · 1, 2:
/// sequence number as a signed offset from the base · 3: acknowledgement, in 64ths of its range ·
/// 4: payload · 5: window · 6: IP identification, ECN · 7: signed time step, exponential.
fn segment(op: &[u8], ttl: [u8; 2], count: u32, time: &mut u64) -> TcpSegment {
    const FLAGS: [u16; 16] = [
        flags::ACK,
        flags::ACK,
        flags::ACK | flags::PSH,
        flags::ACK,
        flags::SYN,
        flags::SYN | flags::ACK,
        flags::FIN | flags::ACK,
        flags::RST,
        flags::RST | flags::ACK,
        flags::ACK | flags::ECE,
        flags::ACK | flags::CWR,
        0,
        flags::FIN,
        flags::SYN | flags::FIN,
        flags::ACK | flags::URG,
        0x1ff,
    ];
    let d = usize::from(op[0] >> 7);
    let step = op[7] as i8;
    // 1 µs · 2^(|step| / 3), up to 2^42 µs (50 days); every 128th is the same instant.
    let by = if step == 0 { 0 } else { 1_000_u64 << (u32::from(step.unsigned_abs()) / 3) };
    *time = if step < 0 { time.saturating_sub(by / 8) } else { time.saturating_add(by) };
    let payload = match op[4] {
        n @ 0..=127 => u32::from(n),
        n @ 128..=191 => u32::from(n - 127) * 100,
        n @ 192..=247 => u32::from(n - 191) * 1_448,
        248..=251 => 0,
        _ => 1,
    };
    let seq = BASE[d].wrapping_add(i32::from(i16::from_be_bytes([op[1], op[2]])) as u32);
    let ack = BASE[1 - d].wrapping_add((i32::from(op[3] as i8) * 96) as u32);
    let mut options = TcpOptions::default();
    if op[0] & 0x10 != 0 {
        options.sack_count = op[6] % 5;
        for (i, block) in options.sacks.iter_mut().enumerate() {
            let left = ack.wrapping_add((i32::from(op[5] as i8) * (i as i32 + 1) * 24) as u32);
            *block = (left, left.wrapping_add(u32::from(op[6]) * 16));
        }
    }
    if op[0] & 0x20 != 0 {
        options.timestamps = Some(((*time / 1_000_000) as u32, u32::from(op[5]) << 24 | count));
    }
    if op[0] & 0x40 != 0 {
        options.mss = Some(u16::from(op[5]) * 6);
        options.window_scale = Some(op[6] % 15);
        options.sack_permitted = op[6] & 1 == 0;
        options.mptcp = op[6] & 2 != 0;
    }
    let host = |d: usize| Addr::v4([10, 0, 0, d as u8 + 1]);
    let total_len = 40 + payload;
    TcpSegment {
        ip: Ip {
            time: Instant(*time),
            src: host(d),
            dst: host(1 - d),
            id: (op[6] & 0x80 == 0).then_some(u16::from(op[6])),
            ttl: ttl[d],
            ecn: op[6] % 4,
            total_len,
            wire_len: total_len + 14,
            interface: 0,
        },
        src_port: 1_000 + d as u16,
        dst_port: 1_001 - d as u16,
        seq,
        ack,
        flags: FLAGS[usize::from(op[0] & 15)],
        window: u16::from_be_bytes([op[5].saturating_sub(16), op[5]]),
        payload,
        maybe_padding: false,
        options,
    }
}
