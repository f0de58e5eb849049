//! The configuration: TOML that refuses unknown keys, and names the key that was probably meant.
//!
//! Each section is a table with every key, its default, its form and a comment; a cure's section is
//! in its module. `defaults` prints them as a template, and the parser reads by them.

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

use std::path::Path;

use settings::form::{FLAG, count, duration, number};
use settings::{Error, Form, Group, Item, Place, Problem, Section, Tree, group};

use crate::cures::device::{self, Mode};
use crate::cures::{self, TABLE, Wanted, trial};
use crate::section::{Document, SCOPE};
use crate::status::metrics;
use crate::uplink::Uplink;

const HEAD: &str = r#"# Every key of unbloat-agent and its default. Prefixes are as "192.0.2.0/24" or "2001:db8::/32".

"#;
const TRIAL: Group = group! {
    /// Whether a cure costs goodput is tried: it is lifted for a moment, and withdrawn if more
    /// comes without it.
    [trial]
    enabled = "true", FLAG;
    /// So much more goodput without the cure, as a part of the goodput with it, counts as a
    /// regression.
    gain = "0.05", number("0.01", "1");
    /// Duration of each part: with it, without it (1.5 s where that adds delay), with it again.
    span = "3 s", duration("0.5 s", "60 s");
    /// Between two trials of a flow that is busy; longer after each that finds nothing.
    every = "60 s", duration("1 s", "86400 s");
};
const METRICS: Group = group! {
    /// Figures for OpenMetrics: "unix:/run/unbloat-agent/metrics.sock" or "127.0.0.1:9469"; empty:
    /// nowhere.
    [metrics]
    listen = "", Form::Text;
    /// So many of the busiest flows, 50 at most, have figures of their own, with their addresses.
    flows = "0", count("0", "50");
};

/// The sections of the template, in its order.
fn sections() -> Vec<&'static Group> {
    let mut sections = vec![&SCOPE];
    for about in TABLE {
        // What the cures on the uplink's device share comes before the first of them.
        let uplink = sections.iter().any(|section| section.name == device::SECTION.name);
        sections
            .extend((about.place == cures::Place::Device && !uplink).then_some(&device::SECTION));
        sections.extend(about.section);
    }
    sections.extend([&TRIAL, &METRICS]);
    sections
}

/// A configuration with every key and its default.
pub fn template() -> String {
    HEAD.to_owned() + &sections().into_iter().map(Group::template).collect::<Vec<_>>().join("\n")
}

/// What is wrong with a configuration, in one line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.message())]
pub struct ConfigError(#[from] Error);

impl ConfigError {
    fn message(&self) -> String {
        let Error { place, key, problem } = &self.0;
        let line = match place {
            Place::Line(n) => format!("line {n}: "),
            Place::Set | Place::Nowhere => String::new(),
        };
        one_line(&match &**problem {
            Problem::UnknownKey { nearest, known } => {
                let what = match key.contains('.') {
                    true => format!("key {key}"),
                    false => format!("section [{key}]"),
                };
                let hint = match nearest {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => format!("there are {}", known.join(", ")),
                };
                format!("{line}unknown {what}; {hint}")
            }
            Problem::UnknownName { found, known, .. } => {
                format!("{line}{key}: \"{found}\" is none of \"{}\"", known.join("\", \""))
            }
            _ => self.0.to_string(),
        })
    }
}

/// Result of reading a configuration.
pub type Result<T> = std::result::Result<T, ConfigError>;

/// Escapes what would end a line or move a cursor, since a quoted key may contain any character.
fn one_line(text: &str) -> String {
    // Longer than any message of ours; a key can be of any length.
    const MAX: usize = 500;
    let shown = |letter: char| match letter {
        control if control.is_control() => control.escape_default().to_string(),
        other => other.to_string(),
    };
    let line: String = text.chars().take(MAX).map(shown).collect();
    if text.chars().nth(MAX).is_some() { line + " …" } else { line }
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
        let mut tree = Tree::parse(text)?;
        for (key, value) in set {
            put(&mut tree, key, value)?;
        }
        let sections = sections();
        let names: Vec<&str> = sections.iter().map(|section| section.name).collect();
        let root = Section::open(&tree, String::new(), &[], &names)?;
        let document = Document { root, pins };
        // Unknown keys of all sections come before wrong values.
        for section in sections {
            document.section(section)?;
        }
        Ok(Config {
            cures: Wanted::read(&document)?,
            uplink: Uplink {
                mode: Mode::read(&document)?,
                device: document.section(&SCOPE)?.filled("device")?.map(str::to_owned),
            },
            trial: trial_of(&document.section(&TRIAL)?)?,
            metrics: metrics_of(&document.section(&METRICS)?)?,
        })
    }
}

fn metrics_of(at: &Section<'_>) -> settings::Result<Option<metrics::Settings>> {
    let flows = at.count("flows")? as usize;
    let Some(listen) = at.filled("listen")? else { return Ok(None) };
    Ok(Some(metrics::Settings { listen: at.parsed("listen", listen)?, flows }))
}

fn trial_of(at: &Section<'_>) -> settings::Result<Option<trial::Config>> {
    if !at.flag("enabled")? {
        return Ok(None);
    }
    let mut config = trial::Config {
        gain: (at.number("gain")? * 1_000.0).round() as u64,
        span: at.duration("span")?,
        every: at.duration("every")?,
        ..trial::Config::default()
    };
    config.rarest = config.rarest.max(config.every);
    Ok(Some(config))
}

/// Sets `section.key`; the value is TOML, or text where it is none.
fn put(tree: &mut Tree, key: &str, value: &str) -> settings::Result<()> {
    let Some((section, name)) = key.split_once('.') else {
        let problem = "expected SECTION.KEY=VALUE, as receive.lambda=2".to_owned();
        let setting = format!("{key}={value}");
        return settings::wrong(Place::Nowhere, setting, Problem::Contradiction(problem));
    };
    // An address such as `[::1]:9469` begins as a list and is none.
    let text = |_| Tree { item: Item::Text(value.to_owned()), place: Place::Set };
    let value = Tree::from_outside(key, value).unwrap_or_else(text);
    if let Item::Table(root) = &mut tree.item
        && let Item::Table(table) = &mut root.entry(section, Place::Set).item
    {
        *table.entry(name, Place::Set) = value;
    }
    Ok(())
}
