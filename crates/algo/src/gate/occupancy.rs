//! QCUT's estimate of the firmware buffer now, from reports that are about 100 ms old. Integers only:
//! the agent's eBPF program computes the same, bit for bit.
//!
//! signal: reports (time, bytes in the buffer, granted and padding since the last one), packets that
//! passed · model: the uplink rate is a moving average of granted − padding; the reported buffer
//! drains at that rate and grows by each packet that passed since · action: bytes in the buffer now.
//! Source: QCUT section 6.
//!
//! An interval of the average lasts until the first report at least 20 ms after its beginning; an
//! interval of several times 20 ms counts as several steps.
//!
//! Deviations: with `hold`, an empty buffer counts as padding if the modem reports none. Not every base
//! station pads: it may grant nothing to an empty buffer, less than it could. The bytes of such a
//! report are a lower bound of the rate, too. A ring of [`RING`] entries stores the packets since the
//! last report; if more pass, the two oldest are merged at the time of the younger, which
//! overestimates the buffer.

use units::{Bytes, Duration, Instant, Rate};

use super::{Event, Slack};

/// Interval of the moving average: 20 ms, from QCUT section 6.
const INTERVAL_NS: u64 = 20_000_000;
/// Padding beyond one byte in this many means that data ran out, not the radio: a full buffer fills
/// its transport blocks except for a few bytes; an empty one wastes every grant under way.
const PADDED_ONE_IN: u64 = 8;
/// Packets in the ring: enough for 61 Mbit/s in packets of 1,500 bytes, at a report age of 100 ms.
pub const RING: usize = 512;
/// Upper bound of rates and times, 34 Gbit/s and 4.29 s: every product here fits 64 bits.
const MAX: u64 = u32::MAX as u64;

/// Bytes that drain at `rate` bytes/s in `ns`, rounded down; 64-bit arithmetic as in the eBPF program.
#[inline]
pub const fn drained(rate: u64, ns: u64) -> u64 {
    let rate = if rate < MAX { rate } else { MAX };
    let ns = if ns < MAX { ns } else { MAX };
    rate * ns / 1_000_000_000
}

/// Bytes left of `buffered` after `ns` without new packets: B − min(B, R · Δt) (QCUT section 6).
#[inline]
pub const fn remaining(buffered: u64, rate: u64, ns: u64) -> u64 {
    buffered.saturating_sub(drained(rate, ns))
}

/// One step of the moving average: α = 1/4 (QCUT section 6: 0.25; whose weight it is the paper does not say: the
/// new sample's here, as usual for an EWMA).
#[inline]
pub const fn averaged(rate: u64, sample: u64) -> u64 {
    let (rate, sample) =
        (if rate < MAX { rate } else { MAX }, if sample < MAX { sample } else { MAX });
    (3 * rate + sample) / 4
}

/// The whole estimate in one pass: `reported` bytes at `written`, then each packet (time, bytes) that
/// passed until `now`; all times in nanoseconds. [`Occupancy`] computes the same step by step, and so
/// does the eBPF program.
pub fn occupancy_at(
    reported: u64,
    written: u64,
    passed: &[(u64, u32)],
    rate: u64,
    now: u64,
) -> u64 {
    let (mut buffered, mut since) = (reported, written);
    for &(time, bytes) in passed {
        // B(t_i+1) = B(t_i) − min(B(t_i), R · (t_i+1 − t_i)) + S_i+1
        let left = remaining(buffered, rate, time.saturating_sub(since));
        buffered = left.saturating_add(u64::from(bytes));
        since = since.max(time);
    }
    remaining(buffered, rate, now.saturating_sub(since))
}

/// The estimate of one device's firmware buffer.
#[derive(Clone, Debug)]
pub struct Occupancy {
    /// Moving average, bytes per second; `None` before its first interval is over.
    rate: Option<u64>,
    /// The current interval: its beginning, bytes drained, bytes of padding.
    interval: Option<(u64, u64, u64)>,
    /// Packets that passed: time, bytes, and the estimate B after it; oldest first, from `first` on.
    ring: [(u64, u32, u32); RING],
    first: usize,
    len: usize,
    /// The last report: when it was written, when it was received.
    written: u64,
    received: Option<Instant>,
    /// B after the last packet that passed, and when that was.
    buffered: u64,
    since: u64,
    /// Leaves intervals without data out of the average; intervals whose data ran out are a lower
    /// bound.
    hold: bool,
    /// There was data in the current interval.
    busy: bool,
    /// The last packet that passed before the last report was written: its time, the estimate after it.
    estimated: (u64, u32),
    slack: Slack,
}

impl Occupancy {
    /// The estimate before the first report. `hold` leaves intervals without data to send out of the
    /// average and takes intervals whose data ran out as a lower bound.
    pub fn new(hold: bool, slack: Slack) -> Occupancy {
        Occupancy {
            hold,
            busy: false,
            rate: None,
            interval: None,
            ring: [(0, 0, 0); RING],
            first: 0,
            len: 0,
            written: 0,
            received: None,
            buffered: 0,
            since: 0,
            estimated: (0, 0),
            slack,
        }
    }

    /// Takes packets and reports into account; ignores other events.
    #[inline]
    pub fn on_event(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Passed { bytes, .. } => self.on_passed(now, bytes),
            Event::Report { at, occupancy, granted, padding } => {
                self.on_report(now, at, occupancy, granted, padding);
            }
            Event::Completed { .. } | Event::Probe { .. } => {}
        }
    }

    /// A packet entered the device.
    pub fn on_passed(&mut self, now: Instant, bytes: Bytes) {
        if self.len == RING {
            self.merge_oldest();
        }
        let bytes32 = u32::try_from(bytes.0).unwrap_or(u32::MAX);
        self.fold(now.0, u64::from(bytes32));
        let estimate = u32::try_from(self.buffered).unwrap_or(u32::MAX);
        self.ring[(self.first + self.len) % RING] = (now.0, bytes32, estimate);
        self.len += 1;
    }

    /// A report was received: updates the average, then recomputes the buffer from the time at which
    /// the report was written.
    pub fn on_report(
        &mut self,
        now: Instant,
        at: Instant,
        occupancy: Bytes,
        granted: Bytes,
        padding: Bytes,
    ) {
        // A modem's clock that runs ahead must not date the buffer into the future.
        let at = at.min(now);
        let drained = granted.0.saturating_sub(padding.0);
        self.busy |= drained > 0 || occupancy > Bytes::ZERO;
        let empty = occupancy == Bytes::ZERO;
        // No data was left, and the modem reports no padding: the rate could have been higher.
        let padding =
            if empty && padding == Bytes::ZERO { drained } else { granted.0.min(padding.0) };
        self.measure(at.0, drained, padding);
        self.received = Some(now);
        if at.0 < self.written {
            // Overtaken by a later report: its grants count, its buffer does not.
            self.slack.on_report(at.0, drained, 0);
            return;
        }
        self.written = at.0;
        while self.len > 0 && self.ring[self.first].0 <= at.0 {
            let (time, _, estimate) = self.ring[self.first];
            self.estimated = (time, estimate);
            self.first = (self.first + 1) % RING;
            self.len -= 1;
        }
        // The estimate for the time of the report, to compare with the report itself.
        let (time, estimate) = self.estimated;
        let rate = self.rate.unwrap_or(0);
        let expected = remaining(estimate.into(), rate, at.0.saturating_sub(time));
        self.slack.on_report(at.0, drained, if empty { expected } else { 0 });
        self.buffered = occupancy.0;
        self.since = at.0;
        for i in 0..self.len {
            let (time, bytes, _) = self.ring[(self.first + i) % RING];
            self.fold(time, u64::from(bytes));
        }
    }

    /// Bytes in the firmware buffer now: B(t_n+1), with nothing added at the end (S_n+1 = 0).
    pub fn bytes(&self, now: Instant) -> Bytes {
        let span = now.0.saturating_sub(self.since);
        Bytes(remaining(self.buffered, self.rate.unwrap_or(0), span))
    }

    /// The extra time that this link needs if its rate jumps.
    pub fn slack(&self) -> &Slack {
        &self.slack
    }

    /// The uplink rate in bytes per second.
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.rate
    }

    /// The uplink rate, once an interval is over.
    pub fn rate(&self) -> Option<Rate> {
        self.rate.map(|rate| Rate(rate.saturating_mul(8)))
    }

    /// Whether there was no report yet, or none within `timeout`.
    #[inline]
    pub fn silent(&self, now: Instant, timeout: Duration) -> bool {
        self.received.is_none_or(|received| now.since(received) >= timeout)
    }

    /// When a closed gate opens by itself: the buffer has drained to `limit`, or reports timed out.
    pub fn opens(&self, limit: Bytes, timeout: Duration) -> Option<Instant> {
        let last = self.received? + timeout;
        Some(self.falls_to(limit).map_or(last, |at| at.min(last)))
    }

    /// When at most `limit` will be left.
    pub fn falls_to(&self, limit: Bytes) -> Option<Instant> {
        let excess = self.buffered.saturating_sub(limit.0);
        if excess == 0 {
            return Some(Instant(self.since));
        }
        let rate = self.rate.filter(|rate| *rate > 0)?.min(MAX);
        // The smallest Δt with ⌊R Δt⌋ ≥ excess.
        let ns = (u128::from(excess) * 1_000_000_000).div_ceil(u128::from(rate));
        // Δt has an upper bound in `drained`: beyond it the estimate does not fall further.
        (ns <= u128::from(MAX)).then(|| Instant(self.since.saturating_add(ns as u64)))
    }

    /// B(t_i+1) = B(t_i) − min(B(t_i), R · (t_i+1 − t_i)) + S_i+1.
    fn fold(&mut self, time: u64, bytes: u64) {
        let span = time.saturating_sub(self.since);
        let left = remaining(self.buffered, self.rate.unwrap_or(0), span);
        self.buffered = left.saturating_add(bytes);
        self.since = self.since.max(time);
    }

    /// Merges the oldest packet into the next one, at the next one's time.
    fn merge_oldest(&mut self) {
        let (_, bytes, _) = self.ring[self.first];
        self.first = (self.first + 1) % RING;
        self.len -= 1;
        let next = &mut self.ring[self.first];
        next.1 = next.1.saturating_add(bytes);
    }

    /// Adds a report to the current interval; ends the interval after 20 ms and averages its rate.
    fn measure(&mut self, at: u64, drained: u64, padding: u64) {
        let Some((begun, sum, wasted)) = self.interval else {
            // The interval before the first report has no known beginning.
            self.interval = Some((at, 0, 0));
            return;
        };
        let (sum, wasted) = (sum.saturating_add(drained), wasted.saturating_add(padding));
        let span = at.saturating_sub(begun);
        if span < INTERVAL_NS {
            self.interval = Some((begun, sum, wasted));
            return;
        }
        self.interval = Some((at, 0, 0));
        if self.hold && !core::mem::take(&mut self.busy) {
            return;
        }
        let sample = rate_over(sum, span);
        let padded = wasted > sum / PADDED_ONE_IN;
        if self.hold && padded && self.rate.is_some_and(|rate| sample < rate) {
            return;
        }
        // 16 steps leave one per cent of the value before.
        for _ in 0..(span / INTERVAL_NS).min(16) {
            self.rate = Some(self.rate.map_or(sample, |rate| averaged(rate, sample)));
        }
    }
}

/// Bytes per second, rounded down, in 64 bits: above 18 GB in one interval the last digits are zero.
#[inline]
pub const fn rate_over(bytes: u64, ns: u64) -> u64 {
    if ns == 0 {
        return 0;
    }
    let rate = match bytes.checked_mul(1_000_000_000) {
        Some(product) => product / ns,
        None => (bytes / ns).saturating_mul(1_000_000_000),
    };
    if rate < MAX { rate } else { MAX }
}
