"""What `unbloat what-if` does once its arguments are read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from unbloat.cli.output import need_writable, writing
from unbloat.prediction.predict import what_if
from unbloat.prediction.text import what_if_screen
from unbloat.run.json import json_line
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal


@dataclass(frozen=True)
class WhatIfOptions:
    """The options of `unbloat what-if`."""

    connection: str | None
    cures: str | None
    congestion: str | None
    report: Path | None
    draws: int
    seed: int
    anyway: bool
    json: bool


def what_if_file(file: str, options: WhatIfOptions) -> None:
    """`unbloat what-if`"""
    if options.report is not None:
        need_writable(options.report)
    with ProgressBar("replaying") as progress:
        found = what_if(
            file,
            connection=options.connection,
            cures=tuple(options.cures.split(",")) if options.cures else (),
            congestion=options.congestion,
            draws=options.draws,
            seed=options.seed,
            anyway=options.anyway,
            progress=progress,
        )
    terminal = Terminal(sys.stdout)
    if options.json:
        terminal.line(json_line(found.to_dict()))
    else:
        what_if_screen(terminal, found)
    if options.report is not None:
        from unbloat.prediction.page import write_what_if_page

        with writing(options.report):
            write_what_if_page(found, options.report)
        notes = Terminal(sys.stderr) if options.json else terminal
        notes.line(f"report: {options.report}")
