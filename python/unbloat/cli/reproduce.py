"""What `unbloat reproduce` does once its arguments are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from unbloat.claims.reproduce import Extent, reproduce
from unbloat.claims.text import outcomes_screen
from unbloat.text.progress import Shown
from unbloat.text.terminal import Paper


class LabProgress:
    """The lab's bar, which follows the simulator's."""

    def __init__(self, before: Shown, own: Shown) -> None:
        self.before, self.own = before, own

    def __call__(self, done: int, total: int) -> None:
        """Seconds done, seconds in all."""
        self.before.close()
        self.own(done, total)


def reproduce_claims(
    names: Sequence[str],
    quick: bool,
    as_json: bool,
    report: Path | None,
    traces: Path | None,
    jobs: int | None,
    lab: Extent | None = None,
) -> int:
    """Runs the claims and prints them; 1 where one does not hold, or differs in the lab, that is not known to."""
    with Shown("simulating") as progress, Shown("in the lab") as lab_progress:
        outcomes = reproduce(
            names,
            quick=quick,
            lab=lab,
            traces=traces,
            jobs=jobs,
            progress=progress,
            lab_progress=LabProgress(progress, lab_progress),
        )
    if report is not None:
        from unbloat.claims.page import write_page

        write_page(outcomes, report)
    if as_json:
        print(json.dumps({"format": 1, "figures": [outcome.to_dict() for outcome in outcomes]}))
    else:
        outcomes_screen(Paper(sys.stdout), outcomes)
    return int(any(outcome.surprising for outcome in outcomes))
