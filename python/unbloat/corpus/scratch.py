"""Rows that need not be in memory: tables of a private SQLite database, in a file that has no name and ends with the process.

A corpus may have millions of captures. What is known of each is stored here and read one row after the other, so that the
memory of a run does not grow with their number. SQLite keeps small tables in memory and writes the rest to its temporary
folder (`SQLITE_TMPDIR`, else `/var/tmp`).
"""

from __future__ import annotations

import itertools
import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

# Of each of SQLite's caches; a database without a name may have several.
CACHE_KB = 8 << 10
# Columns of units and of their receipts. Names of files need not be UTF-8: they are bytes.
UNIT_COLUMNS = {"key": "TEXT", "file": "BLOB", "device": "BLOB", "size_bytes": "INTEGER"}
# Rows that are read together.
BATCH = 1 << 10


class Scratch:
    """The database of one corpus while it is open."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self.connection.close)
        self.secrets: dict[str, str] = {}
        """What must not lie on disk, by key."""
        self.names = (f"t{number}" for number in itertools.count())
        for setting in (
            f"cache_size=-{CACHE_KB}",
            "journal_mode=OFF",
            "synchronous=OFF",
            "temp_store=FILE",
        ):
            self.connection.execute(f"PRAGMA {setting}")

    def select(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Rows one after the other."""
        return iter(self.connection.execute(query))

    def value(self, query: str) -> Any:
        """The one value of a query."""
        return self.connection.execute(query).fetchone()[0]

    def put(self, into: str, rows: Iterable[tuple[Any, ...]], width: int) -> None:
        """Stores rows of `width` values; `into` is the beginning of the statement."""
        places = ", ".join("?" * width)
        self.connection.execute("BEGIN")
        try:
            self.connection.executemany(f"{into} VALUES ({places})", rows)
        finally:
            self.connection.execute("COMMIT")


class Rows:
    """Rows of one kind with the columns `COLUMNS`, the first of which is their key: a query over the database.

    Others that are made of it are queries, too: nothing is read before it is asked for. What changes meanwhile is seen.
    """

    COLUMNS: ClassVar[dict[str, str]]
    """Names and types of SQL."""

    def __init__(self, scratch: Scratch, query: str) -> None:
        self.scratch, self.query = scratch, query

    @classmethod
    def empty(cls, scratch: Scratch) -> Self:
        """A new table."""
        name = next(scratch.names)
        first, *rest = (f"{column} {kind}" for column, kind in cls.COLUMNS.items())
        columns = ", ".join([f"{first} PRIMARY KEY", *rest])
        scratch.connection.execute(f"CREATE TABLE {name} ({columns})")
        return cls(scratch, name)

    def put(self, rows: Iterable[tuple[Any, ...]], else_do: str = "REPLACE") -> None:
        """Adds rows to a table; `else_do` says what of a key that is there: REPLACE, or IGNORE the new row."""
        self.scratch.put(f"INSERT OR {else_do} INTO {self.query}", rows, len(self.COLUMNS))

    def where(self, condition: str) -> Self:
        """Those for which it holds."""
        return type(self)(self.scratch, f"(SELECT * FROM {self.query} WHERE {condition})")

    def among(self, others: Rows) -> Self:
        """Those whose keys the others have."""
        return self.where(f"key IN (SELECT key FROM {others.query})")

    def beyond(self, others: Rows) -> Self:
        """Those whose keys the others do not have."""
        return self.where(f"key NOT IN (SELECT key FROM {others.query})")

    def remove(self, others: Rows) -> None:
        """Takes rows with the keys of others out of a table."""
        self.scratch.connection.execute(
            f"DELETE FROM {self.query} WHERE key IN (SELECT key FROM {others.query})"
        )

    def kept(self, order: str, limit: int | None = None) -> Self:
        """So many of them at most as they are now, in this order."""
        name = next(self.scratch.names)
        self.scratch.connection.execute(
            f"CREATE TABLE {name} AS SELECT * FROM {self.query} ORDER BY {order} "
            f"LIMIT {-1 if limit is None else limit}"
        )
        return type(self)(self.scratch, name)

    def select(self, what: str, rest: str = "") -> Iterator[tuple[Any, ...]]:
        """Values of each row; of rows that are kept in their order."""
        return self.scratch.select(f"SELECT {what} FROM {self.query} {rest}")

    def value(self, what: str) -> Any:
        """One value of all rows together."""
        return self.scratch.value(f"SELECT {what} FROM {self.query}")

    def each_key(self) -> Iterator[str]:
        """Of all rows."""
        return (key for (key,) in self.select("key"))

    def size_bytes(self) -> int:
        """Of all captures together."""
        return int(self.value("ifnull(sum(size_bytes), 0)"))

    def __len__(self) -> int:
        return int(self.value("count(*)"))
