"""The folder of a corpus: parts, receipts, the list of units. Every file is complete or absent.

    OUT/corpus.json                    format, version
    OUT/manifest/units.parquet         what there is
    OUT/part/TABLE/AA/KEY.arrow        tables of one unit
    OUT/done/AA/KEY.json               its receipt, written last
    OUT/table/TABLE/NNNN.parquet       all parts together, in the order of device and time
    OUT/views.sql                      the same for SQL

AA are the first two digits of the key: no folder then has more files than a file system lists quickly.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO

import pyarrow as pa

from unbloat.corpus.receipts import Receipts
from unbloat.corpus.scratch import Scratch
from unbloat.corpus.unit import Receipt
from unbloat.corpus.unit_table import Listed, UnitTable
from unbloat.errors import CaptureError, UnbloatError
from unbloat.version import __version__

FORMAT = 1
# A smaller part would take more time to compress than to store.
PLAIN_BYTES = 256 << 10


def write_whole(path: Path, data: bytes) -> None:
    """A file that is there completely, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        new.write_bytes(data)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def arrow_bytes(table: pa.Table) -> bytes:
    """A table as a file of Arrow's own format: thirty times faster than Parquet for the few rows of a short capture."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if table.nbytes > PLAIN_BYTES else None)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class Ledger:
    """The files of one corpus."""

    def __init__(self, out: Path, name: str | None = None) -> None:
        self.out = out
        self.name = name or str(out)
        """What messages call it."""

    @cached_property
    def scratch(self) -> Scratch:
        """Where rows of units and receipts lie while it is open. Workers need none."""
        return Scratch()

    def put(self, path: Path, data: bytes) -> None:
        """Stores one of the files that belong to no unit."""
        write_whole(path, data)

    def stored(self, receipt: Receipt) -> None:
        """Called with the receipt of each unit that has ended."""

    def flush(self) -> None:
        """Called when no more units are run."""

    def close(self) -> None:
        """Called when all is done."""

    def digest(self) -> str | None:
        """What the tables were made of; None without tables."""
        stamp = self.out / "table" / "digest"
        return stamp.read_text() if stamp.is_file() else None

    def gather(self, chosen: Receipts) -> None:
        """Called before the parts of units are read."""

    def publish(self, digest: str) -> None:
        """Called when new tables are complete."""

    def readable(self) -> Path:
        """The folder below which tables can be read."""
        return self.out

    def usable(self) -> bool:
        """Whether the folder is a corpus of this format; refuses one that holds anything else."""
        if (self.out / "corpus.json").exists():
            self.check()
            return True
        if self.out.exists() and any(self.out.iterdir()):
            raise UnbloatError(f"{self.name}: is not empty and no corpus; name another folder")
        return False

    def begin(self, fingerprint: str | None = None) -> None:
        """Makes the folder, for pseudonyms under the key with this fingerprint. Refuses to go on with another."""
        if self.usable():
            self.same_key(fingerprint)
            return
        facts = {"format": FORMAT, "tool": f"unbloat {__version__}"}
        if fingerprint is not None:
            facts["anonymised"] = fingerprint
        self.put(self.out / "corpus.json", json.dumps(facts).encode() + b"\n")

    def check(self) -> None:
        """Refuses what is no corpus, or one of a newer format."""
        path = self.out / "corpus.json"
        if not self.out.exists():
            raise FileNotFoundError(2, "No such file or directory", self.name)
        try:
            version = json.loads(path.read_bytes())["format"]
        except (OSError, ValueError, KeyError, TypeError):
            raise CaptureError(
                f"{self.name}: is no corpus: it has no readable corpus.json"
            ) from None
        if not isinstance(version, int) or version > FORMAT:
            raise CaptureError(
                f"{self.name}: is of format {version}, and this unbloat knows up to {FORMAT}; update it"
            )

    def same_key(self, fingerprint: str | None) -> None:
        """Refuses names beside pseudonyms, and pseudonyms of two keys."""
        before = json.loads((self.out / "corpus.json").read_bytes()).get("anonymised")
        if before == fingerprint:
            return
        if before is None:
            why = "was begun without --anonymise; name another folder"
        elif fingerprint is None:
            why = "is anonymised; name its key with --anonymise"
        else:
            why = "was anonymised with another key"
        raise UnbloatError(f"{self.name}: {why}")

    def lock(self) -> IO[bytes]:
        """Only one process writes at a time; the lock ends with it, however that ends."""
        file = (self.out / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise UnbloatError(f"{self.name}: another unbloat corpus is writing here") from None
        return file

    def part(self, table: str, key: str) -> Path:
        """The rows of a unit."""
        return self.out / "part" / table / key[:2] / f"{key}.arrow"

    def receipt_path(self, key: str) -> Path:
        """The receipt of a unit."""
        return self.out / "done" / key[:2] / f"{key}.json"

    def write_part(self, table: str, key: str, rows: pa.Table) -> None:
        """Stores the rows of a unit."""
        write_whole(self.part(table, key), arrow_bytes(rows))

    def write_receipt(self, receipt: Receipt) -> None:
        """Stores what became of a unit: from now on it is not run again."""
        text = json.dumps(receipt, sort_keys=True, ensure_ascii=True)
        write_whole(self.receipt_path(receipt["key"]), text.encode() + b"\n")

    def receipts(self) -> Receipts:
        """All receipts. One that cannot be read counts as absent: its unit is run again."""
        return Receipts.of(self.scratch, self.each_receipt())

    def each_receipt(self) -> Iterator[Receipt]:
        """One after the other, in the order of their keys."""
        folder = self.out / "done"
        if not folder.is_dir():
            return
        for below in sorted(os.scandir(folder), key=lambda entry: entry.name):
            for path in sorted(entry.path for entry in os.scandir(below.path)):
                try:
                    with open(path, "rb") as file:
                        receipt = json.loads(file.read())
                    if path.endswith(f"/{receipt['key']}.json"):
                        yield receipt
                except (OSError, ValueError, KeyError, TypeError):
                    continue

    def manifest(self) -> Listed:
        """The units that belong to the corpus."""
        return Listed.read(self.scratch, self.out / "manifest" / "units.parquet")

    def add_to_manifest(self, units: UnitTable) -> Listed:
        """Adds units; a file that changed takes the place of what it was, a series that of its files."""
        listed = self.manifest()
        before = listed.digest() if len(listed) else None
        listed.add(units)
        if listed.digest() != before:
            self.put(self.out / "manifest" / "units.parquet", listed.parquet())
        return listed

    def remove(self, key: str) -> None:
        """Forgets a unit: its receipt first, so that a half removed one counts as absent."""
        self.receipt_path(key).unlink(missing_ok=True)
        for table in (self.out / "part").glob("*"):
            self.part(table.name, key).unlink(missing_ok=True)
