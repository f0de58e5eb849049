//! The stack of a sending phone: qdisc, gate, firmware.

mod made;

use made::ms;
use scenario::{Device, Firmware};
use units::Bytes;

/// Most bytes that stood in the qdisc at the end of a bin.
fn most_in_qdisc(results: &sim::Results) -> u64 {
    results.queues.iter().filter(|q| q.stage == "qdisc").map(|q| q.bytes).max().unwrap_or(0)
}

#[test]
fn tcp_small_queues_leave_no_more_than_their_limit_in_the_qdisc() {
    let upload = |tsq: Option<u64>| {
        let mut s = made::path(8.0, ms(40), 1_000, 10);
        s.nodes[0].device = Some(Device {
            link: 0,
            qdisc: made::droptail(1_000),
            gate: made::algorithm!(algo::gate, "none"),
            firmware: Firmware {
                buffer: Bytes(100_000),
                report_every: ms(5),
                report_delay: ms(100),
            },
        });
        s.flows[0].sender.tsq = tsq.map(Bytes);
        most_in_qdisc(&made::run(&s))
    };
    // The packet that reaches the limit still goes.
    let limited = upload(Some(30_000));
    assert!((25_000..=31_500).contains(&limited), "{limited}");
    assert!(upload(None) > 200_000);
}

#[test]
fn a_host_without_a_qdisc_of_its_own_is_not_held_by_small_queues() {
    let mut s = made::path(8.0, ms(40), 100, 4);
    let free = made::data(&made::run(&s)).bytes;
    s.flows[0].sender.tsq = Some(Bytes(3_000));
    assert_eq!(made::data(&made::run(&s)).bytes, free);
}
