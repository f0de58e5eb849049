"""`reproduce`: every claim of the papers, run again.

signal: the claims in `scenarios/` · model: the scenario of each is simulated, its figures are measured and held against
bounds that were stated beforehand; a control run, the same scenario with the cure (or the disease) off, has to fall
outside, so that no claim holds by accident · action: one `Outcome` per figure: held, not held, or only shown.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unbloat.claim_figures import measure
from unbloat.claims import Claim, Figure, Picked, claims
from unbloat.dataset import Run
from unbloat.errors import TraceMissing, UnbloatError
from unbloat.runset import Labels, RunSet
from unbloat.simulate import simulate_all

HELD, NOT_HELD, SHOWN, SKIPPED = "held", "not held", "shown", "skipped"


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
    """Why it does not hold, or was not run."""
    table: tuple[TableRow, ...] = ()
    """All runs of the claim, where it shows them."""

    @property
    def surprising(self) -> bool:
        """Not held, and no reason is on record."""
        return self.state == NOT_HELD and self.figure.reason is None

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
        }


def reproduce(
    names: Iterable[str] = (),
    *,
    quick: bool = False,
    traces: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Run claims (all, those named, or the quick ones) and hold their figures against the papers'.

    A name is a claim's, or the beginning of several: `drwa`. Raises `UnbloatError` for a name that no claim has.
    """
    chosen = choose(claims(), list(names), quick)
    done = 0

    def one(claim: Claim) -> list[Outcome]:
        nonlocal done
        outcomes = examine(claim, traces)
        done += 1
        if progress is not None:
            progress(done, len(chosen))
        return outcomes

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        return [outcome for outcomes in pool.map(one, chosen) for outcome in outcomes]


def choose(every: Sequence[Claim], names: Sequence[str], quick: bool) -> list[Claim]:
    """The claims asked for, in their order."""
    for name in names:
        if not any(claim.id.startswith(name) for claim in every):
            raise UnbloatError(
                f"no claim is called {name!r}; there are {', '.join(claim.id for claim in every)}"
            )
    return [
        claim
        for claim in every
        if (not names or any(claim.id.startswith(name) for name in names)) and (claim.quick or not quick)
    ]


def examine(claim: Claim, traces: str | os.PathLike[str] | None = None) -> list[Outcome]:
    """All figures of one claim."""
    needs_capture = any(pick.capture for figure in claim.figures for pick in picks(figure))
    with tempfile.TemporaryDirectory(prefix="unbloat-claim-") as folder:
        captures = Path(folder) if needs_capture else None
        try:
            runs = simulate_all(claim.path, traces=traces, jobs=1, pcap=captures, events=False)
        except TraceMissing as missing:
            # Where the file is says nothing about the claim, and differs from one installation to the next.
            note = str(missing).removeprefix(f"{claim.path}: ")
            return [Outcome(claim, figure, None, None, SKIPPED, note) for figure in claim.figures]
        rows = table(claim, runs, captures)
        return [replace(judged(claim, figure, runs, captures), table=rows) for figure in claim.figures]


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


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that were measured."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def picks(figure: Figure) -> list[Picked]:
    """Everything that a figure measures."""
    return [pick for pick in (figure.of, figure.against, figure.control, figure.control_against) if pick]


def judged(claim: Claim, figure: Figure, runs: RunSet, captures: Path | None) -> Outcome:
    """One figure: measured, and held against its bounds."""
    value = related(figure.relation, figure.of, figure.against, runs, captures)
    control = (
        None
        if figure.control is None
        else related(figure.relation, figure.control, figure.control_against, runs, captures)
    )
    if figure.least is None and figure.most is None:
        return Outcome(claim, figure, value, control, SHOWN, figure.reason or "")
    if value is None:
        return Outcome(claim, figure, None, control, NOT_HELD, figure.reason or "nothing was measured")
    if not within(figure, value):
        return Outcome(claim, figure, value, control, NOT_HELD, figure.reason or "outside the bounds")
    if figure.control is not None and control is not None and within(figure, control):
        return Outcome(claim, figure, value, control, NOT_HELD, "the control holds as well")
    return Outcome(claim, figure, value, control, HELD, "")


def within(figure: Figure, value: float) -> bool:
    """Whether a value lies within the bounds."""
    return (figure.least is None or value >= figure.least) and (figure.most is None or value <= figure.most)


def related(
    relation: str, of: Picked, against: Picked | None, runs: RunSet, captures: Path | None
) -> float | None:
    """The value itself, or how it relates to another one."""
    value = number(of, runs, captures)
    if against is None or value is None:
        return value
    other = number(against, runs, captures)
    if other is None:
        return None
    if relation == "difference":
        return value - other
    if other == 0:
        return None
    return value / other - (1 if relation == "change" else 0)


def number(pick: Picked, runs: RunSet, captures: Path | None) -> float | None:
    """The mean over the seeds of the run that is picked."""
    places = [place for place, labels in enumerate(runs.labels) if set(pick.run) <= set(labels)]
    if not places:
        labels = ", ".join(f"{key}={value}" for key, value in pick.run)
        known = "; ".join(", ".join(f"{k}={v}" for k, v in labels) for labels in runs.labels[:8])
        raise UnbloatError(f"{runs.name}: no run has {labels}; there are {known}")
    found = mean(measure(runs.runs[place], pick, folder(captures, runs.runs[place])) for place in places)
    return None if found is None else found + pick.plus


def folder(captures: Path | None, run: Run) -> Path | None:
    """Where a run's captures are."""
    if captures is None:
        return None
    kept = run.info.get("captures")
    return Path(kept[0]).parent if kept else captures
