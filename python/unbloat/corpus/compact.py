"""All parts of a corpus as few large files: the units in the order of device and time, the rows of each as its capture gave them.

The bytes depend on the units alone: not on the order in which they were analysed, nor on how many at a time. A table is
written beside the old ones, which are replaced when all are complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unbloat.corpus.ledger import Ledger, write_whole
from unbloat.corpus.receipts import Receipts
from unbloat.corpus.tables import NAMES
from unbloat.corpus.unit_table import Listed
from unbloat.corpus.views import views_sql
from unbloat.errors import CaptureError
from unbloat.tasks.memory import give_back

# Large enough for few files, small enough for several readers.
FILE_BYTES = 128 << 20
# Rows that are written together: what a query reads or skips as a whole.
GROUP_ROWS = 1 << 18
# Of parts that wait to be written together.
GROUP_BYTES = 16 << 20
# Parts that are joined at a time: a table of one row needs 200 KB of memory, and a corpus of short captures has many.
JOINED = 64


def compact(ledger: Ledger, manifest: Listed, receipts: Receipts) -> None:
    """Writes the tables where the units have changed."""
    chosen = receipts.among(manifest).by_device_and_time()
    digest = chosen.digest()
    final = ledger.out / "table"
    if ledger.digest() != digest:
        ledger.gather(chosen)
        new = ledger.out / ".tmp-table"
        old = ledger.out / ".tmp-table-old"
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        new.mkdir(parents=True)
        for name in NAMES:
            write_table(ledger, name, chosen, new / name)
        (new / "digest").write_text(digest)
        if final.exists():
            final.rename(old)
        new.rename(final)
        shutil.rmtree(old, ignore_errors=True)
        ledger.publish(digest)
    write_whole(ledger.out / "views.sql", views_sql(ledger.out).encode())


def write_table(ledger: Ledger, name: str, chosen: Receipts, folder: Path) -> None:
    """One table: files of about `FILE_BYTES`, in groups of rows."""
    folder.mkdir()
    writer: pq.ParquetWriter | None = None
    small: list[pa.Table] = []
    waiting: list[pa.Table] = []
    waiting_rows = waiting_bytes = files = 0
    for key, last in with_last(chosen.having(name)):
        part = read_part(ledger.part(name, key))
        small.append(part)
        waiting_rows += part.num_rows
        waiting_bytes += part.nbytes
        full = waiting_rows >= GROUP_ROWS or waiting_bytes >= GROUP_BYTES
        if last or full or len(small) >= JOINED:
            waiting.append(joined(small))
            small.clear()
        if waiting and (last or full):
            # In several pieces: a copy in one would take as much memory again.
            rows = pa.concat_tables(waiting).unify_dictionaries()
            waiting.clear()
            waiting_rows = waiting_bytes = 0
            if writer is None:
                path = folder / f"{files:04d}.parquet"
                writer = pq.ParquetWriter(path, rows.schema, compression="zstd")
                files += 1
            writer.write_table(rows, row_group_size=GROUP_ROWS)
            del rows
            # Parts of many sizes leave holes, which add up over a hundred thousand captures.
            give_back()
            if path.stat().st_size >= FILE_BYTES:
                writer.close()
                writer = None
    if writer is not None:
        writer.close()


def with_last(keys: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each with whether it is the last one."""
    before: str | None = None
    for key in keys:
        if before is not None:
            yield before, False
        before = key
    if before is not None:
        yield before, True


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One table in one piece."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def read_part(path: Path) -> pa.Table:
    """The rows of one unit."""
    try:
        # A file of its own rather than a map: a corpus has more parts than a process may have maps.
        return pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()
    except (OSError, pa.ArrowException):
        raise CaptureError(
            f"{path}: is missing or damaged; remove the folder done of this corpus and run again"
        ) from None
