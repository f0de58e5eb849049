//! A TOML file as a tree whose every element knows its line.
//!
//! `toml_edit` loses the lines once a document is changed. Here an element keeps its [`Place`]
//! through copies and changes, so that a later check can name the line. Tables keep the order of
//! the file.

use toml_edit::{Item as TomlItem, Table as TomlTable, Value as TomlValue};

use crate::error::{Error, Place, Problem, Result};

/// An element of a file and where it stood.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The value, list or table.
    pub item: Item,
    /// The line of its key, or of its section's heading.
    pub place: Place,
}

/// The kinds of TOML values.
#[derive(Clone, Debug)]
pub enum Item {
    /// A TOML string.
    Text(String),
    /// A TOML integer.
    Whole(i64),
    /// A TOML float.
    Number(f64),
    /// A TOML boolean.
    Flag(bool),
    /// A date or time, as it was written.
    Date(String),
    /// An array, or an array of tables.
    List(Vec<Tree>),
    /// A table: a section, dotted keys, or in braces.
    Table(Table),
}

/// Keys with their elements, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Keys and elements; each key occurs once.
    pub entries: Vec<(String, Tree)>,
    /// Written as `{ … }`: a value, not a section.
    pub inline: bool,
}

impl Table {
    /// The element at `key`.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, tree)| tree)
    }

    /// Removes `key` with its element.
    pub fn remove(&mut self, key: &str) {
        self.entries.retain(|(k, _)| k != key);
    }

    /// The element at `key`, an empty table where there was none.
    pub fn entry(&mut self, key: &str, place: Place) -> &mut Tree {
        let i = self.entries.iter().position(|(k, _)| k == key).unwrap_or_else(|| {
            self.entries
                .push((key.to_owned(), Tree { item: Item::Table(Table::default()), place }));
            self.entries.len() - 1
        });
        &mut self.entries[i].1
    }
}

impl Tree {
    /// Reads a whole file.
    pub fn parse(text: &str) -> Result<Tree> {
        let lines = Lines::of(text);
        let document = toml_edit::Document::parse(text).map_err(|e| syntax(&e, Some(&lines)))?;
        Ok(Tree { item: Item::Table(table(document.as_table(), &lines)), place: Place::Nowhere })
    }

    /// Reads a value given outside the file: TOML, or plain text where it does not parse as TOML.
    pub fn from_outside(key: &str, text: &str) -> Result<Tree> {
        let text = text.trim();
        let mut tree = match text.parse::<TomlValue>() {
            Ok(parsed) => value(&parsed, &Lines::default()),
            Err(e) if text.starts_with(['[', '{', '"', '\'']) => {
                let mut error = syntax(&e, None);
                key.clone_into(&mut error.key);
                return Err(error);
            }
            Err(_) => Tree { item: Item::Text(text.to_owned()), place: Place::Set },
        };
        tree.set_place(Place::Set);
        Ok(tree)
    }

    /// Gives the element and all below it another place.
    pub fn set_place(&mut self, place: Place) {
        self.place = place;
        match &mut self.item {
            Item::List(list) => list.iter_mut().for_each(|t| t.set_place(place)),
            Item::Table(table) => table.entries.iter_mut().for_each(|(_, t)| t.set_place(place)),
            _ => {}
        }
    }

    /// The table, if it is one.
    pub fn table(&self) -> Option<&Table> {
        match &self.item {
            Item::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.item {
            Item::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements of a list, if it is one.
    pub fn list(&self) -> Option<&[Tree]> {
        match &self.item {
            Item::List(list) => Some(list),
            _ => None,
        }
    }

    /// The element at a root key.
    pub fn root(&self, key: &str) -> Option<&Tree> {
        self.table()?.get(key)
    }

    /// The element as TOML.
    pub fn toml(&self) -> String {
        self.toml_value().to_string()
    }

    fn toml_value(&self) -> TomlValue {
        match &self.item {
            Item::Text(text) => text.as_str().into(),
            Item::Whole(n) => (*n).into(),
            Item::Number(x) => (*x).into(),
            Item::Flag(b) => (*b).into(),
            // It was read from TOML, so that it parses; else it is written as text.
            Item::Date(date) => date.parse().unwrap_or_else(|_| date.as_str().into()),
            Item::List(list) => list.iter().map(Tree::toml_value).collect(),
            Item::Table(table) => {
                table.entries.iter().map(|(k, t)| (k.as_str(), t.toml_value())).collect()
            }
        }
    }

    /// A short name of the value, for labels of runs.
    pub fn label(&self) -> String {
        match &self.item {
            Item::Text(text) => text.clone(),
            Item::List(list) => list.iter().map(Tree::label).collect::<Vec<_>>().join(" "),
            Item::Table(table) => {
                let kind = table.get("kind").map(Tree::label);
                let rest = table.entries.iter().filter(|(k, _)| k != "kind");
                let words = rest.map(|(k, t)| format!("{k}={}", t.label()));
                kind.into_iter().chain(words).collect::<Vec<_>>().join(" ")
            }
            _ => self.toml(),
        }
    }

    /// The element as an error message shows it.
    pub fn shown(&self) -> String {
        match &self.item {
            Item::Table(_) => "a table".to_owned(),
            Item::List(list) => format!("a list of {}", list.len()),
            _ => shortened(&self.toml()),
        }
    }
}

/// The index of the element that a segment of a dotted key addresses: by the name of a table, or by
/// number.
pub fn index_of(list: &[Tree], segment: &str) -> Option<usize> {
    let by_name = list.iter().position(|t| name_of(t) == Some(segment));
    by_name.or_else(|| segment.parse().ok().filter(|n| *n < list.len()))
}

/// How the elements of a list can be addressed: at most the first hundred.
pub fn addresses(list: &[Tree]) -> Vec<String> {
    let name = |(i, t): (usize, &Tree)| name_of(t).map_or_else(|| i.to_string(), str::to_owned);
    list.iter().take(100).enumerate().map(name).collect()
}

fn name_of(tree: &Tree) -> Option<&str> {
    let table = tree.table()?;
    table.get("name").or_else(|| table.get("node")).and_then(Tree::text)
}

/// The first 60 letters of a text, for messages.
pub fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 {
        text.to_owned()
    } else {
        text.chars().take(59).chain(['…']).collect()
    }
}

/// Keys in sections and dotted keys as one dotted key each; tables in braces are values.
pub fn flatten(table: &Table, above: &str, out: &mut Vec<(String, Tree)>) {
    for (key, tree) in &table.entries {
        let full = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        match &tree.item {
            Item::Table(below) if !below.inline => flatten(below, &full, out),
            _ => out.push((full, tree.clone())),
        }
    }
}

/// Positions of the newlines of a text, from which line numbers are found.
#[derive(Default)]
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        Lines(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i).collect())
    }

    fn place(&self, span: Option<std::ops::Range<usize>>) -> Place {
        span.map_or(Place::Nowhere, |s| {
            Place::Line(self.0.partition_point(|newline| *newline < s.start) + 1)
        })
    }
}

fn syntax(error: &toml_edit::TomlError, lines: Option<&Lines>) -> Error {
    let place = lines.map_or(Place::Set, |l| l.place(error.span()));
    let problem = Problem::Syntax(error.message().trim().replace('\n', ", "));
    Error { place, key: String::new(), problem: Box::new(problem) }
}

fn table(from: &TomlTable, lines: &Lines) -> Table {
    let entry = |(key, item): (&str, &TomlItem)| {
        let key_place = lines.place(from.key(key).and_then(toml_edit::Key::span));
        let mut tree = match item {
            TomlItem::Value(v) => value(v, lines),
            TomlItem::Table(t) => {
                Tree { item: Item::Table(table(t, lines)), place: lines.place(t.span()) }
            }
            TomlItem::ArrayOfTables(list) => {
                let one = |t: &TomlTable| Tree {
                    item: Item::Table(table(t, lines)),
                    place: lines.place(t.span()),
                };
                Tree { item: Item::List(list.iter().map(one).collect()), place: key_place }
            }
            TomlItem::None => return None,
        };
        let section = matches!(item, TomlItem::Table(t) if !t.is_dotted());
        if key_place != Place::Nowhere && !section || tree.place == Place::Nowhere {
            tree.place = key_place;
        }
        Some((key.to_owned(), tree))
    };
    Table { entries: from.iter().filter_map(entry).collect(), inline: false }
}

fn value(from: &TomlValue, lines: &Lines) -> Tree {
    let item = match from {
        TomlValue::String(s) => Item::Text(s.value().clone()),
        TomlValue::Integer(n) => Item::Whole(*n.value()),
        TomlValue::Float(x) => Item::Number(*x.value()),
        TomlValue::Boolean(b) => Item::Flag(*b.value()),
        TomlValue::Datetime(d) => Item::Date(d.value().to_string()),
        TomlValue::Array(list) => Item::List(list.iter().map(|v| value(v, lines)).collect()),
        TomlValue::InlineTable(t) => {
            let entry = |(key, v): (&str, &TomlValue)| {
                let mut tree = value(v, lines);
                let place = lines.place(t.key(key).and_then(toml_edit::Key::span));
                if place != Place::Nowhere {
                    tree.place = place;
                }
                (key.to_owned(), tree)
            };
            Item::Table(Table { entries: t.iter().map(entry).collect(), inline: !t.is_dotted() })
        }
    };
    Tree { item, place: lines.place(from.span()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_knows_its_line_and_is_written_as_it_was_read() {
        let text = "a = 1\n[[flow]]\nname = \"x\"\nlimits = [1, 2.5]\n[flow.app]\nkind = \"a \\\"b\\\" c\"\n";
        let tree = Tree::parse(text).expect("TOML");
        let flow = &tree.root("flow").and_then(Tree::list).expect("a list")[0];
        let get = |key: &str| flow.table().and_then(|t| t.get(key)).expect("there");
        assert_eq!((get("name").place, get("limits").place), (Place::Line(3), Place::Line(4)));
        assert_eq!(get("app").place, Place::Line(5));
        assert_eq!(get("limits").toml(), "[1, 2.5]");
        let again = Tree::from_outside("app", &get("app").toml()).expect("its own TOML");
        assert_eq!(again.label(), get("app").label());
        assert_eq!(again.place, Place::Set);
    }

    #[test]
    fn keys_are_flattened_but_tables_in_braces_are_values() {
        let tree = Tree::parse("a.b = 1\nc = { d = 2 }\n[e.f]\ng = 3").expect("TOML");
        let mut keys = Vec::new();
        flatten(tree.table().expect("a table"), "", &mut keys);
        let keys: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a.b", "c", "e.f.g"]);
    }

    #[test]
    fn text_from_outside_need_not_be_toml_unless_it_looks_like_it() {
        let item = |text| Tree::from_outside("key", text).map(|t| t.item);
        assert!(matches!(item("12 Mbit/s"), Ok(Item::Text(t)) if t == "12 Mbit/s"));
        assert!(matches!(item(" 3 "), Ok(Item::Whole(3))));
        let error = item("[1, 2").expect_err("a list without end").to_string();
        assert!(error.starts_with("set: key: "), "{error}");
    }
}
