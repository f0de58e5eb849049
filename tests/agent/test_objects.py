"""The committed BPF objects are what their sources make.

Digests beside each object are compared everywhere, without any compiler. Where the pinned clang is
present, the objects are also built again and compared byte for byte, wherever the tree is.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from requirements import unavailable

BPF = Path(__file__).resolve().parents[2] / "crates" / "agent" / "bpf"
PINNED_CLANG = "14.0.6"
"""The clang of Debian 12. Another one makes other instructions: as good, but not the same bytes."""


def require_pinned_clang() -> None:
    """Skips the test, with the reason, where the clang that made the objects is missing."""
    clang = shutil.which("clang-14") or shutil.which("clang")
    if clang is None or not (shutil.which("llvm-strip-14") or shutil.which("llvm-strip")):
        unavailable("clang", "needs clang and llvm-strip")
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        unavailable("clang", "needs libbpf's headers")
    text = subprocess.run([clang, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"clang version ([\d.]+)", text)
    if version is None or version[1] != PINNED_CLANG:
        unavailable(
            "clang", f"the objects were made by clang {PINNED_CLANG}, not {text.splitlines()[0]}"
        )


def objects(folder: Path) -> dict[str, bytes]:
    """Contents by file name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.bpf.o"))}


def local_sources(folder: Path, name: str) -> set[str]:
    """A source and every header of the same folder that it includes, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += re.findall(r'^#include "([^"]+)"', (folder / name).read_text(), re.MULTILINE)
    return found


def outdated(folder: Path) -> list[str]:
    """What in a folder differs from the digests that `build` wrote, a line each."""
    wrong = []
    for source in sorted(folder.glob("*.bpf.c")):
        name = source.name.removesuffix(".c")
        digests = folder / f"{name}.sha256"
        if not digests.exists():
            wrong.append(f"{name}.sha256 is missing")
            continue
        lines = [line.split("  ", 1) for line in digests.read_text().splitlines()]
        recorded = {file: digest for digest, file in lines}
        expected = {"build", f"{name}.o", *local_sources(folder, source.name)}
        for file in sorted(expected ^ set(recorded)):
            wrong.append(
                f"{name}: {file} is {'not' if file in expected else 'no longer'} part of it"
            )
        for file in sorted(expected & set(recorded)):
            path = folder / file
            now = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
            if recorded[file] != now:
                wrong.append(f"{name}: {file} was changed")
    return wrong


def copy_of_sources(to: Path, *, objects_too: bool) -> Path:
    """The folder of the sources, copied; the test may edit it."""
    ignored = () if objects_too else ("*.o", "*.sha256")
    shutil.copytree(BPF, to, ignore=shutil.ignore_patterns(*ignored))
    return to


def test_every_source_has_its_object_and_every_object_its_source() -> None:
    sources = {path.name.removesuffix(".c") for path in BPF.glob("*.bpf.c")}
    assert sources == {name.removesuffix(".o") for name in objects(BPF)}
    assert sources == {path.name.removesuffix(".sha256") for path in BPF.glob("*.sha256")}
    assert sources


def test_no_object_names_the_directory_in_which_it_was_made() -> None:
    homes = re.compile(rb"(?<![\w.])/(?:home|root|tmp|work|usr|build|var|opt)/[\w./-]+")
    paths = {name: homes.findall(content) for name, content in objects(BPF).items()}
    assert {name: found for name, found in paths.items() if found} == {}


def test_no_source_was_edited_without_a_new_object() -> None:
    assert outdated(BPF) == [], "run crates/agent/bpf/build with clang 14 and commit what it makes"


@pytest.mark.parametrize("file", ["path.h", "gate.bpf.c", "acks.bpf.o", "build"])
def test_an_edit_of_any_part_is_noticed_without_a_compiler(file: str, tmp_path: Path) -> None:
    copy = copy_of_sources(tmp_path / "bpf", objects_too=True)
    path = copy / file
    path.write_bytes(path.read_bytes() + b"\n")
    assert any(f": {file} was changed" in line for line in outdated(copy))


def test_a_new_header_is_noticed_without_a_compiler(tmp_path: Path) -> None:
    copy = copy_of_sources(tmp_path / "bpf", objects_too=True)
    (copy / "new.h").write_text("#pragma once\n")
    (copy / "law.h").write_text('#include "new.h"\n' + (copy / "law.h").read_text())
    assert "gate.bpf: new.h is not part of it" in outdated(copy)


def test_the_sources_make_the_committed_objects(tmp_path: Path) -> None:
    require_pinned_clang()
    # A copy elsewhere: neither the place of the tree nor the order of git's checkout may matter.
    copy, made = (
        copy_of_sources(tmp_path / "elsewhere" / "bpf", objects_too=False),
        tmp_path / "made",
    )
    made.mkdir()
    subprocess.run([copy / "build", made], check=True, capture_output=True, text=True)
    committed, built = objects(BPF), objects(made)
    differ = [name for name in built if committed.get(name) != built[name]]
    assert differ == [], "run crates/agent/bpf/build and commit what it makes"
    assert set(committed) == set(built)
    for path in made.glob("*.sha256"):
        assert path.read_text() == (BPF / path.name).read_text()
