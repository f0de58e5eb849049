"""`locate`: on which stretch of a path the queue stands, from captures of successive points.

signal: two to eight captures of one path · model: one native pass finds every packet at all points, removes clock offset and
drift, and counts delay and loss by stretch and direction; words are made here · action: a `Located`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.capture.analyze import LONGEST_BIN_MS, SHORTEST_BIN_MS, check_readable, nothing_to_say
from unbloat.comparison.compare import distinct
from unbloat.errors import CaptureError, UnbloatError
from unbloat.run.arrow import arrow_table
from unbloat.run.run import BIN_MS, Row

if TYPE_CHECKING:
    import pyarrow as pa

    from unbloat.report import ReportInfo

Progress = Callable[[int, int], None]
TABLES = ("points", "clocks", "steps", "stretches", "delays", "losses", "connections")
FORWARD, BACKWARD = "forward", "backward"
ENDINGS = (".pcap", ".pcapng", ".cap", ".dmp", ".gz", ".zst")
# Less is a few packets in service, not a queue: grade A+ ends there.
SMALL_MS = 5.0
# From here on the analysis speaks of a standing queue (limit `bufferbloat`).
STANDING_MS = 30.0
# A stretch with less than this of the queueing delay is not worth a word beside the main one.
WORTH_NAMING = 0.2


def locate(
    paths: Sequence[str | os.PathLike[str]],
    *,
    bin_ms: float = BIN_MS,
    connection: int | None = None,
    one_clock: bool = False,
    progress: Progress | None = None,
) -> Located:
    """Lay captures of successive points of one path beside each other: where the queue stands, where packets were lost.

    `bin_ms` is the length of a bin of the series, `connection` counts one connection alone, `one_clock` says that all
    captures read the same clock, so that nothing is corrected. Raises `CaptureError` for what is no readable capture or
    has no packet in common with the others, and `FileNotFoundError`.
    """
    from unbloat import _native

    names = [os.fspath(path) for path in paths]
    if not SHORTEST_BIN_MS <= bin_ms <= LONGEST_BIN_MS:
        raise UnbloatError(
            f"a bin has {SHORTEST_BIN_MS:g} to {LONGEST_BIN_MS:,.0f} ms, not {bin_ms:g}"
        )
    for name in names:
        if name == "-":
            raise UnbloatError(
                "standard input (-) cannot be one of the captures: each is read twice"
            )
        check_readable(name)
    try:
        result = _native.locate(
            names,
            bin_ms=bin_ms,
            connection=connection,
            one_clock=one_clock,
            progress=progress or nothing_to_say,
        )
    except _native.CaptureError as error:
        raise CaptureError(str(error)) from None
    except ValueError as error:
        raise UnbloatError(str(error)) from None
    tables = {name: arrow_table(columns) for name, columns in result["tables"].items()}
    return Located(dict(result["run"]) | {"bin_ms": bin_ms}, tables)


def point_name(file: str) -> str:
    """A file without what says that it is a capture: `router.wan` of `router.wan.pcapng.gz`, a node and its device."""
    path = Path(Path(file).name)
    while path.suffix.lower() in ENDINGS and path.stem:
        path = Path(path.stem)
    return str(path)


@dataclass(frozen=True)
class Stretch:
    """A stretch in one direction, or the whole path, with the names of its ends."""

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


class Located:
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
    def _stretches(self) -> list[Stretch]:
        rows = self.tables["stretches"].to_pylist()
        return [
            Stretch(row, self.names[row["from_point"]], self.names[row["to_point"]]) for row in rows
        ]

    def stretches(self, direction: str) -> list[Stretch]:
        """Of one direction, in the order in which packets pass them."""
        found = [
            s
            for s in self._stretches
            if s.row["direction"] == direction and not s.row["whole_path"]
        ]
        return sorted(found, key=lambda s: s.row["from_point"], reverse=direction == BACKWARD)

    def path(self, direction: str) -> Stretch:
        """From end to end; with two points the only stretch."""
        found = [s for s in self._stretches if s.row["direction"] == direction]
        return next((s for s in found if s.row["whole_path"]), found[0])

    def delays(self, stretch: int) -> pa.Table:
        """The series of one stretch (its `id`), bin by bin."""
        import pyarrow.compute as pc

        table = self.tables["delays"]
        return table.filter(pc.equal(table["stretch"], stretch))

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

    @cached_property
    def verdict(self) -> str:
        """Where the queue stands and where packets were lost, in one paragraph."""
        from unbloat.path.text import verdict

        return verdict(self)

    def to_dict(self, series: bool = False) -> Row:
        """As `--json` prints it; `series` adds delays bin by bin and losses one by one."""
        from unbloat.run.json import clean, nested

        wanted = [name for name in TABLES if series or name not in ("delays", "losses")]
        rows = {name: self.tables[name].to_pylist() for name in wanted}
        return {
            "format": self.info["format"],
            "run": clean(self.info) | {"names": self.names},
            **{
                name: [nested(row) if name == "stretches" else clean(row) for row in rows[name]]
                for name in wanted
            },
            "verdict": self.verdict,
        }

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Store all tables as Parquet in a directory, beside `run.toml`."""
        import pyarrow.parquet as pq

        from unbloat.run.open import toml_text

        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            pq.write_table(self.tables[name], directory / f"{name}.parquet", compression="zstd")
        (directory / "run.toml").write_bytes(
            toml_text(self.info | {"names": self.names}).encode("utf-8", "replace")
        )
        return directory

    def write_report(self, path: str | os.PathLike[str]) -> ReportInfo:
        """Write a self-contained page."""
        from unbloat.path.page import write_located

        return write_located(self, Path(path))

    def __repr__(self) -> str:
        return f"<Located {' – '.join(self.names)}: {self.verdict}>"
