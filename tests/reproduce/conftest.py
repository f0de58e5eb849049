"""Made-up claims: a scenario of a second, and whatever claim a test is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unbloat import claims
from unbloat.claims import Claim, read_claim

SCENARIO = """
name = "made-up"
duration = "4 s"
[link.down]
rate = "4 Mbit/s"
delay = "20 ms"
queue = { kind = "droptail", limit = "1 MB" }
[link.up]
rate = "4 Mbit/s"
delay = "20 ms"
[[flow]]
name = "download"
from = "server"
[[probe]]
name = "ping"
[sweep]
queue = [{ label = "deep" }, { label = "shallow", "link.down.queue" = { kind = "droptail", limit = "20 KB" } }]
[claim]
title = "A deep queue delays"
source = "nobody"
mark = "own"
group = "made up"
"""
FIGURE = """
[[figure]]
name = "ping"
metric = "probe_rtt_ms p95"
run = { queue = "deep" }
min = "100 ms"
why = "it is made up"
control = { run = { queue = "shallow" } }
"""

Writer = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
    """Writes a claim where `unbloat reproduce` looks; `old` and `new` change its text."""

    def write(old: str = "", new: str = "", more: str = "") -> Path:
        text = SCENARIO + FIGURE + more
        assert old in text
        path = tmp_path / "made-up.toml"
        path.write_text(text.replace(old, new) if old else text)
        monkeypatch.setattr(claims, "PLACES", (tmp_path,))
        return path

    return write


@pytest.fixture
def made_up(written: Writer) -> Claim:
    """The claim as it stands above."""
    claim = read_claim(written())
    assert claim is not None
    return claim
