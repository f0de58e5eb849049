//! The status of a running agent: what the control socket answers, the text that `status` prints,
//! and the metrics.

pub mod idle;
pub mod metrics;
pub mod others;
pub mod table;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use serde::Serialize;

use crate::cures::trial::Stage;
use crate::cures::{FlowStatus, Reports};
use crate::status::idle::Work;
use crate::status::others::OtherProgram;
use crate::uplink::controller::Active;

/// The status of an agent.
#[derive(Serialize)]
pub struct Status {
    /// Always true, as in every good answer of the control socket.
    pub ok: bool,
    /// Always "on": an agent that is off does not answer.
    pub state: &'static str,
    /// Process of the daemon.
    pub pid: u32,
    /// Version of the program.
    pub version: &'static str,
    /// Seconds since the start.
    pub up_s: f64,
    /// Name of the uplink's device; none while it is not known.
    pub device: Option<String>,
    /// All cures watch, and change nothing.
    pub lifted: bool,
    /// The cure that controls uploads.
    pub uplink: Active,
    /// Figures of each cure.
    pub cures: Reports,
    /// Trials of the cures, running or past.
    pub trials: Vec<TrialStatus>,
    /// What does not work as configured.
    pub problems: Vec<String>,
    /// Of each watched cure: whether data flows in its scope, and whether it counts that.
    pub work: BTreeMap<&'static str, Work>,
    /// sock_ops programs of others on the same sockets.
    pub other_programs: Vec<OtherProgram>,
    /// Connections whose callback flags such a program had replaced.
    pub flags_replaced: u64,
    /// Flows under the cures.
    pub flows: Vec<FlowStatus>,
    /// The last lines of the log.
    pub log: VecDeque<String>,
}

/// The trial of a cure, or of a cure on one flow.
#[derive(Clone, Debug, Serialize)]
pub struct TrialStatus {
    /// Name of the cure on trial.
    pub cure: &'static str,
    /// Remote address of the flow; none where the whole cure is tried.
    pub remote: Option<IpAddr>,
    /// Remote port of the flow.
    pub remote_port: Option<u16>,
    /// Local port of the flow.
    pub local_port: Option<u16>,
    /// Whether a trial runs, or the cure is withdrawn.
    pub state: Stage,
    /// Goodput with the cure at the last trial, bit/s.
    pub with_bps: Option<u64>,
    /// Goodput without the cure at the last trial, bit/s.
    pub without_bps: Option<u64>,
}

#[cfg(test)]
pub(crate) mod testing;
