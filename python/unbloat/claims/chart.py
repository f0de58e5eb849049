"""Charts of claims: which of a claim's figures stand beside which points of the source's own figure.

A `[[claim.chart]]` names its axes with their units and its series. A series picks figures of the claim by a name in which
`{x}` stands for the places on the x axis, or by a name for each place, or measures a curve that no figure has: a metric by
ACK number or over time.
The source's points are numbers read from its text or tables, never a copied image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unbloat.claims.figure import PICKED, Figure, Picked, picked
from unbloat.claims.values import UNITS, known, number

# Stands for a place on the x axis in the name of a figure, or in a metric.
PLACE = "{x}"
# Ways to draw: a row of bars for each place, or curves over places in their order.
KINDS = ("bars", "line")
# How the source's points were read, and what the page says of it.
READ = {
    "text": "points read from its text",
    "table": "points read from its table",
    "plot": "points read from the vector data of its plot",
    "equation": "points computed from its equation",
}
# Units without a factor: relations of two runs, and plain numbers such as scores.
PLAIN = ("×", "°", "1")


@dataclass(frozen=True)
class Said:
    """What the source says at a place: a number, a range, or a bound on one side. In the units that metric names end in."""

    least: float | None
    most: float | None


@dataclass(frozen=True)
class Series:
    """Figures, or a curve, with one name in the legend."""

    name: str
    at: tuple[str, ...]
    """Places on the x axis, in their order."""
    figures: tuple[str, ...]
    """Names of the claim's figures, one for each place; none where it is a curve of its own."""
    picks: tuple[Picked, ...]
    """What a curve measures at each place; none where figures are drawn."""
    said: tuple[Said | None, ...]
    """By the source, one for each place."""


@dataclass(frozen=True)
class Guide:
    """A line across the chart at a number that the source states."""

    axis: str
    at: float
    label: str


@dataclass(frozen=True)
class Chart:
    """One chart of a claim."""

    source: str
    """Which figure, table or sentence of which source."""
    read: str
    """How its points were read: a key of `READ`."""
    caption: str
    """What else a reader has to know."""
    points: str
    """Name of the source's points in the legend."""
    x: str
    y: str
    unit: str
    kind: str
    log: bool
    """Whether the axis of values is logarithmic."""
    relative: bool
    """Whether values are divided by the source's: figures of different units in one chart."""
    series: tuple[Series, ...]
    guides: tuple[Guide, ...]

    @property
    def factor(self) -> float:
        """What a value is divided by to be in the chart's unit."""
        return 1.0 if self.unit in PLAIN else UNITS[self.unit]

    @property
    def axis(self) -> str:
        """Label of the axis of values, with its unit."""
        return self.y if self.unit == "1" else f"{self.y}, {self.unit}"


CHART_KEYS = {
    "source", "read", "caption", "points", "x", "y", "unit", "kind", "log", "relative", "series", "guides",
}  # fmt: skip
# A series has `figure` or `metric`; the rest of what picks a number belongs to a curve.
SERIES_KEYS = {"name", "figure", "figures", "at", "said", "span_s"} | (set(PICKED) - {"between"})


def charts(entries: Sequence[Mapping[str, Any]], figures: Sequence[Figure]) -> tuple[Chart, ...]:
    """All `[[claim.chart]]` of a claim. Raises KeyError with one line for what is wrong."""
    names = {figure.name for figure in figures}
    return tuple(chart(entry, f"claim.chart.{n}", names) for n, entry in enumerate(entries))


def chart(entry: Mapping[str, Any], place: str, figures: set[str]) -> Chart:
    """One chart."""
    known(entry, CHART_KEYS, place)
    for key in ("source", "x", "y", "unit", "series"):
        if not entry.get(key):
            raise KeyError(f"{place}.{key} is missing")
    if entry["unit"] not in (*UNITS, *PLAIN):
        raise KeyError(
            f"{place}.unit: there is no {entry['unit']!r}; there are {', '.join((*UNITS, *PLAIN))}"
        )
    kind = entry.get("kind", "bars")
    if kind not in KINDS:
        raise KeyError(f"{place}.kind: there is no {kind!r}; there are {', '.join(KINDS)}")
    read = entry.get("read", "text")
    if read not in READ:
        raise KeyError(f"{place}.read: there is no {read!r}; there are {', '.join(READ)}")
    made = Chart(
        entry["source"],
        read,
        entry.get("caption", ""),
        entry.get("points", "source"),
        entry["x"],
        entry["y"],
        entry["unit"],
        kind,
        bool(entry.get("log", False)),
        bool(entry.get("relative", False)),
        tuple(series(one, f"{place}.series.{n}", figures) for n, one in enumerate(entry["series"])),
        tuple(guide(one, f"{place}.guides.{n}") for n, one in enumerate(entry.get("guides", []))),
    )
    if made.relative and any(not exact(said) for one in made.series for said in one.said):
        raise KeyError(f"{place}.relative: each place needs one number of the source")
    return made


def exact(said: Said | None) -> bool:
    """Whether the source says one number, and not 0."""
    return said is not None and said.least == said.most and bool(said.least)


def series(entry: Mapping[str, Any], place: str, figures: set[str]) -> Series:
    """One series."""
    known(entry, SERIES_KEYS, place)
    if "name" not in entry:
        raise KeyError(f"{place}.name is missing")
    if sum(key in entry for key in ("figure", "figures", "metric")) != 1:
        raise KeyError(
            f"{place}: `figure` or `figures` name figures, `metric` measures a curve; one of them"
        )
    stated = {str(key): value for key, value in entry.get("said", {}).items()}
    named = entry.get("figures", {})
    at = tuple(str(one) for one in places(entry.get("at", list(named or stated)), place))
    if not at:
        raise KeyError(f"{place}: no places; `said` or `at` name them")
    if stray := [key for key in stated if key not in at]:
        raise KeyError(f"{place}.said: {stray[0]!r} is not among the places")
    said = tuple(said_at(stated.get(one), f"{place}.said") for one in at)
    if "metric" in entry:
        return Series(entry["name"], at, (), curve(entry, at, place), said)
    names = tuple(named.get(one, entry.get("figure", "").replace(PLACE, one)) for one in at)
    for name in names:
        if name not in figures:
            raise KeyError(f"{place}.figure: the claim has no figure {name!r}")
    return Series(entry["name"], at, names, (), said)


def places(stated: object, place: str) -> Sequence[object]:
    """Places one by one, or `{ from, until, step }`, ends included."""
    if isinstance(stated, Mapping):
        known(stated, {"from", "until", "step"}, f"{place}.at")
        begin, end, step = (stated[key] for key in ("from", "until", "step"))
        return [round(begin + n * step, 6) for n in range(int((end - begin) / step + 1.5))]
    if not isinstance(stated, list):
        raise KeyError(f"{place}.at: expected a list, or a table of from, until and step")
    return stated


def curve(entry: Mapping[str, Any], at: Sequence[str], place: str) -> tuple[Picked, ...]:
    """What a curve measures at each place: `{x}` in the metric, or `span_s` from the place on, which is a time then."""
    of = {key: value for key, value in entry.items() if key in PICKED}
    base = picked(of, None, place)
    if "span_s" in entry:
        ends = [(float(one), float(one) + float(entry["span_s"])) for one in at]
        return tuple(replace(base, between=end) for end in ends)
    if PLACE not in base.metric and not any(PLACE in value for _, value in base.run):
        raise KeyError(f"{place}: a curve needs {PLACE} in its metric or run, or `span_s`")
    return tuple(
        replace(
            base,
            metric=base.metric.replace(PLACE, one),
            run=tuple((key, value.replace(PLACE, one)) for key, value in base.run),
        )
        for one in at
    )


def said_at(value: object, place: str) -> Said | None:
    """A number, two ends of a range, or a table with `min` or `max`."""
    if value is None:
        return None
    if isinstance(value, list):
        if len(value) != 2:
            raise KeyError(f"{place}: a range has two ends")
        ends = sorted(found for one in value if (found := number(one, place)) is not None)
        return Said(ends[0], ends[1])
    if isinstance(value, Mapping):
        known(value, {"min", "max"}, place)
        return Said(number(value.get("min"), place), number(value.get("max"), place))
    found = number(value, place)
    return Said(found, found)


def guide(entry: Mapping[str, Any], place: str) -> Guide:
    """A line across the chart."""
    known(entry, {"x", "y", "label"}, place)
    if ("x" in entry) == ("y" in entry) or "label" not in entry:
        raise KeyError(f"{place}: needs a label, and x or y")
    axis = "x" if "x" in entry else "y"
    at = number(entry[axis], place)
    return Guide(axis, 0.0 if at is None else at, entry["label"])
