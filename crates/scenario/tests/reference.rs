//! `docs/generated/scenario.md`: the reference below its mark is printed from the tables.
//! `UNBLOAT_BLESS=1` writes it again. The introduction, `docs/scenario.md`, is written by hand.

use std::path::Path;

const MARK: &str =
    "<!-- printed from the tables: UNBLOAT_BLESS=1 cargo test -p unbloat-scenario -->\n";

const OUTDATED: &str = "docs/generated/scenario.md is out of date: UNBLOAT_BLESS=1 cargo test";

#[test]
fn the_manual_says_what_the_parser_reads() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/generated/scenario.md");
    let text = std::fs::read_to_string(&file).expect("docs/generated/scenario.md is there");
    let (head, stored) = text.split_once(MARK).expect("the mark is there");
    let printed = scenario::describe();
    if std::env::var_os("UNBLOAT_BLESS").is_some() {
        std::fs::write(&file, format!("{head}{MARK}{printed}")).expect("docs can be written");
        return;
    }
    for (ours, theirs) in printed.lines().zip(stored.lines()) {
        assert_eq!(ours, theirs, "{OUTDATED}");
    }
    assert_eq!(printed, stored, "{OUTDATED}");
}

#[test]
fn the_example_of_the_manual_is_the_one_that_is_tested() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenario.md");
    let text = std::fs::read_to_string(&file).expect("docs/scenario.md is there");
    assert!(text.contains(include_str!("example.toml")), "docs/scenario.md shows another example");
}
