"""`Run`: the tables of one run, with what they say: a verdict, a data frame, a stored directory, a notebook's cell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from unbloat.run.arrow import SERIES
from unbloat.run.csv import write_csv
from unbloat.run.html import run_html
from unbloat.run.tables import RunTables
from unbloat.run.verdict import verdict
from unbloat.run.write import write_run
from unbloat.text.format import plural, seconds_text

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa


class Run(RunTables):
    """The tables of one run. Made by `unbloat.analyze`, `unbloat.simulate` or `unbloat.open_run`, not by hand."""

    @cached_property
    def verdict(self) -> str:
        """What held the main transfer back, how much queue stood in the way: one paragraph."""
        return verdict(self)

    def to_pandas(self, table: str | pa.Table = "flows") -> pandas.DataFrame:
        """A table of this run (or one given) as a pandas frame whose columns stay in Arrow's memory."""
        import pandas

        if isinstance(table, str):
            table = getattr(self, table)() if table in SERIES else getattr(self, table)
        frame: pandas.DataFrame = table.to_pandas(types_mapper=pandas.ArrowDtype)
        return frame

    def write(
        self,
        path: str | Path,
        series: Sequence[str] = ("samples", "events"),
        bin_ms: float | None = None,
    ) -> Path:
        """Store the run as a directory of run.toml and Parquet tables, or as one file when the name ends in .unbloat."""
        return write_run(self, Path(path), series, bin_ms)

    def write_csv(
        self,
        folder: str | Path,
        series: Sequence[str] = ("samples", "events"),
        bin_ms: float | None = None,
    ) -> Path:
        """Write each table and the given series as a CSV file into a directory."""
        return write_csv(self, Path(folder), series, bin_ms)

    def __repr__(self) -> str:
        count = plural(self.connections.num_rows, "connection")
        findings = plural(self.findings.num_rows, "finding")
        return f"<unbloat.Run {self.name}: {count}, {findings}, {seconds_text(self.info.get('duration_s'))}>"

    def _repr_html_(self) -> str:
        return run_html(self)
