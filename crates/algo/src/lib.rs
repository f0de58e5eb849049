//! Every decision of unbloat about a packet, a window or a queue, as pure state machines.
//!
//! signal: an event, as a struct, with the time as first argument · model: one file per published
//! algorithm · action: the return value is the decision. The simulator, the emulator and the agent
//! call the same code. Nothing here has a clock, a file or a random source of its own: time and
//! [`Rng`] are arguments.
//!
//! Seven conventions apply to every family:
//!
//! 1. `now` comes first.
//! 2. Events are structs.
//! 3. The return value is the decision.
//! 4. `next_wakeup` says when the algorithm needs a call without an event; a spurious call is
//!    harmless.
//! 5. Random numbers come from an argument.
//! 6. `Config::default()` has the published values, each with its source.
//! 7. `state()` is a small copyable struct for charts.
//!
//! Each family has a `TABLE` of [`Entry`]s. Scenario files, the command line, error messages,
//! documentation, golden curves and operation fuzzing all read it. A new algorithm is one file, its
//! `mod` line and one line in the `family!` list.
//!
//! Floating point goes through `libm`, whose results are the same on every machine. `drwa` and
//! `qcut_d` use integers only: the agent's eBPF programs take the same decisions bit for bit.
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
