//! The clock of a far end, as its timestamps show it.
//!
//! signal: TSval and time of arrival of each segment · model: delay = arrival − sending time, up to a
//! constant that lies between two bounds · action: the delay and its bounds.

use units::Instant;

use super::{NS_PER_MS, NS_PER_S};

/// Clock tick of Linux, Android, Apple, Windows and FreeBSD; assumed until the clock is measured.
const TICK_NS: u32 = NS_PER_MS as u32;
/// One second separates the usual clocks (10 and 4 ms, 1 ms, 1 µs) in spite of growing queues.
const TICK_LEARNT_NS: u64 = NS_PER_S;
/// Clock drift as a divisor: 100 ppm. Crystals are better.
const DRIFT: u64 = 10_000;
/// After a longer silence the clock is measured again: the bounds would have widened too far.
const SILENCE_NS: u64 = 30 * NS_PER_S;

/// What the timestamps of one far end have shown so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FarClock {
    /// When the last new timestamp came; 0: none came yet.
    pub(super) last_ns: u64,
    begun_ns: u64,
    /// Arrival minus sending time relative to the first packet, ns.
    pub(super) delay: i64,
    /// Lower bound of that delay without a queue.
    pub(super) low: i64,
    /// Upper bound of it.
    pub(super) high: i64,
    last: u32,
    begun: u32,
    /// Length of a tick, ns; 0: no usual one.
    pub(super) tick_ns: u32,
    measured: bool,
    /// There is a lower bound.
    pub(super) bounded: bool,
}

impl FarClock {
    /// Delay of the last segment with a new timestamp, up to a constant, ns.
    pub fn delay(&self) -> i64 {
        self.delay
    }

    /// Takes the timestamp of a segment from the far end.
    pub fn tick(&mut self, now: Instant, stamp: u32) {
        let now = now.0;
        let ticks = stamp.wrapping_sub(self.last) as i32;
        let passed = now.wrapping_sub(self.last_ns);
        if self.last_ns == 0 || passed > SILENCE_NS {
            *self = FarClock {
                last_ns: now,
                begun_ns: now,
                last: stamp,
                begun: stamp,
                tick_ns: TICK_NS,
                ..FarClock::default()
            };
            return;
        }
        // The first packet of a tick dates it best; reordered, older timestamps are ignored.
        if ticks <= 0 {
            return;
        }
        let known_for = now - self.begun_ns;
        if !self.measured && known_for >= TICK_LEARNT_NS {
            let hz = u64::from(stamp.wrapping_sub(self.begun)) * NS_PER_S / known_for;
            self.measured = true;
            let tick_ns = usual_tick_ns(hz);
            if tick_ns != self.tick_ns {
                self.tick_ns = tick_ns;
                (self.delay, self.low, self.high) = (0, 0, 0);
                self.bounded = false;
            }
        }
        self.last_ns = now;
        self.last = stamp;
        self.delay += passed as i64 - i64::from(ticks) * i64::from(self.tick_ns);
        let drift = (passed / DRIFT) as i64;
        self.low -= drift;
        self.high = (self.high + drift).min(self.delay);
        self.low = self.low.min(self.high);
    }
}

/// The tick of a usual clock that counts about so many times a second; 0 for no usual one.
fn usual_tick_ns(hz: u64) -> u32 {
    match hz {
        400_001..1_600_000 => 1_000,
        400..1_600 => NS_PER_MS as u32,
        160..400 => 4 * NS_PER_MS as u32,
        61..160 => 10 * NS_PER_MS as u32,
        _ => 0,
    }
}
