//! The four quantities of all crates, with the unit in the type: [`Instant`], [`Duration`],
//! [`Bytes`] and [`Rate`].
//!
//! They are integers: nanoseconds, bytes, bits per second. Only operators with a meaning exist
//! (`Bytes / Rate → Duration`, `Rate * Duration → Bytes`): adding a rate to a time does not compile.
//! Text forms are the usual ones: `20 ms`, `12 Mbit/s`. Mbit/s is 10⁶ bit/s, KB is 1,000 bytes and
//! KiB is 1,024.
//!
//! Arithmetic saturates; it neither wraps nor panics. The times come from capture files, whose clocks
//! may run backwards.
//!
//! [`Histogram`], [`Delays`] and [`Limit`] are here because analysis and simulator use the same ones; [`text`]
//! has the number formats of every terminal output.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bytes;
mod delays;
mod histogram;
mod limit;
mod parse;
mod rate;
pub mod text;
mod time;

pub use bytes::Bytes;
pub use delays::{DelayedAcks, Delays};
pub use histogram::{Histogram, Quantiles};
pub use limit::Limit;
pub use parse::ParseError;
pub use rate::Rate;
pub use time::{Duration, Instant};
