//! What stood in the queue in front of the slowest link, in bytes, at all times and beside losses.
//!
//! signal: arrivals and waits of segments (`series/directions`) · model: what arrives while a segment waits stood before it in
//! one queue, at whatever rate it left · action: the queues of a flow, for `buffer-size`

use super::bottleneck_rate::{MIN_QUEUED_S, certain_wait, packet};
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

/// Bytes that had arrived, over the time of the receiver.
struct Curve(Vec<(Instant, f64)>);

impl Curve {
    fn of(waits: &[Waits]) -> Curve {
        let mut points: Vec<(Instant, f64)> =
            waits.iter().map(|w| (w.arrived, w.delivered as f64)).collect();
        points.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut most = 0.0_f64;
        for point in &mut points {
            most = most.max(point.1);
            point.1 = most;
        }
        Curve(points)
    }

    /// On the line between the points beside `at`; `None` before the first and after the last one.
    fn at(&self, at: Instant) -> Option<f64> {
        let i = self.0.partition_point(|point| point.0 <= at);
        let before = *self.0.get(i.checked_sub(1)?)?;
        if before.0 == at {
            return Some(before.1);
        }
        let behind = *self.0.get(i)?;
        let share = at.since(before.0).as_secs_f64() / behind.0.since(before.0).as_secs_f64();
        Some(before.1 + share * (behind.1 - before.1))
    }

    /// Payload that arrived while this segment waited.
    fn during(&self, w: &Waits) -> Option<f64> {
        Some(self.at(w.arrived)? - self.at(Instant(w.arrived.0.checked_sub(w.data.0)?))?)
    }
}

/// The queues of a flow: at all times, and beside its losses.
pub(super) struct Queues {
    pub all: Vec<Queue>,
    pub lost: Vec<Queue>,
    pub tick: Duration,
    /// Of full size.
    pub packet_bytes: f64,
}

impl Queues {
    /// `None` where no queue stood for long enough.
    pub fn of(flow: &Flow, directions: &Directions, v6: bool) -> Option<Queues> {
        let (payload, packet_bytes) = packet(flow, v6);
        let least = certain_wait(flow, directions)?;
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
        let mut lost: Vec<Queue> = directions.losses.iter().filter_map(queue).collect();
        lost.sort_by_key(|q| q.at);
        let step = lost.len().div_ceil(MAX_MOMENTS).max(1);
        let lost = lost.into_iter().step_by(step).collect();
        Some(Queues { all, lost, tick: directions.tick, packet_bytes })
    }
}
