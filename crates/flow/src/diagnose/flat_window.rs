//! # flat-window
//!
//! A receive window that never changed limited the transfer: a static maximum, as on the phones of the DRWA paper.
//! It is too small for a path with a large BDP and too large for one with a small BDP.
//!
//! ## How it is measured
//!
//! A bin of the flow's profile is flat when its window is within 2 % of the largest one advertised and the bytes
//! in flight reached 90 % of it. The finding is reported when at least 80 % of the bins with data (and at least
//! 20 bins, 2 s) are flat.
//!
//! The cap is compared with the path: cap over BDP (p95 of 100 ms goodput × smallest RTT). Up to 1.5 the
//! window limits the rate (*too small*), unless a queue stands while it is full (see `receive-window`). From 3 on it allows a queue of at least twice the BDP (*too large*; 3 is
//! the λ at which DRWA itself stops). Between the two it *fits*.
//!
//! It is also compared with the maxima of some phones (`tcp_rmem` third value, of which Linux
//! advertises all, three quarters or a half, by `tcp_adv_win_scale`), within 1 %.
//!
//! Minimum: 100 KB in 30 segments over 2 s.
//!
//! ## Evidence
//!
//! `cap_bytes`, `flat_share` (0 … 1 of the bins with data), `bdp_bytes`, `cap_over_bdp`, `verdict` (`too
//! small`, `fits`, `too large`), `known_cap` (device and setting, when one matches), `goodput_bps`,
//! `rtt_ms_min`, `queue_ms_p95`.
//!
//! ## What cures it
//!
//! A window that follows the path instead: autotuning with a higher ceiling where it is too small, DRWA where
//! it is too large.
//!
//! ## Traps
//!
//! - A well-tuned receiver at the end of its autotuning also advertises a constant window; what matters is
//!   the verdict.
//! - A constant window that is never filled has no effect: hence the condition on the bytes in flight.
//! - A match with a known value is a hint: powers of two and their halves are common.
//!
//! ## Sources
//!
//! Jiang et al., "Tackling bufferbloat in 3G/4G networks", IMC 2012, section 4.
//!
//! The values: AOSP and CyanogenMod `rootdir/init.rc` (Gingerbread, ICS, Jelly Bean), LG G2x
//! `init.p999.rc`, HTC EVO Shift `system.prop`, Galaxy S2 (I777) `init.rc`.

use super::reading::{Values, bytes, data_end, data_start, enough_data, percent, ratio};
use super::{Check, Rule, page::page};
use crate::diagnose::receive_window::{blames_queue, path_was_full};
use crate::diagnose::sender::cure_at_sender;
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};
use units::Duration;

/// A window from this share of the largest one on counts as equal: rounding by the scale and one unread segment.
const AT_MAX: f64 = 0.98;
/// Bytes in flight from this share of the window on fill it: one segment of a small window of 10.
const FILLED: f64 = 0.90;
/// Share of the bins with data that must be flat.
const FLAT: f64 = 0.80;
/// Minimum number of bins with data.
const MIN_BINS: usize = 20;
/// In a shorter flow slow start and one round of losses are most of the time.
const MIN_ACTIVE: Duration = Duration::from_secs(2);
/// Cap over BDP up to which the window limits the rate, and from which it mostly allows queue.
const SMALL: f64 = 1.5;
const LARGE: f64 = 3.0;
/// Relative difference up to which a window matches a known value.
const NEAR: f64 = 0.01;
/// Shares of tcp_rmem that Linux advertises (tcp_adv_win_scale 31 or beyond, 2, 1).
const PARTS: [f64; 3] = [1.0, 0.75, 0.5];

/// Largest receive buffers in the settings of some phones, bytes.
const KNOWN: [(f64, &str); 12] = [
    (11_680.0, "Android GPRS"),
    (35_040.0, "Android EDGE"),
    (110_208.0, "Android 2.3 default, Wi-Fi and UMTS"),
    (196_608.0, "LG G2x default"),
    (262_144.0, "Android 4.0 HSPA; Galaxy S2 EV-DO"),
    (288_768.0, "Galaxy S2 UMTS"),
    (393_216.0, "LG G2x Wi-Fi and mobile; Galaxy S2 Wi-Fi"),
    (524_288.0, "HTC EVO Shift WiMAX"),
    (563_200.0, "Android 4.1 UMTS; Galaxy S2 Wi-Fi"),
    (704_512.0, "Android 4.1 default and HSPA; Galaxy S2 HSPA"),
    (1_220_608.0, "Android 4.1 LTE and HSPA+"),
    (2_097_152.0, "Android 4.0 Wi-Fi and LTE"),
];

pub(super) const RULE: Rule = Rule {
    name: "flat-window",
    about: "a receive window that never changes caps the transfer",
    source: "DRWA (IMC 2012) section 4; tcp_rmem of Android device trees",
    page: page!("flat_window.rs"),
    check: Check::Flow(check),
};

/// The phone setting that gives a window of `cap` bytes; the whole buffer is tried before its shares.
fn known(cap: f64) -> Option<&'static str> {
    PARTS.iter().find_map(|part| {
        KNOWN
            .iter()
            .find(|(bytes, _)| (cap / (bytes * part) - 1.0).abs() <= NEAR)
            .map(|(_, name)| *name)
    })
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let flow = e.flow;
    let cap = flow.rwnd_max?.0 as f64;
    let touched = flow.in_flight_bytes.is_some_and(|q| q.max >= FILLED * cap);
    if cap == 0.0 || !touched || !enough_data(e) || flow.active < MIN_ACTIVE {
        return None;
    }
    let (mut with_data, mut flat) = (0, 0);
    for bin in e.profile.bins().iter().filter(|b| b.in_flight_max.0 > 0) {
        with_data += 1;
        let (window, in_flight) = (bin.rwnd_max.0 as f64, bin.in_flight_max.0 as f64);
        // a bin without an ACK has no window of its own: the last one is still valid
        let at_max = window >= AT_MAX * cap || window == 0.0;
        flat += usize::from(at_max && in_flight >= FILLED * cap);
    }
    let share = ratio(flat as f64, with_data as f64);
    if with_data < MIN_BINS || share < FLAT {
        return None;
    }
    let bdp = flow.bdp.map(|b| b.0 as f64).filter(|b| *b > 0.0);
    let over = bdp.map(|b| cap / b);
    let verdict = over.map(|x| match x {
        x if x >= LARGE => "too large",
        x if x <= SMALL && !path_was_full(e) => "too small",
        _ => "fits",
    });
    let known = known(cap);
    let mut v = Values::default();
    v.number("cap_bytes", cap)
        .number("flat_share", share)
        .number("bdp_bytes", bdp)
        .number("cap_over_bdp", over)
        .text("verdict", verdict)
        .text("known_cap", known)
        .number("goodput_bps", flow.goodput.map(|r| r.0 as f64))
        .number("rtt_ms_min", flow.rtt_ms.map(|q| q.min))
        .number("queue_ms_p95", flow.queue_ms.map(|q| q.p95));
    let like = known.map_or(String::new(), |name| format!(" (the value of: {name})"));
    let judged = match (verdict, over) {
        (Some("too small"), Some(x)) => {
            format!("; at {x:.1} times the path's BDP it is too small and sets the rate")
        }
        (Some("too large"), Some(x)) => {
            format!("; at {x:.1} times the path's BDP it is too large and only adds queue")
        }
        (Some(_), Some(x)) => format!("; at {x:.1} times the BDP it fits this path by chance"),
        _ => String::new(),
    };
    Some(Finding {
        rule: RULE.name,
        severity: if verdict == Some("fits") { Severity::Info } else { Severity::Warning },
        flow: Some(flow.id),
        from: data_start(e),
        to: data_end(e),
        values: v.take(),
        text: format!(
            "A constant receive window of {}{like} limited the transfer for {} of its time{judged}.",
            bytes(cap),
            percent(share),
        ),
        cure: match (verdict, blames_queue(e)) {
            (Some("too large"), Some(true)) => {
                "As for receive-window; a static maximum cannot suit both a short and a long path."
            }
            (Some("too large"), _) => cure_at_sender!(
                flow,
                "Let the receiver's window follow the delay (DRWA): a static maximum cannot suit both a short and a long \
                 path. ",
                ".",
                not_needed: "Let the receiver's window follow the delay (DRWA): a static maximum cannot suit both a short \
                             and a long path. ",
                "."
            ),
            (_, Some(false)) => {
                "As for receive-window: a larger one. A window that follows the delay (DRWA) adds no queue on short paths."
            }
            _ => {
                "Raise the maximum of tcp_rmem at the receiver, with a window that follows the delay (DRWA) so that it \
                 adds no queue on short paths."
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Case;
    use super::*;
    use units::Bytes;

    fn capped(cap: u64, rtt: f64, per_tick: u64) -> Case {
        let mut case = Case::transfer(30, |t, bin| {
            bin.rwnd_max = Bytes(cap);
            bin.in_flight_max = Bytes(if t < 1.0 { cap / 4 } else { cap });
            bin.delivered(per_tick);
            bin.rtt(rtt);
        });
        if let Some(q) = &mut case.flow.rtt_ms {
            q.min = 50.0;
        }
        case
    }

    #[test]
    fn a_phone_window_on_a_long_path_is_too_small() {
        // 110,208 bytes per 250 ms: 3.5 Mbit/s whatever the link can do
        let f = check(&capped(110_208, 250.0, 44_083).evidence()).expect("flat");
        assert_eq!((f.severity, f.word("verdict")), (Severity::Warning, "too small"));
        assert!(f.word("known_cap").starts_with("Android 2.3"), "{}", f.word("known_cap"));
        assert!(f.number("flat_share") > 0.95);
    }

    #[test]
    fn the_same_kind_of_window_on_a_short_path_is_too_large() {
        let mut case = capped(524_288, 1_000.0, 52_400);
        case.flow.bdp = Some(Bytes(26_200));
        let f = check(&case.evidence()).expect("flat");
        assert_eq!((f.word("verdict"), f.word("known_cap")), ("too large", "HTC EVO Shift WiMAX"));
        assert!((f.number("cap_over_bdp") - 20.0).abs() < 0.1);
    }

    #[test]
    fn one_connection_gets_one_cure_of_its_window() {
        let mut case = capped(110_208, 250.0, 44_083);
        let alone = check(&case.evidence()).expect("flat").cure;
        assert!(alone.starts_with("Raise the maximum of tcp_rmem"));
        let full = |case: &mut Case| {
            case.flow.window_full = Duration::from_secs(20);
            case.flow.rtt_ms.as_mut().expect("RTTs").min = 250.0;
        };
        full(&mut case);
        let cures: Vec<_> = crate::diagnose::flow_findings(&case.evidence())
            .into_iter()
            .filter(|f| f.rule.ends_with("-window"))
            .map(|f| f.cure)
            .collect();
        assert_eq!(cures.len(), 2);
        assert!(cures[0].contains("tcp_rmem") && !cures[1].contains("tcp_rmem"), "{cures:?}");
        assert!(cures[1].starts_with("As for receive-window"));
    }

    #[test]
    fn a_window_that_grows_or_is_not_filled_is_not_flat() {
        let grows = Case::transfer(30, |t, bin| {
            bin.rwnd_max = Bytes(100_000 + (t * 50_000.0) as u64);
            bin.in_flight_max = bin.rwnd_max;
        });
        assert!(check(&grows.evidence()).is_none());
        assert!(check(&Case::transfer(30, |_, _| {}).evidence()).is_none());
    }

    #[test]
    fn eighty_percent_of_the_bins_are_the_boundary() {
        let with = |full_from: f64| {
            let case = Case::transfer(100, |t, bin| {
                bin.in_flight_max = if t >= full_from { bin.rwnd_max } else { Bytes(10_000) };
            });
            check(&case.evidence()).is_some()
        };
        assert_eq!([with(20.0), with(21.0)], [true, false]);
    }

    #[test]
    fn half_of_a_known_buffer_is_recognised_and_an_unknown_one_is_not() {
        assert_eq!(known(1_048_576.0), Some("Android 4.0 Wi-Fi and LTE"));
        assert_eq!(known(3_000_000.0), None);
    }
}
