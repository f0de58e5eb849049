//! Whether other flows share the queue, and fill what this one leaves.
//!
//! signal: groups of segments between whose sending the sender paused, while a queue stood · model: segments of one flow leave a
//! FIFO queue back to back, however late the second one was sent, unless others came between them. So a pause of the sender is seen again at
//! the receiver where others share the queue, and nowhere else: a radio whose rate falls does not follow the sender's
//! pauses · action: [`Sharing`], by the median over the pauses
//!
//! Each group is compared with those beside it, so that a rate which changes slowly is no difference. A queue per flow (flow queueing) shows
//! no sharing: there others take nothing that this flow leaves.
//!
//! Source: the gap model of Strauss, Katabi, Kaashoek, "A Measurement Study of Available Bandwidth Estimation Tools", IMC 2003 (Spruce),
//! with the sender's own pauses in place of probes. Deviation: only whether others share is decided, not how much they send.

use flow::series::arrivals::{certain_wait, packet};
use flow::series::directions::{Directions, Waits};
use flow::series::rows::Flow;

use crate::MIN_WAIT;

/// Packets of a group: a tick or a delayed ACK more or less is a tenth of its time.
const GROUP_PACKETS: f64 = 10.0;
/// Groups on each side that one is compared with.
const BESIDE: usize = 4;
/// A pause is longer than usual by the time of a group at the link, and by so many ticks of the receiver's clock.
const MIN_PAUSE: f64 = 1.0;
const MIN_PAUSE_TICKS: f64 = 10.0;
/// Fewer pauses show no others that the capture does not have: one may meet a dip of the rate. Where it has others, one pause is enough.
const MIN_PAUSES: usize = 4;
/// Of a pause that is seen at the receiver. With others the median is 0.9 at least, without at most 0.63, on UMTS whose rate
/// changes within the time of a group (tuning half of `docs/generated/link-fits.md`).
const FILLED: f64 = 0.75;

/// What the pauses show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sharing {
    /// Pauses of the sender while a queue stood.
    pub pauses: usize,
    /// Part of a pause that is seen at the receiver, the median over all.
    pub filled: f64,
}

impl Sharing {
    /// Whether others share the queue; `known`: whether the capture has flows that may.
    pub fn found(&self, known: bool) -> bool {
        self.pauses >= if known { 1 } else { MIN_PAUSES } && self.filled > FILLED
    }
}

/// Segments that arrived one after another, with a queue all the time.
#[derive(Clone, Copy, Debug)]
struct Group {
    sent_s: f64,
    arrived_s: f64,
    bytes: f64,
}

/// What the pauses of a flow show.
pub(crate) fn sharing(flow: &Flow, directions: &Directions, v6: bool) -> Sharing {
    let Some(least) = certain_wait(flow, directions, MIN_WAIT) else { return Sharing::default() };
    let (payload, _) = packet(flow, v6);
    let mut by_arrival: Vec<&Waits> = directions.waits.iter().collect();
    by_arrival.sort_by_key(|w| (w.arrived, w.delivered));
    let mut parts = Vec::new();
    for run in by_arrival.chunk_by(|a, b| b.data >= b.arrived.since(a.arrived) + least) {
        parts.extend(pauses(&groups(run, GROUP_PACKETS * payload), directions.tick.as_secs_f64()));
    }
    parts.sort_unstable_by(f64::total_cmp);
    Sharing { pauses: parts.len(), filled: parts.get(parts.len() / 2).copied().unwrap_or(0.0) }
}

/// Groups of so many bytes at least, each from the last segment of the one before to its own last segment.
fn groups(run: &[&Waits], bytes: f64) -> Vec<Group> {
    let mut found = Vec::new();
    let Some(mut from) = run.first() else { return found };
    for w in run {
        let arrived = w.delivered.saturating_sub(from.delivered) as f64;
        // Of segments that were sent again the order is not that of sending.
        if arrived >= bytes && w.arrived > from.arrived && w.sent >= from.sent {
            found.push(Group {
                sent_s: w.sent.since(from.sent).as_secs_f64(),
                arrived_s: w.arrived.since(from.arrived).as_secs_f64(),
                bytes: arrived,
            });
            from = w;
        }
    }
    found
}

/// Of each pause, the part that is seen at the receiver.
fn pauses(groups: &[Group], tick_s: f64) -> Vec<f64> {
    let mut found = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let from = at.saturating_sub(BESIDE);
        let to = (at + BESIDE + 1).min(groups.len());
        let beside = || (from..to).filter(|other| *other != at).map(|other| &groups[other]);
        if beside().count() < BESIDE {
            continue;
        }
        // Seconds that a group of this size usually takes.
        let sent_s = group.bytes * median(beside().map(|one| one.sent_s / one.bytes));
        let arrived_s = group.bytes * median(beside().map(|one| one.arrived_s / one.bytes));
        let (pause_s, later_s) = (group.sent_s - sent_s, group.arrived_s - arrived_s);
        if pause_s >= MIN_PAUSE * arrived_s && pause_s >= MIN_PAUSE_TICKS * tick_s {
            found.push(later_s / pause_s);
        }
    }
    found
}

/// Of some values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of ten packets on a link of 12 Mbit/s, of which every twentieth is sent after a pause.
    fn paused(rate: impl Fn(usize) -> f64, filled: f64) -> Vec<Group> {
        let group = |at: usize| {
            let usual_s = 0.010 / rate(at);
            let pause_s = if at % 20 == 10 { 0.030 } else { 0.0 };
            Group {
                sent_s: usual_s + pause_s,
                arrived_s: usual_s + filled * pause_s,
                bytes: 14_480.0,
            }
        };
        (0..200).map(group).collect()
    }

    fn filled(groups: &[Group]) -> (usize, f64) {
        let parts = pauses(groups, 0.001);
        (parts.len(), median(parts.into_iter()))
    }

    #[test]
    fn a_pause_is_seen_at_the_receiver_where_others_fill_it() {
        let (count, part) = filled(&paused(|_| 1.0, 0.8));
        assert_eq!(count, 10);
        assert!((part - 0.8).abs() < 1e-9, "{part}");
        assert!(filled(&paused(|_| 1.0, 0.0)).1.abs() < 1e-9);
    }

    #[test]
    fn a_rate_that_falls_is_no_pause() {
        let falling = |at: usize| if at < 100 { 1.0 } else { 0.2 };
        let (count, part) = filled(&paused(falling, 0.0));
        assert!(count >= 5 && part < 0.1, "{count} {part}");
        let steady: Vec<Group> = (0..200)
            .map(|at| {
                let s = 0.010 / falling(at);
                Group { sent_s: s, arrived_s: s, bytes: 14_480.0 }
            })
            .collect();
        // Where the rate falls both are late at once: no five of them.
        assert!(pauses(&steady, 0.001).len() < MIN_PAUSES);
    }

    #[test]
    fn few_pauses_decide_nothing() {
        let few = Sharing { pauses: MIN_PAUSES - 1, filled: 1.0 };
        assert!(!few.found(false) && few.found(true));
        assert!(Sharing { pauses: MIN_PAUSES, filled: 1.0 }.found(false));
        assert!(!Sharing { pauses: 100, filled: 0.2 }.found(true));
        assert!(!Sharing::default().found(true));
    }
}
