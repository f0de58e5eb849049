//! # retransmission-timeouts
//!
//! The sender waited for its retransmission timer: every time the transfer stood still for 200 ms or more and
//! began anew with one segment.
//!
//! ## How it is measured
//!
//! Timeouts are counted as events, not as resent segments. At least two. *Spurious* ones, where the data had
//! arrived and only its acknowledgement was late, are a sign of sudden delay (a radio handover, a queue that
//! jumped) instead of loss: said when at least half of the segments resent after timeouts could be spurious.
//! A warning from three timeouts, or one per ten seconds, on.
//!
//! Minimum: 30 segments.
//!
//! ## Evidence
//!
//! `timeouts`, `timeouts_per_min` (of active time), `retransmissions_timeout`, `retransmissions_tail_probe`,
//! `retransmissions_spurious`, `loss_rate`, `rtt_ms_p95`.
//!
//! ## What cures it
//!
//! Tail-loss probes and RACK at the sender (RFC 8985) turn most timeouts into fast retransmissions, F-RTO
//! (RFC 5682) undoes the spurious ones. Losses of whole windows come from buffers that run over: see
//! `loss-limited`.
//!
//! ## Traps
//!
//! - The first timeouts of a connection whose peer has gone away belong to its death, not to its speed.
//! - At the receiver a timeout is inferred from the pause; a tail-loss probe looks alike.
//!
//! ## Sources
//!
//! RFC 6298 (the timer), RFC 5682 (F-RTO), RFC 8985 (RACK-TLP).

use super::reading::{Values, began, counted, ratio, segments};
use super::{Check, Rule, page::page};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};

/// One may be chance.
const LEAST: u64 = 2;
const LEAST_PACKETS: u64 = 30;
/// From this many on it costs something, whatever the length …
const MANY: u64 = 3;
/// … and from this many per minute: one in ten seconds.
const OFTEN: f64 = 6.0;

pub(super) const RULE: Rule = Rule {
    name: "retransmission-timeouts",
    about: "the sender stood still until its timer fired",
    source: "RFC 6298; RFC 5682; RFC 8985",
    page: page!("retransmission_timeouts.rs"),
    check: Check::Flow(check),
};

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    if flow.timeouts < LEAST || segments(flow) < LEAST_PACKETS {
        return None;
    }
    let per_minute = ratio(flow.timeouts as f64 * 60.0, flow.active.as_secs_f64());
    let spurious = flow.retransmissions_spurious * 2 >= flow.retransmissions_timeout.max(1);
    let mut v = Values::default();
    v.number("timeouts", flow.timeouts as f64)
        .number("timeouts_per_min", per_minute)
        .number("retransmissions_timeout", flow.retransmissions_timeout as f64)
        .number("retransmissions_tail_probe", flow.retransmissions_tail_probe as f64)
        .number("retransmissions_spurious", flow.retransmissions_spurious as f64)
        .number("loss_rate", flow.loss_rate)
        .number("rtt_ms_p95", flow.rtt_ms.map(|q| q.p95));
    Some(Finding {
        rule: RULE.name,
        severity: if flow.timeouts >= MANY || per_minute >= OFTEN {
            Severity::Warning
        } else {
            Severity::Info
        },
        flow: Some(flow.id),
        from: began(e),
        to: e.connection.end,
        values: v.take(),
        text: format!(
            "The retransmission timer fired {} and {} sent again{}.",
            counted(flow.timeouts, "time", "times"),
            counted(flow.retransmissions_timeout, "segment was", "segments were"),
            if spurious {
                "; at least half of them may have arrived already: a jump in delay rather than loss"
            } else {
                ""
            },
        ),
        cure: "RACK with tail-loss probes and F-RTO at the sender; where whole windows are lost, a shorter queue with ECN or \
               BBR.",
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Case;
    use super::*;
    use units::Duration;

    fn timeouts(count: u64, active_s: u64) -> Option<Finding> {
        let mut case = Case::transfer(10, |_, _| {});
        case.flow.timeouts = count;
        case.flow.retransmissions_timeout = count * 4;
        case.flow.active = Duration::from_secs(active_s);
        check(&case.evidence())
    }

    #[test]
    fn one_is_chance_two_are_worth_knowing_three_cost() {
        assert!(timeouts(1, 60).is_none());
        assert_eq!(timeouts(2, 60).map(|f| f.severity), Some(Severity::Info));
        assert_eq!(timeouts(3, 60).map(|f| f.severity), Some(Severity::Warning));
        assert_eq!(timeouts(2, 20).map(|f| f.severity), Some(Severity::Warning));
    }

    #[test]
    fn spurious_timeouts_speak_of_delay() {
        let mut case = Case::transfer(10, |_, _| {});
        (case.flow.timeouts, case.flow.retransmissions_timeout) = (4, 4);
        assert!(check(&case.evidence()).is_some_and(|f| !f.text.contains("jump")));
        case.flow.retransmissions_spurious = 2;
        assert!(check(&case.evidence()).is_some_and(|f| f.text.contains("jump in delay")));
    }
}
