//! # no-answer
//!
//! The sender repeated its segments for seconds, and nothing new was acknowledged.
//!
//! ## How it is measured
//!
//! A time without an answer runs from a retransmission timeout to the next new acknowledgement (cumulative or
//! SACK), or to the end of the flow. It is the limit `timeout`. In that time no window is counted as full, and no
//! figure about windows is derived from it. The finding describes the longest one. From 1 s on it is info. From 3 s on
//! it is a warning: after that the timer has backed off at least twice.
//!
//! *Which side fell silent* follows from the packets of the receiver in that time. Without any, the receiver or the path
//! is gone; `silent` is then `receiver`. With some, the receiver lives but does not get the data, or drops it; `silent`
//! is then `acknowledgements`.
//!
//! Minimum: two repeated segments in 1 s. Small connections are judged as well, because a silent peer needs no bulk
//! transfer. Where the receiver sends packets in that time, it must be longer than the p95 of the RTT: behind a queue the
//! answer is not due before.
//!
//! ## Evidence
//!
//! - `silence_s_longest`, `silence_count`, `silence_s` (all of them), `first_s` (the longest, after the first data).
//! - `repeats` (segments repeated in the longest), `packets_from_receiver` (in the longest), `silent`.
//! - `end` (`answered`, `reset by the sender`, `reset by the receiver` or `open`), `cause` (see below).
//! - `receiver_closed_s` (how long before it the receiver had closed its side).
//!
//! ## What cures it
//!
//! By `cause`:
//!
//! - `gone`, nothing came any more: find out what is gone. It is the host (off, asleep, out of coverage) or the path (a NAT
//!   or firewall that forgot the connection, a failed link). A capture beside the other host shows which.
//! - `host`, the capture was taken beside a receiver that does not answer: look at that host.
//! - `outage`, the receiver answered a later repeat: it was there, and the link lost the others or was down.
//! - `one way`, the receiver still sends: look for a path that loses in one direction only. Where nothing was answered any
//!   more, full segments may not pass (MTU).
//! - `closed`, the receiver had closed its side a minute or more before: nothing on the network. Hosts forget such a
//!   connection (FIN-WAIT-2, 60 s in Linux); the sender should close as well.
//!
//! ## Traps
//!
//! - In a capture at the receiver the repeated segments that were lost do not show. There the time begins with the
//!   first one that arrives.
//! - A host that leaves (a phone, a notebook) looks the same as a path that fails.
//! - A lost ACK is no silence at the receiver: the sender repeats what the capture has seen acknowledged.
//!
//! ## Sources
//!
//! RFC 6298 section 5 (the timer and its back-off). RFC 9293 section 3.8.3 (when a connection is given up). RFC 4821
//! (MTU black holes).

use super::reading::{Values, clock, counted, ms, seconds, seconds_into};
use super::{Check, Rule, page::page};
use crate::series::evidence::{Evidence, Silence};
use crate::series::rows::{Finding, Severity, Vantage};
use units::Duration;

/// Seconds from which it is reported: the smallest timer that RFC 6298 allows.
const MENTION_S: f64 = 1.0;
/// Seconds from which it is a warning: 1 s doubled once is over.
const COSTS_S: f64 = 3.0;
/// One repeated segment may be chance.
const MIN_REPEATS: u64 = 2;
const CURE_GONE: &str = "Find out what is gone: the host (off, asleep, out of coverage) or the path (a failed link, a NAT or firewall \
                         that forgot the connection). A ping to it at that time, or a capture beside it, shows which.";
const CURE_HOST: &str =
    "The segments arrived beside the receiver: look at that host, its firewall and its load.";
const CURE_OUTAGE: &str = "Nothing is gone: a later repeat was answered. Look for a link that loses, or was down for that time: a weak \
                           radio signal, a handover, a bad cable. Captures at both ends show in which direction.";
const CURE_ONE_WAY: &str = "The receiver lives: look for a link that loses in this direction only (a weak radio signal, a bad cable), or a \
                            filter. A capture beside the receiver shows whether the segments arrive.";
const CURE_NEVER: &str = "The receiver lives: look for a path that loses in this direction only, for a filter, and for full segments that \
                          do not pass (MTU). A capture beside the receiver shows whether they arrive.";
const CURE_CLOSED: &str = "Nothing on the network: the receiver had closed the connection long before, and hosts forget one that only the \
                           other side keeps open (Linux after 60 s). The sender should close it when the receiver does.";
/// Time after which a host forgets a connection that it closed and the other side keeps open: FIN-WAIT-2, by
/// tcp_fin_timeout of Linux.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// How long before it the receiver had closed the connection, if it had.
fn closed_before(e: &Evidence<'_>, longest: &Silence) -> Option<Duration> {
    e.silences.closed_by_receiver.map(|at| longest.since.since(at))
}

/// What the packets say of the cause: its name in the evidence, and the cure.
fn cause(e: &Evidence<'_>, longest: &Silence) -> (&'static str, &'static str) {
    let silent = longest.received == 0;
    match (silent, longest.answered) {
        (true, false) if closed_before(e, longest).is_some_and(|before| before >= FORGOTTEN) => {
            ("closed", CURE_CLOSED)
        }
        (true, _) if e.flow.vantage == Vantage::Receiver => ("host", CURE_HOST),
        (true, true) => ("outage", CURE_OUTAGE),
        (true, false) => ("gone", CURE_GONE),
        (false, true) => ("one way", CURE_ONE_WAY),
        (false, false) => ("one way", CURE_NEVER),
    }
}

pub(super) const RULE: Rule = Rule {
    name: "no-answer",
    about: "the sender repeated its segments, and nothing was acknowledged",
    source: "RFC 6298 section 5; RFC 9293 section 3.8.3",
    page: page!("no_answer.rs"),
    check: Check::Flow(check),
};

/// How the longest time without an answer ended: for the evidence, and as a clause.
fn ending(e: &Evidence<'_>, longest: &Silence) -> (&'static str, &'static str) {
    if longest.answered {
        ("answered", "then the transfer went on")
    } else if e.silences.reset_by_receiver {
        ("reset by the receiver", "then the receiver reset the connection")
    } else if e.silences.reset_by_sender {
        ("reset by the sender", "then the sender reset the connection")
    } else {
        ("open", "the capture shows no answer any more")
    }
}

/// The longest time without an answer, if it is reported.
pub(super) fn reported(e: &Evidence<'_>) -> Option<Silence> {
    let longest = e.silences.longest.filter(|s| s.repeats >= MIN_REPEATS)?;
    let length = longest.until.since(longest.since).as_secs_f64();
    // A receiver that sends all the time answers what waits in a queue: within the RTT that it shows, no answer is due.
    let due = e.flow.rtt_ms.filter(|_| longest.received > 0).map_or(0.0, |q| q.p95 / 1e3);
    Some(longest).filter(|_| length >= MENTION_S && length > due)
}

/// What is reported as the cause, if the finding is: its name in the evidence.
pub(super) fn cause_reported(e: &Evidence<'_>) -> Option<&'static str> {
    reported(e).map(|longest| cause(e, &longest).0)
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let longest = reported(e)?;
    let length = longest.until.since(longest.since).as_secs_f64();
    let silent = longest.received == 0;
    let (end, ended) = ending(e, &longest);
    let first = seconds_into(e, longest.since);
    let (cause, cure) = cause(e, &longest);
    let mut v = Values::default();
    v.number("silence_s_longest", length)
        .number("silence_count", e.silences.count as f64)
        .number("silence_s", e.silences.time.as_secs_f64())
        .number("first_s", first)
        .number("repeats", longest.repeats as f64)
        .number("packets_from_receiver", longest.received as f64)
        .text("silent", if silent { "receiver" } else { "acknowledgements" })
        .text("end", end)
        .text("cause", cause)
        .number("receiver_closed_s", closed_before(e, &longest).map(Duration::as_secs_f64));
    let side = if silent {
        format!("The receiver fell silent for {}", seconds(length))
    } else {
        format!(
            "The receiver acknowledged nothing new for {}, but sent {}",
            seconds(length),
            counted(longest.received, "packet", "packets")
        )
    };
    let others = e.silences.time.as_secs_f64() - length;
    // Below a second in ms: `0.0 s` would say that there was nothing.
    let length_of = |s: f64| if s < 1.0 { ms(s * 1e3) } else { seconds(s) };
    let more = match e.silences.count - 1 {
        0 => String::new(),
        1 => format!(" There was another silence of {}.", length_of(others)),
        n => format!(" There were {n} shorter silences of {} in all.", length_of(others)),
    };
    Some(Finding {
        rule: RULE.name,
        severity: if length >= COSTS_S { Severity::Warning } else { Severity::Info },
        flow: Some(e.flow.id),
        from: longest.since,
        to: longest.until,
        values: v.take(),
        text: format!(
            "{side}, from {} on. The sender repeated {} meanwhile; {ended}.{more}",
            clock(e, longest.since),
            counted(longest.repeats, "segment", "segments"),
        ),
        cure,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, START, at};
    use super::*;

    use units::Instant;

    fn silence(length_s: f64, repeats: u64, received: u64, answered: bool) -> Case {
        let mut case = Case::transfer(20, |_, _| {});
        let longest =
            Silence { since: at(5.0), until: at(5.0 + length_s), repeats, received, answered };
        case.silences.count = 1;
        case.silences.time = Duration((length_s * 1e9) as u64);
        case.silences.longest = Some(longest);
        case
    }

    #[test]
    fn a_receiver_that_vanished_is_named_with_the_time_of_its_silence() {
        let mut case = silence(12.0, 7, 0, false);
        case.silences.reset_by_sender = true;
        let f = check(&case.evidence()).expect("silence");
        assert_eq!((f.severity, f.from, f.to), (Severity::Warning, at(5.0), at(17.0)));
        assert_eq!((f.word("silent"), f.word("end")), ("receiver", "reset by the sender"));
        assert_eq!((f.number("first_s"), f.number("silence_s_longest")), (5.0, 12.0));
        assert!(
            f.text.starts_with("The receiver fell silent for 12 s, from 105.0 s on"),
            "{}",
            f.text
        );
        assert!(f.text.contains("repeated 7 segments"), "{}", f.text);
        assert_eq!(f.cure, CURE_GONE);
        case.flow.vantage = Vantage::Receiver;
        assert_eq!(check(&case.evidence()).map(|f| f.cure), Some(CURE_HOST));
    }

    #[test]
    fn a_receiver_that_still_sends_does_not_get_the_data() {
        let f = check(&silence(4.0, 4, 3, true).evidence()).expect("silence");
        assert_eq!((f.word("silent"), f.word("end")), ("acknowledgements", "answered"));
        assert!(f.text.contains("but sent 3 packets"), "{}", f.text);
        assert_eq!((f.word("cause"), f.cure), ("one way", CURE_ONE_WAY));
        assert!(!f.cure.contains("MTU"), "the same segments passed in the end");
        let never = check(&silence(4.0, 4, 3, false).evidence()).expect("silence");
        assert_eq!((never.word("cause"), never.cure), ("one way", CURE_NEVER));
    }

    #[test]
    fn a_receiver_that_answered_a_later_repeat_was_not_gone() {
        let f = check(&silence(6.0, 2, 0, true).evidence()).expect("silence");
        assert_eq!((f.word("cause"), f.cure), ("outage", CURE_OUTAGE));
        let gone = check(&silence(6.0, 2, 0, false).evidence()).expect("silence");
        assert_eq!((gone.word("cause"), gone.cure), ("gone", CURE_GONE));
    }

    #[test]
    fn a_receiver_that_closed_a_minute_before_has_forgotten_the_connection() {
        let closed = |before_s: u64, answered| {
            let mut case = silence(4.2, 4, 0, answered);
            let since = at(5.0).since(START).as_nanos();
            case.silences.closed_by_receiver =
                Some(Instant(START.0 + since - before_s * 1_000_000_000));
            check(&case.evidence()).expect("silence").word("cause").to_owned()
        };
        assert_eq!([closed(59, false), closed(60, false)], ["gone", "closed"]);
        assert_eq!(closed(235, true), "outage", "it has not forgotten it");
    }

    #[test]
    fn within_the_round_trip_behind_a_queue_no_answer_is_due() {
        let with = |rtt_ms, received| {
            let mut case = silence(1.5, 2, received, true);
            if let Some(q) = &mut case.flow.rtt_ms {
                q.p95 = rtt_ms;
            }
            check(&case.evidence()).is_some()
        };
        assert_eq!([with(1_600.0, 3), with(1_400.0, 3)], [false, true]);
        assert!(with(1_600.0, 0), "nothing came: the receiver fell silent");
    }

    #[test]
    fn further_silences_have_a_length_that_is_not_zero() {
        let mut case = silence(3.5, 3, 0, true);
        case.silences.count = 2;
        case.silences.time = Duration(3_530_000_000);
        let text = check(&case.evidence()).expect("silence").text;
        assert!(text.ends_with(" There was another silence of 30 ms."), "{text}");
        case.silences.count = 3;
        case.silences.time = Duration(5_500_000_000);
        let text = check(&case.evidence()).expect("silence").text;
        assert!(text.ends_with(" There were 2 shorter silences of 2.0 s in all."), "{text}");
    }

    #[test]
    fn one_second_three_seconds_and_two_repeats_are_the_boundaries() {
        let severity =
            |s, repeats| check(&silence(s, repeats, 0, true).evidence()).map(|f| f.severity);
        assert_eq!([severity(0.9, 2), severity(1.1, 1)], [None, None]);
        assert_eq!([severity(1.1, 2), severity(2.9, 9)], [Some(Severity::Info); 2]);
        assert_eq!(severity(3.1, 2), Some(Severity::Warning));
    }
}
