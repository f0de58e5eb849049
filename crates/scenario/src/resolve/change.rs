//! Changes in mid-run: the keys of a change are set in a copy of the file, and the parts that they
//! belong to are read again.

use std::ops::Range;

use settings::{Item, Place, Problem, Result, Section, Table, Tree, flatten, unknown_name, wrong};

use super::link::SOURCES;
use super::{MAX_CHANGES, Run, addressed, each, flow, link, names, node, size};
use crate::family::Family;
use crate::keys;
use crate::set_key;
use crate::traces::Source;
use crate::types::{Change, Changed, Link};

/// Listed in the message about any other key.
const CHANGEABLE: &str = "link.NAME.rate, .trace, .model, .medium, .delay, .layers and layers by name; \
                          link.NAME.queue.limit of droptail; device.gate; device.firmware.buffer; \
                          device.window; router.window; node.NAME.window; flow.N.congestion; flow.N.receiver.window";

fn unchangeable() -> Problem {
    Problem::Contradiction(format!("does not change in mid-run; what can: {CHANGEABLE}"))
}

/// What a key belongs to.
#[derive(Clone, PartialEq)]
enum Part {
    Link(String),
    Queue(String),
    /// The segment that addresses one of several devices.
    Gate(Option<String>),
    Firmware(Option<String>),
    /// Root key, and the segment that addresses one of several.
    Window(&'static str, Option<String>),
    Flow(String, &'static str),
}

/// All changes in order of time.
pub(super) fn changes(
    tree: &Tree,
    root: &Section<'_>,
    run: &Run<'_>,
    links: &[Link],
    copies: &[Range<usize>],
    source: &Source<'_>,
) -> Result<Vec<Change>> {
    let list = each(root, "change", MAX_CHANGES)?;
    let mut timed = Vec::new();
    for (tree, path) in list {
        let Some(table) = tree.table() else {
            let expected = "a table".to_owned();
            return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
        };
        let only_time = Tree {
            item: Item::Table(Table {
                entries: table
                    .get("at")
                    .map(|t| ("at".to_owned(), t.clone()))
                    .into_iter()
                    .collect(),
                inline: false,
            }),
            place: tree.place,
        };
        let section = Section::open(&only_time, path.clone(), &[keys::CHANGE], &[])?;
        let Some(at) = section.duration_if_given("at")? else {
            return section.wrong("at", Problem::Missing("when it happens, such as \"20 s\""));
        };
        run.within(&section, "at", at)?;
        let mut set = Vec::new();
        flatten(table, "", &mut set);
        set.retain(|(key, _)| key != "at");
        if set.is_empty() {
            return wrong(
                tree.place,
                path,
                Problem::Missing("what changes, such as \"link.up.rate\" = \"1 Mbit/s\""),
            );
        }
        timed.push((at, path, set));
    }
    if timed.is_empty() {
        return Ok(Vec::new());
    }
    timed.sort_by_key(|(at, _, _)| *at);
    let mut now = tree.clone();
    let mut changes = Vec::new();
    for (at, path, set) in timed {
        let mut parts: Vec<(Part, Place, String)> = Vec::new();
        for (key, value) in &set {
            let full = format!("{path}.{key}");
            let part = part(&now, key, value.place, &full)?;
            if !parts.iter().any(|(p, _, _)| *p == part) {
                parts.push((part, value.place, full));
            }
        }
        set_all(&mut now, &set)?;
        let mut what = Vec::new();
        for (part, place, full) in parts {
            what.extend(read_again(&now, &part, place, &full, run, links, copies, source)?);
        }
        changes.push(Change { at, what });
    }
    Ok(changes)
}

/// Sets several keys at once. Where one of them sets a link's medium, the keys that set it before
/// are removed; only a trace and the medium that replays it stay together.
pub(crate) fn set_all(tree: &mut Tree, set: &[(String, Tree)]) -> Result<()> {
    let keys: Vec<Vec<&str>> = set.iter().map(|(key, _)| key.split('.').collect()).collect();
    for (key, (_, value)) in keys.iter().zip(set) {
        let ["link", name, word] = key.as_slice() else { continue };
        if !SOURCES.contains(word) {
            continue;
        }
        let Some(Tree { item: Item::Table(link), .. }) = link_of(tree, name) else { continue };
        for other in SOURCES {
            let set_too = keys
                .iter()
                .any(|k| matches!(k.as_slice(), ["link", n, w, ..] if n == name && *w == other));
            let pair = match (*word, other) {
                ("trace", "model" | "medium") => link.get(other).is_some_and(replays_traces),
                ("model" | "medium", "trace") => replays_traces(value),
                _ => false,
            };
            if !set_too && !pair {
                link.remove(other);
            }
        }
    }
    set.iter().try_for_each(|(key, value)| set_key::set(tree, key, value.clone()))
}

/// Whether a medium is one of the two that replay traces.
fn replays_traces(medium: &Tree) -> bool {
    let kind = medium.table().and_then(|t| t.get("kind")).unwrap_or(medium);
    matches!(kind.text(), Some("trace" | "rates"))
}

fn link_of<'a>(tree: &'a mut Tree, name: &str) -> Option<&'a mut Tree> {
    let Item::Table(root) = &mut tree.item else { return None };
    let (_, links) = root.entries.iter_mut().find(|(k, _)| k == "link")?;
    match &mut links.item {
        Item::Table(table) => table.entries.iter_mut().find(|(k, _)| k == name).map(|(_, t)| t),
        Item::List(list) => settings::index_of(list, name).map(|i| &mut list[i]),
        _ => None,
    }
}

/// What `key` belongs to, where it may change.
fn part(tree: &Tree, key: &str, place: Place, full: &str) -> Result<Part> {
    let segments: Vec<&str> = key.split('.').collect();
    let known = |name: &str| tree.root(name).is_some();
    let absent = |what: &'static str| wrong(place, full, Problem::Absent(what));
    let layers = link::layer_names();
    match segments.as_slice() {
        ["device", ..] if !known("device") => absent("[device]"),
        ["router", ..] if !known("router") => absent("[router]"),
        ["link", name, what, ..]
            if SOURCES.contains(what)
                || ["delay", "layers"].contains(what)
                || layers.contains(what) =>
        {
            Ok(Part::Link((*name).to_owned()))
        }
        ["link", name, "queue", ..] => Ok(Part::Queue((*name).to_owned())),
        ["device", "gate", ..] => Ok(Part::Gate(None)),
        ["device", which, "gate", ..] => Ok(Part::Gate(Some((*which).to_owned()))),
        ["device", "firmware", "buffer"] => Ok(Part::Firmware(None)),
        ["device", which, "firmware", "buffer"] => Ok(Part::Firmware(Some((*which).to_owned()))),
        ["device", "window", ..] => Ok(Part::Window("device", None)),
        ["router", "window", ..] => Ok(Part::Window("router", None)),
        ["device", which, "window", ..] => Ok(Part::Window("device", Some((*which).to_owned()))),
        ["node", which, "window", ..] => Ok(Part::Window("node", Some((*which).to_owned()))),
        ["flow", which, "congestion", ..] => Ok(Part::Flow((*which).to_owned(), "congestion")),
        ["flow", which, "receiver", "window", ..] => Ok(Part::Flow((*which).to_owned(), "window")),
        _ => wrong(place, full, unchangeable()),
    }
}

/// Reads the part again from the changed file.
#[allow(clippy::too_many_arguments)]
fn read_again(
    now: &Tree,
    part: &Part,
    place: Place,
    full: &str,
    run: &Run<'_>,
    links: &[Link],
    copies: &[Range<usize>],
    source: &Source<'_>,
) -> Result<Vec<Changed>> {
    match part {
        Part::Link(name) | Part::Queue(name) => {
            let by_name = links.iter().position(|l| l.name == *name);
            let Some(i) = by_name.or_else(|| addressed(now, "link", name)) else {
                let known = links.iter().map(|l| l.name.as_str());
                return wrong(place, full, unknown_name("link", name, known));
            };
            let root = super::root(now)?;
            let Some(tree) = names::link_tree(&root, i, links) else {
                return wrong(place, full, unchangeable());
            };
            let path = format!("link.{}", links[i].name);
            let link = link::one(tree, &links[i].name, path, run.nodes, source)?;
            Ok(vec![match part {
                Part::Queue(_) => match size::limit(&links[i].queue, &link.queue, i, run.nodes) {
                    Ok(limit) => Changed::QueueLimit(i, limit),
                    Err(problem) => return wrong(place, full, problem),
                },
                _ => Changed::Link(i, link),
            }])
        }
        Part::Gate(which) => {
            let (section, path) = device(now, which.as_deref(), place, full)?;
            let section = Section::open(section, path, &[keys::DEVICE], &[])?;
            let node = run.node(&section, "node", Some("client"))?;
            Ok(vec![Changed::Gate(node, Family::Gate.of(&section, "gate")?)])
        }
        Part::Firmware(which) => {
            let (section, path) = device(now, which.as_deref(), place, full)?;
            let section = Section::open(section, path, &[keys::DEVICE], &[])?;
            let node = run.node(&section, "node", Some("client"))?;
            Ok(vec![Changed::FirmwareBuffer(node, size::buffer(&section)?)])
        }
        Part::Window("device", which) => {
            let (section, path) = device(now, which.as_deref(), place, full)?;
            let section = Section::open(section, path, &[keys::DEVICE], &[])?;
            let node = run.node(&section, "node", Some("client"))?;
            Ok(vec![Changed::NodeWindow(node, node::window(&section)?)])
        }
        Part::Window("router", _) => {
            let section = super::root(now)?.below("router", &[keys::ROUTER])?;
            let found = run.nodes.iter().position(|n| n.name == names::ROUTER);
            let Some(i) = found else { return wrong(place, full, Problem::Absent("[router]")) };
            Ok(vec![Changed::NodeWindow(i, node::window(&section)?)])
        }
        Part::Window(_, which) => {
            let name = which.as_deref().unwrap_or_default();
            let tree = addressed(now, "node", name)
                .and_then(|i| Some((i, now.root("node")?.list()?.get(i)?)));
            let Some((i, tree)) = tree else {
                let known = run.nodes.iter().map(|n| n.name.as_str());
                return wrong(place, full, unknown_name("node", name, known));
            };
            let section = Section::open(tree, format!("node.{i}"), &[keys::NODE], &[])?;
            Ok(vec![Changed::NodeWindow(i, node::window(&section)?)])
        }
        Part::Flow(which, key) => {
            let tree = addressed(now, "flow", which)
                .and_then(|i| Some((i, now.root("flow")?.list()?.get(i)?)));
            let Some((i, tree)) = tree else {
                return wrong(place, full, unknown_name("flow", which, []));
            };
            let algorithm = flow::changed(tree, format!("flow.{i}"), key)?;
            let one = |f: usize| match *key {
                "congestion" => Changed::Congestion(f, algorithm.clone()),
                _ => Changed::Window(f, algorithm.clone()),
            };
            Ok(copies.get(i).cloned().unwrap_or_default().map(one).collect())
        }
    }
}

/// The device that a key speaks of.
fn device<'a>(
    now: &'a Tree,
    which: Option<&str>,
    place: Place,
    full: &str,
) -> Result<(&'a Tree, String)> {
    let Some(tree) = now.root("device") else {
        return wrong(place, full, Problem::Absent("[device]"));
    };
    match (which, tree.list()) {
        (None, None) => Ok((tree, "device".to_owned())),
        (Some(which), Some(list)) => match settings::index_of(list, which) {
            Some(i) => Ok((&list[i], format!("device.{i}"))),
            None => wrong(place, full, unknown_name("device", which, [])),
        },
        (None, Some(_)) => {
            wrong(place, full, Problem::Missing("which device, as in device.NODE.gate"))
        }
        (Some(_), None) => wrong(place, full, unchangeable()),
    }
}
