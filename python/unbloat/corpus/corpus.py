"""`Corpus`: the tables of a corpus as Arrow datasets, and SQL over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.corpus.compact import compact
from unbloat.corpus.ledger import Ledger
from unbloat.corpus.receipts import Receipts
from unbloat.corpus.tables import NAMES
from unbloat.corpus.unit import BAD, DONE, FAILED
from unbloat.corpus.unit_table import Listed
from unbloat.corpus.views import views_sql
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
            kept = receipts = self.ledger.receipts()
            if stale:
                kept = kept.among(manifest)
            if failed:
                kept = kept.beyond(kept.of_state(FAILED))
            gone = receipts.beyond(kept)
            for key in gone.each_key():
                self.ledger.remove(key)
            compact(self.ledger, manifest, kept)
        return len(gone)

    def __repr__(self) -> str:
        return f"<unbloat.Corpus {self.name}>"


class Status:
    """Counts of a corpus."""

    def __init__(self, manifest: Listed, receipts: Receipts) -> None:
        self.units = len(manifest)
        self.size_bytes = manifest.size_bytes()
        self.receipts = receipts.among(manifest)
        self.stale = len(receipts) - len(self.receipts)
        self.done_bytes = self.receipts.size_bytes()
        self.rows = self.receipts.table_rows()

    def count(self, state: str) -> int:
        """Units of a state."""
        return len(self.receipts.of_state(state))

    def errors(self) -> Iterator[str]:
        """A line about each capture that was not analysed."""
        return self.receipts.errors()

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
