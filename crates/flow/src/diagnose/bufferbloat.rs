//! # bufferbloat
//!
//! This flow filled a queue on its path and kept it filled. Every packet of any application waits in that queue.
//!
//! ## How it is measured
//!
//! Queueing delay = path RTT − smallest RTT known of the path, over the samples taken while at least four
//! segments were in flight. Its 95th percentile gives the grade, in DSLReports' steps: A+ below 5 ms, A below
//! 30, B below 60, C below 200, D below 400, F above. B is reported as info, C as warning, D and F as
//! serious; A and A+ are not reported.
//!
//! *Since when*: a change point search divides the mean queueing delay per bin of the flow's profile (100 ms,
//! doubling for flows above 51 s) into levels. The onset is where the delay rises above 60 ms (30 ms for grade B)
//! and mostly stays there. A slow rise counts from its crossing of that threshold. Without such a level the
//! delay came in peaks, which is at most a warning. Fewer than three bins above the threshold are no queue that is kept
//! filled: a host that answers late once looks the same.
//!
//! *Queue in bytes*: p95 of the delay × the rate delivered while the queue was there. It is this flow's own part
//! of the queue and never more than its bytes in flight.
//!
//! *What stays usable* is judged on the total RTT (path + queue), p95 of the bins before and after the onset.
//! Web pages: good up to 300 ms, usable up to 1 s (ten round trips in 3 and 10 s). Calls: good up to 150 ms,
//! usable up to 400 ms (ITU-T G.114; the queue lies in one direction, so the RTT is compared as it is).
//! Games: good up to 100 ms, usable up to 500 ms (first- and third-person limits of Claypool & Claypool).
//!
//! Minimum: 100 KB in 30 segments over 1 s, 20 RTT samples under load.
//!
//! ## Evidence
//!
//! - `grade`, `queue_ms_p50`, `queue_ms_p95`, `queue_bytes`.
//! - `onset_s` (after the first data of the flow; absent when it came in peaks), `bloated_s`,
//!   `bloated_share` (of the time with RTT samples, 0 … 1).
//! - `rtt_ms_min`, `initial_rtt_ms` (handshake), `loaded_rtt_ms_p50`, `loaded_rtt_ms_p95`.
//! - `rtt_ms_before`, `rtt_ms_after` (p95 of the bins before and from the onset).
//! - `web_before`, `calls_before`, `games_before`, `web_after`, `calls_after`, `games_after`
//!   (`good`, `strained`, `unusable`).
//! - `goodput_bps_after`, `in_flight_bytes_p95`, `bdp_bytes`, `in_flight_over_bdp`,
//!   `window_utilisation_pct_p95`.
//!
//! ## What cures it
//!
//! At the sender BBR instead of CUBIC: it limits the bytes in flight to a small multiple of the BDP, where CUBIC
//! fills the buffer. Where the packets show which one the sender runs (`congestion_control`), the cure says so. On the
//! path a router with smart queue management (fq_codel, CAKE) and a shaper just below the rate of the slow link. For
//! downloads to a phone a receive window that follows the delay (DRWA). For uploads from a phone a gate that keeps the
//! buffer of the radio firmware short (QCUT).
//!
//! ## Traps
//!
//! - A capture that begins when the queue is already full contains no unloaded RTT: the delay is then understated.
//! - A route or radio change that makes the path longer looks like a queue.
//! - On Wi-Fi and LTE link-layer retransmission adds some 10 … 50 ms that no queue management removes: one
//!   reason why B is only info.
//! - If another flow filled the queue, `rtt-inflation-other-flow` is reported instead of this rule.
//! - In a capture at the receiver without timestamps, the RTT is an upper bound (`rtt_method` `window`).
//!
//! ## Sources
//!
//! DSLReports, "Bufferbloat grades" (dslreports.com/faq/17930). ITU-T G.114 (2003). Claypool & Claypool, CACM
//! 49(11), 2006. TCP Tracing part 8 (blog.wirelessmoves.com, 2022). Jiang et al., "Tackling bufferbloat in
//! 3G/4G networks", IMC 2012. Guo et al., "Understanding on-device bufferbloat for cellular upload", IMC
//! 2016.

use crate::diagnose::sender::cure_at_sender;
use units::Instant;

use super::reading::{
    Values, base_rtt, bytes, clock, data_end, data_start, end_of, enough_data, ms, quantile,
    queue_series, rate_between, ratio, seconds_into, severity_of,
};
use super::{Check, Rule, page::page, rtt_inflation_other_flow::has_foreign_queue};
use crate::diagnose::changepoint::{Onset, onset};
use crate::diagnose::grade::{grade, usability};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};

/// Queueing delay (ms) from which a level counts as bloated: the beginning of grade C.
const BLOATED_MS: f64 = 60.0;
/// The same for a flow of grade B: the beginning of that grade.
const STANDING_MS: f64 = 30.0;
/// Bins above the threshold that are peaks of a queue; one episode may lie in two bins.
const MIN_PEAKS: usize = 3;
/// RTT (ms) up to which everything works well, games included.
const QUIET_MS: f64 = 100.0;
/// RTT samples under load; with fewer a p95 is one outlier.
const MIN_SAMPLES: u64 = 20;

pub(super) const RULE: Rule = Rule {
    name: "bufferbloat",
    about: "the flow keeps a queue on its path filled",
    source: "DSLReports grades; ITU-T G.114; DRWA (IMC 2012); QCUT (IMC 2016); TCP Tracing 8",
    page: page!("bufferbloat.rs"),
    check: Check::Flow(check),
};

/// The queueing delay over the profile, and since when it is above the threshold.
pub(super) struct Standing {
    /// Mean queueing delay per bin, ms.
    pub series: Vec<f64>,
    /// The threshold in ms.
    pub threshold: f64,
    /// Since when, as indices of bins.
    pub onset: Option<Onset>,
}

/// Finds where in the profile the queue of `e` was above the threshold of its grade.
fn standing(e: &Evidence<'_>, base_ms: f64, p95: f64) -> Standing {
    let threshold = if p95 >= BLOATED_MS { BLOATED_MS } else { STANDING_MS };
    let series = queue_series(e, base_ms);
    let onset = onset(&series, threshold);
    Standing { series, threshold, onset }
}

pub(super) fn check(e: &Evidence<'_>) -> Option<Finding> {
    let queue = e.flow.queue_ms.filter(|q| q.count >= MIN_SAMPLES)?;
    let grade = grade(queue.p95);
    let mut severity = severity_of(grade)?;
    if !enough_data(e) || has_foreign_queue(e) {
        return None;
    }
    let base = base_rtt(e)?;
    let Standing { series, threshold, onset } = standing(e, base, queue.p95);
    let measured = series.iter().filter(|q| q.is_finite()).count();
    let over = series.iter().filter(|q| **q >= threshold).count();
    if onset.is_none() && over < MIN_PEAKS {
        return None;
    }
    let width = e.profile.width().as_secs_f64();

    let (from, to) = onset.map_or((0, series.len()), |o| (o.index, o.end));
    let rate = match onset {
        Some(_) => rate_between(e, from, to),
        // in peaks: the rate during these
        None => {
            let bins = e.profile.bins().iter().zip(&series).filter(|(_, q)| **q >= threshold);
            let bytes: u64 = bins.map(|(b, _)| b.delivered.0).sum();
            Some(ratio(bytes as f64 * 8.0, over as f64 * width)).filter(|r| *r > 0.0)
        }
    };
    let rate = rate.or(e.flow.goodput.map(|r| r.0 as f64)).unwrap_or(0.0);
    let in_flight = e.flow.in_flight_bytes;
    let queue_bytes =
        (queue.p95 / 1e3 * rate / 8.0).min(in_flight.map_or(f64::INFINITY, |q| q.max));

    if onset.is_none() {
        severity = severity.min(Severity::Warning);
    }
    let risen = onset.filter(|o| o.risen);
    let rtt_before = risen.and_then(|o| quantile(&series[..o.index], 0.95)).map(|q| q + base);
    let rtt_after = quantile(&series[from..to], 0.95).unwrap_or(queue.p95) + base;
    let before = rtt_before.map(usability);
    let after = usability(rtt_after);
    let since: Option<Instant> = onset.map(|o| e.profile.time_of(o.index));

    let mut v = Values::default();
    v.text("grade", grade)
        .number("queue_ms_p50", queue.p50)
        .number("queue_ms_p95", queue.p95)
        .number("queue_bytes", queue_bytes.round())
        .number("onset_s", since.map(|t| seconds_into(e, t)))
        .number("bloated_s", over as f64 * width)
        .number("bloated_share", ratio(over as f64, measured as f64))
        .number("rtt_ms_min", base)
        .number("initial_rtt_ms", e.flow.initial_rtt_ms)
        .number("loaded_rtt_ms_p50", e.flow.loaded_rtt_ms.map(|q| q.p50))
        .number("loaded_rtt_ms_p95", e.flow.loaded_rtt_ms.map(|q| q.p95))
        .number("rtt_ms_before", rtt_before)
        .number("rtt_ms_after", rtt_after)
        .text("web_before", before.map(|u| u.web.name()))
        .text("calls_before", before.map(|u| u.calls.name()))
        .text("games_before", before.map(|u| u.games.name()))
        .text("web_after", after.web.name())
        .text("calls_after", after.calls.name())
        .text("games_after", after.games.name())
        .number("goodput_bps_after", rate)
        .number("in_flight_bytes_p95", in_flight.map(|q| q.p95))
        .number("bdp_bytes", e.flow.bdp.map(|b| b.0 as f64))
        .number("in_flight_over_bdp", e.flow.in_flight_over_bdp)
        .number("window_utilisation_pct_p95", e.flow.window_utilisation.map(|q| q.p95));

    let began = match (onset, since) {
        (Some(Onset { risen: true, .. }), Some(t)) => {
            format!("it began at {}", clock(e, t))
        }
        (Some(_), _) => "it was there from the start".to_owned(),
        _ => "it came in peaks".to_owned(),
    };
    let usable = match before.zip(rtt_before) {
        Some((u, rtt)) if u != after => {
            format!("{}. At the RTT of {} before that, {}", after.words(), ms(rtt), u.words())
        }
        _ if after == usability(base) && base > QUIET_MS => {
            format!("{}, as without the queue", after.words())
        }
        _ => after.words(),
    };
    // A long path can have a good grade and be of no use for calls.
    let added = if base > QUIET_MS {
        format!("Grade {grade} for the added delay alone, on a path with an RTT of {}", ms(base))
    } else {
        format!("Grade {grade}")
    };
    Some(Finding {
        rule: RULE.name,
        severity,
        flow: Some(e.flow.id),
        from: since.unwrap_or_else(|| data_start(e)),
        to: onset.map_or_else(|| data_end(e), |o| end_of(e, o.end.saturating_sub(1))),
        values: v.take(),
        text: format!(
            "Queueing delay reached {} (p95), with about {} in the queue; {began}. {added}: {usable}.",
            ms(queue.p95),
            bytes(queue_bytes),
        ),
        cure: cure_at_sender!(
            e.flow,
            "",
            ", or smart queue management (fq_codel, CAKE) in front of the slow link; on a phone, a receive window that \
             follows the delay (DRWA) for downloads and a gate above the radio firmware (QCUT) for uploads.",
            not_needed: "",
            ": smart queue management (fq_codel, CAKE) in front of the slow link; on a phone, a receive window that \
             follows the delay (DRWA) for downloads and a gate above the radio firmware (QCUT) for uploads."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, START, at};
    use super::*;
    use units::Bytes;

    /// TCP Tracing 8: below 100 ms until 10 s, then up to seconds.
    fn post_8() -> Case {
        Case::transfer(60, |t, bin| {
            let rtt = if t < 10.0 {
                60.0 + 20.0 * (t * 7.0).sin()
            } else {
                80.0 + 400.0 * (t - 10.0).min(12.0)
            };
            bin.rtt(rtt);
            bin.in_flight_max = Bytes((rtt / 1e3 * 500_000.0) as u64);
        })
    }

    #[test]
    fn post_8_is_grade_f_from_ten_seconds_on_and_unusable_only_after() {
        let case = post_8();
        let f = check(&case.evidence()).expect("bloated");
        assert_eq!((f.severity, f.word("grade")), (Severity::Serious, "F"));
        assert!((f.number("onset_s") - 10.0).abs() < 0.5, "{}", f.number("onset_s"));
        assert!(f.from >= at(9.8) && f.from <= at(10.5) && f.to == at(60.0));
        assert_eq!(
            [f.word("web_before"), f.word("calls_before"), f.word("games_before")],
            ["good"; 3]
        );
        assert_eq!(
            [f.word("web_after"), f.word("calls_after"), f.word("games_after")],
            ["unusable"; 3]
        );
        assert!((f.number("bloated_share") - 50.0 / 60.0).abs() < 0.02);
        // 4.8 s at 4 Mbit/s
        assert!(
            (f.number("queue_bytes") / 2.4e6 - 1.0).abs() < 0.05,
            "{}",
            f.number("queue_bytes")
        );
        assert!(
            f.text.contains(
                "it began at 110.2 s. Grade F: web pages, calls and games are unusable. At the RTT of 78 ms before"
            ),
            "{}",
            f.text
        );
    }

    #[test]
    fn bbr_at_150_to_200_ms_is_a_warning_and_everything_stays_usable() {
        let case = Case::transfer(60, |t, bin| {
            bin.rtt(if t < 0.5 { 60.0 } else { 175.0 + 20.0 * (t * 3.0).sin() })
        });
        let f = check(&case.evidence()).expect("grade C");
        assert_eq!((f.severity, f.word("grade")), (Severity::Warning, "C"));
        assert!(
            ["web_after", "calls_after", "games_after"].iter().all(|k| f.word(k) != "unusable")
        );
    }

    #[test]
    fn a_host_that_answers_late_once_is_no_queue() {
        // Single bins, far apart, so that no level of delay is found.
        let with = |late: u32| {
            let mut case = Case::transfer(20, |t, bin| {
                let tick = (t * 10.0).round() as u32;
                if tick % 20 == 10 && tick / 20 < late {
                    bin.rtt(2_000.0);
                }
            });
            if let Some(q) = &mut case.flow.queue_ms {
                q.p95 = 70.0;
            }
            check(&case.evidence()).map(|f| (f.severity, f.text.contains("it came in peaks")))
        };
        assert_eq!([with(1), with(2)], [None; 2]);
        assert_eq!(with(3), Some((Severity::Warning, true)));
    }

    #[test]
    fn the_boundary_of_grade_b_is_30_ms() {
        let with = |ms: f64| {
            let mut case =
                Case::transfer(20, |t, bin| bin.rtt(if t < 5.0 { 50.0 } else { 55.0 + ms }));
            if let Some(q) = &mut case.flow.queue_ms {
                q.p95 = ms;
            }
            check(&case.evidence()).map(|f| f.severity)
        };
        assert_eq!(
            [with(29.9), with(30.0), with(60.0)],
            [None, Some(Severity::Info), Some(Severity::Warning)]
        );
        assert_eq!([with(200.0), with(400.0)], [Some(Severity::Serious); 2]);
    }

    #[test]
    fn a_queue_there_from_the_start_has_no_before() {
        let mut case = Case::transfer(20, |_, bin| bin.rtt(350.0));
        case.path_rtt_ms_min = Some(50.0);
        if let Some(q) = &mut case.flow.queue_ms {
            (q.p50, q.p95) = (300.0, 300.0);
        }
        let f = check(&case.evidence()).expect("bloated");
        assert_eq!((f.from, f.number("onset_s"), f.word("web_before")), (START, 0.0, ""));
        assert!(f.text.contains("there from the start"), "{}", f.text);
    }

    #[test]
    fn peaks_without_a_level_have_no_onset() {
        let case = Case::transfer(20, |t, bin| {
            bin.rtt(if (t * 10.0) as u64 % 10 == 3 { 400.0 } else { 50.0 })
        });
        let f = check(&case.evidence()).expect("p95 is above");
        assert_eq!((f.severity, f.number("goodput_bps_after").round()), (Severity::Warning, 4e6));
        assert!(f.text.contains("came in peaks") && f.number("onset_s").is_nan(), "{}", f.text);
    }

    #[test]
    fn a_satellite_path_is_not_blamed_on_its_queue() {
        let case = Case::transfer(20, |t, bin| bin.rtt(if t < 5.0 { 540.0 } else { 620.0 }));
        let f = check(&case.evidence()).expect("grade C");
        assert!(f.text.contains("on a path with an RTT of 540 ms: calls"), "{}", f.text);
    }

    #[test]
    fn too_few_samples_or_bytes_say_nothing() {
        let mut case = post_8();
        case.flow.bytes = Bytes(99_999);
        assert!(check(&case.evidence()).is_none());
        let mut case = post_8();
        if let Some(q) = &mut case.flow.queue_ms {
            q.count = 19;
        }
        assert!(check(&case.evidence()).is_none());
    }
}
