"""What the tests share: the stand-in for the extension module, and where captures are found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fake_native
import pytest

import unbloat

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("UNBLOAT_SHARED", ROOT.parent / "shared"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every analysis is made up by `fake_native`."""
    monkeypatch.setitem(sys.modules, "unbloat._native", fake_native)
    monkeypatch.setattr(unbloat, "_native", fake_native, raising=False)
    fake_native.calls.clear()


@pytest.fixture
def capture(tmp_path: Path, fake: None) -> Path:
    """A file that the stand-in calls a bloated upload."""
    return made(tmp_path / "cubic.pcapng")


@pytest.fixture
def calm(tmp_path: Path, fake: None) -> Path:
    """A file that the stand-in calls an upload without a queue."""
    return made(tmp_path / "bbr.pcapng")


def made(path: Path) -> Path:
    """A file of any content."""
    path.write_bytes(b"anything")
    return path
