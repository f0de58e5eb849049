//! What a server says of itself at `/.well-known/nq`: draft-ietf-ippm-responsiveness-09, section 6.1.
//!
//! A configuration is refused as a whole if a name that is needed is missing or there twice, if its version is not 1, or if its
//! URLs have different hosts. Names that are not known are ignored. Each URL may have the name of the draft, or that of earlier
//! drafts, which servers of others still use. Deviation: only `https` URLs, and all of them with one port, too.

use std::fmt;

use hyper::Uri;
use hyper::http::uri::Authority;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// Where to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// One byte.
    pub small: Uri,
    /// Without end.
    pub large: Uri,
    /// Takes what it gets.
    pub upload: Uri,
    /// Host and port of all three.
    pub authority: Authority,
    /// Where to connect to instead of the URLs' host.
    pub endpoint: Option<String>,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoConfiguration {
    /// Not JSON, or not of this form, or a name is there twice.
    #[error("its configuration: {0}")]
    Form(String),
    /// Another version.
    #[error("its configuration has version {0}, not 1")]
    Version(u64),
    /// A URL is missing.
    #[error("its configuration has no {0}")]
    Missing(&'static str),
    /// Not of this kind.
    #[error("its configuration: {0} is no URL of HTTPS")]
    NotHttps(&'static str),
    /// Hosts differ.
    #[error("its configuration names more than one host")]
    Hosts,
}

#[derive(Deserialize)]
struct Text {
    version: u64,
    urls: Urls,
    test_endpoint: Option<String>,
}

/// Names of the draft, and of earlier ones.
const NAMES: [(&str, &str); 3] = [
    ("small_download_url", "small_https_download_url"),
    ("large_download_url", "large_https_download_url"),
    ("upload_url", "https_upload_url"),
];

/// The URLs by the order of `NAMES`, each with those of earlier drafts behind it.
struct Urls([[Option<String>; 2]; 3]);

impl<'de> Deserialize<'de> for Urls {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Urls, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Urls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with URLs")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Urls, A::Error> {
                let mut urls: [[Option<String>; 2]; 3] = Default::default();
                while let Some(name) = map.next_key::<String>()? {
                    let at = NAMES.iter().enumerate().find_map(|(n, (new, old))| match &*name {
                        name if name == *new => Some((n, 0)),
                        name if name == *old => Some((n, 1)),
                        _ => None,
                    });
                    let Some((n, age)) = at else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    if urls[n][age].replace(map.next_value()?).is_some() {
                        return Err(serde::de::Error::custom("a URL is there twice"));
                    }
                }
                Ok(Urls(urls))
            }
        }
        from.deserialize_map(Each)
    }
}

impl Configuration {
    /// Of the JSON text.
    pub fn of(text: &[u8]) -> Result<Configuration, NoConfiguration> {
        let text: Text = serde_json::from_slice(text).map_err(|e| {
            // Only what kind of fault it is: the text is another program's.
            let kind = if e.is_data() {
                "a value is missing, there twice or of another kind"
            } else {
                "no JSON"
            };
            NoConfiguration::Form(kind.to_owned())
        })?;
        if text.version != 1 {
            return Err(NoConfiguration::Version(text.version));
        }
        let Urls(urls) = text.urls;
        let mut found = Vec::with_capacity(NAMES.len());
        for ((name, _), [new, old]) in NAMES.iter().zip(urls) {
            let url = new.or(old).ok_or(NoConfiguration::Missing(name))?;
            let url: Uri = url.parse().map_err(|_| NoConfiguration::NotHttps(name))?;
            if url.scheme_str() != Some("https") {
                return Err(NoConfiguration::NotHttps(name));
            }
            found.push(url);
        }
        let authorities: Vec<&Authority> = found.iter().filter_map(Uri::authority).collect();
        let [authority, others @ ..] = authorities.as_slice() else {
            return Err(NoConfiguration::Hosts);
        };
        let where_to = |one: &Authority| {
            (one.host().to_ascii_lowercase(), one.port_u16().unwrap_or(super::HTTPS))
        };
        if others.len() + 1 < NAMES.len()
            || others.iter().any(|one| where_to(one) != where_to(authority))
        {
            return Err(NoConfiguration::Hosts);
        }
        let authority = (*authority).clone();
        let Ok([small, large, upload]) = <[Uri; 3]>::try_from(found) else {
            return Err(NoConfiguration::Hosts);
        };
        Ok(Configuration { small, large, upload, authority, endpoint: text.test_endpoint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAFT: &str = r#"{"version":1,"urls":{
        "large_download_url":"https://a.example/l","small_download_url":"https://a.example/s","upload_url":"https://a.example/u"}}"#;

    fn of(text: &str) -> Result<Configuration, NoConfiguration> {
        Configuration::of(text.as_bytes())
    }

    #[test]
    fn names_of_the_draft_and_of_earlier_ones() {
        let found = of(DRAFT).unwrap();
        assert_eq!(found.small, "https://a.example/s");
        assert_eq!((found.upload.path(), found.authority.host()), ("/u", "a.example"));
        let old = DRAFT
            .replace("large_download_url", "large_https_download_url")
            .replace("small_download_url", "small_https_download_url")
            .replace("\"upload_url", "\"https_upload_url");
        assert_eq!(of(&old).unwrap(), found);
    }

    #[test]
    fn what_is_not_known_is_ignored_and_the_endpoint_taken() {
        let more =
            DRAFT.replace("{\"version\":1", r#"{"x":[1],"test_endpoint":"b.example","version":1"#);
        assert_eq!(of(&more).unwrap().endpoint.as_deref(), Some("b.example"));
        let inside = DRAFT.replace("\"upload_url", "\"more\":{\"a\":2},\"upload_url");
        assert_eq!(of(&inside), of(DRAFT));
    }

    #[test]
    fn what_the_draft_calls_invalid_is_refused_as_a_whole() {
        let twice =
            DRAFT.replace("\"upload_url", r#""upload_url":"https://a.example/v","upload_url"#);
        let host = DRAFT.replace("https://a.example/u", "https://b.example/u");
        let port = DRAFT.replace("https://a.example/u", "https://a.example:444/u");
        let plain = DRAFT.replace("https://a.example/u", "http://a.example/u");
        let version = DRAFT.replace(":1,", ":2,");
        let again = DRAFT.replace("\"version\":1", "\"version\":1,\"version\":1");
        let missing = DRAFT.replace("upload_url", "uploads");
        assert!(matches!(of(&twice), Err(NoConfiguration::Form(_))));
        assert!(matches!(of(&again), Err(NoConfiguration::Form(_))));
        assert!(matches!(of("<html>"), Err(NoConfiguration::Form(_))));
        assert_eq!(of(&host), Err(NoConfiguration::Hosts));
        assert_eq!(of(&port), Err(NoConfiguration::Hosts));
        assert_eq!(of(&plain), Err(NoConfiguration::NotHttps("upload_url")));
        assert_eq!(of(&version), Err(NoConfiguration::Version(2)));
        assert_eq!(of(&missing), Err(NoConfiguration::Missing("upload_url")));
    }

    #[test]
    fn the_same_host_in_other_letters_or_with_its_usual_port() {
        let same = DRAFT.replace("https://a.example/u", "https://A.EXAMPLE:443/u");
        assert!(of(&same).is_ok());
    }
}
