//! Scenario files: topology, traffic, and expected results.
//!
//! [`Document::parse`] takes the TOML text of a file and gives one [`Scenario`] per run, ready for
//! the simulator or the lab, every value checked and in its unit; or an error that names line, key,
//! and what would fit.
//!
//! Nothing here opens a file: the text of traces comes in through a closure. Every key stands once,
//! in `keys`, with form, range, default and meaning. The parser reads by these tables (crate
//! `settings`) and [`describe`] prints the reference from them. Algorithms and their parameters
//! come from the tables of `algo`.

mod describe;
mod document;
mod expect;
mod family;
mod keys;
mod ports;
mod resolve;
mod set_key;
mod sweep;
mod traces;
mod types;

pub use describe::{describe, scenario_value};
pub use document::Document;
pub use expect::{Bound, Expectation, METRICS, Metric, On, STATISTICS, Statistic};
pub use family::{Family, Named};
pub use ports::{address, node_at};

pub use settings::{Error as ScenarioError, Place};
pub use sweep::RunSpec;
pub use traces::{TraceMissing, TraceText, Traces};
pub use types::{
    Algorithm, App, Bulk, Capture, Change, Changed, Device, Firmware, Flow, GateBy, JitterBuffer,
    Lab, Link, Node, Offload, Page, Probe, ProbeKind, QueuePer, Read, Receiver, Scenario, Sender,
    Trace, WindowUpdate,
};
