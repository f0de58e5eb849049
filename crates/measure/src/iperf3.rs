//! A server of iperf3 as the other side: its load, and TCP handshakes beside it.
//!
//! signal: TCP handshakes to the server's port while a load runs, which it answers even if it refuses the connection; counted bytes
//! · model: a handshake meets the queue; what it takes longer than the shortest one is added delay · action: a grade of the round
//! trip, goodput.
//!
//! Such a server has no probes and no clock of ours. So there is no delay per direction, no loss per direction, no place of the
//! queue; and of a download's sender only its congestion control and its retransmissions are known. A server of irtt on the same host
//! answers probes, and then delay and loss are known per direction (`beside`).
//!
//! Source: the protocol as iperf 3.12 speaks it (states of `iperf_api.h`).

mod beside;
mod control;
mod message;
mod run;

pub use message::{MAX_TEXT, Results, State};
pub use run::measure;

/// Of iperf3.
pub const PORT: u16 = 5201;
