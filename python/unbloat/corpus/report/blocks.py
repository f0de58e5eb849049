"""Shares as the page shows them: a drawing of each, what its colours mean, and a table with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from unbloat.corpus.report.looks import style
from unbloat.corpus.report.shares import MEASURES, MIN_DEVICES, PARTS, Part, Share, shares
from unbloat.corpus.report.shares_svg import bars_svg
from unbloat.report.headline import GRADES
from unbloat.text.format import LIMITS, NOTHING, limit_text, share_text

if TYPE_CHECKING:
    import duckdb

# Words for the measures, as the page names them.
MEASURE_WORDS = {"bytes": "bytes", "active_s": "time", "connections": "connections"}
SIDE_MEANINGS = {
    "device": "its application had nothing to send, or did not read fast enough",
    "other end": "the same of the host at the other end",
    "network": "the rate of the bottleneck, a standing queue before it, or losses",
    "no answer": LIMITS["timeout"][2],
    "start of the transfer": LIMITS["slow_start"][2],
    "unknown": LIMITS["unknown"][2],
}


@dataclass(frozen=True)
class Kind:
    """How one of `PARTS` is shown."""

    title: str
    words: Callable[[str], str]
    meanings: dict[str, str]


def grade_text(name: str) -> str:
    """A grade, or that there is none."""
    return "no grade" if name == "none" else name


KINDS = {
    "limit": Kind(
        "What held connections back", limit_text, {name: words[2] for name, words in LIMITS.items()}
    ),
    "side": Kind("Who held them back", str, SIDE_MEANINGS),
    "grade": Kind(
        "Grades of the added delay",
        grade_text,
        {**GRADES, "none": "not loaded for long enough, or its RTT is unknown"},
    ),
}


@dataclass(frozen=True)
class Row:
    """A part in the table."""

    part: Part
    name: str
    style: str
    meaning: str
    cells: list[tuple[str, str]]
    """By each measure the share, and its interval or nothing."""


@dataclass(frozen=True)
class Block:
    """A drawing with its legend and table."""

    title: str
    word: str
    svg: Markup
    legend: list[tuple[str, str]]
    """Style and words of each part."""
    rows: list[Row]


def block(connection: duckdb.DuckDBPyConnection, kind: str, devices: int) -> Block:
    """All connections together."""
    parts = shares(connection, kind, intervals=devices >= MIN_DEVICES)["all"]
    own = KINDS[kind]
    bars = [(f"share of {words}", parts, measure) for measure, words in MEASURE_WORDS.items()]
    return Block(
        own.title,
        kind,
        # Made of numbers and escaped words.
        Markup(bars_svg(own.title, bars, own.words)),
        legend(kind, parts),
        [
            Row(
                part,
                own.words(part.name),
                style(part.name),
                own.meanings[part.name],
                [share_cell(part.shares[measure]) for measure in MEASURES],
            )
            for part in parts
        ],
    )


def legend(kind: str, parts: Sequence[Part]) -> list[tuple[str, str]]:
    """The parts that there are, each once, in the order of the page."""
    there = {part.name for part in parts}
    return [(style(name), KINDS[kind].words(name)) for name in PARTS[kind][0] if name in there]


def share_cell(share: Share | None) -> tuple[str, str]:
    """The share, and its interval."""
    if share is None:
        return NOTHING, ""
    if share.low is None or share.high is None:
        return share_text(share.share), ""
    low, high = share_text(share.low), share_text(share.high)
    return share_text(share.share), high if low == high else f"{low.removesuffix(' %')} – {high}"
