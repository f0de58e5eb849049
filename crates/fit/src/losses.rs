//! Losses by the queue in which they happened.
//!
//! signal: what stood in the queue at each loss, and at each segment that arrived · model: a full buffer drops where its queue is
//! longest, a radio or a wire loses packets at any queue. So losses while the queue was short are random ones · action:
//! [`Losses`]
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
    /// Part of the segments that met a short queue.
    pub short: f64,
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
    by_queue(directions.losses.iter().map(queued).collect(), &of_arrived.collect::<Vec<_>>())
}

/// By the queues of losses, and those of what arrived with its bytes.
fn by_queue(queued: Vec<f64>, of_arrived: &[(f64, f64)]) -> Losses {
    let met = of_arrived.iter().map(|one| one.0);
    let longest = met.chain(queued.iter().copied()).fold(0.0, f64::max);
    let is_short = |queued: f64| queued < SHORT * longest;
    let whole: f64 = of_arrived.iter().map(|one| one.1).sum();
    let short: f64 = of_arrived.iter().filter(|one| is_short(one.0)).map(|one| one.1).sum();
    Losses {
        in_short: queued.iter().filter(|bytes| is_short(**bytes)).count(),
        short: short / whole.max(1.0),
        queued,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_in_a_short_queue_are_counted_beside_the_segments_there() {
        let arrived: Vec<(f64, f64)> = (0..100).map(|at| (f64::from(at), 1.0)).collect();
        let losses = by_queue(vec![5.0, 20.0, 99.0, 98.0], &arrived);
        assert_eq!((losses.in_short, losses.queued.len()), (2, 4));
        assert!((losses.short - 0.25).abs() < 1e-9);
        assert_eq!(by_queue(Vec::new(), &[]), Losses::default());
    }
}
