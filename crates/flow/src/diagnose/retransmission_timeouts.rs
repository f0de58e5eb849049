//! # retransmission-timeouts
//!
//! The sender waited for its retransmission timer: each time the transfer stopped for 200 ms or more and started
//! again with one segment.
//!
//! ## How it is measured
//!
//! Timeouts are counted as events, not as retransmitted segments. The timer that fires again before an answer came
//! (its back-off) belongs to the same stop, and a stop that nothing ended belongs to `no-answer`. At least two stops. *Spurious* ones, where the data had
//! arrived and only its ACK was late, show a sudden delay (a radio handover, a queue that grew) instead of loss.
//! The text mentions it when at least half of the segments retransmitted after timeouts may be spurious. Where other
//! segments of the flow were lost, or the other direction waited for an answer as well, their ACKs may have been lost
//! instead of late. A warning
//! from three stops, or one per ten seconds, on.
//!
//! Minimum: 30 segments.
//!
//! ## Evidence
//!
//! `timeouts`, `stops`, `timeouts_per_min` (stops per minute of active time), `retransmissions_timeout`, `retransmissions_tail_probe`,
//! `retransmissions_spurious`, `loss_rate`, `rtt_ms_p95`, `cause` (`loss`; of spurious ones `delay`, or `acks`: late or lost).
//!
//! ## What cures it
//!
//! Tail-loss probes and RACK at the sender (RFC 8985) turn most timeouts into fast retransmissions, F-RTO
//! (RFC 5682) undoes the spurious ones. Losses of whole windows come from buffers that overflow: see
//! `loss-limited`.
//!
//! ## Traps
//!
//! - When the peer has gone, timeouts belong to the end of the connection, not to its speed.
//! - In a capture at the receiver a timeout is inferred from the pause; a tail-loss probe looks the same.
//!
//! ## Sources
//!
//! RFC 6298 (the timer), RFC 5682 (F-RTO), RFC 8985 (RACK-TLP).

use super::loss_limited::{MIN_LOSSES, NOTABLE};
use super::reading::{Values, counted, data_start, end_where, ratio};
use super::{Check, Rule, page::page};
use crate::diagnose::sender::cure_at_sender;
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Limit, Severity};
use units::Duration;

/// One timeout may be chance.
const MIN_TIMEOUTS: u64 = 2;
const MIN_PACKETS: u64 = 30;
/// From this many on it is a warning, whatever the duration.
const MANY: u64 = 3;
/// From this many per minute on it is a warning: one in ten seconds.
const OFTEN: f64 = 6.0;

pub(super) const RULE: Rule = Rule {
    name: "retransmission-timeouts",
    about: "the sender stopped until its retransmission timer fired",
    source: "RFC 6298; RFC 5682; RFC 8985",
    page: page!("retransmission_timeouts.rs"),
    check: Check::Flow(check),
};

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    let unanswered = e.silences.longest.is_some_and(|s| !s.answered);
    let stops = flow.timeouts.saturating_sub(e.silences.backoffs + u64::from(unanswered));
    if stops < MIN_TIMEOUTS || flow.segments() < MIN_PACKETS {
        return None;
    }
    let per_minute = ratio(stops as f64 * 60.0, flow.active.as_secs_f64());
    let spurious = flow.retransmissions_spurious * 2 >= flow.retransmissions_timeout.max(1);
    let lost = flow.retransmissions.saturating_sub(flow.retransmissions_spurious);
    // A path that loses data as `loss-limited` counts it loses ACKs too.
    let loses = flow.loss_rate.is_some_and(|p| p >= NOTABLE) && lost >= MIN_LOSSES;
    let waits = e.reverse.limit_time[Limit::Timeout as usize] > Duration::ZERO;
    let cause = match spurious {
        true if loses || waits => "acks",
        true => "delay",
        false => "loss",
    };
    let mut v = Values::default();
    v.number("timeouts", flow.timeouts as f64)
        .number("stops", stops as f64)
        .number("timeouts_per_min", per_minute)
        .number("retransmissions_timeout", flow.retransmissions_timeout as f64)
        .number("retransmissions_tail_probe", flow.retransmissions_tail_probe as f64)
        .number("retransmissions_spurious", flow.retransmissions_spurious as f64)
        .number("loss_rate", flow.loss_rate)
        .number("rtt_ms_p95", flow.rtt_ms.map(|q| q.p95))
        .text("cause", cause);
    Some(Finding {
        rule: RULE.name,
        severity: if stops >= MANY || per_minute >= OFTEN {
            Severity::Warning
        } else {
            Severity::Info
        },
        flow: Some(flow.id),
        from: data_start(e),
        to: end_where(e, |b| b.retransmissions > 0),
        values: v.take(),
        text: format!(
            "The transfer stopped {} until the retransmission timer fired, and {} retransmitted{}.",
            counted(stops, "time", "times"),
            counted(flow.retransmissions_timeout, "segment was", "segments were"),
            match cause {
                "delay" =>
                    "; at least half of them may have arrived already: a sudden delay rather than loss",
                "acks" =>
                    "; at least half of them may have arrived already: their ACKs were late or lost",
                _ => "",
            },
        ),
        cure: cure_at_sender!(
            e.flow,
            "RACK with tail-loss probes and F-RTO at the sender; where whole windows are lost, a shorter queue with ECN. ",
            ".",
            not_needed: "RACK with tail-loss probes and F-RTO at the sender; where whole windows are lost, a shorter queue \
                         with ECN. ",
            "."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Case;
    use super::*;

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
        let cause = |case: &Case| {
            let f = check(&case.evidence()).expect("timeouts");
            assert_eq!(
                f.text.contains("sudden delay rather than loss"),
                f.word("cause") == "delay"
            );
            f.word("cause").to_owned()
        };
        assert_eq!(cause(&case), "delay");
        case.reverse.limit_time[Limit::Timeout as usize] = Duration::from_secs(8);
        assert_eq!(cause(&case), "acks", "both directions lost packets");
        case.reverse.limit_time[Limit::Timeout as usize] = Duration::ZERO;
        (case.flow.retransmissions, case.flow.loss_rate) = (20, Some(0.02));
        assert_eq!(cause(&case), "acks", "the path loses");
        case.flow.retransmissions_spurious = 1;
        assert_eq!(cause(&case), "loss");
    }
}
