"""Figures for a paper, drawn by matplotlib, which is an extra: `pip install unbloat[plots]`.

Goodput, RTT, and bytes in flight under the window of one flow stand one above the other on a common time axis. The
ending of the file's name chooses the format (svg, pdf, png).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from unbloat.charts.spec import BREAK_S
from unbloat.errors import UnbloatError
from unbloat.run.run import Run
from unbloat.run.tables import BIN_MS
from unbloat.run.verdict import limit_shares
from unbloat.text.format import direction_id, limit_text, share_text

FORMATS = (".svg", ".pdf", ".png")
# A column of a two-column paper is 3.3 in wide, a page 7 in; this fits both after scaling.
SIZE_IN = (7.0, 6.0)


def plot(run: Run, path: str | Path, flow: int | None = None, bin_ms: float = BIN_MS) -> Path:
    """Save the figure of one flow (the main one by default)."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UnbloatError(f"{path}: a figure ends in {', '.join(FORMATS)}")
    chosen = flow if flow is not None else run.main_flow
    if chosen is None:
        raise UnbloatError(f"{run.name}: holds no TCP data to plot")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnbloatError(
            "plots need matplotlib, which is an extra: pip install 'unbloat[plots]'"
        ) from None
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    draw(figure, run, chosen, bin_ms)
    # Fixed metadata: the same capture gives the same file.
    figure.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def draw(figure: Any, run: Run, flow: int, bin_ms: float) -> None:
    """Three panels on one axis of time."""
    samples = run.samples(flow=flow, bin_ms=bin_ms)
    columns = {name: samples.column(name).to_pylist() for name in samples.column_names}
    times, spans = columns["t_s"], columns["span_s"]
    goodput, rtt, flight = figure.subplots(3, 1, sharex=True)
    goodput.step(*covered(times, spans, columns["goodput_bps"], 1e6), where="post", linewidth=0.8)
    goodput.set_ylabel("goodput, Mbit/s")
    at, mean = broken(times, columns["rtt_ms"])
    rtt.plot(at, mean, linewidth=0.8)
    rtt.plot(*lone(at, mean), ".", color="C0", markersize=2)
    rtt.fill_between(
        at,
        broken(times, columns["rtt_ms_min"])[1],
        broken(times, columns["rtt_ms_max"])[1],
        alpha=0.25,
        linewidth=0,
    )
    rtt.set_ylabel("RTT, ms")
    for column, label in (("in_flight_bytes", "in flight"), ("rwnd_bytes", "receive window")):
        flight.step(
            *covered(times, spans, columns[column], 1e3), where="post", linewidth=0.8, label=label
        )
    flight.set_ylabel("KB")
    flight.set_xlabel("time, s")
    flight.legend(loc="best", frameon=False, fontsize=8)
    for axes in (goodput, rtt, flight):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3, linewidth=0.5)
    shares = ", ".join(
        f"{limit_text(name)} {share_text(share)}"
        for name, share in limit_shares(run.flow(flow))[:3]
    )
    figure.suptitle(
        f"{run.name}, connection {direction_id(flow)}" + (f": {shares}" if shares else ""),
        fontsize=9,
    )


Curve = tuple[list[float], list[float]]


def broken(times: list[float], values: list[float | None]) -> Curve:
    """A curve through the moments with a value that breaks where there is none for longer than `BREAK_S`."""
    curve: Curve = ([], [])
    for t, value in zip(times, values, strict=True):
        if value is None:
            continue
        if curve[0] and t - curve[0][-1] > BREAK_S:
            curve[0].append(curve[0][-1])
            curve[1].append(math.nan)
        curve[0].append(t)
        curve[1].append(value)
    return curve


def lone(times: list[float], values: list[float]) -> Curve:
    """The points of a curve with nothing on either side, which a line does not show."""
    padded = [math.nan, *values, math.nan]
    places = [
        i
        for i, value in enumerate(values)
        if not math.isnan(value) and math.isnan(padded[i]) and math.isnan(padded[i + 2])
    ]
    return [times[i] for i in places], [values[i] for i in places]


def covered(times: list[float], spans: list[float], values: list[float | None], by: float) -> Curve:
    """A staircase over the bins, in another unit. It breaks where a bin has no value, and after a bin that none follows."""
    curve: Curve = ([], [])
    for i, (t, span, value) in enumerate(zip(times, spans, values, strict=True)):
        curve[0].append(t)
        curve[1].append(math.nan if value is None else value / by)
        # Half a bin: times are rounded.
        if i + 1 == len(times) or times[i + 1] > t + 1.5 * span:
            curve[0].extend((t + span, t + span))
            curve[1].extend((curve[1][-1], math.nan))
    return curve
