"""Many units in little memory: columns of Arrow, from which a unit is made when it is needed.

A unit as a dictionary takes 1.5 KB of Python, as a row 0.2 KB: a hundred thousand take 20 MB. Names of files need not be
UTF-8, so columns hold their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from unbloat.corpus.unit import Unit

# Units that are dictionaries at a time.
BATCH = 1 << 12
SCHEMA = pa.schema(
    [
        ("key", pa.utf8()),
        ("file", pa.binary()),
        ("device", pa.binary()),
        ("size_bytes", pa.uint64()),
        # Whatever else a unit has, as JSON.
        ("rest", pa.binary()),
    ]
)
LISTED = pa.schema(
    [("key", pa.utf8()), ("file", pa.utf8()), ("device", pa.utf8()), ("size_bytes", pa.uint64())]
)
"""Columns of the list of units that is stored."""


class UnitTable:
    """Units in an order. Iterating gives a new dictionary of each."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    @classmethod
    def of(cls, units: Iterable[Unit]) -> UnitTable:
        """In the order given."""
        made = [
            pa.Table.from_pylist([_row(one) for one in some], SCHEMA) for some in in_batches(units)
        ]
        return cls(pa.concat_tables(made) if made else SCHEMA.empty_table())

    def largest_first(self) -> UnitTable:
        """Of equal ones by their names."""
        order = pc.sort_indices(self.rows, [("size_bytes", "descending"), ("file", "ascending")])
        return UnitTable(self.rows.take(order))

    def without(self, keys: pa.Array) -> UnitTable:
        """Those that have none of these keys."""
        return UnitTable(self.rows.filter(pc.invert(pc.is_in(self.rows["key"], value_set=keys))))

    def first(self, count: int) -> UnitTable:
        """So many at most."""
        return UnitTable(self.rows.slice(0, count))

    def keys(self) -> pa.Array:
        """Of all units."""
        return pc.unique(self.rows["key"])

    def size_bytes(self) -> int:
        """Of all units together."""
        return pc.sum(self.rows["size_bytes"]).as_py() or 0

    def replaced(self) -> pa.Array:
        """Files that have become part of a series, as `listed` shows them."""
        replaced = pc.match_substring(self.rows["rest"], '"replaces": ["')
        files = [
            shown(file)
            for row in self.rows.filter(replaced)["rest"].to_pylist()
            for file in json.loads(row)["replaces"]
        ]
        return pa.array(files, pa.utf8())

    def listed(self) -> pa.Table:
        """As the list of units is stored, with names that any reader takes."""
        names = [
            pa.array([_shown(one) for one in self.rows[name].to_pylist()], pa.utf8())
            for name in ("file", "device")
        ]
        return pa.table(
            [self.rows["key"], *names, self.rows["size_bytes"]], schema=LISTED
        ).combine_chunks()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[Unit]:
        for batch in self.rows.to_batches(max_chunksize=BATCH):
            yield from map(_unit, batch.to_pylist())


def shown(name: str) -> str:
    """A name of a file in UTF-8, its other bytes as escapes: two files never get the same."""
    return name.encode("utf-8", "backslashreplace").decode()


def _shown(name: bytes) -> str:
    return shown(name.decode("utf-8", "surrogatepass"))


def in_batches(units: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of up to `BATCH` each."""
    rest = iter(units)
    while some := list(islice(rest, BATCH)):
        yield some


def _row(unit: Unit) -> dict[str, Any]:
    """A unit as a row. Names that are the same are kept once."""
    rest = {key: value for key, value in unit.items() if key not in SCHEMA.names}
    if rest["url"] == unit["file"]:
        del rest["url"]
    return {
        "key": unit["key"],
        "file": unit["file"].encode("utf-8", "surrogatepass"),
        "device": unit["device"].encode("utf-8", "surrogatepass"),
        "size_bytes": unit["size_bytes"],
        "rest": json.dumps(rest).encode(),
    }


def _unit(row: dict[str, Any]) -> Unit:
    """A row as a unit."""
    file = row["file"].decode("utf-8", "surrogatepass")
    return {
        "key": row["key"],
        "url": file,
        "file": file,
        "device": row["device"].decode("utf-8", "surrogatepass"),
        "size_bytes": row["size_bytes"],
        **json.loads(row["rest"]),
    }
