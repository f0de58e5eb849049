"""What `unbloat fit` does once its arguments are read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from unbloat.cli.output import need_writable, writing
from unbloat.link.fit import fit
from unbloat.link.model import LinkFit
from unbloat.link.text import link_screen, written_text
from unbloat.link.trace import trace_text, write_link
from unbloat.run.json import json_line
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal


@dataclass(frozen=True)
class FitOptions:
    """The options of `unbloat fit`."""

    connection: str | None
    trace: Path | None
    write: Path | None
    report: Path | None
    draws: int
    seed: int
    json: bool


def fit_file(file: str, options: FitOptions) -> None:
    """`unbloat fit`"""
    for path in (options.trace, options.report):
        if path is not None:
            need_writable(path)
    with ProgressBar() as progress:
        fitted = fit(
            file,
            connection=options.connection,
            draws=options.draws,
            seed=options.seed,
            progress=progress,
        )
    terminal = Terminal(sys.stdout)
    if options.json:
        terminal.line(json_line(fitted.to_dict()))
    else:
        link_screen(terminal, fitted, None if options.trace is None else str(options.trace))
    store(fitted, options, Terminal(sys.stderr) if options.json else terminal)


def store(fitted: LinkFit, options: FitOptions, notes: Terminal) -> None:
    """The files that were asked for."""
    if options.trace is not None:
        with writing(options.trace):
            options.trace.write_text(trace_text(fitted.median_bps, fitted.slot_s))
        notes.line(f"trace: {options.trace}")
    if options.write is not None:
        with writing(options.write):
            write_link(fitted, options.write)
        notes.line(f"link: {options.write} ({written_text(len(fitted.draws))})")
    if options.report is not None:
        from unbloat.link.page import write_link_page

        with writing(options.report):
            write_link_page(fitted, options.report)
        notes.line(f"report: {options.report}")
