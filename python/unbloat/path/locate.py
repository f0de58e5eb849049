"""`locate`: on which segment of a path the queue stands, from captures of successive points.

One native pass over two to eight captures finds every packet at all points, removes clock offset and drift, and counts
delay and loss by segment and direction. `words.py` makes sentences of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from unbloat.capture.analyze import MAX_BIN_MS, MIN_BIN_MS, check_readable, nothing_to_say
from unbloat.errors import CaptureError, UnbloatError
from unbloat.path.tables import TABLES, PathTables
from unbloat.path.words import verdict
from unbloat.run.arrow import arrow_table
from unbloat.run.json import clean, nested
from unbloat.run.tables import BIN_MS, Row
from unbloat.run.write import toml_text

if TYPE_CHECKING:
    from unbloat.report import ReportInfo

Progress = Callable[[int, int], None]


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
    import unbloat._native as _native

    names = [os.fspath(path) for path in paths]
    if not MIN_BIN_MS <= bin_ms <= MAX_BIN_MS:
        raise UnbloatError(f"a bin has {MIN_BIN_MS:g} to {MAX_BIN_MS:,.0f} ms, not {bin_ms:g}")
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


class Located(PathTables):
    """What captures of successive points say of the path between them."""

    @cached_property
    def verdict(self) -> str:
        """Where the queue stands and where packets were lost, in one paragraph."""
        return verdict(self)

    def to_dict(self, series: bool = False) -> Row:
        """As `--json` prints it; `series` adds delays bin by bin and losses one by one."""
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
