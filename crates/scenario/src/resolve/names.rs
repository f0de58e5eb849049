//! How nodes and links are found by name, for every part that refers to them.

use settings::{Item, Problem, Result, Section, Tree, unknown_name};

use crate::types::{Link, Node};

/// The node of `[router]`.
pub(super) const ROUTER: &str = "router";

/// The node that `key` names, or `default`.
pub(super) fn node(
    section: &Section<'_>,
    key: &str,
    default: Option<&str>,
    nodes: &[Node],
) -> Result<usize> {
    let Some(name) = section.text(key)?.or(default) else {
        return section.wrong(key, Problem::Missing("the name of a node"));
    };
    match nodes.iter().position(|n| n.name == name) {
        Some(i) => Ok(i),
        None => {
            section.wrong(key, unknown_name("node", name, nodes.iter().map(|n| n.name.as_str())))
        }
    }
}

/// The element of a link in the file; `None` for the links of `[router]`.
pub(super) fn link_tree<'a>(root: &Section<'a>, link: usize, links: &[Link]) -> Option<&'a Tree> {
    let tree = root.get("link")?;
    match &tree.item {
        Item::Table(table) => table.get(&links[link].name),
        Item::List(list) => list.get(link),
        _ => None,
    }
}
