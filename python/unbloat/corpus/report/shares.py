"""Shares of bytes, time and connections: by what held connections back, by who did, and by grade.

The view `judged` is read once, into sums by device, interface, hour and verdict. A share of everything, of an hour or of an
interface has a 95 % interval where there are enough devices: the devices are drawn again and again, with replacement.
Connections of one device are alike, so that they are no samples of their own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unbloat.text.format import LIMITS

if TYPE_CHECKING:
    import duckdb

# With two devices, every draw is one of three.
MIN_DEVICES = 3
# Draws of all devices. An end of the interval is then known to about a tenth of its length.
DRAWS = 1000
# With ten thousand devices, fewer draws do, and these are what memory holds.
MAX_DRAWN, MIN_DRAWS = 2_000_000, 200
SEED = 1
MEASURES = ("bytes", "active_s", "connections")

# What is compared: a name → its parts in the order of the page, and the SQL that finds the part.
SIDES = ("device", "other end", "network", "no answer", "start of the transfer", "unknown")
GRADES = ("A+", "A", "B", "C", "D", "F", "none")
SENT_BY = "CASE WHEN upload THEN 'device' ELSE 'other end' END"
RECEIVED_BY = "CASE WHEN upload THEN 'other end' ELSE 'device' END"
PARTS: dict[str, tuple[Sequence[str], str]] = {
    "limit": (tuple(LIMITS), '"limit"'),
    "side": (
        SIDES,
        f"""CASE WHEN "limit" = 'application' THEN {SENT_BY}
        WHEN "limit" IN ('receive_window', 'zero_window') THEN {RECEIVED_BY}
        WHEN "limit" IN ('bufferbloat', 'bottleneck', 'congestion_window') THEN 'network'
        WHEN "limit" = 'timeout' THEN 'no answer'
        WHEN "limit" = 'slow_start' THEN 'start of the transfer' ELSE 'unknown' END""",
    ),
    "grade": (GRADES, "coalesce(grade, 'none')"),
}
CUBE = """
CREATE TEMP TABLE cube AS
SELECT device, interface, hour_utc, upload, "limit", grade, sum(bytes)::DOUBLE AS bytes,
       sum(active_s)::DOUBLE AS active_s, count(*)::DOUBLE AS connections
FROM judged GROUP BY ALL
"""
SUMS = ", ".join(f"sum({one}) AS {one}" for one in MEASURES)
SHARES = ", ".join(f"{one} / nullif(sum({one}) OVER (PARTITION BY place), 0)" for one in MEASURES)
POINTS = f"""
SELECT place, part, {", ".join(MEASURES)}, {SHARES}
FROM (SELECT {{place}} AS place, {{part}} AS part, {SUMS} FROM cube
      WHERE {{place}} IS NOT NULL GROUP BY ALL)
"""
# A part that no drawn device has is a share of 0 in that draw.
INTERVALS = f"""
WITH of_device AS (
  SELECT device, {{place}} AS place, {{part}} AS part, {SUMS} FROM cube
  WHERE {{place}} IS NOT NULL GROUP BY ALL
), parts AS (SELECT DISTINCT place, part FROM of_device),
drawn AS (
  SELECT draw, place, part, {", ".join(f"sum(times * {one}) AS {one}" for one in MEASURES)}
  FROM draws JOIN of_device USING (device) GROUP BY draw, place, part
), totals AS (SELECT draw, place, {SUMS} FROM drawn GROUP BY draw, place)
SELECT place, part, {", ".join(f"quantile_cont(coalesce(d.{one}, 0) / nullif(t.{one}, 0), [0.025, 0.975])" for one in MEASURES)}
FROM totals AS t JOIN parts USING (place) LEFT JOIN drawn AS d USING (draw, place, part)
GROUP BY place, part
"""


@dataclass(frozen=True)
class Share:
    """A share of one, with the ends of its 95 % interval where there is one."""

    share: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Part:
    """One limit, side or grade at one place."""

    name: str
    sums: dict[str, float]
    """bytes, active_s and connections."""
    shares: dict[str, Share]
    """The same as shares of the place's."""


Places = dict[str, list[Part]]
"""A device, an hour, an interface, or `all` → its parts in the order of the page."""


def prepare(connection: duckdb.DuckDBPyConnection) -> int:
    """Reads `judged`, and draws the devices; how many devices there are."""
    connection.execute(CUBE)
    devices = [
        row[0]
        for row in connection.execute("SELECT DISTINCT device FROM cube ORDER BY 1").fetchall()
    ]
    if len(devices) >= MIN_DEVICES:
        import pyarrow as pa

        rng = random.Random(SEED)
        count = min(DRAWS, max(MIN_DRAWS, MAX_DRAWN // len(devices)))
        rows = [
            (draw, device, times)
            for draw in range(count)
            for device, times in Counter(rng.choices(devices, k=len(devices))).items()
        ]
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        connection.register("draws", pa.Table.from_arrays(columns, ["draw", "device", "times"]))
    return len(devices)


def shares(
    connection: duckdb.DuckDBPyConnection, kind: str, place: str = "'all'", intervals: bool = False
) -> Places:
    """Shares of the parts of `kind`, a key of `PARTS`, by `place`, an expression of SQL over the cube."""
    order, part = PARTS[kind]
    found: Places = {}
    ends: dict[tuple[str, str], list[Sequence[float] | None]] = {}
    if intervals:
        for row in connection.execute(INTERVALS.format(place=place, part=part)).fetchall():
            ends[row[0], row[1]] = list(row[2:])
    rows = connection.execute(POINTS.format(place=place, part=part)).fetchall()
    for where, name, *values in sorted(rows, key=lambda row: (row[0], order.index(row[1]))):
        sums, own = values[:3], values[3:]
        limits = ends.get((where, name), [None] * len(MEASURES))
        found.setdefault(where, []).append(
            Part(
                name,
                dict(zip(MEASURES, sums, strict=True)),
                {
                    measure: Share(value or 0.0, *(pair or (None, None)))
                    for measure, value, pair in zip(MEASURES, own, limits, strict=True)
                },
            )
        )
    return found
