//! The configuration: TOML that refuses what it does not know, and names what was probably meant.
//!
//! signal: text of a file, `key=value` of a command line · model: sections with known keys · action: settings of each cure. Every key and
//! its default is in [`TEMPLATE`], which is itself a valid configuration.

mod section;
mod sockets;
#[cfg(test)]
mod tests;
mod uplink;

use std::path::{Path, PathBuf};

use section::{Section, section};
use toml_edit::{DocumentMut, Item, Table, Value};

use crate::cures::congestion;
use crate::cures::receive;
use crate::daemon::trial;
use crate::status::metrics;
use crate::uplink::Uplink;

/// Every key with its default.
pub const TEMPLATE: &str = include_str!("config.toml");

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConfigError(pub String);

type Result<T> = std::result::Result<T, ConfigError>;

/// What the agent is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Downloads of this host.
    pub receive: Option<receive::Settings>,
    /// Congestion control of this host's uploads.
    pub congestion: Option<congestion::Settings>,
    /// Uploads, of this host and of those behind it; downloads of those behind it.
    pub uplink: Uplink,
    /// How cures are tested for their cost; none: they are not.
    pub trial: Option<trial::Config>,
    /// Where figures are to be had.
    pub metrics: Option<metrics::Settings>,
}

/// The sections and their keys.
const KEYS: &[(&str, &[&str])] = &[
    ("", &["scope", "receive", "uplink", "forward", "shaper", "congestion", "trial", "metrics"]),
    ("scope", &["cgroup", "user", "device"]),
    (
        "receive",
        &[
            "enabled",
            "lambda",
            "form",
            "average",
            "quick",
            "floor",
            "increment",
            "largest",
            "start",
            "shared_minimum",
            "rtt_min_age",
            "rate_term",
            "only",
            "except",
            "observe",
        ],
    ),
    (
        "uplink",
        &[
            "mode",
            "telemetry",
            "driver",
            "target",
            "slack",
            "floor",
            "patience",
            "hold",
            "lambda",
            "average",
            "quick",
            "start",
            "clsact",
        ],
    ),
    ("forward", &["enabled", "lambda", "average", "quick", "start", "flows"]),
    ("shaper", &["enabled"]),
    ("congestion", &["live", "routes", "cgroups"]),
    ("trial", &["enabled", "gain", "span", "every"]),
    ("metrics", &["listen", "flows"]),
];

impl Config {
    /// Reads a configuration with keys set from outside. `pins`: where programs and maps are pinned.
    pub fn parse(text: &str, set: &[(String, String)], pins: &Path) -> Result<Config> {
        // A key in quotes may have any letter in it; a complaint is one line of a log.
        Config::read(text, set, pins).map_err(|e| ConfigError(one_line(&e.0)))
    }

    fn read(text: &str, set: &[(String, String)], pins: &Path) -> Result<Config> {
        let spanned = toml_edit::Document::parse(text).map_err(|e: toml_edit::TomlError| {
            let (line, why) = (line_of(text, e.span()), e.message().trim().to_owned());
            ConfigError(format!("line {line}: {why}"))
        })?;
        check(spanned.as_table(), text)?;
        let mut document = spanned.into_mut();
        for (key, value) in set {
            put(&mut document, key, value)?;
        }
        let root = document.as_table();
        check(root, text)?;
        let scope = section(root, "scope");
        let cgroup = scope.filled("cgroup")?.map(PathBuf::from);
        let receive = sockets::receive(
            &section(root, "receive"),
            cgroup.clone(),
            sockets::user(&scope)?,
            pins,
        )?;
        if receive.is_none() && scope.filled("user")?.is_some() {
            return Err(scope.wrong(
                "user",
                "only [receive] knows whose a connection is, and it is switched off",
            ));
        }
        Ok(Config {
            receive,
            congestion: sockets::congestion(&section(root, "congestion"), cgroup, pins)?,
            uplink: uplink::uplink(
                &section(root, "uplink"),
                &section(root, "forward"),
                &section(root, "shaper"),
                scope.filled("device")?,
            )?,
            trial: trial_of(&section(root, "trial"))?,
            metrics: metrics_of(&section(root, "metrics"))?,
        })
    }
}

fn metrics_of(at: &Section<'_>) -> Result<Option<metrics::Settings>> {
    let flows = at.whole("flows", 0, metrics::MOST_FLOWS as u64)?.unwrap_or(0) as usize;
    let Some(text) = at.filled("listen")? else { return Ok(None) };
    let listen = text.parse().map_err(|e: String| at.wrong("listen", &e))?;
    Ok(Some(metrics::Settings { listen, flows }))
}

/// With what would end a line or move a cursor shown as its escape, and not longer than anybody reads.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    let shown = |letter: char| match letter {
        control if control.is_control() => control.escape_default().to_string(),
        other => other.to_string(),
    };
    let line: String = text.chars().take(LONGEST).map(shown).collect();
    if text.chars().nth(LONGEST).is_some() { line + " …" } else { line }
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

/// Nothing but known sections and keys; with their lines, where the table still knows them.
fn check(root: &Table, text: &str) -> Result<()> {
    known("", root, text)?;
    for (name, item) in root {
        match item {
            Item::Table(table) => known(name, table, text)?,
            _ => return Err(ConfigError(format!("{name}: expected a section, [{name}]"))),
        }
    }
    Ok(())
}

fn known(section: &str, table: &Table, text: &str) -> Result<()> {
    let Some((_, keys)) = KEYS.iter().find(|(name, _)| *name == section) else { return Ok(()) };
    for (key, item) in table {
        if keys.contains(&key) {
            continue;
        }
        let line = table.key(key).and_then(toml_edit::Key::span).or_else(|| item.span());
        let at = line.map_or(String::new(), |span| format!("line {}: ", line_of(text, Some(span))));
        let what = if section.is_empty() {
            format!("section [{key}]")
        } else {
            format!("key {section}.{key}")
        };
        let meant = match nearest(key, keys) {
            Some(name) => format!("; did you mean {name}?"),
            None => format!("; there are {}", keys.join(", ")),
        };
        return Err(ConfigError(format!("{at}unknown {what}{meant}")));
    }
    Ok(())
}

/// The known name that was probably meant: at most a third of its letters away.
fn nearest<'a>(found: &str, keys: &[&'a str]) -> Option<&'a str> {
    let far = |key: &str| strsim::osa_distance(found, key);
    let best = keys.iter().min_by_key(|key| far(key))?;
    (far(best) <= (best.len() / 3).max(1)).then_some(*best)
}

fn line_of(text: &str, span: Option<std::ops::Range<usize>>) -> usize {
    let end = span.map_or(0, |span| span.start.min(text.len()));
    1 + text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
}

/// Sets `section.key`; the value is TOML, or text where it is none.
fn put(document: &mut DocumentMut, key: &str, value: &str) -> Result<()> {
    let Some((section, key)) = key.split_once('.') else {
        return Err(ConfigError(format!(
            "{key}={value}: expected SECTION.KEY=VALUE, as receive.lambda=2"
        )));
    };
    let value = value.parse::<Value>().unwrap_or_else(|_| Value::from(value));
    let table = document.entry(section).or_insert(Item::Table(Table::new()));
    let Some(table) = table.as_table_mut() else {
        return Err(ConfigError(format!("{section}: expected a section")));
    };
    table.insert(key, Item::Value(value));
    Ok(())
}
