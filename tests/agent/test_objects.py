"""The objects of the kernel side are what their sources make, byte for byte, wherever the tree lies."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

BPF = Path(__file__).resolve().parents[2] / "crates" / "agent" / "bpf"
MADE_BY = "14.0.6"
"""The clang of Debian 12. Another one makes other instructions, which are as good but not the same bytes."""


def compiler() -> None:
    """The clang that made the objects; else the test is left out, with the reason."""
    clang = shutil.which("clang-14") or shutil.which("clang")
    if clang is None or not (shutil.which("llvm-strip-14") or shutil.which("llvm-strip")):
        pytest.skip("needs clang and llvm-strip")
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        pytest.skip("needs libbpf's headers")
    said = subprocess.run([clang, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"clang version ([\d.]+)", said)
    if found is None or found[1] != MADE_BY:
        pytest.skip(f"the objects were made by clang {MADE_BY}, here is {said.splitlines()[0]}")


def objects(folder: Path) -> dict[str, bytes]:
    """Name → content."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.bpf.o"))}


def test_every_source_has_its_object_and_every_object_its_source() -> None:
    sources = {path.name.removesuffix(".c") for path in BPF.glob("*.bpf.c")}
    assert sources == {name.removesuffix(".o") for name in objects(BPF)}
    assert sources


def test_no_object_names_the_directory_in_which_it_was_made() -> None:
    homes = re.compile(rb"(?<![\w.])/(?:home|root|tmp|work|usr|build|var|opt)/[\w./-]+")
    found = {name: homes.findall(content) for name, content in objects(BPF).items()}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_the_sources_make_the_objects_that_are_kept(tmp_path: Path) -> None:
    compiler()
    # A copy elsewhere: neither the place of the tree nor what git checked out first may matter.
    copy, made = tmp_path / "elsewhere" / "bpf", tmp_path / "made"
    shutil.copytree(BPF, copy, ignore=shutil.ignore_patterns("*.o"))
    made.mkdir()
    subprocess.run([copy / "build", made], check=True, capture_output=True, text=True)
    kept, fresh = objects(BPF), objects(made)
    differ = [name for name in fresh if kept.get(name) != fresh[name]]
    assert differ == [], "run crates/agent/bpf/build and commit what it makes"
    assert set(kept) == set(fresh)
