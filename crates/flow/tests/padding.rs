//! ACKs whose IP length includes the padding of the shortest Ethernet frame, and data that looks the same.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use capture::{TcpSegment, flags};
use flow::Analysis;
use model::{Script, analyse};

const PADDING: u32 = 6;

/// Every packet of 40 bytes as such a device sends it.
fn padded(mut all: Vec<TcpSegment>) -> Vec<TcpSegment> {
    for s in all.iter_mut().filter(|s| s.payload == 0 && !s.has(flags::RST)) {
        s.payload = PADDING;
        s.maybe_padding = true;
    }
    all
}

fn rows(a: &Analysis) -> String {
    format!("{:?} {:?} {:?}", a.connections, a.flows, a.findings)
}

#[test]
fn padding_that_no_number_counts_changes_nothing() {
    for script in [Script::plain(), Script::one_lost()] {
        let all = model::run(&script).0;
        assert!(all.iter().filter(|s| s.payload == 0 && s.has(flags::FIN)).count() > 0);
        let (plain, padded) = (analyse(&all), analyse(&padded(all)));
        assert_eq!(rows(&plain), rows(&padded));
        assert_eq!(padded.flows[1].data_packets, 0, "ACKs only");
    }
}

#[test]
fn zeros_that_the_numbers_count_are_data() {
    let plain = model::run(&Script::plain()).0;
    let mut marked = plain.clone();
    for s in marked.iter_mut().filter(|s| s.payload > 0) {
        s.maybe_padding = true;
    }
    let (plain, marked) = (analyse(&plain), analyse(&marked));
    let figures = |a: &Analysis| {
        let f = &a.flows[0];
        (f.bytes, f.data_packets, f.retransmissions, a.connections[0].end_kind)
    };
    assert_eq!(figures(&plain), figures(&marked));
}
