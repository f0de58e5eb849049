"""What two transfers are compared by: one table of measures, which feeds the terminal, the page, `--json` and Python.

A measure is made from one row of `flows` and the samples of that flow, and says which way is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unbloat.run.tables import BIN_MS, Row
from unbloat.text.format import (
    LIMITS,
    byte_text,
    count_text,
    limit_text,
    ms_text,
    number,
    rate_text,
    share_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

Value = float | str | None
Better = Literal["higher", "lower"] | None

GRADES = ("A+", "A", "B", "C", "D", "F")
# Differences below this share of the larger value are taken for equal: repeated runs of one transfer differ by as much.
SAME_WITHIN = 0.05


@dataclass(frozen=True)
class Measure:
    """One row of the comparison."""

    name: str
    """As in `--json`; the unit is in the name."""
    label: str
    better: Better
    text: Callable[[Value], str]
    column: str = ""
    """Column of `flows`; empty when the value is made otherwise."""


def as_number(text: Callable[[float | None], str]) -> Callable[[Value], str]:
    """A formatter of numbers, for values that might be words."""
    return lambda value: value if isinstance(value, str) else text(value)


def word(value: Value) -> str:
    """A word as it is."""
    return "–" if value is None else str(value)


def ratio(value: float | None) -> str:
    """A plain factor."""
    return "–" if value is None else number(value)


RATE, MS, COUNT = as_number(rate_text), as_number(ms_text), as_number(count_text)
SHARE, BYTES, RATIO = as_number(share_text), as_number(byte_text), as_number(ratio)

MEASURES: tuple[Measure, ...] = (
    Measure("bytes", "delivered", None, BYTES, "bytes"),
    Measure("goodput_bps", "goodput", "higher", RATE, "goodput_bps"),
    Measure("goodput_cv", "goodput variation (CV)", "lower", RATIO),
    Measure("rtt_ms_min", "RTT min", "lower", MS, "rtt_ms_min"),
    Measure("rtt_ms_p50", "RTT p50", "lower", MS, "rtt_ms_p50"),
    Measure("rtt_ms_p95", "RTT p95", "lower", MS, "rtt_ms_p95"),
    Measure("queue_ms_p95", "queue p95", "lower", MS, "queue_ms_p95"),
    Measure("grade", "bufferbloat grade", "lower", word, "grade"),
    Measure("in_flight_over_bdp", "in flight / BDP", "lower", RATIO, "in_flight_over_bdp"),
    Measure("window_full_share", "window full", "lower", SHARE, "window_full_share"),
    Measure("zero_window_count", "zero windows", "lower", COUNT, "zero_window_count"),
    Measure("retransmissions", "retransmissions", "lower", COUNT, "retransmissions"),
    Measure("retransmissions_fast", "  fast", "lower", COUNT, "retransmissions_fast"),
    Measure("retransmissions_timeout", "  timeout", "lower", COUNT, "retransmissions_timeout"),
    Measure(
        "retransmissions_tail_probe", "  tail probe", "lower", COUNT, "retransmissions_tail_probe"
    ),
    Measure("retransmissions_spurious", "  spurious", "lower", COUNT, "retransmissions_spurious"),
    Measure("loss_rate", "loss rate", "lower", SHARE, "loss_rate"),
    *(
        Measure(f"share_{name}", f"limit: {words[0]}", None, SHARE, f"share_{name}")
        for name, words in LIMITS.items()
    ),
    Measure(
        "limit",
        "main limit",
        None,
        lambda value: limit_text(None if value is None else str(value)),
        "limit",
    ),
)


def figures(flow: Row, samples: pa.Table, bin_ms: float = BIN_MS) -> dict[str, Value]:
    """The value of every measure; the samples are those of bins of `bin_ms`."""
    values: dict[str, Value] = {
        measure.name: flow.get(measure.column) for measure in MEASURES if measure.column
    }
    values["goodput_cv"] = variation(samples, bin_ms / 1000)
    return {measure.name: values[measure.name] for measure in MEASURES}


def variation(samples: pa.Table, bin_s: float = BIN_MS / 1000) -> float | None:
    """Coefficient of variation of delivery per bin, from the first bin that delivered to the last; bins without a row count as 0."""
    times, delivered = (
        samples.column("t_s").to_pylist(),
        samples.column("delivered_bytes").to_pylist(),
    )
    busy = [(time, value) for time, value in zip(times, delivered, strict=True) if value]
    if len(busy) < 2:
        return None
    bins: int = round((busy[-1][0] - busy[0][0]) / bin_s) + 1
    mean: float = sum(value for _, value in busy) / bins
    square: float = sum(value * value for _, value in busy) / bins
    return math.sqrt(max(square - mean * mean, 0.0)) / mean


def rank(value: Value) -> float | None:
    """A number to compare by; a grade counts as its place."""
    if isinstance(value, str):
        return float(GRADES.index(value)) if value in GRADES else None
    return value


def best_and_worst(measure: Measure, values: list[Value]) -> tuple[set[int], set[int]]:
    """Which places hold the best and the worst value; none where the difference says nothing."""
    ranks = [(rank(value), place) for place, value in enumerate(values)]
    known = [(value, place) for value, place in ranks if value is not None]
    if measure.better is None or len(known) < 2:
        return set(), set()
    low, high = min(value for value, _ in known), max(value for value, _ in known)
    if high - low <= SAME_WITHIN * abs(high):
        return set(), set()
    lows, highs = ({place for value, place in known if value == end} for end in (low, high))
    return (highs, lows) if measure.better == "higher" else (lows, highs)
