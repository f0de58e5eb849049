"""What `unbloat lab` does once its arguments are read: run, then print, store or draw; or clean."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from unbloat.cli.exit import FAILED
from unbloat.cli.sim import ResultOptions, make_folders, print_and_write
from unbloat.lab import clean, lab_all
from unbloat.lab.execute import LabOptions
from unbloat.scenario.simulate import RunOptions
from unbloat.text.format import plural
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal, plain

# What a shell reports of a program that a signal ended.
SIGNALLED = 128


def lab_file(
    file: Path, options: RunOptions, lab_options: LabOptions, results: ResultOptions
) -> int:
    """`unbloat lab FILE`; returns the exit code."""
    make_folders(options.pcap, lab_options.keep)
    # A signal that can be caught ends the lab in order; the janitor is for those that cannot.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    with ProgressBar("running") as progress:
        runs = lab_all(file, options, lab_options, progress)
    code = print_and_write(runs, options, results)
    if lab_options.keep is not None:
        notes = Terminal(sys.stderr if results.json else sys.stdout)
        notes.line(f"raw files: {lab_options.keep}")
    return code


def leave(number: int, _frame: FrameType | None) -> None:
    """Ends the program in order."""
    raise SystemExit(SIGNALLED + number)


def lab_clean() -> int:
    """`unbloat lab clean`; returns the exit code."""
    cleaned = clean()
    terminal = Terminal(sys.stdout)
    for lab in cleaned.removed:
        terminal.line(f"removed what lab {lab} left behind")
    if cleaned.living:
        terminal.line(
            f"left alone: {plural(len(cleaned.living), 'running lab')} ({', '.join(cleaned.living)})"
        )
    if not (cleaned.removed or cleaned.living or cleaned.problems):
        terminal.line("nothing to clean")
    for problem in cleaned.problems:
        print(f"unbloat: {plain(problem)}", file=sys.stderr)
    return FAILED if cleaned.problems else 0
