"""Reading back a stored run (`write.py` stores it): every version of the format up to `FORMAT`, no newer one."""

from __future__ import annotations

import math
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.errors import CaptureError, UnbloatError
from unbloat.run.arrow import EXTRA, MODEM
from unbloat.run.run import Run
from unbloat.run.tables import BIN_MS, MAX_SEGMENTS
from unbloat.run.write import ALWAYS, FORMAT, SUFFIX

if TYPE_CHECKING:
    import pyarrow as pa


def open_run(path: str | os.PathLike[str]) -> Run:
    """Read back what `Run.write` stored."""
    stored = Stored(Path(path))
    extra = [name for name in (*EXTRA, *MODEM) if stored.has(name)]
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
        from unbloat.run.tables import only_flows, pair

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
