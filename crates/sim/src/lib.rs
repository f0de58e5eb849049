//! Virtual time: hosts with a full TCP, device stacks, links, applications.
//!
//! A discrete-event engine in whole nanoseconds around the pure algorithms of `algo`. It takes a
//! [`scenario::Scenario`] and gives [`Results`], and captures of the frames at each node.
//!
//! The same scenario and seed give the same results on every machine: no clock is read, random
//! numbers come from named streams, floating point is `libm`'s, and nothing iterates a hash map.

mod accounting;
mod apps;
mod events;
mod frame;
mod ranges;
pub mod record;
mod rewrite;
mod routes;
mod run;
mod simulation;
mod tcp;
mod wire;

pub use apps::voip::{mos, scores};
pub use record::Results;
pub use run::{Captures, Options, SimError, run, run_with_captures};
