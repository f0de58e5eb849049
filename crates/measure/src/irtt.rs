//! A server of irtt as the other side: its probes, over an idle path or beside a load of iperf3.
//!
//! signal: answered probes with the server's times and its count of those that came · model: as with probes of our own
//! (`delay`, `losses`) · action: round trip, delay variation, added delay and loss of each direction.
//!
//! Such a server carries no load, so an idle path gets no grade.
//!
//! Source: the protocol of version 1 as the server of irtt 0.9.2 speaks it. Known deviations from its own client: probes are
//! jittered, so that they keep no step with a timer; of lost probes an infinite delay counts.

mod idle;
mod packet;
mod probes;
mod run;
mod session;

pub use packet::{Malformed, Opened, Parameters, Reply, probe};
pub(crate) use probes::Probes;
pub use run::measure;
pub(crate) use session::Session;

/// Of irtt.
pub const PORT: u16 = 2112;

/// A server of irtt beside one of iperf3, as `irtt` or `irtt:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside(pub u16);

/// A word that names no server of probes.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither irtt nor irtt:PORT")]
pub struct NoProbe(String);

impl std::str::FromStr for Beside {
    type Err = NoProbe;

    fn from_str(text: &str) -> Result<Beside, NoProbe> {
        let port = match text.strip_prefix("irtt") {
            Some("") => Some(PORT),
            Some(rest) => rest.strip_prefix(':').and_then(|port| port.parse().ok()),
            None => None,
        };
        port.map(Beside).ok_or_else(|| NoProbe(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_probes_may_be_named() {
        assert_eq!("irtt".parse::<Beside>().unwrap(), Beside(2112));
        assert_eq!("irtt:7".parse::<Beside>().unwrap(), Beside(7));
        for wrong in ["", "irtt:", "irtt7", "irtt:70000", "ping"] {
            assert!(wrong.parse::<Beside>().is_err(), "{wrong}");
        }
    }
}
