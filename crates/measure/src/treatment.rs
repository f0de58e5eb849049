//! Whether the network treats TCP handshakes and the probes, which are UDP, alike.
//!
//! signal: round trips of TCP handshakes, and of the probes sent at the same time · model: both meet the same queue, unless
//! the network sorts packets by protocol or by connection. A queue changes within a second, so each handshake is compared
//! with the probes next to it in time · action: by how much handshakes are later, and whether that is another treatment.
//!
//! Why: a grade is that of the probes. Where a network lets them pass its queue, a connection waits although the grade
//! is good.
//!
//! The kernel measures a handshake: the first RTT of its connection. One whose SYN was sent again counts as lost, and is in no
//! pair. Source: this project.

use serde::Serialize;

use crate::figures::median;

/// A handshake that began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handshake {
    /// When, client's clock, ns.
    pub t1: i64,
    /// Its round trip; `None`: the SYN or its answer was lost.
    pub rtt_ms: Option<f64>,
}

/// Handshakes of a phase beside its probes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Treatment {
    /// Handshakes that began.
    pub handshakes: usize,
    /// Those whose SYN or answer was lost.
    pub lost: usize,
    /// Median of their round trips above the smallest of the test.
    pub added_p50_ms: Option<f64>,
    /// Median of what each took longer than the probes next to it; negative: shorter.
    pub later_ms: Option<f64>,
    /// The network treats them differently.
    pub differs: bool,
}

/// A probe so far from a handshake met another queue: three gaps of 50 probes a second.
const NEAR_NS: i64 = 60_000_000;
/// With fewer pairs nine in ten are all.
const MIN_PAIRS: usize = 8;
/// So many pairs in a hundred have to differ in the same direction.
const SAME_DIRECTION: usize = 90;
/// A smaller difference is none: as the bound of accuracy, once for each of the two.
const MIN_DIFFERENCE_MS: f64 = 10.0;
/// Nor is one below this share of the larger: handshakes are packets of another length.
const MIN_SHARE: f64 = 0.25;

/// Compares the handshakes of a phase with its answered probes, each with its sending time and its added delay, in the order of
/// time. `rtt_min_ms`: the smallest round trip of all handshakes. `None` without a handshake.
pub fn treatment(
    handshakes: &[Handshake],
    rtt_min_ms: Option<f64>,
    probes: &[(i64, f64)],
) -> Option<Treatment> {
    if handshakes.is_empty() {
        return None;
    }
    let added = |h: &Handshake| Some((h.t1, (h.rtt_ms? - rtt_min_ms?).max(0.0)));
    let took: Vec<(i64, f64)> = handshakes.iter().filter_map(added).collect();
    let pairs: Vec<(f64, f64)> =
        took.iter().filter_map(|(t1, ms)| Some((*ms, near(probes, *t1)?))).collect();
    let middle = |values: Vec<f64>| (!values.is_empty()).then(|| median(&values));
    let later_ms = middle(pairs.iter().map(|(own, theirs)| own - theirs).collect());
    let larger =
        middle(pairs.iter().map(|(own, theirs)| own.max(*theirs)).collect()).unwrap_or(0.0);
    let differs = later_ms.is_some_and(|later| {
        let same = pairs.iter().filter(|(own, theirs)| (own - theirs) * later > 0.0).count();
        pairs.len() >= MIN_PAIRS
            && later.abs() > f64::max(MIN_DIFFERENCE_MS, MIN_SHARE * larger)
            && same * 100 >= pairs.len() * SAME_DIRECTION
    });
    Some(Treatment {
        handshakes: handshakes.len(),
        lost: handshakes.iter().filter(|h| h.rtt_ms.is_none()).count(),
        added_p50_ms: middle(took.iter().map(|(_, ms)| *ms).collect()),
        later_ms,
        differs,
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

    /// Five seconds beside a queue that swings by half in two seconds: a handshake every 130 ms, a probe every 20 ms. Both have
    /// noise of a few ms; what part of the queue each meets.
    fn seen(of_handshakes: f64, of_probes: f64) -> Treatment {
        let mut rng = Rng::new(3, "treatment");
        let queue =
            |t: i64| 200.0 + 100.0 * (t as f64 / (2_000 * MS) as f64 * std::f64::consts::TAU).sin();
        let mut noise = |ms: f64| ms + 3.0 * rng.uniform();
        let probes: Vec<(i64, f64)> =
            (0..250).map(|n| n * 20 * MS).map(|t| (t, noise(of_probes * queue(t)))).collect();
        let handshakes: Vec<Handshake> = (0..38)
            .map(|n| n * 130 * MS)
            .map(|t1| Handshake { t1, rtt_ms: Some(40.0 + noise(of_handshakes * queue(t1))) })
            .collect();
        treatment(&handshakes, Some(40.0), &probes).unwrap()
    }

    #[test]
    fn the_same_queue_is_no_difference_however_it_swings() {
        let same = seen(1.0, 1.0);
        assert!(!same.differs && same.later_ms.is_some_and(|ms| ms.abs() < 4.0), "{same:?}");
        assert_eq!((same.handshakes, same.lost), (38, 0));
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
        let handshake = |n: i64, ms| Handshake { t1: n * 100 * MS, rtt_ms: ms };
        let probes: Vec<(i64, f64)> = (0..100).map(|n| (n * 20 * MS, 0.0)).collect();
        let judged =
            |list: &[Handshake]| treatment(list, Some(40.0), &probes).map(|found| found.differs);
        let late: Vec<Handshake> = (0..20).map(|n| handshake(n, Some(240.0))).collect();
        assert_eq!(judged(&late), Some(true));
        assert_eq!(judged(&late[..7]), Some(false), "too few");
        let some: Vec<Handshake> =
            (0..20).map(|n| handshake(n, Some(if n % 5 == 0 { 40.0 } else { 240.0 }))).collect();
        assert_eq!(judged(&some), Some(false), "a fifth does not wait");
        // Those that were lost, and those without a probe nearby, are in no pair.
        let lost: Vec<Handshake> = (0..20).map(|n| handshake(n, None)).collect();
        let found = treatment(&lost, None, &probes).unwrap();
        assert_eq!((found.lost, found.later_ms, found.differs), (20, None, false));
        assert_eq!(treatment(&late, Some(40.0), &[]).unwrap().later_ms, None);
        assert_eq!(treatment(&[], None, &probes), None);
    }
}
