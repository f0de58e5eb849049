"""A run on disk: a directory of `run.toml` and Parquet tables, or one `.unbloat` file, which is a zip of it.

The format has a version (docs/format.md). This reader knows every version up to `FORMAT` and refuses a newer one.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.errors import CaptureError, UnbloatError
from unbloat.run.arrow import EXTRA, SERIES
from unbloat.run.run import BIN_MS, MAX_SEGMENTS, Run

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
ALWAYS = ("connections", "flows", "findings")
SUFFIX = ".unbloat"


def write_run(
    run: Run, path: Path, series: Sequence[str] = ("samples", "events"), bin_ms: float | None = None
) -> Path:
    """Store a run with the given series; an older run at the same place is replaced, other files are left alone."""
    import pyarrow.parquet as pq

    bin_ms = bin_ms or run.bin_ms
    if series:
        run.load(None, series, bin_ms)
    tables: dict[str, pa.Table] = {name: getattr(run, name) for name in ALWAYS}
    tables |= {
        name: run.samples(bin_ms=bin_ms) if name == "samples" else getattr(run, name)()
        for name in series
    }
    tables |= run.extra
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
    for name in (*SERIES, *EXTRA):  # a series of an earlier run must not pass for one of this run
        (path / f"{name}.parquet").unlink(missing_ok=True)
    for name, table in tables.items():
        pq.write_table(table, path / f"{name}.parquet", compression="zstd")
    (path / "run.toml").write_bytes(files["run.toml"])
    return path


def open_run(path: str | os.PathLike[str]) -> Run:
    """Read back what `Run.write` stored."""
    stored = Stored(Path(path))
    extra = [name for name in EXTRA if stored.has(name)]
    return Run(stored.info, {name: stored.table(name) for name in (*ALWAYS, *extra)}, stored)


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a path looks like a stored run rather than a capture."""
    path = Path(path)
    return (path / "run.toml").is_file() or (path.suffix == SUFFIX and path.is_file())


class Stored:
    """The files of a stored run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise FileNotFoundError(2, "No such file or directory", str(path))
        self.info = toml_read(self._bytes("run.toml"), path)
        version = self.info.get("format")
        if not isinstance(version, int) or version < 1:
            raise CaptureError(f"{path}: run.toml does not say which format it is")
        if version > FORMAT:
            raise CaptureError(
                f"{path}: is of format {version}, and this unbloat knows up to {FORMAT}; update it"
            )
        self.info.setdefault("warnings", [])

    def has(self, name: str) -> bool:
        """Whether a table was stored."""
        if self.path.is_dir():
            return (self.path / f"{name}.parquet").is_file()
        try:
            with zipfile.ZipFile(self.path) as archive:
                return f"{name}.parquet" in archive.namelist()
        except zipfile.BadZipFile:
            raise CaptureError(f"{self.path}: is no stored run") from None

    def table(self, name: str) -> pa.Table:
        """One table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_table(pa.BufferReader(self._bytes(f"{name}.parquet")))
        except pa.ArrowException as error:
            raise CaptureError(
                f"{self.path}: {name}.parquet cannot be read: {first_line(error)}"
            ) from None

    def fetch(
        self, kinds: Sequence[str], connections: list[int] | None, bin_ms: float, max_segments: int
    ) -> dict[str, pa.Table]:
        """The stored series; there is no capture to compute others from."""
        stored_bin = self.info.get("bin_ms", BIN_MS)
        if "samples" in kinds and not math.isclose(bin_ms, stored_bin):
            raise UnbloatError(
                f"{self.path}: samples are stored in bins of {stored_bin:g} ms, not {bin_ms:g}"
            )
        if "segments" in kinds and max_segments != MAX_SEGMENTS:
            raise UnbloatError(
                f"{self.path}: segments are stored with at most {MAX_SEGMENTS:,} per flow"
            )
        tables = {kind: self.table(kind) for kind in kinds}
        if connections is None:
            return tables
        from unbloat.run.run import only_flows, pair

        flows: set[int] = set().union(*map(pair, connections))
        return {kind: only_flows(table, flows) for kind, table in tables.items()}

    def _bytes(self, name: str) -> bytes:
        try:
            if self.path.is_dir():
                return (self.path / name).read_bytes()
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(name)
        except (KeyError, FileNotFoundError):
            raise CaptureError(f"{self.path}: the stored run has no {name}") from None
        except zipfile.BadZipFile:
            raise CaptureError(f"{self.path}: is no stored run") from None


def first_line(error: BaseException) -> str:
    """The first line of a message."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def toml_read(data: bytes, path: Path) -> dict[str, Any]:
    """Parse run.toml."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(data.decode())
    except ValueError as error:  # both "not UTF-8" and "not TOML"
        raise CaptureError(f"{path}: run.toml cannot be read: {first_line(error)}") from None


def toml_text(info: Mapping[str, Any]) -> str:
    """`run` as TOML: plain values and lists of them; what is None is left out."""
    return "".join(
        f"{key} = {toml_value(value)}\n" for key, value in info.items() if value is not None
    )


def toml_value(value: object) -> str:
    """One value. JSON strings are TOML strings but for DEL, which TOML wants escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise UnbloatError(f"run.toml cannot hold {value}")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
