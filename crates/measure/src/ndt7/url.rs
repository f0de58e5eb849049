//! Where a server of ndt7 is: a host, or a URL of WebSocket.

use std::str::FromStr;

use hyper::Uri;

use crate::wire::data::Direction;

/// Of `wss`, and of `ws`: RFC 6455 section 3.
const PORTS: (u16, u16) = (443, 80);

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host, IPv6 in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// With TLS.
    pub secure: bool,
    /// Behind the path, with its question mark: an access token, for instance.
    query: String,
}

/// A word that is no such URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a host, with or without a port, nor a URL of ws or wss")]
pub struct NoUrl(String);

impl FromStr for Url {
    type Err = NoUrl;

    /// A host is enough, and is asked with TLS. The path of a URL is not used: the protocol fixes both of them.
    fn from_str(text: &str) -> Result<Url, NoUrl> {
        let fault = || NoUrl(text.to_owned());
        let whole = if text.contains("://") { text.to_owned() } else { format!("wss://{text}") };
        let uri: Uri = whole.parse().map_err(|_| fault())?;
        let authority = uri.authority().filter(|a| !a.as_str().contains('@')).ok_or_else(fault)?;
        let secure = match uri.scheme_str() {
            Some("wss") => true,
            Some("ws") => false,
            _ => return Err(fault()),
        };
        if authority.host().is_empty() {
            return Err(fault());
        }
        Ok(Url {
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(if secure { PORTS.0 } else { PORTS.1 }),
            secure,
            query: uri.query().map_or_else(String::new, |query| format!("?{query}")),
        })
    }
}

impl Url {
    /// Host and port.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What the test of a direction is asked for with.
    pub fn of(&self, direction: Direction) -> String {
        let scheme = if self.secure { "wss" } else { "ws" };
        let path = match direction {
            Direction::Down => "download",
            Direction::Up => "upload",
        };
        format!("{scheme}://{}:{}/ndt/v7/{path}{}", self.host, self.port, self.query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<String> {
        text.parse::<Url>().ok().map(|url| url.of(Direction::Up))
    }

    #[test]
    fn a_host_is_enough_and_has_tls() {
        assert_eq!(of("a.example").as_deref(), Some("wss://a.example:443/ndt/v7/upload"));
        assert_eq!(
            of("[2001:db8::1]:8443").as_deref(),
            Some("wss://[2001:db8::1]:8443/ndt/v7/upload")
        );
        assert_eq!(of("ws://a.example").as_deref(), Some("ws://a.example:80/ndt/v7/upload"));
        let token = of("wss://a.example/ndt/v7/download?access_token=x").unwrap();
        assert_eq!(token, "wss://a.example:443/ndt/v7/upload?access_token=x");
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "https://a.example", "ws://", "a b", "wss://me@a.example"] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }
}
