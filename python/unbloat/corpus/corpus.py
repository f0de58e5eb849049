"""`Corpus`: the tables of a corpus as Arrow datasets, and SQL over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.corpus.compact import compact
from unbloat.corpus.ledger import BAD, DONE, FAILED, Ledger
from unbloat.corpus.tables import NAMES
from unbloat.corpus.unit import Receipt, Unit
from unbloat.corpus.views import views_sql
from unbloat.corpus.work import errors_of
from unbloat.errors import CaptureError, UnbloatError

if TYPE_CHECKING:
    import duckdb
    from pyarrow.dataset import Dataset


class Corpus:
    """The results of one corpus. Tables are read when they are used, never as a whole."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.ledger.check()

    @property
    def name(self) -> str:
        """The folder, or the URL."""
        return self.ledger.name

    @property
    def path(self) -> Path:
        """A folder of this machine with the tables; those of a URL are brought here if they have changed."""
        return self.ledger.readable()

    def table(self, name: str) -> Dataset:
        """A table as a pyarrow dataset, which polars, DuckDB and pandas read."""
        from pyarrow.dataset import dataset

        if name not in NAMES:
            raise UnbloatError(f"{name}: no table of a corpus; there are {', '.join(NAMES)}")
        return dataset(
            [str(file) for file in sorted((self.path / "table" / name).glob("*.parquet"))],
            format="parquet",
        )

    @property
    def captures(self) -> Dataset:
        """One row per capture."""
        return self.table("captures")

    @property
    def connections(self) -> Dataset:
        """One row per connection."""
        return self.table("connections")

    @property
    def flows(self) -> Dataset:
        """One row per direction of a connection."""
        return self.table("flows")

    @property
    def findings(self) -> Dataset:
        """What the rules found."""
        return self.table("findings")

    @property
    def limits(self) -> Dataset:
        """Spans of time in which one limit held a flow."""
        return self.table("limits")

    @property
    def slots(self) -> Dataset:
        """Seconds of TCP data."""
        return self.table("slots")

    @property
    def bursts(self) -> Dataset:
        """Data of a flow without a pause of a second."""
        return self.table("bursts")

    @property
    def spans(self) -> Dataset:
        """Activity without a minute of silence."""
        return self.table("spans")

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """A query over the tables and views, by an embedded DuckDB."""
        return connect(self.path).sql(query)

    def answer(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns of a query, and its rows; an error of the query in one line."""
        connection = connect(self.path)
        import duckdb

        try:
            result = connection.execute(query)
            return [column[0] for column in result.description or []], result.fetchall()
        except duckdb.IOException as error:
            raise CaptureError(f"{self.name}: {first_paragraph(error)}") from None
        except duckdb.Error as error:
            raise UnbloatError(first_paragraph(error)) from None

    def status(self) -> Status:
        """What is done, and what is not."""
        return Status(self.ledger.manifest(), self.ledger.receipts())

    def forget(self, stale: bool = False, failed: bool = False) -> int:
        """Removes results: of files that have changed since or were analysed by another version; of those that failed. How many."""
        with self.ledger.lock():
            manifest = self.ledger.manifest()
            current = {unit["key"] for unit in manifest}
            receipts = self.ledger.receipts()
            gone = [
                key
                for key, receipt in receipts.items()
                if (stale and key not in current) or (failed and receipt["state"] == FAILED)
            ]
            for key in gone:
                self.ledger.remove(key)
                del receipts[key]
            compact(self.ledger, manifest, receipts)
        return len(gone)

    def __repr__(self) -> str:
        return f"<unbloat.Corpus {self.name}>"


class Status:
    """Counts of a corpus."""

    def __init__(self, manifest: list[Unit], receipts: dict[str, Receipt]) -> None:
        self.units = len(manifest)
        self.size_bytes = sum(unit["size_bytes"] for unit in manifest)
        keys = {unit["key"] for unit in manifest}
        self.receipts = [receipts[unit["key"]] for unit in manifest if unit["key"] in receipts]
        self.stale = sum(key not in keys for key in receipts)
        self.done_bytes = sum(receipt["size_bytes"] for receipt in self.receipts)
        self.rows: dict[str, int] = {}
        for receipt in self.receipts:
            for name, rows in receipt["tables"].items():
                self.rows[name] = self.rows.get(name, 0) + rows

    def count(self, state: str) -> int:
        """Units of a state."""
        return sum(receipt["state"] == state for receipt in self.receipts)

    def errors(self) -> Iterator[str]:
        """A line about each capture that was not analysed."""
        for receipt in self.receipts:
            yield from errors_of(receipt)

    def to_dict(self) -> dict[str, object]:
        """As `unbloat corpus status --json` prints it."""
        return {
            "units": self.units,
            "size_bytes": self.size_bytes,
            DONE: self.count(DONE),
            BAD: self.count(BAD),
            FAILED: self.count(FAILED),
            "left": self.units - len(self.receipts),
            "stale": self.stale,
            "done_bytes": self.done_bytes,
            "rows": self.rows,
            "errors": list(self.errors()),
        }


def first_paragraph(error: Exception) -> str:
    """What DuckDB says, without its picture of the query."""
    return " ".join(str(error).split("\n\n")[0].split())


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory, with views of the tables where they lie now."""
    try:
        import duckdb
    except ImportError:
        raise UnbloatError("queries need DuckDB: pip install 'unbloat[corpus]'") from None
    connection = duckdb.connect()
    connection.execute(views_sql(path))
    return connection
