"""What `unbloat demo` does once its arguments are read."""

from __future__ import annotations

import sys
from pathlib import Path

from unbloat.capture.file_text import file_screen
from unbloat.cli.inputs import open_each
from unbloat.cli.output import write_run_page
from unbloat.run.run import Run
from unbloat.text.terminal import Terminal


def show_demo(report: Path) -> None:
    """`unbloat demo`: the first capture on one screen and as a page, the others by their verdict."""
    from unbloat.bundled import samples

    terminal = Terminal(sys.stdout)
    outcomes = open_each([str(path) for path in samples()], merge=False, keep=True)
    runs: list[Run] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        runs.append(outcome)
    file_screen(terminal, runs[0], top=3, sort="bytes")
    for run in runs[1:]:
        terminal.line()
        terminal.line(terminal.style(run.name, "bold"))
        terminal.wrapped(run.verdict, "  ", "  ")
    write_run_page(runs[0], report)
    terminal.line()
    terminal.line(f"report: {report.resolve()}")
