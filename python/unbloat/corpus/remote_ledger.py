"""A corpus in an object store, such as S3, and what of it is on this machine.

The store has the files of a local corpus under the same names. Each is one PUT, which a store does as a whole or not at
all: the parts of a unit first, its receipt last. Tables lie under their digest, and the object `table/current`, written last,
names the digest that counts. So whatever is killed, and whenever, what the store has is a corpus.

Units are analysed into a folder of this machine, whose files are sent from there by a few threads. It is removed at the
end; that of a process that was killed is removed by the next one. A receipt in the store is all that counts as done.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from unbloat.corpus.ledger import Ledger, write_whole
from unbloat.corpus.objects import Objects, without_sigpipe
from unbloat.corpus.receipts import Receipts
from unbloat.corpus.tables import NAMES
from unbloat.corpus.unit import Receipt, is_remote
from unbloat.corpus.unit_table import Listed
from unbloat.errors import CaptureError, UnbloatError

# Files that are sent at a time: a store answers in tens of milliseconds, and a unit has up to nine.
SENDERS = 8
# The tables may be replaced while they are read; a second time at once is a defect.
READ_AGAIN = 3
# Names the tables that count.
CURRENT = "table/current"
# A copy that is in use has this file, locked.
USED = "used"
# Names that a store gives become paths here: only these do.
RECEIPT = re.compile(r"done/[0-9a-f]{2}/[0-9a-f]{32}\.json")
TABLE_FILE = re.compile(r"[a-z]+/\d+\.parquet")
DIGEST = re.compile(r"[0-9a-f]{32}")
GOES_ON = "; what is done is stored, the same command goes on from there"


def ledger_at(out: str | os.PathLike[str]) -> Ledger:
    """The ledger of a folder, or of a URL."""
    text = os.fspath(out)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    return RemoteLedger(text) if is_remote(text) else Ledger(Path(os.path.abspath(text)))


def cache_folder(name: str) -> Path:
    """Where copies of the corpus at a URL are kept while they are used, and its tables until they change."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "unbloat" / "corpus" / hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


class RemoteLedger(Ledger):
    """The files of a corpus at a URL."""

    def __init__(self, url: str) -> None:
        self.objects = Objects(url)
        self.cache = cache_folder(self.objects.name)
        super().__init__(self.cache / f"copy-{secrets.token_hex(8)}", self.objects.name)
        self.sent: list[Future[None]] = []
        self.senders = ThreadPoolExecutor(SENDERS)
        self.pulled = False
        # So that no other process takes the new copy for one that is left over.
        with locked(self.cache / "opening", wait=True):
            self.remove_left_over()
            self.used = locked(self.out / USED)
        try:
            if (data := self.objects.get("corpus.json")) is not None:
                write_whole(self.out / "corpus.json", data)
        except BaseException:
            self.close()
            raise

    def remove_left_over(self) -> None:
        """Copies of processes that were killed."""
        for folder in self.cache.glob("copy-*"):
            with contextlib.suppress(OSError), locked(folder / USED):
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Removes what was only needed meanwhile."""
        self.senders.shutdown(cancel_futures=True)
        shutil.rmtree(self.out, ignore_errors=True)
        self.used.close()

    def at(self, path: Path) -> str:
        """The object that is a file of the copy. A key or table of a damaged receipt may lead out of it."""
        if ".." in path.parts or not path.is_relative_to(self.out):
            raise CaptureError(f"{self.name}: has a receipt that is damaged: {path.name}")
        return path.relative_to(self.out).as_posix()

    def put(self, path: Path, data: bytes) -> None:
        """A file, here and in the store."""
        super().put(path, data)
        self.send(path)

    def send(self, path: Path) -> None:
        """One PUT of a file."""
        self.objects.put(self.at(path), path.read_bytes())

    def usable(self) -> bool:
        """Whether the URL is a corpus of this format; refuses one that holds anything else."""
        if (self.out / "corpus.json").exists():
            self.check()
            return True
        if self.objects.listed(""):
            raise UnbloatError(f"{self.name}: is not empty and no corpus; name another folder")
        return False

    def lock(self) -> IO[bytes]:
        """Only one process of this machine writes at a time; a store has no locks."""
        try:
            return locked(self.cache / "lock")
        except OSError:
            raise UnbloatError(f"{self.name}: another unbloat corpus is writing here") from None

    def pull(self) -> None:
        """The receipts and the list of units, once."""
        if self.pulled:
            return
        self.pulled = True
        names = [name for name in self.objects.listed("done") if RECEIPT.fullmatch(name)]
        for name, data in self.objects.fetch([*names, "manifest/units.parquet"]):
            if data is not None:
                write_whole(self.out / name, data)

    def receipts(self) -> Receipts:
        """All receipts."""
        self.pull()
        return super().receipts()

    def manifest(self) -> Listed:
        """The units that belong to the corpus."""
        self.pull()
        return super().manifest()

    def stored(self, receipt: Receipt) -> None:
        """Has a unit sent. Raises `UnbloatError` where an earlier one could not be."""
        for future in self.sent:
            if future.done():
                self.arrived(future)
        self.sent = [future for future in self.sent if not future.done()]
        self.sent.append(self.senders.submit(self.send_unit, receipt))

    def send_unit(self, receipt: Receipt) -> None:
        """The parts of a unit, then its receipt: from now on it is not run again."""
        for name in receipt["tables"]:
            self.send(self.part(name, receipt["key"]))
        self.send(self.receipt_path(receipt["key"]))

    def arrived(self, future: Future[None]) -> None:
        """Makes sure that a unit was sent."""
        try:
            future.result()
        except UnbloatError as error:
            raise UnbloatError(f"{error}{GOES_ON}") from None

    def flush(self) -> None:
        """Waits until all units are sent."""
        with without_sigpipe():
            for future in self.sent:
                self.arrived(future)
        self.sent = []

    def remove(self, key: str) -> None:
        """Forgets a unit: its receipt first."""
        super().remove(key)
        for path in (self.receipt_path(key), *(self.part(name, key) for name in NAMES)):
            self.objects.remove(self.at(path))

    def digest(self) -> str | None:
        """What the tables that count were made of."""
        data = self.objects.get(CURRENT)
        if data is None:
            return None
        digest = data.decode("ascii", "replace")
        if not DIGEST.fullmatch(digest):
            raise CaptureError(f"{self.name}/{CURRENT}: is damaged")
        return digest

    def gather(self, chosen: Receipts) -> None:
        """Brings the parts here that other runs have sent."""
        parts = (self.part(name, key) for key, tables in chosen.tables() for name in sorted(tables))
        missing = [self.at(path) for path in parts if not path.exists()]
        for name, data in self.objects.fetch(missing):
            if data is None:
                raise CaptureError(
                    f"{self.name}/{name}: is missing; remove the folder done of this corpus and run again"
                )
            write_whole(self.out / name, data)

    def publish(self, digest: str) -> None:
        """Sends the tables, then what names them; removes the old ones."""
        folder = self.out / "table"
        for path in sorted(folder.rglob("*.parquet")):
            name = path.relative_to(folder).as_posix()
            self.objects.put_file(path, f"table/{digest}/{name}")
        self.objects.put(CURRENT, digest.encode())
        for name in self.objects.listed("table"):
            if name != CURRENT and not name.startswith(f"table/{digest}/"):
                self.objects.remove(name)

    def readable(self) -> Path:
        """The folder that has the tables, which are brought here if they have changed."""
        for _ in range(READ_AGAIN):
            digest = self.digest()
            if digest is None:
                break
            with contextlib.suppress(FileNotFoundError):
                return self.bring(digest)
        return self.out

    def bring(self, digest: str) -> Path:
        """The tables of a digest. Raises `FileNotFoundError` where others have taken their place meanwhile."""
        place = self.cache / f"tables-{digest}"
        if not place.exists():
            new = self.out / "tables"
            shutil.rmtree(new, ignore_errors=True)
            for name in self.objects.listed(f"table/{digest}"):
                below = name.removeprefix(f"table/{digest}/")
                if TABLE_FILE.fullmatch(below):
                    self.objects.bring(name, new / "table" / below)
            if self.digest() != digest:
                raise FileNotFoundError(digest)
            new.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # another process was faster
                new.rename(place)
            for old in self.cache.glob("tables-*"):
                if old != place:
                    shutil.rmtree(old, ignore_errors=True)
        return place


def locked(path: Path, wait: bool = False) -> IO[bytes]:
    """A file with a lock that ends with this process. Raises `OSError` where another one has it, unless it waits for that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        file.close()
        raise
    return file
