//! The configuration: TOML that refuses what it does not know, and names what was probably meant.
//!
//! signal: text of a file, `key=value` of a command line · model: sections with known keys · action: settings of each cure. Every key and
//! its default is in [`TEMPLATE`], which is itself a valid configuration.

use std::path::{Path, PathBuf};

use algo::rwnd::drwa::Form;
use toml_edit::{DocumentMut, Item, Table, Value};
use units::{Bytes, Duration};

use crate::congestion;
use crate::cure::Prefix;
use crate::receive::{self, Places};

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
}

/// The sections and their keys.
const KEYS: &[(&str, &[&str])] = &[
    ("", &["scope", "receive", "congestion"]),
    ("scope", &["cgroup"]),
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
            "only",
            "except",
            "observe",
        ],
    ),
    ("congestion", &["live", "routes"]),
];

impl Config {
    /// Reads a configuration with keys set from outside. `pins`: where programs and maps are pinned.
    pub fn parse(text: &str, set: &[(String, String)], pins: &Path) -> Result<Config> {
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
        let cgroup =
            section(root, "scope").text("cgroup")?.filter(|path| !path.is_empty()).map(PathBuf::from);
        Ok(Config {
            receive: receive_of(&section(root, "receive"), cgroup.clone(), pins)?,
            congestion: congestion_of(&section(root, "congestion"), cgroup, pins)?,
        })
    }
}

fn receive_of(at: &Section<'_>, cgroup: Option<PathBuf>, pins: &Path) -> Result<Option<receive::Settings>> {
    if !at.flag("enabled")?.unwrap_or(true) {
        return Ok(None);
    }
    let mut settings = receive::Settings { cgroup, pins: pins.to_owned(), ..receive::Settings::default() };
    let law = &mut settings.law;
    if let Some(lambda) = at.number("lambda", 1.0, 16.0)? {
        law.lambda = (lambda * 16.0).round() as u64;
    }
    law.form = match at.text("form")?.as_deref() {
        None | Some("rate") => Form::Rate,
        Some("paper") => Form::Paper,
        Some(other) => {
            return Err(at.wrong("form", &format!("\"{other}\" is neither \"rate\" nor \"paper\"")));
        }
    };
    if let Some(average) = at.number("average", 0.0, 0.9375)? {
        law.alpha = (average * 16.0).round() as u64;
    }
    law.quick = at.flag("quick")?.unwrap_or(law.quick);
    law.min_window = at.whole("floor", 1, 1_000)?.unwrap_or(law.min_window);
    law.increment = at.whole("increment", 0, 1_000)?.unwrap_or(law.increment);
    law.max = at.parsed("largest")?.unwrap_or(law.max);
    if law.max < Bytes(65_536) || law.max > Bytes(1 << 30) {
        return Err(at.wrong("largest", "expected 64 KiB to 1 GiB"));
    }
    if let Some(age) = at.parsed::<Duration>("rtt_min_age")? {
        law.rtt_min_age = (age.0 > 0).then_some(age);
    }
    settings.start = at.parsed("start")?.unwrap_or(settings.start);
    settings.shared_minimum = at.flag("shared_minimum")?.unwrap_or(settings.shared_minimum);
    settings.observe = at.flag("observe")?.unwrap_or(settings.observe);
    settings.places = match (at.prefixes("only")?, at.prefixes("except")?) {
        (only, except) if only.is_empty() && except.is_empty() => Places::All,
        (only, except) if except.is_empty() => Places::Only(only),
        (only, except) if only.is_empty() => Places::Except(except),
        _ => return Err(at.wrong("except", "either only or except, not both")),
    };
    Ok(Some(settings))
}

fn congestion_of(
    at: &Section<'_>,
    cgroup: Option<PathBuf>,
    pins: &Path,
) -> Result<Option<congestion::Settings>> {
    let live = at.flag("live")?.unwrap_or(true);
    let mut routes = Vec::new();
    match at.table.and_then(|table| table.get("routes")) {
        None => {}
        Some(item) => {
            let Some(table) = item.as_table_like() else {
                return Err(
                    at.wrong("routes", "expected prefixes with names, as { \"0.0.0.0/0\" = \"bbr\" }")
                );
            };
            for (prefix, name) in table.iter() {
                let prefix: Prefix = prefix.parse().map_err(|e: String| at.wrong("routes", &e))?;
                let Some(name) = name.as_str().filter(|name| !name.is_empty() && name.len() < 16) else {
                    return Err(
                        at.wrong("routes", &format!("{prefix}: expected the name of a congestion control"))
                    );
                };
                routes.push((prefix, name.to_owned()));
            }
        }
    }
    if routes.is_empty() {
        return Ok(None);
    }
    Ok(Some(congestion::Settings { routes, live, cgroup, pins: pins.to_owned() }))
}

/// A section with its name, for complaints.
struct Section<'a> {
    name: &'static str,
    table: Option<&'a Table>,
}

fn section<'a>(root: &'a Table, name: &'static str) -> Section<'a> {
    Section { name, table: root.get(name).and_then(Item::as_table) }
}

impl Section<'_> {
    fn wrong(&self, key: &str, why: &str) -> ConfigError {
        ConfigError(format!("{}.{key}: {why}", self.name))
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.table?.get(key)?.as_value()
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        let read = |v: &Value| v.as_bool().ok_or_else(|| self.wrong(key, "expected true or false"));
        self.value(key).map(read).transpose()
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        let read = |v: &Value| {
            v.as_str().map(str::to_owned).ok_or_else(|| self.wrong(key, "expected text in quotes"))
        };
        self.value(key).map(read).transpose()
    }

    fn number(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>> {
        let read = |v: &Value| {
            let number = v.as_float().or_else(|| v.as_integer().map(|i| i as f64));
            number
                .filter(|n| (least..=most).contains(n))
                .ok_or_else(|| self.wrong(key, &format!("expected a number from {least} to {most}")))
        };
        self.value(key).map(read).transpose()
    }

    fn whole(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>> {
        let read = |v: &Value| {
            v.as_integer()
                .and_then(|i| u64::try_from(i).ok())
                .filter(|n| (least..=most).contains(n))
                .ok_or_else(|| self.wrong(key, &format!("expected a whole number from {least} to {most}")))
        };
        self.value(key).map(read).transpose()
    }

    fn parsed<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|e: T::Err| self.wrong(key, &e.to_string()))
    }

    fn prefixes(&self, key: &str) -> Result<Vec<Prefix>> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let list =
            value.as_array().ok_or_else(|| self.wrong(key, "expected a list, as [\"192.0.2.0/24\"]"))?;
        let read = |v: &Value| {
            let text = v.as_str().ok_or_else(|| self.wrong(key, "expected prefixes in quotes"))?;
            text.parse().map_err(|e: String| self.wrong(key, &e))
        };
        list.iter().map(read).collect()
    }
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
        let what =
            if section.is_empty() { format!("section [{key}]") } else { format!("key {section}.{key}") };
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
        return Err(ConfigError(format!("{key}={value}: expected SECTION.KEY=VALUE, as receive.lambda=2")));
    };
    let value = value.parse::<Value>().unwrap_or_else(|_| Value::from(value));
    let table = document.entry(section).or_insert(Item::Table(Table::new()));
    let Some(table) = table.as_table_mut() else {
        return Err(ConfigError(format!("{section}: expected a section")));
    };
    table.insert(key, Item::Value(value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        Config::parse(text, &[], Path::new("/pins"))
    }

    fn complaint(text: &str) -> String {
        read(text).unwrap_err().0
    }

    #[test]
    fn the_template_is_what_an_empty_file_means() {
        let (template, empty) = (read(TEMPLATE).unwrap(), read("").unwrap());
        assert_eq!(format!("{template:?}"), format!("{empty:?}"));
        // Every key is in it, so that nobody has to look for one elsewhere.
        for (section, keys) in KEYS {
            for key in *keys {
                let there = TEMPLATE
                    .lines()
                    .any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} =")));
                assert!(section.is_empty() || there, "{section}.{key}");
            }
        }
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest_name_and_their_line() {
        assert_eq!(
            complaint("\n[receive]\nlamda = 2\n"),
            "line 3: unknown key receive.lamda; did you mean lambda?"
        );
        assert_eq!(complaint("[recieve]\n"), "line 1: unknown section [recieve]; did you mean receive?");
        assert!(complaint("[scope]\nuser = 3\n").ends_with("there are cgroup"));
        assert!(complaint("[receive\n").starts_with("line 1: "));
    }

    #[test]
    fn values_out_of_bounds_are_refused_with_their_key() {
        assert_eq!(complaint("[receive]\nlambda = 0.5\n"), "receive.lambda: expected a number from 1 to 16");
        assert_eq!(complaint("[receive]\nstart = \"much\"\n").split(':').next(), Some("receive.start"));
        assert!(complaint("[receive]\nonly = [\"10.0.0.0/40\"]\n").contains("10.0.0.0/40"));
        assert!(complaint("[receive]\nonly = [\"10.0.0.0/8\"]\nexcept = [\"::/0\"]\n").contains("not both"));
        assert!(complaint("[congestion]\nroutes = { \"0.0.0.0/0\" = 3 }\n").contains("congestion.routes"));
    }

    #[test]
    fn what_the_command_line_sets_counts_more_than_the_file() {
        let set = [
            ("receive.lambda".to_owned(), "1.5".to_owned()),
            ("receive.start".to_owned(), "1 MB".to_owned()),
            ("congestion.routes".to_owned(), "{ \"0.0.0.0/0\" = \"bbr\" }".to_owned()),
        ];
        let config = Config::parse("[receive]\nlambda = 3\n", &set, Path::new("/pins")).unwrap();
        let receive = config.receive.unwrap();
        assert_eq!((receive.law.lambda, receive.start), (24, Bytes(1_000_000)));
        assert_eq!(config.congestion.unwrap().routes.len(), 1);
        let set = [("receive.lamda".to_owned(), "1.5".to_owned())];
        assert_eq!(
            Config::parse("", &set, Path::new("/pins")).unwrap_err().0,
            "unknown key receive.lamda; did you mean lambda?"
        );
    }
}
