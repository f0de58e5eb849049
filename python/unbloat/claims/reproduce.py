"""`reproduce`: every claim of the papers, run again.

The scenario of each claim in `scenarios/` is simulated. Its figures are measured and compared with bounds that were
stated beforehand. A control run, the same scenario with the cure (or the problem) switched off, has to fall outside
the bounds, so that no claim passes by accident. The result is one `Outcome` per figure: pass, fail, or only shown.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from unbloat.claims.claim import Claim, Figure, claims
from unbloat.claims.measure import measure
from unbloat.claims.relate import folder, mean, picks, related, within
from unbloat.claims.reproduce_in_lab import Laboratory, LabOutcome, Measured, compared, simulated
from unbloat.errors import TraceMissing, UnbloatError
from unbloat.scenario.simulate import RunOptions, simulate_all
from unbloat.scenario.sweep import Labels, RunSet

# As `--json` names the states of a figure; `words.state_text` is what people read.
FIGURE_PASSED, FIGURE_FAILED, SHOWN, SKIPPED = "held", "not held", "shown", "skipped"
Extent = Literal["quick", "whole"]
"""How much is run in the lab."""


@dataclass(frozen=True)
class TableRow:
    """One run in the table of a claim."""

    labels: Labels
    values: tuple[float | None, ...]
    """By the columns of the claim."""


@dataclass(frozen=True)
class Outcome:
    """One figure of a claim, measured."""

    claim: Claim
    figure: Figure
    value: float | None
    control: float | None
    state: str
    note: str
    """Why it fails, or was not run."""
    table: tuple[TableRow, ...] = ()
    """All runs of the claim, where it shows them."""
    lab: LabOutcome | None = None
    """The same figure in the lab, where it was run there."""

    @property
    def surprising(self) -> bool:
        """Failed, or different in the lab, and no reason is on record."""
        failed = self.state == FIGURE_FAILED and self.figure.reason is None
        return failed or (self.lab is not None and self.lab.surprising)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        figure = self.figure
        return {
            "claim": self.claim.id,
            "title": self.claim.title,
            "source": self.claim.source,
            "mark": figure.mark,
            "figure": figure.name,
            "metric": figure.of.metric,
            "relation": figure.relation,
            "paper": figure.paper,
            "value": self.value,
            "min": figure.least,
            "max": figure.most,
            "why": figure.why,
            "control": self.control,
            "state": self.state,
            "note": self.note,
            **({} if self.lab is None else {"lab": self.lab.to_dict()}),
        }


def reproduce(
    names: Iterable[str] = (),
    *,
    quick: bool = False,
    lab: Extent | None = None,
    traces: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    lab_progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Run claims (all, those named, or the quick ones) and compare their figures with the papers'.

    A name is a claim's, or the beginning of several: `drwa`. With `lab`, only claims that the lab runs ("quick": those that
    take it seconds), and each of their figures is compared with the simulator's under the lab's settings; needs root. Raises
    `UnbloatError` for a name that no claim has.
    """
    chosen = choose(claims(), list(names), quick, lab)
    laboratory = None if lab is None else Laboratory(chosen, lab == "quick", traces, lab_progress)
    done = 0

    def one(claim: Claim) -> tuple[list[Outcome], Measured | None]:
        nonlocal done
        outcomes = examine(claim, traces)
        beside = None if laboratory is None else simulated(claim, lab == "quick", traces)
        done += 1
        if progress is not None:
            progress(done, len(chosen))
        return outcomes, beside

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        found = [*pool.map(one, chosen)]
    if laboratory is None:
        return [outcome for outcomes, _ in found for outcome in outcomes]
    # One after another, and after everything else: what runs beside it makes a lab late.
    return [
        outcome
        for claim, (outcomes, beside) in zip(chosen, found, strict=True)
        for outcome in with_lab(outcomes, compared(claim, laboratory.measured(claim), beside))
    ]


def with_lab(outcomes: Sequence[Outcome], found: Mapping[str, LabOutcome]) -> list[Outcome]:
    """Figures beside what they are in the lab."""
    return [replace(outcome, lab=found.get(outcome.figure.name)) for outcome in outcomes]


def choose(
    every: Sequence[Claim], names: Sequence[str], quick: bool, lab: Extent | None = None
) -> list[Claim]:
    """The claims asked for, in their order."""
    for name in names:
        if not any(claim.id.startswith(name) for claim in every):
            raise UnbloatError(
                f"no claim is called {name!r}; there are {', '.join(claim.id for claim in every)}"
            )
    return [
        claim
        for claim in every
        if (not names or any(claim.id.startswith(name) for name in names))
        and (claim.quick or not quick)
        and (lab is None or (claim.lab is not None and (claim.lab.quick or lab == "whole")))
    ]


def examine(claim: Claim, traces: str | os.PathLike[str] | None = None) -> list[Outcome]:
    """All figures of one claim."""
    needs_capture = any(pick.capture for figure in claim.figures for pick in picks(figure))
    with tempfile.TemporaryDirectory(prefix="unbloat-claim-") as folder:
        captures = Path(folder) if needs_capture else None
        try:
            runs = simulate_all(
                claim.path, RunOptions(traces=traces, pcap=captures, events=False), jobs=1
            )
        except TraceMissing as missing:
            # Where the file is says nothing about the claim, and differs from one installation to the next.
            note = str(missing).removeprefix(f"{claim.path}: ")
            return [Outcome(claim, figure, None, None, SKIPPED, note) for figure in claim.figures]
        rows = table(claim, runs, captures)
        return [
            replace(judged(claim, figure, runs, captures), table=rows) for figure in claim.figures
        ]


def table(claim: Claim, runs: RunSet, captures: Path | None) -> tuple[TableRow, ...]:
    """The columns that the claim asks for, measured in every run; runs that differ by their seed make one mean."""
    if not claim.columns:
        return ()
    return tuple(
        TableRow(
            case.labels,
            tuple(
                mean(measure(run, pick, folder(captures, run)) for run in case.runs)
                for _, pick in claim.columns
            ),
        )
        for case in runs.cases
    )


def judged(claim: Claim, figure: Figure, runs: RunSet, captures: Path | None) -> Outcome:
    """One figure: measured, and compared with its bounds."""
    value = related(figure.relation, figure.of, figure.against, runs, captures)
    control = (
        None
        if figure.control is None
        else related(figure.relation, figure.control, figure.control_against, runs, captures)
    )
    if figure.least is None and figure.most is None:
        return Outcome(claim, figure, value, control, SHOWN, figure.reason or "")
    if value is None:
        return Outcome(
            claim, figure, None, control, FIGURE_FAILED, figure.reason or "nothing was measured"
        )
    if not within(figure, value):
        return Outcome(
            claim, figure, value, control, FIGURE_FAILED, figure.reason or "outside the bounds"
        )
    if figure.control is not None and control is not None and within(figure, control):
        return Outcome(claim, figure, value, control, FIGURE_FAILED, "the control passes as well")
    return Outcome(claim, figure, value, control, FIGURE_PASSED, "")
