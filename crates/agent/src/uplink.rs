//! The uplink's device, and which of the cures on it controls uploads: the gate or the shaper while
//! a modem reports its buffer, ACK-window rewriting while it does not.

pub mod controller;
pub mod route;
pub mod select;

pub use crate::cures::device::Mode;

/// How the uplink is configured, besides its cures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uplink {
    /// Which cure controls uploads.
    pub mode: Mode,
    /// The device; none: that of the default route.
    pub device: Option<String>,
}
