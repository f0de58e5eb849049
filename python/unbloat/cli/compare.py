"""What `unbloat compare` does once its arguments are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbloat.cli.output import writing
from unbloat.comparison.compare import compare
from unbloat.comparison.text import compare_screen
from unbloat.run.json import json_line
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal


@dataclass(frozen=True)
class CompareOptions:
    """The options of `unbloat compare`."""

    labels: Sequence[str] | None
    connections: Sequence[str] | None
    report: Path | None
    json: bool


def compare_files(files: Sequence[str], options: CompareOptions) -> None:
    """`unbloat compare`"""
    with ProgressBar() as progress:
        comparison = compare(
            *files,
            labels=options.labels,
            connections=options.connections or None,
            progress=progress,
        )
    terminal = Terminal(sys.stdout)
    if options.json:
        terminal.line(json_line(comparison.to_dict()))
    else:
        compare_screen(terminal, comparison)
    if options.report is not None:
        with writing(options.report):
            comparison.write_report(options.report)
        notes = Terminal(sys.stderr) if options.json else terminal
        notes.line(f"report: {options.report}")
