//! What stood in the queue in front of the slowest link, in bytes, at all times and beside losses.
//!
//! signal: arrivals and waits of segments (`series/directions`) · model: what arrives while a segment waits stood before it in
//! one queue, at whatever rate it left · action: the queues of a flow, for `buffer-size`

use crate::series::arrivals::{Curve, MIN_QUEUED_S, MIN_WAIT, certain_wait, packet};
use crate::series::directions::{Directions, Waits};
use crate::series::rows::Flow;
use units::{Duration, Instant};

/// Moments that are divided in two: each place is tried.
const MAX_MOMENTS: usize = 256;

/// What stood in the queue before a segment, and the segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub at: Instant,
    pub bytes: f64,
    pub ms: f64,
}

/// The queues of a flow: at all times, and beside its losses.
pub(super) struct Queues {
    pub all: Vec<Queue>,
    pub lost: Vec<Queue>,
    pub tick: Duration,
    /// Time for which one of `all` stands.
    pub width: Duration,
    /// Of full size.
    pub packet_bytes: f64,
}

impl Queues {
    /// `None` where no queue stood for long enough.
    pub fn of(flow: &Flow, directions: &Directions, v6: bool) -> Option<Queues> {
        let (payload, packet_bytes) = packet(flow, v6);
        let least = certain_wait(flow, directions, MIN_WAIT)?;
        let stood = directions.waits.iter().filter(|w| w.data >= least).count() as u64;
        if (directions.width * stood).as_secs_f64() < MIN_QUEUED_S {
            return None;
        }
        let curve = Curve::of(&directions.waits);
        let queue = |w: &Waits| {
            let bytes = curve.during(w)? * packet_bytes / payload + packet_bytes;
            Some(Queue { at: w.arrived, bytes, ms: w.data.as_millis_f64() })
        };
        let all: Vec<Queue> = directions.waits.iter().filter_map(queue).collect();
        let mut lost: Vec<Queue> =
            directions.losses.iter().filter_map(|loss| queue(&loss.beside)).collect();
        lost.sort_by_key(|q| q.at);
        let step = lost.len().div_ceil(MAX_MOMENTS).max(1);
        let lost = lost.into_iter().step_by(step).collect();
        let Directions { tick, width, .. } = *directions;
        Some(Queues { all, lost, tick, width, packet_bytes })
    }
}
