//! What a device in the middle of a path can measure, or a receiver at its end: round trips, and
//! which direction's queue they contain.
//!
//! signal: timestamps that pass (RFC 7323), or sequence numbers and their acknowledgments where
//! there are none · model: a value that leaves and its echo that returns are one round trip of that
//! half of the path; arrival time minus the sender's own clock is the one-way delay towards the
//! device, up to a constant · action: the round trip, its minimum, and how much of the queueing is
//! certainly in which direction.
//!
//! A round trip contains both queues. A law that closes a download's window because an upload fills
//! the other direction gains nothing: that queue stays. So what is certainly in the opposite
//! direction is taken out ([`super::opposite`]).
//!
//! The constant is known as an interval. It is at most the smallest value seen (`high`: a queue is
//! never negative). It is at least each value minus the whole queue of that round trip (`low`).
//! Where the whole queue was empty once, both meet. Clocks drift, so the interval widens by 100 ppm.
//! What it leaves open counts as the flow's own queue, which is the error that keeps delay low. An
//! echo may also wait until its sender has something to send, so silence before it counts as nothing
//! certain. No clock is compared with another: only its own progress is used.
//!
//! Source: this project. The bounds are those of one-way delays without synchronised clocks (Paxson,
//! "On Calibrating Measurements of Packet Transit Times", SIGMETRICS 1998). `bpf/path.h` of the agent
//! computes the same bit for bit; a test compares them.

mod clock;
mod half;
mod place;
mod places;

pub use clock::FarClock;
pub use half::{Half, Wait};
pub use place::PlacePath;
pub use places::Places;

/// Nanoseconds of a second.
const NS_PER_S: u64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
const NS_PER_MS: u64 = 1_000_000;
/// Longer RTTs are measurement errors: those of the law.
const MAX_RTT_US: u64 = super::decided::MAX_RTT_US;

/// Nanoseconds as microseconds; a negative time is none.
fn micros_of(ns: i64) -> u32 {
    if ns <= 0 { 0 } else { (ns as u64 / 1_000).min(MAX_RTT_US) as u32 }
}
