"""The arrows between the rooms, from cargo's own view of the workspace, and the laws that go with them.

Allowed arrows are those of ARCHITECTURE.md; a new crate must be added here, with its arrows, to be built at all.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
ALLOWED: dict[str, set[str]] = {
    "units": set(),
    "algo": {"units"},
    "capture": {"units"},
    "flow": {"capture", "units"},
    "fit": {"algo", "flow", "units"},
    # The units of a key's value are those of the algorithms' parameters.
    "settings": {"algo", "units"},
    "scenario": {"algo", "settings", "units"},
    "sim": {"algo", "capture", "scenario", "units"},
    "netlink": set(),
    "agent": {"algo", "capture", "flow", "netlink", "settings", "units"},
    "emu": {"algo", "capture", "scenario", "sim", "units"},
    "measure": {"algo", "capture", "flow", "netlink", "units"},
    "modem": {"algo", "units"},
    "py": {"algo", "capture", "fit", "flow", "modem", "scenario", "sim", "units"},
}
# Only beside it, for tests.
FOR_TESTS: dict[str, set[str]] = {"emu": {"capture", "sim"}}
NO_STD = {"units", "algo"}
# ioctl on TUN devices and bpf(2) have no safe form; each block there says why it is sound.
UNSAFE = {"agent", "emu"}
# Names that say nothing about what is inside.
EMPTY_NAMES = re.compile(r"(^|_)(core|common|utils?|helpers?|managers?|misc)(_|$)")


@pytest.fixture(scope="module")
def packages() -> dict[str, dict[str, Any]]:
    text = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return {p["name"].removeprefix("unbloat-"): p for p in json.loads(text)["packages"]}


def test_every_crate_is_known_and_has_only_its_arrows(packages: dict[str, dict[str, Any]]) -> None:
    assert set(packages) == set(ALLOWED)
    for name, package in packages.items():
        arrows = {
            d["name"].removeprefix("unbloat-") for d in package["dependencies"] if d.get("path")
        }
        assert arrows <= ALLOWED[name], f"{name} may not depend on {arrows - ALLOWED[name]}"
        built = {
            d["name"].removeprefix("unbloat-") for d in package["dependencies"] if d["kind"] is None
        }
        assert not built & FOR_TESTS.get(name, set()), name


def test_crates_without_std_say_so(packages: dict[str, dict[str, Any]]) -> None:
    for name in NO_STD:
        source = Path(packages[name]["manifest_path"]).parent / "src" / "lib.rs"
        assert "#![no_std]" in source.read_text(), name


def test_every_crate_inherits_the_ban_on_unsafe_code(packages: dict[str, dict[str, Any]]) -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert workspace["workspace"]["lints"]["rust"]["unsafe_code"] == "forbid"
    for name, package in packages.items():
        manifest = tomllib.loads(Path(package["manifest_path"]).read_text())
        if name in UNSAFE:
            own, shared = manifest["lints"], workspace["workspace"]["lints"]
            assert own == shared | {"rust": shared["rust"] | {"unsafe_code": "deny"}}, name
        else:
            assert manifest["lints"] == {"workspace": True}, name


def tracked() -> list[Path]:
    text = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [Path(line) for line in text.splitlines()]


def test_no_file_is_named_after_nothing() -> None:
    assert [
        str(p) for p in tracked() if p.suffix in {".rs", ".py"} and EMPTY_NAMES.search(p.stem)
    ] == []


def test_every_source_file_opens_with_its_idea() -> None:
    silent = []
    for path in tracked():
        text = (
            (ROOT / path).read_text()
            if path.suffix in {".rs", ".py"} and (ROOT / path).exists()
            else None
        )
        if not text:
            continue
        opening = {".rs": ("//!", "#![", "//"), ".py": ('"""', "#!", 'r"""')}[path.suffix]
        if not text.lstrip().startswith(opening):
            silent.append(str(path))
    assert silent == []
