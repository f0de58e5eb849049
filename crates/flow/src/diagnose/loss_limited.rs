//! # loss-limited
//!
//! Lost packets kept the congestion window small.
//!
//! ## How it is measured
//!
//! Loss rate p = segments retransmitted and not spurious, over data segments. The rule needs three of them, and
//! either 1 % of loss, or 0.1 % together with 20 % of the time in the limit `congestion_window`. It is a warning
//! with 1 % of loss and 20 % of the time, or with half of the time. Loss of 1 % with less than 20 % of the time
//! did not limit the rate and is info.
//!
//! What is repeated in a time without an answer that `no-answer` reports is no loss. The span ends where that time
//! begins, or begins where it ends if more was lost afterwards. In a capture beside the receiver, segments that had
//! passed it and were sent again are no loss either. The receiver's host dropped or refused them, as behind a closed
//! window.
//!
//! The Mathis bound MSS / RTT · 1.22 / √p is the rate of Reno with that loss at the loaded RTT. CUBIC may reach
//! more with a large BDP, and BBR is not limited by it. With a goodput below twice the bound, the loss explains
//! the rate.
//!
//! Loss with a queue (p95 of the delay 30 ms or more) is the overflow of a buffer. Loss without one comes from
//! radio, a policer, a tiny buffer or a bad cable.
//!
//! Minimum: 100 KB in 30 segments over 1 s.
//!
//! ## Evidence
//!
//! `loss_rate` (0 … 1), `retransmissions`, `retransmissions_fast`, `retransmissions_timeout`,
//! `congestion_window_share` (0 … 1), `mathis_bps`, `goodput_bps`, `goodput_over_mathis`, `rtt_ms_p50`,
//! `queue_ms_p95`, `cause` (`overflow` or `path`).
//!
//! ## What cures it
//!
//! With cause `overflow`: smart queue management with ECN at the slow link, or BBR. With cause `path`: repair
//! the link (radio, cable, duplex), use a sender that does not treat each loss as congestion (BBR), or, with a
//! policer, pacing.
//!
//! ## Traps
//!
//! - A flow that ends in slow start loses one burst and no more. Below 1 % of loss the share of time prevents a
//!   finding.
//! - Reordering taken for loss by the sender is counted as spurious where DSACK or timestamps show it, and does
//!   not count here.
//! - The Mathis bound assumes independent losses. A burst of losses has the effect of one, so the true bound is
//!   higher.
//!
//! ## Sources
//!
//! Mathis, Semke, Mahdavi, Ott, "The macroscopic behavior of the TCP congestion avoidance algorithm", CCR
//! 27(3), 1997 (C = √(3/2) = 1.22). TCP Tracing parts 1 and 7.

use super::reading::{Values, data_start, end_where, enough_data, percent, rate, ratio, share};
use super::{Check, Rule, no_answer, page::page};
use crate::congestion_control::CongestionControl;
use crate::diagnose::sender::{control, cure_at_sender};
use crate::series::evidence::{Evidence, Silence};
use crate::series::rows::{Finding, Limit, Severity};
use units::Instant;

/// Loss rate reported in any case, and that reported together with the share of time.
const HIGH: f64 = 0.01;
pub(super) const NOTABLE: f64 = 0.001;
/// Share of time limited by the congestion window that confirms it, and that makes it the main cause.
const CONFIRMED: f64 = 0.20;
const MAIN: f64 = 0.50;
/// Fewer losses may be chance.
pub(super) const MIN_LOSSES: u64 = 3;
/// √(3/2): constant of the bound for Reno with an ACK per segment and periodic loss.
const MATHIS: f64 = 1.22;
/// Queueing delay (ms) of a buffer that may overflow: grade B.
const QUEUE_MS: f64 = 30.0;

pub(super) const RULE: Rule = Rule {
    name: "loss-limited",
    about: "lost packets keep the congestion window small",
    source: "Mathis et al. (CCR 1997)",
    page: page!("loss_limited.rs"),
    check: Check::Flow(check),
};

/// First and last loss: of the side of `silence` that has more of them, since it is reported by itself.
fn span(e: &Evidence<'_>, silence: Option<Silence>) -> (Instant, Instant) {
    let whole = (data_start(e), end_where(e, |b| b.retransmissions > 0));
    let Some(silence) = silence else { return whole };
    let (mut before, mut after) = (0, 0);
    for (i, bin) in e.profile.bins().iter().enumerate() {
        if e.profile.time_of(i) < silence.since {
            before += bin.retransmissions;
        } else if e.profile.time_of(i) >= silence.until {
            after += bin.retransmissions;
        }
    }
    if after > before {
        (whole.0.max(silence.until), whole.1.max(silence.until))
    } else {
        (whole.0.min(silence.since), whole.1.min(silence.since))
    }
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    let silence = no_answer::reported(e);
    let elsewhere = e.refused + silence.map_or(0, |s| s.repeats);
    let lost = flow.retransmissions.saturating_sub(flow.retransmissions_spurious + elsewhere);
    let loss = match elsewhere {
        0 => flow.loss_rate?,
        _ => ratio(lost as f64, flow.segments() as f64),
    }
    .min(1.0);
    let window = share(e, Limit::CongestionWindow);
    let little = loss < NOTABLE || lost < MIN_LOSSES || (loss < HIGH && window < CONFIRMED);
    if little || !enough_data(e) {
        return None;
    }
    let (from, to) = span(e, silence);
    let rtt = flow.loaded_rtt_ms.or(flow.rtt_ms).map(|q| q.p50).filter(|r| *r > 0.0);
    let mathis = rtt.map(|r| f64::from(flow.mss) * 8.0 / (r / 1e3) * MATHIS / loss.sqrt());
    let goodput = flow.goodput.map_or(0.0, |r| r.0 as f64);
    let queue = flow.queue_ms.map(|q| q.p95);
    let overflow = queue.is_some_and(|q| q >= QUEUE_MS);
    let mut v = Values::default();
    v.number("loss_rate", loss)
        .number("retransmissions", flow.retransmissions as f64)
        .number("retransmissions_fast", flow.retransmissions_fast as f64)
        .number("retransmissions_timeout", flow.retransmissions_timeout as f64)
        .number("congestion_window_share", window)
        .number("mathis_bps", mathis)
        .number("goodput_bps", goodput)
        .number("goodput_over_mathis", mathis.map(|m| ratio(goodput, m)))
        .number("rtt_ms_p50", rtt)
        .number("queue_ms_p95", queue)
        .text("cause", if overflow { "overflow" } else { "path" });
    let bound = mathis.map_or(String::new(), |m| {
        format!("; the Mathis bound at that loss is {}, the goodput was {}", rate(m), rate(goodput))
    });
    Some(Finding {
        rule: RULE.name,
        severity: if (loss >= HIGH && window >= CONFIRMED) || window >= MAIN {
            Severity::Warning
        } else {
            Severity::Info
        },
        flow: Some(flow.id),
        from,
        to,
        values: v.take(),
        text: format!(
            "{} of the segments were lost {}; {}{bound}.",
            percent(loss),
            if overflow { "behind a queue that ran over" } else { "without a queue in the way" },
            if window >= CONFIRMED {
                format!(
                    "the congestion window held the flow back for {} of the time",
                    percent(window)
                )
            } else {
                "that did not set the rate".to_owned()
            },
        ),
        cure: if overflow {
            cure_at_sender!(
                e.flow,
                "Smart queue management with ECN (fq_codel, CAKE) at the slow link signals before the buffer runs over. ",
                ": it does not fill the buffer.",
                not_needed: "Smart queue management with ECN (fq_codel, CAKE) at the slow link signals before the buffer \
                             runs over. ",
                "."
            )
        } else if control(e.flow) == Some(CongestionControl::DelayBased) {
            "Look for the loss on the link (radio, cable, policer, tiny buffer). Use BBR at the sender (its congestion \
             control is delay-based): it does not take such loss for congestion."
        } else {
            cure_at_sender!(
                e.flow,
                "Look for the loss on the link (radio, cable, policer, tiny buffer). ",
                ": it does not take such loss for congestion.",
                not_needed: "Look for the loss on the link (radio, cable, policer, tiny buffer). ",
                ", which does not take such loss for congestion."
            )
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;

    fn lossy(loss: f64, seconds_held: f64) -> Case {
        let mut case = Case::transfer(10, |t, bin| {
            bin.limit(if t < seconds_held { Limit::CongestionWindow } else { Limit::Unknown });
        });
        case.flow.loss_rate = Some(loss);
        case.flow.retransmissions = (case.flow.data_packets as f64 * loss).ceil() as u64;
        case
    }

    #[test]
    fn two_percent_without_a_queue_is_the_path() {
        let f = check(&lossy(0.02, 9.0).evidence()).expect("loss");
        assert_eq!((f.severity, f.word("cause")), (Severity::Warning, "path"));
        // 1448 · 8 / 0.05 · 1.22 / √0.02
        assert!(
            (f.number("mathis_bps") / 1.9987e6 - 1.0).abs() < 0.01,
            "{}",
            f.number("mathis_bps")
        );
        assert!(f.number("goodput_over_mathis") > 1.9);
    }

    #[test]
    fn loss_behind_a_queue_is_an_overflow() {
        let mut case = lossy(0.02, 9.0);
        if let Some(q) = &mut case.flow.queue_ms {
            q.p95 = 250.0;
        }
        let f = check(&case.evidence()).expect("loss");
        assert!(f.word("cause") == "overflow" && f.cure.contains("ECN"));
    }

    #[test]
    fn little_loss_needs_the_limits_to_confirm_it() {
        assert!(check(&lossy(0.005, 1.9).evidence()).is_none());
        assert_eq!(check(&lossy(0.005, 2.0).evidence()).map(|f| f.severity), Some(Severity::Info));
        assert_eq!(
            check(&lossy(0.005, 5.0).evidence()).map(|f| f.severity),
            Some(Severity::Warning)
        );
        assert_eq!(check(&lossy(0.01, 1.9).evidence()).map(|f| f.severity), Some(Severity::Info));
        assert_eq!(
            check(&lossy(0.01, 2.0).evidence()).map(|f| f.severity),
            Some(Severity::Warning)
        );
        assert!(check(&lossy(0.0009, 10.0).evidence()).is_none());
    }

    #[test]
    fn what_is_repeated_in_a_silence_is_no_loss_and_the_span_does_not_run_into_it() {
        let with = |early: u32| {
            let mut case = Case::transfer(20, |t, bin| {
                bin.retransmissions = if t < 1.0 { early } else { u32::from(t >= 5.0) };
            });
            case.flow.loss_rate =
                Some(case.flow.retransmissions as f64 / case.flow.segments() as f64);
            case.silences.longest = Some(Silence {
                since: at(5.0),
                until: at(20.0),
                repeats: 150,
                received: 0,
                answered: false,
            });
            check(&case.evidence())
        };
        assert!(with(0).is_none(), "nothing but the silence");
        let f = with(20).expect("loss");
        assert_eq!((f.from, f.to), (at(0.0), at(5.0)));
        assert!((f.number("loss_rate") - 200.0 / 6_906.0).abs() < 1e-4, "{}", f.text);
    }

    #[test]
    fn losses_after_a_silence_begin_behind_it() {
        let mut case = Case::transfer(20, |t, bin| bin.retransmissions = 4 * u32::from(t >= 15.0));
        case.flow.loss_rate = Some(0.03);
        case.silences.longest = Some(Silence {
            since: at(5.0),
            until: at(8.0),
            repeats: 3,
            received: 0,
            answered: true,
        });
        let f = check(&case.evidence()).expect("loss");
        assert_eq!((f.from, f.to), (at(8.0), at(20.0)));
    }

    #[test]
    fn what_passed_beside_the_receiver_was_not_lost_on_the_path() {
        let mut case = lossy(0.02, 9.0);
        case.refused = case.flow.retransmissions - 2;
        assert!(check(&case.evidence()).is_none());
    }

    #[test]
    fn spurious_retransmissions_are_no_loss() {
        let mut case = lossy(0.02, 9.0);
        case.flow.retransmissions_spurious = case.flow.retransmissions - 2;
        assert!(check(&case.evidence()).is_none());
    }
}
