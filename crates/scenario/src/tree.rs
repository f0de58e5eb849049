//! The file as a tree that remembers where everything stood, and that keys can be set in.
//!
//! signal: TOML text, or `key = value` from outside · model: tables in the order of the file · action: a tree whose
//! every element knows its line, so that what is read from it later can be complained about in place.

use toml_edit::{Item as TomlItem, Table as TomlTable, Value as TomlValue};

use crate::error::{Place, Problem, Result, ScenarioError, unknown_name, wrong};

/// An element and where it stood.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) item: Item,
    pub(crate) place: Place,
}

/// What an element is.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Text(String),
    Whole(i64),
    Number(f64),
    Flag(bool),
    Date(String),
    List(Vec<Tree>),
    Table(Table),
}

/// Keys with their elements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<(String, Tree)>,
    /// Written as `{ … }`: a value, not a section.
    pub(crate) inline: bool,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<&Tree> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, tree)| tree)
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.entries.retain(|(k, _)| k != key);
    }

    /// The element at `key`, an empty table where there was none.
    fn entry(&mut self, key: &str, place: Place) -> &mut Tree {
        let i = self.entries.iter().position(|(k, _)| k == key).unwrap_or_else(|| {
            self.entries
                .push((key.to_owned(), Tree { item: Item::Table(Table::default()), place }));
            self.entries.len() - 1
        });
        &mut self.entries[i].1
    }
}

/// Root keys below which things are addressed by name or number, and what one of them is called.
pub(crate) const COLLECTIONS: &[(&str, &str)] = &[
    ("node", "node"),
    ("link", "link"),
    ("device", "device"),
    ("flow", "flow"),
    ("probe", "probe"),
    ("change", "change"),
];

/// Keys of which a bare name stands for a table with that `kind`.
const KINDED: &[&str] =
    &["congestion", "window", "queue", "qdisc", "gate", "medium", "model", "layers", "app"];

impl Tree {
    /// Reads a whole file.
    pub(crate) fn parse(text: &str) -> Result<Tree> {
        let lines = Lines::of(text);
        let document = toml_edit::Document::parse(text).map_err(|e| syntax(&e, Some(&lines)))?;
        Ok(Tree { item: Item::Table(table(document.as_table(), &lines)), place: Place::Nowhere })
    }

    /// Reads a value from outside: TOML, or plain text where that is no TOML.
    pub(crate) fn value(key: &str, text: &str) -> Result<Tree> {
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
        tree.moved_to(Place::Set);
        Ok(tree)
    }

    /// The element and all below it stand at `place`.
    pub(crate) fn moved_to(&mut self, place: Place) {
        self.place = place;
        match &mut self.item {
            Item::List(list) => list.iter_mut().for_each(|t| t.moved_to(place)),
            Item::Table(table) => table.entries.iter_mut().for_each(|(_, t)| t.moved_to(place)),
            _ => {}
        }
    }

    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.item {
            Item::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.item {
            Item::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Tree]> {
        match &self.item {
            Item::List(list) => Some(list),
            _ => None,
        }
    }

    /// The element at a root key.
    pub(crate) fn root(&self, key: &str) -> Option<&Tree> {
        self.table()?.get(key)
    }

    /// Sets a dotted key. What the first segments address has to exist; tables below it are made as needed, and the
    /// bare name of an algorithm becomes the `kind` of one.
    pub(crate) fn set(&mut self, key: &str, new: Tree) -> Result<()> {
        let place = new.place;
        let segments: Vec<&str> = key.split('.').collect();
        if segments.len() > 32 || segments.iter().any(|s| s.is_empty()) {
            let expected = "a dotted key such as link.up.rate".to_owned();
            return wrong(
                place,
                "",
                Problem::WrongKind { expected, found: shortened(&format!("\"{key}\"")) },
            );
        }
        if segments.len() > 1
            && let Some((name, _)) = COLLECTIONS.iter().find(|(name, _)| *name == segments[0])
            && self.root(name).is_none()
        {
            return wrong(place, key, Problem::Absent(section_name(name)));
        }
        let mut at = self;
        for (i, segment) in segments.iter().enumerate() {
            let above = segments[..i].iter().rev().find(|s| s.parse::<usize>().is_err());
            if let Item::Text(kind) = &at.item
                && above.is_some_and(|key| KINDED.contains(key))
            {
                let kind = Tree { item: Item::Text(kind.clone()), place: at.place };
                at.item =
                    Item::Table(Table { entries: vec![("kind".to_owned(), kind)], inline: true });
            }
            let found = at.shown();
            at = match &mut at.item {
                Item::Table(table) => {
                    // [link.up]: the name is a key, but no new link comes to be by a slip of the pen.
                    if i == 1 && segments[0] == "link" && table.get(segment).is_none() {
                        let known = table.entries.iter().map(|(k, _)| k.as_str());
                        return wrong(place, key, unknown_name("link", segment, known));
                    }
                    table.entry(segment, place)
                }
                Item::List(list) => {
                    let what = COLLECTIONS
                        .iter()
                        .find(|(c, _)| *c == segments[0])
                        .map_or("element", |c| c.1);
                    match find(list, segment) {
                        Some(n) => &mut list[n],
                        None => {
                            return wrong(
                                place,
                                key,
                                unknown_name(what, segment, names(list).iter().map(String::as_str)),
                            );
                        }
                    }
                }
                _ => {
                    let expected = format!("a table with the key {segment}");
                    return wrong(place, key, Problem::WrongKind { expected, found });
                }
            };
        }
        *at = new;
        Ok(())
    }

    /// The element as TOML.
    pub(crate) fn toml(&self) -> String {
        match &self.item {
            Item::Text(text) => quoted(text),
            Item::Whole(n) => n.to_string(),
            Item::Number(x) => number(*x),
            Item::Flag(b) => b.to_string(),
            Item::Date(d) => d.clone(),
            Item::List(list) => {
                format!("[{}]", list.iter().map(Tree::toml).collect::<Vec<_>>().join(", "))
            }
            Item::Table(table) => {
                let entry = |(k, t): &(String, Tree)| format!("{} = {}", quoted(k), t.toml());
                format!("{{ {} }}", table.entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The element as a person would name it in a table of runs.
    pub(crate) fn label(&self) -> String {
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

    /// The element in an error message.
    pub(crate) fn shown(&self) -> String {
        match &self.item {
            Item::Table(_) => "a table".to_owned(),
            Item::List(list) => format!("a list of {}", list.len()),
            _ => shortened(&self.toml()),
        }
    }
}

/// The place of `segment` in a list: its number, or the name of one of its tables.
pub(crate) fn find(list: &[Tree], segment: &str) -> Option<usize> {
    let by_name = list.iter().position(|t| name_of(t) == Some(segment));
    by_name.or_else(|| segment.parse().ok().filter(|n| *n < list.len()))
}

/// How the elements of a list can be addressed.
fn names(list: &[Tree]) -> Vec<String> {
    let name = |(i, t): (usize, &Tree)| name_of(t).map_or_else(|| i.to_string(), str::to_owned);
    list.iter().take(100).enumerate().map(name).collect()
}

fn name_of(tree: &Tree) -> Option<&str> {
    let table = tree.table()?;
    table.get("name").or_else(|| table.get("node")).and_then(Tree::text)
}

/// A section as it is written in the file.
pub(crate) fn section_name(name: &str) -> &'static str {
    match name {
        "node" => "[[node]]",
        "link" => "[link.…] and no [[link]]",
        "device" => "[device]",
        "flow" => "[[flow]]",
        "probe" => "[[probe]]",
        "router" => "[router]",
        _ => "[[change]]",
    }
}

/// The first 60 letters.
pub(crate) fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 {
        text.to_owned()
    } else {
        text.chars().take(59).chain(['…']).collect()
    }
}

/// A number that TOML reads back as one.
pub(crate) fn number(x: f64) -> String {
    let text = format!("{x:?}");
    if x.is_finite() { text } else { text.to_lowercase() }
}

/// A text that TOML reads back as itself.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Where the lines of a text begin.
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

fn syntax(error: &toml_edit::TomlError, lines: Option<&Lines>) -> ScenarioError {
    let place = lines.map_or(Place::Set, |l| l.place(error.span()));
    let problem = Problem::Syntax(error.message().trim().replace('\n', ", "));
    ScenarioError { place, key: String::new(), problem: Box::new(problem) }
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
