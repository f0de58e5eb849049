//! # reordering
//!
//! The path delivered packets in another order than they were sent, which a sender may interpret as loss.
//!
//! ## How it is measured
//!
//! Out of order = late segments that were *not* retransmitted: bytes not seen before in the capture whose IP
//! identification or timestamp shows that they were sent earlier. At least three of them and 0.1 % of the
//! data segments. It is a warning when three or more segments were retransmitted although they had arrived
//! (DSACK, timestamps). It is one as well when 1 % of the segments were late, and the latest by more than a
//! quarter of the smallest RTT. A sender with RACK waits that long (RFC 8985 section 6.2).
//!
//! Minimum: 30 segments.
//!
//! ## Evidence
//!
//! `out_of_order`, `out_of_order_share` (0 … 1 of the data segments), `reordering_ms_max` (how late),
//! `retransmissions_spurious`, `dsacks`, `ambiguous` (late for an unknown reason), `rtt_ms_min`, `cause`
//! (`path`; `harmless` for info without a spurious retransmission).
//!
//! ## What cures it
//!
//! Nothing where it is harmless. Else: a sender with RACK (RFC 8985; Linux since 4.18) waits a quarter of the RTT before it retransmits. On the path:
//! per-flow instead of per-packet load balancing, one queue per flow on multi-queue devices, link-layer
//! retransmission with in-order delivery.
//!
//! ## Traps
//!
//! - A capture with several capture queues or on a bonded interface can itself be out of order.
//! - In a capture at the sender reordering shows only in the SACKs and DSACKs of the receiver.
//! - `ambiguous` segments are in neither count.
//!
//! ## Sources
//!
//! RFC 4737 (reordering metrics), RFC 2883 (DSACK), RFC 8985 (RACK-TLP).

use super::reading::{Values, counted, data_start, end_where, ms, percent, ratio};
use super::{Check, Rule, page::page};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};

/// Fewer late segments may be chance.
const MIN_OUT_OF_ORDER: u64 = 3;
const MIN_PACKETS: u64 = 30;
/// Share of late segments from which it is reported, and from which it is a warning.
const NOTABLE: f64 = 0.001;
const MUCH: f64 = 0.01;
/// Reordering window (ms) of a sender whose smallest RTT is unknown: a quarter of 4 ms, less than any radio link has.
const UNKNOWN_WINDOW_MS: f64 = 1.0;

const CURE_NONE: &str = "Nothing: it cost no retransmission.";
const CURE_PATH: &str = "A sender with RACK (RFC 8985) tolerates it; on the path, balance load by flow and not by packet.";

pub(super) const RULE: Rule = Rule {
    name: "reordering",
    about: "the path delivers packets out of order",
    source: "RFC 4737; RFC 8985",
    page: page!("reordering.rs"),
    check: Check::Flow(check),
};

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    let share = ratio(flow.out_of_order as f64, flow.segments() as f64);
    if flow.out_of_order < MIN_OUT_OF_ORDER || flow.segments() < MIN_PACKETS || share < NOTABLE {
        return None;
    }
    let first = e.profile.bins().iter().position(|b| b.out_of_order > 0);
    let mut v = Values::default();
    v.number("out_of_order", flow.out_of_order as f64)
        .number("out_of_order_share", share)
        .number("reordering_ms_max", flow.reordering_ms_max)
        .number("retransmissions_spurious", flow.retransmissions_spurious as f64)
        .number("dsacks", flow.dsacks as f64)
        .number("ambiguous", flow.ambiguous as f64)
        .number("rtt_ms_min", flow.rtt_ms.map(|q| q.min));
    // Where DSACK or a timestamp shows it, by how much is unknown: 0.
    let late_ms = flow.reordering_ms_max.filter(|m| *m > 0.0);
    let late = late_ms.map_or(String::new(), |m| format!(", by up to {}", ms(m)));
    let reordering_window = flow.rtt_ms.map_or(UNKNOWN_WINDOW_MS, |q| q.min / 4.0);
    let far = late_ms.is_none_or(|m| m > reordering_window);
    let harm = match flow.retransmissions_spurious {
        0 => "no segment was retransmitted because of it".to_owned(),
        n => format!(
            "{} retransmitted although it had arrived",
            counted(n, "segment was", "segments were")
        ),
    };
    let costs = (share >= MUCH && far) || flow.retransmissions_spurious >= MIN_OUT_OF_ORDER;
    let harmless = !costs && flow.retransmissions_spurious == 0;
    v.text("cause", if harmless { "harmless" } else { "path" });
    Some(Finding {
        rule: RULE.name,
        severity: if costs { Severity::Warning } else { Severity::Info },
        flow: Some(flow.id),
        from: first.map_or_else(|| data_start(e), |i| e.profile.time_of(i)),
        to: end_where(e, |b| b.out_of_order > 0),
        values: v.take(),
        text: format!(
            "{} ({}) arrived out of order{late}; {harm}.",
            counted(flow.out_of_order, "segment", "segments"),
            percent(share),
        ),
        cure: if harmless { CURE_NONE } else { CURE_PATH },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;

    fn reordered(count: u64, packets: u64) -> Option<Finding> {
        let mut case =
            Case::transfer(10, |t, bin| bin.out_of_order = u32::from((4.0..6.0).contains(&t)));
        case.flow.out_of_order = count;
        case.flow.data_packets = packets;
        case.flow.payload_bytes = units::Bytes(0);
        check(&case.evidence())
    }

    #[test]
    fn the_share_decides_what_it_costs() {
        assert_eq!(reordered(9, 10_000).map(|f| f.severity), None);
        assert_eq!(reordered(10, 10_000).map(|f| f.severity), Some(Severity::Info));
        assert_eq!(reordered(100, 10_000).map(|f| f.severity), Some(Severity::Warning));
        assert_eq!(reordered(2, 100).map(|f| f.severity), None);
        assert_eq!(reordered(3, 29).map(|f| f.severity), None);
    }

    #[test]
    fn much_reordering_within_the_window_of_rack_is_no_warning() {
        let mut case = Case::transfer(10, |_, _| {});
        let window = case.flow.rtt_ms.expect("RTTs").min / 4.0;
        case.flow.out_of_order = case.flow.data_packets / 10;
        for (late, severity) in [(0.01, Severity::Info), (window + 0.1, Severity::Warning)] {
            case.flow.reordering_ms_max = Some(late);
            assert_eq!(check(&case.evidence()).expect("reordered").severity, severity, "{late}");
        }
        case.flow.reordering_ms_max = Some(0.01);
        let f = check(&case.evidence()).expect("reordered");
        assert!(f.text.contains("by up to <0.1 ms"), "{}", f.text);
        assert_eq!((f.word("cause"), f.cure), ("harmless", CURE_NONE));
        case.flow.retransmissions_spurious = 1;
        let f = check(&case.evidence()).expect("reordered");
        assert_eq!((f.severity, f.word("cause"), f.cure), (Severity::Info, "path", CURE_PATH));
    }

    #[test]
    fn it_says_from_when_to_when() {
        let f = reordered(536, 5_000).expect("reordered");
        assert_eq!((f.from, f.to), (at(4.0), at(6.0)));
        assert!(f.text.starts_with("536 segments (11 %) arrived out of order"), "{}", f.text);
    }

    #[test]
    fn spurious_retransmissions_make_little_reordering_a_warning() {
        let mut case = Case::transfer(10, |_, _| {});
        case.flow.out_of_order = 5;
        case.flow.retransmissions_spurious = 3;
        case.flow.reordering_ms_max = Some(12.0);
        let f = check(&case.evidence()).expect("reordered");
        assert_eq!(f.severity, Severity::Warning);
        assert!(
            f.text.contains("by up to 12 ms; 3 segments were retransmitted although"),
            "{}",
            f.text
        );
    }
}
