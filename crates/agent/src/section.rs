//! A configuration as its readers see it: sections, and the values of their keys with their
//! bounds.

use std::path::Path;

use toml_edit::{Item, Table, Value};
use units::Duration;

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The text is not TOML.
    Syntax {
        /// Line of the configuration, from 1.
        line: usize,
        /// The message of the TOML parser.
        why: String,
    },
    /// A section or key that does not exist.
    Unknown {
        /// Line, from 1, where it is known.
        line: Option<usize>,
        /// The section or key.
        what: String,
        /// The name that was probably meant, or all that exist.
        hint: String,
    },
    /// A value where a section is expected.
    NotASection(String),
    /// A setting of the command line without a section.
    NoSection(String),
    /// A value that its key does not take.
    Value {
        /// The key, as `section.key`.
        key: String,
        /// The values that the key takes.
        why: String,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            ConfigError::Syntax { line, why } => format!("line {line}: {why}"),
            ConfigError::Unknown { line, what, hint } => {
                let at = line.map_or(String::new(), |line| format!("line {line}: "));
                format!("{at}unknown {what}; {hint}")
            }
            ConfigError::NotASection(name) => format!("{name}: expected a section, [{name}]"),
            ConfigError::NoSection(setting) => {
                format!("{setting}: expected SECTION.KEY=VALUE, as receive.lambda=2")
            }
            ConfigError::Value { key, why } => format!("{key}: {why}"),
        };
        f.write_str(&one_line(&text))
    }
}

impl std::error::Error for ConfigError {}

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

/// Result of reading a configuration.
pub type Result<T> = std::result::Result<T, ConfigError>;

/// A configuration whose sections and keys all exist.
#[derive(Clone, Copy)]
pub struct Document<'a> {
    pub(crate) root: &'a Table,
    /// Where programs and maps are pinned.
    pub(crate) pins: &'a Path,
}

impl<'a> Document<'a> {
    /// A section; without keys where the configuration lacks it.
    pub(crate) fn section(&self, name: &'static str) -> Section<'a> {
        Section { name, table: self.root.get(name).and_then(Item::as_table) }
    }
}

/// A section with its name, for messages.
pub(crate) struct Section<'a> {
    name: &'static str,
    pub(crate) table: Option<&'a Table>,
}

impl Section<'_> {
    pub(crate) fn wrong(&self, key: &str, why: impl std::fmt::Display) -> ConfigError {
        ConfigError::Value { key: format!("{}.{key}", self.name), why: why.to_string() }
    }

    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.table?.get(key)?.as_value()
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        let read = |v: &Value| v.as_bool().ok_or_else(|| self.wrong(key, "expected true or false"));
        self.value(key).map(read).transpose()
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>> {
        let read = |v: &Value| {
            v.as_str().map(str::to_owned).ok_or_else(|| self.wrong(key, "expected text in quotes"))
        };
        self.value(key).map(read).transpose()
    }

    /// Text that is not empty.
    pub(crate) fn filled(&self, key: &str) -> Result<Option<String>> {
        Ok(self.text(key)?.filter(|text| !text.is_empty()))
    }

    /// A time between two bounds.
    pub(crate) fn between(&self, key: &str, min: &str, max: &str) -> Result<Option<Duration>> {
        let Some(found) = self.parsed::<Duration>(key)? else { return Ok(None) };
        let bound = |text: &str| text.parse::<Duration>().map_or(Duration(0), |bound| bound);
        match (bound(min)..=bound(max)).contains(&found) {
            true => Ok(Some(found)),
            false => Err(self.wrong(key, format!("expected a time from {min} to {max}"))),
        }
    }

    pub(crate) fn number(&self, key: &str, min: f64, max: f64) -> Result<Option<f64>> {
        let read = |v: &Value| {
            let number = v.as_float().or_else(|| v.as_integer().map(|i| i as f64));
            let number = number.filter(|n| (min..=max).contains(n));
            number.ok_or_else(|| self.wrong(key, format!("expected a number from {min} to {max}")))
        };
        self.value(key).map(read).transpose()
    }

    pub(crate) fn whole(&self, key: &str, min: u64, max: u64) -> Result<Option<u64>> {
        let read = |v: &Value| {
            let number = v.as_integer().and_then(|i| u64::try_from(i).ok());
            number.filter(|n| (min..=max).contains(n)).ok_or_else(|| {
                self.wrong(key, format!("expected a whole number from {min} to {max}"))
            })
        };
        self.value(key).map(read).transpose()
    }

    /// Text that a type reads.
    pub(crate) fn parsed<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|e: T::Err| self.wrong(key, e))
    }

    /// A list of prefixes, or of whatever else a type reads.
    pub(crate) fn list<T: std::str::FromStr>(&self, key: &str) -> Result<Vec<T>>
    where
        T::Err: std::fmt::Display,
    {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let list = value
            .as_array()
            .ok_or_else(|| self.wrong(key, "expected a list, as [\"192.0.2.0/24\"]"))?;
        let read = |v: &Value| {
            let text = v.as_str().ok_or_else(|| self.wrong(key, "expected prefixes in quotes"))?;
            text.parse().map_err(|e: T::Err| self.wrong(key, e))
        };
        list.iter().map(read).collect()
    }

    /// λ, the average and `quick` of a window law.
    pub(crate) fn law(&self, law: &mut algo::rwnd::drwa::Config) -> Result<()> {
        if let Some(lambda) = self.number("lambda", 1.0, 16.0)? {
            law.lambda = (lambda * 16.0).round() as u64;
        }
        if let Some(average) = self.number("average", 0.0, 0.9375)? {
            law.alpha = (average * 16.0).round() as u64;
        }
        law.quick = self.flag("quick")?.unwrap_or(law.quick);
        Ok(())
    }
}
