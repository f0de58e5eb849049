"""What the acceptance tests share: the two samples of post 8, and a capture in the shape of post 4 made here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from requirements import unavailable

import unbloat

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "samples" / "make")]

from reading import ROOT, Reading  # noqa: E402


@pytest.fixture(scope="session")
def cubic() -> Reading:
    """The upload of post 8 with CUBIC."""
    return Reading(unbloat.analyze(ROOT / "samples/bloated-cubic-upload.pcapng.zst"))


@pytest.fixture(scope="session")
def bbr() -> Reading:
    """The same with BBR."""
    return Reading(unbloat.analyze(ROOT / "samples/bloated-bbr-upload.pcapng.zst"))


@pytest.fixture(scope="session")
def wifi(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    """Upload and download of post 4, the upload chosen."""
    import relay_testbed
    import wifi

    if reason := relay_testbed.missing_tools():
        unavailable("root", f"the capture cannot be made here: {reason}")
    try:
        made = wifi.make(tmp_path_factory.mktemp("wifi"))
    except relay_testbed.RunError as doubt:
        unavailable("rates", f"this machine does not keep up with the rates: {doubt}")
    print(f"made at {made.scale:g} of the post's rates")
    run = unbloat.analyze(made.capture)
    to_server = next(row for row in run.connections.to_pylist() if row["b_port"] == 5201)
    return Reading(run, made, 2 * to_server["id"])
