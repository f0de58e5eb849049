"""Figures of claims: a number of one run, or how the numbers of two runs are related.

Runs that differ by their seed alone make a mean. A relation is a value, a ratio, a change or a difference; None where
nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from unbloat.claims.figure import Figure, Picked
from unbloat.claims.measure import measure
from unbloat.errors import UnbloatError
from unbloat.run.run import Run
from unbloat.scenario.sweep import RunSet


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that were measured."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def picks(figure: Figure) -> list[Picked]:
    """Everything that a figure measures."""
    return [
        pick for pick in (figure.of, figure.against, figure.control, figure.control_against) if pick
    ]


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
    found = mean(
        measure(runs.runs[place], pick, folder(captures, runs.runs[place])) for place in places
    )
    return None if found is None else found + pick.plus


def folder(captures: Path | None, run: Run) -> Path | None:
    """Where a run's captures are."""
    if captures is None:
        return None
    kept = run.info.get("captures")
    return Path(kept[0]).parent if kept else captures
