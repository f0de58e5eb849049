"""What `unbloat reproduce` does once its arguments are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbloat.claims.reproduce import Extent, reproduce
from unbloat.claims.text import outcomes_screen
from unbloat.cli.output import need_writable, writing
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal


class LabProgress:
    """The lab's bar, which follows the simulator's."""

    def __init__(self, before: ProgressBar, own: ProgressBar) -> None:
        self.before, self.own = before, own

    def __call__(self, done: int, total: int) -> None:
        """Seconds done, seconds in all."""
        self.before.close()
        self.own(done, total)


@dataclass(frozen=True)
class ReproduceOptions:
    """The options of `unbloat reproduce`."""

    names: Sequence[str]
    quick: bool
    json: bool
    report: Path | None
    traces: Path | None
    jobs: int | None
    dask: str | None
    lab: Extent | None
    store: Path | None
    stored: bool
    markdown: Path | None


def reproduce_claims(options: ReproduceOptions) -> int:
    """Runs the claims and prints them; 1 where one fails, or differs in the lab, without a reason on record."""
    if options.report is not None:
        need_writable(options.report)  # before the runs, so that a wrong path costs no time
    if options.markdown is not None:
        options.markdown.mkdir(parents=True, exist_ok=True)
    with ProgressBar("simulating") as progress, ProgressBar("in the lab") as lab_progress:
        outcomes = reproduce(
            options.names,
            quick=options.quick,
            lab=options.lab,
            traces=options.traces,
            jobs=options.jobs,
            dask=options.dask,
            store=options.store,
            stored=options.stored,
            progress=progress,
            lab_progress=LabProgress(progress, lab_progress),
        )
    if options.report is not None:
        from unbloat.claims.page import write_page

        with writing(options.report):
            write_page(outcomes, options.report)
    if options.markdown is not None:
        from unbloat.claims.lab_store import beside, read_lab, with_stored_lab
        from unbloat.claims.markdown import write_pages

        lab = {} if options.store is None else read_lab(beside(options.store))
        outcomes = outcomes if options.lab is not None else with_stored_lab(outcomes, lab)
        with writing(options.markdown):
            write_pages(outcomes, options.markdown, lab)
    if options.json:
        print(json.dumps({"format": 1, "figures": [outcome.to_dict() for outcome in outcomes]}))
    else:
        outcomes_screen(Terminal(sys.stdout), outcomes)
    return int(any(outcome.surprising for outcome in outcomes))
