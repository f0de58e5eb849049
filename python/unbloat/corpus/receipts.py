"""What all receipts of a corpus say, in little memory: a row of Arrow for each, made from one receipt at a time.

A receipt as a dictionary takes 7 KB of Python, as a row 0.3 KB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from unbloat.corpus.tables import NAMES
from unbloat.corpus.unit import ANALYSIS, Receipt
from unbloat.corpus.unit_table import BATCH, in_batches

SCHEMA = pa.schema(
    [
        ("key", pa.utf8()),
        ("file", pa.binary()),
        ("device", pa.binary()),
        ("size_bytes", pa.uint64()),
        ("state", pa.dictionary(pa.int8(), pa.utf8())),
        ("t0_s", pa.float64()),
        # Lines about a unit that is not done, or not completely.
        ("errors", pa.list_(pa.utf8())),
        # Rows of each table; none where the unit has no such table.
        *((name, pa.uint64()) for name in NAMES),
    ]
)


class Receipts:
    """Receipts of units, a row each."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    @classmethod
    def of(cls, receipts: Iterable[Receipt]) -> Receipts:
        """In the order given. What is no receipt is left out."""
        return cls.of_batches(map(rows_of, in_batches(receipts)))

    @classmethod
    def of_batches(cls, batches: Iterable[pa.Table]) -> Receipts:
        """Of tables that `rows_of` made."""
        made = list(batches)
        return cls(pa.concat_tables(made).unify_dictionaries() if made else SCHEMA.empty_table())

    def and_these(self, others: Receipts) -> Receipts:
        """Of more units."""
        return Receipts(pa.concat_tables([self.rows, others.rows]).unify_dictionaries())

    def among(self, keys: pa.Array) -> Receipts:
        """Those of these units."""
        return Receipts(self.rows.filter(pc.is_in(self.rows["key"], value_set=keys)))

    def beyond(self, keys: pa.Array) -> Receipts:
        """Those of no such unit."""
        return Receipts(self.rows.filter(pc.invert(pc.is_in(self.rows["key"], value_set=keys))))

    def of_state(self, state: str) -> Receipts:
        """Those of units with this fate."""
        return Receipts(self.rows.filter(pc.equal(pc.cast(self.rows["state"], pa.utf8()), state)))

    def by_device_and_time(self) -> Receipts:
        """In the order of the tables."""
        rows = self.rows.append_column("begin_s", pc.fill_null(self.rows["t0_s"], 0.0))
        names = ("device", "begin_s", "file", "key")
        order = pc.sort_indices(rows, [(name, "ascending") for name in names])
        return Receipts(self.rows.take(order))

    def digest(self) -> str:
        """Differs where other tables would be made of these units, in this order."""
        digest = hashlib.blake2b(f"[{ANALYSIS!r}, [".encode(), digest_size=16)
        for place, (key, tables) in enumerate(self.tables()):
            comma = ", " if place else ""
            digest.update(f"{comma}{[key, sorted(tables.items())]!r}".encode())
        digest.update(b"]]")
        return digest.hexdigest()

    def tables(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Key of each unit, and the number of rows of each table that it has."""
        for batch in self.rows.select(["key", *NAMES]).to_batches(max_chunksize=BATCH):
            for row in batch.to_pylist():
                key = row.pop("key")
                yield key, {name: count for name, count in row.items() if count is not None}

    def keys(self) -> pa.Array:
        """Of all units."""
        return pc.unique(self.rows["key"])

    def having(self, table: str) -> pa.ChunkedArray:
        """Keys of units with rows of a table."""
        return self.rows.filter(pc.greater(self.rows[table], 0))["key"]

    def size_bytes(self) -> int:
        """Of all captures together."""
        return pc.sum(self.rows["size_bytes"]).as_py() or 0

    def errors(self) -> Iterator[str]:
        """A line for each capture that was not analysed."""
        yield from pc.list_flatten(self.rows["errors"]).to_pylist()

    def table_rows(self) -> dict[str, int]:
        """Rows of all units together, by table; a table that no unit has is left out."""
        sums = {name: pc.sum(self.rows[name]).as_py() for name in NAMES}
        return {name: count for name, count in sums.items() if count is not None}

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def errors_of(receipt: Receipt) -> Iterator[str]:
    """The lines about a unit that is not done, or not completely."""
    if receipt["error"] is not None:
        yield str(receipt["error"])
    for capture in receipt["captures"]:
        if capture.get("error"):
            yield str(capture["error"])


def rows_of(receipts: Iterable[Receipt]) -> pa.Table:
    """Receipts as rows; what is no receipt is left out."""
    rows = [row for receipt in receipts if (row := _row(receipt)) is not None]
    return pa.Table.from_pylist(rows, SCHEMA)


def _row(receipt: Receipt) -> dict[str, Any] | None:
    """A receipt as a row; None for anything else, as a file that was damaged."""
    try:
        if not receipt["tables"].keys() <= set(NAMES):
            return None
        return {
            "key": receipt["key"],
            "file": receipt["file"].encode("utf-8", "surrogatepass"),
            "device": receipt["device"].encode("utf-8", "surrogatepass"),
            "size_bytes": int(receipt["size_bytes"]),
            "state": str(receipt["state"]),
            "t0_s": None if receipt["t0_s"] is None else float(receipt["t0_s"]),
            "errors": [
                line.encode("utf-8", "backslashreplace").decode() for line in errors_of(receipt)
            ],
            **{name: int(count) for name, count in receipt["tables"].items()},
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
