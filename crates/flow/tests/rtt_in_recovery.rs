//! At the receiver the RTT is measured during a recovery as well: the cumulative ACK waits for one segment, and ACKs with
//! new SACK blocks let the sender send.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use flow::{Options, Select};
use model::{Fate, MS, Point, Script, analyse_with};
use units::Duration;

/// An upload over 40 ms, captured at the receiver; one segment is lost `times` times. Bins of 20 ms with an RTT.
fn bins_with_rtt(times: u32) -> usize {
    let lost = |i| ((100, i), Fate::Lost { before: true });
    let s = Script {
        segments: 300,
        cwnd: 20,
        gap: 2 * MS,
        point: Point::Receiver,
        fates: (0..times).map(lost).collect(),
        ..Script::plain()
    };
    let options = Options { bin: Duration(20 * MS), samples: Select::All, ..Options::default() };
    let a = analyse_with(options, &model::run(&s).0);
    a.samples.iter().filter(|bin| bin.rtt_ms.is_some()).count()
}

#[test]
fn the_rtt_is_measured_while_the_cumulative_ack_waits() {
    let plain = bins_with_rtt(0);
    assert!(plain >= 25, "{plain}");
    // Four losses of one segment keep the cumulative ACK for four round trips: eight bins.
    let waits = bins_with_rtt(4);
    assert!(waits + 2 >= plain, "{waits} of {plain} bins");
}
