//! # application-limited
//!
//! The sender had nothing to send for a large part of the time: neither the network nor a window limited the
//! transfer.
//!
//! ## How it is measured
//!
//! Time in which the sender left both windows unused and had sent all its data (limit `application`), over the
//! time of all limits. From 30 % on it is reported, always as info: it is a fact about the program, not a fault
//! of the path.
//!
//! Minimum: 100 KB in 30 segments over 2 s.
//!
//! ## Evidence
//!
//! `application_share` (0 … 1), `idle_count`, `idle_s` (pauses longer than an RTT with nothing in flight),
//! `goodput_bps`, `peak_bps`, `cause` (see below).
//!
//! ## What cures it
//!
//! Nothing on the network cures the pauses. Look at the sending program: disk, processor, a protocol that waits for each
//! response before the next request, a player that fetches in pieces, a small send buffer.
//!
//! What costs time while the program does send is named as well, where another finding of the flow shows it. `cause` is
//! `receiver` for `zero-window`, `outage` for `no-answer` of a receiver that is there, and `queue` for a warning of
//! `bufferbloat`. Else it is `program`.
//!
//! ## Traps
//!
//! - Keep-alive connections of web servers are normally idle.
//! - A small send buffer (SO_SNDBUF) looks the same from outside: the sender has data, but not in the socket.
//! - Pauses caused by the other direction count as well, for example when a slow upload delays the next request.
//!
//! ## Sources
//!
//! Zhang et al., "On the characteristics and origins of Internet flow rates", SIGCOMM 2002 (T-RAT). Siekkinen
//! et al., "A root cause analysis toolkit for TCP", Computer Networks 52(9), 2008.

use super::reading::{Values, data_start, end_where, enough_data, percent, rate, share};
use super::{Check, Rule, bufferbloat, no_answer, page::page, zero_window};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Limit, Severity};
use units::Duration;

/// Share of time from which the application is a main cause.
const MAIN: f64 = 0.30;
/// In a shorter flow one or two pauses are most of the time.
const MIN_ACTIVE: Duration = Duration::from_secs(2);

pub(super) const RULE: Rule = Rule {
    name: "application-limited",
    about: "the sender had nothing to send",
    source: "T-RAT (SIGCOMM 2002); root cause analysis (Computer Networks 2008)",
    page: page!("application_limited.rs"),
    check: Check::Flow(check),
};

/// What costs time while the sender has data, by the other findings of this flow, and the cure of both.
fn cause(e: &Evidence<'_>) -> (&'static str, &'static str) {
    if zero_window::check(e).is_some() {
        (
            "receiver",
            "The pauses are the sending program's. While it sends, the receiver's closed window costs time: look at the \
             application there.",
        )
    } else if matches!(no_answer::cause_reported(e), Some("outage" | "one way")) {
        (
            "outage",
            "The pauses are the sending program's. While it sends, lost segments cost time: look for a link that loses.",
        )
    } else if bufferbloat::check(e).is_some_and(|f| f.severity >= Severity::Warning) {
        (
            "queue",
            "The pauses are the sending program's. While it sends, a queue delays it: smart queue management (fq_codel, \
             CAKE) in front of the slow link.",
        )
    } else {
        (
            "program",
            "Nothing on the network: look at the sending program (disk, processor, waiting for answers, small send buffer).",
        )
    }
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    if !enough_data(e) || flow.active < MIN_ACTIVE {
        return None;
    }
    let idle = share(e, Limit::Application);
    if idle < MAIN {
        return None;
    }
    let (goodput, peak) = (flow.goodput.map(|r| r.0 as f64), flow.peak.map(|r| r.0 as f64));
    let (cause, cure) = cause(e);
    let mut v = Values::default();
    v.number("application_share", idle)
        .number("idle_count", flow.idle_count as f64)
        .number("idle_s", flow.idle.as_secs_f64())
        .number("goodput_bps", goodput)
        .number("peak_bps", peak)
        .text("cause", cause);
    let rates = match goodput.zip(peak) {
        Some((mean, best)) => {
            format!(": {} on average, {} in the best second", rate(mean), rate(best))
        }
        None => String::new(),
    };
    Some(Finding {
        rule: RULE.name,
        severity: Severity::Info,
        flow: Some(flow.id),
        from: data_start(e),
        to: end_where(e, |b| b.limit_ns[Limit::Application as usize] > 0),
        values: v.take(),
        text: format!("The sender had nothing to send for {} of the time{rates}.", percent(idle)),
        cure,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;
    use crate::series::evidence::Silence;

    fn idle_for(seconds: f64) -> Case {
        Case::transfer(10, |t, bin| {
            bin.limit(if t < seconds { Limit::Application } else { Limit::Bottleneck })
        })
    }

    #[test]
    fn thirty_percent_is_the_boundary() {
        assert!(check(&idle_for(2.9).evidence()).is_none());
        let f = check(&idle_for(3.0).evidence()).expect("application");
        assert_eq!((f.severity, f.number("application_share")), (Severity::Info, 0.3));
        assert!(f.text.contains("30 % of the time"), "{}", f.text);
    }

    #[test]
    fn what_costs_time_while_the_program_sends_is_named_beside_its_pauses() {
        let cause = |change: &dyn Fn(&mut Case)| {
            let mut case = idle_for(5.0);
            change(&mut case);
            let f = check(&case.evidence()).expect("application");
            assert_eq!(f.cure.starts_with("Nothing on the network"), f.word("cause") == "program");
            f.word("cause").to_owned()
        };
        assert_eq!(cause(&|_| {}), "program");
        let closed = |ms| {
            move |c: &mut Case| {
                (c.flow.zero_window_count, c.flow.zero_window) = (1, Duration::from_millis(ms));
            }
        };
        assert_eq!([cause(&closed(49)), cause(&closed(50))], ["program", "receiver"]);
        let mut queue = Case::transfer(10, |t, bin| {
            bin.limit(if t < 5.0 { Limit::Application } else { Limit::Bottleneck });
            bin.rtt(if t < 5.0 { 50.0 } else { 150.0 });
        });
        let found = check(&queue.evidence()).expect("application");
        assert_eq!((found.word("cause"), found.cure.contains("smart queue")), ("queue", true));
        queue.flow.queue_ms.as_mut().expect("queue").count = 5;
        assert_eq!(check(&queue.evidence()).expect("application").word("cause"), "program");
        let silence = |c: &mut Case| {
            c.silences.count = 1;
            c.silences.longest = Some(Silence {
                since: at(1.0),
                until: at(2.0),
                repeats: 2,
                received: 0,
                answered: true,
            });
        };
        assert_eq!(cause(&silence), "outage");
    }

    #[test]
    fn a_short_or_small_flow_is_not_judged() {
        let mut case = idle_for(10.0);
        case.flow.active = Duration::from_millis(1_999);
        assert!(check(&case.evidence()).is_none());
        let mut case = idle_for(10.0);
        case.flow.data_packets = 29;
        case.flow.mss = 0;
        assert!(check(&case.evidence()).is_none());
    }
}
