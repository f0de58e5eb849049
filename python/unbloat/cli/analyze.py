"""What each command does once its arguments are read: analyse, then print, store or draw.

Several captures are shown as far as they could be read; the others are named on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbloat.capture.analyze import ONE_CAPTURE, add_modem
from unbloat.capture.connection_text import connection_screen
from unbloat.capture.file_text import file_screen
from unbloat.cli.exit import UNREADABLE, complain
from unbloat.cli.inputs import open_each
from unbloat.cli.output import write_run_page, writing
from unbloat.errors import UnbloatError
from unbloat.run.json import json_line, run_object
from unbloat.run.run import Run
from unbloat.text.names import distinct, file_name, stems
from unbloat.text.terminal import Terminal


@dataclass(frozen=True)
class AnalyzeOptions:
    """The options of `unbloat analyze`."""

    modem: Path | None
    report: Path | None
    json: bool
    out: Path | None
    csv: Path | None
    connection: int | None
    top: int
    sort: str
    series: list[str]
    bin_ms: float

    @property
    def keep(self) -> bool:
        """Whether a second pass may be needed."""
        return (
            bool(self.modem or self.report or self.out or self.csv or self.series)
            or self.connection is not None
        )


def analyze_files(files: Sequence[str], merge: bool, options: AnalyzeOptions) -> int:
    """`unbloat analyze`; returns the exit code."""
    if options.modem is not None and len(files) > 1 and not merge:
        raise UnbloatError(f"{ONE_CAPTURE}, or to several with --merge")
    outcomes = open_each(files, merge, options.keep)
    runs = [outcome for outcome in outcomes if isinstance(outcome, Run)]
    if options.modem is not None:
        for run in runs:
            add_modem(run, options.modem)
    # Labels of a simulated run may hold what a file name must not: `rate=2 Mbit/s`.
    names = distinct([file_name(run.name) if run.extra else stems([run.name])[0] for run in runs])
    terminal = Terminal(sys.stdout)
    failed = False
    first = True
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            complain(outcome)
            failed = True
            continue
        if not first and not options.json:
            terminal.line()
        name = names[runs.index(outcome)] if len(outcomes) > 1 else None
        show(terminal, outcome, options, name)
        first = False
    return UNREADABLE if failed else 0


def show(terminal: Terminal, run: Run, options: AnalyzeOptions, name: str | None) -> None:
    """One run: text or JSON, and whatever files were asked for. `name` distinguishes the files of several runs."""
    if options.json:
        chosen = None if options.connection is None else [run.connection(options.connection)["id"]]
        terminal.line(json_line(run_object(run, chosen, options.series, options.bin_ms)))
    elif options.connection is not None:
        connection_screen(terminal, run, options.connection, options.bin_ms)
    else:
        file_screen(terminal, run, options.top, options.sort)
    notes = Terminal(sys.stderr) if options.json else terminal
    series = ["samples", "events"] + [kind for kind in options.series if kind == "segments"]
    if options.csv is not None:
        path = options.csv if name is None else options.csv / name
        with writing(path):
            run.write_csv(path, series, options.bin_ms)
        notes.line(f"CSV: {path}")
    if options.out is not None:
        path = options.out if name is None else inside(options.out, name)
        with writing(path):
            run.write(path, series, options.bin_ms)
        notes.line(f"tables: {path}")
    if options.report is not None:
        path = (
            options.report
            if name is None
            else options.report.with_stem(f"{options.report.stem}-{name}")
        )
        write_run_page(run, path)
        notes.line(f"report: {path}")


def inside(out: Path, name: str) -> Path:
    """Where one of several runs is stored: DIR/NAME, or NAME.unbloat beside the others."""
    return out.with_name(f"{out.stem}-{name}.unbloat") if out.suffix == ".unbloat" else out / name
