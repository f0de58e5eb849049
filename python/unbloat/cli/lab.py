"""What `unbloat lab` does once its arguments are read: run, then print, store or draw; or clean."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from unbloat.cli.exit import FAILED
from unbloat.cli.output import writing
from unbloat.cli.sim import Asked, setting, shown_and_written
from unbloat.lab import clean, lab_all
from unbloat.lab.execute import Captured
from unbloat.text.format import plural
from unbloat.text.progress import Shown
from unbloat.text.terminal import Paper, plain

# What a shell reports of a program that a signal ended.
SIGNALLED = 128


def lab_file(
    file: str, asked: Asked, capture: Captured | None, snap: int, keep: Path | None
) -> int:
    """`unbloat lab FILE`; returns the exit code."""
    settings = [setting(text) for text in asked.set]
    for folder in (asked.pcap, keep):
        if folder is not None:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
    # Ended from outside it cleans up like everyone; the keeper is for what cannot be caught.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    with Shown("running") as shown:
        runs = lab_all(
            Path(file),
            set=settings,
            seed=asked.seed,
            seeds=asked.seeds,
            pcap=asked.pcap,
            keep=keep,
            capture=capture,
            snap=snap,
            traces=asked.traces,
            progress=shown,
        )
    code = shown_and_written(runs, asked)
    if keep is not None:
        (Paper(sys.stderr) if asked.json else Paper(sys.stdout)).line(f"raw files: {keep}")
    return code


def leave(number: int, _frame: FrameType | None) -> None:
    """Ends the program in order."""
    raise SystemExit(SIGNALLED + number)


def lab_clean() -> int:
    """`unbloat lab clean`; returns the exit code."""
    cleaned = clean()
    paper = Paper(sys.stdout)
    for lab in cleaned.removed:
        paper.line(f"removed what lab {lab} left behind")
    if cleaned.living:
        paper.line(
            f"left alone: {plural(len(cleaned.living), 'running lab')} ({', '.join(cleaned.living)})"
        )
    if not (cleaned.removed or cleaned.living or cleaned.problems):
        paper.line("nothing to clean")
    for problem in cleaned.problems:
        print(f"unbloat: {plain(problem)}", file=sys.stderr)
    return FAILED if cleaned.problems else 0
