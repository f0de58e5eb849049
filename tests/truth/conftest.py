"""The pairs with known truth, made once per test session (or found in $UNBLOAT_TRUTH), and the shared captures."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import pytest
from requirements import SHARED, require

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "samples" / "make")]


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one sub-directory per pair."""
    if found := os.environ.get("UNBLOAT_TRUTH"):
        return Path(found)
    import generate
    from steady import made

    return made(tmp_path_factory, "truth", generate.generate)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Captures of others, which are not part of the repository."""
    require("captures")
    return SHARED


@pytest.fixture(scope="session")
def made(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ready-made pairs, unpacked, so that every tool can read them."""
    into = tmp_path_factory.mktemp("made")
    for path in (shared / "captures" / "made").glob("*.pcap.gz"):
        (into / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return into
