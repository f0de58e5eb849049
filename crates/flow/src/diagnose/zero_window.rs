//! # zero-window
//!
//! The receiver closed its window: its application did not read, and the sender had to wait.
//!
//! ## How it is measured
//!
//! A span runs from an advertised window of 0 to the first one above zero. Probes are segments of
//! at most one byte at the next sequence number or the one before, inside a span. From 5 % of the
//! life of the connection on it is a warning, from 50 % on serious, else info. The longest span is
//! exact when there is only one; otherwise it is read from the profile, to within two of its bins.
//!
//! Minimum: 50 ms in all and 10 KB delivered, since a window that closes at the end of the connection means
//! nothing.
//!
//! ## Evidence
//!
//! - `zero_window_count`, `zero_window_s`, `zero_window_share` (0 … 1 of the connection's life), `zero_window_s_longest`.
//! - `zero_window_probes`, `first_s` (after the first data), `rwnd_bytes_max`.
//! - `cause` (`application`; `host` where the receiver fell silent afterwards, for longer and for good).
//!
//! ## What cures it
//!
//! Look at the receiving application: a slow disk, a busy processor, a player whose buffer is full (that one
//! is intended). If it reads in bursts, a larger receive buffer bridges the pauses. Flow control by the rate at which
//! the application reads (AFC) recovers from such stalls faster than a window that opens segment by segment. Where
//! `cause` is `host`, look at that host first: one cause explains the closed window and the silence after it.
//!
//! ## Traps
//!
//! - Adaptive video players stop reading on purpose between segments.
//! - Linux probes carry no byte (sequence number next − 1), as keep-alives do; other tools call them
//!   keep-alives.
//! - A firewall or TCP proxy on the path may close the window instead of the receiver.
//!
//! ## Sources
//!
//! RFC 9293 section 3.8.6.1 (probing zero windows). Sanadhya & Sivakumar, "Adaptive flow control for TCP on
//! mobile phones", INFOCOM 2011.

use super::reading::{Values, clock, counted, end_where, percent, ratio, seconds, seconds_into};
use super::{Check, Rule, page::page};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};
use units::{Bytes, Duration};

/// Minimum total time: a shorter wait is not noticed.
const MIN_TIME: Duration = Duration::from_millis(50);
/// Minimum bytes delivered: with fewer the connection hardly carried data.
const MIN_BYTES: Bytes = Bytes(10_000);
/// Share of the connection's time from which it is a warning, and from which it is serious.
const COSTS: f64 = 0.05;
const MOSTLY: f64 = 0.50;
/// A bin with this share of zero window joins the spans of its neighbours.
const WHOLE_BIN: f64 = 0.99;

const CURE_APPLICATION: &str = "Look at the receiving application (disk, processor, a full player buffer); a larger receive buffer bridges \
                                short pauses only.";
const CURE_HOST: &str = "The receiver fell silent later, for longer, and for good: look at that host first (off, overloaded, its \
                         firewall), then at the application that did not read.";

pub(super) const RULE: Rule = Rule {
    name: "zero-window",
    about: "the receiving application reads too slowly",
    source: "RFC 9293 section 3.8.6.1; AFC (INFOCOM 2011)",
    page: page!("zero_window.rs"),
    check: Check::Flow(check),
};

/// The longest span, estimated from the profile: bins of zero window throughout join their neighbours.
fn longest(e: &Evidence<'_>) -> Duration {
    let whole = e.profile.width().as_secs_f64() * WHOLE_BIN;
    let (mut best, mut run) = (Duration::ZERO, Duration::ZERO);
    let mut joined = false;
    for bin in e.profile.bins() {
        let zero = bin.zero_window;
        run = if joined || zero.as_secs_f64() >= whole { run + zero } else { zero };
        joined = zero.as_secs_f64() >= whole;
        best = best.max(run);
    }
    best.min(e.flow.zero_window)
}

/// Whether the receiver fell silent after its window was closed, for longer than that, and never answered again: one host
/// in trouble explains both.
fn host_left(e: &Evidence<'_>) -> bool {
    e.silences.longest.is_some_and(|s| {
        let after = e.flow.zero_window_first.is_some_and(|first| s.since >= first);
        after && s.received == 0 && !s.answered && s.until.since(s.since) > e.flow.zero_window
    })
}

pub(super) fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    if flow.zero_window_count == 0 || flow.zero_window < MIN_TIME || flow.bytes < MIN_BYTES {
        return None;
    }
    let life = e.connection.end.since(e.connection.start).as_secs_f64();
    let share = ratio(flow.zero_window.as_secs_f64(), life).min(1.0);
    let longest = if flow.zero_window_count == 1 { flow.zero_window } else { longest(e) };
    let first = flow.zero_window_first.unwrap_or(e.connection.start);
    let (cause, cure) =
        if host_left(e) { ("host", CURE_HOST) } else { ("application", CURE_APPLICATION) };
    let mut v = Values::default();
    v.number("zero_window_count", flow.zero_window_count as f64)
        .number("zero_window_s", flow.zero_window.as_secs_f64())
        .number("zero_window_share", share)
        .number("zero_window_s_longest", longest.as_secs_f64())
        .number("zero_window_probes", flow.zero_window_probes as f64)
        .number("first_s", seconds_into(e, first))
        .number("rwnd_bytes_max", flow.rwnd_max.map(|b| b.0 as f64))
        .text("cause", cause);
    Some(Finding {
        rule: RULE.name,
        severity: match share {
            s if s >= MOSTLY => Severity::Serious,
            s if s >= COSTS => Severity::Warning,
            _ => Severity::Info,
        },
        flow: Some(flow.id),
        from: first,
        to: end_where(e, |b| b.zero_window.as_nanos() > 0),
        values: v.take(),
        text: format!(
            "The receiver closed its window {} for {} in all ({} of the connection, longest about {}, {}), first at {}: \
             the application there read too slowly.",
            counted(flow.zero_window_count, "time", "times"),
            seconds(flow.zero_window.as_secs_f64()),
            percent(share),
            seconds(longest.as_secs_f64()),
            counted(flow.zero_window_probes, "probe", "probes"),
            clock(e, first),
        ),
        cure,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;
    use crate::series::evidence::Silence;

    fn slow_reader() -> Case {
        let mut case = Case::transfer(20, |t, bin| {
            if (5.0..8.0).contains(&t) || (10.0..11.0).contains(&t) {
                bin.zero_window = Duration::from_millis(100);
            }
        });
        case.flow.zero_window_count = 2;
        case.flow.zero_window_probes = 4;
        case.flow.zero_window_first = Some(at(5.0));
        case
    }

    #[test]
    fn a_slow_reader_is_named_with_its_longest_pause() {
        let f = check(&slow_reader().evidence()).expect("zero windows");
        assert_eq!((f.severity, f.from), (Severity::Warning, at(5.0)));
        assert!((f.number("zero_window_s_longest") - 3.0).abs() < 1e-6);
        assert_eq!((f.number("zero_window_s"), f.number("zero_window_share")), (4.0, 0.2));
        assert!(
            f.text.contains(
                "2 times for 4.0 s in all (20 % of the connection, longest about 3.0 s, 4 probes)"
            ),
            "{}",
            f.text
        );
    }

    #[test]
    fn the_span_ends_with_the_last_zero_window_and_the_text_has_its_clock() {
        let mut case = slow_reader();
        case.connection.end = at(110.0);
        let f = check(&case.evidence()).expect("zero windows");
        assert!((f.to.since(at(11.0)).as_secs_f64()) <= 0.1 && f.to >= at(11.0), "{:?}", f.to);
        // The capture began 100 s before the transfer.
        assert!(f.text.contains("first at 105.0 s:"), "{}", f.text);
    }

    #[test]
    fn fifty_milliseconds_and_ten_kilobytes_are_the_boundaries() {
        let with = |ms, bytes| {
            let mut case = slow_reader();
            case.flow.zero_window = Duration::from_millis(ms);
            case.flow.bytes = Bytes(bytes);
            check(&case.evidence()).map(|f| f.severity)
        };
        assert_eq!([with(49, 1 << 20), with(50, 9_999)], [None, None]);
        assert_eq!(with(50, 10_000), Some(Severity::Info));
        assert_eq!(
            [with(999, 1 << 20), with(1_000, 1 << 20)],
            [Some(Severity::Info), Some(Severity::Warning)]
        );
        assert_eq!(with(10_000, 1 << 20), Some(Severity::Serious));
    }

    #[test]
    fn a_receiver_that_left_afterwards_is_looked_at_first() {
        let mut case = slow_reader();
        assert_eq!(check(&case.evidence()).expect("zero windows").word("cause"), "application");
        let left =
            Silence { since: at(12.0), until: at(20.0), repeats: 5, received: 0, answered: false };
        for (silence, cause) in [
            (left, "host"),
            (Silence { answered: true, ..left }, "application"),
            (Silence { received: 2, ..left }, "application"),
            (Silence { since: at(3.0), ..left }, "application"),
            (Silence { until: at(15.0), ..left }, "application"),
        ] {
            case.silences.longest = Some(silence);
            assert_eq!(check(&case.evidence()).expect("zero windows").word("cause"), cause);
        }
    }

    #[test]
    fn a_window_that_never_closed_says_nothing() {
        assert!(check(&Case::transfer(20, |_, _| {}).evidence()).is_none());
    }
}
