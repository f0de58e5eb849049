"""What all receipts of a corpus say: a row for each, made from one receipt at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from unbloat.corpus.scratch import UNIT_COLUMNS, Rows, Scratch
from unbloat.corpus.tables import NAMES
from unbloat.corpus.unit import ANALYSIS, BAD, DONE, FAILED, Receipt

# SQLite's integers are below.
MOST = 1 << 63


class Receipts(Rows):
    """Receipts of units, a row each."""

    COLUMNS: ClassVar = {
        **UNIT_COLUMNS,
        "state": "TEXT",
        "t0_s": "REAL",
        # Lines about a unit that is not done, or not completely, as JSON; none without.
        "errors": "TEXT",
        # Rows of each table; none where the unit has no such table.
        **dict.fromkeys(NAMES, "INTEGER"),
    }

    @classmethod
    def of(cls, scratch: Scratch, receipts: Iterable[Receipt]) -> Receipts:
        """What is no receipt is left out."""
        made = cls.empty(scratch)
        made.add(receipts)
        return made

    def add(self, receipts: Iterable[Receipt]) -> None:
        """Adds receipts to a table. One takes the place of another of the same unit."""
        self.put(row for receipt in receipts if (row := _row(receipt)) is not None)

    def of_state(self, state: str) -> Receipts:
        """Those of units with this fate."""
        return self.where(f"state = '{state}'")

    def by_device_and_time(self) -> Receipts:
        """In the order of the tables."""
        return self.kept("device, ifnull(t0_s, 0.0), file, key")

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
        for key, *counts in self.select(", ".join(["key", *NAMES])):
            given = zip(NAMES, counts, strict=True)
            yield key, {name: count for name, count in given if count is not None}

    def having(self, table: str) -> Iterator[str]:
        """Keys of units with rows of a table."""
        return self.where(f"{table} > 0").each_key()

    def errors(self) -> Iterator[str]:
        """A line for each capture that was not analysed."""
        for (lines,) in self.where("errors IS NOT NULL").select("errors"):
            yield from json.loads(lines)

    def table_rows(self) -> dict[str, int]:
        """Rows of all units together, by table; a table that no unit has is left out."""
        (sums,) = self.select(", ".join(f"sum({name})" for name in NAMES))
        given = zip(NAMES, sums, strict=True)
        return {name: count for name, count in given if count is not None}


def errors_of(receipt: Receipt) -> Iterator[str]:
    """The lines about a unit that is not done, or not completely."""
    if receipt["error"] is not None:
        yield str(receipt["error"])
    for capture in receipt["captures"]:
        if capture.get("error"):
            yield str(capture["error"])


def _row(receipt: Receipt) -> tuple[Any, ...] | None:
    """A receipt as a row; None for anything else, as a file that was damaged."""
    try:
        tables = receipt["tables"]
        if not tables.keys() <= set(NAMES):
            return None
        if receipt["state"] not in (DONE, BAD, FAILED):
            return None
        numbers = [receipt["size_bytes"], *tables.values()]
        if not all(isinstance(number, int) and 0 <= number < MOST for number in numbers):
            return None
        errors = [line.encode("utf-8", "backslashreplace").decode() for line in errors_of(receipt)]
        return (
            receipt["key"],
            receipt["file"].encode("utf-8", "surrogatepass"),
            receipt["device"].encode("utf-8", "surrogatepass"),
            receipt["size_bytes"],
            receipt["state"],
            None if receipt["t0_s"] is None else float(receipt["t0_s"]),
            json.dumps(errors) if errors else None,
            *(tables.get(name) for name in NAMES),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
