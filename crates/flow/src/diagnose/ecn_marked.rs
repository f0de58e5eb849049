//! # ecn-marked
//!
//! A queue on the path marked packets instead of dropping them: it has active queue management with ECN.
//!
//! ## How it is measured
//!
//! Data packets with CE where the capture is behind the queue, else ACKs with ECE from the receiver. At least ten
//! of either; always info.
//!
//! Minimum: 30 segments.
//!
//! ## Evidence
//!
//! `ecn_ce` (data packets marked CE), `ecn_ece` (ACKs with ECE), `ce_share` (0 … 1 of the data packets),
//! `queue_ms_p95`, `loss_rate`.
//!
//! ## What cures it
//!
//! No cure is needed: this is the bottleneck, and it signals early. If the delay is still high, its target is set
//! too high, or another queue is before it.
//!
//! ## Traps
//!
//! - A capture in front of the bottleneck contains no CE, only ECE.
//! - ECE is repeated until CWR is seen: many ECE ACKs can be one mark.
//! - Some old equipment sets these bits as type of service.
//!
//! ## Sources
//!
//! RFC 3168 (ECN), RFC 9331 (L4S).

use super::reading::{Values, counted, data_end, data_start, percent, ratio};
use super::{Check, Rule, page::page};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};

/// Fewer marks may be bits set by mistake.
const MIN_MARKS: u64 = 10;
const MIN_PACKETS: u64 = 30;

pub(super) const RULE: Rule = Rule {
    name: "ecn-marked",
    about: "a queue on the path marks packets (ECN)",
    source: "RFC 3168; RFC 9331",
    page: page!("ecn_marked.rs"),
    check: Check::Flow(check),
};

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    if flow.ecn_ce.max(flow.ecn_ece) < MIN_MARKS || flow.data_packets < MIN_PACKETS {
        return None;
    }
    let share = ratio(flow.ecn_ce as f64, flow.data_packets as f64);
    let mut v = Values::default();
    v.number("ecn_ce", flow.ecn_ce as f64)
        .number("ecn_ece", flow.ecn_ece as f64)
        .number("ce_share", share)
        .number("queue_ms_p95", flow.queue_ms.map(|q| q.p95))
        .number("loss_rate", flow.loss_rate);
    let seen = match flow.ecn_ce {
        0 => format!("{} ECE", counted(flow.ecn_ece, "ACK carried", "ACKs carried")),
        n => format!(
            "{} CE ({})",
            counted(n, "data packet carried", "data packets carried"),
            percent(share)
        ),
    };
    Some(Finding {
        rule: RULE.name,
        severity: Severity::Info,
        flow: Some(flow.id),
        from: data_start(e),
        to: data_end(e),
        values: v.take(),
        text: format!("{seen}: a queue on the path marks packets instead of dropping them."),
        cure: "No cure is needed; if the delay is still high, the target of that queue is too high, or another queue is \
               before it.",
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Case;
    use super::*;

    fn marks(ce: u64, ece: u64) -> Option<Finding> {
        let mut case = Case::transfer(10, |_, _| {});
        (case.flow.ecn_ce, case.flow.ecn_ece, case.flow.data_packets) = (ce, ece, 1_000);
        check(&case.evidence())
    }

    #[test]
    fn ten_marks_or_echoes_are_a_marking_queue() {
        assert!(marks(9, 9).is_none());
        assert!(
            marks(10, 0).is_some_and(|f| f.text.starts_with("10 data packets carried CE (1.0 %)"))
        );
        assert!(marks(0, 10).is_some_and(|f| f.text.starts_with("10 ACKs carried ECE")));
    }
}
