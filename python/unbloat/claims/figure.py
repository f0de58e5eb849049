"""Figures of claims: one number of a run, or how two runs are related, with its bounds and its control.

A bounded figure has a control: the same figure in a run that differs in one named setting, where the bounds must not hold.
A control that is the very run which the figure is related to is refused, since its relation is 1 by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from unbloat.claims.lab_settings import LabFigure, LabTable, lab_figure
from unbloat.claims.values import known, number, span

# Where a figure of a source comes from, as the claims name it.
MARKS = {
    "seed": "in the documents that the project starts from",
    "found": "read in public material, which the source names",
    "derived": "computed from such figures",
    "recalled": "remembered, not found in any source: run and shown, but no paper figure is printed",
    "own": "no paper's claim: a question of this project",
}
# How two runs are related.
RELATIONS = ("value", "ratio", "change", "difference")
# Marks of numbers that stand in a source itself; others are printed as what is expected, not as what the source says.
IN_A_SOURCE = ("seed", "found")


@dataclass(frozen=True)
class Picked:
    """One number of one run."""

    metric: str
    """Name of a metric, with a statistic behind a blank where it is a distribution: `probe_rtt_ms p95`."""
    run: tuple[tuple[str, str], ...] = ()
    """Labels of the run."""
    flow: str | None = None
    probe: str | None = None
    link: str | None = None
    between: tuple[float, float] | None = None
    """Seconds; the whole run (less its warm-up) without."""
    capture: str | None = None
    """Node whose capture is analysed for it."""
    plus: float = 0.0
    """Added to the number: the path's own RTT, where a source states round trips and the run has a stage's delay."""


@dataclass(frozen=True)
class Bounds:
    """Where a number has to lie, ends included; None where a side is open."""

    least: float | None
    most: float | None

    @property
    def stated(self) -> bool:
        """Whether there are any."""
        return self.least is not None or self.most is not None

    def hold(self, least: float, most: float) -> bool:
        """Whether an interval lies wholly inside."""
        return (self.least is None or least >= self.least) and (
            self.most is None or most <= self.most
        )

    def touch(self, least: float, most: float) -> bool:
        """Whether any part of an interval lies inside."""
        return (self.least is None or most >= self.least) and (
            self.most is None or least <= self.most
        )


@dataclass(frozen=True)
class Figure:
    """A figure of a claim."""

    name: str
    of: Picked
    relation: str
    against: Picked | None
    paper: str | None
    """What the source says, in its words' figures; None where it is only recalled."""
    expected: str | None
    """What is computed from the source, or expected by this project."""
    bounds: Bounds
    why: str
    """Why the bounds are where they are."""
    mark: str
    control: Picked | None
    control_against: Picked | None
    reason: str | None
    """Why it is known to fail."""
    regression: Bounds | None
    """Where a figure that is known to fail lies nevertheless: outside of it something has changed."""
    chosen_after: str | None
    """What was chosen after a run was seen; None where all was fixed before."""
    lab: LabFigure | None = None
    """How near the lab has to come to the simulator; None where the lab does not measure it."""


FIGURE_KEYS = {
    "name", "metric", "run", "flow", "probe", "link", "between", "capture", "plus", "as", "against", "paper", "min", "max",
    "why", "mark", "control", "reason", "lab", "expected", "regression", "chosen_after",
}  # fmt: skip


def figure(entry: Mapping[str, Any], place: str, mark: str, lab: LabTable | None) -> Figure:
    """One `[[figure]]`."""
    known(entry, FIGURE_KEYS, place)
    for key in ("name", "metric", "why"):
        if key not in entry:
            raise KeyError(f"{place}.{key} is missing")
    of = picked({key: entry[key] for key in PICKED if key in entry}, None, place)
    relation = entry.get("as", "value")
    if relation not in RELATIONS:
        raise KeyError(f"{place}.as: there is no {relation!r}; there are {', '.join(RELATIONS)}")
    against = entry.get("against")
    if (against is None) != (relation == "value"):
        raise KeyError(f"{place}: `against` and `as` belong together")
    own = entry.get("mark", mark)
    if own == "recalled" and "paper" in entry:
        raise KeyError(
            f"{place}.paper: a figure that is only recalled is not printed as the paper's"
        )
    if own not in IN_A_SOURCE and "paper" in entry:
        raise KeyError(
            f"{place}.paper: a figure marked {own} is not in the source; write it as `expected`"
        )
    bounds = limits(entry, place)
    control, reason = entry.get("control"), entry.get("reason")
    if bounds.stated and control is None:
        raise KeyError(f"{place}.control is missing: the run in which the figure must not hold")
    regression = entry.get("regression")
    if bounds.stated and (regression is None) != (reason is None):
        raise KeyError(
            f"{place}: `reason` and `regression` belong together: bounds of what a known failure gives"
        )
    if regression is not None:
        known(regression, {"min", "max"}, f"{place}.regression")
    compared = None if against is None else picked(against, of, f"{place}.against")
    made = Figure(
        entry["name"],
        of,
        relation,
        compared,
        entry.get("paper"),
        entry.get("expected"),
        bounds,
        entry["why"],
        own,
        None if control is None else picked(control, of, f"{place}.control"),
        beside(against, control, of, compared, place),
        reason,
        None if regression is None else limits(regression, f"{place}.regression"),
        entry.get("chosen_after"),
        lab_figure(entry.get("lab"), lab, f"{place}.lab"),
    )
    can_fail(made, place)
    return made


def limits(entry: Mapping[str, Any], place: str) -> Bounds:
    """`min` and `max`."""
    return Bounds(number(entry.get("min"), place), number(entry.get("max"), place))


def can_fail(figure: Figure, place: str) -> None:
    """Refuses a control that shows nothing: the judged run itself, or the run that it is related to."""
    control = figure.control
    if control is None:
        return
    if control == figure.of and figure.control_against == figure.against:
        raise KeyError(f"{place}.control is the judged run itself")
    if control == figure.control_against:
        raise KeyError(f"{place}.control is the run that the figure is related to")
    judged, other = dict(figure.of.run), dict(control.run)
    apart = [key for key in {**judged, **other} if judged.get(key) != other.get(key)]
    if len(apart) > 1:
        raise KeyError(
            f"{place}.control differs in {' and '.join(sorted(apart))}; one named setting is enough"
        )


def beside(
    against: Mapping[str, Any] | None,
    control: Mapping[str, Any] | None,
    of: Picked,
    compared: Picked | None,
    place: str,
) -> Picked | None:
    """What the control is related to: a number of its own run, unless `against` names another run."""
    if against is None or control is None or compared is None:
        return None
    return compared if "run" in against else picked(against, picked(control, of, place), place)


PICKED = tuple(field.name for field in fields(Picked))


def picked(entry: Mapping[str, Any], base: Picked | None, place: str) -> Picked:
    """A choice of run and metric; what is not said is as in `base`."""
    known(entry, set(PICKED), place)
    values: dict[str, Any] = {} if base is None else {name: getattr(base, name) for name in PICKED}
    values |= entry
    if isinstance(values.get("run"), Mapping):
        values["run"] = tuple((str(key), str(value)) for key, value in values["run"].items())
    if values.get("between") is not None and not isinstance(values["between"], tuple):
        values["between"] = span(values["between"], place)
    if "plus" in entry:
        values["plus"] = number(entry["plus"], f"{place}.plus")
    return Picked(**values)
