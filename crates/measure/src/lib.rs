//! Delay per direction under load, between this host and another.
//!
//! A client loads the path to a server, down, up and both at once, and sends small probes of its own meanwhile. What is
//! decided here reads no clock and no socket: `delay`, `losses`, `saturation`, `figures`, `hops`.

pub mod carrier;
pub mod channel;
pub mod client;
pub mod clock;
pub mod cure;
pub mod delay;
pub mod expired;
pub mod figures;
pub mod hops;
pub mod idle_gaps;
pub mod iperf3;
pub mod irtt;
pub mod load;
pub mod losses;
pub mod metered;
pub mod ndt7;
pub mod nq;
pub mod outcome;
pub mod quic;
pub mod rpm;
pub mod samples;
pub mod saturation;
pub mod screen;
pub mod seen;
pub mod server;
mod settling;
pub mod socket;
pub mod surroundings;
pub mod tls;
pub mod treatment;
pub mod wire;
