//! Every decision that unbloat takes about a packet, a window or a queue, as pure state machines.
//!
//! signal: what happened, as a struct, with the time as first argument · model: one file per published algorithm ·
//! action: the decision is the return value. Nothing here knows whether a simulator, an emulator or a live host asks:
//! no clock, no file, no dice of its own (time and [`Rng`] are arguments).
//!
//! Seven conventions hold in every family: (1) `now` comes first; (2) events are structs; (3) the decision is returned;
//! (4) who needs waking says so in `next_wakeup`, and a spurious wake-up is harmless; (5) luck is an argument;
//! (6) `Config::default()` is the published value, each cited; (7) `state()` is a small copyable struct for charts.
//!
//! Each family has a `TABLE` of [`Entry`]s; scenario files, the command line, error messages, documentation, golden
//! curves and operation fuzzing all come from it. Adding an algorithm is one file and one line in its family's
//! `family!` list.
//!
//! Floating point goes through `libm`, whose results are the same on every machine; `drwa` and `qcut_d` use integers
//! only, because the kernel side of the agent has to decide bit-identically.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
mod table;

pub mod aqm;
pub mod cc;
pub mod gate;
pub mod link;
mod packet;
pub mod port;
mod rng;
pub mod rwnd;

pub use packet::{Ecn, Packet};
pub use rng::Rng;
pub use table::{Capacity, Entry, Param, Setting, Settings, Unit, Value};
