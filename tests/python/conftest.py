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


UPLOAD = """
name = "upload"
duration = "{duration_s} s"
[link.up]
rate = "{rate_mbps} Mbit/s"
delay = "20 ms"
queue = {{ kind = "droptail", limit = "{limit_kb} KB" }}
[link.down]
rate = "100 Mbit/s"
delay = "20 ms"
[[flow]]
name = "upload"
from = "client"
to = "server"
{flow}
"""


def upload(
    folder: Path, rate_mbps: int, limit_kb: int, duration_s: int, flow: str = ""
) -> tuple[Path, Path]:
    """The scenario of an upload through a drop-tail queue, 40 ms without it, and the client's capture of it."""
    scenario = folder / "link.toml"
    scenario.write_text(
        UPLOAD.format(rate_mbps=rate_mbps, limit_kb=limit_kb, duration_s=duration_s, flow=flow)
    )
    assert isinstance(unbloat.simulate(scenario, pcap=folder), unbloat.Run)
    return scenario, next(folder.rglob("client.pcapng"))
