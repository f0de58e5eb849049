//! A server of ndt7 as the other side: one stream of it each way, and what both kernels say of it (`TCP_INFO`).
//!
//! signal: counted bytes, and the RTT at the sender ten times a second or as often as the server names it · model: the RTT of the
//! stream's own data, above its smallest, is the delay that the load adds · action: goodput, RTT under load, what limited TCP.
//!
//! Such a server has no probes and no clock of ours. So there is no delay per direction, no loss, no place of the queue. The RTT is
//! smoothed by TCP and is of one stream, so there is no grade either.
//!
//! Source: ndt7-protocol.md of m-lab/ndt-server, version 0.11.0.

mod message;
mod run;
mod screen;
mod stream;
mod url;

pub use message::{FIRST_SIZE, MAX_SIZE, MAX_TEXT, Measurement, TcpInfo, next_size};
pub use run::{is_whole, measure};
pub use screen::screen;
pub use url::{NoUrl, Url};
