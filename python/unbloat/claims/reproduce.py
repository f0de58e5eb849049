"""`reproduce`: every claim of the papers, run again.

The scenario of each claim in `scenarios/` is simulated. Its figures are measured and compared with bounds that were
stated beforehand. A control run, the same scenario with the cure (or the problem) switched off, has to fall outside
the bounds, so that no claim passes by accident. The result is one `Outcome` per figure: pass, fail, or only shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal

from unbloat.claims.claim import Claim, claims
from unbloat.claims.cluster import repeated_on_cluster
from unbloat.claims.judge import SKIPPED, Outcome, outcomes
from unbloat.claims.repetition import Repetition, repetitions
from unbloat.claims.reproduce_in_lab import Laboratory, LabOutcome, Measured, compared, simulated
from unbloat.claims.store import ClaimStore
from unbloat.errors import TraceMissing, UnbloatError

Extent = Literal["quick", "whole"]
"""How much is run in the lab."""


def reproduce(
    names: Iterable[str] = (),
    *,
    quick: bool = False,
    lab: Extent | None = None,
    traces: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    store: str | os.PathLike[str] | None = None,
    stored: bool = False,
    progress: Callable[[int, int], None] | None = None,
    lab_progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Run claims (all, those named, or the quick ones) and compare their figures with the papers'.

    A name is a claim's, or the beginning of several: `drwa`. With `lab`, only claims that the lab runs ("quick": those that
    take it seconds), and each of their figures is compared with the simulator's under the lab's settings; needs root. `store`
    keeps what was simulated in a file, from which the next run goes on; with `stored` nothing is simulated. `dask` has seeds of
    claims simulated on the workers of a Dask scheduler at an address, or on `jobs` processes where it is `local`. Raises
    `UnbloatError` for a name that no claim has, for a claim that is not stored, for a cluster that cannot be used.
    """
    chosen = choose(claims(), list(names), quick, lab)
    laboratory = None if lab is None else Laboratory(chosen, lab == "quick", traces, lab_progress)
    kept = None if store is None else ClaimStore(Path(store))
    away = None
    if dask is not None and not stored:
        away = repeated_on_cluster(chosen, dask, jobs, traces, kept, progress)
        progress = None
    done = 0

    def one(claim: Claim) -> tuple[list[Outcome], Measured | None]:
        nonlocal done
        if away is not None:
            outcomes = examined(claim, away[claim.id].outcome)
        elif kept is None:
            outcomes = examine(claim, traces)
        else:
            run = kept.read if stored else lambda claim: kept.repetitions(claim, traces)
            outcomes = examined(claim, lambda: run(claim))
        beside = None if laboratory is None else simulated(claim, lab == "quick", traces)
        done += 1
        if progress is not None:
            progress(done, len(chosen))
        return outcomes, beside

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        found = [*pool.map(one, chosen)]
    if kept is not None and not stored:
        kept.sort()
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
    return examined(claim, lambda: repetitions(claim, traces))


def examined(claim: Claim, run: Callable[[], Sequence[Repetition]]) -> list[Outcome]:
    """All figures of one claim, from what `run` simulates or reads; skipped where a trace is not there."""
    try:
        return outcomes(claim, run())
    except TraceMissing as missing:
        # Where the file is says nothing about the claim, and differs from one installation to the next.
        note = str(missing).removeprefix(f"{claim.path}: ")
        return [Outcome(claim, figure, None, None, SKIPPED, note) for figure in claim.figures]
