//! Sets dotted keys in the tree of a scenario: by a command line, a sweep or a change in mid-run.
//!
//! `flow.0.congestion` and `flow.upload.congestion` address an element of a list by number or name.
//! Where the file gives an algorithm by its bare name, `….queue.limit` turns the name into a table
//! with that `kind`.

use settings::{
    Item, Problem, Result, Table, Tree, addresses, index_of, shortened, unknown_name, wrong,
};

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

/// Sets a dotted key. What the first segments address has to exist; tables below it are made as
/// needed, and the bare name of an algorithm becomes the `kind` of one.
pub(crate) fn set(tree: &mut Tree, key: &str, new: Tree) -> Result<()> {
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
        && tree.root(name).is_none()
    {
        return wrong(place, key, Problem::Absent(section_name(name)));
    }
    let mut at = tree;
    for (i, segment) in segments.iter().enumerate() {
        let above = segments[..i].iter().rev().find(|s| s.parse::<usize>().is_err());
        if let Item::Text(kind) = &at.item
            && above.is_some_and(|key| KINDED.contains(key))
        {
            let kind = Tree { item: Item::Text(kind.clone()), place: at.place };
            at.item = Item::Table(Table { entries: vec![("kind".to_owned(), kind)], inline: true });
        }
        let found = at.shown();
        at = match &mut at.item {
            Item::Table(table) => {
                // [link.up]: the name is a key. An unknown one is a typing mistake, not a new link.
                if i == 1 && segments[0] == "link" && table.get(segment).is_none() {
                    let known = table.entries.iter().map(|(k, _)| k.as_str());
                    return wrong(place, key, unknown_name("link", segment, known));
                }
                table.entry(segment, place)
            }
            Item::List(list) => {
                let what =
                    COLLECTIONS.iter().find(|(c, _)| *c == segments[0]).map_or("element", |c| c.1);
                match index_of(list, segment) {
                    Some(n) => &mut list[n],
                    None => {
                        return wrong(
                            place,
                            key,
                            unknown_name(what, segment, addresses(list).iter().map(String::as_str)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(key: &str, value: &str) -> std::result::Result<String, String> {
        let text = "[link.up]\nqueue = \"codel\"\n[[flow]]\nname = \"x\"\nmss = \"1 KB\"";
        let mut tree = Tree::parse(text).expect("TOML");
        let new = Tree::from_outside(key, value).map_err(|e| e.to_string())?;
        set(&mut tree, key, new).map_err(|e| e.to_string())?;
        Ok(tree.toml())
    }

    #[test]
    fn elements_are_addressed_by_name_and_number_and_a_bare_name_becomes_a_kind() {
        let by_name = changed("flow.x.mss", "2 KB").expect("by name");
        assert_eq!(Ok(&by_name), changed("flow.0.mss", "2 KB").as_ref());
        assert!(by_name.contains("mss = \"2 KB\""), "{by_name}");
        let queue = changed("link.up.queue.target", "5 ms").expect("a parameter");
        assert!(queue.contains("queue = { kind = \"codel\", target = \"5 ms\" }"), "{queue}");
    }

    #[test]
    fn what_is_not_in_the_file_is_refused_by_name() {
        let error = |key| changed(key, "1").expect_err(key);
        assert!(error("link.upp.rate").contains("did you mean \"up\"?"));
        assert!(error("flow.y.mss").contains("no flow is called \"y\""));
        assert!(error("probe.0.every").ends_with("there is no [[probe]]"));
        assert!(error("flow.0.mss.x").contains("expected a table with the key x"));
        assert!(error("link..rate").contains("expected a dotted key"));
    }
}
