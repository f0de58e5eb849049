"""Figures for a paper, drawn by matplotlib, which is an extra: `pip install unbloat[plots]`.

Goodput, RTT, and bytes in flight under the window of one flow stand one above the other on a common time axis. The
ending of the file's name chooses the format (svg, pdf, png).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    times = columns["t_s"]
    goodput, rtt, flight = figure.subplots(3, 1, sharex=True)
    goodput.step(times, scaled(columns["goodput_bps"], 1e6), where="post", linewidth=0.8)
    goodput.set_ylabel("goodput, Mbit/s")
    rtt.plot(times, scaled(columns["rtt_ms"], 1), linewidth=0.8)
    rtt.fill_between(
        times,
        scaled(columns["rtt_ms_min"], 1),
        scaled(columns["rtt_ms_max"], 1),
        alpha=0.25,
        linewidth=0,
    )
    rtt.set_ylabel("RTT, ms")
    flight.plot(times, scaled(columns["in_flight_bytes"], 1e3), linewidth=0.8, label="in flight")
    flight.step(
        times,
        scaled(columns["rwnd_bytes"], 1e3),
        where="post",
        linewidth=0.8,
        label="receive window",
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


def scaled(values: list[float | None], by: float) -> list[float]:
    """Values in another unit; what was not measured leaves a gap in the curve."""
    return [float("nan") if value is None else value / by for value in values]
