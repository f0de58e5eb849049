"""The arrows between the folders of `python/unbloat`, from every import in every file.

Counted are imports at the top of a file, inside functions, and under `TYPE_CHECKING`: a type that stands above its user
is an upward arrow like any other. Only the package that contains a module is not counted, which Python imports by
itself. A new folder must be added to `ALLOWED`, with its arrows; a file may import what its folder may, and no file
may reach itself.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "python"
# Folder → what it may import, the lowest first: nothing stands before what it imports. Modules beside the folders
# are named one by one.
ALLOWED: dict[str, set[str]] = {
    "_native": set(),
    "version": set(),
    "errors": set(),
    "bundled": {"errors"},
    "text": set(),
    "tasks": {"errors", "version"},
    "charts": set(),
    "run": {"errors", "text"},
    "modem": {"_native", "errors", "run", "text"},
    "capture": {"_native", "charts", "errors", "modem", "run", "tasks", "text"},
    "report": {"charts", "errors", "run", "text"},
    "comparison": {"capture", "errors", "report", "run", "text"},
    "scenario": {"_native", "comparison", "errors", "report", "run", "tasks", "text"},
    "path": {"_native", "capture", "charts", "errors", "report", "run", "text"},
    "link": {"_native", "capture", "charts", "errors", "report", "run", "text", "version"},
    "lab": {"_native", "errors", "run", "scenario", "text"},
    "claims": {
        "_native",
        "capture",
        "charts",
        "errors",
        "lab",
        "report",
        "run",
        "scenario",
        "tasks",
        "text",
        "version",
    },
    "corpus": {"_native", "charts", "errors", "report", "run", "tasks", "text", "version"},
    "front": {"errors", "lab", "run", "scenario", "text", "version"},
    "prediction": {
        "capture",
        "charts",
        "errors",
        "front",
        "lab",
        "link",
        "report",
        "run",
        "scenario",
        "text",
        "version",
    },
    "phones": {"corpus", "errors", "run", "scenario", "text"},
    "fairness": {"front", "lab", "run", "scenario", "text"},
    "agent": {"charts", "errors", "lab", "report", "text", "version"},
    "measured": {"charts", "errors", "lab", "report", "run", "text", "version"},
    "plots": {"capture"},
    "recording": {"errors", "text"},
    # The package itself: the public names.
    "unbloat": {
        "capture",
        "comparison",
        "corpus",
        "errors",
        "lab",
        "link",
        "modem",
        "path",
        "prediction",
        "run",
        "scenario",
        "version",
    },
    "cli": {
        "_native",
        "agent",
        "bundled",
        "capture",
        "charts",
        "claims",
        "comparison",
        "corpus",
        "errors",
        "fairness",
        "front",
        "lab",
        "link",
        "measured",
        "path",
        "phones",
        "prediction",
        "recording",
        "report",
        "run",
        "scenario",
        "tasks",
        "text",
        "version",
    },
    "__main__": {"cli"},
}
# The lab is large enough for arrows of its own. Its modules beside the folders are "lab".
LAB: dict[str, set[str]] = {
    "lab": {"agent", "cleanup", "result", "setup", "traffic"},
    "agent": {"cleanup", "lab", "setup"},
    "cleanup": {"lab"},
    "result": {"traffic"},
    "setup": {"agent", "lab", "traffic"},
    "traffic": set(),
}


def modules() -> dict[str, Path]:
    """Every module by its full name; a package by the name of its folder."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in ROOT.glob("unbloat/**/*.py")
    }


MODULES = modules()


def imports(name: str) -> dict[str, int]:
    """The modules of unbloat that a file imports, with the line; `_native` is compiled and has no file."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name: node.lineno for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: a relative import"
            for one in node.names:
                full = f"{node.module}.{one.name}"
                known = full in MODULES or one.name == "_native"
                found[full if known else str(node.module)] = node.lineno
    return {module: line for module, line in found.items() if module.split(".")[0] == "unbloat"}


GRAPH = {name: imports(name) for name in MODULES}


def folder(module: str) -> str:
    """The folder below `unbloat`, or the module beside the folders."""
    return [*module.split("."), "unbloat"][1] if module != "unbloat" else "unbloat"


def lab_folder(module: str) -> str:
    """The folder below `unbloat.lab`; of a module beside those `lab`."""
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and parts[2] in LAB else "lab"


def test_every_folder_is_known_and_has_only_its_arrows() -> None:
    assert {folder(name) for name in MODULES} | {"_native"} == set(ALLOWED)
    upward = [
        f"{name}:{line}: {folder(name)} may not import {module}"
        for name, found in GRAPH.items()
        for module, line in found.items()
        if folder(module) not in {folder(name), *ALLOWED[folder(name)]}
    ]
    assert upward == []


def test_the_arrows_point_downward() -> None:
    order = list(ALLOWED)
    upward = [
        (above, below)
        for above, allowed in ALLOWED.items()
        for below in allowed
        if order.index(below) >= order.index(above)
    ]
    assert upward == []


def test_no_arrow_is_allowed_that_no_file_needs() -> None:
    used = {(folder(name), folder(module)) for name, found in GRAPH.items() for module in found}
    unused = [
        (above, below)
        for above, allowed in ALLOWED.items()
        for below in allowed
        if (above, below) not in used
    ]
    assert unused == []


def test_folders_of_the_lab_have_only_their_arrows() -> None:
    inside = {name for name in MODULES if folder(name) == "lab"}
    assert {lab_folder(name) for name in inside} == set(LAB)
    wrong = [
        f"{name}:{line}: {lab_folder(name)} may not import {module}"
        for name in sorted(inside)
        for module, line in GRAPH[name].items()
        if module in inside and lab_folder(module) not in {lab_folder(name), *LAB[lab_folder(name)]}
    ]
    assert wrong == []


def test_no_file_reaches_itself() -> None:
    state: dict[str, int] = {}
    circles: list[str] = []

    def visit(module: str, way: list[str]) -> None:
        if state.get(module) == 2:
            return
        if state.get(module) == 1:
            circles.append(" → ".join([*way[way.index(module) :], module]))
            return
        state[module] = 1
        for below in GRAPH.get(module, {}):
            visit(below, [*way, module])
        state[module] = 2

    for module in GRAPH:
        visit(module, [])
    assert circles == []


def test_no_import_is_renamed_to_what_its_module_was_called_before() -> None:
    """`import x as y` only for what the world abbreviates that way, and for two names that would be one."""
    usual = {"pa", "pc", "pq", "_native", "tomllib"}
    renamed = [
        f"{name}:{node.lineno}: {one.name} as {one.asname}"
        for name, path in MODULES.items()
        if folder(name) != "lab"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
        if one.asname is not None and one.asname not in usual and one.asname != one.name
    ]
    assert renamed == []
