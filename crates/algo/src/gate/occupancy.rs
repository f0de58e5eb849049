//! QCUT's estimate of what lies in the firmware buffer now, from reports that are about 100 ms old. Integers only, so
//! that a kernel can decide bit for bit the same.
//!
//! signal: reports (when written, bytes in the buffer, granted and padding since the last), packets that passed ·
//! model: uplink rate as a moving average over granted − padding; the buffer of the report, drained at that rate and
//! filled by each packet that passed since · action: bytes now (QCUT section 6).
//!
//! An interval of the average lasts until the first report at least 20 ms after its beginning; one of several times 20
//! ms counts as so many steps.
//!
//! Deviations: with `hold`, an empty buffer counts as padding where the modem tells of none. Not every base station pads:
//! one that grants nothing to an empty buffer has granted less than it could, and no word says so; what such a report
//! moved is a lower bound of the rate, too. Packets are remembered in a ring of [`RING`]; where more pass within a report's age, the oldest are taken
//! together, at the time of the younger, which errs to the full side.

use units::{Bytes, Duration, Instant, Rate};

use super::{Event, Slack};

/// Interval of the moving average, in nanoseconds (QCUT section 6: 20 ms).
const INTERVAL_NS: u64 = 20_000_000;
/// Padding beyond this part of what was moved says that data ran out, not the air: a full buffer fills its blocks but for
/// a few bytes, an empty one wastes every grant that is on its way.
const STARVED: u64 = 8;
/// Packets remembered: at 100 ms of report age good for 61 Mbit/s in packets of 1,500 bytes.
pub const RING: usize = 512;
/// The product of both, and so every product here, fits 64 bits: 34 Gbit/s, 4.29 s.
const MOST: u64 = u32::MAX as u64;

/// What `rate` bytes/s move in `ns`, rounded down: the kernel side's arithmetic, 64 bits wide.
#[inline]
pub const fn drained(rate: u64, ns: u64) -> u64 {
    let rate = if rate < MOST { rate } else { MOST };
    let ns = if ns < MOST { ns } else { MOST };
    rate * ns / 1_000_000_000
}

/// B(t + ns) of a buffer that held `held` and was given nothing: B − min(B, R · Δt) (QCUT section 6).
#[inline]
pub const fn held_after(held: u64, rate: u64, ns: u64) -> u64 {
    held.saturating_sub(drained(rate, ns))
}

/// One step of the moving average: α = 1/4 (QCUT section 6: 0.25).
#[inline]
pub const fn averaged(rate: u64, sample: u64) -> u64 {
    let (rate, sample) =
        (if rate < MOST { rate } else { MOST }, if sample < MOST { sample } else { MOST });
    (3 * rate + sample) / 4
}

/// The whole estimate in one pass: `reported` bytes at `written`, then each packet (time, bytes) that passed since, to
/// `now`; all times in nanoseconds. What [`Occupancy`] keeps step by step, and what a kernel has to reproduce.
pub fn occupancy_at(
    reported: u64,
    written: u64,
    passed: &[(u64, u32)],
    rate: u64,
    now: u64,
) -> u64 {
    let (mut held, mut since) = (reported, written);
    for &(time, bytes) in passed {
        // B(t_i+1) = B(t_i) − min(B(t_i), R · (t_i+1 − t_i)) + S_i+1
        held = held_after(held, rate, time.saturating_sub(since)).saturating_add(u64::from(bytes));
        since = since.max(time);
    }
    held_after(held, rate, now.saturating_sub(since))
}

/// See the module text.
#[derive(Clone, Debug)]
pub struct Occupancy {
    /// Moving average, bytes per second; `None` before its first interval is over.
    rate: Option<u64>,
    /// When the interval that is being measured began, what it has moved, and its padding.
    interval: Option<(u64, u64, u64)>,
    /// Time and bytes of what passed, and B after it as believed then; oldest first, from `first` on.
    ring: [(u64, u32, u32); RING],
    first: usize,
    len: usize,
    /// The last report: when it was written, when it came.
    written: u64,
    heard: Option<Instant>,
    /// B after the last packet that passed, and when that was.
    held: u64,
    since: u64,
    /// Leaves intervals without data out of the average, and takes those that ran out of it as a lower bound.
    hold: bool,
    /// There was data in the interval that is being measured.
    busy: bool,
    /// Time of the last packet that passed before the last report was written, and B after it as believed then.
    believed: (u64, u32),
    slack: Slack,
}

impl Occupancy {
    /// Before anything is known; `hold` leaves intervals out of the average in which nothing was there to send, and takes
    /// for a lower bound what an interval moved in which data ran out.
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
            heard: None,
            held: 0,
            since: 0,
            believed: (0, 0),
            slack,
        }
    }

    /// Takes what concerns the estimate.
    #[inline]
    pub fn on_event(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Passed { bytes } => self.on_passed(now, bytes),
            Event::Report { at, occupancy, granted, padding } => {
                self.on_report(now, at, occupancy, granted, padding);
            }
            Event::Completed { .. } | Event::Probe { .. } => {}
        }
    }

    /// A packet went into the device.
    pub fn on_passed(&mut self, now: Instant, bytes: Bytes) {
        if self.len == RING {
            self.forget();
        }
        let bytes32 = u32::try_from(bytes.0).unwrap_or(u32::MAX);
        self.fold(now.0, u64::from(bytes32));
        let held = u32::try_from(self.held).unwrap_or(u32::MAX);
        self.ring[(self.first + self.len) % RING] = (now.0, bytes32, held);
        self.len += 1;
    }

    /// A report came: the average first, then the buffer anew from the time at which the report was written.
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
        let moved = granted.0.saturating_sub(padding.0);
        self.busy |= moved > 0 || occupancy > Bytes::ZERO;
        let empty = occupancy == Bytes::ZERO;
        // Nothing was left to send, and no padding tells it: so much could have been more (see above).
        let padding =
            if empty && padding == Bytes::ZERO { moved } else { granted.0.min(padding.0) };
        self.measure(at.0, moved, padding);
        self.heard = Some(now);
        if at.0 < self.written {
            // Overtaken by a later one: its grants count, its buffer does not.
            self.slack.on_report(at.0, moved, 0);
            return;
        }
        self.written = at.0;
        while self.len > 0 && self.ring[self.first].0 <= at.0 {
            let (time, _, held) = self.ring[self.first];
            self.believed = (time, held);
            self.first = (self.first + 1) % RING;
            self.len -= 1;
        }
        let (time, held) = self.believed;
        let believed = held_after(held.into(), self.rate.unwrap_or(0), at.0.saturating_sub(time));
        self.slack.on_report(at.0, moved, if empty { believed } else { 0 });
        self.held = occupancy.0;
        self.since = at.0;
        for i in 0..self.len {
            let (time, bytes, _) = self.ring[(self.first + i) % RING];
            self.fold(time, u64::from(bytes));
        }
    }

    /// Bytes in the firmware buffer now: B(t_n+1), with nothing added at the end (S_n+1 = 0).
    pub fn bytes(&self, now: Instant) -> Bytes {
        Bytes(held_after(self.held, self.rate.unwrap_or(0), now.0.saturating_sub(self.since)))
    }

    /// What a link whose rate jumps needs beyond the target.
    pub fn slack(&self) -> &Slack {
        &self.slack
    }

    /// Uplink rate, bytes per second.
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.rate
    }

    /// Uplink rate.
    pub fn rate(&self) -> Option<Rate> {
        self.rate.map(|rate| Rate(rate.saturating_mul(8)))
    }

    /// Whether no report has come yet, or none within `patience`.
    #[inline]
    pub fn silent(&self, now: Instant, patience: Duration) -> bool {
        self.heard.is_none_or(|heard| now.since(heard) >= patience)
    }

    /// When a closed gate opens by itself: drained to `limit`, or out of patience.
    pub fn opens(&self, limit: Bytes, patience: Duration) -> Option<Instant> {
        let heard = self.heard?;
        let last = heard + patience;
        Some(self.falls_to(limit).map_or(last, |at| at.min(last)))
    }

    /// When no more than `limit` will be left.
    pub fn falls_to(&self, limit: Bytes) -> Option<Instant> {
        let excess = self.held.saturating_sub(limit.0);
        if excess == 0 {
            return Some(Instant(self.since));
        }
        let rate = self.rate.filter(|rate| *rate > 0)?.min(MOST);
        // The smallest Δt with ⌊R Δt⌋ ≥ excess.
        let ns = (u128::from(excess) * 1_000_000_000).div_ceil(u128::from(rate));
        // Beyond the longest Δt of the arithmetic it never falls so far.
        (ns <= u128::from(MOST)).then(|| Instant(self.since.saturating_add(ns as u64)))
    }

    /// B(t_i+1) = B(t_i) − min(B(t_i), R · (t_i+1 − t_i)) + S_i+1.
    fn fold(&mut self, time: u64, bytes: u64) {
        let left = held_after(self.held, self.rate.unwrap_or(0), time.saturating_sub(self.since));
        self.held = left.saturating_add(bytes);
        self.since = self.since.max(time);
    }

    /// The oldest packet is taken together with the next, at the next one's time.
    fn forget(&mut self) {
        let (_, bytes, _) = self.ring[self.first];
        self.first = (self.first + 1) % RING;
        self.len -= 1;
        let next = &mut self.ring[self.first];
        next.1 = next.1.saturating_add(bytes);
    }

    /// An interval lasts until the first report at least 20 ms after its beginning; a longer one counts as so many.
    fn measure(&mut self, at: u64, moved: u64, padding: u64) {
        let Some((begun, sum, wasted)) = self.interval else {
            // What was moved before the first report was written has no known beginning.
            self.interval = Some((at, 0, 0));
            return;
        };
        let (sum, wasted) = (sum.saturating_add(moved), wasted.saturating_add(padding));
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
        let starved = wasted > sum / STARVED;
        if self.hold && starved && self.rate.is_some_and(|rate| sample < rate) {
            return;
        }
        // 16 steps leave one per cent of what was before.
        for _ in 0..(span / INTERVAL_NS).min(16) {
            self.rate = Some(self.rate.map_or(sample, |rate| averaged(rate, sample)));
        }
    }
}

/// Bytes per second, rounded down, in 64 bits: above 18 GB in one interval the last digits are given up.
#[inline]
pub const fn rate_over(bytes: u64, ns: u64) -> u64 {
    if ns == 0 {
        return 0;
    }
    let rate = match bytes.checked_mul(1_000_000_000) {
        Some(product) => product / ns,
        None => (bytes / ns).saturating_mul(1_000_000_000),
    };
    if rate < MOST { rate } else { MOST }
}
