//! Keeps `docs/generated/cures.md` equal to what the cures say of themselves: the head comment of
//! each module, its section of the configuration, the features that it needs. `UNBLOAT_BLESS=1`
//! renews the page.

use std::path::Path;

use settings::{Group, Key};

use super::{About, TABLE, device};

const HEAD: &str = "# The agent's cures

<!-- Generated from crates/agent/src/cures/ by `UNBLOAT_BLESS=1 cargo test -p unbloat-agent`. -->

Each cure is a module of `crates/agent/src/cures/`; its text below is the head of that module.
[agent.md](../agent.md) says how to use them.
";

/// The head comment of a module, without its marks.
fn head_comment(module: &str) -> String {
    let path = format!("{}/src/cures/{module}.rs", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(path).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n").collect()
}

/// The keys of a section as a table: name, default, meaning.
fn keys(group: &Group) -> String {
    let head = format!("\n| Key of `[{}]` | Default | Meaning |\n|---|---|---|\n", group.name);
    let row = |key: &Key| format!("| `{}` | `{}` | {} |\n", key.name, key.toml(), key.about);
    head + &group.each().map(row).collect::<String>()
}

fn page(about: &About) -> String {
    let mut text = format!("\n## {}: {}\n\n{}", about.name, about.title, head_comment(about.name));
    text += "\nNeeds of the kernel:\n\n";
    for feature in about.features {
        text += &format!("- {} (Linux {})\n", feature.name, feature.since);
    }
    text.extend(about.section.map(keys));
    text
}

#[test]
fn the_page_of_the_cures_is_what_their_modules_say() {
    let mut text = HEAD.to_owned();
    text.extend(TABLE.iter().map(page));
    text += "\n## What the cures on the uplink's device share\n";
    text += &keys(&device::SECTION);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/generated/cures.md");
    if std::env::var_os("UNBLOAT_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "{} is out of date: UNBLOAT_BLESS=1 cargo test", path.display());
}
