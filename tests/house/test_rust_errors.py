"""Errors of the Rust crates are types: no function outside tests returns text as its error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from test_rust_modules import ROOT, sources, split_list


def error_types(source: str) -> Iterator[str]:
    """Of every `Result` that names its error."""
    for match in re.finditer(r"\bResult\s*<", source):
        depth, at = 1, match.end()
        while depth and at < len(source):
            arrow = source[at - 1 : at + 1] == "->"
            depth += {"<": 1, ">": 0 if arrow else -1}.get(source[at], 0)
            at += 1
        inside = source[match.end() : at - 1].replace("->", "  ")
        # Commas within angle brackets or parentheses separate nothing here.
        parts = split_list(re.sub(r"[<(\[]", "{", re.sub(r"[>)\]]", "}", inside)))
        if len(parts) > 1:
            yield parts[-1]


def test_no_error_is_text() -> None:
    text = {"String", "&str", "&'static str", "std::string::String"}
    found = [
        f"{src.parent.name}: {'/'.join(module) or 'lib.rs, main.rs'}"
        for src in sorted(ROOT.glob("crates/*/src"))
        for module, source in sources(src).items()
        if text & set(error_types(source))
    ]
    assert not found, f"a small enum per operation, with thiserror, in place of text: {found}"


def test_errors_are_found_in_nested_types(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text(
        "fn a() -> std::result::Result<Vec<(u8, BTreeMap<K, String>)>,\n    String,\n> {}\n"
        "fn b(f: impl Fn(u8) -> Result<Map<K, String>, E>) -> settings::Result<Map<K, String>> {}\n"
        "#[cfg(test)]\nmod tests { fn c() -> Result<(), String> {} }\n"
    )
    assert list(error_types(sources(tmp_path)[()])) == ["String", "E"]
