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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use units::{Instant, Rate};

    use super::*;

    fn tree(text: &str) -> Tree {
        Tree::parse(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_trace_is_read_once_and_by_the_path_that_the_file_gives() {
        let asked = Cell::new(0);
        let text = |path: &str| {
            asked.set(asked.get() + 1);
            match path {
                "measured/drive.csv" => Ok(TraceText("0,1000000\n2.5,3000000\n".into())),
                other => Err(TraceMissing(format!("no file {other}"))),
            }
        };
        let tree = tree("[traces]\ndrive = \"measured/drive.csv\"");
        let source = Source::new(&tree, &text).unwrap();
        let steps = [(Instant(0), Rate(1_000_000)), (Instant(2_500_000_000), Rate(3_000_000))];
        for _ in 0..3 {
            let trace = source.read("drive").unwrap();
            assert_eq!(trace, Some(Trace::Rates(steps.to_vec().into())));
        }
        assert_eq!(asked.get(), 1);
        // A name that the file does not give is a path itself; a failure is no result to keep.
        for _ in 0..2 {
            let problem = source.read("other").unwrap_err();
            assert!(matches!(&problem, TraceProblem::Missing(_)), "{problem:?}");
            assert_eq!(problem.to_string(), "no file other");
        }
        assert_eq!(asked.get(), 3);
        assert_eq!(Source::blind(&tree).unwrap().read("drive").unwrap(), None);
    }

    #[test]
    fn whole_numbers_are_opportunities_and_all_else_is_rates() {
        let times = |text: &str| match trace(text).unwrap() {
            Trace::Opportunities(times) => times.to_vec(),
            Trace::Rates(_) => panic!("{text}"),
        };
        assert_eq!(times("0\n3\n3\n17\n"), [0, 3, 3, 17]);
        assert_eq!(times(" 5 \n"), [5]);
        let rates = |text: &str| match trace(text).unwrap() {
            Trace::Rates(steps) => steps.to_vec(),
            Trace::Opportunities(_) => panic!("{text}"),
        };
        // Seconds and Mbit/s.
        assert_eq!(
            rates("0 8\n0.5 0\n"),
            [(Instant(0), Rate(8_000_000)), (Instant(500_000_000), Rate(0))]
        );
    }

    #[test]
    fn a_trace_that_moves_nothing_or_is_none_is_named() {
        assert!(matches!(trace("0,0\n1,0\n"), Err(TraceProblem::AllZero)));
        let at = |text: &str| match trace(text) {
            Err(TraceProblem::Text(error)) => error.line,
            other => panic!("{other:?}"),
        };
        assert_eq!(at("1\n2\nthree\n"), 3);
        assert_eq!(at("5\n4\n"), 2, "time does not go back");
        assert_eq!(at("0\n0\n"), 2, "a period of zero");
        assert_eq!(at("0,1000\n1,-5\n"), 2);
        assert_eq!(at(""), 1);
    }

    #[test]
    fn every_trace_that_a_run_may_ask_for_is_named_once_in_order() {
        let tree = tree(
            "[traces]\nb = \"dir/b\"\nunused = \"dir/u\"\n\
             [link.up]\ntrace = \"a\"\n[link.down]\ntrace = \"b\"\n\
             [[change]]\nat = \"1 s\"\n\"link.up.trace\" = \"c\"\n\
             [sweep]\n\"link.up.trace\" = [\"a\", \"d\", \"dir/b\"]\n",
        );
        assert_eq!(named(&tree), ["a", "dir/b", "c", "d"]);
    }
}
