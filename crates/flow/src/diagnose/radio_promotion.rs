//! # radio-promotion
//!
//! After an idle gap the first packet took much longer than the next ones: a cellular radio (or a sleeping
//! Wi-Fi station) had to wake up.
//!
//! ## How it is measured
//!
//! A gap is a second or more with nothing in flight; up to 32 gaps are examined. After each, the
//! RTT of the first packet is compared with that of the next sample (else with the median RTT). It
//! was *late* when it took 50 ms and 50 % more. Two late ones are needed. At least half of the gaps
//! as long as the shortest late one must show it, because a radio goes to sleep by a timer, unlike
//! chance events. Info; a warning when the median extra time is 1 s or more.
//!
//! Minimum: two such gaps; no minimum of bytes.
//!
//! Of pings and of the probes of `unbloat measure` the RTT is compared with the pause before each. That is the time since
//! the last packet of the asking host in the capture, from or to any host. A finding is a *step*: from some pause of a
//! second or more on, answers take 50 ms and 50 % longer. There are three or more answers on each side of it, and in 95 of
//! 100 pairs the one after the longer pause took longer. `unbloat measure --idle-gaps` searches in the same way. Beside the
//! host that answers there is no finding.
//!
//! ## Evidence
//!
//! `wakeups` (gaps looked at), `promoted` (late ones), `gap_s_min` (shortest gap with a late answer: about
//! the radio's timer), `gap_s_max_prompt` (longest gap answered promptly), `extra_ms_p50`, `extra_ms_max`,
//! `rtt_ms_p50`.
//!
//! ## What cures it
//!
//! Fewer, larger exchanges. Where latency matters, a small packet every few seconds keeps the radio awake, at the
//! cost of battery. A bulk transfer waits only once.
//!
//! ## Traps
//!
//! - A delayed ACK (40 … 200 ms) of a single first segment looks the same: hence the comparison with the next
//!   sample, and with gaps of the same length.
//! - A sleeping server (virtual machine, disk) matters only if its *kernel* answers late: ACKs are compared, not
//!   responses.
//! - NAT or ARP entries that expired add one lookup.
//! - Pings at one interval have one pause: without shorter and longer ones there is no step.
//!
//! ## Sources
//!
//! Jiang et al., "Tackling bufferbloat in 3G/4G networks", IMC 2012, figure 5: RTT of pings by interval jumps
//! beyond 7 s. 3GPP TS 36.331 (RRC states).

use super::pauses::{median, steps};
use super::reading::{Values, counted, ms, quantile, seconds};
use super::{Check, Rule, page::page};
use crate::series::evidence::{Evidence, ProbePauses, Wakeup};
use crate::series::rows::{Finding, Severity};
use units::Duration;

/// Minimum idle time before a radio may sleep: the shortest inactivity timers are about a second.
const MIN_GAP: Duration = Duration::from_secs(1);
/// Minimum extra time of a late answer, in ms and as a share of the usual RTT: above jitter and short delayed ACKs.
const EXTRA_MS: f64 = 50.0;
const EXTRA_PART: f64 = 0.5;
/// One late answer may be chance.
const MIN_LATE: usize = 2;
/// Median extra time (ms) of a warning: 1 s is Nielsen's limit for an uninterrupted flow of thought.
const COSTS_MS: f64 = 1_000.0;

pub(super) const RULE: Rule = Rule {
    name: "radio-promotion",
    about: "the first packet after a pause waits for the radio to wake up",
    source: "DRWA (IMC 2012) figure 5",
    page: page!("radio_promotion.rs"),
    check: Check::FlowAndProbes(check, check_probes),
};

const CURE: &str = "Fewer and larger exchanges; where latency matters, a small packet every few seconds keeps the radio awake.";

fn severity(extra_ms: f64) -> Severity {
    if extra_ms >= COSTS_MS { Severity::Warning } else { Severity::Info }
}

/// Extra time of the first answer, ms, if it was late.
fn late(w: &Wakeup, usual_ms: Option<f64>) -> Option<f64> {
    let usual = w.next_rtt.map(Duration::as_millis_f64).or(usual_ms)?;
    let extra = w.first_rtt.as_millis_f64() - usual;
    (extra >= EXTRA_MS && extra >= EXTRA_PART * usual).then_some(extra)
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    if e.wakeups.len() < MIN_LATE {
        return None;
    }
    let usual = e.flow.rtt_ms.map(|q| q.p50);
    let gaps: Vec<(&Wakeup, Option<f64>)> =
        e.wakeups.iter().filter(|w| w.gap >= MIN_GAP).map(|w| (w, late(w, usual))).collect();
    let extra: Vec<f64> = gaps.iter().filter_map(|(_, x)| *x).collect();
    let shortest = gaps.iter().filter(|(_, x)| x.is_some()).map(|(w, _)| w.gap).min()?;
    let as_long = gaps.iter().filter(|(w, _)| w.gap >= shortest).count();
    if extra.len() < MIN_LATE || extra.len() * 2 < as_long {
        return None;
    }
    let prompt = gaps.iter().filter(|(_, x)| x.is_none()).map(|(w, _)| w.gap).max();
    let typical = quantile(&extra, 0.5)?;
    let longest = quantile(&extra, 1.0)?;
    let times = || gaps.iter().filter(|(_, x)| x.is_some()).map(|(w, _)| w.time);
    let mut v = Values::default();
    v.number("wakeups", gaps.len() as f64)
        .number("promoted", extra.len() as f64)
        .number("gap_s_min", shortest.as_secs_f64())
        .number("gap_s_max_prompt", prompt.map(Duration::as_secs_f64))
        .number("extra_ms_p50", typical)
        .number("extra_ms_max", longest)
        .number("rtt_ms_p50", usual);
    Some(Finding {
        rule: RULE.name,
        severity: severity(typical),
        flow: Some(e.flow.id),
        from: times().min().unwrap_or(e.connection.start),
        to: times().max().unwrap_or(e.connection.end),
        values: v.take(),
        text: format!(
            "{} of {} of {} and more the first packet took {} longer than the next (at most {}): the radio had to wake \
             up.",
            if extra.len() == as_long {
                "After each".to_owned()
            } else {
                format!("After {}", extra.len())
            },
            counted(as_long as u64, "pause", "pauses"),
            seconds(shortest.as_secs_f64()),
            ms(typical),
            ms(longest),
        ),
        cure: CURE,
    })
}

fn check_probes(pauses: &ProbePauses<'_>) -> Option<Finding> {
    let long = |pause_s: f64| pause_s >= MIN_GAP.as_secs_f64();
    let timed: Vec<(f64, f64)> =
        pauses.probes.iter().map(|p| (p.pause.as_secs_f64(), p.rtt.as_millis_f64())).collect();
    let wakeups = timed.iter().filter(|(pause_s, _)| long(*pause_s)).count();
    if wakeups < MIN_LATE {
        return None;
    }
    let rtts = |until_s: f64| -> Vec<f64> {
        timed.iter().filter(|(pause_s, _)| *pause_s < until_s).map(|(_, ms)| *ms).collect()
    };
    let step = steps(timed.clone())
        .into_iter()
        .filter(|step| {
            let usual_ms = median(&rtts(step.until_s));
            long(step.until_s) && step.extra_ms >= EXTRA_MS.max(EXTRA_PART * usual_ms)
        })
        .max_by(|a, b| a.extra_ms.total_cmp(&b.extra_ms))?;
    let late = || pauses.probes.iter().filter(|p| p.pause.as_secs_f64() >= step.until_s);
    let mut v = Values::default();
    v.number("wakeups", wakeups as f64)
        .number("promoted", step.samples as f64)
        .number("gap_s_min", step.until_s)
        .number("gap_s_max_prompt", step.from_s)
        .number("extra_ms_p50", step.extra_ms)
        .number("extra_ms_max", step.high_ms)
        .number("rtt_ms_p50", median(&rtts(step.until_s)));
    Some(Finding {
        rule: RULE.name,
        severity: severity(step.extra_ms),
        flow: Some(pauses.flow),
        from: late().map(|p| p.time).min()?,
        to: late().map(|p| p.time + p.rtt).max()?,
        values: v.take(),
        text: format!(
            "After {} to {} without a packet the next one takes {} longer (at most {}, {}): the radio has to wake up{}.",
            seconds(step.from_s),
            seconds(step.until_s),
            ms(step.extra_ms),
            ms(step.high_ms),
            counted(step.samples as u64, "probe", "probes"),
            if step.cycle { "; it sleeps in cycles" } else { "" },
        ),
        cure: CURE,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;
    use crate::series::evidence::PausedProbe;

    /// Probes after these pauses (s) with these RTTs (ms).
    fn probes(list: &[(f64, u64)]) -> Option<Finding> {
        let probes: Vec<PausedProbe> = (list.iter().enumerate())
            .map(|(i, &(pause_s, rtt_ms))| PausedProbe {
                time: at(10.0 * i as f64),
                pause: Duration((pause_s * 1e9) as u64),
                rtt: Duration::from_millis(rtt_ms),
            })
            .collect();
        check_probes(&ProbePauses { flow: 4, probes: &probes })
    }

    #[test]
    fn probes_after_more_than_two_seconds_wait_for_the_radio() {
        let list = [
            (0.2, 40),
            (2.2, 545),
            (1.0, 42),
            (3.0, 540),
            (0.2, 41),
            (1.9, 43),
            (6.0, 543),
            (0.2, 40),
        ];
        let f = probes(&list).expect("a step");
        assert_eq!((f.severity, f.flow), (Severity::Info, Some(4)));
        assert_eq!((f.number("gap_s_max_prompt"), f.number("gap_s_min")), (1.9, 2.2));
        assert_eq!((f.number("promoted"), f.number("wakeups")), (3.0, 5.0));
        assert!((f.number("extra_ms_p50") - 502.0).abs() < 2.0, "{}", f.number("extra_ms_p50"));
        assert!(f.text.starts_with("After 1.9 s to 2.2 s without a packet"), "{}", f.text);
        assert_eq!((f.from, f.to), (at(10.0), at(60.0) + Duration::from_millis(543)));
    }

    #[test]
    fn one_level_of_pauses_or_of_answers_is_no_step() {
        assert!(probes(&[(5.0, 540); 20]).is_none(), "one pause");
        let flat: Vec<(f64, u64)> = (1..20).map(|i| (f64::from(i), 40 + i as u64 % 3)).collect();
        assert!(probes(&flat).is_none(), "one level");
        let falling: Vec<(f64, u64)> =
            (1..20).map(|i| (f64::from(i), if i < 8 { 500 } else { 40 })).collect();
        assert!(probes(&falling).is_none(), "shorter after a pause");
        let small: Vec<(f64, u64)> =
            (1..20).map(|i| (f64::from(i), if i < 8 { 40 } else { 89 })).collect();
        assert!(probes(&small).is_none(), "49 ms");
        let short: Vec<(f64, u64)> =
            (1..20).map(|i| (f64::from(i) / 20.0, if i < 8 { 40 } else { 540 })).collect();
        assert!(probes(&short).is_none(), "no pause of a second");
    }

    fn pauses(list: &[(u64, u64)]) -> Option<Finding> {
        let mut case = Case::transfer(10, |_, _| {});
        case.wakeups = list
            .iter()
            .enumerate()
            .map(|(i, &(gap_s, first_ms))| Wakeup {
                time: at(10.0 * i as f64),
                gap: Duration::from_secs(gap_s),
                first_rtt: Duration::from_millis(first_ms),
                next_rtt: (i % 2 == 0).then_some(Duration::from_millis(60)),
            })
            .collect();
        check(&case.evidence())
    }

    #[test]
    fn gaps_beyond_seven_seconds_pay_as_in_figure_5() {
        let f = pauses(&[(2, 60), (4, 62), (8, 560), (10, 580), (12, 600), (6, 58)])
            .expect("promotion");
        assert_eq!(
            (f.severity, f.number("promoted"), f.number("wakeups")),
            (Severity::Info, 3.0, 6.0)
        );
        assert_eq!((f.number("gap_s_min"), f.number("gap_s_max_prompt")), (8.0, 6.0));
        assert!(f.text.starts_with("After each of 3 pauses of 8.0 s and more"), "{}", f.text);
        assert_eq!((f.from, f.to), (at(20.0), at(40.0)));
    }

    #[test]
    fn one_late_answer_or_a_few_among_many_are_chance() {
        assert!(pauses(&[(8, 560), (9, 60)]).is_none());
        assert!(pauses(&[(8, 560), (9, 560), (9, 60), (10, 60), (11, 60)]).is_none());
        assert!(pauses(&[]).is_none());
    }

    #[test]
    fn fifty_milliseconds_and_half_of_the_rtt_are_the_boundary() {
        assert!(pauses(&[(8, 110), (1, 60), (8, 110)]).is_some());
        assert!(pauses(&[(8, 109), (1, 60), (8, 109)]).is_none());
    }

    #[test]
    fn a_second_of_extra_time_is_a_warning() {
        assert_eq!(
            pauses(&[(8, 1060), (8, 1060), (8, 1060)]).map(|f| f.severity),
            Some(Severity::Warning)
        );
    }
}
