"""What each command does once its arguments are read: analyse, then print, store or draw.

Several captures are shown as far as they could be read; the others are named on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbloat.capture.connection_text import connection_screen
from unbloat.capture.file_text import file_screen
from unbloat.cli.exit import UNREADABLE, complain
from unbloat.cli.inputs import open_each
from unbloat.cli.output import write_run_page, writing
from unbloat.run.json import json_line, run_object
from unbloat.run.run import Run
from unbloat.text.names import distinct, file_name, stems
from unbloat.text.terminal import Paper


@dataclass(frozen=True)
class Wanted:
    """What `analyze` is to do with each run."""

    report: Path | None
    json: bool
    out: Path | None
    connection: int | None
    top: int
    sort: str
    series: list[str]
    bin_ms: float

    @property
    def keep(self) -> bool:
        """Whether a second pass may be needed."""
        return bool(self.report or self.out or self.series) or self.connection is not None


def analyze_files(files: Sequence[str], merge: bool, wanted: Wanted) -> int:
    """`unbloat analyze`; returns the exit code."""
    outcomes = open_each(files, merge, wanted.keep)
    runs = [outcome for outcome in outcomes if isinstance(outcome, Run)]
    # Labels of a simulated run may hold what a file name must not: `rate=2 Mbit/s`.
    names = distinct([file_name(run.name) if run.extra else stems([run.name])[0] for run in runs])
    paper = Paper(sys.stdout)
    failed = False
    first = True
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            complain(outcome)
            failed = True
            continue
        if not first and not wanted.json:
            paper.line()
        name = names[runs.index(outcome)] if len(outcomes) > 1 else None
        show(paper, outcome, wanted, name)
        first = False
    return UNREADABLE if failed else 0


def show(paper: Paper, run: Run, wanted: Wanted, name: str | None) -> None:
    """One run: text or JSON, and whatever files were asked for. `name` tells the files of several runs apart."""
    if wanted.json:
        chosen = None if wanted.connection is None else [run.connection(wanted.connection)["id"]]
        paper.line(json_line(run_object(run, chosen, wanted.series, wanted.bin_ms)))
    elif wanted.connection is not None:
        connection_screen(paper, run, wanted.connection, wanted.bin_ms)
    else:
        file_screen(paper, run, wanted.top, wanted.sort)
    notes = Paper(sys.stderr) if wanted.json else paper
    if wanted.out is not None:
        path = wanted.out if name is None else inside(wanted.out, name)
        series = ["samples", "events"] + [kind for kind in wanted.series if kind == "segments"]
        with writing(path):
            run.write(path, series, wanted.bin_ms)
        notes.line(f"tables: {path}")
    if wanted.report is not None:
        path = (
            wanted.report
            if name is None
            else wanted.report.with_stem(f"{wanted.report.stem}-{name}")
        )
        write_run_page(run, path)
        notes.line(f"report: {path}")


def inside(out: Path, name: str) -> Path:
    """Where one of several runs is stored: DIR/NAME, or NAME.unbloat beside the others."""
    return out.with_name(f"{out.stem}-{name}.unbloat") if out.suffix == ".unbloat" else out / name
