//! # uneven-rate
//!
//! The throughput of a long transfer was not steady: its usual range, and number, time and depth of its dips.
//!
//! ## How it is measured
//!
//! Goodput of every second that begins with a bin of the profile, without the first two seconds and the last. The
//! blocks are longer for flows above 51 s, whose profile is coarser. They last four of the path's smallest RTTs at
//! least: a window that leaves at once makes bursts of one RTT. The seconds overlap, so that no short dip is divided between
//! two of them. The usual range is p10 … p90. A *dip* is a run of such seconds below half of the median; the next one
//! begins at least a second later. It is info, reported when p90 / p10 is 1.5 or more, or when there is a dip.
//!
//! Minimum: 10 s and 1 MB. Not reported with 30 % of the time limited by the application or by a window of 0: such
//! pauses of a program are no dips. Nor where the congestion window limited half of the time, as long as p90 / p10 is
//! below 4. Reno halves its window at a loss and grows again. It halves it once more where a second loss follows soon.
//! `loss-limited` and the limits describe that.
//!
//! ## Evidence
//!
//! `goodput_bps_p10`, `goodput_bps_p50`, `goodput_bps_p90`, `dips`, `dip_bps_min` (deepest block), `dip_s`
//! (when, after the first data), `block_s`.
//!
//! ## What cures it
//!
//! Find what happens at the dips: losses (red in the time-sequence chart), a full window, or a radio cell or
//! backhaul shared with others. Compare both directions: if one is much slower on the same radio link, the radio is
//! not the limit.
//!
//! ## Traps
//!
//! - A varying rate is normal on radio; this finding describes it and does not imply a fault.
//! - The saw-tooth of CUBIC itself spans about 1.4 with a small buffer: hence 1.5.
//!
//! ## Sources
//!
//! TCP Tracing part 4 (blog.wirelessmoves.com, 2022): "mostly between 150 and 300 Mbit/s, with a (single)
//! short downwards dip to 50"; parts 1 and 5.

use super::reading::{
    Values, base_rtt, clock, counted, data_end, data_start, enough_data, quantile, rate,
    rate_between, seconds_into, share,
};
use super::{Check, Rule, page::page};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Limit, Severity};
use units::{Bytes, Duration};

/// Minimum duration and bytes for a meaningful range.
const MIN_ACTIVE: Duration = Duration::from_secs(10);
const MIN_BYTES: Bytes = Bytes(1_000_000);
/// Share of time limited by the application of either side beyond which dips are its pauses.
const PAUSES: f64 = 0.30;
/// p90 over p10 from which the rate is uneven: CUBIC multiplies by 0.7, a span of 1.43.
const SPAN: f64 = 1.5;
/// Share of time limited by the congestion window from which it sets the rate, and p90 over p10 of a rate that halves at a
/// loss and once more before it has recovered.
const MAIN: f64 = 0.50;
const HALVED_TWICE: f64 = 4.0;
/// Share of the median below which a block is a dip: below the back-off after one loss.
const DIP: f64 = 0.5;
/// Ticks per block: a second of 100 ms.
const BLOCK: u64 = 10;
/// RTTs per block at least: a burst of each RTT more or less then changes the rate by at most a quarter.
const BLOCK_RTTS: f64 = 4.0;
/// Blocks of slow start left out.
const WARM_UP: usize = 2;

pub(super) const RULE: Rule = Rule {
    name: "uneven-rate",
    about: "usual range and dips of the throughput",
    source: "TCP Tracing 1, 4 and 5",
    page: page!("uneven_rate.rs"),
    check: Check::Flow(check),
};

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    if flow.active < MIN_ACTIVE || flow.bytes < MIN_BYTES || !enough_data(e) {
        return None;
    }
    if share(e, Limit::Application) + share(e, Limit::ZeroWindow) >= PAUSES {
        return None;
    }
    let n = e.profile.bins().len();
    let bin_ms = e.profile.width().as_millis_f64();
    let rtts = (BLOCK_RTTS * base_rtt(e).unwrap_or(0.0) / bin_ms).ceil() as usize;
    let per_block = ((BLOCK / e.profile.ticks(0).max(1)).max(1) as usize).max(rtts).min(n.max(1));
    let first = e.profile.bins().iter().position(|b| b.delivered.0 > 0)? + WARM_UP * per_block;
    let last = e.profile.bins().iter().rposition(|b| b.delivered.0 > 0)?;
    let starts: Vec<usize> = (first..n).take_while(|i| i + per_block <= last.min(n)).collect();
    let blocks: Vec<f64> =
        starts.iter().map(|&i| rate_between(e, i, i + per_block).unwrap_or(0.0)).collect();
    let (low, middle, high) =
        (quantile(&blocks, 0.1)?, quantile(&blocks, 0.5)?, quantile(&blocks, 0.9)?);
    let mut dips: Vec<usize> = Vec::new();
    let mut dipped_last: Option<usize> = None;
    for i in (0..blocks.len()).filter(|&i| blocks[i] < DIP * middle) {
        if dipped_last.is_none_or(|last| i > last + per_block) {
            dips.push(i);
        }
        dipped_last = Some(i);
    }
    if middle <= 0.0 || (dips.is_empty() && high < SPAN * low) {
        return None;
    }
    if share(e, Limit::CongestionWindow) >= MAIN && high < HALVED_TWICE * low {
        return None;
    }
    let deepest = (0..blocks.len()).min_by(|&a, &b| blocks[a].total_cmp(&blocks[b]))?;
    let at = e.profile.time_of(starts[deepest]);
    let dipped = !dips.is_empty();
    let mut v = Values::default();
    v.number("goodput_bps_p10", low)
        .number("goodput_bps_p50", middle)
        .number("goodput_bps_p90", high)
        .number("dips", dips.len() as f64)
        .number("dip_bps_min", dipped.then_some(blocks[deepest]))
        .number("dip_s", dipped.then(|| seconds_into(e, at)))
        .number("block_s", e.profile.width().as_secs_f64() * per_block as f64);
    let text = match dips.len() as u64 {
        0 => String::new(),
        1 => format!(", with one dip to {} at {}", rate(blocks[deepest]), clock(e, at)),
        n => format!(
            ", with {}, the deepest to {} at {}",
            counted(n, "dip", "dips"),
            rate(blocks[deepest]),
            clock(e, at)
        ),
    };
    Some(Finding {
        rule: RULE.name,
        severity: Severity::Info,
        flow: Some(flow.id),
        from: if dipped { at } else { data_start(e) },
        to: data_end(e),
        values: v.take(),
        text: format!("The throughput was mostly between {} and {}{text}.", rate(low), rate(high)),
        cure: "Look at what happens at the dips (loss, a full window, others on the cell or backhaul), and compare both \
               directions of the same link.",
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;

    fn mbit(rate: f64) -> u64 {
        (rate * 1e6 / 8.0 / 10.0) as u64
    }

    #[test]
    fn a_dip_of_one_second_is_seen_wherever_it_begins() {
        for shift in 0..10 {
            let from = 12.0 + f64::from(shift) / 10.0;
            let case = Case::transfer(30, |t, bin| {
                let level = if (from - 0.01..from + 0.99).contains(&t) { 50.0 } else { 225.0 };
                bin.delivered(mbit(level));
            });
            let f = check(&case.evidence()).expect("uneven");
            assert_eq!(f.number("dips"), 1.0, "{}", f.text);
        }
    }

    #[test]
    fn bursts_of_one_round_trip_are_no_dips() {
        // A window of 90 KB in 100 ms of each round trip of 580 ms: one second has one or two of them.
        let case = |base_ms| {
            let mut case = Case::transfer(60, |t, bin| {
                let round = (t / 0.58 + 1e-9).floor();
                bin.delivered(if t - round * 0.58 < 0.095 { 90_000 } else { 0 });
            });
            case.path_rtt_ms_min = Some(base_ms);
            case.flow.rtt_ms = None;
            case
        };
        assert!(check(&case(580.0).evidence()).is_none());
        assert!(check(&case(20.0).evidence()).is_some(), "a path of 20 ms has no such rounds");
    }

    #[test]
    fn post_4_lies_mostly_between_150_and_300_with_one_dip_to_50() {
        for seconds in [30, 60] {
            let case = Case::transfer(seconds, |t, bin| {
                let level =
                    if (12.0..14.0).contains(&t) { 50.0 } else { 225.0 + 75.0 * (t * 0.9).sin() };
                bin.delivered(mbit(level));
            });
            let f = check(&case.evidence()).expect("uneven");
            assert!((150e6..170e6).contains(&f.number("goodput_bps_p10")), "{}", f.text);
            assert!((280e6..300e6).contains(&f.number("goodput_bps_p90")), "{}", f.text);
            assert_eq!(f.number("dips"), 1.0);
            assert!(f.number("dip_bps_min") < 60e6 && (f.number("dip_s") - 12.0).abs() < 1.1);
            assert!(f.text.contains("with one dip to 50 Mbit/s at 112.0 s"), "{}", f.text);
        }
    }

    #[test]
    fn the_span_ends_with_the_data_and_not_with_the_connection() {
        let mut case = Case::transfer(30, |t, bin| {
            bin.delivered(mbit(if (12.0..14.0).contains(&t) { 50.0 } else { 225.0 }));
        });
        case.connection.end = at(120.0);
        let f = check(&case.evidence()).expect("uneven");
        assert_eq!(f.to, at(30.0));
    }

    #[test]
    fn a_steady_rate_and_the_saw_tooth_of_cubic_say_nothing() {
        assert!(check(&Case::transfer(30, |_, _| {}).evidence()).is_none());
        let tooth = Case::transfer(30, |t, bin| bin.delivered(mbit(70.0 + 30.0 * (t % 5.0) / 5.0)));
        assert!(check(&tooth.evidence()).is_none());
    }

    #[test]
    fn the_saw_tooth_of_a_congestion_window_that_halves_is_left_to_the_limits() {
        let with = |limit, lowest: f64| {
            let case = Case::transfer(60, |t, bin| {
                bin.delivered(mbit(lowest + (10.0 - lowest) * (t % 30.0) / 30.0));
                bin.limit(limit);
            });
            check(&case.evidence()).is_some()
        };
        assert!(!with(Limit::CongestionWindow, 4.0));
        assert!(with(Limit::CongestionWindow, 0.5), "far below two halvings");
        assert!(with(Limit::Bottleneck, 4.0));
    }

    #[test]
    fn pauses_of_the_application_are_no_dips() {
        let pausing = |share: f64, limit| {
            let case = Case::transfer(30, |t, bin| {
                if t % 10.0 < 10.0 * share {
                    bin.delivered(0);
                    bin.limit(limit);
                }
            });
            check(&case.evidence()).is_some()
        };
        for limit in [Limit::Application, Limit::ZeroWindow] {
            assert_eq!([pausing(0.2, limit), pausing(0.4, limit)], [true, false]);
        }
    }

    #[test]
    fn less_than_ten_seconds_or_a_megabyte_is_no_range() {
        let uneven = |seconds, bytes| {
            let mut case =
                Case::transfer(seconds, |t, bin| bin.delivered(50_000 + 50_000 * (t as u64 % 3)));
            case.flow.bytes = Bytes(bytes);
            check(&case.evidence()).is_some()
        };
        assert_eq!(
            [uneven(9, 9_000_000), uneven(20, 999_999), uneven(20, 1_000_000)],
            [false, false, true]
        );
    }
}
