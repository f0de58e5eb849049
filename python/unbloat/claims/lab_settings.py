"""How the lab runs a claim: `[claim.lab]`, and `lab` of a figure.

They are settings under which the scenario is short enough for the real clock, the runs that a stock kernel can make, and
how near the lab's figures have to come to the simulator's. A tolerance is a share of the simulator's figure, or an amount
in the figure's own unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unbloat.claims.values import known, number, span

# Where neither claim nor figure says another: what runs of one kernel differ by among themselves.
USUAL = "10 %"


@dataclass(frozen=True)
class Tolerance:
    """How far two figures may lie apart."""

    text: str
    """As the file has it."""
    amount: float
    relative: bool
    """A share of the simulator's figure; otherwise in the figure's unit."""

    def covers(self, lab: float, simulator: float) -> bool:
        """Whether the lab's figure is near enough."""
        return abs(lab - simulator) <= self.amount * (abs(simulator) if self.relative else 1.0)


@dataclass(frozen=True)
class LabTable:
    """`[claim.lab]`"""

    quick: bool
    """Part of `--lab=quick`."""
    quick_runs: tuple[Mapping[str, str], ...]
    """Some labels of each run that `--lab=quick` makes; as `runs` without."""
    set: Mapping[str, Any]
    """Keys of the scenario with other values, for lab and simulator."""
    runs: tuple[Mapping[str, str], ...]
    """Some labels of each run that is made; all that no veto forbids without."""
    seeds: int
    tolerance: Tolerance

    def chosen(self, quick: bool) -> tuple[Mapping[str, str], ...]:
        """The runs that are made."""
        return self.quick_runs if quick and self.quick_runs else self.runs


@dataclass(frozen=True)
class LabFigure:
    """`lab` of a figure."""

    tolerance: Tolerance
    least: float | None = None
    most: float | None = None
    """Bounds for the lab's settings, where those of the figure do not suit them."""
    why: str | None = None
    reason: str | None = None
    """Why the lab is known to differ."""
    between: tuple[float, float] | None = None
    """Seconds, in place of a span that lies beyond the lab's shorter run: for lab and simulator."""


def tolerance(value: object, place: str) -> Tolerance:
    """A share with `%`, or an amount with a unit or plain."""
    amount = number(value, place)
    if amount is None or amount < 0:
        raise KeyError(f"{place}: {value!r} is no tolerance")
    return Tolerance(str(value), amount, isinstance(value, str) and value.endswith("%"))


def lab_table(entry: Mapping[str, Any] | None, place: str) -> LabTable | None:
    """How the lab runs a claim."""
    if entry is None:
        return None
    known(entry, {"quick", "set", "runs", "seeds", "tolerance"}, place)
    if not isinstance(entry.get("set", {}), Mapping):
        raise KeyError(f'{place}.set: expected a table such as {{ duration = "20 s" }}')
    quick = entry.get("quick", False)
    seeds = entry.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise KeyError(f"{place}.seeds: {seeds!r} is no number of runs")
    return LabTable(
        bool(quick),
        () if isinstance(quick, bool) else labelled(quick, f"{place}.quick"),
        entry.get("set", {}),
        labelled(entry.get("runs", []), f"{place}.runs"),
        seeds,
        tolerance(entry.get("tolerance", USUAL), f"{place}.tolerance"),
    )


def labelled(runs: object, place: str) -> tuple[Mapping[str, str], ...]:
    """Runs, each by some of its labels."""
    if not isinstance(runs, list) or not all(isinstance(run, Mapping) and run for run in runs):
        raise KeyError(f'{place}: expected tables of labels such as [{{ cure = "none" }}]')
    return tuple({str(key): str(value) for key, value in run.items()} for run in runs)


def lab_figure(
    entry: Mapping[str, Any] | bool | None, table: LabTable | None, place: str
) -> LabFigure | None:
    """How near the lab has to come to a figure; None where it is not measured."""
    if table is None:
        if entry is not None:
            raise KeyError(f"{place}: the claim has no [claim.lab]")
        return None
    if entry is False:
        return None
    if entry is None:
        return LabFigure(table.tolerance)
    if not isinstance(entry, Mapping):
        raise KeyError(
            f"{place}: expected false, or a table with tolerance, min, max, why, reason, between"
        )
    known(entry, {"tolerance", "min", "max", "why", "reason", "between"}, place)
    least, most = number(entry.get("min"), f"{place}.min"), number(entry.get("max"), f"{place}.max")
    if (least is not None or most is not None) and "why" not in entry:
        raise KeyError(f"{place}.why is missing: why the lab has bounds of its own")
    return LabFigure(
        tolerance(entry["tolerance"], f"{place}.tolerance")
        if "tolerance" in entry
        else table.tolerance,
        least,
        most,
        entry.get("why"),
        entry.get("reason"),
        span(entry["between"], place) if "between" in entry else None,
    )
