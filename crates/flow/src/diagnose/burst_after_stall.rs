//! # burst-after-stall
//!
//! ACKs stopped although data was in flight, came back all at once, and each burst of ACKs caused a burst of
//! data.
//!
//! ## How it is measured
//!
//! With data in flight, the ACKs fell silent three times or more, and each silence ended in a
//! burst. The longest silence was 200 ms or more, the minimum retransmission timeout: shorter ones
//! have little effect on the sender. A burst counts where its RTT was longer than the minimum by half of the
//! silence. A sender that sends its window at once has silences of up to one round trip, and nothing stalls. Not reported when zero windows lasted longer than that: see
//! `zero-window`.
//!
//! *Burstiness* is the coefficient of variation (standard deviation over mean) of the goodput in
//! 100 ms bins, computed in blocks of about a second. If one bin in three carries everything it is
//! 1.4; for an even flow it is below 0.3. A change point search over the blocks finds the onset
//! from which it stays above 0.75. The burstiness after it must also be 1.5 times that before. Mean
//! goodput and burstiness before and after the onset are compared. The same mean with a higher
//! burstiness is typical of an upload that has reached its receive window behind a bloated queue. A
//! warning when there is an onset or the longest silence reaches 500 ms, else info.
//!
//! *What was held* is known where both hosts send timestamps: the other host's clock splits each round trip into
//! the way of the data and that of its ACK. If the ACKs were held, what they waited rises by half of the silence or more
//! across it. If the data was held, what the data waited does. The direction of which that holds for more than half of the
//! bursts is named. `variation_by_receiver` is the burstiness after the onset by the receiver's clock: if ACKs
//! alone are held, the data arrives as evenly as before.
//!
//! Minimum: 100 KB in 30 segments over 1 s.
//!
//! ## Evidence
//!
//! `ack_bursts`, `ack_silence_ms_max`, `ack_burst_bytes_max`, `data_burst_bytes_max`, `silence_ms_p50` (of up
//! to 32 longest); `held` (*acks* or *data*), `held_ms_max`, `variation_by_receiver`; `onset_s` (after the first data), `goodput_bps_before`, `goodput_bps_after`,
//! `variation_before`, `variation_after`.
//!
//! ## What cures it
//!
//! The cure of the stall itself: see `receive-window` and `bufferbloat` of the same flow. A paced sender (BBR, or
//! fq with CUBIC) does not answer one burst with another. Wi-Fi and LTE aggregate ACKs; silences of some 10 ms are
//! normal there.
//!
//! ## Traps
//!
//! - In a capture with GRO the network card merges ACKs, which causes silences of a few milliseconds.
//! - An application that sends in pieces is bursty without any stall of ACKs.
//! - The mean before the onset contains slow start.
//!
//! ## Sources
//!
//! TCP Tracing part 8 (blog.wirelessmoves.com, 2022): "At the 22 second mark …". Zhang, Shenker, Clark,
//! "Observations on the dynamics of a congestion control algorithm", SIGCOMM 1991 (ACK compression).

use super::reading::{
    Values, bytes, clock, counted, data_end, enough_data, ms, quantile, rate, rate_between,
    seconds_into,
};
use super::{Check, Rule, page::page};
use crate::diagnose::changepoint::onset;
use crate::series::directions::{Directions, Waits};
use crate::series::evidence::{Burst, Evidence};
use crate::series::profile::ProfileBin;
use crate::series::rows::{Finding, Severity};
use units::Duration;

/// Fewer bursts may be chance.
const MIN_BURSTS: u64 = 3;
/// Minimum of the longest silence: the minimum RTO of Linux. From half a second on it is a warning.
const MIN_SILENCE: Duration = Duration::from_millis(200);
const LONG_SILENCE: Duration = Duration::from_millis(500);
/// Coefficient of variation of 100 ms goodput from which a flow is bursty.
const BURSTY: f64 = 0.75;
/// Minimum factor of its rise, because a few extreme blocks can shift the change point.
const JUMP: f64 = 1.5;
/// Ticks per block of the burstiness series: a second of 100 ms.
const BLOCK: u64 = 10;

pub(super) const RULE: Rule = Rule {
    name: "burst-after-stall",
    about: "ACKs pause and return in bursts, the data with them",
    source: "TCP Tracing 8; ACK compression (SIGCOMM 1991)",
    page: page!("burst_after_stall.rs"),
    check: Check::Flow(check),
};

/// Coefficient of variation of the goodput per tick over the bins `from .. to`; `None` without traffic.
fn variation(e: &Evidence<'_>, from: usize, to: usize) -> Option<f64> {
    let bins: &[ProfileBin] = e.profile.bins().get(from..to)?;
    let ticks: f64 = (from..to).map(|i| e.profile.ticks(i) as f64).sum();
    let sum: f64 = bins.iter().map(|b| b.delivered.0 as f64).sum();
    let squares: f64 = bins.iter().map(|b| b.delivered_squared).sum();
    if sum <= 0.0 || ticks < 2.0 {
        return None;
    }
    let mean = sum / ticks;
    Some((squares / ticks - mean * mean).max(0.0).sqrt() / mean)
}

/// First bin from which the goodput is bursty, if it was even before.
fn bursty_from(e: &Evidence<'_>) -> Option<usize> {
    let n = e.profile.bins().len();
    let per_block = (BLOCK / e.profile.ticks(0).max(1)).max(1) as usize;
    // a bin wider than a block contains the variation of its ticks
    let blocks: Vec<f64> = (0..n)
        .step_by(per_block)
        .map(|i| variation(e, i, (i + per_block).min(n)).unwrap_or(f64::NAN))
        .collect();
    let from = onset(&blocks, BURSTY).filter(|o| o.risen).map(|o| o.index * per_block)?;
    let (calm, rough) = (variation(e, 0, from)?, variation(e, from, n)?);
    (rough >= BURSTY && rough >= JUMP * calm).then_some(from)
}

/// What the path held before the bursts: *acks* or *data*, and the longest wait behind it, ms.
fn held(directions: &Directions, bursts: &[Burst]) -> Option<(&'static str, f64)> {
    type Way = (&'static str, fn(&Waits) -> Duration);
    let ways: [Way; 2] = [("acks", |w| w.acks), ("data", |w| w.data)];
    // The first packets after a silence waited for it; those before it did not.
    let risen = |burst: &Burst, way: fn(&Waits) -> Duration| {
        let aside = Duration(burst.silence.0 / 4);
        let waits = &directions.waits;
        let first = waits.partition_point(|w| w.seen() < burst.time - aside);
        let behind = waits[first..].iter().take_while(|w| w.seen() <= burst.time + aside);
        let before = waits[..first].last().map(way)?;
        let longest = behind.map(way).max()?;
        (longest.saturating_sub(before) * 2 >= burst.silence).then_some(longest)
    };
    let of = |(name, way): Way| {
        let longest: Vec<Duration> = bursts.iter().filter_map(|burst| risen(burst, way)).collect();
        let most = longest.iter().max().map_or(0.0, |longest| longest.as_millis_f64());
        (longest.len() * 2 > bursts.len()).then_some((longest.len(), name, most))
    };
    let (_, name, longest_ms) = ways.into_iter().filter_map(of).max_by_key(|(count, ..)| *count)?;
    Some((name, longest_ms))
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    if flow.ack_bursts < MIN_BURSTS || flow.ack_silence_max < MIN_SILENCE || !enough_data(e) {
        return None;
    }
    if flow.zero_window >= flow.ack_silence_max {
        return None;
    }
    let n = e.profile.bins().len();
    let onset = bursty_from(e);
    let (before, after) = match onset {
        Some(i) => (rate_between(e, 0, i), rate_between(e, i, n)),
        None => (None, None),
    };
    let (calm, rough) = match onset {
        Some(i) => (variation(e, 0, i), variation(e, i, n)),
        None => (None, variation(e, 0, n)),
    };
    let silences: Vec<f64> = e.bursts.iter().map(|b| b.silence.as_millis_f64()).collect();
    let earliest = e.bursts.iter().map(|b| b.time).min();
    let since = onset.map(|i| e.profile.time_of(i)).or(earliest).unwrap_or(e.connection.start);
    let held = e.directions.and_then(|directions| held(directions, e.bursts));
    let even = e.directions.and_then(|d| d.variation(since, data_end(e)));
    let mut v = Values::default();
    v.number("ack_bursts", flow.ack_bursts as f64)
        .number("ack_silence_ms_max", flow.ack_silence_max.as_millis_f64())
        .number("ack_burst_bytes_max", flow.ack_burst_bytes_max.0 as f64)
        .number("data_burst_bytes_max", flow.data_burst_bytes_max.0 as f64)
        .number("silence_ms_p50", quantile(&silences, 0.5))
        .text("held", held.map(|(what, _)| what))
        .number("held_ms_max", held.map(|(_, longest_ms)| longest_ms))
        .number("variation_by_receiver", even)
        .number("onset_s", onset.map(|_| seconds_into(e, since)))
        .number("goodput_bps_before", before)
        .number("goodput_bps_after", after)
        .number("variation_before", calm)
        .number("variation_after", rough);
    let mut text = format!(
        "ACKs stopped with data in flight and came back in {}, after up to {} of silence; after one of them the sender sent {} at once",
        counted(flow.ack_bursts, "burst", "bursts"),
        ms(flow.ack_silence_max.as_millis_f64()),
        bytes(flow.data_burst_bytes_max.0 as f64),
    );
    text += &match (before, after, calm, rough) {
        (Some(b), Some(a), Some(c), Some(r)) => format!(
            ". From {} on the goodput came in bursts (variation of 100 ms bins {c:.2} before, {r:.2} after) at a mean of \
             {} ({} before).",
            clock(e, since),
            rate(a),
            rate(b),
        ),
        _ => ".".to_owned(),
    };
    if let Some((what, longest_ms)) = held {
        let what = if what == "acks" { "ACKs" } else { what };
        text +=
            &format!(" By the timestamps the path held the {what}, for up to {}", ms(longest_ms));
        text += &match (what, even, rough) {
            ("ACKs", Some(even), Some(rough)) if even * JUMP <= rough => {
                format!("; the data arrived more evenly (variation {even:.2}).")
            }
            _ => ".".to_owned(),
        };
    }
    Some(Finding {
        rule: RULE.name,
        severity: if onset.is_some() || flow.ack_silence_max >= LONG_SILENCE {
            Severity::Warning
        } else {
            Severity::Info
        },
        flow: Some(flow.id),
        from: since,
        to: data_end(e),
        values: v.take(),
        text,
        cure: "Remove what stalls the ACKs (a bloated queue, a full receive window); a paced sender (BBR, or fq) does not \
               answer a burst with a burst.",
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;
    use units::{Bytes, Instant};

    /// 4 Mbit/s throughout; from 22 s on in one burst per second. `long` extends the flow beyond 512 bins.
    fn post_8(seconds: u64) -> Case {
        let mut case = Case::transfer(seconds, |t, bin| {
            let tick = (t * 10.0).round() as u64;
            bin.delivered(match tick {
                220.. if tick.is_multiple_of(10) => 500_000,
                220.. => 0,
                _ => 45_000 + 10_000 * (tick % 2),
            });
        });
        case.flow.ack_bursts = 38;
        case.flow.ack_silence_max = Duration::from_millis(950);
        case.flow.data_burst_bytes_max = Bytes(500_000);
        case.bursts = vec![Burst {
            time: at(23.0),
            silence: Duration::from_millis(950),
            acked: Bytes(500_000),
            released: Bytes(500_000),
        }];
        case
    }

    #[test]
    fn post_8_keeps_its_mean_while_its_burstiness_jumps_at_22_seconds() {
        for seconds in [45, 60, 120] {
            let f = check(&post_8(seconds).evidence()).expect("bursts");
            assert_eq!(f.severity, Severity::Warning);
            assert!(
                (f.number("onset_s") - 22.0).abs() <= 1.0,
                "{seconds}: {}",
                f.number("onset_s")
            );
            assert!((f.number("goodput_bps_before") / 4e6 - 1.0).abs() < 0.05);
            assert!((f.number("goodput_bps_after") / 4e6 - 1.0).abs() < 0.05);
            assert!(f.number("variation_before") < 0.3 && f.number("variation_after") > 2.0);
            assert!(f.text.contains("came in bursts"), "{}", f.text);
        }
    }

    #[test]
    fn bursts_without_a_change_of_shape_have_no_onset() {
        let mut case = Case::transfer(30, |_, _| {});
        case.flow.ack_bursts = 5;
        case.flow.ack_silence_max = Duration::from_millis(220);
        let f = check(&case.evidence()).expect("bursts");
        assert!(f.severity == Severity::Info && f.number("onset_s").is_nan());
        case.flow.ack_silence_max = Duration::from_millis(500);
        assert_eq!(check(&case.evidence()).map(|f| f.severity), Some(Severity::Warning));
    }

    /// Segments of 20 ms each, 10,000 bytes. From 22 s on what leaves goes on together once a second: as data, or as ACKs.
    fn waits(data_is_held: bool) -> Directions {
        let wait = |i: u64| {
            let sent = at(0.02 * i as f64);
            let until_next = Duration(1_000_000_000 - sent.since(at(0.0)).0 % 1_000_000_000);
            let waited = if i < 1_100 { Duration::ZERO } else { until_next };
            let (data, acks) =
                if data_is_held { (waited, Duration::ZERO) } else { (Duration::ZERO, waited) };
            let arrived = sent + data;
            let (answered, acked, delivered) = (arrived, arrived + acks, i * 10_000);
            Waits { sent, arrived, answered, acked, data, acks, delivered }
        };
        let tick = Duration::from_millis(1);
        Directions {
            tick,
            width: Duration::from_millis(20),
            waits: (0..3_000).map(wait).collect(),
            losses: Vec::new(),
        }
    }

    #[test]
    fn timestamps_say_whether_the_path_held_the_acks_or_the_data() {
        let found = |directions: Option<Directions>| {
            let burst = |time: Instant| Burst { time, ..post_8(60).bursts[0] };
            let bursts = (23..33).map(|second| burst(at(f64::from(second)))).collect();
            let case = Case { directions, bursts, ..post_8(60) };
            check(&case.evidence()).expect("bursts")
        };
        let acks = found(Some(waits(false)));
        assert!(
            acks.text
                .contains("the path held the ACKs, for up to 1.0 s; the data arrived more evenly"),
            "{}",
            acks.text
        );
        assert!(acks.number("variation_by_receiver") < 0.1 && acks.number("held_ms_max") > 950.0);
        let data = found(Some(waits(true)));
        assert!(data.text.contains("the path held the data, for up to 1.0 s."), "{}", data.text);
        assert!(data.number("variation_by_receiver") > 2.0);
        let neither = found(None);
        assert!(!neither.text.contains("held") && neither.number("held_ms_max").is_nan());
    }

    #[test]
    fn two_bursts_or_short_silences_say_nothing() {
        let with = |count, ms| {
            let mut case = post_8(60);
            case.flow.ack_bursts = count;
            case.flow.ack_silence_max = Duration::from_millis(ms);
            check(&case.evidence()).is_some()
        };
        assert_eq!([with(2, 950), with(3, 199), with(3, 200)], [false, false, true]);
    }

    #[test]
    fn silences_of_a_zero_window_are_left_to_the_other_rule() {
        let mut case = post_8(60);
        case.flow.zero_window = Duration::from_millis(950);
        assert!(check(&case.evidence()).is_none());
    }

    #[test]
    fn an_empty_profile_is_no_reason_to_panic() {
        let mut case = post_8(60);
        case.profile = crate::series::profile::Profile::new(at(0.0), Duration::from_millis(100));
        assert!(check(&case.evidence()).is_some_and(|f| f.number("onset_s").is_nan()));
    }
}
