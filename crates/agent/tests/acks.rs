//! ACK-window rewriting, packet by packet, by the program in the kernel (BPF_PROG_TEST_RUN). Each
//! target window is the one that the Rust side computes from the same samples. Each rewritten field
//! is what that window means on the wire. A packet that is no complete segment of a known flow
//! passes unchanged.
//!
//! Needs root and BPF; elsewhere the tests say so and end.

use agent::kernel::layouts::DrwaLaw;
use agent::kernel::layouts::acks::{AcksConfig, Traced};
use algo::Rng;
use algo::rwnd::drwa::{Config, Drwa, Estimator, Form};
use algo::rwnd::{Cause, Sample, Setup, WindowControl};
use aya::Ebpf;
use aya::maps::Array;
use units::{Bytes, Duration, Instant};

#[allow(dead_code)] // another test asks for the time
mod acks_program;
mod packets;
mod skip;

use acks_program::{TRACED, configure, counters, kernel, set, through, traced};
use packets::{Ends, Segment};

const MSS: u64 = 1_400;
/// Windows below so many segments end where the law wants it.
const PAIRED_SEGMENTS: u32 = 8;
/// Bytes of the timestamps option, with its padding.
const TIMESTAMPS: u32 = 12;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

fn open(ends: &Ends, ebpf: &mut Ebpf, sides: &[Side; 2]) {
    for out in [true, false] {
        let side = usize::from(!out);
        let mut options = vec![2, 4, (MSS >> 8) as u8, MSS as u8];
        if let Some(scale) = ends.scales[side] {
            options.extend([1, 3, 3, scale]);
        }
        options.extend(ends.stamps(1, u32::from(!out)));
        let syn = Segment {
            out,
            flags: if out { SYN } else { SYN | ACK },
            seq: sides[side].next.wrapping_sub(1),
            ack: if out { 0 } else { sides[1 - side].next },
            window: 65_535,
            options: &options,
            payload: 0,
        };
        let packet = ends.packet(&syn);
        assert_eq!(through(ebpf, out, &packet).unwrap(), packet, "a SYN passes unchanged");
    }
}

/// What one end has sent and advertised, and which edge the program should have let pass.
#[derive(Clone, Copy, Debug)]
struct Side {
    next: u32,
    stamp: u32,
    /// Its own right edge.
    edge: u32,
    /// As it has to leave us; none before the first.
    advertised: Option<u32>,
    target: u32,
    /// An advertised edge inside a pair of segments was moved to the end of the pair.
    moved_on: bool,
}

fn any_law(rng: &mut Rng) -> Config {
    Config {
        form: if rng.below(2) == 0 { Form::Rate } else { Form::Paper },
        quick: rng.below(2) == 0,
        alpha: rng.below(16),
        lambda: (1 + rng.below(96)) as f64 / 16.0,
        min_window: 1 + rng.below(4),
        increment: rng.below(3),
        max: Bytes(65_536 + rng.below(1 << 24)),
        ..Config::default()
    }
}

/// The same law from the same samples; and how many windows there were.
fn compare(traced: &[Traced], up: bool, config: &Config) -> usize {
    let mut ours: Option<Drwa> = None;
    let mut windows = std::collections::BTreeSet::new();
    for (i, t) in traced.iter().enumerate().filter(|(_, t)| (t.up == 1) == up) {
        let estimator =
            if t.law.by_window == 1 { Estimator::Window } else { Estimator::Timestamps };
        let config = Config { estimator, ..config.clone() };
        let setup = Setup { mss: Bytes(MSS), timestamps: true };
        let mut expected = DrwaLaw::new(&config, MSS, true);
        expected.initial = t.law.initial;
        assert_eq!(t.law, expected, "the constants of sample {i}");
        if t.begins == 1 || ours.is_none() {
            ours = Some(Drwa::new(config, &setup));
        }
        let law = ours.as_mut().unwrap();
        if t.rtt_min_us < 30_000_000 {
            law.learn_rtt_min(Duration::from_micros(t.rtt_min_us));
        }
        let sample = Sample {
            cause: Cause::Arrived,
            received: Bytes(t.sample.received),
            copied: Bytes(t.sample.copied),
            right_edge: Bytes(t.sample.right_edge),
            rtt: (t.sample.rtt_us > 0).then(|| Duration::from_micros(t.sample.rtt_us)),
            ..Sample::default()
        };
        law.on_sample(Instant(t.now_ns), &sample);
        assert_eq!(law.window().0, t.window, "sample {i}: {t:?}");
        windows.insert(t.window);
    }
    windows.len()
}

#[test]
fn windows_of_any_flow_are_those_of_the_rust_law_and_never_raised_nor_taken_back() {
    let Some(mut ebpf) = kernel() else { return };
    let mut rng = Rng::new(3, "acks");
    let (mut windows, mut rewritten, mut paired) = (0, 0, 0);
    for case in 0..24_u16 {
        // One law for both: floor and increment are one setting for a device.
        let law = any_law(&mut rng);
        configure(&mut ebpf, &law, &law);
        let mut offer = || (rng.below(4) > 0).then(|| rng.below(16) as u8);
        let ends = Ends {
            scales: [offer(), offer()],
            v6: case % 2 == 1,
            vlans: usize::from(case / 2 % 3),
            stamped: case % 5 > 0,
            port: 1_000 + case,
        };
        let mut side = || Side {
            // Some wrap.
            next: (u32::MAX - 100_000).wrapping_add(rng.below(200_000) as u32),
            stamp: rng.below(1 << 32) as u32,
            edge: 0,
            advertised: None,
            target: 0,
            moved_on: false,
        };
        let mut sides = [side(), side()];
        open(&ends, &mut ebpf, &sides);
        sides[0].edge = sides[1].next.wrapping_add(65_535);
        sides[1].edge = sides[0].next.wrapping_add(65_535);
        for _ in 0..900 {
            if rng.below(4) == 0 {
                std::thread::sleep(std::time::Duration::from_micros(rng.below(400)));
            }
            let out = rng.below(2) == 0;
            let (own, other) = (usize::from(!out), usize::from(out));
            // No more than was advertised.
            let room =
                sides[other].advertised.unwrap_or(sides[other].edge).wrapping_sub(sides[own].next);
            let payload = if rng.below(3) > 0 { rng.below(MSS) as usize } else { 0 };
            let payload = payload.min(if room > 1 << 30 { 0 } else { room as usize });
            // Windows as a receiver may advertise them: its edge is never retracted.
            let ack = sides[other].next;
            let new_edge = ack.wrapping_add(rng.below(1 << 20) as u32);
            if (new_edge.wrapping_sub(sides[own].edge) as i32) > 0 {
                sides[own].edge = new_edge;
            }
            let scale = ends.scale(own);
            let window = (u64::from(sides[own].edge.wrapping_sub(ack)) + (1 << scale) - 1) >> scale;
            let window = window.min(65_535) as u16;
            let reached = ack.wrapping_add(u32::from(window) << scale);
            if (reached.wrapping_sub(sides[own].edge) as i32) < 0 {
                sides[own].edge = reached;
            }
            sides[own].stamp = sides[own].stamp.wrapping_add(rng.below(2) as u32);
            let stamps = ends.stamps(sides[own].stamp, sides[other].stamp);
            let segment = Segment {
                out,
                flags: ACK,
                seq: sides[own].next,
                ack,
                window,
                options: &stamps,
                payload,
            };
            let packet = ends.packet(&segment);
            assert!(ends.sound(&packet, out));
            sides[own].next = sides[own].next.wrapping_add(payload as u32);
            let samples = traced(&ebpf).len();
            let after = through(&mut ebpf, out, &packet).unwrap();
            // A sample and the window that it changes may come with the same packet.
            for t in &traced(&ebpf)[samples..] {
                let receiver = usize::from(t.up == 1);
                sides[receiver].target = t.target;
            }
            // Linux, which sends an upload, sends whole segments in pairs.
            let upload = (!out).then(|| {
                (sides[other].next, MSS as u32 - if ends.stamped { TIMESTAMPS } else { 0 })
            });
            let field = expected(&mut sides[own], ack, window, scale, upload);
            let segments = upload.map_or(0, |(_, segment)| (u32::from(field) << scale) / segment);
            paired += usize::from(field < window && segments >= PAIRED_SEGMENTS);
            assert_eq!(ends.window(&after), field, "case {case}: {ends:?} {:?}", sides[own]);
            assert!(field <= window, "never raised");
            assert!(ends.sound(&after, out), "case {case}: the checksum");
            let at = ends.tcp() + 14;
            assert!(
                (0..packet.len()).all(|i| packet[i] == after[i] || (at..at + 4).contains(&i)),
                "nothing else"
            );
        }
        let all = traced(&ebpf);
        assert!(all.len() < TRACED as usize);
        windows += compare(&all, false, &law) + compare(&all, true, &law);
        rewritten = counters(&ebpf);
    }
    assert!(
        windows > 400 && rewritten > 1_000,
        "the laws move and are applied: {windows} {rewritten}"
    );
    assert!(paired > 100, "windows that end with a pair of segments: {paired}");
}

/// The field that has to leave: the target, never above what its end advertised, never retracting
/// an edge. `upload`: what its sender has sent, and the payload of its segments.
fn expected(side: &mut Side, ack: u32, window: u16, scale: u32, upload: Option<(u32, u32)>) -> u16 {
    let advertised = u32::from(window) << scale;
    let (mut field, mut reach) = (u32::from(window), advertised);
    if let Some(edge) = side.advertised
        && side.target > 0
        && advertised > side.target
    {
        let least = edge.wrapping_sub(ack);
        let down = side.target >> scale;
        let lowered = if (down << scale) < side.target - side.target / 4 { down + 1 } else { down };
        let held = (least as i32) > 0 && least > lowered << scale;
        let mut rounded = if held { least.div_ceil(1 << scale) } else { lowered };
        if let Some((sent, segment)) = upload
            && rounded << scale >= PAIRED_SEGMENTS * segment
        {
            let wanted = rounded << scale;
            let least = if (least as i32) > 0 { least } else { 0 };
            let in_flight = sent.wrapping_sub(ack);
            rounded = paired(side, wanted, least, held, in_flight, segment, scale) >> scale;
        }
        if rounded << scale < advertised && rounded <= 0xffff {
            (field, reach) = (rounded, rounded << scale);
        }
    }
    let edge = ack.wrapping_add(reach);
    if side.advertised.is_none_or(|before| (edge.wrapping_sub(before) as i32) > 0) {
        side.advertised = Some(edge);
    }
    field as u16
}

/// A window of `wanted` bytes that ends with a pair of whole segments, or less than one behind it, as seen from the
/// highest byte sent. Never below `least`, the advertised edge; where that edge is the limit (`held`), it moves on to the
/// end of the pair, once.
fn paired(
    side: &mut Side,
    wanted: u32,
    least: u32,
    held: bool,
    in_flight: u32,
    segment: u32,
    scale: u32,
) -> u32 {
    let up = |bytes: u32| bytes.div_ceil(1 << scale) << scale;
    // What the sender may still send, and how much of it lies behind its last pair.
    let room = |window: u32| i64::from(window) - i64::from(in_flight as i32);
    let behind = |window: u32| room(window) % i64::from(2 * segment);
    if !held {
        side.moved_on = false;
    }
    let inside_second = behind(wanted) >= i64::from(segment);
    if room(wanted) < i64::from(segment) || 1 << scale > segment || !inside_second {
        return wanted;
    }
    let lower = up((wanted - behind(wanted) as u32).max(least));
    if room(lower) < 0 || behind(lower) < i64::from(segment) {
        return lower;
    }
    if room(lower) >= i64::from(2 * segment) || side.moved_on {
        return wanted;
    }
    side.moved_on = true;
    up(wanted + 2 * segment - behind(wanted) as u32)
}

/// A flow whose windows are rewritten, with a law that makes them small.
fn held(ebpf: &mut Ebpf, ends: &Ends) -> [Side; 2] {
    let law =
        Config { lambda: 0.0625, min_window: 1, alpha: 0, form: Form::Rate, ..Config::default() };
    configure(ebpf, &law, &law);
    let side =
        Side { next: 1_000_000, stamp: 77, edge: 0, advertised: None, target: 0, moved_on: false };
    let mut sides = [side; 2];
    open(ends, ebpf, &sides);
    for _ in 0..200 {
        std::thread::sleep(std::time::Duration::from_micros(50));
        let packet = data(ends, &mut sides);
        through(ebpf, false, &packet).unwrap();
        let packet = answer(ends, &mut sides);
        through(ebpf, true, &packet).unwrap();
    }
    sides
}

/// A segment from the device's inner (`out`) or outer side, with an ACK of all but `unacknowledged` bytes.
fn segment(
    ends: &Ends,
    sides: &mut [Side; 2],
    out: bool,
    payload: u32,
    unacknowledged: u32,
) -> Vec<u8> {
    let (from, to) = if out { (0, 1) } else { (1, 0) };
    sides[from].stamp += 1;
    let options = ends.stamps(sides[from].stamp, sides[to].stamp);
    let (seq, ack) = (sides[from].next, sides[to].next.wrapping_sub(unacknowledged));
    sides[from].next = seq.wrapping_add(payload);
    ends.packet(&Segment {
        out,
        flags: ACK,
        seq,
        ack,
        window: 60_000,
        options: &options,
        payload: payload as usize,
    })
}

/// 1,000 bytes of a download.
fn data(ends: &Ends, sides: &mut [Side; 2]) -> Vec<u8> {
    segment(ends, sides, false, 1_000, 0)
}

/// The ACK of a download.
fn answer(ends: &Ends, sides: &mut [Side; 2]) -> Vec<u8> {
    segment(ends, sides, true, 0, 0)
}

const PLAIN: Ends =
    Ends { v6: false, vlans: 0, port: 999, scales: [Some(7), Some(7)], stamped: true };

#[test]
fn without_a_lease_windows_pass_and_edges_advertised_meanwhile_are_not_retracted() {
    let Some(mut ebpf) = kernel() else { return };
    let mut sides = held(&mut ebpf, &PLAIN);
    let packet = answer(&PLAIN, &mut sides);
    assert!(PLAIN.window(&through(&mut ebpf, true, &packet).unwrap()) < 60_000);
    let place: Array<_, AcksConfig> = Array::try_from(ebpf.map("config").unwrap()).unwrap();
    let config = place.get(&0, 0).unwrap();
    set(&mut ebpf, AcksConfig { lease_until_ns: 1, ..config });
    assert_eq!(through(&mut ebpf, true, &packet).unwrap(), packet);
    // The full window is advertised now; a new lease is a new generation and begins with what it
    // sees.
    set(&mut ebpf, AcksConfig { generation: 2, ..config });
    for _ in 0..60 {
        let packet = data(&PLAIN, &mut sides);
        through(&mut ebpf, false, &packet).unwrap();
        let packet = answer(&PLAIN, &mut sides);
        let after = through(&mut ebpf, true, &packet).unwrap();
        let edge = sides[1].next.wrapping_add(u32::from(PLAIN.window(&after)) << 7);
        assert!(
            edge.wrapping_sub(sides[0].edge) as i32 >= 0 || sides[0].edge == 0,
            "the edge goes back"
        );
        sides[0].edge = edge;
    }
}

#[test]
fn a_lifted_flow_passes_and_comes_back_without_taking_an_edge_back() {
    let Some(mut ebpf) = kernel() else { return };
    let mut sides = held(&mut ebpf, &PLAIN);
    let place: Array<_, AcksConfig> = Array::try_from(ebpf.map("config").unwrap()).unwrap();
    let config = place.get(&0, 0).unwrap();
    set(&mut ebpf, AcksConfig { lifted: 3, ..config });
    let packet = answer(&PLAIN, &mut sides);
    assert_eq!(through(&mut ebpf, true, &packet).unwrap(), packet);
    set(&mut ebpf, config);
    let mut edge = sides[1].next.wrapping_add(60_000 << 7);
    for _ in 0..100 {
        let packet = data(&PLAIN, &mut sides);
        through(&mut ebpf, false, &packet).unwrap();
        let packet = answer(&PLAIN, &mut sides);
        let after = through(&mut ebpf, true, &packet).unwrap();
        assert!(PLAIN.window(&after) < 60_000, "held again");
        let now = sides[1].next.wrapping_add(u32::from(PLAIN.window(&after)) << 7);
        assert!(now.wrapping_sub(edge) as i32 >= 0);
        edge = now;
    }
}

#[test]
fn signed_segments_and_those_of_mptcp_are_never_touched() {
    let Some(mut ebpf) = kernel() else { return };
    // RFC 2385, RFC 5925, RFC 8684.
    for (kind, port) in [(19, 2_001), (29, 2_002), (30, 2_003)] {
        let ends = Ends { port, ..PLAIN };
        let mut sides = held(&mut ebpf, &ends);
        let packet = answer(&ends, &mut sides);
        assert_ne!(through(&mut ebpf, true, &packet).unwrap(), packet, "it is held");
        let options = [&[kind, 18][..], &[0; 16]].concat();
        let (seq, ack) = (sides[0].next, sides[1].next);
        let segment = Segment {
            out: true,
            flags: ACK,
            seq,
            ack,
            window: 60_000,
            options: &options,
            payload: 0,
        };
        let signed = ends.packet(&segment);
        assert_eq!(through(&mut ebpf, true, &signed).unwrap(), signed);
        let packet = answer(&ends, &mut sides);
        assert_eq!(through(&mut ebpf, true, &packet).unwrap(), packet, "nor is anything after it");
    }
}

#[test]
fn a_flow_that_was_not_seen_to_begin_is_left_alone_and_one_that_ended_is_forgotten() {
    let Some(mut ebpf) = kernel() else { return };
    let mut sides = held(&mut ebpf, &PLAIN);
    let other = Ends { port: 3_000, ..PLAIN };
    for _ in 0..100 {
        let packet = data(&other, &mut sides);
        assert_eq!(through(&mut ebpf, false, &packet).unwrap(), packet);
        let packet = answer(&other, &mut sides);
        assert_eq!(through(&mut ebpf, true, &packet).unwrap(), packet);
    }
    for end in [&[RST][..], &[FIN | ACK, FIN | ACK]] {
        let mut sides = held(&mut ebpf, &PLAIN);
        for (flags, out) in end.iter().zip([true, false]) {
            let (own, far) = (usize::from(!out), usize::from(out));
            let (seq, ack) = (sides[own].next, sides[far].next);
            let segment =
                Segment { out, flags: *flags, seq, ack, window: 60_000, options: &[], payload: 0 };
            through(&mut ebpf, out, &PLAIN.packet(&segment)).unwrap();
        }
        let packet = answer(&PLAIN, &mut sides);
        assert_eq!(through(&mut ebpf, true, &packet).unwrap(), packet);
    }
}

/// Ways to break a segment, each of which has to leave it alone.
fn broken(ends: &Ends, packet: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut p = packet.to_vec();
    let (ip, tcp) = (14 + 4 * ends.vlans, ends.tcp());
    match rng.below(9) {
        // Cut anywhere in its headers or options.
        0 => p.truncate(14 + rng.below((tcp + 32 - 14) as u64) as usize),
        // Header lengths of TCP: too short, or beyond the packet.
        1 => p[tcp + 12] = (rng.below(5) << 4) as u8,
        2 => {
            p.truncate(tcp + 32);
            p[tcp + 12] = 0xf0;
        }
        // Options whose lengths lead out, or nowhere.
        3 => p[tcp + 20..tcp + 24].copy_from_slice(&[
            8,
            [0, 1, 13, 255][rng.below(4) as usize],
            0,
            0,
        ]),
        4 => p[tcp + 20..tcp + 32].copy_from_slice(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 200]),
        // Another protocol above, below, or none that exists.
        5 if ends.v6 => p[ip + 6] = [17, 44, 43, 51, 59][rng.below(5) as usize],
        5 => p[ip + 9] = [17, 1, 47, 50][rng.below(4) as usize],
        6 => p[ip] = (p[ip] & 0xf) | (rng.below(4) << 4) as u8,
        // Cut by IP: fragments (RFC 791), or a length beyond the packet.
        7 if ends.v6 => p[ip + 4..ip + 6].copy_from_slice(&0xfff0_u16.to_be_bytes()),
        7 if rng.below(2) == 0 => p[ip + 6] = 0x20,
        7 => p[ip + 7] = 1 + rng.below(255) as u8,
        _ if ends.v6 => p[ip + 6] = 44,
        _ => p[ip + 2..ip + 4].copy_from_slice(&0xfff0_u16.to_be_bytes()),
    }
    p
}

#[test]
fn malformed_packets_pass_as_they_came() {
    let Some(mut ebpf) = kernel() else { return };
    let mut rng = Rng::new(9, "malformed");
    let mut passed = 0;
    for case in 0..6_u16 {
        let ends =
            Ends { v6: case % 2 == 1, vlans: usize::from(case / 2), port: 4_000 + case, ..PLAIN };
        let mut sides = held(&mut ebpf, &ends);
        for round in 0..400 {
            let out = round % 2 == 0;
            let packet = if out { answer(&ends, &mut sides) } else { data(&ends, &mut sides) };
            let bad = broken(&ends, &packet, &mut rng);
            // Not every rubbish is taken by BPF_PROG_TEST_RUN.
            if let Some(after) = through(&mut ebpf, out, &bad) {
                assert_eq!(after, bad, "case {case}, round {round}");
                passed += 1;
            }
        }
    }
    assert!(passed > 1_500, "{passed}");
}

#[test]
fn any_bytes_change_nothing_but_a_window_that_becomes_smaller() {
    let Some(mut ebpf) = kernel() else { return };
    let mut rng = Rng::new(11, "any");
    let mut ends = PLAIN;
    let mut sides = held(&mut ebpf, &ends);
    let (mut lower, mut same) = (0, 0);
    for round in 0..4_000 {
        // Some of it is a RST, or an option after which nothing is touched.
        if round % 40 == 0 {
            ends.port += 1;
            sides = held(&mut ebpf, &ends);
        }
        let out = rng.below(2) == 0;
        let mut packet = if out { answer(&ends, &mut sides) } else { data(&ends, &mut sides) };
        if round % 50 == 0 {
            packet = (0..14 + rng.below(200)).map(|_| rng.below(256) as u8).collect();
        }
        for _ in 0..rng.below(4) {
            let at = (14 + rng.below(54)).min(packet.len() as u64 - 1) as usize;
            packet[at] = rng.below(256) as u8;
        }
        let Some(after) = through(&mut ebpf, out, &packet) else { continue };
        assert_eq!(after.len(), packet.len());
        let changed: Vec<usize> = (0..packet.len()).filter(|i| packet[*i] != after[*i]).collect();
        if changed.is_empty() {
            same += 1;
            continue;
        }
        lower += 1;
        // IP options move the header; window and checksum stay within four bytes.
        let first = changed[0];
        assert!(changed.iter().all(|i| i - first < 4), "round {round}: {changed:?}");
        let word = |p: &[u8], at: usize| u16::from_be_bytes([p[at], p[at + 1]]);
        let at = first - first % 2;
        assert!(word(&after, at) < word(&packet, at), "round {round}: a window was raised");
    }
    assert!(lower > 300 && same > 200, "{lower} {same}");
}

/// Of twenty packets and their acknowledgments.
fn samples_of_a_download(ebpf: &mut Ebpf, sides: &mut [Side; 2]) -> usize {
    let before = traced(ebpf).len();
    for _ in 0..20 {
        let packet = data(&PLAIN, sides);
        through(ebpf, false, &packet).unwrap();
        let packet = answer(&PLAIN, sides);
        through(ebpf, true, &packet).unwrap();
    }
    traced(ebpf).len() - before
}

#[test]
fn a_download_behind_a_closed_upload_is_held_on() {
    let Some(mut ebpf) = kernel() else { return };
    let mut sides = held(&mut ebpf, &PLAIN);
    let open = samples_of_a_download(&mut ebpf, &mut sides);
    // RFC 9293 section 3.6: a FIN takes a number, and the other direction goes on.
    sides[0].stamp += 1;
    let options = PLAIN.stamps(sides[0].stamp, sides[1].stamp);
    let (seq, ack) = (sides[0].next, sides[1].next);
    let fin = Segment {
        out: true,
        flags: FIN | ACK,
        seq,
        ack,
        window: 60_000,
        options: &options,
        payload: 0,
    };
    through(&mut ebpf, true, &PLAIN.packet(&fin)).unwrap();
    sides[0].next = sides[0].next.wrapping_add(1);
    assert_eq!(samples_of_a_download(&mut ebpf, &mut sides), open);
}

/// A packet of an upload, and its acknowledgment: all data but the last packets.
fn uploaded(ebpf: &mut Ebpf, sides: &mut [Side; 2], unacknowledged: u32) {
    let packet = segment(&PLAIN, sides, true, 1_000, 0);
    through(ebpf, true, &packet).unwrap();
    let packet = segment(&PLAIN, sides, false, 0, unacknowledged * 1_000);
    through(ebpf, false, &packet).unwrap();
}

#[test]
fn an_upload_that_had_nothing_to_send_begins_again_and_one_in_an_outage_keeps_its_window() {
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);
    for left in [0, 1] {
        let Some(mut ebpf) = kernel() else { return };
        let law = Config::default();
        let config = configure(&mut ebpf, &law, &law);
        set(&mut ebpf, AcksConfig { pause_ns: PAUSE.as_nanos() as u64, ..config });
        let side = Side {
            next: 1_000_000,
            stamp: 77,
            edge: 0,
            advertised: None,
            target: 0,
            moved_on: false,
        };
        let mut sides = [side; 2];
        open(&PLAIN, &mut ebpf, &sides);
        (0..60).for_each(|_| uploaded(&mut ebpf, &mut sides, left));
        let before = traced(&ebpf).len();
        assert!(before > 0, "the law has begun");
        std::thread::sleep(PAUSE * 2);
        (0..60).for_each(|_| uploaded(&mut ebpf, &mut sides, left));
        let begins = traced(&ebpf)[before..].iter().filter(|sample| sample.begins == 1).count();
        assert_eq!(begins > 0, left == 0, "{left} packets unacknowledged in the silence");
    }
}
