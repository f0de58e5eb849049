"""The pairs with known truth, made once per test session (or found in $UNBLOAT_TRUTH), and the shared captures."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "samples" / "make")]


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one sub-directory per pair."""
    if found := os.environ.get("UNBLOAT_TRUTH"):
        return Path(found)
    import bed
    import generate

    if reason := bed.missing_tools():
        pytest.skip(f"the pairs cannot be made here: {reason}")
    into = tmp_path_factory.mktemp("truth")
    generate.generate(into)
    return into


@pytest.fixture(scope="session")
def shared() -> Path:
    """Captures of others, which are not part of the repository."""
    path = Path(os.environ.get("UNBLOAT_SHARED", HERE.parents[2] / "shared"))
    if not (path / "captures").is_dir():
        pytest.skip(f"{path} holds no captures; set UNBLOAT_SHARED")
    return path


@pytest.fixture(scope="session")
def made(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ready-made pairs, unpacked, so that every tool can read them."""
    into = tmp_path_factory.mktemp("made")
    for path in (shared / "captures" / "made").glob("*.pcap.gz"):
        (into / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return into
