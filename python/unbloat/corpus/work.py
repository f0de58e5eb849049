"""The work on one unit: read it once, write its tables, then its receipt. Plain dictionaries in and out, no state.

Any executor may run it, anywhere, twice: the same unit gives the same files. What goes wrong becomes the receipt's state:
`bad` for what is no capture, with the line that `unbloat analyze` would print, `failed` for everything else.
"""

from __future__ import annotations

import io
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any

from unbloat.corpus.archive import ArchiveError, Counted, packed_members, zip_member
from unbloat.corpus.ledger import Ledger
from unbloat.corpus.remote import BLOCK_BYTES, StoreError, open_url
from unbloat.corpus.sources import Search
from unbloat.corpus.stream import Analysed, analyse_files, analyse_path, analyse_stream
from unbloat.corpus.tables import NAMES, corpus_tables
from unbloat.corpus.unit import BAD, DONE, FAILED, INSIDE, Receipt, Unit, is_remote
from unbloat.errors import UnbloatError

if TYPE_CHECKING:
    import pyarrow as pa

    from unbloat.corpus.anonymise import Pseudonyms

Report = Callable[[str, Any], None]
"""Called with `bytes` and a count, or `member` and the name of the capture that begins."""

# Pauses before an input that could not be read is tried again, s.
RETRY_AFTER_S = (1.0, 4.0)


class TooLong(Exception):
    """The unit has used up its time."""


def work(unit: Unit, options: dict[str, Any], report: Report | None = None) -> Receipt:
    """Analyses a unit and stores its result in the folder `options["out"]`. `options["timeout_s"]` ends it."""
    ledger = Ledger(Path(options["out"]))
    begin = time.monotonic()
    deadline = begin + options["timeout_s"] if options.get("timeout_s") else None
    task = Task(unit, report or (lambda _kind, _value: None), deadline, pseudonyms(options))
    state, error = DONE, None
    for pause_s in (*RETRY_AFTER_S, None):
        task.forget()
        state, error, again = attempt(task)
        if error is not None and task.pseudonyms is not None:
            error = task.hidden_line(error)
        if not again or pause_s is None:
            break
        time.sleep(pause_s)
    receipt = make_receipt(unit, state, error, task.captures, time.monotonic() - begin)
    receipt["tables"] = store(ledger, unit["key"], task.tables)
    ledger.write_receipt(receipt)
    return receipt


def pseudonyms(options: dict[str, Any]) -> Pseudonyms | None:
    """What stands for names and addresses, where they are not stored."""
    if "key" not in options:
        return None
    from unbloat.corpus.anonymise import Pseudonyms

    return Pseudonyms(bytes.fromhex(options["key"]))


def attempt(task: Task) -> tuple[str, str | None, bool]:
    """State, the line about it, and whether another attempt may do better."""
    try:
        task.run()
    except TooLong:
        return FAILED, f"{task.unit['file']}: took too long and was stopped", False
    except ArchiveError as error:
        return BAD, f"{task.unit['file']}: {error}", False
    except UnbloatError as error:
        return BAD, str(error), False
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        return FAILED, f"{task.unit['file']}: {(error.strerror or str(error)).lower()}", False
    except StoreError as error:
        return FAILED, f"{task.unit['file']}: {error}", True
    except OSError as error:
        return FAILED, f"{task.unit['file']}: {(error.strerror or str(error)).lower()}", True
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the native side is no Exception
        text = str(error).splitlines()
        return (
            FAILED,
            f"{task.unit['file']}: {type(error).__name__}: {text[0] if text else 'no reason given'}",
            False,
        )
    states = [capture["state"] for capture in task.captures]
    worst = next((state for state in (FAILED, BAD) if state in states), DONE)
    return worst, None, False


@dataclass
class Task:
    """A unit while it is worked on."""

    unit: Unit
    report: Report
    deadline: float | None
    pseudonyms: Pseudonyms | None = None
    captures: list[dict[str, Any]] = field(default_factory=list)
    """Of each capture of the unit: file, state, line of the error, times."""
    tables: list[dict[str, pa.Table]] = field(default_factory=list)

    def forget(self) -> None:
        """Before another attempt."""
        self.captures, self.tables = [], []

    def run(self) -> None:
        """Reads the unit."""
        unit = self.unit
        kind, url = unit["kind"], unit["url"]
        if kind == "broken":
            raise UnbloatError(f"{unit['file']}: {unit['error']}")
        if kind == "packed":
            self.packed()
        elif kind == "series":
            self.add(
                unit["file"],
                analyse_files({one: self.shown(one) for one in unit["parts"]}, self.progress),
            )
        elif kind == "file" and not is_remote(url) and regular(url):
            self.add(unit["file"], analyse_path(url, unit["file"], self.progress))
        else:
            with open_unit(unit) as stream:
                self.add(unit["file"], analyse_stream(stream, unit["file"], self.progress))

    def packed(self) -> None:
        """A packed archive: its captures one after the other; a bad one does not end it."""
        search = Search(self.unit.get("include"))
        with open_url(self.unit["url"]) as file:
            counted = Counted(file)
            for name, stream in packed_members(counted):
                if not search.wanted(name):
                    continue
                shown = self.shown(f"{self.unit['file']}{INSIDE}{name}")
                if name in self.unit.get("skip", {}):
                    self.captures.append(
                        {
                            "file": shown,
                            "state": FAILED,
                            "error": f"{shown}: {self.unit['skip'][name]}",
                        }
                    )
                    continue
                self.report("member", name)
                try:
                    found = analyse_stream(
                        stream, shown, lambda _done: self.progress(counted.count_bytes)
                    )
                except UnbloatError as error:
                    self.captures.append({"file": shown, "state": BAD, "error": str(error)})
                else:
                    self.add(shown, found)

    def shown(self, name: str) -> str:
        """What messages and tables call a file."""
        return name if self.pseudonyms is None else self.pseudonyms.name("file", name)

    def hidden_line(self, line: str) -> str:
        """A line about the unit. Errors of libraries may name whatever they opened: those give their reason to no table."""
        file, parts = self.unit["file"], self.unit.get("parts", ())
        names = [self.unit["url"], *parts, self.unit["member"] or ""]
        words = {word for name in names for word in (name, PurePath(name).name) if word}
        own = (f"{file}: ", *(f"{self.shown(part)}: " for part in parts))
        if not line.startswith(own) or any(word in line for word in words):
            return f"{file}: could not be analysed"
        return line

    def progress(self, done: int) -> None:
        """Reports, and ends what takes too long."""
        self.report("bytes", done)
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TooLong

    def add(self, file: str, found: Analysed) -> None:
        """The result of one capture."""
        info, tables = found
        # Names of files need not be UTF-8, text in tables has to be.
        shown = file.encode("utf-8", "replace").decode()
        about = {
            "unit": self.unit["key"],
            "device": self.unit["device"],
            "file": shown,
            "t0_s": info["start_s"],
        }
        made = corpus_tables(info, tables, about)
        if self.pseudonyms is not None:
            made = {name: self.pseudonyms.table(name, rows) for name, rows in made.items()}
        self.tables.append(made)
        self.captures.append(
            {
                "file": shown,
                "state": DONE,
                "t0_s": info["start_s"],
                "packets": info["packets"],
                "bytes": info["bytes"],
                "warnings": info["warnings"],
            }
        )


def regular(path: str) -> bool:
    """Whether a path is a file that can be read again; pipes are fed by this process, which can stop doing so."""
    return stat.S_ISREG(os.stat(path).st_mode)


def open_unit(unit: Unit) -> IO[bytes]:
    """The bytes of a unit, in sequence."""
    file = open_url(unit["url"])
    if unit["kind"] == "zip":
        return zip_member(file, unit["number"])  # type: ignore[return-value]
    if unit["kind"] == "tar":
        file.seek(unit["offset"])
        return Part(file, unit["size_bytes"])  # type: ignore[return-value]
    return file


class Part(io.RawIOBase):
    """The next bytes of a file, so many of them."""

    def __init__(self, file: IO[bytes], size_bytes: int) -> None:
        self.file, self.left_bytes = file, size_bytes

    def read(self, size: int = -1) -> bytes:
        """Bytes of the part."""
        data = self.file.read(min(size if size >= 0 else BLOCK_BYTES, self.left_bytes))
        self.left_bytes -= len(data)
        return data

    def close(self) -> None:
        """Closes the file below as well."""
        self.file.close()
        super().close()


def make_receipt(
    unit: Unit, state: str, error: str | None, captures: list[dict[str, Any]], took_s: float
) -> Receipt:
    """What is known of a unit afterwards. It has no credentials: the file's name is without them."""
    times = [capture["t0_s"] for capture in captures if "t0_s" in capture]
    return {
        "key": unit["key"],
        "file": unit["file"],
        "device": unit["device"],
        "size_bytes": unit["size_bytes"],
        "state": state,
        "error": error,
        "tries": unit.get("tries", 1),
        "t0_s": min(times, default=None),
        "captures": captures,
        "took_s": round(took_s, 3),
        "tables": {},
    }


def store(ledger: Ledger, key: str, tables: list[dict[str, pa.Table]]) -> dict[str, int]:
    """Writes each table that has rows; how many."""
    import pyarrow as pa

    counts: dict[str, int] = {}
    for name in NAMES:
        rows = pa.concat_tables([one[name] for one in tables]) if tables else None
        if rows is not None and rows.num_rows:
            ledger.write_part(name, key, rows.unify_dictionaries())
            counts[name] = rows.num_rows
    return counts
