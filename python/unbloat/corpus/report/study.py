"""The corpus beside QCUT's study: its curves, thinned to what a drawing shows, and how far they are from the paper's points.

The distance is that of Kolmogorov and Smirnov, taken at the paper's points alone: its curves between them are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unbloat.corpus.report.paper import PANELS, Panel

if TYPE_CHECKING:
    import duckdb

# Points of a curve across its drawing: finer steps than a pixel are not seen.
STEPS = 300


@dataclass(frozen=True)
class Compared:
    """One series: our curve, and ours at each of the paper's points."""

    name: str
    n: int
    """Values behind our curve."""
    curve: tuple[tuple[float, float], ...]
    """(x, F), F the share with no more than x; thinned."""
    points: tuple[tuple[float, float, float], ...]
    """x, the paper's F, ours."""

    @property
    def ks(self) -> float | None:
        """Largest difference at the points; None without a curve."""
        return max(abs(theirs - ours) for _, theirs, ours in self.points) if self.n else None


@dataclass(frozen=True)
class Study:
    """One panel with its series."""

    panel: Panel
    series: tuple[Compared, ...]


def study(connection: duckdb.DuckDBPyConnection, views: set[str]) -> list[Study]:
    """Every panel; without the view of one, its series have the paper's points alone."""
    made: set[str] = set()
    found = []
    for panel in PANELS:
        if panel.view in views and panel.view not in made:
            # Read once: each view is a query over a whole table.
            connection.execute(f"CREATE TEMP TABLE own_{panel.view} AS FROM {panel.view}")
            made.add(panel.view)
        found.append(
            Study(
                panel,
                tuple(
                    compared(connection, panel, name)
                    if panel.view in views
                    else Compared(name, 0, (), tuple((x, share, 0.0) for x, share in points))
                    for name, points in panel.series.items()
                ),
            )
        )
    return found


def compared(connection: duckdb.DuckDBPyConnection, panel: Panel, name: str) -> Compared:
    """One series of a panel."""
    own = f"(SELECT x, F, n FROM own_{panel.view} WHERE series = ?)"
    # A logarithmic axis has no 0: what lies below it is at its left end.
    place = f"ln(greatest(x, {panel.least}))" if panel.log else "x"
    width = f"(ln({panel.most}) - ln({panel.least}))" if panel.log else panel.most - panel.least
    curve = connection.execute(
        f"""SELECT max(x), max(F), max(n) FROM {own} WHERE x <= {panel.most}
        GROUP BY floor({place} / {width} * {STEPS}) ORDER BY 1""",
        [name],
    ).fetchall()
    counts = connection.execute(f"SELECT coalesce(max(n), 0) FROM {own}", [name]).fetchall()
    points = connection.execute(
        f"""SELECT p.x, p.F, coalesce(max(o.F), 0)
        FROM (SELECT unnest(?::DOUBLE[]) AS x, unnest(?::DOUBLE[]) AS F) AS p
        LEFT JOIN {own} AS o ON o.x <= p.x GROUP BY p.x, p.F ORDER BY p.x, p.F""",
        [[x for x, _ in panel.series[name]], [share for _, share in panel.series[name]], name],
    ).fetchall()
    return Compared(name, counts[0][0], tuple((x, share) for x, share, _ in curve), tuple(points))
