"""The points of a claim's charts: the figures of its outcomes beside the source's, in the chart's unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unbloat.claims.chart import Chart, Said, Series
from unbloat.claims.judge import Outcome
from unbloat.scenario.confidence import Spread


@dataclass(frozen=True)
class Point:
    """One place of a series: ours with half its 95 % interval, and what the source says."""

    at: str
    ours: float | None
    half: float
    said: Said | None


@dataclass(frozen=True)
class Drawn:
    """A series with its points."""

    name: str
    points: tuple[Point, ...]
    curve: bool
    """Whether it is a curve of many places, drawn without a mark at each."""


def drawn(chart: Chart, outcomes: Sequence[Outcome]) -> list[Drawn]:
    """Every series of a chart of the claim whose outcomes these are."""
    spreads = {one.figure.name: one.measured for one in outcomes}
    measured = dict(zip(outcomes[0].claim.curves, outcomes[0].curves, strict=False))
    return [
        Drawn(
            series.name,
            tuple(
                point(chart, at, found, said)
                for at, found, said in zip(
                    series.at,
                    [measured.get(pick) for pick in series.picks]
                    or [spreads[name] for name in series.figures],
                    series.said,
                    strict=True,
                )
            ),
            is_curve(series),
        )
        for series in chart.series
    ]


# With more places than this, marks at each would hide the curve.
MAX_MARKED = 12


def is_curve(series: Series) -> bool:
    """Whether a series measures a curve of many places."""
    return bool(series.picks) and len(series.at) > MAX_MARKED


def point(chart: Chart, at: str, found: Spread | None, said: Said | None) -> Point:
    """One place, in the chart's unit, or over the source's number where the chart is relative."""
    scale = chart.factor
    if chart.relative and said is not None and said.least:
        scale = said.least
    return Point(
        at,
        None if found is None else found.mean / scale,
        0.0 if found is None else (found.half or 0.0) / scale,
        None if said is None else Said(scaled(said.least, scale), scaled(said.most, scale)),
    )


def scaled(value: float | None, scale: float) -> float | None:
    """An end that is there, in another unit."""
    return None if value is None else value / scale
