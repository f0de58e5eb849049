//! Captures made by hand of a path with two or three points, and what `locate` must say of them.

use capture::write::Writer;
use flow::locate::{LocateError, Located, LossKind, Options, SegmentRow, locate_bytes};
use units::{Duration, Instant};

const START: u64 = 1_700_000_000_000_000_000;
const MS: u64 = 1_000_000;
const A: [u8; 4] = [192, 168, 1, 2];
const B: [u8; 4] = [198, 51, 100, 7];
const ACK: u8 = 0x10;
const SYN: u8 = 0x02;

/// A capture being written: raw IP, packets in any order of time.
#[derive(Default, Clone)]
struct Point {
    packets: Vec<(u64, Vec<u8>, u32)>,
}

impl Point {
    fn add(&mut self, at: u64, packet: &[u8]) {
        self.packets.push((at, packet.to_vec(), packet.len() as u32));
    }

    fn bytes(&self) -> Vec<u8> {
        let mut sorted = self.packets.clone();
        sorted.sort_by_key(|p| p.0);
        let mut writer = Writer::new(Vec::new(), 101, &["point"]).expect("memory");
        for (at, data, len) in &sorted {
            writer.write(Instant(START + at), data, *len).expect("memory");
        }
        writer.finish().expect("memory")
    }

    /// The same point, with its times changed by another clock.
    fn clock(&self, change: impl Fn(u64) -> u64) -> Point {
        Point {
            packets: self.packets.iter().map(|(t, d, n)| (change(*t), d.clone(), *n)).collect(),
        }
    }

    /// Cut to so many bytes each.
    fn snap(&self, kept: usize) -> Point {
        let cut = |d: &Vec<u8>| d[..d.len().min(kept)].to_vec();
        Point { packets: self.packets.iter().map(|(t, d, n)| (*t, cut(d), *n)).collect() }
    }
}

#[derive(Clone, Copy)]
struct Tcp {
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
    seq: u32,
    ack: u32,
    flags: u8,
    stamps: Option<(u32, u32)>,
    mss: Option<u16>,
    window: u16,
    len: usize,
    id: u16,
    ttl: u8,
    ecn: u8,
}

const UP: Tcp = Tcp {
    from: (A, 40_000),
    to: (B, 443),
    seq: 1_000,
    ack: 1,
    flags: ACK,
    stamps: None,
    mss: None,
    window: 500,
    len: 0,
    id: 0,
    ttl: 64,
    ecn: 0,
};
const DOWN: Tcp = Tcp { from: (B, 443), to: (A, 40_000), seq: 1, ack: 1_000, ..UP };

fn ip(protocol: u8, from: [u8; 4], to: [u8; 4], id: u16, ttl: u8, ecn: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, ecn];
    out.extend((20 + rest.len() as u16).to_be_bytes());
    out.extend(id.to_be_bytes());
    out.extend([0x40, 0, ttl, protocol, 0, 0]);
    out.extend(from);
    out.extend(to);
    out.extend(rest);
    out
}

fn tcp(t: Tcp) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(mss) = t.mss {
        options.extend([2, 4]);
        options.extend(mss.to_be_bytes());
    }
    if let Some((val, ecr)) = t.stamps {
        options.extend([1, 1, 8, 10]);
        options.extend(val.to_be_bytes());
        options.extend(ecr.to_be_bytes());
    }
    let mut out = Vec::new();
    out.extend(t.from.1.to_be_bytes());
    out.extend(t.to.1.to_be_bytes());
    out.extend(t.seq.to_be_bytes());
    out.extend(t.ack.to_be_bytes());
    out.extend([((20 + options.len()) * 4) as u8, t.flags]);
    out.extend(t.window.to_be_bytes());
    out.extend([0; 4]);
    out.extend(options);
    out.resize(out.len() + t.len, 0x55);
    ip(6, t.from.0, t.to.0, t.id, t.ttl, t.ecn, &out)
}

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut out = from.1.to_be_bytes().to_vec();
    out.extend(to.1.to_be_bytes());
    out.extend((8 + payload.len() as u16).to_be_bytes());
    out.extend([0, 0]);
    out.extend(payload);
    ip(17, from.0, to.0, 0, 64, 0, &out)
}

fn echo(from: [u8; 4], to: [u8; 4], kind: u8, id: u16, number: u16) -> Vec<u8> {
    let mut out = vec![kind, 0, 0, 0];
    out.extend(id.to_be_bytes());
    out.extend(number.to_be_bytes());
    out.extend([7; 8]);
    ip(1, from, to, 0, 64, 0, &out)
}

fn located(points: &[&Point]) -> Located {
    let captures: Vec<Vec<u8>> = points.iter().map(|p| p.bytes()).collect();
    locate_bytes(&captures, Options::default()).expect("captures of one path")
}

#[track_caller]
fn segment(located: &Located, from: usize, to: usize) -> &SegmentRow {
    let found = located.segments.iter().find(|s| s.from == from && s.to == to && !s.path);
    found.expect("a path segment")
}

#[track_caller]
fn near(value: f64, wanted: f64, tolerance: f64) {
    assert!((value - wanted).abs() <= tolerance, "{value} is not {wanted} ± {tolerance}");
}

/// Packets each way every 10 ms for `count` times; the far point sees those up after `up(i)`, and its own `down` ms
/// before the near one.
fn talk(count: u64, up: impl Fn(u64) -> Option<u64>, down: u64) -> (Point, Point) {
    let (mut a, mut b) = (Point::default(), Point::default());
    for i in 0..count {
        let at = i * 10 * MS;
        let number = i as u32;
        let data = tcp(Tcp {
            seq: 1_000 + number * 1_000,
            stamps: Some((number * 10, 5)),
            len: 1_000,
            ..UP
        });
        a.add(at, &data);
        if let Some(delay) = up(i) {
            b.add(at + delay, &data);
        }
        let back = tcp(Tcp { ack: 1_000 + number * 1_000, stamps: Some((number * 10, 6)), ..DOWN });
        b.add(at + 3 * MS, &back);
        a.add(at + 3 * MS + down, &back);
    }
    (a, b)
}

#[test]
fn a_queue_is_found_though_the_far_clock_is_off_and_drifts() {
    let queue = |i: u64| if (200..400).contains(&i) { 80 * MS } else { 0 };
    let (a, b) = talk(600, |i| Some(10 * MS + queue(i)), 10 * MS);
    let far = b.clock(|t| t + 3_700 * MS + t / 25_000);
    let l = located(&[&a, &far]);
    let clock = &l.clocks[0];
    near(clock.offset_ms, 3_700.0, 0.2);
    near(clock.drift_ppm, 40.0, 3.0);
    near(clock.uncertainty_ms.expect("both directions"), 10.0, 0.2);
    assert!(clock.steps.is_empty() && !clock.one_clock);
    let queue = segment(&l, 0, 1).queue_ms.expect("delays");
    near(queue.p50, 0.0, 0.3);
    near(queue.p95, 80.0, 0.3);
    near(segment(&l, 1, 0).queue_ms.expect("delays").max, 0.0, 0.3);
}

#[test]
fn captures_of_one_machine_read_one_clock() {
    let (a, b) = talk(600, |_| Some(10 * MS), 10 * MS);
    let l = located(&[&a, &b]);
    assert!(l.clocks[0].one_clock);
    near(l.clocks[0].offset_ms, 0.0, 0.01);
    near(l.clocks[0].drift_ppm, 0.0, 0.01);
    // With this option, delays stay as they are even where they are not alike.
    let (a, b) = talk(600, |_| Some(30 * MS), 10 * MS);
    let options = Options { one_clock: true, ..Options::default() };
    let l = locate_bytes(&[a.bytes(), b.bytes()], options).expect("one path");
    near(segment(&l, 0, 1).delay_ms.expect("delays").p50, 30.0, 0.01);
    near(segment(&l, 1, 0).delay_ms.expect("delays").p50, 10.0, 0.01);
}

#[test]
fn a_step_of_a_clock_is_found_and_makes_no_queue() {
    let (a, b) = talk(2_000, |_| Some(10 * MS), 10 * MS);
    let far = b.clock(|t| if t < 9_000 * MS { t + 500 * MS } else { t + 650 * MS });
    let l = located(&[&a, &far]);
    assert_eq!(l.clocks[0].steps.len(), 1, "{:?}", l.clocks);
    near(l.clocks[0].steps[0].0, 9.0, 0.2);
    near(l.clocks[0].steps[0].1, 150.0, 0.2);
    near(segment(&l, 0, 1).queue_ms.expect("delays").max, 0.0, 0.3);
}

#[test]
fn losses_are_counted_where_they_happened_and_what_a_capture_missed_is_its_own() {
    let (a, mut b) = talk(600, |i| (i % 50 != 20).then_some(10 * MS), 10 * MS);
    let mut c = b.clone().clock(|t| t);
    c.packets.retain(|(t, d, _)| d.len() < 1_000 || !(4_000 * MS..4_100 * MS).contains(t));
    // Of the point in the middle five packets are missing that the last one has.
    let missing: Vec<Vec<u8>> = b
        .packets
        .iter()
        .filter(|p| p.1.len() > 1_000)
        .skip(100)
        .take(5)
        .map(|p| p.1.clone())
        .collect();
    b.packets.retain(|(_, d, _)| !missing.contains(d));
    let c = Point { packets: c.packets.iter().map(|(t, d, n)| (t + MS, d.clone(), *n)).collect() };
    let l = located(&[&a, &b, &c]);
    let first = segment(&l, 0, 1);
    assert_eq!((first.lost, first.lost_bytes), (12, 12 * 1_052));
    assert_eq!(segment(&l, 1, 2).lost, 10);
    assert_eq!(l.points.iter().map(|p| p.drops).collect::<Vec<_>>(), [0, 5, 0]);
    assert_eq!(l.losses.iter().filter(|x| x.kind == LossKind::Capture).count(), 5);
    let lost: Vec<f64> = l
        .losses
        .iter()
        .filter(|x| x.place == 0 && x.kind == LossKind::Segment)
        .map(|x| l.loss_s(x))
        .collect();
    near(lost[0], 0.2, 0.001);
    near(lost[1], 0.7, 0.001);
}

#[test]
fn the_order_of_the_points_comes_from_the_delays_when_it_is_not_given() {
    let (a, c) = talk(300, |_| Some(20 * MS), 20 * MS);
    let mut b = Point::default();
    for (t, d, _) in &a.packets {
        let up = d[12..16] == A;
        b.add(if up { t + 5 * MS } else { t - 5 * MS }, d);
    }
    let far = c.clock(|t| t + 60_000 * MS);
    let l = located(&[&a, &far, &b]);
    assert_eq!(
        l.points.iter().map(|p| p.given).collect::<Vec<_>>(),
        [2, 1].iter().fold(vec![0], |mut v, g| {
            v.push(*g);
            v
        })
    );
    assert_eq!(l.order_by.name(), "delays");
    near(l.clocks[0].uncertainty_ms.expect("both"), 5.0, 0.1);
    near(l.clocks[1].uncertainty_ms.expect("both"), 15.0, 0.1);
    // As given from the other end.
    let l = located(&[&far, &b, &a]);
    assert_eq!(l.order_by.name(), "given");
    assert!(!segment(&l, 0, 1).path && segment(&l, 2, 1).packets == 300);
}

#[test]
fn a_segment_of_64_kb_is_the_many_that_it_becomes_and_one_of_them_is_lost() {
    let (mut sender, mut wire, mut receiver) =
        (Point::default(), Point::default(), Point::default());
    let syn = Tcp { seq: 999, flags: SYN, mss: Some(1_460), stamps: Some((1, 0)), ..UP };
    let open = [
        tcp(syn),
        tcp(Tcp {
            seq: 0,
            ack: 1_000,
            flags: SYN | ACK,
            mss: Some(1_460),
            stamps: Some((2, 1)),
            ..DOWN
        }),
    ];
    for (i, p) in open.iter().enumerate() {
        let order = if i == 0 { [0, 10, 20] } else { [60, 50, 40] };
        for (point, t) in [&mut sender, &mut wire, &mut receiver].into_iter().zip(order) {
            point.add(t * MS, p);
        }
    }
    for burst in 0..50_u32 {
        let at = 100 * MS + u64::from(burst) * 100 * MS;
        let stamps = Some((100 + burst * 100, 2));
        let seq = 1_000 + burst * 45 * 1_448;
        sender.add(at, &tcp(Tcp { seq, len: 45 * 1_448, stamps, id: 7, ..UP }));
        for k in 0..45_u32 {
            let piece = Tcp { seq: seq + k * 1_448, len: 1_448, stamps, id: 7 + k as u16, ..UP };
            wire.add(at + 10 * MS + u64::from(k) * MS / 10, &tcp(piece));
        }
        // GRO joins 0..20 and 21..45; the one between was lost, and comes again 40 ms later.
        let joined = |from: u32, count: usize| Tcp {
            seq: seq + from * 1_448,
            len: count * 1_448,
            stamps,
            ..UP
        };
        receiver.add(at + 22 * MS, &tcp(joined(0, 20)));
        receiver.add(at + 25 * MS, &tcp(joined(21, 24)));
        let again =
            Tcp { seq: seq + 20 * 1_448, len: 1_448, stamps: Some((140 + burst * 100, 2)), ..UP };
        for (point, t) in [(&mut sender, 40), (&mut wire, 50), (&mut receiver, 60)] {
            point.add(at + t * MS, &tcp(again));
        }
        let ack = tcp(Tcp { ack: seq + 45 * 1_448, stamps: Some((200 + burst * 100, 9)), ..DOWN });
        for (point, t) in [(&mut receiver, 62), (&mut wire, 72), (&mut sender, 82)] {
            point.add(at + t * MS, &ack);
        }
    }
    let l = located(&[&sender, &wire, &receiver]);
    let (near_, far) = (segment(&l, 0, 1), segment(&l, 1, 2));
    assert_eq!((near_.lost, near_.packets), (0, 1 + 50 * 46));
    assert_eq!((far.lost, far.lost_bytes), (50, 50 * 1_500));
    assert_eq!(far.packets, 1 + 50 * 45);
    assert_eq!(l.points.iter().map(|p| p.drops).sum::<u64>(), 0);
    near(near_.delay_ms.expect("delays").max, 14.4, 0.1);
    assert_eq!(segment(&l, 2, 1).lost + segment(&l, 1, 0).lost, 0);
}

#[test]
fn retransmitted_data_without_timestamps_is_recognised_by_its_delay() {
    let (mut a, mut b) = (Point::default(), Point::default());
    for i in 0..400_u64 {
        let at = i * 20 * MS;
        let data = tcp(Tcp { seq: 1_000 + i as u32 * 100, len: 100, ..UP });
        a.add(at, &data);
        let ack = tcp(Tcp { ack: 1_100 + i as u32 * 100, ..DOWN });
        if i % 40 == 30 {
            a.add(at + 215 * MS, &data);
            b.add(at + 225 * MS, &data);
        } else {
            b.add(at + 10 * MS, &data);
        }
        b.add(at + 11 * MS, &ack);
        a.add(at + 21 * MS, &ack);
    }
    let l = located(&[&a, &b]);
    assert_eq!((segment(&l, 0, 1).lost, segment(&l, 0, 1).packets), (10, 400));
    near(segment(&l, 0, 1).delay_ms.expect("delays").max, 10.0, 0.1);
}

#[test]
fn a_connection_is_followed_through_address_translation() {
    let outside = ([203, 0, 113, 5], 61_000);
    let (mut a, mut b) = (Point::default(), Point::default());
    for i in 0..300_u64 {
        let at = i * 10 * MS;
        let n = i as u32;
        let up = Tcp { seq: 1_000 + n * 500, len: 500, stamps: Some((n, 1)), ..UP };
        let down = Tcp { ack: 1_000 + n * 500, stamps: Some((n + 7, n)), ttl: 57, ..DOWN };
        a.add(at, &tcp(up));
        b.add(at + 4 * MS, &tcp(Tcp { from: outside, ttl: 63, id: 9, ..up }));
        b.add(at + 5 * MS, &tcp(Tcp { to: outside, ..down }));
        a.add(at + 9 * MS, &tcp(Tcp { ttl: 56, ..down }));
        let voice = udp((A, 5_000), (B, 6_000), format!("voice packet {i:06}").as_bytes());
        a.add(at + MS, &voice);
        let mut routed =
            udp((outside.0, 40_404), (B, 6_000), format!("voice packet {i:06}").as_bytes());
        routed[8] = 63;
        b.add(at + 5 * MS, &routed);
        a.add(at + 2 * MS, &echo(A, B, 8, 77, i as u16));
        b.add(at + 6 * MS, &echo(outside.0, B, 8, 1_234, i as u16));
    }
    let l = located(&[&a, &b]);
    assert_eq!(l.clocks[0].renamed, 3);
    assert_eq!(l.clocks[0].hops, Some(1));
    assert_eq!(l.connections.len(), 3);
    assert_eq!((segment(&l, 0, 1).packets, segment(&l, 0, 1).lost), (900, 0));
    assert_eq!((segment(&l, 1, 0).packets, segment(&l, 1, 0).lost), (300, 0));
    assert_eq!(l.points.iter().map(|p| p.elsewhere).sum::<u64>(), 0);
}

#[test]
fn a_capture_of_headers_alone_still_matches() {
    let (mut a, b) = talk(300, |i| (i != 100).then_some(10 * MS), 10 * MS);
    let mut b = b;
    for i in 0..300_u64 {
        let packet = udp((A, 5_000), (B, 6_000), format!("packet number {i:06}").as_bytes());
        a.add(i * 10 * MS + 1, &packet);
        b.add(i * 10 * MS + 10 * MS + 1, &packet);
    }
    for kept in [40, 46, 54, 60] {
        let l = located(&[&a, &b.snap(kept)]);
        let up = segment(&l, 0, 1);
        assert_eq!((up.packets, up.lost), (599, 1), "{kept} bytes kept");
        near(up.delay_ms.expect("delays").max, 10.0, 0.01);
    }
}

#[test]
fn reordering_marks_and_rewriting_in_a_path_segment_are_counted() {
    let (mut a, mut b) = (Point::default(), Point::default());
    let syn = Tcp { seq: 999, flags: SYN, mss: Some(1_460), ..UP };
    a.add(0, &tcp(syn));
    b.add(10 * MS, &tcp(Tcp { mss: Some(1_380), ..syn }));
    for i in 0..200_u64 {
        let at = 100 * MS + i * 10 * MS;
        let up = Tcp { seq: 1_000 + i as u32 * 500, len: 500, ecn: 2, ..UP };
        a.add(at, &tcp(up));
        // Every tenth is marked, every twentieth overtaken by the next, and duplicates of the capture are dropped.
        let late = if i % 20 == 5 { 15 * MS } else { 0 };
        b.add(at + 10 * MS + late, &tcp(Tcp { ecn: if i % 10 == 3 { 3 } else { 2 }, ..up }));
        let down = Tcp { ack: 1_000 + i as u32 * 500, id: 100 + i as u16, ..DOWN };
        b.add(at + 3 * MS, &tcp(down));
        a.add(at + 13 * MS, &tcp(Tcp { window: if i % 4 == 0 { 100 } else { 500 }, ..down }));
        if i % 50 == 0 {
            a.add(
                at + 13 * MS + 1_000,
                &tcp(Tcp { window: if i % 4 == 0 { 100 } else { 500 }, ..down }),
            );
        }
    }
    let l = located(&[&a, &b]);
    let up = segment(&l, 0, 1);
    assert_eq!((up.ecn_marked, up.reordered, up.lost), (20, 10, 0));
    near(up.reordered_ms_max.expect("some"), 10.0, 0.01);
    assert_eq!(segment(&l, 1, 0).windows_rewritten, 50);
    assert_eq!(l.clocks[0].mss, Some((1_460, 1_380)));
    assert_eq!(l.points[0].duplicates, 4);
}

#[test]
fn packets_under_way_at_the_end_are_not_lost() {
    let (a, mut b) = talk(300, |_| Some(400 * MS), 10 * MS);
    b.packets.retain(|p| p.0 < 2_900 * MS);
    let l = located(&[&a, &b]);
    let up = segment(&l, 0, 1);
    assert_eq!(up.lost, 0);
    assert_eq!(up.undecided, 50);
    assert_eq!(l.points[1].drops, 0);
}

#[test]
fn one_connection_can_be_counted_alone() {
    let (mut a, mut b) = talk(200, |_| Some(10 * MS), 10 * MS);
    for i in 0..100_u64 {
        let packet = udp((A, 5_000), (B, 6_000), format!("number {i:06} of a hundred").as_bytes());
        a.add(i * 10 * MS + 1, &packet);
        b.add(i * 10 * MS + 60 * MS, &packet);
    }
    let l = located(&[&a, &b]);
    let id = l.connections.iter().find(|c| c.a_port == 5_000).expect("the datagrams").id;
    let options =
        Options { connection: Some(id), bin: Duration::from_millis(10), ..Options::default() };
    let l = locate_bytes(&[a.bytes(), b.bytes()], options).expect("one path");
    assert_eq!(segment(&l, 0, 1).packets, 100);
    near(segment(&l, 0, 1).queue_ms.expect("delays").p50, 50.0, 0.1);
    let options = Options { connection: Some(99), ..options };
    assert!(matches!(
        locate_bytes(&[a.bytes(), b.bytes()], options),
        Err(LocateError::NoConnection { .. })
    ));
}

#[test]
fn captures_that_do_not_belong_together_are_refused() {
    let (a, _) = talk(50, |_| Some(MS), MS);
    let mut other = Point::default();
    for i in 0..50_u64 {
        other.add(
            i * MS,
            &tcp(Tcp {
                from: ([10, 9, 8, 7], 1),
                to: ([10, 9, 8, 6], 2),
                seq: i as u32 * 77,
                len: 9,
                ..UP
            }),
        );
    }
    let captures = [a.bytes(), other.bytes()];
    assert!(matches!(
        locate_bytes(&captures, Options::default()),
        Err(LocateError::NothingInCommon { .. })
    ));
    assert!(matches!(
        locate_bytes(&captures[..1], Options::default()),
        Err(LocateError::Points { got: 1 })
    ));
    let broken = [a.bytes(), b"not a capture".to_vec()];
    assert!(matches!(locate_bytes(&broken, Options::default()), Err(LocateError::Open { .. })));
}

#[test]
fn memory_is_bounded_when_nothing_else_of_a_flow_comes() {
    // Only every thousandth packet of the near capture is ever seen at the far one, which has a flow of the same name.
    let (mut a, mut b) = (Point::default(), Point::default());
    for i in 0..60_000_u64 {
        let data =
            tcp(Tcp { seq: 1_000 + i as u32 * 10, len: 10, stamps: Some((i as u32, 1)), ..UP });
        a.add(i * MS, &data);
        if i % 1_000 == 0 {
            b.add(i * MS + MS, &data);
        }
    }
    let l = located(&[&a, &b]);
    assert_eq!(segment(&l, 0, 1).packets, 60);
    assert!(segment(&l, 0, 1).lost > 58_000);
    assert!(l.warnings.iter().any(|w| w.starts_with("most packets of")));
}
