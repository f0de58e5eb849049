//! Hosts, the router, and the device stack of a phone.

use algo::Settings;
use algo::link::grants::Level;
use settings::{Item, Problem, Result, Section, Tree, unknown_name, wrong};
use units::Rate;

use super::{MAX_NODES, each, names, once};
use crate::family::Family;
use crate::keys;
use crate::types::{Algorithm, Device, Firmware, Link, Node, QueuePer};

/// All nodes, without their devices.
pub(super) fn nodes(root: &Section<'_>, router: bool) -> Result<Vec<Node>> {
    let bare = |name: &str| Node { name: name.to_owned(), device: None, window: None };
    if !root.has("node") {
        let mut nodes = vec![bare("client"), bare("server")];
        if router {
            let section = root.below("router", &[keys::ROUTER])?;
            nodes.push(Node { window: window(&section)?, ..bare(names::ROUTER) });
        }
        return Ok(nodes);
    }
    if router {
        return root.wrong(
            "router",
            Problem::Excluded("[[node]]: name it there, with its window".to_owned()),
        );
    }
    let mut nodes = Vec::new();
    let mut places = Vec::new();
    for (tree, path) in each(root, "node", MAX_NODES)? {
        let section = Section::open(tree, path, &[keys::NODE], &[])?;
        let Some(name) = section.text("name")? else {
            return section.wrong("name", Problem::Missing("the name of the node"));
        };
        places.push((tree.place, section.full("name")));
        nodes.push(Node { window: window(&section)?, ..bare(name) });
    }
    if nodes.is_empty() {
        return root.wrong("node", Problem::Empty);
    }
    once(
        "node",
        nodes.iter().zip(places).map(|(n, (place, path))| (n.name.as_str(), place, path)),
    )?;
    Ok(nodes)
}

/// The window law on a node's ACKs; none where it is not given or `false`.
pub(super) fn window(section: &Section<'_>) -> Result<Option<Algorithm>> {
    match section.get("window") {
        None | Some(Tree { item: Item::Flag(false), .. }) => Ok(None),
        Some(_) => Family::Window.of(section, "window").map(Some),
    }
}

/// The two links between client and router.
pub(super) fn router(root: &Section<'_>) -> Result<Option<[Link; 2]>> {
    let Some(tree) = root.get("router") else { return Ok(None) };
    let section = Section::open(tree, "router".to_owned(), &[keys::ROUTER], &[])?;
    let link = |name: &str, from, to| -> Result<Link> {
        Ok(Link {
            name: name.to_owned(),
            from,
            to,
            medium: fixed(section.rate("rate")?),
            trace: None,
            delay: section.duration("delay")?,
            layers: Vec::new(),
            queue: Family::Queue.of(&section, "queue")?,
            queue_per: QueuePer::Link,
        })
    };
    Ok(Some([link("lan_up", 0, 2)?, link("lan_down", 2, 0)?]))
}

/// A medium of constant rate.
fn fixed(rate: Rate) -> Algorithm {
    let mut medium = Family::Medium
        .named("fixed")
        .unwrap_or(Algorithm { index: 0, settings: Settings(vec![algo::Value::Unset]) });
    if let Some(first) = medium.settings.0.first_mut() {
        *first = algo::Value::Rate(rate);
    }
    medium
}

/// Puts every device on its node.
pub(super) fn devices(
    root: &Section<'_>,
    nodes: &mut [Node],
    links: &[Link],
    warnings: &mut Vec<String>,
) -> Result<()> {
    for (tree, path) in each(root, "device", MAX_NODES)? {
        let section = Section::open(tree, path, &[keys::DEVICE], &[])?;
        let node = names::node(&section, "node", Some("client"), nodes)?;
        if nodes[node].device.is_some() {
            let name = nodes[node].name.clone();
            return wrong(
                section.place,
                section.path.clone(),
                Problem::Twice { what: "device on", name },
            );
        }
        let fed = outgoing(&section, node, nodes, links)?;
        let firmware = section.below("firmware", &[keys::FIRMWARE])?;
        let firmware = Firmware {
            buffer: firmware.bytes("buffer")?,
            wake: firmware.bytes("wake")?,
            report_every: firmware.duration("report_every")?,
            report_delay: firmware.duration("report_delay")?,
            report_batch: firmware.duration("report_batch")?,
            level: [Level::Upper, Level::Middle][firmware.choice("level")?],
            clock_ahead: firmware.duration("clock_ahead")?,
            clock_behind: firmware.duration("clock_behind")?,
        };
        if let Some(queue) =
            names::link_tree(root, fed, links).and_then(|t| t.table()?.get("queue"))
        {
            let at = match queue.place {
                settings::Place::Line(n) => format!("line {n}: "),
                _ => String::new(),
            };
            warnings.push(format!(
                "{at}link.{}.queue: not used: the device on {} feeds this link, with {} of firmware buffer in its place",
                links[fed].name, nodes[node].name, firmware.buffer
            ));
        }
        let law = window(&section)?;
        if law.is_some() && nodes[node].window.is_some() {
            let other =
                format!("the window of node {}: both are a law on its ACKs", nodes[node].name);
            return section.wrong("window", Problem::Excluded(other));
        }
        if law.is_some() {
            nodes[node].window = law;
        }
        let (qdisc, gate) =
            (Family::Queue.of(&section, "qdisc")?, Family::Gate.of(&section, "gate")?);
        nodes[node].device = Some(Device { link: fed, qdisc, gate, firmware });
    }
    Ok(())
}

/// The link that a device feeds.
fn outgoing(section: &Section<'_>, node: usize, nodes: &[Node], links: &[Link]) -> Result<usize> {
    let own: Vec<usize> = (0..links.len()).filter(|i| links[*i].from == node).collect();
    let known = || own.iter().map(|i| links[*i].name.as_str());
    match (section.text("link")?, own.as_slice()) {
        (Some(name), _) => match own.iter().find(|i| links[**i].name == name) {
            Some(i) => Ok(*i),
            None => section.wrong("link", unknown_name("outgoing link of its node", name, known())),
        },
        (None, [only]) => Ok(*only),
        (None, []) => {
            let text = format!("no link leads away from {}", nodes[node].name);
            section.wrong("node", Problem::Contradiction(text))
        }
        (None, _) => section
            .wrong("link", Problem::Missing("the node has several outgoing links; say which")),
    }
}
