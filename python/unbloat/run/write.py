"""Storing a run: a directory of `run.toml` and Parquet tables, or one `.unbloat` file, which is a zip of it.

The format has a version (docs/format.md); `open.py` reads every version up to `FORMAT`.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.errors import UnbloatError
from unbloat.run.arrow import EXTRA, MODEM, SERIES
from unbloat.run.tables import RunTables
from unbloat.text.toml import TomlError, toml

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
ALWAYS = ("connections", "flows", "findings")
SUFFIX = ".unbloat"


def stored_tables(run: RunTables, series: Sequence[str], bin_ms: float) -> dict[str, pa.Table]:
    """The tables of a run, with the given series in bins of `bin_ms`."""
    if series:
        run.load(None, series, bin_ms)
    tables: dict[str, pa.Table] = {name: getattr(run, name) for name in ALWAYS}
    tables |= {
        name: run.samples(bin_ms=bin_ms) if name == "samples" else getattr(run, name)()
        for name in series
    }
    return tables | run.extra | run.modem


def write_run(
    run: RunTables,
    path: Path,
    series: Sequence[str] = ("samples", "events"),
    bin_ms: float | None = None,
) -> Path:
    """Store a run with the given series; an older run at the same place is replaced, other files are left alone."""
    import pyarrow.parquet as pq

    bin_ms = bin_ms or run.bin_ms
    tables = stored_tables(run, series, bin_ms)
    info = run.info | {"format": FORMAT}
    if "samples" in series:
        info["bin_ms"] = bin_ms
    files: dict[str, bytes] = {"run.toml": toml_text(info).encode("utf-8", "replace")}
    if path.suffix == SUFFIX:
        for name, table in tables.items():
            sink = io.BytesIO()
            pq.write_table(table, sink, compression="zstd")
            files[f"{name}.parquet"] = sink.getvalue()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Parquet is compressed already.
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return path
    path.mkdir(parents=True, exist_ok=True)
    for name in (
        *SERIES,
        *EXTRA,
        *MODEM,
    ):  # a series of an earlier run must not pass for one of this run
        (path / f"{name}.parquet").unlink(missing_ok=True)
    for name, table in tables.items():
        pq.write_table(table, path / f"{name}.parquet", compression="zstd")
    (path / "run.toml").write_bytes(files["run.toml"])
    return path


def toml_text(info: Mapping[str, Any]) -> str:
    """`run` as TOML: plain values and lists of them; other values as their text; what is None is left out."""
    plain = (bool, int, float, str, list, tuple, type(None))
    try:
        return toml({k: v if isinstance(v, plain) else str(v) for k, v in info.items()})
    except TomlError as error:
        raise UnbloatError(f"run.toml: {error}") from None
