//! What arrived at the receiver over time, and when a queue certainly stood in front of the slowest link.
//!
//! signal: arrivals and waits of segments (`directions`) · model: between two arrivals the link was busy where the later
//! segment reached the queue before the earlier one had left it · action: the curve of arrivals and the busy runs, for the
//! findings about the link and for its fit
//!
//! Source: Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016: delivery rate equals the
//! bottleneck's rate only while a queue stands.

use units::{Duration, Instant};

use crate::series::directions::{Directions, Waits};
use crate::series::rows::Flow;

/// Wait from which a queue certainly stood: hosts hold packets up for a few milliseconds, and a tick is unknown at each
/// end of a wait and in the base.
pub const MIN_WAIT: Duration = Duration::from_millis(8);
const MIN_WAIT_TICKS: u64 = 3;
/// A queue of one packet is that in service.
const MIN_WAIT_PACKETS: f64 = 2.0;
/// Shortest run: a tick at its ends is a twentieth, and a burst of a few packets is no rate.
const MIN_RUN: Duration = Duration::from_millis(100);
const MIN_RUN_TICKS: u64 = 20;
/// Time with a queue, and its packets, that make a rate of the link: ten parts of 0.3 s and of 20 packets.
pub const MIN_QUEUED_S: f64 = 3.0;
/// See [`MIN_QUEUED_S`].
pub const MIN_QUEUED_PACKETS: f64 = 200.0;
/// Headers of IPv4 or IPv6, and of TCP with timestamps.
const HEADERS: [f64; 2] = [52.0, 72.0];

/// What arrived between two moments, with a queue in front of the link all the time.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Of the earlier arrival.
    pub from: Instant,
    /// Of the later one.
    pub to: Instant,
    /// Between them.
    pub seconds: f64,
    /// Of payload.
    pub bytes: f64,
}

/// The least wait with which a queue certainly stood, `least` or more; `None` without a goodput.
pub fn certain_wait(flow: &Flow, directions: &Directions, least: Duration) -> Option<Duration> {
    let goodput = flow.goodput?.0 as f64 / 8.0;
    let packet_s = f64::from(flow.mss.max(1)) / goodput.max(1.0);
    let packets = Duration((MIN_WAIT_PACKETS * packet_s * 1e9) as u64);
    Some(least.max(directions.tick * MIN_WAIT_TICKS).max(packets))
}

/// The shortest time that shows a rate.
pub fn least_run(directions: &Directions) -> Duration {
    MIN_RUN.max(directions.tick * MIN_RUN_TICKS)
}

/// Runs of arrivals between which the link was busy all the time.
pub fn runs(directions: &Directions, least_wait: Duration) -> Vec<Vec<Step>> {
    let least_run = least_run(directions);
    let mut by_arrival: Vec<&Waits> = directions.waits.iter().collect();
    by_arrival.sort_by_key(|w| (w.arrived, w.delivered));
    let (mut found, mut run): (Vec<Vec<Step>>, Vec<Step>) = (Vec::new(), Vec::new());
    let mut last: Option<(Instant, u64)> = None;
    for w in by_arrival {
        let Some((at, delivered)) = last else {
            last = Some((w.arrived, w.delivered));
            continue;
        };
        let gap = w.arrived.since(at);
        // Of arrivals in one tick the first is nearest to it. The others count in the next step: none is left out.
        if gap == Duration::ZERO {
            continue;
        }
        last = Some((w.arrived, delivered.max(w.delivered)));
        if w.data >= gap + least_wait {
            run.push(Step {
                from: at,
                to: w.arrived,
                seconds: gap.as_secs_f64(),
                bytes: w.delivered.saturating_sub(delivered) as f64,
            });
        } else if !run.is_empty() {
            found.push(std::mem::take(&mut run));
        }
    }
    found.push(run);
    found.retain(|run| {
        run.first().zip(run.last()).is_some_and(|(a, b)| b.to.since(a.from) >= least_run)
    });
    found
}

/// Bytes of payload in a full segment, and of its IP packet.
pub fn packet(flow: &Flow, v6: bool) -> (f64, f64) {
    let payload = f64::from(flow.mss.max(1));
    (payload, payload + HEADERS[usize::from(v6)])
}

/// Bytes that had arrived, over the time of the receiver.
pub struct Curve(Vec<(Instant, f64)>);

impl Curve {
    /// Of the trips of a flow.
    pub fn of(waits: &[Waits]) -> Curve {
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

    /// The first and the last arrival.
    pub fn ends(&self) -> Option<(Instant, Instant)> {
        Some((self.0.first()?.0, self.0.last()?.0))
    }

    /// On the line between the points beside `at`; `None` before the first and after the last one.
    pub fn at(&self, at: Instant) -> Option<f64> {
        let i = self.0.partition_point(|point| point.0 <= at);
        let before = *self.0.get(i.checked_sub(1)?)?;
        if before.0 == at {
            return Some(before.1);
        }
        let behind = *self.0.get(i)?;
        let share = at.since(before.0).as_secs_f64() / behind.0.since(before.0).as_secs_f64();
        Some(before.1 + share * (behind.1 - before.1))
    }

    /// As `at`, and before the first point nothing, after the last one all.
    pub fn within(&self, at: Instant) -> f64 {
        let ends = self.0.first().zip(self.0.last());
        self.at(at)
            .or(ends.map(|(first, last)| if at < first.0 { first.1 } else { last.1 }))
            .unwrap_or(0.0)
    }

    /// Payload that arrived while this segment waited.
    pub(crate) fn during(&self, w: &Waits) -> Option<f64> {
        Some(self.at(w.arrived)? - self.at(Instant(w.arrived.0.checked_sub(w.data.0)?))?)
    }
}
