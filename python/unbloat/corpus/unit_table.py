"""Units of a corpus as rows, from which a unit is made when it is needed. Names of files need not be UTF-8, so columns hold
their bytes. URLs with credentials stay in memory. `Listed` is the list of units that a corpus stores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from unbloat.corpus.scratch import BATCH, UNIT_COLUMNS, Rows, Scratch
from unbloat.corpus.unit import Unit, is_remote, without_credentials

LISTED = pa.schema(
    [("key", pa.utf8()), ("file", pa.utf8()), ("device", pa.utf8()), ("size_bytes", pa.uint64())]
)
# The largest first, equal ones by their names: a large one that starts last would keep one processor busy alone.
ORDER = "size_bytes DESC, file, key"
# Rows of a group of the stored list: so many are tuples at a time.
GROUP_ROWS = 1 << 13


class UnitTable(Rows):
    """Units in an order. Iterating gives a new dictionary of each."""

    COLUMNS: ClassVar = {
        **UNIT_COLUMNS,
        # Whatever else a unit has, as JSON.
        "rest": "TEXT",
    }

    @classmethod
    def of(cls, scratch: Scratch, units: Iterable[Unit]) -> UnitTable:
        """Every unit once."""
        found = cls.empty(scratch)
        found.put((_row(unit, scratch.secrets) for unit in units), "IGNORE")
        return found.kept(ORDER)

    def first(self, count: int | None) -> UnitTable:
        """So many at most, as they are now: what is stored meanwhile changes nothing."""
        return self.kept(ORDER, count)

    def replaced(self) -> Iterator[str]:
        """Files that have become part of a series, as `Listed` has them."""
        for (rest,) in self.where("""instr(rest, '"replaces": ["')""").select("rest"):
            yield from map(shown, json.loads(rest)["replaces"])

    def __iter__(self) -> Iterator[Unit]:
        rows = self.select(", ".join(self.COLUMNS))
        return (_unit(row, self.scratch.secrets) for row in rows)


class Listed(Rows):
    """The units that belong to a corpus, one of each file."""

    COLUMNS: ClassVar = {"file": "TEXT", "key": "TEXT", "device": "TEXT", "size_bytes": "INTEGER"}

    @classmethod
    def read(cls, scratch: Scratch, path: Path) -> Listed:
        """As it is stored; empty where nothing is."""
        found = cls.empty(scratch)
        if path.exists():
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH, columns=list(cls.COLUMNS)):
                    found.put(zip(*(batch[name].to_pylist() for name in cls.COLUMNS), strict=True))
        return found

    def add(self, units: UnitTable) -> None:
        """Adds units; a file that changed takes the place of what it was, a series that of its files."""
        for file in units.replaced():
            self.scratch.connection.execute(f"DELETE FROM {self.query} WHERE file = ?", (file,))
        self.put(
            (_shown(file), key, _shown(device), size_bytes)
            for key, file, device, size_bytes in units.select("key, file, device, size_bytes")
        )

    def digest(self) -> bytes:
        """Of all rows."""
        whole = hashlib.blake2b()
        for row in self.sorted():
            whole.update(repr(row).encode())
        return whole.digest()

    def sorted(self) -> Iterator[tuple[Any, ...]]:
        """By file, with the columns of `LISTED`."""
        return self.select(", ".join(LISTED.names), "ORDER BY file")

    def parquet(self) -> bytes:
        """As a Parquet file; the same units give the same bytes."""
        sink = pa.BufferOutputStream()
        rows = self.sorted()
        with pq.ParquetWriter(sink, LISTED, compression="zstd") as writer:
            while group := list(islice(rows, GROUP_ROWS)):
                columns = zip(*group, strict=True)
                arrays = [
                    pa.array(column, field.type)
                    for column, field in zip(columns, LISTED, strict=True)
                ]
                writer.write_table(pa.table(arrays, schema=LISTED))
        data: bytes = sink.getvalue().to_pybytes()
        return data


def shown(name: str) -> str:
    """A name of a file in UTF-8, its other bytes as escapes: two files never get the same."""
    return name.encode("utf-8", "backslashreplace").decode()


def _shown(name: bytes) -> str:
    return shown(name.decode("utf-8", "surrogatepass"))


def _row(unit: Unit, secrets: dict[str, str]) -> tuple[Any, ...]:
    """A unit as a row; a URL with credentials goes to `secrets`. Names that are the same are kept once."""
    rest = {key: value for key, value in unit.items() if key not in UnitTable.COLUMNS}
    url = unit["url"]
    secret = is_remote(url) and without_credentials(url) != url
    if secret:
        secrets[unit["key"]] = url
    if secret or url == unit["file"]:
        del rest["url"]
    return (
        unit["key"],
        unit["file"].encode("utf-8", "surrogatepass"),
        unit["device"].encode("utf-8", "surrogatepass"),
        unit["size_bytes"],
        json.dumps(rest),
    )


def _unit(row: tuple[Any, ...], secrets: dict[str, str]) -> Unit:
    """A row as a unit."""
    key, file, device, size_bytes, rest = row
    name = file.decode("utf-8", "surrogatepass")
    return {
        "key": key,
        "url": secrets.get(key, name),
        "file": name,
        "device": device.decode("utf-8", "surrogatepass"),
        "size_bytes": size_bytes,
        **json.loads(rest),
    }
