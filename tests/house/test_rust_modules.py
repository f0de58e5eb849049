"""No circles between the modules of a crate.

Read from the text of the sources: `use` lines and paths that begin with `crate::`, `super::` or `self::`. Comments,
strings and tests do not count. An arrow between two modules counts in the folder in which their paths part. So
`tcp/ack.rs` → `series/rows.rs` is the arrow `tcp` → `series` of the crate, and `tcp/ack.rs` → `tcp/state.rs` is an
arrow of the folder `tcp`. Arrows between a folder's `mod.rs` and its own modules do not count: it may declare what
they share. Methods of a type whose `impl` blocks stand in several files are calls without a path; they do not count.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = sorted(p.parent.name for p in ROOT.glob("crates/*/src"))
# Circles that still exist. Only for removing: a circle may lose members, and goes from the list when it is gone.
KNOWN: dict[str, list[set[str]]] = {
    "algo": [{"gate/occupancy", "gate/slack"}],
    "units": [{"bytes", "rate"}],
}

Module = tuple[str, ...]


def without_text(source: str) -> str:
    """The source without comments and without the content of string and character literals."""
    token = r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\'\\])\''
    return re.sub(token, " ", source, flags=re.S)


def without_tests(source: str) -> str:
    """The source without `#[cfg(test)] mod tests { … }`."""
    out, at = [], 0
    for match in re.finditer(
        r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z]+\))?\s+)?mod\s+\w+\s*\{", source
    ):
        if match.start() < at:
            continue
        out.append(source[at : match.start()])
        depth, at = 1, match.end()
        while depth and at < len(source):
            depth += {"{": 1, "}": -1}.get(source[at], 0)
            at += 1
    return "".join(out) + source[at:]


def module_of(path: Path, src: Path) -> Module:
    parts = path.relative_to(src).with_suffix("").parts
    if parts[-1] == "mod" or parts in {("lib",), ("main",)}:
        parts = parts[:-1]
    return parts


def sources(src: Path) -> dict[Module, str]:
    """Text by module, without modules that exist only for tests."""
    found: dict[Module, str] = {}
    for_tests: set[Module] = set()
    for path in sorted(src.rglob("*.rs")):
        module = module_of(path, src)
        text = without_tests(without_text(path.read_text()))
        for name in re.findall(
            r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z]+\))?\s+)?mod\s+(\w+)\s*;", text
        ):
            for_tests.add((*module, name))
        found[module] = found.get(module, "") + text
    return {m: t for m, t in found.items() if not any(m[: len(x)] == x for x in for_tests)}


def split_list(text: str) -> list[str]:
    """`a, b::{c, d}` at its outer commas."""
    items, depth, item = [], 0, ""
    for char in text:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            items.append(item)
            item = ""
        else:
            item += char
    return [i.strip() for i in [*items, item] if i.strip()]


def expanded(tree: str, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Paths of a `use` tree with the name that each brings in."""
    head, brace, rest = tree.partition("{")
    parts = tuple(p.strip() for p in head.split("::") if p.strip())
    if brace:
        for item in split_list(rest.rpartition("}")[0]):
            yield from expanded(item, prefix + parts)
        return
    last, _, alias = parts[-1].partition(" as ") if parts else ("", "", "")
    path = prefix + parts[:-1] + (() if last in {"self", ""} else (last.strip(),))
    yield path, (alias.strip() or path[-1] if path else "")


class Crate:
    def __init__(self, src: Path) -> None:
        self.texts = sources(src)
        self.imports: dict[Module, dict[str, tuple[str, ...]]] = defaultdict(dict)
        for module, text in self.texts.items():
            for tree in re.findall(r"\buse\s+([^;]+);", text):
                for path, name in expanded(re.sub(r"\s+", " ", tree)):
                    self.imports[module][name] = path

    def absolute(self, path: tuple[str, ...], module: Module) -> tuple[str, ...] | None:
        """A path from the root of the crate; None where it leads out of the crate."""
        if path and path[0] == "crate":
            return path[1:]
        at = module
        if path and path[0] == "self":
            return at + path[1:]
        if path and path[0] == "super":
            while path and path[0] == "super":
                at, path = at[:-1], path[1:]
            return at + path
        if path and (*module, path[0]) in self.texts:
            return module + path
        return None

    def target(self, path: tuple[str, ...], depth: int = 0) -> Module:
        """The module that defines what the path names, through re-exports."""
        module: Module = ()
        for i, part in enumerate(path):
            if (*module, part) in self.texts:
                module = (*module, part)
                continue
            imported = self.imports[module].get(part)
            if imported is not None and depth < 8:
                there = self.absolute(imported, module)
                if there is not None and there != path[: i + 1]:
                    return self.target(there + path[i + 1 :], depth + 1)
            break
        return module

    def arrows(self) -> dict[Module, dict[str, set[str]]]:
        """Folder → module in it → modules in it that it uses."""
        found: dict[Module, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for module, text in self.texts.items():
            paths = list(self.imports[module].values())
            paths += [
                tuple(p.split("::")) for p in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", text)
            ]
            for path in paths:
                there = self.absolute(path, module)
                if there is None:
                    continue
                to = self.target(there)
                common = 0
                while common < min(len(to), len(module)) and to[common] == module[common]:
                    common += 1
                if common < min(len(to), len(module)):
                    found[module[:common]][module[common]].add(to[common])
        return found


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules each of which can be reached from each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for to in arrows.get(waiting.pop(), set()) - seen:
                seen.add(to)
                waiting.append(to)
        return seen

    reach = {name: reached(name) for name in arrows}
    found: list[set[str]] = []
    for name in sorted(arrows):
        circle = {x for x in reach[name] if name in reach.get(x, set())}
        if circle and circle not in found:
            found.append(circle)
    return found


@pytest.mark.parametrize("crate", CRATES)
def test_modules_of_a_crate_form_no_circle(crate: str) -> None:
    found = [
        {"/".join((*folder, name)) for name in circle}
        for folder, arrows in Crate(ROOT / "crates" / crate / "src").arrows().items()
        for circle in circles(arrows)
    ]
    known = KNOWN.get(crate, [])
    new = [sorted(c) for c in found if not any(c <= k for k in known)]
    assert not new, f"modules of {crate} use each other: {new}"
    gone = [sorted(k) for k in known if not any(c <= k for c in found)]
    assert not gone, f"no longer circles of {crate}, take them from KNOWN: {gone}"


def test_circles_are_found_through_re_exports_and_inside_folders(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b; pub use b::B;",
        "a.rs": "use crate::B; pub struct A(B);",
        "b.rs": "use super::a::A; pub struct B; // crate::c",
        "c/mod.rs": "mod d; mod e; pub struct C;",
        "c/d.rs": "use super::{C, e::{E, F as G}};",
        "c/e.rs": 'use crate::a::A; fn f() { "super::d::D"; }\n#[cfg(test)]\nmod tests { use crate::c::d::D; }',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    arrows = Crate(tmp_path).arrows()
    assert circles(arrows[()]) == [{"a", "b"}]
    assert circles(arrows[("c",)]) == []
    assert arrows[("c",)] == {"d": {"e"}}
