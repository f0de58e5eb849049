//! Traces: their text comes from outside, because nothing here opens a file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use algo::link::parse;
use settings::{Item, Problem, Tree, flatten};

use crate::types::Trace;

/// The text of a trace file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceText(pub Arc<str>);

/// A trace that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TraceMissing(pub String);

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceProblem {
    #[error("{0}")]
    Missing(#[from] TraceMissing),
    #[error("{0}")]
    Text(#[from] parse::TraceError),
    #[error("all rates are zero: nothing would ever move")]
    AllZero,
}

/// Where traces come from: the path that `[traces]` gives for a name, or the name itself, to its
/// text.
pub type Traces<'a> = dyn Fn(&str) -> Result<TraceText, TraceMissing> + 'a;

/// The traces of one run, each read once.
pub(crate) struct Source<'a> {
    paths: BTreeMap<String, String>,
    /// `None`: nothing is read, every trace is there.
    text: Option<&'a Traces<'a>>,
    read: RefCell<BTreeMap<String, Trace>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(tree: &Tree, text: &'a Traces<'a>) -> settings::Result<Source<'a>> {
        Ok(Source { paths: paths(tree)?, text: Some(text), read: RefCell::default() })
    }

    /// For checks before any trace has been read.
    pub(crate) fn blind(tree: &Tree) -> settings::Result<Source<'a>> {
        Ok(Source { paths: paths(tree)?, text: None, read: RefCell::default() })
    }

    /// The trace called `name`, or what is wrong with it; `None` where nothing is read.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Trace>, TraceProblem> {
        let Some(text) = self.text else { return Ok(None) };
        if let Some(trace) = self.read.borrow().get(name) {
            return Ok(Some(trace.clone()));
        }
        let path = self.paths.get(name).map_or(name, String::as_str);
        let text = text(path)?;
        let trace = trace(&text.0)?;
        self.read.borrow_mut().insert(name.to_owned(), trace.clone());
        Ok(Some(trace))
    }
}

/// mahimahi's format is one whole number a line; every other format gives rates.
fn trace(text: &str) -> Result<Trace, TraceProblem> {
    let first = text.lines().next().unwrap_or("").trim();
    if !first.is_empty() && first.bytes().all(|b| b.is_ascii_digit()) {
        let times = parse::opportunities_from_text(text)?;
        return Ok(Trace::Opportunities(Arc::from(times)));
    }
    let steps = parse::rates_from_text(text)?;
    if steps.iter().all(|(_, rate)| rate.0 == 0) {
        return Err(TraceProblem::AllZero);
    }
    Ok(Trace::Rates(Arc::from(steps)))
}

/// `[traces]` as a map.
fn paths(tree: &Tree) -> settings::Result<BTreeMap<String, String>> {
    let Some(traces) = tree.root("traces") else { return Ok(BTreeMap::new()) };
    let kind = |tree: &Tree, expected: &str| Problem::WrongKind {
        expected: expected.to_owned(),
        found: tree.shown(),
    };
    let Some(table) = traces.table() else {
        return settings::wrong(traces.place, "traces", kind(traces, "a table of names and paths"));
    };
    let mut given = Vec::new();
    flatten(table, "", &mut given);
    let pair = |(name, path): (String, Tree)| match path.text() {
        Some(text) => Ok((name, text.to_owned())),
        None => settings::wrong(
            path.place,
            format!("traces.{name}"),
            kind(&path, "the path of a trace file"),
        ),
    };
    given.into_iter().map(pair).collect()
}

/// Every trace that a file speaks of, links, changes and sweep alike, by its path; in order, each
/// once.
pub(crate) fn named(tree: &Tree) -> Vec<String> {
    fn texts(tree: &Tree, out: &mut Vec<String>) {
        match &tree.item {
            Item::Text(name) => out.push(name.clone()),
            Item::List(list) => list.iter().for_each(|t| texts(t, out)),
            _ => {}
        }
    }
    fn walk(tree: &Tree, out: &mut Vec<String>) {
        match &tree.item {
            Item::Table(table) => {
                for (key, below) in &table.entries {
                    if key == "trace" || key.ends_with(".trace") || key.starts_with("traces.") {
                        texts(below, out);
                    }
                    walk(below, out);
                }
            }
            Item::List(list) => list.iter().for_each(|t| walk(t, out)),
            _ => {}
        }
    }
    let mut names = Vec::new();
    for key in ["link", "change", "sweep"] {
        tree.root(key).into_iter().for_each(|t| walk(t, &mut names));
    }
    let paths = paths(tree).unwrap_or_default();
    let mut seen = std::collections::BTreeSet::new();
    names
        .into_iter()
        .map(|name| paths.get(&name).cloned().unwrap_or(name))
        .filter(|path| seen.insert(path.clone()))
        .collect()
}
