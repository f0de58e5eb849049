//! The configuration: TOML that refuses unknown keys, and names the key that was probably meant.
//!
//! Each section is a text with every key, its default and a comment; a cure's section is in its
//! module. Together they are the template that `defaults` prints, and the list of known keys.

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, Value};

use crate::cures::device::{self, Mode};
use crate::cures::{Place, TABLE, Wanted, trial};
pub use crate::section::{ConfigError, Result};
use crate::section::{Document, Section};
use crate::status::metrics;
use crate::uplink::Uplink;

const HEAD: &str = r#"# Every key of unbloat-agent and its default. Prefixes are as "192.0.2.0/24" or "2001:db8::/32".

"#;
const SCOPE: &str = r#"[scope]
# Whose connections: the directory of a cgroup v2; empty: this whole host's. A connection belongs to the cgroup in which it was made.
cgroup = ""
# Only connections of this user, a name or a number; downloads only. Empty: those of all users.
user = ""
# The uplink's device; empty: that of the default route, whichever that is now.
device = ""
"#;
const TRIAL: &str = r#"# Whether a cure costs goodput is tried: it is lifted for a moment, and withdrawn if more comes without it.
[trial]
enabled = true
# So much more goodput without the cure, as a part of the goodput with it, counts as a regression.
gain = 0.05
# Duration of each part: with it, without it and with it again.
span = "3 s"
# Between two trials of a flow that is busy; longer after each that finds nothing.
every = "60 s"
"#;
const METRICS: &str = r#"# Figures for OpenMetrics: "unix:/run/unbloat-agent/metrics.sock" or "127.0.0.1:9469"; empty: nowhere.
[metrics]
listen = ""
# So many of the busiest flows, 50 at most, have figures of their own, with their addresses.
flows = 0
"#;

/// The sections of the template, in its order.
fn sections() -> Vec<&'static str> {
    let mut sections = vec![SCOPE];
    for about in TABLE {
        // What the cures on the uplink's device share comes before the first of them.
        if about.place == Place::Device && !sections.contains(&device::SECTION) {
            sections.push(device::SECTION);
        }
        sections.extend((!about.section.is_empty()).then_some(about.section));
    }
    sections.extend([TRIAL, METRICS]);
    sections
}

/// A configuration with every key and its default.
pub fn template() -> String {
    HEAD.to_owned() + &sections().join("\n")
}

/// Configuration of the agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of the cures that are wanted.
    pub cures: Wanted,
    /// The uplink: its device, and which cure controls it.
    pub uplink: Uplink,
    /// Trials of the cures; none without.
    pub trial: Option<trial::Config>,
    /// The metrics endpoint; none without.
    pub metrics: Option<metrics::Settings>,
}

impl Config {
    /// Reads a configuration, with keys of the command line. `pins`: where programs and maps are
    /// pinned.
    pub fn parse(text: &str, set: &[(String, String)], pins: &Path) -> Result<Config> {
        let spanned = toml_edit::Document::parse(text).map_err(|e: toml_edit::TomlError| {
            let (line, why) = (line_of(text, e.span()), e.message().trim().to_owned());
            ConfigError::Syntax { line, why }
        })?;
        check(spanned.as_table(), text)?;
        let mut edited = spanned.into_mut();
        for (key, value) in set {
            put(&mut edited, key, value)?;
        }
        let root = edited.as_table();
        check(root, text)?;
        let document = Document { root, pins };
        Ok(Config {
            cures: Wanted::read(&document)?,
            uplink: Uplink {
                mode: Mode::read(&document)?,
                device: document.section("scope").filled("device")?,
            },
            trial: trial_of(&document.section("trial"))?,
            metrics: metrics_of(&document.section("metrics"))?,
        })
    }
}

fn metrics_of(at: &Section<'_>) -> Result<Option<metrics::Settings>> {
    let flows = at.whole("flows", 0, metrics::MAX_FLOWS as u64)?.unwrap_or(0) as usize;
    let listen = at.filled("listen")?.is_some().then(|| at.parsed("listen")).transpose()?.flatten();
    Ok(listen.map(|listen| metrics::Settings { listen, flows }))
}

fn trial_of(at: &Section<'_>) -> Result<Option<trial::Config>> {
    if !at.flag("enabled")?.unwrap_or(true) {
        return Ok(None);
    }
    let mut config = trial::Config::default();
    if let Some(gain) = at.number("gain", 0.01, 1.0)? {
        config.gain = (gain * 1_000.0).round() as u64;
    }
    config.span = at.between("span", "0.5 s", "60 s")?.unwrap_or(config.span);
    config.every = at.between("every", "1 s", "86400 s")?.unwrap_or(config.every);
    config.rarest = config.rarest.max(config.every);
    Ok(Some(config))
}

/// The known sections, and the keys of each.
fn known() -> Vec<(String, Vec<String>)> {
    let template = template().parse::<DocumentMut>().unwrap_or_default();
    let keys = |item: &Item| {
        let table = item.as_table().into_iter().flat_map(Table::iter);
        table.map(|(key, _)| key.to_owned()).collect()
    };
    template.iter().map(|(name, item)| (name.to_owned(), keys(item))).collect()
}

/// Refuses unknown sections and keys; with their lines, where the table still knows them.
fn check(root: &Table, text: &str) -> Result<()> {
    let known = known();
    let names: Vec<String> = known.iter().map(|(name, _)| name.clone()).collect();
    check_keys(None, &names, root, text)?;
    for (name, item) in root {
        let Item::Table(table) = item else {
            return Err(ConfigError::NotASection(name.to_owned()));
        };
        if let Some((_, keys)) = known.iter().find(|(known, _)| known == name) {
            check_keys(Some(name), keys, table, text)?;
        }
    }
    Ok(())
}

fn check_keys(section: Option<&str>, keys: &[String], table: &Table, text: &str) -> Result<()> {
    for (key, item) in table {
        if keys.iter().any(|known| known == key) {
            continue;
        }
        let span = table.key(key).and_then(toml_edit::Key::span).or_else(|| item.span());
        return Err(ConfigError::Unknown {
            line: span.map(|span| line_of(text, Some(span))),
            what: match section {
                Some(section) => format!("key {section}.{key}"),
                None => format!("section [{key}]"),
            },
            hint: match nearest(key, keys) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => format!("there are {}", keys.join(", ")),
            },
        });
    }
    Ok(())
}

/// The known name that was probably meant: at most a third of its letters differ.
fn nearest<'a>(found: &str, keys: &'a [String]) -> Option<&'a str> {
    let distance = |key: &str| strsim::osa_distance(found, key);
    let best = keys.iter().min_by_key(|key| distance(key))?;
    (distance(best) <= (best.len() / 3).max(1)).then_some(best)
}

fn line_of(text: &str, span: Option<std::ops::Range<usize>>) -> usize {
    let end = span.map_or(0, |span| span.start.min(text.len()));
    1 + text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
}

/// Sets `section.key`; the value is TOML, or text where it is none.
fn put(document: &mut DocumentMut, key: &str, value: &str) -> Result<()> {
    let Some((section, key)) = key.split_once('.') else {
        return Err(ConfigError::NoSection(format!("{key}={value}")));
    };
    let value = value.parse::<Value>().unwrap_or_else(|_| Value::from(value));
    let table = document.entry(section).or_insert(Item::Table(Table::new()));
    let Some(table) = table.as_table_mut() else {
        return Err(ConfigError::NotASection(section.to_owned()));
    };
    table.insert(key, Item::Value(value));
    Ok(())
}
