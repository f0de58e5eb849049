"""`unbloat measure`: the program unbloat-measure takes this one's place, with the same words: its text, its exit code.

Where its result is stored, it runs as a child instead: text, questions and exit code are still its own.
`unbloat measure history` shows the results that it kept.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from unbloat.cli.output import need_writable, writing
from unbloat.errors import UnbloatError
from unbloat.lab.requirements import found
from unbloat.measured.history import history_json, history_screen, read_history
from unbloat.run.write import SUFFIX
from unbloat.text.terminal import Terminal

NAME = "unbloat-measure"
# Of the program: measured, and measured without all grades.
MEASURED = (0, 5)


@dataclass(frozen=True)
class Wanted:
    """What becomes of a result besides its text."""

    out: Path | None
    report: Path | None
    json: bool


def program() -> str:
    """Where the program is."""
    path = found(NAME)
    if path is None:
        raise UnbloatError(
            f"{NAME} is not there: it comes with unbloat; UNBLOAT_MEASURE may name it"
        )
    return path


def refused(path: str, error: OSError) -> UnbloatError:
    """A program that does not start."""
    return UnbloatError(f"{path}: {(error.strerror or 'cannot be run').lower()}")


def become(words: Sequence[str]) -> NoReturn:
    """Replaces this process by the program."""
    path = program()
    sys.stdout.flush()
    try:
        os.execv(path, [path, *words])
    except OSError as error:
        raise refused(path, error) from None


def run_child(words: Sequence[str]) -> int:
    """The exit code of the program; it gets the signals that this process gets, and this process ends by what ended it."""
    path, child = program(), None

    def pass_on(number: int, _: FrameType | None) -> None:
        if child is not None:
            child.send_signal(number)

    passed = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, pass_on) for number in passed}
    try:
        child = subprocess.Popen([path, *words])
        code = child.wait()
    except OSError as error:
        raise refused(path, error) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def measure_and_store(words: Sequence[str], wanted: Wanted) -> int:
    """Measures, and stores what was measured; the exit code of the program."""
    if wanted.out is not None and wanted.out.suffix == SUFFIX:
        need_writable(wanted.out)
    if wanted.report is not None:
        need_writable(wanted.report)
    with tempfile.TemporaryDirectory(prefix="unbloat-") as folder:
        samples = Path(folder) / "samples.json"
        code = run_child([*words, "--samples", str(samples)])
        if code not in MEASURED:
            return code
        result = json.loads(samples.read_text(encoding="utf-8"))
    from unbloat.measured.run import run_of

    run = run_of(result)
    notes = Terminal(sys.stderr if wanted.json else sys.stdout)
    if wanted.out is not None:
        with writing(wanted.out):
            run.write(wanted.out)
        notes.line(f"tables: {wanted.out}")
    if wanted.report is not None:
        from unbloat.measured.page import write_page

        with writing(wanted.report):
            write_page(run, wanted.report)
        notes.line(f"report: {wanted.report}")
    return code


def show_history(file: Path, as_json: bool) -> None:
    """Prints the results in a file."""
    results = read_history(file)
    if as_json:
        print(json.dumps(history_json(results), ensure_ascii=False))
    else:
        history_screen(Terminal(sys.stdout), results)
