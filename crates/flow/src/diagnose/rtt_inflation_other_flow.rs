//! # rtt-inflation-other-flow
//!
//! The RTT of this flow rose, but the flow is too small to have caused it: another flow filled the queue.
//!
//! ## How it is measured
//!
//! Added delay = path RTT − smallest RTT known of the path. A bin of the flow's profile is inflated
//! when even its *smallest* RTT is 30 ms above that (grade B and worse). At least a tenth of the
//! bins with samples, and at least three, must be inflated. The p95 of all samples must show it
//! too. The queue is that of other flows in two cases:
//!
//! - This flow delivered less than 20 % of the bytes in its direction in the inflated bins. (A
//!   flow's share of a queue is its share of the rate.)
//! - It never had more than four segments in flight (p95) while the capture contains nothing else.
//!
//! If one of the largest flows was active for at least half of the inflated time and carried half of its bytes or
//! more, it is named as the *rival*. Otherwise the cause lies outside the capture, and the delay must be 200 ms or
//! more, since smaller ones can be delayed ACKs. The queue may also be in the other direction of the same
//! connection. So nothing is reported if that direction carried a fifth of the rival's bytes or more (without a
//! rival: as much as the link carried in this direction).
//!
//! Minimum: 10 RTT samples; no minimum of bytes, since interactive sessions and calls are affected most.
//!
//! ## Evidence
//!
//! `grade`; `added_ms_p95`; `rtt_ms_min`, `rtt_ms_p95`; `inflated_s`; `onset_s` (after the first data);
//! `own_share` of the bytes in the inflated time, 0 … 1; `own_in_flight_bytes_p95`; `rival_flow` (flow id),
//! `rival_bytes`, when one is found.
//!
//! ## What cures it
//!
//! Nothing in this flow. Flow queueing at the bottleneck (fq_codel, CAKE) gives each flow its own queue. BBR, or a
//! receive window that follows the delay, on the large flow keeps the shared queue short. On a phone QCUT or
//! priority queues above the radio help.
//!
//! ## Traps
//!
//! - Delayed ACKs (40 … 200 ms) raise single samples of flows with few packets. Hence the smallest
//!   RTT of a bin, two samples per bin, and the 200 ms without a rival.
//! - A download whose ACKs wait behind an upload of the same phone has a large share of its own
//!   direction. Then `bufferbloat` is reported, although the queue is in the other direction. Look
//!   for an upload at the same time.
//! - In a capture at a server the flows share only the server; a rival is a possible cause, not a
//!   proven one.
//!
//! ## Sources
//!
//! Guo et al., "Understanding on-device bufferbloat for cellular upload", IMC 2016, section 5 (harm across
//! flows). Jiang et al., IMC 2012, figure 4 (ping beside a bulk flow).

use super::reading::{
    Values, base_rtt, bytes, clock, end_of, ms, ratio, seconds_into, severity_of,
};
use super::{Check, Rule, page::page};
use crate::diagnose::grade::grade;
use crate::series::evidence::{Evidence, Rival};
use crate::series::rows::{Finding, Severity};

/// Added delay (ms) of an inflated bin: the beginning of grade B.
const INFLATED_MS: f64 = 30.0;
/// Added delay (ms) that no delayed ACK explains: the usual timer's upper end (200 ms; RFC 9293 allows 500).
const BEYOND_DELAYED_ACK_MS: f64 = 200.0;
/// Share of the bytes below which a flow cannot have caused the queue.
const SMALL_SHARE: f64 = 0.2;
/// Segments in flight up to which a flow is too small to fill a queue: the smallest initial window (RFC
/// 3390).
const SMALL_FLIGHT: f64 = 4.0;
/// Minimum RTT samples: a short web exchange has about as many.
const MIN_SAMPLES: u64 = 10;
/// Minimum number of inflated bins; fewer may be chance.
const MIN_BINS: usize = 3;

pub(super) const RULE: Rule = Rule {
    name: "rtt-inflation-other-flow",
    about: "the RTT rises because of another flow's queue",
    source: "QCUT (IMC 2016) section 5; DRWA (IMC 2012) figure 4",
    page: page!("rtt_inflation_other_flow.rs"),
    check: Check::Flow(check),
};

/// Sums over the inflated bins of a flow.
struct Inflation {
    first: usize,
    last: usize,
    bins: usize,
    own_bytes: u64,
    link_bytes: u64,
}

fn inflation(e: &Evidence<'_>) -> Option<Inflation> {
    let rtt = e.flow.rtt_ms.filter(|q| q.count >= MIN_SAMPLES)?;
    let base = base_rtt(e)?;
    if rtt.p95 - base < INFLATED_MS {
        return None;
    }
    let mut found = Inflation { first: usize::MAX, last: 0, bins: 0, own_bytes: 0, link_bytes: 0 };
    let mut measured = 0;
    for (i, bin) in e.profile.bins().iter().enumerate() {
        let Some(min) = bin.rtt_min() else { continue };
        measured += 1;
        let added = min - base;
        if added >= BEYOND_DELAYED_ACK_MS || added >= INFLATED_MS && bin.rtt_count >= 2 {
            found.first = found.first.min(i);
            found.last = i;
            found.bins += 1;
            found.own_bytes += bin.delivered.0;
            found.link_bytes += bin.link_bytes.0.max(bin.delivered.0);
        }
    }
    (found.bins >= MIN_BINS && found.bins * 10 >= measured).then_some(found)
}

/// Whether the flow cannot have caused the queue in `seen`.
fn is_foreign(e: &Evidence<'_>, seen: &Inflation) -> bool {
    let share = ratio(seen.own_bytes as f64, seen.link_bytes as f64);
    let flight = e.flow.in_flight_bytes.map_or(f64::INFINITY, |q| q.p95);
    share < SMALL_SHARE
        || (share > 1.0 - SMALL_SHARE && flight <= SMALL_FLIGHT * f64::from(e.flow.mss))
}

/// Whether other flows caused the delay of this flow; then `bufferbloat` is not reported.
pub(super) fn has_foreign_queue(e: &Evidence<'_>) -> bool {
    inflation(e).is_some_and(|seen| is_foreign(e, &seen))
}

/// The rival that was active for half of the inflated time and carried half of its bytes.
fn find_rival<'a>(e: &Evidence<'a>, seen: &Inflation) -> Option<&'a Rival> {
    let (from, to) = (e.profile.time_of(seen.first), e.profile.end_of(seen.last));
    e.rivals.iter().filter(|r| r.flow != e.reverse.id).find(|r| {
        let both = r.end.min(to).since(r.start.max(from)).as_secs_f64();
        let inflated = to.since(from).as_secs_f64();
        // its bytes, spread evenly over its duration
        let bytes = r.bytes.0 as f64 * ratio(both, r.end.since(r.start).as_secs_f64());
        both >= inflated / 2.0 && bytes >= seen.link_bytes as f64 / 2.0
    })
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let seen = inflation(e)?;
    if !is_foreign(e, &seen) {
        return None;
    }
    let (rtt, base) = (e.flow.rtt_ms?, base_rtt(e)?);
    let added = rtt.p95 - base;
    let rival = find_rival(e, &seen);
    // the queue may be in the other direction of this connection
    let answers = e.reverse.bytes.0 as f64;
    let own_answers = match rival {
        Some(r) => answers >= SMALL_SHARE * r.bytes.0 as f64,
        None => answers >= seen.link_bytes as f64,
    };
    if own_answers || (rival.is_none() && added < BEYOND_DELAYED_ACK_MS) {
        return None;
    }
    let grade = grade(added);
    let severity = severity_of(grade).unwrap_or(Severity::Info);
    let share = ratio(seen.own_bytes as f64, seen.link_bytes as f64);
    let from = e.profile.time_of(seen.first);
    let mut v = Values::default();
    v.text("grade", grade)
        .number("added_ms_p95", added)
        .number("rtt_ms_min", base)
        .number("rtt_ms_p95", rtt.p95)
        .number("inflated_s", seen.bins as f64 * e.profile.width().as_secs_f64())
        .number("onset_s", seconds_into(e, from))
        .number("own_share", share)
        .number("own_in_flight_bytes_p95", e.flow.in_flight_bytes.map(|q| q.p95))
        .number("rival_flow", rival.map(|r| f64::from(r.flow)))
        .number("rival_bytes", rival.map(|r| r.bytes.0 as f64));
    let source = match rival {
        Some(r) => format!("the queue is that of flow {} ({})", r.flow, bytes(r.bytes.0 as f64)),
        None => {
            "the queue was filled by traffic that is not one large flow of this capture".to_owned()
        }
    };
    Some(Finding {
        rule: RULE.name,
        severity,
        flow: Some(e.flow.id),
        from,
        to: end_of(e, seen.last),
        values: v.take(),
        text: format!(
            "The RTT rose by {} (p95) from {} on while this flow had only {} in flight: {source}.",
            ms(added),
            clock(e, from),
            bytes(e.flow.in_flight_bytes.map_or(0.0, |q| q.p95)),
        ),
        cure: "Flow queueing at the bottleneck (fq_codel, CAKE), or a sender of the large flow that keeps the queue short \
               (BBR, unless it runs that already); nothing in this flow helps.",
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;
    use units::Bytes;

    /// A small flow (one segment per RTT) beside an upload that starts after 5 s.
    fn victim(added: f64) -> Case {
        let mut case = Case::transfer(30, |t, bin| {
            bin.delivered(500);
            bin.in_flight_max = Bytes(500);
            if t >= 5.0 {
                bin.rtt(50.0 + added);
                bin.link_bytes = Bytes(50_000);
            }
        });
        case.rivals =
            vec![Rival { flow: 6, bytes: Bytes(12_500_000), start: at(5.0), end: at(30.0) }];
        case
    }

    #[test]
    fn a_small_flow_behind_an_upload_names_the_upload() {
        let case = victim(150.0);
        let f = check(&case.evidence()).expect("inflated");
        assert_eq!((f.severity, f.number("rival_flow"), f.from), (Severity::Warning, 6.0, at(5.0)));
        assert!((f.number("own_share") - 0.01).abs() < 0.001);
        assert!(f.text.contains("flow 6"), "{}", f.text);
        assert!(has_foreign_queue(&case.evidence()));
    }

    #[test]
    fn the_flow_that_fills_the_queue_is_not_its_victim() {
        let case = Case::transfer(30, |t, bin| {
            if t > 5.0 {
                bin.rtt(800.0);
                bin.in_flight_max = Bytes(400_000);
            }
        });
        assert!(check(&case.evidence()).is_none());
        assert!(!has_foreign_queue(&case.evidence()));
    }

    #[test]
    fn without_a_rival_only_a_delay_beyond_delayed_acks_counts() {
        let without = |added| {
            let mut case = victim(added);
            case.rivals.clear();
            check(&case.evidence())
        };
        assert!(without(199.0).is_none());
        let f = without(200.0).expect("beyond any delayed ACK");
        assert!(f.number("rival_flow").is_nan() && f.severity == Severity::Serious);
    }

    #[test]
    fn a_rival_that_carried_little_or_came_later_is_not_named() {
        let mut case = victim(250.0);
        case.rivals[0].bytes = Bytes(1_000_000);
        assert!(check(&case.evidence()).is_some_and(|f| f.number("rival_flow").is_nan()));
        let mut case = victim(250.0);
        case.rivals[0].start = at(25.0);
        assert!(check(&case.evidence()).is_some_and(|f| f.number("rival_flow").is_nan()));
    }

    #[test]
    fn thirty_milliseconds_are_the_boundary() {
        assert!(check(&victim(29.0).evidence()).is_none());
        assert_eq!(check(&victim(31.0).evidence()).map(|f| f.severity), Some(Severity::Info));
    }

    #[test]
    fn the_answers_of_the_same_connection_may_be_the_queue() {
        let mut case = victim(150.0);
        case.reverse.bytes = Bytes(2_600_000);
        assert!(check(&case.evidence()).is_none());
        case.reverse.bytes = Bytes(2_400_000);
        assert!(check(&case.evidence()).is_some());
        case.rivals[0].flow = case.reverse.id;
        assert!(check(&case.evidence()).is_none());
    }

    #[test]
    fn single_delayed_acks_are_no_inflation() {
        let mut case = victim(0.0);
        let mut late = Case::transfer(30, |t, bin| {
            bin.delivered(500);
            bin.link_bytes = Bytes(50_000);
            if t >= 5.0 {
                bin.rtt(190.0);
                bin.rtt_count = 1;
            }
        });
        late.rivals = std::mem::take(&mut case.rivals);
        assert!(check(&late.evidence()).is_none());
    }
}
