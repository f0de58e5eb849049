//! The four quantities that every other room speaks in, with the unit in the type.
//!
//! Integers throughout: nanoseconds, bytes, bits per second. Only operators that mean something exist
//! (`Bytes / Rate → Duration`, `Rate * Duration → Bytes`), so that a rate can never be added to a time.
//! Text forms follow the field's habit: `20 ms`, `12 Mbit/s`; Mbit/s is 10⁶ bit/s, KB is 1,000 bytes and
//! KiB is 1,024.
//!
//! [`Histogram`] and [`Limit`] are here too, because the analysis and the simulator measure with the same ones.
//!
//! Deviation: arithmetic saturates instead of wrapping or panicking, because the times come from capture
//! files whose clocks may run backwards.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bytes;
mod histogram;
mod limit;
mod parse;
mod rate;
mod time;

pub use bytes::Bytes;
pub use histogram::{Histogram, Quantiles};
pub use limit::Limit;
pub use parse::ParseError;
pub use rate::Rate;
pub use time::{Duration, Instant};
