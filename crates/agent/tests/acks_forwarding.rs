//! The BPF program and `algo::rwnd::forwarding` handle the same segments at the same times: every
//! window field that leaves, and every target of both laws, is the same.
//!
//! Needs root and BPF; elsewhere the tests say so and end.

use algo::Rng;
use algo::rwnd::drwa::{Config as Law, Form};
use algo::rwnd::forwarding::{Config, Flow, Segment};
use algo::rwnd::path::Places;
use aya::Ebpf;
use units::{Bytes, Duration, Instant};

#[allow(dead_code)] // another test counts
mod acks_program;
#[allow(dead_code)] // another test checks sums
mod packets;
mod skip;

use acks_program::{configure, handled_ns, kernel, set, through, traced};
use packets::Ends;

const MSS: u16 = 1_400;
const ACK: u8 = 16;
const SYN: u8 = 2;
/// Silence after which a flow begins again, where the test makes flows idle.
const PAUSE_NS: u64 = 20_000_000;

/// One end of the connection.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    next: u32,
    /// The other end's bytes that it has received.
    received: u32,
    /// Its clock, in ticks.
    stamp: u32,
    /// The last stamp of the other end that has come.
    echo: u32,
    /// Its right edge, as it has left the device.
    edge: u32,
}

/// Both programs with one flow.
struct Both<'a> {
    ebpf: &'a mut Ebpf,
    ends: Ends,
    config: Config,
    flow: Flow,
    places: &'a mut Places,
}

impl Both<'_> {
    /// The segment goes through both; the window field that leaves.
    fn pass(&mut self, out: bool, s: &Segment) -> u16 {
        let flags = if s.syn { SYN } else { 0 } | if s.acks { ACK } else { 0 };
        let mut options = Vec::new();
        if let Some(mss) = s.mss {
            options.extend([2, 4, (mss >> 8) as u8, mss as u8]);
        }
        if let Some(scale) = s.scale {
            options.extend([1, 3, 3, scale]);
        }
        if let Some((stamp, echo)) = s.stamps {
            options.extend(self.ends.stamps(stamp, echo));
        }
        let packet = self.ends.packet(&packets::Segment {
            out,
            flags,
            seq: s.seq,
            ack: s.ack,
            window: s.window as u16,
            options: &options,
            payload: s.payload as usize,
        });
        let after = through(self.ebpf, out, &packet).unwrap();
        let now = Instant(handled_ns(self.ebpf));
        let place = u64::from(self.ends.v6);
        let ours = self.flow.on_segment(now, &self.config, self.places, place, (out, true), s);
        let field = self.ends.window(&after);
        assert_eq!(ours.unwrap_or(s.window), u32::from(field), "{out} {s:?} {:?}", self.flow);
        field
    }
}

fn any_law(rng: &mut Rng) -> Law {
    Law {
        form: if rng.below(4) > 0 { Form::Rate } else { Form::Paper },
        quick: rng.below(2) == 0,
        alpha: rng.below(16),
        lambda: (17 + rng.below(48)) as f64 / 16.0,
        lambda_min: (rng.below(2) == 0).then(|| (16 + rng.below(16)) as f64 / 16.0),
        min_window: 1 + rng.below(4),
        increment: rng.below(2),
        ..Law::default()
    }
}

/// A segment of one end: data, or an acknowledgment.
fn segment(rng: &mut Rng, ends: &Ends, sides: &mut [Side; 2], out: bool, scale: u32) -> Segment {
    let (own, far) = if out { (0, 1) } else { (1, 0) };
    let room = sides[far].edge.wrapping_sub(sides[own].next);
    let payload = if rng.below(3) > 0 { rng.below(u64::from(MSS)) as u32 } else { 0 };
    let payload = payload.min(if room > 1 << 30 { 0 } else { room });
    let side = sides[own];
    let window = ((1 << 20) + rng.below(1 << 21) as u32) >> scale;
    let segment = Segment {
        seq: side.next,
        ack: side.received,
        payload,
        window: window.min(65_535),
        stamps: ends.stamped.then_some((side.stamp, side.echo)),
        acks: true,
        ..Segment::default()
    };
    sides[own].next = side.next.wrapping_add(payload);
    sides[far].received = sides[own].next;
    sides[far].echo = side.stamp;
    segment
}

#[test]
fn every_window_of_any_flow_is_the_same_in_the_kernel() {
    let Some(mut ebpf) = kernel() else { return };
    let mut rng = Rng::new(5, "forwarding");
    let mut places = Places::default();
    let (mut targets, mut lowered, mut queued, mut begins) = (0, 0, 0, 0);
    for case in 0..18_u16 {
        let (law_down, law_up) = (any_law(&mut rng), any_law(&mut rng));
        // Floor and increment are one setting for a device.
        let law_up =
            Law { min_window: law_down.min_window, increment: law_down.increment, ..law_up };
        // Flows within a second or two count as beside each other.
        let fair = |law: Law| Law { form: Form::Agent, fair: true, ..law };
        let beside = (6..16).contains(&case);
        let (law_down, law_up) =
            if beside { (fair(law_down), fair(law_up)) } else { (law_down, law_up) };
        let mut in_force = configure(&mut ebpf, &law_down, &law_up);
        // Every sixth flow is idle at times.
        if case % 6 == 3 {
            in_force.pause_ns = PAUSE_NS;
            set(&mut ebpf, in_force);
        }
        let ends = Ends {
            scales: [Some(5 + rng.below(5) as u8), Some(5 + rng.below(11) as u8)],
            v6: case % 2 == 1,
            vlans: 0,
            stamped: case % 4 > 0,
            port: 5_000 + case,
        };
        let config = Config {
            down: Some(law_down),
            up: Some(law_up),
            down_start: Bytes(in_force.down_start_bytes),
            up_start: Bytes(in_force.up_start_bytes),
            pause: Duration(in_force.pause_ns),
            forwarded_only: false,
        };
        let flow = Flow::default();
        let mut both = Both { ebpf: &mut ebpf, ends, config, flow, places: &mut places };
        let any = |rng: &mut Rng| rng.below(1 << 32) as u32;
        let mut sides = [Side::default(), Side::default()];
        for side in &mut sides {
            (side.next, side.stamp) = (any(&mut rng), any(&mut rng));
        }
        for out in [true, false] {
            let (own, far) = if out { (0, 1) } else { (1, 0) };
            let syn = Segment {
                seq: sides[own].next,
                ack: if out { 0 } else { sides[far].next },
                window: 65_535,
                stamps: ends.stamped.then_some((sides[own].stamp, sides[own].echo)),
                syn: true,
                acks: !out,
                scale: ends.scales[own],
                mss: Some(MSS),
                ..Segment::default()
            };
            both.pass(out, &syn);
            sides[own].next = sides[own].next.wrapping_add(1);
            sides[far].received = sides[own].next;
            sides[far].echo = sides[own].stamp;
            sides[far].edge = sides[own].next.wrapping_add(65_535);
        }
        sides[0].edge = sides[1].next.wrapping_add(65_535);
        sides[1].edge = sides[0].next.wrapping_add(65_535);
        let began = std::time::Instant::now();
        let first = [sides[0].stamp, sides[1].stamp];
        // Queues that come and go: the far clock is late by them.
        let mut late_ms = 0_u64;
        for step in 0..700 {
            let mut pause_us = if rng.below(4) == 0 { rng.below(3_000) } else { 0 };
            if case % 6 == 3 && step % 150 == 149 {
                pause_us = PAUSE_NS / 1_000 + rng.below(5_000);
            }
            std::thread::sleep(std::time::Duration::from_micros(pause_us));
            if step % 50 == 0 {
                late_ms = rng.below(40);
            }
            let passed = began.elapsed().as_millis() as u64;
            sides[0].stamp = first[0].wrapping_add(passed as u32);
            sides[1].stamp = first[1].wrapping_add(passed.saturating_sub(late_ms) as u32);
            let out = rng.below(2) == 0;
            let own = usize::from(!out);
            let scale = ends.scale(own);
            let samples = traced(both.ebpf).len();
            let s = segment(&mut rng, &ends, &mut sides, out, scale);
            let field = both.pass(out, &s);
            lowered += usize::from(u32::from(field) < s.window);
            let edge = s.ack.wrapping_add(u32::from(field) << scale);
            if edge.wrapping_sub(sides[own].edge) as i32 > 0 {
                sides[own].edge = edge;
            }
            for t in &traced(both.ebpf)[samples..] {
                begins += t.begins;
                if t.rtt_min_us == 0 || t.target == 0 {
                    continue;
                }
                // After a pause the kernel's value is the old one until the law has decided again.
                let Some(ours) = both.flow.target(t.up == 1) else { continue };
                assert_eq!(ours, t.target, "{t:?} {:?}", both.flow);
                targets += 1;
                queued += usize::from(t.opposite_us > 0);
            }
        }
    }
    eprintln!("{targets} targets, {lowered} windows lowered, {queued} beside an opposite queue");
    assert!(targets > 1_500 && lowered > 800, "{targets} {lowered}");
    // Eighteen flows begin once in each direction; the idle ones again.
    assert!(begins > 36 + 3, "after a pause: {begins}");
    assert!(queued > 100, "beside a queue in the opposite direction: {queued}");
}
