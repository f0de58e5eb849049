//! No gate: the queue drains into the device as fast as the device takes it.
//!
//! signal: none · model: none · action: always open. Source: QCUT section 4. Phones are shipped like
//! this: the device's own buffer fills first, then the queue above it.

use units::Instant;

use super::{Event, Gate, Limit, Setup, State};

/// Name in the table.
pub const NAME: &str = "none";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "the device takes all that fits its buffer";
/// Where it is specified.
pub const SOURCE: &str = "QCUT section 4";

config! {
    /// This gate has no parameters.
    pub struct Config {}
}

/// The gate that is always open.
#[derive(Clone, Debug)]
pub struct Open;

impl Open {
    /// A gate that is always open.
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
