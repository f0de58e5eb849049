//! Links: medium, delay, layers, queue.

use settings::{Item, Problem, Result, Section, Tree, wrong};
use std::sync::Arc;

use super::{MAX_NODES, each, names, once, profile, slots};
use crate::family::Family;
use crate::keys;
use crate::traces::Source;
use crate::types::{Algorithm, Link, Node, QueuePer, Trace};

/// Most layers of a link.
const MAX_LAYERS: u64 = 32;
/// The keys that say what decides when a packet leaves.
pub(crate) const SOURCES: [&str; 4] = ["rate", "trace", "model", "medium"];

/// All links in order; `up` and `down` first in the short form.
pub(super) fn links(root: &Section<'_>, nodes: &[Node], source: &Source<'_>) -> Result<Vec<Link>> {
    let Some(tree) = root.get("link") else {
        return root.wrong("link", Problem::Missing("[link.up] and [link.down]"));
    };
    match &tree.item {
        Item::Table(table) => {
            if table.entries.len() as u64 > MAX_NODES {
                let found = table.entries.len() as u64;
                return root
                    .wrong("link", Problem::TooMany { what: "links", found, max: MAX_NODES });
            }
            for short in ["up", "down"] {
                if !root.has("node") && table.get(short).is_none() {
                    let what = "both directions are needed";
                    return wrong(tree.place, format!("link.{short}"), Problem::Missing(what));
                }
            }
            let mut entries: Vec<&(String, Tree)> = table.entries.iter().collect();
            let order = |name: &str| ["up", "down"].iter().position(|n| *n == name).unwrap_or(2);
            entries.sort_by_key(|(name, _)| order(name));
            entries
                .iter()
                .map(|(name, t)| one(t, name, format!("link.{name}"), nodes, source))
                .collect()
        }
        _ => {
            let mut links = Vec::new();
            let mut places = Vec::new();
            for (tree, path) in each(root, "link", MAX_NODES)? {
                let name = tree.table().and_then(|t| t.get("name"));
                let Some(name) = name.and_then(Tree::text) else {
                    let section = Section::open(tree, path, &[keys::LINK], &layer_names())?;
                    return section.wrong("name", Problem::Missing("the name of the link"));
                };
                places.push((tree.place, path.clone()));
                links.push(one(tree, name, path, nodes, source)?);
            }
            once(
                "link",
                links.iter().zip(places).map(|(l, (place, path))| (l.name.as_str(), place, path)),
            )?;
            Ok(links)
        }
    }
}

/// One link by itself.
pub(super) fn one(
    tree: &Tree,
    name: &str,
    path: String,
    nodes: &[Node],
    source: &Source<'_>,
) -> Result<Link> {
    let section = Section::open(tree, path, &[keys::LINK], &layer_names())?;
    let given = section.text("name")?;
    if given.is_some_and(|given| given != name) {
        let text = format!("it is called {name} already, by its section");
        return section.wrong("name", Problem::Contradiction(text));
    }
    // Ends of the short form; with a router in between, the radio begins and ends there.
    let client = if nodes.iter().any(|n| n.name == names::ROUTER) && nodes.len() == 3 {
        names::ROUTER
    } else {
        "client"
    };
    let (from, to) = match name {
        "up" => (Some(client), Some("server")),
        "down" => (Some("server"), Some(client)),
        _ => (None, None),
    };
    let present =
        |default: Option<&'static str>| default.filter(|d| nodes.iter().any(|n| n.name == *d));
    let from = names::node(&section, "from", present(from), nodes)?;
    let to = names::node(&section, "to", present(to), nodes)?;
    if from == to {
        let text = format!("leads from {} to itself", nodes[from].name);
        return section.wrong("to", Problem::Contradiction(text));
    }
    let (medium, trace) = medium(&section, source)?;
    let Some(delay) = section.duration_if_given("delay")? else {
        return section.wrong("delay", Problem::Missing("propagation, one way, such as \"30 ms\""));
    };
    let queue_per = if section.choice("queue_per")? == 1 { QueuePer::User } else { QueuePer::Link };
    let (layers, queue) = (layers(&section)?, Family::Queue.of(&section, "queue")?);
    Ok(Link { name: name.to_owned(), from, to, medium, trace, delay, layers, queue, queue_per })
}

/// Which medium, and the trace that it replays.
fn medium(section: &Section<'_>, source: &Source<'_>) -> Result<(Algorithm, Option<Trace>)> {
    let given: Vec<&str> = SOURCES.into_iter().filter(|key| section.has(key)).collect();
    match given.as_slice() {
        [] => section.wrong("rate", Problem::Missing("a rate, a trace, a model or a medium")),
        ["rate"] => rate(section),
        ["trace"] => {
            let trace = trace(section, source)?;
            let kind = kind_for(trace.as_ref());
            Ok((Family::Medium.read(&text(section, kind), &section.full("trace"), None)?, trace))
        }
        ["trace", key] => {
            let medium = Family::Medium.of(section, key)?;
            let trace = trace(section, source)?;
            let name = Family::Medium.entries()[medium.index].name;
            let fits = match &trace {
                None => ["trace", "rates"].contains(&name),
                Some(_) => name == kind_for(trace.as_ref()),
            };
            if !fits {
                let kind = kind_for(trace.as_ref());
                let text =
                    format!("this trace is replayed by the medium \"{kind}\", not by \"{name}\"");
                return section.wrong("trace", Problem::Contradiction(text));
            }
            Ok((medium, trace))
        }
        [key] => {
            let medium = Family::Medium.of(section, key)?;
            if ["trace", "rates"].contains(&Family::Medium.entries()[medium.index].name) {
                return section
                    .wrong("trace", Problem::Missing("the trace that the medium replays"));
            }
            Ok((medium, None))
        }
        [first, second, ..] => {
            section.wrong(second, Problem::Excluded(format!("{}.{first}", section.path)))
        }
    }
}

fn rate(section: &Section<'_>) -> Result<(Algorithm, Option<Trace>)> {
    let Some(tree) = section.get("rate") else {
        return section.wrong("rate", Problem::Missing("a rate"));
    };
    let path = section.full("rate");
    if tree.table().is_none() {
        return Ok((Family::Medium.read_under_own_name("fixed", tree, &path)?, None));
    }
    let inner = Section::open(tree, path.clone(), &[keys::PROFILE], &[])?;
    let (rates, slot) = profile::read(&inner)?;
    let steps = slots(rates.len(), slot).zip(rates).collect::<Vec<_>>();
    Ok((
        Family::Medium.read(&text(section, "rates"), &path, None)?,
        Some(Trace::Rates(Arc::from(steps))),
    ))
}

/// A name as if it stood in the file where the section is.
fn text(section: &Section<'_>, name: &str) -> Tree {
    Tree { item: Item::Text(name.to_owned()), place: section.place }
}

/// The medium that replays a trace; one that has not been read yet may be of either kind.
fn kind_for(trace: Option<&Trace>) -> &'static str {
    match trace {
        None | Some(Trace::Opportunities(_)) => "trace",
        Some(Trace::Rates(_)) => "rates",
    }
}

fn trace(section: &Section<'_>, source: &Source<'_>) -> Result<Option<Trace>> {
    let name = match section.get("trace").map(|t| (t, t.text())) {
        Some((_, Some(name))) if !name.is_empty() => name,
        Some((tree, _)) => {
            let expected = "the name of a trace".to_owned();
            return section.wrong("trace", Problem::WrongKind { expected, found: tree.shown() });
        }
        None => return section.wrong("trace", Problem::Missing("the name of a trace")),
    };
    match source.read(name) {
        Ok(trace) => Ok(trace),
        Err(reason) => {
            let name = settings::shortened(name);
            section.wrong("trace", Problem::Contradiction(format!("trace \"{name}\": {reason}")))
        }
    }
}

pub(crate) fn layer_names() -> Vec<&'static str> {
    Family::Layer.entries().iter().map(|e| e.name).collect()
}

fn layers(section: &Section<'_>) -> Result<Vec<Algorithm>> {
    let list = section.one_or_many("layers");
    if list.len() as u64 > MAX_LAYERS {
        let found = list.len() as u64;
        return section
            .wrong("layers", Problem::TooMany { what: "layers", found, max: MAX_LAYERS });
    }
    let mut layers = Vec::new();
    for (i, tree) in list.iter().enumerate() {
        layers.push(Family::Layer.read(tree, &format!("{}.{i}", section.full("layers")), None)?);
    }
    for name in layer_names() {
        match section.get(name) {
            None | Some(Tree { item: Item::Flag(false), .. }) => {}
            Some(tree) => {
                layers.push(Family::Layer.read_under_own_name(name, tree, &section.full(name))?)
            }
        }
    }
    Ok(layers)
}

/// Refuses two links from one node to the same other: no packet would know which to take.
pub(super) fn distinct(root: &Section<'_>, links: &[Link], nodes: &[Node]) -> Result<()> {
    let mut seen = std::collections::BTreeMap::new();
    for (i, link) in links.iter().enumerate() {
        if let Some(first) = seen.insert((link.from, link.to), i) {
            let place = names::link_tree(root, i, links).map_or(root.place, |t| t.place);
            let text = format!(
                "leads from {} to {}, as link {} does",
                nodes[link.from].name, nodes[link.to].name, links[first].name
            );
            return wrong(place, format!("link.{}", link.name), Problem::Contradiction(text));
        }
    }
    once("link", links.iter().map(|l| (l.name.as_str(), root.place, format!("link.{}", l.name))))
}
