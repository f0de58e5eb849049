"""Figures for papers: in every format, the same for the same run, and a clear word when the extra is missing."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import unbloat
from unbloat.capture.plot import draw, plot
from unbloat.charts.spec import BREAK_S
from unbloat.text.format import LIMITS


@pytest.mark.parametrize(
    ("name", "magic"), [("f.png", b"\x89PNG"), ("f.pdf", b"%PDF"), ("f.svg", b"<?xml")]
)
def test_a_figure_has_the_format_of_its_name(
    capture: Path, tmp_path: Path, name: str, magic: bytes
) -> None:
    assert plot(unbloat.analyze(capture), tmp_path / name).read_bytes().startswith(magic)


def test_a_flow_without_rtt_can_be_drawn(capture: Path, tmp_path: Path) -> None:
    assert plot(unbloat.analyze(capture), tmp_path / "f.svg", flow=3).stat().st_size > 1000


class Sparse:
    """A run whose flow has samples before and after a silence of 10 s, and one in the middle of it."""

    name = "sparse"
    TIMES = (0.0, 0.1, 0.5, 0.6, 5.0, 10.0, 10.1)

    def samples(self, **_: object) -> pa.Table:
        rows = [
            {
                "t_s": t,
                "span_s": 0.1,
                "goodput_bps": 1e6,
                "rtt_ms": 40.0,
                "rtt_ms_min": 30.0,
                "rtt_ms_max": 50.0,
                "in_flight_bytes": 1000,
                "rwnd_bytes": 9000,
            }
            for t in self.TIMES
        ]
        return pa.Table.from_pylist(rows)

    def flow(self, _: int) -> dict[str, float]:
        return {f"share_{limit}": 0.0 for limit in LIMITS}


def test_no_curve_leads_over_a_silence() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw(figure, cast(Any, Sparse()), 2, 100.0)
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    assert len(lines) >= 4
    for line in lines:
        x, y = line.get_xdata(), line.get_ydata()
        pairs = zip(zip(x, y, strict=True), zip(x[1:], y[1:], strict=False), strict=False)
        strokes = [(a[0], b[0]) for a, b in pairs if a[1] == a[1] and b[1] == b[1]]
        if line.get_marker() == ".":
            assert list(x) == [5.0], "a lone sample is a dot"
        else:
            assert max(b - a for a, b in strokes) <= BREAK_S
    rtt = figure.axes[1].get_lines()[0]
    spans = sum(1 for v in rtt.get_ydata() if v != v)
    assert spans == 2, "0.1 s to 0.5 s is no silence"


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
