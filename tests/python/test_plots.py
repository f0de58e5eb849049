"""Figures for papers: in every format, the same for the same run, and a clear word when the extra is missing."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import unbloat
from unbloat.capture.plot import plot


@pytest.mark.parametrize(
    ("name", "magic"), [("f.png", b"\x89PNG"), ("f.pdf", b"%PDF"), ("f.svg", b"<?xml")]
)
def test_a_figure_has_the_format_of_its_name(
    capture: Path, tmp_path: Path, name: str, magic: bytes
) -> None:
    assert plot(unbloat.analyze(capture), tmp_path / name).read_bytes().startswith(magic)


def test_a_flow_without_rtt_can_be_drawn(capture: Path, tmp_path: Path) -> None:
    assert plot(unbloat.analyze(capture), tmp_path / "f.svg", flow=3).stat().st_size > 1000


def test_without_matplotlib_it_says_what_to_install(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(unbloat.UnbloatError, match=r"pip install 'unbloat\[plots\]'"):
        plot(unbloat.analyze(capture), tmp_path / "f.svg")
