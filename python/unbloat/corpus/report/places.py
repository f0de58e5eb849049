"""Verdicts by device, by interface and by hour of the day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from unbloat.corpus.report.blocks import KINDS, MEASURE_WORDS, legend, share_cell
from unbloat.corpus.report.shares import MEASURES, MIN_DEVICES, Part, Share, shares
from unbloat.corpus.report.shares_svg import bars_svg, hours_svg
from unbloat.corpus.report.worst import NO_DEVICE
from unbloat.text.format import byte_text, count_text, limit_text, plural, seconds_text

if TYPE_CHECKING:
    import duckdb

# Of the largest; all others are one bar. More would make a page of bars alone.
SHOWN = 12
SUM_TEXTS: dict[str, Callable[[float], str]] = {
    "bytes": byte_text,
    "active_s": seconds_text,
    "connections": count_text,
}
RANKED = """
SELECT {column} FROM cube WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY sum(bytes) DESC, 1
"""
BLOATED = "bufferbloat"


@dataclass(frozen=True)
class Place:
    """A row of the table."""

    name: str
    sums: list[str]
    main: str
    """What held most of its bytes back."""
    bloated: list[tuple[str, str]]
    """By each measure the share that bufferbloat held back, and its interval."""


@dataclass(frozen=True)
class Places:
    """One drawing for each measure, and the table."""

    title: str
    word: str
    drawings: list[tuple[str, Markup]]
    legend: list[tuple[str, str]]
    rows: list[Place]


def places(connection: duckdb.DuckDBPyConnection, devices: int) -> list[Places]:
    """What the tables know: interfaces have names in some formats of captures only."""
    found = [
        largest(connection, "device", "By device", False),
        largest(connection, "interface", "By interface of the capture", devices >= MIN_DEVICES),
        by_hour(connection, devices >= MIN_DEVICES),
    ]
    return [one for one in found if one.rows]


def largest(
    connection: duckdb.DuckDBPyConnection, column: str, title: str, intervals: bool
) -> Places:
    """The largest values of a column, by bytes, then the others as one."""
    names = [row[0] for row in connection.execute(RANKED.format(column=column)).fetchall()]
    shown, rest = names[:SHOWN], len(names) - SHOWN
    place = column
    others = f"{plural(rest, f'other {column}')}"
    if rest > 0:
        connection.execute(f"CREATE TEMP TABLE shown_{column} AS SELECT unnest(?) AS name", [shown])
        place = f"CASE WHEN {column} IN (FROM shown_{column}) THEN {column} ELSE '{others}' END"
        shown.append(others)
    parts = shares(connection, "limit", place, intervals)
    ordered = {name or NO_DEVICE: parts[name] for name in shown if name in parts}
    drawings = [
        (
            measure,
            Markup(
                bars_svg(
                    f"{title}, share of {words}",
                    [(name, found, measure) for name, found in ordered.items()],
                    limit_text,
                )
            ),
        )
        for measure, words in MEASURE_WORDS.items()
    ]
    return made(title, column, drawings, ordered)


def by_hour(connection: duckdb.DuckDBPyConnection, intervals: bool) -> Places:
    """The hour in which connections began."""
    parts = shares(connection, "limit", "printf('%02d', hour_utc)", intervals)
    drawings = [
        (
            measure,
            Markup(hours_svg(f"By hour, share of {words}", parts, measure, limit_text)),
        )
        for measure, words in MEASURE_WORDS.items()
    ]
    return made("By hour of the day, UTC", "hour", drawings, parts)


def made(
    title: str,
    word: str,
    drawings: list[tuple[str, Markup]],
    parts: dict[str, list[Part]],
) -> Places:
    """With the legend and the rows of the table."""
    every = [part for listed in parts.values() for part in listed]
    rows = [place(name, listed) for name, listed in parts.items()]
    return Places(title, word, drawings, legend("limit", every), rows)


def place(name: str, parts: list[Part]) -> Place:
    """A row of the table."""
    main = max(parts, key=lambda part: part.sums["bytes"])
    bloated = next((part for part in parts if part.name == BLOATED), None)
    return Place(
        name,
        [SUM_TEXTS[measure](sum(part.sums[measure] for part in parts)) for measure in MEASURES],
        KINDS["limit"].words(main.name),
        [
            share_cell(Share(0.0) if bloated is None else bloated.shares[measure])
            for measure in MEASURES
        ],
    )
