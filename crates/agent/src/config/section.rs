//! A section of the configuration, and its values as a cure wants them.
//!
//! signal: the text of a value · model: what is allowed there · action: the value, none if the key is not there, or a complaint that names
//! section and key.

use toml_edit::{Item, Table, Value};
use units::Duration;

use super::{ConfigError, Result};
use crate::cures::Prefix;

/// A section with its name, for complaints.
pub(super) struct Section<'a> {
    name: &'static str,
    pub(super) table: Option<&'a Table>,
}

pub(super) fn section<'a>(root: &'a Table, name: &'static str) -> Section<'a> {
    Section { name, table: root.get(name).and_then(Item::as_table) }
}

impl Section<'_> {
    pub(super) fn wrong(&self, key: &str, why: &str) -> ConfigError {
        ConfigError(format!("{}.{key}: {why}", self.name))
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.table?.get(key)?.as_value()
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        let read = |v: &Value| v.as_bool().ok_or_else(|| self.wrong(key, "expected true or false"));
        self.value(key).map(read).transpose()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>> {
        let read = |v: &Value| {
            v.as_str().map(str::to_owned).ok_or_else(|| self.wrong(key, "expected text in quotes"))
        };
        self.value(key).map(read).transpose()
    }

    /// Text that is not empty.
    pub(super) fn filled(&self, key: &str) -> Result<Option<String>> {
        Ok(self.text(key)?.filter(|text| !text.is_empty()))
    }

    /// A time from one to the other.
    pub(super) fn between(&self, key: &str, least: &str, most: &str) -> Result<Option<Duration>> {
        let Some(found) = self.parsed::<Duration>(key)? else { return Ok(None) };
        let bound = |text: &str| text.parse::<Duration>().map_or(Duration(0), |bound| bound);
        match (bound(least)..=bound(most)).contains(&found) {
            true => Ok(Some(found)),
            false => Err(self.wrong(key, &format!("expected a time from {least} to {most}"))),
        }
    }

    pub(super) fn number(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>> {
        let read = |v: &Value| {
            let number = v.as_float().or_else(|| v.as_integer().map(|i| i as f64));
            number.filter(|n| (least..=most).contains(n)).ok_or_else(|| {
                self.wrong(key, &format!("expected a number from {least} to {most}"))
            })
        };
        self.value(key).map(read).transpose()
    }

    pub(super) fn whole(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>> {
        let read = |v: &Value| {
            v.as_integer()
                .and_then(|i| u64::try_from(i).ok())
                .filter(|n| (least..=most).contains(n))
                .ok_or_else(|| {
                    self.wrong(key, &format!("expected a whole number from {least} to {most}"))
                })
        };
        self.value(key).map(read).transpose()
    }

    pub(super) fn parsed<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|e: T::Err| self.wrong(key, &e.to_string()))
    }

    pub(super) fn prefixes(&self, key: &str) -> Result<Vec<Prefix>> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let list = value
            .as_array()
            .ok_or_else(|| self.wrong(key, "expected a list, as [\"192.0.2.0/24\"]"))?;
        let read = |v: &Value| {
            let text = v.as_str().ok_or_else(|| self.wrong(key, "expected prefixes in quotes"))?;
            text.parse().map_err(|e: String| self.wrong(key, &e))
        };
        list.iter().map(read).collect()
    }
}
