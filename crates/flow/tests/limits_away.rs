//! What limited a sender, where the limit does not show in a single packet: pauses and bursts in captures away from it,
//! waits for timers, and growth.

use capture::{Addr, Decoded, Ip, TcpOptions, TcpSegment, flags};
use flow::series::rows::Limit;
use flow::{Analyzer, Options};
use units::{Duration, Instant};

const MSS: u32 = 1_448;
/// One way, ms.
const WAY: f64 = 20.0;

/// What a sender takes to answer an ACK, ms.
const PROMPT: f64 = 0.01;

struct Data {
    sent: f64,
    arrives: f64,
    start: u32,
    len: u32,
    /// Packets of the sender lost just before it.
    lost: u16,
}

struct Ack {
    leaves: f64,
    bytes: u32,
    /// It arrives at the sender.
    arrives: bool,
}

/// An upload with a fixed delay each way; times in ms.
struct Talk {
    at_receiver: bool,
    identified: bool,
    /// Segments.
    window: u32,
    data: Vec<Data>,
    acks: Vec<Ack>,
    lasts_to: f64,
}

impl Talk {
    fn new(at_receiver: bool, window: u32) -> Talk {
        let (data, acks) = (Vec::new(), Vec::new());
        Talk { at_receiver, identified: true, window, data, acks, lasts_to: 0.0 }
    }

    fn send(&mut self, sent: f64, segment: u32) {
        self.send_late(sent, sent + WAY, segment);
    }

    fn answer(&mut self, leaves: f64, bytes: u32) {
        self.acks.push(Ack { leaves, bytes, arrives: true });
    }

    fn send_late(&mut self, sent: f64, arrives: f64, segment: u32) {
        self.data.push(Data { sent, arrives, start: segment * MSS, len: MSS, lost: 0 });
    }

    /// `count` segments, each released by the ACK of the one `flight` before; returns when the last was sent.
    fn clocked(&mut self, from: f64, first: u32, count: u32, flight: u32, lag: f64) -> f64 {
        let rtt = 2.0 * WAY;
        let mut last = from;
        for n in 0..count {
            let turn = f64::from(n / flight) * (rtt + PROMPT + lag);
            let place = f64::from(n % flight) * rtt / f64::from(flight);
            last = from + turn + place;
            self.send(last, first + n);
            self.answer(last + WAY, (first + n + 1) * MSS);
        }
        last
    }

    /// Time by limit, in seconds.
    fn limits(&self, bin_ms: u64) -> impl Fn(Limit) -> f64 + use<> {
        let seen = |leaves: f64, arrives: f64, from_sender: bool| {
            let ms = if from_sender == self.at_receiver { arrives } else { leaves };
            Instant((1e9 + ms * 1e6) as u64)
        };
        let mut packets: Vec<TcpSegment> = Vec::new();
        let shake = [-2.0 * WAY - 1.0, -WAY - 1.0, -1.0];
        packets.push(segment(0, flags::SYN, seen(shake[0], shake[1], true)));
        packets.push(segment(1, flags::SYN | flags::ACK, seen(shake[1], shake[2], false)));
        packets.push(segment(0, flags::ACK, seen(shake[2], shake[2] + WAY, true)));
        let mut id = 10;
        for d in &self.data {
            let mut s = segment(0, flags::ACK, seen(d.sent, d.arrives, true));
            let arrives = |a: &&Ack| a.arrives && a.leaves + WAY <= d.sent + 1e-6;
            let known = self.acks.iter().rfind(arrives);
            s.options.timestamps =
                Some((stamp(d.sent), known.map_or(stamp(0.0), |a| stamp(a.leaves))));
            s.seq = 101 + d.start;
            s.payload = d.len;
            id += 1 + d.lost;
            s.ip.id = self.identified.then_some(id);
            packets.push(s);
        }
        for Ack { leaves, bytes, .. } in &self.acks {
            let mut s = segment(1, flags::ACK, seen(*leaves, leaves + WAY, false));
            s.options.timestamps = Some((stamp(*leaves), stamp(leaves - WAY)));
            s.ack = 101 + bytes;
            s.window = ((self.window * MSS) >> 4) as u16;
            packets.push(s);
        }
        packets.sort_by_key(|s| s.ip.time);
        let bin = Duration::from_millis(bin_ms);
        let mut analyzer = Analyzer::new(Options { bin, ..Options::default() });
        for s in &packets {
            analyzer.push(s.ip.time, s.payload + 52, &Decoded::Tcp(*s));
        }
        analyzer.capture_lasted_to(Instant(1_000_000_000 + (self.lasts_to * 1e6) as u64));
        let a = analyzer.finish(None);
        let flow = a.flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows");
        let named = Limit::ALL.map(|l| (l, flow.limit_time[l as usize].as_secs_f64()));
        eprintln!(
            "{:?} {:?}",
            flow.vantage,
            named.iter().filter(|n| n.1 > 0.0).collect::<Vec<_>>()
        );
        move |limit| flow.limit_time[limit as usize].as_secs_f64()
    }
}

/// Both hosts count milliseconds.
fn stamp(ms: f64) -> u32 {
    (ms + 10_000.0) as u32
}

fn segment(side: usize, bits: u16, time: Instant) -> TcpSegment {
    let address = |side: usize| Addr::v4([192, 0, 2, side as u8 + 1]);
    let mut options = TcpOptions { timestamps: Some((1, 1)), ..TcpOptions::default() };
    if bits & flags::SYN != 0 {
        options.mss = Some(1_460);
        options.window_scale = Some(4);
    }
    TcpSegment {
        ip: Ip {
            time,
            src: address(side),
            dst: address(1 - side),
            id: Some(1),
            ttl: 60,
            ecn: 0,
            total_len: 52,
            wire_len: 66,
            interface: 0,
        },
        src_port: 5_000 + side as u16,
        dst_port: 5_001 - side as u16,
        seq: if bits & flags::SYN != 0 { [100, 100][side] } else { 101 },
        ack: 101,
        flags: bits,
        window: 0xffff,
        payload: 0,
        maybe_padding: false,
        options,
    }
}

fn near(found: f64, truth: f64, by: f64, what: &str) {
    assert!((found - truth).abs() <= by, "{what}: found {found:.2} s, truth {truth:.2} s");
}

/// A window of eight segments is full for a second. Then nothing arrives for 5 s, and `lost` packets were lost. The
/// next segment comes alone, and the others a round trip later.
fn pause(lost: u16, identified: bool) -> Talk {
    let mut talk = Talk::new(true, 8);
    talk.identified = identified;
    let last = talk.clocked(0.0, 0, 200, 8, 0.0);
    let again = last + 5_000.0;
    talk.send(again, 200);
    talk.data.last_mut().expect("data").lost = lost;
    talk.answer(again + WAY, 201 * MSS);
    talk.clocked(again + 2.0 * WAY, 201, 80, 8, 0.0);
    talk
}

#[test]
fn a_pause_in_which_packets_were_lost_was_a_wait_for_an_answer() {
    let limits = pause(12, true).limits(100);
    // The timer fired 240 ms after the last segment that the ACKs had released.
    near(limits(Limit::Timeout), 4.7, 0.2, "timeout");
    near(limits(Limit::ReceiveWindow), 1.5, 0.2, "receive window");
}

#[test]
fn a_pause_in_which_none_was_lost_was_the_applications() {
    let limits = pause(0, true).limits(100);
    near(limits(Limit::Application), 4.95, 0.15, "application");
    near(limits(Limit::ReceiveWindow), 1.2, 0.2, "receive window");
}

#[test]
fn a_pause_behind_a_full_window_is_unknown_without_identifications() {
    let limits = pause(12, false).limits(100);
    near(limits(Limit::Unknown), 4.95, 0.15, "unknown");
    near(limits(Limit::ReceiveWindow), 1.2, 0.2, "receive window");
}

#[test]
fn in_a_pause_shorter_than_a_timeout_the_window_is_full_for_a_round_trip_only() {
    let mut talk = Talk::new(true, 8);
    let (mut from, mut next) = (0.0, 0);
    for _ in 0..8 {
        from = talk.clocked(from, next, 40, 8, 0.0) + 270.0;
        next += 40;
    }
    // In each part from the eighth segment, 35 ms after the first, until an ACK gives room for one that is not sent.
    near(talk.limits(10)(Limit::ReceiveWindow), 8.0 * 0.165, 0.1, "receive window");
}

#[test]
fn what_is_repeated_although_the_capture_has_its_ack_is_a_wait_for_that_ack() {
    let mut talk = Talk::new(true, 8);
    let last = talk.clocked(0.0, 0, 200, 8, 0.0);
    for after in [240.0, 720.0, 1_680.0, 3_600.0] {
        talk.send(last + after, 192);
        talk.answer(last + after + WAY, 200 * MSS);
    }
    // Of the ACKs since the last window only that of the last repetition arrives.
    let lost = talk.acks.len() - 12;
    for ack in &mut talk.acks[lost..lost + 11] {
        ack.arrives = false;
    }
    talk.clocked(last + 3_600.0 + 2.0 * WAY, 200, 80, 8, 0.0);
    let limits = talk.limits(100);
    near(limits(Limit::Timeout), 3.4, 0.2, "timeout");
    near(limits(Limit::ReceiveWindow), 1.4, 0.2, "receive window");
}

#[test]
fn segments_of_one_timestamp_left_together_however_far_apart_they_arrive() {
    let mut talk = Talk::new(true, 200);
    let mut start = 0;
    for burst in 0..200_u32 {
        // Every 10 ms ten segments and a short one, which a bottleneck spreads over 7 ms.
        let sent = f64::from(burst) * 10.0;
        for n in 0..11 {
            let arrives = sent + WAY + f64::from(n) * 0.7;
            let len = if n == 10 { 500 } else { MSS };
            talk.data.push(Data { sent, arrives, start, len, lost: 0 });
            start += len;
            talk.answer(arrives, start);
        }
    }
    let limits = talk.limits(100);
    assert!(limits(Limit::Application) > 1.7, "{}", limits(Limit::Application));
}

#[test]
fn a_timer_that_fires_late_is_waited_for_from_when_it_was_due() {
    for (at_receiver, timeout) in [(false, 9.8), (true, 9.8)] {
        let mut talk = Talk::new(at_receiver, 200);
        let last = talk.clocked(0.0, 0, 100, 8, 0.0);
        // One segment is lost; its timer fires after 10 s.
        talk.send(last + 1.0, 101);
        if at_receiver {
            talk.data.last_mut().expect("data").lost = 1;
        } else {
            talk.data.insert(
                100,
                Data { sent: last + 0.5, arrives: 0.0, start: 100 * MSS, len: MSS, lost: 0 },
            );
        }
        talk.answer(last + 1.0 + WAY, 100 * MSS);
        talk.send(last + 10_000.0, 100);
        talk.answer(last + 10_000.0 + WAY, 102 * MSS);
        let limits = talk.limits(100);
        near(limits(Limit::Timeout), timeout, 0.15, "timeout");
    }
}

#[test]
fn a_wait_lasts_to_the_end_of_the_capture_or_until_the_timer_was_to_fire_again() {
    for (lasts_to, timeout) in [(0.0, 1.8), (3_000.0, 1.97), (60_000.0, 4.2)] {
        let mut talk = Talk::new(false, 8);
        let last = talk.clocked(0.0, 0, 160, 8, 0.0);
        talk.acks.truncate(152);
        for after in [300.0, 900.0, 2_100.0] {
            talk.send(last + after, 152);
        }
        talk.lasts_to = lasts_to;
        let limits = talk.limits(100);
        near(limits(Limit::Timeout), timeout, 0.12, "timeout");
    }
}

/// Round trips of 100 ms, each with so many segments, all sent and acknowledged at its begin; seconds of slow start.
fn slow_start(rounds: &[u32], at_receiver: bool) -> f64 {
    let mut talk = Talk::new(at_receiver, 200);
    let mut next = 0;
    for (n, count) in rounds.iter().enumerate() {
        let from = n as f64 * 2.0 * WAY;
        for place in 0..*count {
            // The bottleneck takes a tenth of a millisecond for a segment.
            let arrives = from + WAY + f64::from(place) * 0.1;
            talk.send_late(from, arrives, next);
            next += 1;
            talk.answer(arrives, next * MSS);
        }
    }
    talk.limits(20)(Limit::SlowStart)
}

#[test]
fn a_segment_more_per_round_trip_is_no_slow_start_though_it_is_a_quarter() {
    let linear: Vec<u32> = (2..18).collect();
    let found = slow_start(&linear, false);
    assert!(found <= 0.2, "{found} s of 0.64 s");
    let doubling = [2, 4, 8, 16, 32];
    let found = slow_start(&doubling, false);
    assert!(found >= 0.18, "{found} s of 0.2 s");
}

#[test]
fn the_first_round_trip_at_the_receiver_is_as_long_as_that_of_the_handshake() {
    let found = slow_start(&[10, 15, 23, 34, 34, 34, 34, 34, 34], true);
    assert!(found >= 0.16, "{found} s");
}

/// Two seconds with twenty segments in flight, then five with ten; the sender waits `lag` ms after each ACK.
fn held_back(at_receiver: bool, lag: f64) -> f64 {
    let mut talk = Talk::new(at_receiver, 200);
    let last = talk.clocked(0.0, 0, 1_000, 20, 0.0);
    talk.clocked(last + 4.0, 1_000, 1_250, 10, lag);
    talk.limits(100)(Limit::CongestionWindow)
}

#[test]
fn who_is_released_by_acks_is_held_back_by_the_congestion_window_even_without_loss() {
    for at_receiver in [false, true] {
        near(held_back(at_receiver, 0.0), 5.0, 0.9, "released at once");
        near(held_back(at_receiver, 1.9), 0.0, 0.45, "at a time that the ACKs do not set");
    }
}
