//! The client: connects, leads the phases, and evaluates what it saw.

mod connector;
mod control;
mod hop_prober;
mod loads;
mod prober;
mod progress;
mod quic_prober;
mod recorder;
mod run;
mod silence;

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use algo::Rng;

pub(crate) use connector::Connector;
pub(crate) use control::locked;
pub(crate) use prober::{LATE, LOOK};
pub use progress::Progress;
pub(crate) use recorder::Recording;
pub use recorder::{NoCapture, Recorder};
pub use run::measure;
pub(crate) use run::parts;
pub use silence::{Silences, silences};

use crate::seen::{Phase, Transport};
use crate::tls::Pin;

/// Until an address answers.
const CONNECT: Duration = Duration::from_secs(3);

/// How much gaps differ, on either side.
pub(crate) const JITTER: f64 = 0.2;

/// A gap of about this length, so that what is sent keeps no step with timers of 1, 10 or 40 ms.
pub(crate) fn jittered(gap: Duration, rng: &mut Rng) -> Duration {
    gap.mul_f64(1.0 - JITTER + 2.0 * JITTER * rng.uniform())
}

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST` or `HOST:PORT`.
    pub host: String,
    /// The server's token.
    pub token: String,
    /// The pin of the server's key; `None`: it needs a certificate of a public authority.
    pub pin: Option<Pin>,
    /// Phases, in order.
    pub phases: Vec<Phase>,
    /// Streams of a loaded phase; `None`: as many as fill the path.
    pub streams: Option<usize>,
    /// What carries the streams, each phase with one after the other; none: TCP.
    pub transports: Vec<Transport>,
    /// Congestion controls at both ends, each phase with one after the other; none: each system's own.
    pub cc: Vec<String>,
    /// Bytes of all loads together.
    pub max_bytes: u64,
    /// The short form.
    pub quick: bool,
    /// Beside the load of a server of iperf3: the port of one of irtt on the same host.
    pub probe: Option<u16>,
}

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No address, or none that answers.
    #[error("{0}")]
    NoServer(String),
    /// The server does not want it.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server is not the one that is meant, or cannot show that it is.
    #[error("{0}")]
    Untrusted(String),
}

/// Text of another program, fit for a terminal: control characters and what is too long are left out.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// The addresses of `HOST` or `HOST:PORT`.
pub(crate) fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    host.to_socket_addrs()
        .or_else(|_| (host.trim_matches(['[', ']']), port).to_socket_addrs())
        .map(Iterator::collect)
        .map_err(|_| Failure::NoServer(format!("{host}: no such host")))
}

/// A connection to the first address of the host that answers.
pub(crate) fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let no_server = |why: &str| Failure::NoServer(format!("{host}: {why}"));
    let mut why = no_server("no address");
    for address in addresses(host, port)? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => return Ok(socket),
            Err(e) => why = no_server(&format!("no answer from {address} ({})", e.kind())),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_cannot_move_the_cursor() {
        assert_eq!(printable("a\x1b[2Jb\r\nc"), "a[2Jbc");
        assert_eq!(printable(&"x".repeat(1000)).len(), 200);
    }

    #[test]
    fn a_host_that_is_none_and_a_port_that_is_closed_are_named() {
        let none = connect("none.invalid", 1).unwrap_err();
        assert_eq!(none.to_string(), "none.invalid: no such host");
        let closed = connect("127.0.0.1:1", 2).unwrap_err().to_string();
        assert!(closed.contains("127.0.0.1:1") && closed.contains("refused"), "{closed}");
    }
}
