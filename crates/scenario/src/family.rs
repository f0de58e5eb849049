//! The algorithm families, seen alike: a name or a table with `kind` becomes an entry of a table
//! and its settings.

use algo::{Capacity, Entry, Param, Settings, Value, aqm, cc, gate, link, rwnd};
use settings::{Item, Problem, Result, Section, Tree, quantity, unknown_key, unknown_name, wrong};

use crate::types::Algorithm;

/// Largest queue in bytes, and in packets: more than the memory of the machine that runs it.
const MAX_QUEUE_BYTES: u64 = 64_000_000_000;
const MAX_QUEUE_PACKETS: u64 = 100_000_000;

/// One of the families.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Congestion control (`algo::cc`).
    Congestion,
    /// Laws of the receive window (`algo::rwnd`).
    Window,
    /// Queue disciplines (`algo::aqm`).
    Queue,
    /// Gates above a modem (`algo::gate`).
    Gate,
    /// Media of links (`algo::link`).
    Medium,
    /// Layers of links (`algo::link::layer`).
    Layer,
}

/// An entry of a family's table without its types.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The name in scenario files.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    /// RFC, paper section, kernel file.
    pub source: &'static str,
    /// Whether an outside implementation was a judge of it.
    pub judged: bool,
    /// Its parameters in order.
    pub params: &'static [Param],
}

impl Named {
    /// The description, with what its results lack.
    pub fn about_text(&self) -> String {
        let unjudged = "; unjudged: no outside implementation was a judge of it";
        format!("{}{}", self.about, if self.judged { "" } else { unjudged })
    }
}

impl Family {
    /// All families in the order of the documentation.
    pub const ALL: [Family; 6] = [
        Family::Congestion,
        Family::Window,
        Family::Queue,
        Family::Gate,
        Family::Medium,
        Family::Layer,
    ];

    /// What one of its algorithms is called.
    pub const fn noun(self) -> &'static str {
        match self {
            Family::Congestion => "congestion control",
            Family::Window => "window law",
            Family::Queue => "queue discipline",
            Family::Gate => "gate",
            Family::Medium => "medium",
            Family::Layer => "layer",
        }
    }

    /// The entries of the family's table.
    pub fn entries(self) -> Vec<Named> {
        fn named<T, S>(table: &'static [Entry<T, S>]) -> Vec<Named> {
            let one = |e: &'static Entry<T, S>| Named {
                name: e.name,
                about: e.about,
                source: e.source,
                judged: e.judged,
                params: e.params,
            };
            table.iter().map(one).collect()
        }
        match self {
            Family::Congestion => named(cc::TABLE),
            Family::Window => named(rwnd::TABLE),
            Family::Queue => named(aqm::TABLE),
            Family::Gate => named(gate::TABLE),
            Family::Medium => named(link::TABLE),
            Family::Layer => named(link::layer::TABLE),
        }
    }

    /// The entry called `name`, with its published values.
    pub(crate) fn named(self, name: &str) -> Option<Algorithm> {
        let entries = self.entries();
        let index = entries.iter().position(|e| e.name == name)?;
        Some(Algorithm { index, settings: Settings::defaults(entries[index].params) })
    }

    fn find(self, tree: &Tree, path: &str, name: &str) -> Result<Algorithm> {
        let known = || self.entries().iter().map(|e| e.name).collect::<Vec<_>>();
        match self.named(name) {
            Some(algorithm) => Ok(algorithm),
            None => wrong(tree.place, path, unknown_name(self.noun(), name, known())),
        }
    }

    /// The algorithm at a key of a section, or the key's default.
    pub(crate) fn of(self, section: &Section<'_>, key: &str) -> Result<Algorithm> {
        let default = Some(section.default_of(key)).filter(|name| !name.is_empty());
        match (section.get(key), default) {
            (Some(tree), _) => self.read(tree, &section.full(key), default),
            (None, Some(name)) => match self.named(name) {
                Some(algorithm) => Ok(algorithm),
                None => {
                    let entries = self.entries();
                    let known = entries.iter().map(|e| e.name);
                    section.wrong(key, unknown_name(self.noun(), name, known))
                }
            },
            (None, None) => section.wrong(key, Problem::Missing(self.noun())),
        }
    }

    /// `"name"`, or a table with `kind` and parameters; `kind` may be missing where there is a
    /// default.
    pub(crate) fn read(self, tree: &Tree, path: &str, default: Option<&str>) -> Result<Algorithm> {
        match &tree.item {
            Item::Text(name) => self.find(tree, path, name),
            Item::Table(table) => {
                let key = format!("{path}.kind");
                let algorithm = match (table.get("kind"), default) {
                    (Some(kind), _) => match kind.text() {
                        Some(name) => self.find(kind, &key, name)?,
                        None => return self.not_a_name(kind, &key),
                    },
                    (None, Some(name)) => self.find(tree, path, name)?,
                    (None, None) => {
                        return wrong(
                            tree.place,
                            path,
                            Problem::Missing("kind, the name of an algorithm"),
                        );
                    }
                };
                let params = table.entries.iter().filter(|(k, _)| k != "kind");
                self.set_all(algorithm, params, path)
            }
            _ => self.not_a_name(tree, path),
        }
    }

    /// A layer under its own name: a table of parameters, the value of the first one, or `true`.
    pub(crate) fn read_under_own_name(
        self,
        name: &str,
        tree: &Tree,
        path: &str,
    ) -> Result<Algorithm> {
        let algorithm = self.find(tree, path, name)?;
        match &tree.item {
            Item::Table(table) => self.set_all(algorithm, table.entries.iter(), path),
            Item::Flag(true) => Ok(algorithm),
            _ => {
                let mut algorithm = algorithm;
                let entries = self.entries();
                let Some(first) = entries[algorithm.index].params.first() else {
                    let expected = "true: it has no parameters".to_owned();
                    return wrong(
                        tree.place,
                        path,
                        Problem::WrongKind { expected, found: tree.shown() },
                    );
                };
                algorithm.settings.0[0] = param(first, tree, path)?;
                Ok(algorithm)
            }
        }
    }

    fn set_all<'a>(
        self,
        mut algorithm: Algorithm,
        given: impl Iterator<Item = &'a (String, Tree)>,
        path: &str,
    ) -> Result<Algorithm> {
        let params = self.entries()[algorithm.index].params;
        for (key, tree) in given {
            let full = format!("{path}.{key}");
            let Some(i) = params.iter().position(|p| p.name == key) else {
                let known = ["kind"].into_iter().chain(params.iter().map(|p| p.name));
                return wrong(tree.place, full, unknown_key(key, known));
            };
            algorithm.settings.0[i] = param(&params[i], tree, &full)?;
        }
        Ok(algorithm)
    }

    fn not_a_name<T>(self, tree: &Tree, path: &str) -> Result<T> {
        let expected = format!("the name of a {}, or a table with its kind", self.noun());
        wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() })
    }
}

/// The value of one parameter, checked against its range.
fn param(param: &Param, tree: &Tree, path: &str) -> Result<Value> {
    let show = |v: &Value| quantity::shown(param.unit, v);
    let range = param.range.map(|range| range()).map(|(min, max)| (show(&min), show(&max)));
    let Some(value) = quantity::read(param.unit, tree) else {
        if let (algo::Unit::Choice(words), Item::Text(found)) = (param.unit, &tree.item) {
            return wrong(tree.place, path, unknown_name("choice", found, words.iter().copied()));
        }
        let mut expected = quantity::expected(param.unit);
        if let Some((min, max)) = range {
            expected += &format!(", {min} to {max}");
        }
        return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
    };
    if let Some((min, max)) = range
        && !param.allows(&value)
    {
        let found = show(&value);
        return wrong(tree.place, path, Problem::OutOfRange { found, min, max });
    }
    let too_many = match &value {
        Value::Capacity(Capacity::Bytes(b)) if b.0 > MAX_QUEUE_BYTES => {
            Some(("bytes", b.0, MAX_QUEUE_BYTES))
        }
        Value::Capacity(Capacity::Packets(n)) if *n > MAX_QUEUE_PACKETS => {
            Some(("packets", *n, MAX_QUEUE_PACKETS))
        }
        _ => None,
    };
    match too_many {
        Some((what, found, max)) => wrong(tree.place, path, Problem::TooMany { what, found, max }),
        None => Ok(value),
    }
}
