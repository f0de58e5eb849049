"""The figures of a sweep that its table shows, those that decide first, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Callable

from unbloat.run.metrics import Figures
from unbloat.scenario.confidence import Spread
from unbloat.text.format import ms_text, number, rate_text, score_text, seconds_text

KeyFigure = tuple[str, str, Callable[[float | None], str]]
"""Title, name and form."""


def key_figures(figures: Figures, main: str | None, known: set[str]) -> list[KeyFigure]:
    """The figures of a sweep's table, those that decide first, as far as they are `known`; `main` is the transfer that
    stands for the scenario."""
    found: list[KeyFigure] = [("goodput", "total_goodput_bps", rate_text)]
    if main is not None:
        found += [
            ("RTT p50", f"{main}.rtt_ms_p50", ms_text),
            ("p95", f"{main}.rtt_ms_p95", ms_text),
            ("queue p95", f"{main}.queue_ms_p95", ms_text),
        ]
    for name in figures.probes:
        kind = "rtt_ms" if figures.probe(name, "rtt_ms") else "owd_ms"
        found += [
            (f"{name} p50", f"{name}.{kind}_p50", ms_text),
            (f"{name} p95", f"{name}.{kind}_p95", ms_text),
        ]
    for name in figures.transfers:
        found += [
            ("page p50", f"{name}.page_load_ms_p50", ms_text),
            ("file", f"{name}.file_ms_mean", ms_text),
            ("response p50", f"{name}.response_ms_p50", ms_text),
            ("video", f"{name}.bitrate_bps_mean", rate_text),
            ("stalled", f"{name}.stall_s", seconds_text),
            ("MOS", f"{name}.mos", score_text),
        ]
    if len(figures.transfers) > 1:
        found.append(("fairness", "fairness", score_text))
    if main is not None:
        found.append(("retrans", f"{main}.retransmissions", mean_count_text))
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
