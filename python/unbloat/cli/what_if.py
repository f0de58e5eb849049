"""What `unbloat what-if` does once its arguments are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbloat.cli.output import need_writable, writing
from unbloat.lab.requirements import need_root
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
    write: Path | None
    lab: bool
    draws: int
    seed: int
    anyway: bool
    json: bool


def what_if_files(files: Sequence[str], options: WhatIfOptions) -> None:
    """`unbloat what-if`"""
    if options.lab:
        need_root()
    if options.report is not None:
        need_writable(options.report)
    with ProgressBar("replaying") as progress:
        found = what_if(
            *files,
            connection=options.connection,
            cures=tuple(options.cures.split(",")) if options.cures else (),
            congestion=options.congestion,
            draws=options.draws,
            seed=options.seed,
            anyway=options.anyway,
            progress=progress,
        )
    if options.lab:
        from unbloat.prediction.lab import in_lab

        with ProgressBar("in the lab") as progress:
            found = replace(found, lab=in_lab(found, progress=progress))
    terminal = Terminal(sys.stdout)
    if options.json:
        terminal.line(json_line(found.to_dict()))
    else:
        what_if_screen(terminal, found)
    notes = Terminal(sys.stderr) if options.json else terminal
    if options.write is not None:
        from unbloat.prediction.files import write_links, written_text

        with writing(options.write):
            write_links(found, options.write)
        notes.line(f"links: {options.write} ({written_text(found)})")
    if options.report is not None:
        from unbloat.prediction.page import write_what_if_page

        with writing(options.report):
            write_what_if_page(found, options.report)
        notes.line(f"report: {options.report}")
