//! From the tree of a file to the types of a run: one file per part, all through the tables of
//! `keys`.

mod app;
mod change;
mod flow;
mod lab;
mod link;
mod names;
mod node;
mod probe;
mod profile;
mod size;

pub(crate) use change::set_all;

use settings::{Place, Problem, Result, Section, Tree, index_of, wrong};
use units::{Duration, Instant};

use crate::keys;
use crate::traces::Source;
use crate::types::{Link, Node, Scenario};

/// Bounds of a run: it fits into memory, and a mistake in a unit shows.
const MAX_FLOWS: u64 = 10_000;
const MAX_BINS: u64 = 10_000_000;
const MAX_NODES: u64 = 1_000;
const MAX_CHANGES: u64 = 10_000;
const MAX_EXPECTATIONS: u64 = 10_000;

/// The root section of a file, its keys checked.
pub(crate) fn root(tree: &Tree) -> Result<Section<'_>> {
    Section::open(tree, String::new(), &[keys::ROOT], &[])
}

/// The whole of it.
pub(crate) fn scenario(
    tree: &Tree,
    seed: u64,
    source: &Source<'_>,
) -> Result<(Scenario, Vec<String>)> {
    let root = root(tree)?;
    let duration = root.duration("duration")?;
    let warmup = root.duration("warmup")?;
    if warmup >= duration {
        let text = "as long as the run: nothing is left to measure".to_owned();
        return root.wrong("warmup", Problem::Contradiction(text));
    }
    let bin = root.duration("bin")?;
    let bins = duration.0 / bin.0.max(1);
    if bins > MAX_BINS {
        return root.wrong("bin", Problem::TooMany { what: "bins", found: bins, max: MAX_BINS });
    }
    let mut warnings = Vec::new();
    let router = node::router(&root)?;
    let mut nodes = node::nodes(&root, router.is_some())?;
    let mut links = link::links(&root, &nodes, source)?;
    if let Some(router) = &router {
        links.extend(router.clone());
    }
    link::distinct(&root, &links, &nodes)?;
    node::devices(&root, &mut nodes, &links, &mut warnings)?;
    let ways = Ways::new(&nodes, &links);
    let run = Run { duration, nodes: &nodes, ways: &ways };
    let (flows, copies) = flow::flows(&root, &run, &mut warnings)?;
    let probes = probe::probes(&root, &run)?;
    if flows.is_empty() && probes.is_empty() {
        warnings.push("no flow and no probe: nothing is sent".to_owned());
    }
    let changes = change::changes(tree, &root, &run, &links, &copies, source)?;
    let name = root.text("name")?.unwrap_or("scenario").to_owned();
    let about = root.text("about")?.unwrap_or_default().to_owned();
    let lab = lab::lab(&root)?;
    let scenario = Scenario {
        name,
        about,
        duration,
        warmup,
        seed,
        bin,
        nodes,
        links,
        flows,
        probes,
        changes,
        lab,
    };
    Ok((scenario, warnings))
}

/// What flows, probes and changes need to know of the rest.
struct Run<'a> {
    duration: Duration,
    nodes: &'a [Node],
    ways: &'a Ways,
}

impl Run<'_> {
    /// The node that `key` names, or `default`.
    fn node(&self, section: &Section<'_>, key: &str, default: Option<&str>) -> Result<usize> {
        names::node(section, key, default, self.nodes)
    }

    /// A time that lies in the run.
    fn within(&self, section: &Section<'_>, key: &str, at: Duration) -> Result<()> {
        if at < self.duration {
            return Ok(());
        }
        let text = format!("{at} is not before the end of the run, {}", self.duration);
        section.wrong(key, Problem::Contradiction(text))
    }

    /// Refuses a pair of nodes between which nothing can go.
    fn connected(&self, section: &Section<'_>, from: usize, to: usize) -> Result<()> {
        if self.ways.leads(from, to) {
            return Ok(());
        }
        let name = |i: usize| self.nodes[i].name.clone();
        wrong(
            section.place,
            section.path.clone(),
            Problem::Contradiction(format!(
                "no path of links leads from \"{}\" to \"{}\"",
                name(from),
                name(to)
            )),
        )
    }
}

/// Which node can be reached from which.
struct Ways {
    /// By node of departure, then of arrival.
    reach: Vec<Vec<bool>>,
}

impl Ways {
    fn new(nodes: &[Node], links: &[Link]) -> Ways {
        let mut next = vec![Vec::new(); nodes.len()];
        for link in links {
            next[link.from].push(link.to);
        }
        let from = |start: usize| {
            let mut seen = vec![false; nodes.len()];
            let mut open = vec![start];
            while let Some(node) = open.pop() {
                for &to in &next[node] {
                    if !std::mem::replace(&mut seen[to], true) {
                        open.push(to);
                    }
                }
            }
            seen
        };
        Ways { reach: (0..nodes.len()).map(from).collect() }
    }

    fn leads(&self, from: usize, to: usize) -> bool {
        self.reach[from][to]
    }
}

/// Every `[[expect]]` with its path.
pub(crate) fn expectations(tree: &Tree) -> Result<Vec<(&Tree, String)>> {
    each(&root(tree)?, "expect", MAX_EXPECTATIONS)
}

/// What each `[[flow]]` is called, however many copies it has.
pub(crate) fn flow_names(tree: &Tree) -> Vec<String> {
    let list = tree.root("flow").and_then(Tree::list).unwrap_or_default();
    let name = |(i, t): (usize, &Tree)| {
        let given = t.table().and_then(|t| t.get("name")).and_then(Tree::text);
        given.map_or_else(|| flow::default_name(i), str::to_owned)
    };
    list.iter().enumerate().map(name).collect()
}

/// The elements of a section that may be given several times, each with its path; a single table
/// counts as one.
fn each<'a>(root: &Section<'a>, key: &str, max: u64) -> Result<Vec<(&'a Tree, String)>> {
    let list = root.one_or_many(key);
    if list.len() as u64 > max {
        return root
            .wrong(key, Problem::TooMany { what: "of them", found: list.len() as u64, max });
    }
    let single = root.get(key).is_some_and(|t| t.list().is_none());
    let path = |i: usize| if single { key.to_owned() } else { format!("{key}.{i}") };
    Ok(list.iter().enumerate().map(|(i, tree)| (tree, path(i))).collect())
}

/// Refuses a second thing of the same name.
fn once<'a>(
    what: &'static str,
    names: impl Iterator<Item = (&'a str, Place, String)>,
) -> Result<()> {
    let mut seen: std::collections::BTreeSet<&str> = std::collections::BTreeSet::new();
    for (name, place, path) in names {
        if !seen.insert(name) {
            return wrong(place, path, Problem::Twice { what, name: name.to_owned() });
        }
    }
    Ok(())
}

/// The element of a collection that a segment of a dotted key addresses.
fn addressed(tree: &Tree, collection: &str, segment: &str) -> Option<usize> {
    index_of(tree.root(collection)?.list()?, segment)
}

/// The times at which the slots of a profile begin.
fn slots(count: usize, slot: Duration) -> impl Iterator<Item = Instant> {
    (0..count as u64).map(move |i| Instant::ZERO + slot * i)
}
