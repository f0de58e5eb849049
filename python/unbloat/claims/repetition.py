"""A claim simulated seed by seed: every figure and its control, once per seed.

Runs of one seed are related to each other, so that two runs of a relation meet the same random numbers. A scenario whose
figures are the same with its second seed draws none that matter, and is not repeated further. Each seed's runs are dropped
before the next are made, since a matrix has hundreds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unbloat.claims.claim import Claim
from unbloat.claims.figure import Figure, Picked
from unbloat.claims.measure import measure
from unbloat.claims.relate import folder, picks, related
from unbloat.scenario.scenario import Source
from unbloat.scenario.simulate import RunOptions, simulate_all
from unbloat.scenario.sweep import Labels, RunSet

# Seeds of a scenario that draws random numbers: Student's t with nine degrees of freedom is 2.26, near the normal 1.96.
SEEDS = 10
# Where the source leaves nothing open.
NOTHING_OPEN = ""
# Between the values of a combination; no label has it.
BETWEEN = " · "
# Significant digits that are stored: finer than any bound, and the same on every machine.
DIGITS = 7

Numbers = tuple[float | None, ...]


@dataclass(frozen=True)
class Row:
    """One run in the table of a claim."""

    labels: Labels
    values: Numbers
    """By the columns of the claim."""


@dataclass(frozen=True)
class Repetition:
    """All figures of a claim with one seed."""

    values: dict[str, Numbers]
    """By figure, at each value of what the source leaves open."""
    controls: dict[str, Numbers]
    table: tuple[Row, ...]
    curves: dict[str, Numbers] = field(default_factory=dict)
    """What the charts measure beyond the figures, at each value of what the source leaves open; empty without such."""

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        curves = {key: list(found) for key, found in self.curves.items()}
        return {
            **({"curves": curves} if curves else {}),
            "values": {key: list(found) for key, found in self.values.items()},
            "controls": {key: list(found) for key, found in self.controls.items()},
            "table": [
                [[list(pair) for pair in row.labels], list(row.values)] for row in self.table
            ],
        }

    @staticmethod
    def read(stored: dict[str, Any]) -> Repetition:
        """The opposite of `to_dict`."""
        return Repetition(
            {key: tuple(found) for key, found in stored["values"].items()},
            {key: tuple(found) for key, found in stored["controls"].items()},
            tuple(
                Row(tuple((key, value) for key, value in labels), tuple(values))
                for labels, values in stored["table"]
            ),
            {key: tuple(found) for key, found in stored.get("curves", {}).items()},
        )


def repetitions(
    claim: Claim,
    traces: str | os.PathLike[str] | None = None,
    *,
    first: Repetition | None = None,
) -> list[Repetition]:
    """The claim with ten seeds, or as many as its scenario asks for; once where the seed changes nothing.

    `first` is that of the first seed, where it is known. Raises `TraceMissing`.
    """
    found = {0: first or repetition(claim, 0, traces)}
    while places := left(claim, found):
        for place in places:
            found[place] = repetition(claim, place, traces)
    return settled(found)


def left(claim: Claim, found: Mapping[int, Repetition]) -> list[int]:
    """Places of the seeds to simulate next: the first, the second, and where that changes something all others."""
    if len(found) < 2:
        return [len(found)]
    if found[0] == found[1]:
        return []
    return [place for place in range(max(SEEDS, claim.seeds)) if place not in found]


def settled(found: Mapping[int, Repetition]) -> list[Repetition]:
    """The claim with all its seeds, in their order; once where the seed changes nothing."""
    return [found[0]] if found[0] == found[1] else [found[place] for place in sorted(found)]


def repetition(
    claim: Claim,
    place: int,
    traces: str | os.PathLike[str] | None = None,
    trace_texts: Mapping[str, str] | None = None,
) -> Repetition:
    """The claim with its `place`-th seed, the first being 0. `trace_texts` are the traces' own, where no files are looked for."""
    every = [*(pick for figure in claim.figures for pick in picks(figure)), *claim.curves]
    needs_capture = any(pick.capture for pick in every)
    with tempfile.TemporaryDirectory(prefix="unbloat-claim-") as directory:
        captures = Path(directory) if needs_capture else None
        options = RunOptions(
            seed=claim.seed + place,
            seeds=1,
            traces=traces,
            trace_texts=trace_texts,
            pcap=captures,
            events=False,
        )
        runs = simulate_all(Source(claim.text, claim.path), options, jobs=1)
        return measured(claim, runs, captures)


def measured(claim: Claim, runs: RunSet, captures: Path | None) -> Repetition:
    """Every figure of one seed's runs."""
    opened = open_values(claim, runs)

    def numbers(
        value: str, parts: Callable[[Figure], tuple[Picked | None, Picked | None]]
    ) -> Numbers:
        return tuple(
            number(claim, figure.relation, *parts(figure), value, runs, captures)
            for figure in claim.figures
        )

    return Repetition(
        {value: numbers(value, lambda figure: (figure.of, figure.against)) for value in opened},
        {
            value: numbers(value, lambda figure: (figure.control, figure.control_against))
            for value in opened
        },
        table(claim, runs, captures),
        curves(claim, opened, runs, captures),
    )


def open_values(claim: Claim, runs: RunSet) -> list[str]:
    """The combinations of what the source leaves open, in the order of the sweep."""
    if not claim.open:
        return [NOTHING_OPEN]
    every = (dict(labels) for labels in runs.labels)
    return list(dict.fromkeys(BETWEEN.join(one[key] for key in claim.open) for one in every))


def at(claim: Claim, pick: Picked, value: str) -> Picked:
    """A pick at a combination of what the source leaves open, unless it names a value itself."""
    named = dict(pick.run)
    chosen = zip(claim.open, value.split(BETWEEN), strict=True) if claim.open else ()
    more = tuple((key, one) for key, one in chosen if key not in named)
    return replace(pick, run=(*pick.run, *more)) if more else pick


def number(
    claim: Claim,
    relation: str,
    of: Picked | None,
    against: Picked | None,
    value: str,
    runs: RunSet,
    captures: Path | None,
) -> float | None:
    """A figure, or its control, at a value of what the source leaves open; None where there is none."""
    if of is None:
        return None
    beside = None if against is None else at(claim, against, value)
    return rounded(related(relation, at(claim, of, value), beside, runs, captures))


def table(claim: Claim, runs: RunSet, captures: Path | None) -> tuple[Row, ...]:
    """The columns that the claim asks for, measured in every run."""
    if not claim.columns:
        return ()
    return tuple(
        Row(
            labels,
            tuple(rounded(measure(run, pick, folder(captures, run))) for _, pick in claim.columns),
        )
        for labels, run in zip(runs.labels, runs.runs, strict=True)
    )


def curves(
    claim: Claim, opened: list[str], runs: RunSet, captures: Path | None
) -> dict[str, Numbers]:
    """What the charts measure beyond the figures."""
    if not claim.curves:
        return {}
    return {
        value: tuple(
            number(claim, "value", pick, None, value, runs, captures) for pick in claim.curves
        )
        for value in opened
    }


def rounded(value: float | None) -> float | None:
    """To the digits that are stored, so that stored and new figures can be compared."""
    return None if value is None else float(f"{value:.{DIGITS}g}")
