//! How much has to lie below a link that moves in bursts.
//!
//! signal: pauses of the link with bytes in the buffer, and reports of an empty buffer while packets were refused · model: QCUT-D's target is right for a link that moves all the time; one that
//! pauses for tens of milliseconds and then takes all at once (a scheduler with many users, a recorded LTE uplink) empties what drains
//! in 20 ms *on average* at a stroke, and the estimate of its rate suffers, too · action: the law's floor, as time at the rate of the last
//! second: up while the link starves behind a closed gate, down slowly else. It is what dynamic queue limits do for a driver's ring
//! (Linux lib/dynamic_queue_limits.c), with reports in place of completions.
//!
//! A steady link has no pauses, and there it does nothing: a buffer that runs empty is the sender's affair then.

use crate::telemetry::Report;

/// Time between two steps.
const STEP_NS: u64 = 100_000_000;
/// Refusals and empty buffers belong together within this time: the age of a report and a round trip.
const TOGETHER_NS: u64 = 400_000_000;
/// A buffer that is empty in more than this part of the reports starves the link.
const STARVED: u64 = 8;
/// Up by so much a step, as time; down by a fiftieth of itself. Half a second of starving is 100 ms more; it is half again after 3.5 s of
/// refusing without starving, else after 35 s.
const UP_US: u64 = 20_000;
const DOWN: u64 = 50;
/// A pause: nothing moved for so long with bytes in the buffer; longer than a packet takes at 0.5 Mbit/s, and below that what it gives is
/// two packets. It counts for a second.
const PAUSE_NS: u64 = 30_000_000;
const RECENT_NS: u64 = 1_000_000_000;
/// The longest pause that is worth bridging.
const MOST_US: u64 = 150_000;

/// See the module text.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// Since the last step: when it was, reports, of them empty, bytes moved.
    begun_ns: u64,
    reports: u64,
    empty: u64,
    moved: u64,
    /// Bytes per second over about a second; `None` at first.
    rate: Option<u64>,
    room_us: u64,
    /// Packets refused as of the last step, and when there were more.
    refused: u64,
    refused_ns: Option<u64>,
    /// Since when nothing moves, by the reports; when that was last a pause.
    still_ns: Option<u64>,
    paused_ns: Option<u64>,
}

impl Room {
    /// A report came, as it was told; `refused` is asked for when a step is due. The floor in bytes, when it may have changed.
    pub fn report(&mut self, now_ns: u64, report: &Report, refused: impl FnOnce() -> u64) -> Option<u64> {
        self.reports += 1;
        self.empty += u64::from(report.occupancy == 0);
        let moved = report.granted.saturating_sub(report.padding);
        self.moved = self.moved.saturating_add(moved);
        self.pause(now_ns, report, moved);
        let span = now_ns.saturating_sub(self.begun_ns);
        if span < STEP_NS {
            return None;
        }
        let sample = (u128::from(self.moved) * 1_000_000_000 / u128::from(span)) as u64;
        let first = self.begun_ns == 0;
        let refused = refused();
        if refused > std::mem::replace(&mut self.refused, refused) && !first {
            self.refused_ns = Some(now_ns);
        }
        let held = self.refused_ns.is_some_and(|at| now_ns.saturating_sub(at) <= TOGETHER_NS);
        let bursty = self.paused_ns.is_some_and(|at| now_ns.saturating_sub(at) <= RECENT_NS);
        if held && bursty && self.empty * STARVED > self.reports {
            self.room_us = (self.room_us + UP_US).min(MOST_US);
        } else {
            // Only a gate that holds back shows that less would do; an outage or a pause of the sender does not.
            self.room_us -= self.room_us.div_ceil(if held { DOWN } else { 10 * DOWN });
        }
        // An outage says nothing of the rate after it, and neither does a link that nobody uses. One step in ten: a second.
        if !first && self.reports > self.empty && self.moved > 0 {
            self.rate = Some(self.rate.map_or(sample, |rate| rate - rate / 10 + sample / 10));
        }
        (self.reports, self.empty, self.moved, self.begun_ns) = (0, 0, 0, now_ns);
        Some(self.floor())
    }

    fn pause(&mut self, now_ns: u64, report: &Report, moved: u64) {
        if moved > 0 || report.occupancy == 0 {
            self.still_ns = None;
            return;
        }
        let still = report.at_ns.saturating_sub(*self.still_ns.get_or_insert(report.at_ns));
        if still >= PAUSE_NS {
            self.paused_ns = Some(now_ns);
        }
    }

    /// What may lie below at any rate.
    pub fn floor(&self) -> u64 {
        let rate = u128::from(self.rate.unwrap_or(0));
        u64::try_from(rate * u128::from(self.room_us) / 1_000_000).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports every 5 ms for so many seconds; `occupancy` and bytes moved of each, and whether packets are refused.
    fn run(room: &mut Room, from_s: u64, seconds: u64, told: impl Fn(u64) -> (u64, u64), refusing: bool) {
        for i in 0..seconds * 200 {
            let now = (from_s * 200 + i + 1) * 5_000_000;
            let (occupancy, granted) = told(i);
            let report = Report { at_ns: now, occupancy, granted, padding: 0 };
            room.report(now, &report, || if refusing { now / 1_000_000 } else { 0 });
        }
    }

    #[test]
    fn a_link_that_starves_behind_a_closed_gate_gets_room_until_it_does_not() {
        let mut room = Room::default();
        // Nothing for 40 ms, then all at once, and 10 ms without anything to send.
        let bursts = |i: u64| match i % 10 {
            0..8 => (10_000, 0),
            8 => (0, 10_000),
            _ => (0, 0),
        };
        run(&mut room, 0, 2, bursts, true);
        let floor = room.floor();
        // 250 kB/s for 150 ms at most.
        assert!((20_000..=37_500).contains(&floor), "{floor}");
        run(&mut room, 2, 10, |_| (5_000, 1_250), true);
        assert!(room.floor() < floor / 5, "{} of {floor}", room.floor());
    }

    #[test]
    fn an_idle_link_or_a_steady_one_is_no_starving() {
        let mut room = Room::default();
        run(&mut room, 0, 5, |_| (0, 0), false);
        assert_eq!(room.floor(), 0);
        run(&mut room, 5, 5, |i| (i % 2, 1_250), true);
        assert_eq!(room.floor(), 0);
        run(&mut room, 10, 5, |_| (5_000, 1_250), true);
        assert_eq!(room.floor(), 0);
    }

    #[test]
    fn no_report_is_too_large() {
        let mut room = Room::default();
        for now in [1_000_000_000, 2_000_000_000, u64::MAX] {
            let report = Report { at_ns: now, occupancy: u64::MAX, granted: u64::MAX, padding: 0 };
            room.report(now, &report, || u64::MAX);
        }
        assert!(room.floor() < u64::MAX);
    }
}
