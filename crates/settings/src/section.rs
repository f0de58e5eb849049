//! A section of a file, read by its table of keys.
//!
//! Opening a section refuses every key that the table does not list. Reading a key checks kind and
//! range, and gives the table's default where the file has none.

use std::fmt::Display;
use std::str::FromStr;

use algo::{Unit, Value};
use units::{Bytes, Duration, Rate};

use crate::error::{Place, Problem, Result, unknown_key, unknown_name, wrong};
use crate::quantity;
use crate::tree::{Item, Table, Tree};

/// How the value of a key is written.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A plain value with its unit; with a range, both ends inclusive and written as in a file.
    Plain(Unit, Option<(&'static str, &'static str)>),
    /// Text without further rules.
    Text,
    /// A name that can stand in a dotted key.
    Name,
    /// Anything else, which the caller reads itself: what to write, for the documentation.
    Other(&'static str),
}

/// One key of a section.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name in the file.
    pub name: &'static str,
    /// How its value is written.
    pub form: Form,
    /// The default as it would be written, without quotes; empty where there is none, in brackets
    /// where it is described.
    pub default: &'static str,
    /// Its meaning, for the documentation.
    pub about: &'static str,
}

/// A table of the file, checked for unknown keys.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    table: Option<&'a Table>,
    /// Where the section begins.
    pub place: Place,
    /// The dotted key of the section; empty for the root.
    pub path: String,
    keys: &'static [&'static [Key]],
}

impl<'a> Section<'a> {
    /// Refuses an element that is not a table, and keys that are neither in `keys` nor in `more`.
    pub fn open(
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

    /// A section that is not in the file: every key has its default.
    pub fn absent(path: String, place: Place, keys: &'static [&'static [Key]]) -> Section<'a> {
        Section { table: None, place, path, keys }
    }

    /// The section below `key`; where it is not in the file, every key has its default.
    pub fn below(&self, key: &str, keys: &'static [&'static [Key]]) -> Result<Section<'a>> {
        match self.get(key) {
            Some(tree) => Section::open(tree, self.full(key), keys, &[]),
            None => Ok(Section::absent(self.full(key), self.place, keys)),
        }
    }

    /// The full dotted key of `key` in this section.
    pub fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The element at `key`, unchecked.
    pub fn get(&self, key: &str) -> Option<&'a Tree> {
        self.table?.get(key)
    }

    /// Whether the file gives `key`.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The default of a key as its table writes it; empty where there is none.
    pub fn default_of(&self, name: &str) -> &'static str {
        self.key(name).map_or("", |k| k.default)
    }

    fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().flat_map(|k| k.iter()).find(|k| k.name == name)
    }

    /// A problem at `key`, or at the section where the key is missing.
    pub fn wrong<T>(&self, key: &str, problem: Problem) -> Result<T> {
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

    /// A duration; 0 where there is neither value nor default.
    pub fn duration(&self, name: &str) -> Result<Duration> {
        Ok(self.duration_if_given(name)?.unwrap_or_default())
    }

    /// A duration; `None` where there is neither value nor default.
    pub fn duration_if_given(&self, name: &str) -> Result<Option<Duration>> {
        self.plain(name).map(|v| v.and_then(|v| algo::Setting::from_value(&v)))
    }

    /// An amount of data; 0 where there is neither value nor default.
    pub fn bytes(&self, name: &str) -> Result<Bytes> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    /// A rate; 0 where there is neither value nor default.
    pub fn rate(&self, name: &str) -> Result<Rate> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    /// A whole number; 0 where there is neither value nor default.
    pub fn count(&self, name: &str) -> Result<u64> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    /// A priority band, 0 the most urgent.
    pub fn class(&self, name: &str) -> Result<u8> {
        self.count(name).map(|n| u8::try_from(n).unwrap_or(u8::MAX))
    }

    /// A number; 0 where there is neither value nor default.
    pub fn number(&self, name: &str) -> Result<f64> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    /// A flag; false where there is neither value nor default.
    pub fn flag(&self, name: &str) -> Result<bool> {
        Ok(self.plain(name)?.and_then(|v| algo::Setting::from_value(&v)).unwrap_or_default())
    }

    /// The index of a word in the list of the key's form; 0 where there is neither value nor
    /// default.
    pub fn choice(&self, name: &str) -> Result<usize> {
        match self.plain(name)? {
            Some(Value::Choice(i)) => Ok(i),
            _ => Ok(0),
        }
    }

    /// A text, or a name where the key's form says so; `None` where the file does not give it.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>> {
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

    /// A text that is not empty.
    pub fn filled(&self, name: &str) -> Result<Option<&'a str>> {
        Ok(self.text(name)?.filter(|text| !text.is_empty()))
    }

    /// What `text`, a part of the value at `name`, means.
    pub fn parsed<T: FromStr<Err: Display>>(&self, name: &str, text: &str) -> Result<T> {
        text.parse().or_else(|e: T::Err| self.refuse(name, e))
    }

    /// A problem at `name`, in words.
    pub fn refuse<T>(&self, name: &str, why: impl Display) -> Result<T> {
        self.wrong(name, Problem::Contradiction(why.to_string()))
    }

    /// The elements of a list, or the one value that stands in its place.
    pub fn one_or_many(&self, name: &str) -> &'a [Tree] {
        match self.get(name) {
            Some(Tree { item: Item::List(list), .. }) => list,
            Some(tree) => std::slice::from_ref(tree),
            None => &[],
        }
    }

    /// The plain values that the table gives as default of `name`, separated by commas.
    pub fn defaults<T: algo::Setting>(&self, name: &str) -> Vec<T> {
        let texts = self.default_of(name).split(", ");
        texts.filter_map(|text| T::from_value(&quantity::constant(T::UNIT, text)?)).collect()
    }

    /// A list of plain values: each checked, not empty, at most `max`.
    pub fn list<T: algo::Setting>(
        &self,
        name: &str,
        range: (&'static str, &'static str),
        max: u64,
    ) -> Result<Vec<T>> {
        let list = self.one_or_many(name);
        if list.is_empty() {
            return self.wrong(name, Problem::Empty);
        }
        if list.len() as u64 > max {
            return self
                .wrong(name, Problem::TooMany { what: "elements", found: list.len() as u64, max });
        }
        let one = |tree: &Tree| {
            let value = plain(T::UNIT, Some(range), tree, &self.full(name))?;
            Ok(T::from_value(&value))
        };
        list.iter().filter_map(|tree| one(tree).transpose()).collect()
    }
}

/// A plain value, checked against its range.
pub fn plain(
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

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[Key] = &[
        Key {
            name: "delay",
            form: Form::Plain(Unit::Duration, Some(("1 ms", "2 s"))),
            default: "20 ms",
            about: "",
        },
        Key { name: "label", form: Form::Name, default: "", about: "" },
        Key {
            name: "mode",
            form: Form::Plain(Unit::Choice(&["on", "off"]), None),
            default: "off",
            about: "",
        },
        Key {
            name: "rates",
            form: Form::Other("list of rates"),
            default: "1 kbit/s, 2 kbit/s",
            about: "",
        },
    ];

    fn message<T>(text: &str, read: impl Fn(&Section<'_>) -> Result<T>) -> String {
        let tree = Tree::parse(text).expect("TOML");
        let section = Section::open(&tree, "link.up".to_owned(), &[KEYS], &[]);
        section.and_then(|s| read(&s)).err().map_or_else(String::new, |e| e.to_string())
    }

    #[test]
    fn defaults_come_from_the_table_and_values_from_the_file() {
        let tree = Tree::parse("delay = \"1500 ms\"\nmode = \"on\"").expect("TOML");
        let section = Section::open(&tree, String::new(), &[KEYS], &[]).expect("known keys");
        assert_eq!(section.duration("delay"), Ok(Duration::from_millis(1_500)));
        assert_eq!(section.choice("mode"), Ok(0));
        let absent = Section::absent(String::new(), Place::Nowhere, &[KEYS]);
        assert_eq!(absent.duration("delay"), Ok(Duration::from_millis(20)));
        assert_eq!(absent.choice("mode"), Ok(1));
        assert_eq!(absent.text("label"), Ok(None));
        assert_eq!(absent.defaults::<Rate>("rates"), [Rate(1_000), Rate(2_000)]);
    }

    #[test]
    fn a_mistake_is_named_with_line_key_and_what_fits() {
        let delay = |s: &Section<'_>| s.duration("delay");
        assert_eq!(
            message("\ndealy = \"1 ms\"", delay),
            "line 2: link.up.dealy: unknown key; did you mean \"delay\"? known: delay, label, mode, rates"
        );
        assert_eq!(
            message("delay = \"3 s\"", delay),
            "line 1: link.up.delay: 3 s is out of range: 1 ms to 2 s"
        );
        assert!(message("delay = 3", delay).ends_with("not negative, 1 ms to 2 s, found 3"));
        assert!(message("mode = \"offf\"", |s| s.choice("mode")).contains("did you mean \"off\"?"));
        assert!(message("label = \"7\"", |s| s.text("label").map(drop)).contains("not a number"));
        let list = |s: &Section<'_>| s.list::<Rate>("rates", ("1 bit/s", "1 Gbit/s"), 2);
        assert_eq!(message("rates = []", list), "line 1: link.up.rates: an empty list");
        let three = "rates = [\"1 bit/s\", \"2 bit/s\", \"3 bit/s\"]";
        assert!(message(three, list).ends_with("3 elements; 2 at most"));
    }
}
