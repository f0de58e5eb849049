"""The tables of located captures as data: points, path segments, clocks, delays, losses, connections.

Words, screen and page take this class and import nothing above it; `Located`, what users get, adds the methods that
say something.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.run.tables import Row
from unbloat.text.names import distinct

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("points", "clocks", "steps", "stretches", "delays", "losses", "connections")
FORWARD, BACKWARD = "forward", "backward"
ENDINGS = (".pcap", ".pcapng", ".cap", ".dmp", ".gz", ".zst")
# Less is a few packets in service, not a queue: grade A+ ends there.
SMALL_MS = 5.0
# From here on the analysis speaks of a standing queue (limit `bufferbloat`).
STANDING_MS = 30.0
# A segment with less than this of the queueing delay is not worth a word beside the main one.
WORTH_NAMING = 0.2


@dataclass(frozen=True)
class PathSegment:
    """A segment in one direction, or the whole path, with the names of its ends."""

    row: Row
    start: str
    end: str

    @property
    def queue_ms(self) -> float | None:
        """p95 of the delay above its smallest."""
        value = self.row["queue_ms_p95"]
        return None if value is None else float(value)

    @property
    def name(self) -> str:
        """`phone → server`"""
        return f"{self.start} → {self.end}"


class PathTables:
    """What captures of successive points say of the path between them."""

    def __init__(self, info: dict[str, Any], tables: dict[str, pa.Table]) -> None:
        self.info = info
        self.tables = tables

    @cached_property
    def names(self) -> list[str]:
        """The points in the order of the path, by their files."""
        return distinct([point_name(str(file)) for file in self.info["files"]])

    @cached_property
    def points(self) -> list[Row]:
        """Rows of `points`."""
        return list(self.tables["points"].to_pylist())

    @cached_property
    def clocks(self) -> list[Row]:
        """Rows of `clocks`, between neighbours."""
        return list(self.tables["clocks"].to_pylist())

    @cached_property
    def steps(self) -> list[Row]:
        """Rows of `steps`."""
        return list(self.tables["steps"].to_pylist())

    @cached_property
    def connections(self) -> list[Row]:
        """Rows of `connections`, the largest first."""
        return list(self.tables["connections"].to_pylist())

    @cached_property
    def _segments(self) -> list[PathSegment]:
        rows = self.tables["stretches"].to_pylist()
        return [
            PathSegment(row, self.names[row["from_point"]], self.names[row["to_point"]])
            for row in rows
        ]

    def segments(self, direction: str) -> list[PathSegment]:
        """Of one direction, in the order in which packets pass them."""
        found = [
            s for s in self._segments if s.row["direction"] == direction and not s.row["whole_path"]
        ]
        return sorted(found, key=lambda s: s.row["from_point"], reverse=direction == BACKWARD)

    def path(self, direction: str) -> PathSegment:
        """From end to end; with two points the only segment."""
        found = [s for s in self._segments if s.row["direction"] == direction]
        return next((s for s in found if s.row["whole_path"]), found[0])

    def delays(self, segment: int) -> pa.Table:
        """The series of one segment (its `id`), bin by bin."""
        import pyarrow.compute as pc

        table = self.tables["delays"]
        return table.filter(pc.equal(table["stretch"], segment))

    @property
    def warnings(self) -> list[str]:
        """What a reader should know first."""
        return [str(line) for line in self.info["warnings"]]

    def way(self, direction: str) -> str:
        """`upstream` where the first point stands on the side that opened most connections, `downstream` the other way."""
        opened = {"a": 0, "b": 0}
        for row in self.connections:
            if row["opened_by"] is not None:
                opened[row["opened_by"]] += row["bytes"]
        if opened["a"] == opened["b"]:
            return direction
        return "upstream" if (direction == FORWARD) == (opened["a"] > opened["b"]) else "downstream"


def point_name(file: str) -> str:
    """A file without what says that it is a capture: `router.wan` of `router.wan.pcapng.gz`, a node and its device."""
    path = Path(Path(file).name)
    while path.suffix.lower() in ENDINGS and path.stem:
        path = Path(path.stem)
    return str(path)
