//! What `flow::locate` must survive: captures of any content, and paths on which any packet is
//! lost, late, cut, renamed, joined or seen twice.
//!
//! The first byte says which: an even one, that the rest is the length of a first file, that file,
//! and a second one; an odd one, that it is a script of packets at up to four points.

use capture::write::Writer;
use flow::locate::{Located, Options, locate_bytes};
use units::{Duration, Instant};

const START: u64 = 1_700_000_000_000_000_000;
const RAW_IP: u16 = 101;

/// By the first byte.
pub fn any(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    if first & 1 == 0 { captures(rest) } else { script(usize::from(first >> 1), rest) }
}

/// Two bytes of length, then a file of that length, then another.
pub fn captures(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
    let (a, b) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
    let b = if b.is_empty() { a } else { b };
    for files in [[a.to_vec(), b.to_vec()], [b.to_vec(), a.to_vec()]] {
        if let Ok(located) = locate_bytes(&files, Options::default()) {
            hold(&located);
        }
    }
}

/// Eight bytes per packet: 0 which points see it (low nibble) and direction (bit 4), kind (bits 5
/// to 7) · 1, 2 sequence number · 3 payload · 4 time to the next · 5 delay between points · 6
/// TSval, ECN, window · 7 what is odd about it: joined with the next at one point, seen twice, cut,
/// renamed, clock of the last point stepped.
pub fn script(options: usize, bytes: &[u8]) {
    let points = 2 + options % 3;
    let mut files: Vec<Vec<(u64, Vec<u8>, u32)>> = vec![Vec::new(); points];
    let mut now = 0_u64;
    let mut step = 0_i64;
    for op in bytes.chunks_exact(8).take(3_000) {
        now += u64::from(op[4]) * u64::from(op[4]) * 10_000;
        if op[7] & 0x40 != 0 {
            step = i64::from(op[7] as i8) * 50_000_000;
        }
        let up = op[0] & 0x10 == 0;
        for p in 0..points {
            if op[0] >> p & 1 == 0 {
                continue;
            }
            let place = if up { p } else { points - 1 - p } as u64;
            let at = now + place * (1_000_000 + u64::from(op[5]) * 100_000);
            let renamed = op[7] & 0x20 != 0 && p > 0;
            let packet = packet(op, up, renamed, op[7] & 1 != 0 && p == 0);
            let at = if p + 1 == points { at.saturating_add_signed(step) } else { at };
            let len = packet.len() as u32;
            let kept = if op[7] & 2 != 0 && p > 0 { packet.len() / 2 } else { packet.len() };
            files[p].push((at, packet[..kept].to_vec(), len));
            if op[7] & 4 != 0 {
                files[p].push((at + 1_000, packet, len));
            }
        }
    }
    let captures: Vec<Vec<u8>> = files
        .into_iter()
        .map(|mut packets| {
            packets.sort_by_key(|p| p.0);
            let mut writer = Writer::new(Vec::new(), RAW_IP, &[""]).expect("memory");
            for (at, data, len) in packets {
                writer.write(Instant(START + at), &data, len).expect("memory");
            }
            writer.finish().expect("memory")
        })
        .collect();
    let bin = Duration::from_millis([100, 1, 10, 5_000][options / 3 % 4]);
    let one_clock = options & 0x40 != 0;
    if let Ok(located) = locate_bytes(&captures, Options { bin, one_clock, ..Options::default() }) {
        hold(&located);
    }
}

fn packet(op: &[u8], up: bool, renamed: bool, joined: bool) -> Vec<u8> {
    let (near, far) = ([10, 0, 0, if renamed { 99 } else { 1 }], [10, 0, 0, 2]);
    let (from, to) = if up { (near, far) } else { (far, near) };
    let payload = usize::from(op[3]) * if joined { 40 } else { 1 };
    let protocol = match op[0] >> 5 {
        0..=4 => 6,
        5 | 6 => 17,
        _ => 1,
    };
    let mut rest = Vec::new();
    match protocol {
        6 => {
            let flags = [0x10, 0x18, 0x02, 0x11, 0x04][usize::from(op[0] >> 5).min(4)];
            let ports = if up { [1_000_u16, 2_000] } else { [2_000, 1_000] };
            rest.extend(ports.iter().flat_map(|p| p.to_be_bytes()));
            rest.extend((u32::from(u16::from_be_bytes([op[1], op[2]])) << 8).to_be_bytes());
            rest.extend(u32::from(op[5]).to_be_bytes());
            rest.extend([0x80, flags, op[6], op[6], 0, 0, 0, 0, 1, 1, 8, 10]);
            rest.extend(u32::from(op[6] >> 3).to_be_bytes());
            rest.extend([0; 4]);
        }
        17 => {
            rest.extend([0, 9, 0, 9]);
            rest.extend((8 + payload as u16).to_be_bytes());
            rest.extend([0, 0]);
        }
        _ => rest.extend([8, 0, 0, 0, 0, 7, op[1], op[2]]),
    }
    rest.resize(rest.len() + payload, op[6]);
    let mut out = vec![0x45, op[6] & 3];
    out.extend((20 + rest.len() as u16).to_be_bytes());
    out.extend([0, op[6], 0x40, 0, 64 - u8::from(renamed), protocol, 0, 0]);
    out.extend(from);
    out.extend(to);
    out.extend(rest);
    out
}

fn hold(l: &Located) {
    let points = l.points.len();
    assert_eq!(l.clocks.len(), points - 1);
    assert_eq!(l.segments.len(), 2 * (points - 1) + if points > 2 { 2 } else { 0 });
    for s in &l.segments {
        assert!(s.share.is_none_or(|share| (0.0..=1.000_001).contains(&share)), "{s:?}");
        if let (Some(delay), Some(queue)) = (s.delay_ms, s.queue_ms) {
            assert!(
                delay.min <= delay.p50 && delay.p50 <= delay.p95 && delay.p95 <= delay.p99,
                "{s:?}"
            );
            assert!(
                delay.p99 <= delay.max && queue.min > -1e-6 && queue.count <= s.packets,
                "{s:?}"
            );
        }
    }
    let lost: u64 = l.segments.iter().map(|s| s.lost).sum();
    let drops: u64 = l.points.iter().map(|p| p.drops).sum();
    assert_eq!(lost + drops, l.losses.iter().map(|x| x.packets).sum::<u64>());
    let in_bins: u64 =
        l.delays.iter().filter(|d| !l.segments[d.segment].path).map(|d| d.packets + d.lost).sum();
    let in_rows: u64 = l.segments.iter().filter(|s| !s.path).map(|s| s.packets + s.lost).sum();
    assert_eq!(in_bins, in_rows);
}
