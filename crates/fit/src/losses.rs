//! Losses by the queue in which they happened.
//!
//! signal: what stood in the queue at each loss, and at each segment that arrived · model: a full buffer drops where its queue is
//! longest, a radio or a wire loses packets at any queue. So losses while the queue was short are random ones, unless they prefer the longer of
//! these short queues: then the queue itself drops early (CoDel, PIE) · action: [`Losses`]
//!
//! Source: the loss discrimination of Biaz, Vaidya, "Discriminating Congestion Losses from Wireless Losses Using Inter-arrival Times", 1999,
//! by the queue itself in place of gaps. Deviation: losses in a long queue are not distinguished; random ones among them are as frequent as
//! those in a short queue.

use flow::series::arrivals::{Curve, packet};
use flow::series::directions::{Directions, Waits};
use flow::series::rows::Flow;
use units::Instant;

/// A queue is short below this part of the longest one.
const SHORT: f64 = 0.25;

/// Losses of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// What stood in the queue, of all flows that share it, at each moment of loss: bytes of IP packets.
    pub queued: Vec<f64>,
    /// How many of these moments had a short queue.
    pub in_short: usize,
    /// Segments that were lost in these.
    pub segments: u64,
    /// Part of the segments that met a short queue.
    pub short: f64,
    /// Part of the segments in a short queue that met a shorter one than a loss there did, the mean over these losses. It is a half where losses
    /// are random; `None` without a loss.
    pub rank: Option<f64>,
}

/// Losses of a flow. `beside`: others that share its queue.
pub(crate) fn losses(
    flow: &Flow,
    directions: &Directions,
    beside: &[&Directions],
    v6: bool,
) -> Losses {
    let (payload, packet) = packet(flow, v6);
    let curves: Vec<Curve> =
        [directions].iter().chain(beside).map(|one| Curve::of(&one.waits)).collect();
    // What arrived while a segment waited stood in front of it.
    let queued = |w: &Waits| -> f64 {
        let from = Instant(w.arrived.0.saturating_sub(w.data.0));
        let of_all: f64 = curves.iter().map(|one| one.within(w.arrived) - one.within(from)).sum();
        of_all * packet / payload
    };
    // The more arrived between two trips, the more segments met this queue.
    let mut before = directions.waits.first().map_or(0, |w| w.delivered);
    let of_arrived = directions.waits.iter().map(|w| {
        let bytes = w.delivered.saturating_sub(before) as f64;
        before = before.max(w.delivered);
        (queued(w), bytes)
    });
    let lost = directions.losses.iter().map(|loss| (queued(&loss.beside), loss.segments));
    by_queue(&lost.collect::<Vec<_>>(), &of_arrived.collect::<Vec<_>>())
}

/// By the queues of losses with their segments, and those of what arrived with its bytes.
fn by_queue(lost: &[(f64, u64)], of_arrived: &[(f64, f64)]) -> Losses {
    let met = of_arrived.iter().map(|one| one.0);
    let longest = met.chain(lost.iter().map(|one| one.0)).fold(0.0, f64::max);
    let is_short = |queued: f64| queued < SHORT * longest;
    let whole: f64 = of_arrived.iter().map(|one| one.1).sum();
    let short: f64 = of_arrived.iter().filter(|one| is_short(one.0)).map(|one| one.1).sum();
    let in_short: Vec<(f64, u64)> = lost.iter().copied().filter(|one| is_short(one.0)).collect();
    let mut of_short: Vec<(f64, f64)> =
        of_arrived.iter().copied().filter(|one| is_short(one.0)).collect();
    of_short.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // Those that met the same queue count by half.
    let below = |queued: f64| -> f64 {
        let same = of_short.partition_point(|one| one.0 < queued);
        let above = of_short.partition_point(|one| one.0 <= queued);
        let bytes = |part: &[(f64, f64)]| part.iter().map(|one| one.1).sum::<f64>();
        bytes(&of_short[..same]) + 0.5 * bytes(&of_short[same..above])
    };
    let ranks: f64 = in_short.iter().map(|one| below(one.0) / short.max(1.0)).sum();
    Losses {
        in_short: in_short.len(),
        segments: in_short.iter().map(|one| one.1).sum(),
        rank: (!in_short.is_empty()).then(|| ranks / in_short.len() as f64),
        short: short / whole.max(1.0),
        queued: lost.iter().map(|one| one.0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_in_a_short_queue_are_counted_beside_the_segments_there() {
        let arrived: Vec<(f64, f64)> = (0..100).map(|at| (f64::from(at), 1.0)).collect();
        let losses = by_queue(&[(5.0, 3), (20.0, 1), (99.0, 7), (98.0, 1)], &arrived);
        assert_eq!((losses.in_short, losses.segments, losses.queued.len()), (2, 4, 4));
        assert!((losses.short - 0.25).abs() < 1e-9);
        // Five and twenty of the twenty-five below.
        let rank = (5.5 + 20.5) / 2.0 / 25.0;
        assert!(losses.rank.is_some_and(|found| (found - rank).abs() < 1e-9), "{losses:?}");
        assert_eq!(by_queue(&[], &[]), Losses::default());
    }
}
