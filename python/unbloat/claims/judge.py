"""Figures judged: from the numbers of all seeds to pass, fail or only shown.

A figure passes where the whole 95 % interval of its mean lies inside the bounds, and no part of its control's interval
does. A known failure has bounds of its own (`regression`): outside of them something has changed, and the reason on record
no longer excuses it. Where the source leaves a parameter open, all figures are judged at each of its values, and shown at
the one at which most of them pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unbloat.claims.claim import Claim
from unbloat.claims.figure import Bounds, Figure
from unbloat.claims.repetition import Numbers, Repetition, Row
from unbloat.claims.reproduce_in_lab import LabOutcome
from unbloat.scenario.confidence import Spread, spread

# As `--json` names the states of a figure; `words.state_text` is what people read.
FIGURE_PASSED, FIGURE_FAILED, SHOWN, SKIPPED = "held", "not held", "shown", "skipped"
CONTROL_PASSES = "the control passes as well"


@dataclass(frozen=True)
class OpenParameter:
    """What the source leaves open, and where all figures hold at once."""

    name: str
    shown: str
    """The value at which the figures are shown."""
    values: tuple[str, ...]
    satisfying: tuple[str, ...]
    """Those at which every bounded figure passes; none: the claim does not hold."""
    failing: tuple[int, ...]
    """How many figures fail at each of the values."""
    each: str | None = None
    """Where it may be another one for each value of another label: the value for which this is said."""

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "name": self.name,
            "shown": self.shown,
            "values": list(self.values),
            "satisfying": list(self.satisfying),
            "failing": dict(zip(self.values, self.failing, strict=True)),
            **({} if self.each is None else {"each": self.each}),
        }


@dataclass(frozen=True)
class Outcome:
    """One figure of a claim, measured."""

    claim: Claim
    figure: Figure
    measured: Spread | None
    """None: nothing was measured."""
    control_measured: Spread | None
    state: str
    note: str
    """Why it fails, or was not run."""
    drifted: bool = False
    """The reason on record does not explain it: outside of its regression bounds, or no failure any more."""
    table: tuple[Row, ...] = ()
    """All runs of the claim, where it shows them; means over the seeds."""
    opened: OpenParameter | None = None
    curves: tuple[Spread | None, ...] = ()
    """What the claim's charts measure beyond its figures, at the value that is shown."""
    lab: LabOutcome | None = None
    """The same figure in the lab, where it was run there."""

    @property
    def value(self) -> float | None:
        """The mean over the seeds."""
        return None if self.measured is None else self.measured.mean

    @property
    def control(self) -> float | None:
        """The control's."""
        return None if self.control_measured is None else self.control_measured.mean

    @property
    def surprising(self) -> bool:
        """Failed or changed, or different in the lab, and no reason is on record."""
        failed = self.state == FIGURE_FAILED and self.figure.reason is None
        return failed or self.drifted or (self.lab is not None and self.lab.surprising)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        figure = self.figure
        return {
            "claim": self.claim.id,
            "title": self.claim.title,
            "source": self.claim.source,
            "mark": figure.mark,
            "chosen_after": figure.chosen_after,
            "figure": figure.name,
            "metric": figure.of.metric,
            "relation": figure.relation,
            "run": dict(figure.of.run),
            "against": None if figure.against is None else dict(figure.against.run),
            "paper": figure.paper,
            "expected": figure.expected,
            "value": self.value,
            "half_interval": None if self.measured is None else self.measured.half,
            "seeds": 0 if self.measured is None else self.measured.count,
            "min": figure.bounds.least,
            "max": figure.bounds.most,
            "why": figure.why,
            "control": self.control,
            "control_half_interval": None
            if self.control_measured is None
            else self.control_measured.half,
            "state": self.state,
            "note": self.note,
            "drifted": self.drifted,
            **({} if self.opened is None else {"open": self.opened.to_dict()}),
            **({} if self.lab is None else {"lab": self.lab.to_dict()}),
        }


def outcomes(claim: Claim, found: Sequence[Repetition]) -> list[Outcome]:
    """All figures of a claim."""
    values = list(found[0].values)
    at = {value: judged_at(claim, found, value) for value in values}
    rows = mean_table(found)
    groups = [None if claim.each is None else dict(one.of.run)[claim.each] for one in claim.figures]
    opened = {group: open_parameter(claim, at, groups, group) for group in dict.fromkeys(groups)}
    curves = {one.shown: curves_at(found, one.shown) for one in opened.values()}
    return [
        replace(
            at[one.shown][place],
            table=rows,
            opened=one if claim.open else None,
            curves=curves[one.shown],
        )
        for place, group in enumerate(groups)
        for one in (opened[group],)
    ]


def open_parameter(
    claim: Claim,
    at: Mapping[str, Sequence[Outcome]],
    groups: Sequence[str | None],
    group: str | None,
) -> OpenParameter:
    """Where all figures of a group hold, and the value at which most of them do."""
    passed = {
        value: [passes(one) for one, own in zip(found, groups, strict=True) if own == group]
        for value, found in at.items()
    }
    satisfying = tuple(value for value, found in passed.items() if all(found))
    shown = max(passed, key=lambda value: sum(passed[value]))
    failing = tuple(found.count(False) for found in passed.values())
    name = " and ".join(claim.open)
    return OpenParameter(name, shown, tuple(passed), satisfying, failing, group)


def curves_at(found: Sequence[Repetition], value: str) -> tuple[Spread | None, ...]:
    """What the claim's charts measure beyond its figures, at one value of what is open."""
    numbers = zip(*(one.curves.get(value, ()) for one in found), strict=True)
    return tuple(spread_of(each) for each in numbers)


def passes(outcome: Outcome) -> bool:
    """Whether it does not fail."""
    return outcome.state != FIGURE_FAILED


def judged_at(claim: Claim, found: Sequence[Repetition], value: str) -> list[Outcome]:
    """All figures at one value of what the source leaves open."""
    return [
        judged(
            claim,
            figure,
            tuple(one.values[value][place] for one in found),
            tuple(one.controls[value][place] for one in found),
        )
        for place, figure in enumerate(claim.figures)
    ]


def judged(claim: Claim, figure: Figure, values: Numbers, controls: Numbers) -> Outcome:
    """One figure: the numbers of all seeds, compared with its bounds."""
    value, control = spread_of(values), spread_of(controls)
    if not figure.bounds.stated:
        return Outcome(claim, figure, value, control, SHOWN, figure.reason or "")
    why = failure(figure, value, control, values)
    if why is None:
        # A reason without a failure is as untrue as a failure without a reason.
        drifted = figure.reason is not None
        note = "passes, although a reason for a failure is on record" if drifted else ""
        return Outcome(claim, figure, value, control, FIGURE_PASSED, note, drifted)
    if figure.reason is None:
        return Outcome(claim, figure, value, control, FIGURE_FAILED, why)
    drifted = not (value is not None and inside(figure.regression, value))
    note = f"outside of its regression bounds; {figure.reason}" if drifted else figure.reason
    return Outcome(claim, figure, value, control, FIGURE_FAILED, note, drifted)


def failure(
    figure: Figure, value: Spread | None, control: Spread | None, values: Numbers
) -> str | None:
    """Why a figure does not pass; None where it does."""
    missing = sum(number is None for number in values)
    if value is None:
        return "nothing was measured"
    if missing:
        return f"nothing was measured with {missing} of {len(values)} seeds"
    low, high = ends(value)
    if not figure.bounds.hold(low, high):
        mean_inside = figure.bounds.hold(value.mean, value.mean)
        return "the interval reaches beyond the bounds" if mean_inside else "outside the bounds"
    if control is None:
        return "the control measured nothing"
    return CONTROL_PASSES if figure.bounds.touch(*ends(control)) else None


def inside(bounds: Bounds | None, value: Spread) -> bool:
    """Whether the mean lies in bounds that are there."""
    return bounds is not None and bounds.hold(value.mean, value.mean)


def ends(found: Spread) -> tuple[float, float]:
    """Of the interval; a single value is its own."""
    half = found.half or 0.0
    return found.mean - half, found.mean + half


def spread_of(values: Numbers) -> Spread | None:
    """Mean and interval of what was measured."""
    found = [value for value in values if value is not None]
    return spread(found) if found else None


def mean_table(found: Sequence[Repetition]) -> tuple[Row, ...]:
    """The table of all runs, each cell the mean over the seeds."""
    return tuple(
        Row(
            rows[0].labels,
            tuple(
                None if (one := spread_of(cells)) is None else one.mean
                for cells in zip(*(row.values for row in rows), strict=True)
            ),
        )
        for rows in zip(*(one.table for one in found), strict=True)
    )
