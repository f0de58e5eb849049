//! Responsiveness under working conditions, of a path to any server of RPM: draft-ietf-ippm-responsiveness-09.
//!
//! signal: requests of one byte beside downloads or uploads without end, on connections of their own and on the loaded ones ·
//! model: `rule`, `figure` · action: round trips a minute, for each direction or for both at once.
//!
//! These servers have no clock and no probes of ours, so there is no delay per direction, no loss, no hop and no grade.

mod configuration;
mod connection;
mod figure;
mod load;
mod rule;
mod run;
mod screen;
mod seen;

use std::time::Duration;

use hyper::Uri;
use serde::Serialize;

pub use configuration::{Configuration, NoConfiguration};
pub use figure::{Figure, band};
pub use rule::Confidence;
pub use run::measure;
pub use screen::{look, screen};

use crate::nq::CONFIGURATION;
use crate::seen::Phase;
use crate::tls::Trust;

/// Of HTTPS: RFC 9110 section 4.2.2.
pub const HTTPS: u16 = 443;

/// An interval of the algorithm, and how long a test with it may take.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// What a figure is called by.
    pub name: &'static str,
    /// ID.
    pub interval: Duration,
    /// Intervals of each of both stages at most. The rule needs four.
    pub stage_intervals: usize,
}

/// The current draft.
pub const DRAFT: Variant =
    Variant { name: "draft-09", interval: Duration::from_secs(5), stage_intervals: 6 };
/// The interval of the drafts until -08, which the clients in use have. Their tests take 20 s for a direction at most.
pub const DEPLOYED: Variant =
    Variant { name: "deployed", interval: Duration::from_secs(1), stage_intervals: 10 };

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's configuration.
    pub url: Url,
    /// How the server's key is judged.
    pub trust: Trust,
    /// Phases, in order.
    pub phases: Vec<Phase>,
    /// Variants, in order.
    pub variants: Vec<Variant>,
    /// Bytes of all loads together.
    pub max_bytes: u64,
}

/// Where a configuration is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host, IPv6 in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// All of it.
    pub uri: Uri,
    /// As it was written, or would be.
    pub text: String,
}

/// A word that is no such URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a host, with or without a port, nor a URL of HTTPS")]
pub struct NoUrl(String);

impl std::str::FromStr for Url {
    type Err = NoUrl;

    /// A host is enough: its configuration has a well-known path.
    fn from_str(text: &str) -> Result<Url, NoUrl> {
        let fault = || NoUrl(text.to_owned());
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: Uri = whole.parse().map_err(|_| fault())?;
        let authority = uri.authority().filter(|a| !a.as_str().contains('@')).ok_or_else(fault)?;
        if uri.scheme_str() != Some("https") || authority.host().is_empty() {
            return Err(fault());
        }
        let (host, port) = (authority.host().to_owned(), authority.port_u16().unwrap_or(HTTPS));
        let path = match uri.path() {
            "" | "/" => CONFIGURATION,
            _ => uri.path_and_query().map_or("/", |path| path.as_str()),
        };
        let text = format!("https://{authority}{path}");
        let uri = text.parse().map_err(|_| fault())?;
        Ok(Url { host, port, uri, text })
    }
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Where the configuration came from.
    pub url: String,
    /// Smallest handshake of TCP before the first load, ms.
    pub unloaded_rtt_ms: Option<f64>,
    /// Round trips a minute without a load, of connections of their own.
    pub unloaded_rpm: Option<f64>,
    /// Whether every phase came to its end.
    pub complete: bool,
    /// Why not.
    pub ended: Option<String>,
    /// The phases.
    pub phases: Vec<PhaseOutcome>,
}

/// The result of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseOutcome {
    /// `down`, `up`, `both`.
    pub phase: &'static str,
    /// `draft-09` or `deployed`.
    pub variant: &'static str,
    /// ID, s.
    pub interval_s: f64,
    /// Responsiveness, round trips a minute.
    pub rpm: Option<f64>,
    /// The same probes by the formula of earlier drafts.
    pub rpm_of_mean: Option<f64>,
    /// How sure it is.
    pub confidence: Confidence,
    /// What it was made of.
    #[serde(flatten)]
    pub figure: Figure,
    /// Bit/s to the client in the last four intervals, where this direction has a load.
    pub goodput_down_bps: Option<f64>,
    /// Bit/s to the server, likewise; as TCP acknowledged them.
    pub goodput_up_bps: Option<f64>,
    /// How sure it is that the path was full.
    pub goodput_confidence: Confidence,
    /// Probes that were given up, by this end after 10 s or by the server; they count with that time.
    pub failed: usize,
    /// Connections with a load at the end.
    pub connections: usize,
    /// How long it took.
    pub seconds: f64,
    /// When the probes began that count, seconds of Unix time.
    pub from_unix_s: f64,
    /// When they ended.
    pub until_unix_s: f64,
}

/// What is shown while it runs.
#[derive(Clone, Debug)]
pub struct Look {
    /// What is done now.
    pub step: &'static str,
    /// The variant.
    pub variant: &'static str,
    /// Responsiveness of the last intervals.
    pub rpm: Option<f64>,
    /// Goodput so far, bit/s, in loaded directions.
    pub down_bps: Option<f64>,
    /// The other direction.
    pub up_bps: Option<f64>,
    /// Seconds until the end of the phase, at most.
    pub left_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, u16, String)> {
        text.parse::<Url>().ok().map(|url| (url.host, url.port, url.text))
    }

    #[test]
    fn a_host_is_enough() {
        let well_known = |host: &str| format!("https://{host}/.well-known/nq");
        for (text, host, port) in [
            ("a.example", "a.example", 443),
            ("a.example:8443", "a.example", 8443),
            ("https://a.example/", "a.example", 443),
            ("[2001:db8::1]:8443", "[2001:db8::1]", 8443),
        ] {
            let at = text.trim_start_matches("https://").trim_end_matches('/');
            assert_eq!(parsed(text), Some((host.to_owned(), port, well_known(at))));
        }
        let other = parsed("https://a.example/config?x=1").unwrap();
        assert_eq!(other.2, "https://a.example/config?x=1");
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "http://a.example", "https://", "a b", "https://me@a.example/"] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }
}
