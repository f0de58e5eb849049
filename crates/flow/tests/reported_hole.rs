//! A receiver reports a hole, and nothing comes for longer than a retransmission timeout: the transfer waits for the
//! sender's timer, wherever the capture is taken, and although the sender has nothing else to send.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use flow::series::rows::{Flow, Limit};
use model::{Fate, MS, Point, Script, analyse};

/// Sixty segments, the last of them short. One near the end is lost `times` times.
fn upload(point: Point, sack: bool, times: u32) -> Flow {
    let lost = |i| ((55, i), Fate::Lost { before: point == Point::Receiver });
    let s = Script {
        point,
        sack,
        gap: 2 * MS,
        fates: (0..times).map(lost).collect(),
        ..Script::plain()
    };
    let mut packets = model::run(&s).0;
    let end = packets.iter().map(|p| p.seq.wrapping_add(p.payload)).max().unwrap_or(0);
    for p in &mut packets {
        if p.payload > 100 && p.seq.wrapping_add(p.payload) == end {
            (p.payload, p.seq) = (100, p.seq);
        }
    }
    let a = analyse(&packets);
    a.flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows")
}

fn share(f: &Flow, limit: Limit) -> f64 {
    f.limit_time[limit as usize].as_secs_f64() / f.active.as_secs_f64()
}

#[test]
fn a_wait_behind_a_reported_hole_is_a_timeout_at_either_end() {
    for point in [Point::Sender, Point::Receiver] {
        for sack in [true, false] {
            let f = upload(point, sack, 4);
            let what = format!("{point:?}, SACK {sack}: {:?} of {:?}", f.limit_time, f.active);
            assert!(share(&f, Limit::Timeout) > 0.5, "{what}");
            assert!(share(&f, Limit::Application) < 0.1, "{what}");
        }
    }
}

#[test]
fn without_loss_there_is_no_such_wait() {
    for point in [Point::Sender, Point::Receiver] {
        assert_eq!(share(&upload(point, true, 0), Limit::Timeout), 0.0);
    }
}
