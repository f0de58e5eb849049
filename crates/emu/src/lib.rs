//! Links and queues of a scenario on the real clock, between TUN devices of network namespaces.
//!
//! signal: packets that kernels send into TUN devices, and the time · model: each direction is a
//! [`link_direction::LinkDirection`], the very port, queue discipline and link that the simulator runs, driven through
//! its own due times, so that a late wake-up delays what it touches and never the schedule ·
//! action: packets written to the far device when they are due, and a log of every decision that
//! [`replay`] can check without a clock.
//!
//! One thread per direction; one file reads the clock ([`clock`]), one talks to TUN devices
//! ([`tun`]).

pub mod clock;
mod commands;
pub mod frames;
pub mod headers;
pub mod link_direction;
pub mod log;
pub mod offload;
pub mod probe;
pub mod replay;
pub mod report;
pub mod run;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod tun;
mod worker;
