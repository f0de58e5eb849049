"""The head of the page: what the corpus has, and what it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unbloat.corpus.corpus import Status
from unbloat.corpus.report.when import day_text
from unbloat.corpus.unit import BAD, DONE, FAILED
from unbloat.text.format import byte_text, count_text, plural

if TYPE_CHECKING:
    import duckdb

# What a figure of the page needs, and what is missing without it.
NEEDED = {
    "captures": "no capture has been analysed yet: every figure is missing",
    "connections": "no capture has an IP packet: every figure is missing",
    "flows": "there is no flow: verdicts and grades are missing",
    "spans": "there is no activity of a device: sizes of sessions are missing",
    "bursts": "there is no data of TCP: durations and rates of flows are missing",
    "slots": "there is no second with data of TCP: the RTT's rise and connections per second are missing",
}


@dataclass(frozen=True)
class Summary:
    """Counts, and sentences about what is not there."""

    facts: list[tuple[str, str]]
    """Word and figure."""
    missing: list[str]


def summary(
    connection: duckdb.DuckDBPyConnection, views: set[str], status: Status, devices: int
) -> Summary:
    """What there is; `devices`: those with a connection that can be judged."""
    rows = {name: count(connection, name) if name in views else 0 for name in NEEDED}
    facts = [("captures", count_text(rows["captures"]))]
    if rows["captures"]:
        names, size, begin_s, end_s, broken = connection.execute(
            """SELECT count(DISTINCT device), sum(bytes), min(t0_s), max(t0_s + duration_s),
            count(*) FILTER (len(warnings) > 0) FROM captures"""
        ).fetchall()[0]
        judged = 0.0
        if devices:
            judged = connection.execute("SELECT sum(connections) FROM cube").fetchall()[0][0]
        facts += [
            ("devices", count_text(names)),
            ("bytes on the wire", byte_text(float(size or 0))),
            ("from", day_text(begin_s)),
            ("to", day_text(end_s)),
            ("connections", count_text(rows["connections"])),
            ("of them judged", count_text(judged)),
        ]
    # Without the first, nothing else can be there.
    missing = [f"{why}." for name, why in NEEDED.items() if not rows[name]]
    missing = missing[: 1 if not rows["captures"] else None]
    if rows["flows"] and not devices:
        missing.append(
            "no connection can be judged: a verdict needs TCP, 11 segments, 3 round trips and 10 ms."
        )
    left = status.units - len(status.receipts)
    for number, words in (
        (left, "not analysed yet"),
        (status.count(BAD), "bad"),
        (status.count(FAILED), "failed"),
    ):
        if number:
            missing.append(
                f"{number:,} of {plural(status.units, 'unit')} {words}; unbloat corpus status names all."
            )
    if rows["captures"] and broken:
        missing.append(
            f"{plural(broken, 'capture')} with warnings: see the column warnings of captures."
        )
    return Summary([*facts, ("units done", f"{status.count(DONE):,} of {status.units:,}")], missing)


def count(connection: duckdb.DuckDBPyConnection, name: str) -> int:
    """Rows of a table or view."""
    return int(connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0])
