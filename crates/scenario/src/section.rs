//! A section of the file read by its table of keys, so that parser, messages and documentation cannot disagree.
//!
//! signal: a table of the file · model: [`Key`], one line each with form, default and meaning · action: typed values,
//! each checked; what the table does not know is refused at once.

use algo::{Unit, Value};
use units::{Bytes, Duration, Rate};

use crate::error::{Place, Problem, Result, unknown_key, unknown_name, wrong};
use crate::family::Family;
use crate::quantity;
use crate::tree::{Item, Table, Tree};
use crate::types::Algorithm;

/// How the value of a key is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// A plain value between two others (inclusive), where there is a range.
    Plain(Unit, Option<(&'static str, &'static str)>),
    /// Free text.
    Text,
    /// A name that can stand in a dotted key.
    Name,
    /// An algorithm of a family.
    Algorithm(Family),
    /// What this says.
    Other(&'static str),
}

/// One key of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// As it would be written (without quotes); empty where nothing is assumed, in brackets where it is described.
    pub(crate) default: &'static str,
    pub(crate) about: &'static str,
}

/// A table of the file, open for reading.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    table: Option<&'a Table>,
    pub(crate) place: Place,
    pub(crate) path: String,
    keys: &'static [&'static [Key]],
}

impl<'a> Section<'a> {
    /// Refuses what is no table, and keys that are neither in `keys` nor in `more`.
    pub(crate) fn open(
        tree: &'a Tree,
        path: String,
        keys: &'static [&'static [Key]],
        more: &[&str],
    ) -> Result<Section<'a>> {
        let Some(table) = tree.table() else {
            let expected = "a table".to_owned();
            return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
        };
        for (key, value) in &table.entries {
            let known =
                || keys.iter().flat_map(|k| k.iter()).map(|k| k.name).chain(more.iter().copied());
            if !known().any(|k| k == key) {
                let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                return wrong(value.place, full, unknown_key(key, known()));
            }
        }
        Ok(Section { table: Some(table), place: tree.place, path, keys })
    }

    /// A section that is not in the file: all defaults.
    pub(crate) fn absent(
        path: String,
        place: Place,
        keys: &'static [&'static [Key]],
    ) -> Section<'a> {
        Section { table: None, place, path, keys }
    }

    /// The section below `key`, or all defaults.
    pub(crate) fn below(&self, key: &str, keys: &'static [&'static [Key]]) -> Result<Section<'a>> {
        match self.get(key) {
            Some(tree) => Section::open(tree, self.full(key), keys, &[]),
            None => Ok(Section::absent(self.full(key), self.place, keys)),
        }
    }

    pub(crate) fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Tree> {
        self.table?.get(key)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().flat_map(|k| k.iter()).find(|k| k.name == name)
    }

    /// A problem at `key`, or at the section where the key is missing.
    pub(crate) fn wrong<T>(&self, key: &str, problem: Problem) -> Result<T> {
        wrong(self.get(key).map_or(self.place, |t| t.place), self.full(key), problem)
    }

    /// The value of a plain key, or its default; `None` where there is neither.
    fn plain(&self, name: &str) -> Result<Option<Value>> {
        let Some(Key { form: Form::Plain(unit, range), default, .. }) = self.key(name) else {
            return Ok(None);
        };
        match self.get(name) {
            Some(tree) => plain(*unit, *range, tree, &self.full(name)).map(Some),
            None => Ok(quantity::constant(*unit, default)),
        }
    }

    pub(crate) fn duration(&self, name: &str) -> Result<Duration> {
        Ok(self.duration_if_given(name)?.unwrap_or_default())
    }

    pub(crate) fn duration_if_given(&self, name: &str) -> Result<Option<Duration>> {
        self.plain(name).map(|v| v.and_then(|v| algo::Setting::from_value(&v)))
    }

    pub(crate) fn bytes(&self, name: &str) -> Result<Bytes> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    pub(crate) fn rate(&self, name: &str) -> Result<Rate> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    pub(crate) fn count(&self, name: &str) -> Result<u64> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    /// A priority band.
    pub(crate) fn class(&self, name: &str) -> Result<u8> {
        self.count(name).map(|n| u8::try_from(n).unwrap_or(u8::MAX))
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    /// The number of a word in its list.
    pub(crate) fn choice(&self, name: &str) -> Result<usize> {
        match self.plain(name)? {
            Some(Value::Choice(i)) => Ok(i),
            _ => Ok(0),
        }
    }

    /// Free text, or a name.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(tree) = self.get(name) else { return Ok(None) };
        let named = matches!(self.key(name), Some(Key { form: Form::Name, .. }));
        match tree.text() {
            Some(text) if !named || is_name(text) => Ok(Some(text)),
            Some(_) => {
                let expected =
                    "a name of letters, digits, - and _, not a number, at most 64 long".to_owned();
                self.wrong(name, Problem::WrongKind { expected, found: tree.shown() })
            }
            None => self.wrong(
                name,
                Problem::WrongKind { expected: "a text".to_owned(), found: tree.shown() },
            ),
        }
    }

    /// The algorithm at `name`, or its default.
    pub(crate) fn algorithm(&self, name: &str) -> Result<Algorithm> {
        let Some(Key { form: Form::Algorithm(family), default, .. }) = self.key(name) else {
            return self.wrong(name, Problem::Missing("an algorithm"));
        };
        let default = (!default.is_empty()).then_some(*default);
        match (self.get(name), default) {
            (Some(tree), _) => family.read(tree, &self.full(name), default),
            (None, Some(default)) => match family.named(default) {
                Some(algorithm) => Ok(algorithm),
                None => {
                    let entries = family.entries();
                    let known = entries.iter().map(|e| e.name);
                    self.wrong(name, unknown_name(family.noun(), default, known))
                }
            },
            (None, None) => self.wrong(name, Problem::Missing(family.noun())),
        }
    }

    /// The elements of a list, or the one value that stands in its place.
    pub(crate) fn one_or_many(&self, name: &str) -> &'a [Tree] {
        match self.get(name) {
            Some(Tree { item: Item::List(list), .. }) => list,
            Some(tree) => std::slice::from_ref(tree),
            None => &[],
        }
    }

    /// The plain values that the table gives as default of `name`, separated by commas.
    pub(crate) fn defaults<T: algo::Setting>(&self, name: &str) -> Vec<T> {
        let texts = self.key(name).map_or("", |k| k.default).split(", ");
        texts.filter_map(|text| T::from_value(&quantity::constant(T::UNIT, text)?)).collect()
    }

    /// A list of plain values: each checked, not empty, at most `most`.
    pub(crate) fn list<T: algo::Setting>(
        &self,
        name: &str,
        range: (&'static str, &'static str),
        most: u64,
    ) -> Result<Vec<T>> {
        let list = self.one_or_many(name);
        if list.is_empty() {
            return self.wrong(name, Problem::Empty);
        }
        if list.len() as u64 > most {
            return self.wrong(
                name,
                Problem::TooMany { what: "elements", found: list.len() as u64, most },
            );
        }
        let one = |tree: &Tree| {
            let value = plain(T::UNIT, Some(range), tree, &self.full(name))?;
            Ok(T::from_value(&value))
        };
        list.iter().filter_map(|tree| one(tree).transpose()).collect()
    }
}

/// A plain value, checked against its range.
pub(crate) fn plain(
    unit: Unit,
    range: Option<(&'static str, &'static str)>,
    tree: &Tree,
    path: &str,
) -> Result<Value> {
    let Some(value) = quantity::read(unit, tree) else {
        if let (Unit::Choice(words), Item::Text(found)) = (unit, &tree.item) {
            return wrong(tree.place, path, unknown_name("choice", found, words.iter().copied()));
        }
        let mut expected = quantity::expected(unit);
        if let Some((min, max)) = range {
            expected += &format!(", {min} to {max}");
        }
        return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
    };
    if let Some((min, max)) = range {
        let end = |text| quantity::constant(unit, text).and_then(|v| v.magnitude());
        if let (Some(x), Some(low), Some(high)) = (value.magnitude(), end(min), end(max))
            && !(low <= x && x <= high)
        {
            let (min, max) = (min.to_owned(), max.to_owned());
            return wrong(
                tree.place,
                path,
                Problem::OutOfRange { found: quantity::shown(unit, &value), min, max },
            );
        }
    }
    Ok(value)
}

/// Names can stand in dotted keys, file names and tables, and are no index.
fn is_name(text: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty()
        && text.len() <= 64
        && text.chars().all(letters)
        && !text.chars().all(|c| c.is_ascii_digit())
}
