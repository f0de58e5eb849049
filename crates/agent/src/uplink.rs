//! The uplink's device and the cures on it: the gate, the shaper, windows on passing ACKs.
//!
//! signal: the configuration, the default route, whether a modem reports · model: the gate while it does, windows of passing ACKs while it
//! does not · action: cures attached to the device that is the uplink now, and lifted or put back as reports come and go.

pub mod controller;
pub mod select;

pub mod route;

use std::path::PathBuf;

use algo::gate::qcut_d;
use algo::rwnd::drwa::Config as Law;
use units::Bytes;

use crate::cures::acks;

/// Who holds the uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The gate while a modem reports, windows of passing ACKs while it does not.
    Auto,
    /// The gate, and nothing where no report comes.
    Gate,
    /// Windows of passing ACKs.
    Acks,
    /// Nobody.
    Off,
}

/// What is to be done on the uplink's device.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// Who holds uploads.
    pub mode: Mode,
    /// The device; without one, that of the default route.
    pub device: Option<String>,
    /// A socket with a modem's reports.
    pub telemetry: Option<PathBuf>,
    /// The driver's counters, too.
    pub driver: bool,
    /// The gate's law.
    pub law: qcut_d::Config,
    /// The law of uploads' windows.
    pub up: Law,
    /// Payload of an upload before its windows are touched.
    pub start: Bytes,
    /// HTB in place of the gate.
    pub shaper: bool,
    /// Programs hang on the clsact discipline, also where TCX is to be had.
    pub clsact: bool,
    /// Downloads of hosts behind this one.
    pub forward: Option<Forward>,
}

/// Downloads of hosts behind this one.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// The law of their windows.
    pub down: Law,
    /// Payload of a download before its windows are touched.
    pub start: Bytes,
    /// Flows that are remembered.
    pub flows: u32,
}

impl Default for Uplink {
    fn default() -> Uplink {
        let acks = acks::Settings::new("");
        Uplink {
            mode: Mode::Auto,
            device: None,
            telemetry: Some("/run/unbloat/modem.sock".into()),
            driver: true,
            law: crate::cures::gate::law(),
            up: acks.up.unwrap_or_default(),
            start: acks.start,
            shaper: false,
            clsact: false,
            forward: None,
        }
    }
}

impl Default for Forward {
    fn default() -> Forward {
        let acks = acks::Settings::new("");
        Forward { down: acks.down.unwrap_or_default(), start: acks.start, flows: acks.flows }
    }
}
