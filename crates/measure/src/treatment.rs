//! Whether the network treats TCP handshakes, or QUIC, and the probes, which are other UDP, alike.
//!
//! signal: round trips of TCP handshakes or of QUIC, and of the probes sent at the same time · model: both meet the same queue,
//! unless the network sorts packets by protocol or by connection. A queue changes within a second, so each round trip is compared
//! with the probes next to it in time · action: by how much they are later, and whether that is another treatment; whether none
//! of the whole test came back.
//!
//! Why: a grade is that of the probes. Where a network lets them pass its queue, a connection waits although the grade
//! is good.
//!
//! The kernel measures a handshake: the first RTT of its connection. One whose SYN was sent again counts as lost, and is in no
//! pair. Source: this project.

use std::ops::Range;

use serde::Serialize;

use crate::figures::median;

/// A TCP handshake or a QUIC probe that was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrip {
    /// When, client's clock, ns.
    pub t1: i64,
    /// How long it took; `None`: it or its answer was lost.
    pub rtt_ms: Option<f64>,
}

/// Round trips of a phase beside its probes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Treatment {
    /// How many were sent.
    pub sent: usize,
    /// Those that were lost, or whose answers were.
    pub lost: usize,
    /// Median of what they took above the smallest of the test.
    pub added_p50_ms: Option<f64>,
    /// Median of what each took longer than the probes next to it; negative: shorter.
    pub later_ms: Option<f64>,
    /// None of the whole test was answered, and the probes next to them were.
    pub blocked: bool,
    /// The network treats them differently.
    pub differs: bool,
}

/// A probe so far from a round trip met another queue: three gaps of 50 probes a second.
const NEAR_NS: i64 = 60_000_000;
/// With fewer pairs nine in ten are all, and so many are not lost by chance.
const MIN_PAIRS: usize = 8;
/// So many pairs in a hundred have to differ in the same direction.
const SAME_DIRECTION: usize = 90;
/// A smaller difference is none: as the bound of accuracy, once for each of the two.
const MIN_DIFFERENCE_MS: f64 = 10.0;
/// Nor is one below this share of the larger: they are packets of another length.
const MIN_SHARE: f64 = 0.25;

/// Compares the round trips of a phase, among all of a test, with answered probes, each with its sending time and its added delay,
/// all in the order of time. `None`: none was sent then.
pub fn treatment(all: &[RoundTrip], phase: Range<i64>, probes: &[(i64, f64)]) -> Option<Treatment> {
    let within: Vec<&RoundTrip> = all.iter().filter(|one| phase.contains(&one.t1)).collect();
    if within.is_empty() {
        return None;
    }
    let least = all.iter().filter_map(|one| one.rtt_ms).reduce(f64::min);
    let added = |one: &&RoundTrip| Some((one.t1, one.rtt_ms? - least?));
    let took: Vec<(i64, f64)> = within.iter().filter_map(added).collect();
    let pairs: Vec<(f64, f64)> =
        took.iter().filter_map(|(t1, ms)| Some((*ms, near(probes, *t1)?))).collect();
    let middle = |values: Vec<f64>| (!values.is_empty()).then(|| median(&values));
    let later_ms = middle(pairs.iter().map(|(own, theirs)| own - theirs).collect());
    let larger =
        middle(pairs.iter().map(|(own, theirs)| own.max(*theirs)).collect()).unwrap_or(0.0);
    let otherwise = later_ms.is_some_and(|later| {
        let same = pairs.iter().filter(|(own, theirs)| (own - theirs) * later > 0.0).count();
        pairs.len() >= MIN_PAIRS
            && later.abs() > f64::max(MIN_DIFFERENCE_MS, MIN_SHARE * larger)
            && same * 100 >= pairs.len() * SAME_DIRECTION
    });
    let blocked = least.is_none()
        && all.iter().filter(|one| near(probes, one.t1).is_some()).count() >= MIN_PAIRS;
    Some(Treatment {
        sent: within.len(),
        lost: within.iter().filter(|one| one.rtt_ms.is_none()).count(),
        added_p50_ms: middle(took.iter().map(|(_, ms)| *ms).collect()),
        later_ms,
        blocked,
        differs: otherwise || blocked,
    })
}

/// Mean added delay of the probes right before and right after a time.
fn near(probes: &[(i64, f64)], t1: i64) -> Option<f64> {
    let after = probes.partition_point(|(t, _)| *t < t1);
    let both = [after.checked_sub(1), Some(after)];
    let close: Vec<f64> = both
        .into_iter()
        .flatten()
        .filter_map(|n| probes.get(n))
        .filter(|(t, _)| (t - t1).abs() <= NEAR_NS)
        .map(|(_, ms)| *ms)
        .collect();
    (!close.is_empty()).then(|| close.iter().sum::<f64>() / close.len() as f64)
}

#[cfg(test)]
mod tests {
    use algo::Rng;

    use super::*;

    const MS: i64 = 1_000_000;
    /// Of the phase, and before it.
    const TIME: Range<i64> = 0..10_000 * MS;

    /// One before the phase, which met no queue.
    fn beginning(later: &[RoundTrip]) -> Vec<RoundTrip> {
        [&[RoundTrip { t1: -1, rtt_ms: Some(40.0) }], later].concat()
    }

    /// Five seconds beside a queue that swings by half in two seconds: a handshake every 130 ms, a probe every 20 ms. Both have
    /// noise of a few ms; what part of the queue each meets.
    fn seen(of_handshakes: f64, of_probes: f64) -> Treatment {
        let mut rng = Rng::new(3, "treatment");
        let queue =
            |t: i64| 200.0 + 100.0 * (t as f64 / (2_000 * MS) as f64 * std::f64::consts::TAU).sin();
        let mut noise = |ms: f64| ms + 3.0 * rng.uniform();
        let probes: Vec<(i64, f64)> =
            (0..250).map(|n| n * 20 * MS).map(|t| (t, noise(of_probes * queue(t)))).collect();
        let handshakes: Vec<RoundTrip> = (0..38)
            .map(|n| n * 130 * MS)
            .map(|t1| RoundTrip { t1, rtt_ms: Some(40.0 + noise(of_handshakes * queue(t1))) })
            .collect();
        treatment(&beginning(&handshakes), TIME, &probes).unwrap()
    }

    #[test]
    fn the_same_queue_is_no_difference_however_it_swings() {
        let same = seen(1.0, 1.0);
        assert!(!same.differs && same.later_ms.is_some_and(|ms| ms.abs() < 4.0), "{same:?}");
        assert_eq!((same.sent, same.lost), (38, 0));
        assert!(!seen(0.0, 0.0).differs);
        // A sixth is what lengths and schedulers make.
        assert!(!seen(1.2, 1.0).differs);
    }

    #[test]
    fn who_passes_the_queue_is_found_in_either_direction() {
        let probes_pass = seen(1.0, 0.0);
        assert!(probes_pass.differs && probes_pass.later_ms.is_some_and(|ms| ms > 150.0));
        let handshakes_pass = seen(0.0, 1.0);
        assert!(handshakes_pass.differs && handshakes_pass.later_ms.is_some_and(|ms| ms < -150.0));
    }

    #[test]
    fn a_difference_now_and_then_or_of_few_is_none() {
        let one = |n: i64, ms| RoundTrip { t1: n * 100 * MS, rtt_ms: ms };
        let probes: Vec<(i64, f64)> = (0..100).map(|n| (n * 20 * MS, 0.0)).collect();
        let judged = |list: &[RoundTrip]| {
            treatment(&beginning(list), TIME, &probes).map(|found| found.differs)
        };
        let late: Vec<RoundTrip> = (0..20).map(|n| one(n, Some(240.0))).collect();
        assert_eq!(judged(&late), Some(true));
        assert_eq!(judged(&late[..7]), Some(false), "too few");
        let some: Vec<RoundTrip> =
            (0..20).map(|n| one(n, Some(if n % 5 == 0 { 40.0 } else { 240.0 }))).collect();
        assert_eq!(judged(&some), Some(false), "a fifth does not wait");
        // Those that were lost, and those without a probe nearby, are in no pair.
        let lost: Vec<RoundTrip> = (0..20).map(|n| one(n, None)).collect();
        let found = treatment(&beginning(&lost), TIME, &probes).unwrap();
        assert_eq!((found.lost, found.later_ms, found.differs), (20, None, false));
        assert_eq!(treatment(&late, TIME, &[]).unwrap().later_ms, None);
        assert_eq!(treatment(&[], TIME, &probes), None);
    }

    #[test]
    fn what_never_came_back_is_blocked_if_the_probes_beside_it_did() {
        let lost: Vec<RoundTrip> =
            (-10..10).map(|n| RoundTrip { t1: n * 100 * MS, rtt_ms: None }).collect();
        let probes: Vec<(i64, f64)> = (-50..50).map(|n| (n * 20 * MS, 0.0)).collect();
        let found = treatment(&lost, TIME, &probes).unwrap();
        assert!(found.blocked && found.differs, "{found:?}");
        assert_eq!((found.sent, found.lost, found.later_ms), (10, 10, None));
        let blocked = |list: &[RoundTrip], probes: &[(i64, f64)]| {
            treatment(list, TIME, probes).is_some_and(|found| found.blocked || found.differs)
        };
        assert!(!blocked(&lost, &[]), "nor was a probe answered");
        assert!(!blocked(&lost[10..17], &probes), "too few");
        assert!(!blocked(&beginning(&lost), &probes), "one of the test was answered");
    }
}
