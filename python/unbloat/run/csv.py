"""Tables and series of a run as CSV, for spreadsheets and programs that read nothing else: one file per table, with the columns of
docs/format.md and a line of their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbloat.run.tables import RunTables
from unbloat.run.write import stored_tables


def write_csv(
    run: RunTables,
    folder: Path,
    series: Sequence[str] = ("samples", "events"),
    bin_ms: float | None = None,
) -> Path:
    """Writes `connections.csv`, `flows.csv`, `findings.csv`, and one file for each of `series`; others are left alone."""
    import pyarrow as pa
    import pyarrow.csv

    folder.mkdir(parents=True, exist_ok=True)
    for name, table in stored_tables(run, series, bin_ms or run.bin_ms).items():
        # Words are stored once, and referred to by number; CSV has no such type.
        plain = [
            column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
            for column in table.columns
        ]
        flat = pa.table(plain, names=table.column_names)
        pyarrow.csv.write_csv(flat, folder / f"{name}.csv")
    return folder
