"""`analyze`: from capture files to a `Run`.

One native pass over the files (or standard input) finds connections, flows and findings. The interpreter lock is free
meanwhile, so several files use all processors. The result is one `Run` per file, or one for all with `merge`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from unbloat.errors import CaptureError, UnbloatError
from unbloat.modem.lay import lay
from unbloat.run.arrow import arrow_table
from unbloat.run.run import Run
from unbloat.run.tables import BIN_MS, MAX_SEGMENTS

if TYPE_CHECKING:
    import pyarrow as pa

# Shorter bins than a packet's time on a slow link, and longer ones than a transfer, say nothing.
MIN_BIN_MS, MAX_BIN_MS = 1.0, 60_000.0
# Runs of a directory that an error names.
NAMED = 4

ONE_CAPTURE = "a modem's log belongs to one capture"

Path_ = str | os.PathLike[str]
Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all, about ten times a second; an exception stops the analysis."""


@overload
def analyze(
    path: Path_,
    /,
    *,
    merge: bool = False,
    modem: Path_ | None = None,
    progress: Progress | None = None,
) -> Run: ...
@overload
def analyze(
    *paths: Path_,
    merge: Literal[True],
    modem: Path_ | None = None,
    progress: Progress | None = None,
) -> Run: ...
@overload
def analyze(
    first: Path_,
    second: Path_,
    /,
    *paths: Path_,
    merge: Literal[False] = False,
    progress: Progress | None = None,
) -> list[Run]: ...
def analyze(
    *paths: Path_,
    merge: bool = False,
    modem: Path_ | None = None,
    progress: Progress | None = None,
) -> Run | list[Run]:
    """Analyse captures: one path gives a `Run`, several a list of them, or with `merge` one `Run` of all together.

    `-` is standard input. `modem` is the DIAG log of the modem behind the capture's host: the run has the tables `modem_buffer`,
    `modem_grants` and `modem_rates` then. Raises `CaptureError` for what is no readable capture and `FileNotFoundError`; a capture that
    breaks off later is analysed up to there, and says so in `run.warnings`.
    """
    if not paths:
        raise UnbloatError("no capture was given")
    names = [os.fspath(path) for path in paths]
    if merge or len(names) == 1:
        run = read(names, progress=progress)
        if modem is not None:
            add_modem(run, modem)
        return run
    if modem is not None:
        raise UnbloatError(ONE_CAPTURE)
    runs: list[Run] = []
    for outcome in analyze_each([[name] for name in names], progress=progress):
        if isinstance(outcome, Exception):
            raise outcome
        runs.append(outcome)
    return runs


def analyze_each(
    groups: Sequence[Sequence[str]], keep: bool = True, progress: Progress | None = None
) -> list[Run | OSError | UnbloatError]:
    """Each group of paths as one capture, side by side on all processors; what could not be read is its error."""
    if len(groups) == 1:  # in this thread, so that Ctrl-C reaches the progress callback itself
        return [attempt(groups[0], keep, progress)]
    done: dict[int, tuple[int, int]] = {}

    def one(index: int, stop: threading.Event) -> Run | OSError | UnbloatError:
        def report_progress(bytes_done: int, total: int) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            done[index] = (bytes_done, total)
            if progress is not None:
                parts = list(done.values())
                progress(sum(part[0] for part in parts), sum(part[1] for part in parts))

        return attempt(groups[index], keep, report_progress)

    # Loads what threads need, which one capture does not.
    from unbloat.tasks.threads import side_by_side

    return side_by_side(one, len(groups))


def attempt(
    paths: Sequence[str], keep: bool, progress: Progress | None
) -> Run | OSError | UnbloatError:
    """A run, or why it could not be read."""
    try:
        return read(paths, keep, progress)
    except (OSError, UnbloatError) as error:
        return error


def read(paths: Sequence[str], keep: bool = True, progress: Progress | None = None) -> Run:
    """One native pass over `paths` as one capture. `keep`: standard input is stored, so that series are available later."""
    capture = Capture(paths, keep)
    info, tables = capture.passed(progress=progress)
    info["files"] = [capture.given.get(name, name) for name in info.get("files", list(paths))]
    info["warnings"] = [capture.renamed(str(line)) for line in info.get("warnings", [])]
    return Run(info, tables, capture)


def add_modem(run: Run, path: Path_) -> None:
    """Lays a modem's log under a capture that was just analysed."""
    if not isinstance(run.source, Capture):
        raise UnbloatError(
            f"{run.name}: is a stored run, without the packets that a modem's log is fitted to"
        )
    lay(run, path, run.source.paths)


class Capture:
    """Capture files that can be read again. Standard input is kept in a temporary file until this object goes."""

    def __init__(self, paths: Sequence[str], keep: bool = True) -> None:
        self.given: dict[str, str] = {}
        """Temporary file → the name it stands for."""
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        if list(paths).count("-") > 1:
            raise UnbloatError("standard input (-) can be read only once")
        for path in paths:
            check_readable(path)
        self.again = keep or "-" not in paths
        self.paths = [self._spooled() if path == "-" and keep else path for path in paths]

    def _spooled(self) -> str:
        self._directory = tempfile.TemporaryDirectory(prefix="unbloat-")
        path = os.path.join(self._directory.name, "standard-input")
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        self.given[path] = "-"
        return path

    def renamed(self, line: str) -> str:
        """A message with the temporary file's name replaced by what the user gave."""
        for path in self.given:
            line = line.replace(path, "standard input")
        return line

    def fetch(
        self, kinds: Sequence[str], connections: list[int] | None, bin_ms: float, max_segments: int
    ) -> dict[str, pa.Table]:
        """Another pass, for series."""
        if not self.again:
            raise UnbloatError(
                "standard input was read once and not kept, so its series cannot be computed"
            )
        which: str | list[int] = "all" if connections is None else connections
        _, tables = self.passed(dict.fromkeys(kinds, which), bin_ms, max_segments)
        return {kind: tables[kind] for kind in kinds}

    def passed(
        self,
        series: dict[str, str | list[int]] | None = None,
        bin_ms: float = BIN_MS,
        max_segments: int = MAX_SEGMENTS,
        progress: Progress | None = None,
    ) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Read the files once; what run says, and the tables."""
        import unbloat._native as _native

        if not MIN_BIN_MS <= bin_ms <= MAX_BIN_MS:
            raise UnbloatError(f"a bin has {MIN_BIN_MS:g} to {MAX_BIN_MS:,.0f} ms, not {bin_ms:g}")
        wanted = series or {}
        try:
            result: dict[str, Any] = _native.analyze(
                self.paths,
                bin_ms=bin_ms,
                max_segments=max_segments,
                progress=progress or nothing_to_say,
                samples=wanted.get("samples"),
                events=wanted.get("events"),
                segments=wanted.get("segments"),
            )
        except _native.CaptureError as error:
            raise CaptureError(self.renamed(str(error))) from None
        tables = {name: arrow_table(columns) for name, columns in result["tables"].items()}
        info = dict(result["run"])
        return info, tables


def nothing_to_say(_done: int, _total: int) -> None:
    """Without a callback the native side would never look for Ctrl-C."""


def of_directory(path: Path) -> str:
    """Why a directory is no capture: that of a sweep holds several runs."""
    runs = sorted(
        str(file.parent) for depth in ("*", "*/*") for file in path.glob(f"{depth}/run.toml")
    )
    if not runs:
        return "is a directory, not a capture"
    more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
    return f"holds runs of its own, name those: {', '.join(runs[:NAMED])}{more}"


def check_readable(path: str) -> None:
    """The plain reasons why a path cannot be a capture, in the words of the operating system."""
    if path == "-":
        return
    if os.path.isdir(path):
        raise CaptureError(f"{path}: {of_directory(Path(path))}")
    if not Path(path).exists():
        raise FileNotFoundError(2, os.strerror(2), path)
