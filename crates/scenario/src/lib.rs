//! Scenario files: what is connected how, who sends what to whom, and what is expected of it.
//!
//! signal: TOML text · model: the types of [`types`], every value checked and in its unit · action: one
//! [`Scenario`] per run, ready for the simulator or the lab; or an error that names key, line, and what would fit.

mod types;

pub use types::{
    Algorithm, App, Change, Changed, Device, Firmware, Flow, Link, Node, Probe, ProbeKind, QueuePer, Read,
    Receiver, Scenario, Sender, Trace,
};
