//! # receive-window
//!
//! The sender had to stop because the receive window was full, not because of the network.
//!
//! ## How it is measured
//!
//! Window full = less than one send unit left between the last byte sent and the right edge of the window, as the
//! sender saw it. A send unit is an MSS, or the bytes of a millisecond where they are more, up to 64 KiB (the
//! maximum GSO segment of Linux). The figure is time in seconds, zero windows included. A share of the active time
//! from 1 % on is info, from 10 % a warning. *Since when* has two answers: the first moment, and the onset, from
//! which on the share of each profile bin mostly stays above a quarter. The smallest RTT measured while the window
//! was full is the RTT from which it limits the rate. The ceiling is another estimate of it: rwnd_max over the peak
//! rate is the RTT above which that rate is impossible.
//!
//! *The cause* follows from the queue at those times (mean RTT of the bins that are full for a tenth or more, above
//! the minimum of the path). From 60 ms and the unloaded RTT itself on, a queue filled the window: a larger one would only
//! lengthen the queue. The same holds for a shorter queue that came with the full window, since the path was full as well. It is
//! 30 ms or more in three quarters of those bins, and at least twice the median of the other bins (ten or more). The rate in
//! those bins is 95 % of the best second's or more. Else the window is too small for the path: a larger one gives more
//! throughput, and `unlimited_goodput_bps` estimates how much.
//!
//! Minimum: 100 KB in 30 segments over 1 s. Not reported when half of the time was zero window (see `zero-window`). Below
//! 10 % of the time, it is not reported either if the receiver still raised the window whenever it was full. Autotuning
//! follows the sender by a round trip or two, and the first window is often as large as the first congestion window.
//! Raised means that the window becomes half as large again or more later, and was not that much larger before.
//!
//! ## Evidence
//!
//! - `window_full_s`, `window_full_share` (0 … 1 of the active time), `window_full_count` (segments
//!   that left < 1 MSS).
//! - `first_s`, `onset_s` (after the first data), `rtt_ms_at_limit`, `rtt_ceiling_ms`.
//! - `rwnd_bytes_max`, `peak_bps`, `unlimited_goodput_bps`, `queue_ms` (mean while full).
//! - `initial_rtt_ms`, `loaded_rtt_ms_p50`, `loaded_rtt_ms_p95`.
//! - `cause` (`window` or `queue`), `window_scale` (0: the receiver did not offer scaling).
//!
//! ## What cures it
//!
//! With cause `window`: raise the receiver's maximum (`net.ipv4.tcp_rmem`, third value; Linux
//! advertises about half of it). Make the application read faster, or not set SO_RCVBUF (setting it
//! turns autotuning off). With cause `queue`: the cures of `bufferbloat`.
//!
//! ## Traps
//!
//! - The kernel's own counter (`rwnd_limited` in `ss -ti`) counts only the time in which the congestion
//!   window was larger than the receive window; it is smaller than this figure.
//! - Without the SYN the window scale is a lower bound, and the window may look fuller than it was
//!   (`window_scale_inferred`).
//! - The RTT of the handshake is no measure here: under load the RTT is several times as long.
//!
//! ## Sources
//!
//! TCP Tracing parts 4, 5 and 8 (blog.wirelessmoves.com, 2022). RFC 9293 section 3.8.6, RFC 7323 section 2.
//! Huang et al., "An in-depth study of LTE", SIGCOMM 2013: 52.6 % of downlink flows fill their receive
//! window.

use super::reading::{
    Values, base_rtt, bytes, clock, data_start, end_where, enough_data, ms, percent, quantile,
    queue_series, rate, ratio, seconds_into,
};
use super::{Check, Rule, page::page};
use crate::diagnose::changepoint::onset;
use crate::diagnose::sender::cure_at_sender;
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};

/// Share of the active time from which it is reported, and from which it is a warning.
const MENTION: f64 = 0.01;
const COSTS: f64 = 0.10;
/// A window that later becomes this many times as large was still being raised: autotuning doubles it in a round trip, and
/// a bin may hold two of its steps. One that was this many times as large before has fallen.
const GROWS: f64 = 1.5;
/// Share of a bin from which the window counts as full there: with bursts it opens once per RTT.
const FULL_BIN: f64 = 0.25;
/// Share of a bin from which its RTT counts as measured with a full window.
const TOUCHED_BIN: f64 = 0.10;
/// Queueing delay (ms) above which the queue fills the window: grade C.
const QUEUE_MS: f64 = 60.0;
/// Queueing delay (ms) of a standing queue: the beginning of grade B, and the threshold of the limit `bufferbloat`.
const STANDING_MS: f64 = 30.0;
/// Bins with another state of the window that show what is usual on the path.
const MIN_OTHER_BINS: usize = 10;
/// A queue this many times the usual one came with the full window.
const GROWN: f64 = 2.0;
/// Share of the best second's rate that a full path carries; a window that limits the rate lets less through.
const WHOLE_RATE: f64 = 0.95;
const CURE_WINDOW: &str = "Raise the receiver's largest window (net.ipv4.tcp_rmem, third value; about half of it is advertised) and do \
                           not set SO_RCVBUF, which turns autotuning off.";

pub(super) const RULE: Rule = Rule {
    name: "receive-window",
    about: "the sender waits for the receiver's window",
    source: "TCP Tracing 4, 5 and 8; RFC 9293 section 3.8.6",
    page: page!("receive_window.rs"),
    check: Check::Flow(check),
};

/// First bin from which the window was full most of the time.
pub(super) fn sustained(e: &Evidence<'_>) -> Option<usize> {
    let width = e.profile.width().as_secs_f64();
    let full: Vec<f64> =
        e.profile.bins().iter().map(|b| (b.window_full.as_secs_f64() / width).min(1.0)).collect();
    onset(&full, FULL_BIN).map(|o| o.index)
}

/// Mean queueing delay (ms) of the bins in which the window was full.
fn queue_while_full(e: &Evidence<'_>, base_ms: f64) -> Option<f64> {
    let width = e.profile.width().as_secs_f64();
    let (mut sum, mut count) = (0.0, 0);
    for bin in e.profile.bins() {
        if bin.window_full.as_secs_f64() >= TOUCHED_BIN * width {
            sum += bin.rtt_ms_sum;
            count += bin.rtt_count;
        }
    }
    (count > 0).then(|| (sum / f64::from(count) - base_ms).max(0.0))
}

/// Time in which the window was full while the receiver still raised it, in seconds.
fn full_while_raised(e: &Evidence<'_>) -> f64 {
    let bins = e.profile.bins();
    let mut later: Vec<u64> = bins.iter().map(|b| b.rwnd_max.0).collect();
    for i in (1..later.len()).rev() {
        later[i - 1] = later[i - 1].max(later[i]);
    }
    let (mut before, mut full) = (0, 0.0);
    for (bin, later) in bins.iter().zip(later) {
        let fell = bin.rwnd_max.0 as f64 * GROWS <= before as f64;
        before = before.max(bin.rwnd_max.0);
        // The window of a bin is that at its end; the data in flight filled the one before.
        let filled = bin.in_flight_max.0;
        let window = if filled > 0 { bin.rwnd_max.0.min(filled) } else { bin.rwnd_max.0 };
        if !fell && window as f64 * GROWS <= later as f64 {
            full += bin.window_full.as_secs_f64();
        }
    }
    full
}

/// Whether the path was full while the window was: most of that time a queue stood there that is not there at other times, and
/// the rate was that of the best second. The delay of a path that only varies is the same at all times. Behind a longer delay
/// that is no queue, a full window carries less than the path.
pub(super) fn path_was_full(e: &Evidence<'_>) -> bool {
    let Some(base_ms) = base_rtt(e) else { return false };
    let width = e.profile.width().as_secs_f64();
    let (mut full, mut other, mut delivered) = (Vec::new(), Vec::new(), 0);
    for (bin, queue) in e.profile.bins().iter().zip(queue_series(e, base_ms)) {
        let touched = bin.window_full.as_secs_f64() >= TOUCHED_BIN * width;
        if touched { &mut full } else { &mut other }.push(queue);
        delivered += if touched { bin.delivered.0 } else { 0 };
    }
    let rate_bps = 8.0 * delivered as f64 / (full.len() as f64 * width).max(f64::MIN_POSITIVE);
    let whole = e.flow.peak.is_some_and(|peak| rate_bps >= WHOLE_RATE * peak.0 as f64);
    let measured = other.iter().filter(|q| q.is_finite()).count();
    let (Some(low), Some(usual)) = (quantile(&full, 0.25), quantile(&other, 0.5)) else {
        return false;
    };
    whole && measured >= MIN_OTHER_BINS && low >= STANDING_MS && low >= GROWN * usual
}

/// Mean queueing delay (ms) while the window was full, else the median of the flow.
fn queue(e: &Evidence<'_>, base: Option<f64>) -> Option<f64> {
    base.and_then(|b| queue_while_full(e, b)).or(e.flow.queue_ms.map(|q| q.p50))
}

/// The share of the active time in which the window was full, if it is reported.
fn reported(e: &Evidence<'_>) -> Option<f64> {
    let flow = e.flow;
    let share = ratio(flow.window_full.as_secs_f64(), flow.active.as_secs_f64()).min(1.0);
    if share < MENTION || !enough_data(e) || flow.zero_window * 2 > flow.window_full {
        return None;
    }
    let raised = ratio(full_while_raised(e), flow.active.as_secs_f64());
    (share >= COSTS || share - raised >= MENTION).then_some(share)
}

/// Queueing delay (ms) while the window was full, and whether the queue filled the window.
fn filled_by_queue(e: &Evidence<'_>) -> (Option<f64>, bool) {
    let base = base_rtt(e);
    let queue = queue(e, base);
    let by_queue = queue.is_some_and(|q| q >= QUEUE_MS && q >= base.unwrap_or(0.0))
        || (queue.is_some() && path_was_full(e));
    (queue, by_queue)
}

/// What the finding, if there is one, says of the cause: true for the queue.
pub(super) fn blames_queue(e: &Evidence<'_>) -> Option<bool> {
    reported(e).map(|_| filled_by_queue(e).1)
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let (flow, share) = (e.flow, reported(e)?);
    let (queue, by_queue) = filled_by_queue(e);
    let onset = sustained(e).map(|i| e.profile.time_of(i));
    let first = flow.window_full_first.or(onset).unwrap_or_else(|| data_start(e));
    let window = flow.rwnd_max.map_or(0.0, |b| b.0 as f64);

    let mut v = Values::default();
    v.number("window_full_s", flow.window_full.as_secs_f64())
        .number("window_full_share", share)
        .number("window_full_count", flow.window_full_count as f64)
        .number("first_s", seconds_into(e, first))
        .number("onset_s", onset.map(|t| seconds_into(e, t)))
        .number("rtt_ms_at_limit", flow.window_full_rtt_ms)
        .number("rtt_ceiling_ms", flow.rtt_ceiling_ms)
        .number("rwnd_bytes_max", window)
        .number("peak_bps", flow.peak.map(|r| r.0 as f64))
        .number(
            "unlimited_goodput_bps",
            flow.unlimited_goodput.filter(|_| !by_queue).map(|r| r.0 as f64),
        )
        .number("queue_ms", queue)
        .number("initial_rtt_ms", flow.initial_rtt_ms)
        .number("loaded_rtt_ms_p50", flow.loaded_rtt_ms.map(|q| q.p50))
        .number("loaded_rtt_ms_p95", flow.loaded_rtt_ms.map(|q| q.p95))
        .text("cause", if by_queue { "queue" } else { "window" })
        .number("window_scale", flow.window_scale.map(f64::from));

    let mut text = format!(
        "The receive window of {} was full for {} of the time, first at {}",
        bytes(window),
        percent(share),
        clock(e, first),
    );
    if let Some(t) = onset.filter(|t| t.since(first).as_secs_f64() >= 1.0) {
        text += &format!(" and most of the time from {} on", clock(e, t));
    }
    text += &match (by_queue, queue) {
        (true, Some(q)) => {
            format!(
                "; it allows {} of queueing delay, so a larger one would only lengthen the queue.",
                ms(q)
            )
        }
        _ => match (flow.rtt_ceiling_ms, flow.peak) {
            (Some(ceiling), Some(peak)) => {
                format!("; above {} of RTT it cannot carry {}", ms(ceiling), rate(peak.0 as f64))
                    + &match flow
                        .unlimited_goodput
                        .filter(|g| flow.goodput.is_some_and(|now| g.0 > now.0 / 50 * 51))
                    {
                        Some(more) => format!(
                            ", a larger one might have raised the average to {}.",
                            rate(more.0 as f64)
                        ),
                        None => ".".to_owned(),
                    }
            }
            _ => ".".to_owned(),
        },
    };
    Some(Finding {
        rule: RULE.name,
        severity: if share >= COSTS { Severity::Warning } else { Severity::Info },
        flow: Some(flow.id),
        from: first,
        to: end_where(e, |b| b.window_full.as_nanos() > 0),
        values: v.take(),
        text,
        cure: if by_queue { cure_queue(e) } else { CURE_WINDOW },
    })
}

fn cure_queue(e: &Evidence<'_>) -> &'static str {
    cure_at_sender!(
        e.flow,
        "A larger window would only lengthen the queue. ",
        ", smart queue management at the slow link, or a window that follows the delay (DRWA).",
        not_needed: "A larger window would only lengthen the queue. ",
        ": smart queue management at the slow link, or a window that follows the delay (DRWA)."
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;
    use units::{Bytes, Duration, Rate};

    #[test]
    fn post_8_stalls_from_22_seconds_on_and_the_queue_is_to_blame() {
        let case = Case::transfer(60, |t, bin| {
            bin.rtt(if t < 10.0 { 60.0 } else { 60.0 + 400.0 * (t - 10.0).min(12.0) });
            if t >= 22.0 {
                bin.full();
            }
        });
        let f = check(&case.evidence()).expect("window full");
        assert_eq!((f.severity, f.word("cause"), f.from), (Severity::Warning, "queue", at(22.0)));
        assert!(
            (f.number("onset_s") - 22.0).abs() < 0.3 && (f.number("first_s") - 22.0).abs() < 0.01
        );
        assert!((f.number("window_full_share") - 38.0 / 60.0).abs() < 1e-6);
        assert!((f.number("rtt_ms_at_limit") - 4860.0).abs() < 1.0);
        assert_eq!(f.cure, cure_queue(&case.evidence()));
    }

    #[test]
    fn post_4_hits_the_window_now_and_then_and_a_larger_one_would_help() {
        // 500 Mbit/s over 30 ms, 3 MB: any RTT above 50 ms stalls
        let mut case = Case::transfer(30, |t, bin| {
            bin.delivered(6_250_000);
            bin.rtt(30.0 + if (t * 10.0) as u64 % 10 == 7 { 22.0 } else { 0.0 });
            bin.in_flight_max = Bytes(1_900_000);
            if (t * 10.0) as u64 % 10 == 7 {
                bin.in_flight_max = Bytes(3_000_000);
                bin.window_full = Duration::from_millis(40);
            }
        });
        case.flow.initial_rtt_ms = Some(18.0);
        case.flow.unlimited_goodput = Some(Rate(540_000_000));
        let f = check(&case.evidence()).expect("window full");
        assert_eq!((f.severity, f.word("cause")), (Severity::Info, "window"));
        assert!((f.number("rtt_ceiling_ms") - 48.0).abs() < 0.1);
        assert_eq!((f.number("rtt_ms_at_limit"), f.number("initial_rtt_ms")), (52.0, 18.0));
        assert!(f.text.contains("above 48 ms of RTT it cannot carry 500 Mbit/s"), "{}", f.text);
        assert!(f.text.contains("540 Mbit/s"), "{}", f.text);
        assert_eq!(f.cure, CURE_WINDOW);
    }

    #[test]
    fn one_percent_and_ten_percent_are_the_boundaries() {
        let with = |full_ms: u64| {
            let mut case = Case::transfer(10, |_, _| {});
            case.flow.window_full = Duration::from_millis(full_ms);
            check(&case.evidence()).map(|f| f.severity)
        };
        assert_eq!([with(99), with(100)], [None, Some(Severity::Info)]);
        assert_eq!([with(999), with(1000)], [Some(Severity::Info), Some(Severity::Warning)]);
    }

    #[test]
    fn a_window_that_is_still_raised_is_reported_only_where_that_costs() {
        let with = |full_s: f64, first: u64, later: u64| {
            let case = Case::transfer(20, |t, bin| {
                bin.rwnd_max = Bytes(if t < 3.0 { first } else { later });
                if t < full_s {
                    bin.full();
                }
            });
            check(&case.evidence()).map(|f| f.severity)
        };
        assert_eq!(with(1.0, 14_600, 60_000), None);
        assert_eq!(with(1.0, 50_000, 60_000), Some(Severity::Info), "hardly larger later");
        assert_eq!(with(1.0, 60_000, 14_600), Some(Severity::Info), "it was never larger");
        let fell = Case::transfer(20, |t, bin| {
            if (3.0..4.0).contains(&t) {
                bin.rwnd_max = Bytes(14_600);
                bin.full();
            }
        });
        assert!(check(&fell.evidence()).is_some(), "it fell, and rose again");
        assert_eq!(with(2.5, 14_600, 60_000), Some(Severity::Warning));
    }

    #[test]
    fn a_window_that_is_mostly_zero_is_left_to_the_other_rule() {
        let mut case = Case::transfer(10, |_, bin| bin.full());
        assert!(check(&case.evidence()).is_some());
        case.flow.zero_window = Duration::from_secs(6);
        assert!(check(&case.evidence()).is_none());
    }

    #[test]
    fn a_queue_that_came_with_the_full_window_is_no_reason_for_a_larger_one() {
        // A long path: 40 ms are little beside its RTT, but they are there only while the window is full.
        let with_rate = |full_ms: f64, other_ms: f64, delivered: u64| {
            let mut case = Case::transfer(20, |t, bin| {
                bin.rtt(if t < 0.5 { 560.0 } else { 560.0 + other_ms });
                if (5.0..10.0).contains(&t) {
                    bin.full();
                    bin.rtt(560.0 + full_ms);
                    bin.delivered(delivered);
                }
            });
            // Of the other seconds: ten bins of 50,000 bytes.
            case.flow.peak = Some(Rate(4_000_000));
            check(&case.evidence()).expect("full").word("cause").to_owned()
        };
        let long_path = |full_ms, other_ms| with_rate(full_ms, other_ms, 50_000);
        assert_eq!(long_path(40.0, 10.0), "queue");
        assert_eq!(long_path(29.0, 10.0), "window", "below grade B");
        assert_eq!(long_path(40.0, 30.0), "window", "the path's delay varies at all times");
        assert_eq!(long_path(5.0, 5.0), "window");
        assert_eq!(with_rate(40.0, 10.0, 47_000), "window", "it carried less than the path");
    }
}
