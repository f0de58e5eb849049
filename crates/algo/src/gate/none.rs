//! No gate: the queue drains into the device as fast as the device takes it.
//!
//! signal: none · model: none · action: always open. What every phone ships with: the device's own buffer fills first,
//! then the queue above it (QCUT section 4).

use units::Instant;

use super::{Event, Gate, Limit, Setup, State};

/// Name in the table.
pub const NAME: &str = "none";
/// One line.
pub const ABOUT: &str = "the device takes all it can hold";
/// Where it is specified.
pub const SOURCE: &str = "QCUT section 4";

config! {
    /// Nothing to set.
    pub struct Config {}
}

/// See the module text.
#[derive(Clone, Debug)]
pub struct Open;

impl Open {
    /// The open gate.
    pub fn new(_config: Config, _setup: &Setup) -> Open {
        Open
    }
}

impl Gate for Open {
    fn on_event(&mut self, _now: Instant, _event: &Event) {}
    fn limit(&self, _now: Instant) -> Limit {
        Limit::None
    }
    fn open(&self, _now: Instant) -> bool {
        true
    }
    fn next_wakeup(&self, _now: Instant) -> Option<Instant> {
        None
    }
    fn state(&self, _now: Instant) -> State {
        State::default()
    }
}
