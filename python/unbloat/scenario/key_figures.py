"""The figures of a sweep that its table shows, those that decide first, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Callable

from unbloat.run.figures import Figures
from unbloat.run.metrics import METRICS, Text
from unbloat.scenario.confidence import Spread
from unbloat.text.format import number

KeyFigure = tuple[str, str, Text]
"""Title, name and form."""


def key_figures(figures: Figures, main: str | None, known: set[str]) -> list[KeyFigure]:
    """The figures of a sweep's table, those that decide first, as far as they are `known`; `main` is the transfer that
    stands for the scenario."""
    found: list[KeyFigure] = []

    def add(title: str, place: str, metric: str, part: str = "", text: Text | None = None) -> None:
        row = METRICS[metric]
        name = f"{place}.{row.column or row.name}" if place else row.column
        found.append((title, f"{name}_{part}" if part else name, text or row.text))

    add("goodput", "", "total_goodput_bps")
    if main is not None:
        add("RTT p50", main, "flow_rtt_ms", "p50")
        add("p95", main, "flow_rtt_ms", "p95")
        add("queue p95", main, "flow_queue_ms", "p95")
    for name in figures.probes:
        metric = "probe_rtt_ms" if figures.probe(name, "rtt_ms") else "probe_owd_ms"
        add(f"{name} p50", name, metric, "p50")
        add(f"{name} p95", name, metric, "p95")
    for name in figures.transfers:
        add("page p50", name, "page_load_ms", "p50")
        add("file", name, "file_ms", "mean")
        add("response p50", name, "response_ms", "p50")
        add("video", name, "bitrate_bps", "mean")
        add("stalled", name, "stall_s")
        add("MOS", name, "mos")
    if len(figures.transfers) > 1:
        add("Jain's index", "", "fairness")
    if main is not None:
        add("retrans", main, "flow_retransmissions", text=mean_count_text)
    return [figure for figure in found if figure[1] in known]


def spread_text(value: Spread | None, text: Callable[[float | None], str]) -> str:
    """`4.0 ± 0.1 Mbit/s`; the interval only where there is one."""
    if value is None:
        return "–"
    shown = text(value.mean)
    if value.half is None:
        return shown
    figure, _, unit = shown.partition(" ")
    if value.half == 0:
        return f"{figure} ± 0 {unit}".rstrip()
    try:
        size = float(figure.replace(",", ""))
    except ValueError:  # "< 0.01 ms"
        return f"{shown} ± {text(value.half)}"
    # The unit's prefix is a power of ten: both figures are printed in the one that suits the mean.
    scale = 10.0 ** round(math.log10(abs(value.mean / size))) if size and value.mean else 1.0
    half = number(value.half / scale)
    return f"{figure} ± {'0' if half.startswith('<') else half} {unit}".rstrip()


def mean_count_text(value: float | None) -> str:
    """A count, or the mean of several."""
    return "–" if value is None else f"{value:,.0f}" if value == round(value) else number(value)
