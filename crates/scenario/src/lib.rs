//! Scenario files: what is connected how, who sends what to whom, and what is expected of it.
//!
//! signal: TOML text · model: the types of a run, every value checked and in its unit · action: one
//! [`Scenario`] per run, ready for the simulator or the lab; or an error that names key, line, and what would fit.
//!
//! Nothing here opens a file: [`Document::parse`] takes the text, and the text of traces comes in through a closure.
//! Every key stands once, in `keys`, with form, range, default and meaning; the parser reads by these tables and
//! [`describe`] prints the reference from them. Algorithms and their parameters come from the tables of `algo`.

mod describe;
mod document;
mod error;
mod expect;
mod family;
mod keys;
mod nearest;
mod ports;
mod quantity;
mod resolve;
mod section;
mod sweep;
mod traces;
mod tree;
mod types;

pub use describe::{describe, scenario_value};
pub use document::Document;
pub use error::{Place, Problem, ScenarioError};
pub use expect::{Bound, Expectation, METRICS, Metric, On, STATISTICS, Statistic};
pub use family::{Family, Named};
pub use ports::{address, node_at};
pub use sweep::RunSpec;
pub use traces::{TraceMissing, TraceText, Traces};
pub use types::{
    Algorithm, App, Bulk, Capture, Change, Changed, Device, Firmware, Flow, GateBy, Lab, Link,
    Node, Offload, Probe, ProbeKind, QueuePer, Read, Receiver, Scenario, Sender, Trace,
    WindowUpdate,
};
