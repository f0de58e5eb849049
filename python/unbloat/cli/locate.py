"""What `unbloat locate` does once its arguments are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbloat.cli.output import writing
from unbloat.errors import UnbloatError
from unbloat.path.locate import locate
from unbloat.path.text import path_screen
from unbloat.run.json import json_line
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal


@dataclass(frozen=True)
class LocateOptions:
    """The options of `unbloat locate`."""

    report: Path | None
    json: bool
    series: bool
    out: Path | None
    bin_ms: float
    connection: int | None
    one_clock: bool


def locate_files(files: Sequence[str], options: LocateOptions) -> int:
    """`unbloat locate`; returns the exit code."""
    with ProgressBar() as progress:
        located = locate(
            files,
            bin_ms=options.bin_ms,
            connection=options.connection,
            one_clock=options.one_clock,
            progress=progress,
        )
    terminal = Terminal(sys.stdout)
    if options.json:
        terminal.line(json_line(located.to_dict(options.series)))
    else:
        path_screen(terminal, located)
    notes = Terminal(sys.stderr) if options.json else terminal
    if options.out is not None:
        if options.out.suffix == ".unbloat":
            raise UnbloatError(f"{options.out}: located tables are stored in a directory")
        with writing(options.out):
            located.write(options.out)
        notes.line(f"tables: {options.out}")
    if options.report is not None:
        with writing(options.report):
            located.write_report(options.report)
        notes.line(f"report: {options.report}")
    return 0
