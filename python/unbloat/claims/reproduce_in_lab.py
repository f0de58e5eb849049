"""Claims in the lab: their figures on the kernel's own TCP, beside the simulator's under the same settings.

A figure agrees where lab and simulator lie within its tolerance (and within the bounds that it states for the lab). What
a kernel cannot do, or what lies outside of the lab's shorter time, is not run. The result is one `LabOutcome` per figure.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from unbloat.claims.claim import Claim
from unbloat.claims.figure import Figure, Picked
from unbloat.claims.lab_settings import LabFigure, LabTable
from unbloat.claims.relate import related
from unbloat.errors import LabError, ScenarioError
from unbloat.lab import lab_all, seconds_needed
from unbloat.lab.requirements import need_root
from unbloat.scenario.simulate import RunOptions, simulate_all
from unbloat.scenario.sweep import RunSet

AGREES, DIFFERS, NOT_RUN, FAILED = "agrees", "differs", "not run", "failed"
UNEXPLAINED = "unexplained"
CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Measured:
    """The figures of a claim under the lab's settings, by their names: in the lab, or simulated."""

    values: Mapping[str, float | None]
    missing: Mapping[str, str]
    """Why a figure has no value."""
    kernel: str | None = None
    late_ms: float | None = None
    """p99 of how late packets were delivered, of the worst run; None where nothing was real."""
    failed: str | None = None
    """Why the lab broke off."""


@dataclass(frozen=True)
class LabOutcome:
    """One figure in the lab."""

    figure: Figure
    value: float | None
    simulator: float | None
    """Under the same settings."""
    state: str
    note: str
    kernel: str | None
    late_ms: float | None

    @property
    def surprising(self) -> bool:
        """Differs, and no reason is on record; or nothing could be measured."""
        explained = self.figure.lab is not None and self.figure.lab.reason is not None
        return self.state == FAILED or (self.state == DIFFERS and not explained)

    @property
    def tolerance(self) -> str:
        """As the claim states it."""
        return self.figure.lab.tolerance.text if self.figure.lab else ""

    @property
    def difference(self) -> float | None:
        """Lab less simulator: as a share of the simulator's where the tolerance is one, in the figure's unit otherwise."""
        if self.value is None or self.simulator is None or self.figure.lab is None:
            return None
        apart = self.value - self.simulator
        if not self.figure.lab.tolerance.relative:
            return apart
        return apart / abs(self.simulator) if self.simulator else (None if apart else 0.0)

    @property
    def within(self) -> bool | None:
        """Whether the lab's figure lies in the claim's bounds, those of the lab first; None where there are none."""
        least, most = bounds(self.figure)
        if self.value is None or (least is None and most is None):
            return None
        return (least is None or self.value >= least) and (most is None or self.value <= most)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "value": self.value,
            "simulator": self.simulator,
            "difference": self.difference,
            "tolerance": self.tolerance,
            "within_bounds": self.within,
            "state": self.state,
            "note": self.note,
            "kernel": self.kernel,
            "late_ms": self.late_ms,
        }


def bounds(figure: Figure) -> tuple[float | None, float | None]:
    """The lab's own where it states any."""
    own = figure.lab
    if own is not None and (own.least is not None or own.most is not None):
        return own.least, own.most
    return figure.bounds.least, figure.bounds.most


@dataclass
class Laboratory:
    """Runs claims in the lab, one after another, and reports its progress."""

    claims: Sequence[Claim]
    quick: bool
    traces: str | os.PathLike[str] | None
    progress: Callable[[int, int], None] | None = None
    done_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        need_root()

    @cached_property
    def seconds(self) -> dict[str, float]:
        """How long each claim takes."""
        return {claim.id: needed(claim, self.quick, self.traces) for claim in self.claims}

    def measured(self, claim: Claim) -> Measured:
        """The figures of a claim."""
        own_s, all_s = self.seconds[claim.id], sum(self.seconds.values())

        def report_progress(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(int(self.done_s + own_s * done / max(total, 1)), int(all_s))

        with tempfile.TemporaryDirectory(prefix="unbloat-claim-") as folder:
            captures = Path(folder)
            try:
                options = lab_run(claim, self.quick, self.traces, captures)
                runs = lab_all(claim.path, options, progress=report_progress)
                found = measure_all(claim, runs, captures)
            except LabError as error:
                found = Measured({}, {}, failed=str(error))
            except ScenarioError as error:
                found = not_run(claim, error)
        self.done_s += own_s
        report_progress(0, 1)
        return found


def needed(claim: Claim, quick: bool, traces: str | os.PathLike[str] | None) -> float:
    """Seconds that a claim takes in the lab."""
    return seconds_needed(claim.path, lab_run(claim, quick, traces))


def lab_run(
    claim: Claim, quick: bool, traces: str | os.PathLike[str] | None, captures: Path | None = None
) -> RunOptions:
    """The runs of `[claim.lab]`, for lab and simulator alike."""
    table = table_of(claim)
    return RunOptions(table.set, None, table.seeds, captures, traces, table.chosen(quick))


def simulated(claim: Claim, quick: bool, traces: str | os.PathLike[str] | None) -> Measured:
    """The figures of a claim in the simulator, under the lab's settings."""
    with tempfile.TemporaryDirectory(prefix="unbloat-claim-") as folder:
        needs_capture = any(
            pick.capture
            for figure in claim.figures
            if figure.lab is not None
            for pick in measured_picks(figure)
        )
        captures = Path(folder) if needs_capture else None
        try:
            options = replace(lab_run(claim, quick, traces, captures), events=False)
            runs = simulate_all(claim.path, options, jobs=1)
            return measure_all(claim, runs, captures)
        except ScenarioError as error:
            return not_run(claim, error)


def table_of(claim: Claim) -> LabTable:
    """How the lab runs it."""
    assert claim.lab is not None, "only claims with a [claim.lab] are chosen"
    return claim.lab


def not_run(claim: Claim, error: Exception) -> Measured:
    """A claim whose runs could not be made: the reason for each of its figures."""
    note = str(error).removeprefix(f"{claim.path}: ")
    return Measured({}, {figure.name: note for figure in claim.figures if figure.lab is not None})


def measured_picks(figure: Figure) -> list[Picked]:
    """What a figure measures in the lab. Its control is judged in the simulator only."""
    span = figure.lab.between if figure.lab else None
    return [
        pick if span is None or pick.between is None else replace(pick, between=span)
        for pick in (figure.of, figure.against)
        if pick
    ]


def measure_all(claim: Claim, runs: RunSet, captures: Path | None) -> Measured:
    """Every figure that these runs have."""
    values: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for figure in claim.figures:
        if figure.lab is None:
            continue
        of, *against = measured_picks(figure)
        if not all(is_there(pick, runs) for pick in (of, *against)):
            continue
        why = next((why for pick in (of, *against) if (why := absent(pick, runs))), None)
        if why is None:
            values[figure.name] = related(
                figure.relation, of, against[0] if against else None, runs, captures
            )
        else:
            missing[figure.name] = why
    late = [
        run.info["lateness_us_p99"] for run in runs if run.info.get("lateness_us_p99") is not None
    ]
    kernels = [run.info["kernel"] for run in runs if run.info.get("kernel")]
    return Measured(
        values, missing, kernels[0] if kernels else None, max(late) / 1000 if late else None
    )


def is_there(pick: Picked, runs: RunSet) -> bool:
    """Whether a run with these labels was made or skipped; the lab leaves out the others to save time."""
    every = [*runs.labels, *(one.labels for one in runs.skipped)]
    return any(set(pick.run) <= set(labels) for labels in every)


def absent(pick: Picked, runs: RunSet) -> str | None:
    """Why these runs do not have a number."""
    places = [place for place, labels in enumerate(runs.labels) if set(pick.run) <= set(labels)]
    if not places:
        return next(one.reason for one in runs.skipped if set(pick.run) <= set(one.labels))
    end = float(runs.runs[places[0]].info["duration_s"])
    if pick.between is not None and pick.between[1] > end:
        return f"measured until {pick.between[1]:g} s, the lab's run ends at {end:g} s"
    return None


def compared(claim: Claim, lab: Measured, simulator: Measured | None) -> dict[str, LabOutcome]:
    """Every figure that the lab measures, by its name."""
    beside = simulator or Measured({}, {})
    known = {*beside.values, *beside.missing, *lab.values, *lab.missing}
    return {
        figure.name: outcome(figure, figure.lab, lab, beside)
        for figure in claim.figures
        if figure.lab is not None and figure.name in known
    }


def outcome(figure: Figure, own: LabFigure, lab: Measured, simulator: Measured) -> LabOutcome:
    """One figure: its values in lab and simulator, and whether they agree."""
    value, beside = lab.values.get(figure.name), simulator.values.get(figure.name)

    def found(state: str, note: str) -> LabOutcome:
        return LabOutcome(figure, value, beside, state, note, lab.kernel, lab.late_ms)

    if lab.failed is not None:
        return found(FAILED, lab.failed)
    if figure.name not in lab.values:
        return found(NOT_RUN, lab.missing.get(figure.name, "not measured"))
    if value is None and beside is None:
        return found(DIFFERS, own.reason or "neither measured anything")
    differs = value is None or beside is None or not own.tolerance.covers(value, beside)
    outside = value is not None and (
        (own.least is not None and value < own.least) or (own.most is not None and value > own.most)
    )
    if differs or outside:
        return found(DIFFERS, own.reason or UNEXPLAINED)
    return found(AGREES, "")


def machine() -> str:
    """What a measurement was made on."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    count = os.cpu_count() or 1
    return (
        f"{count} processor{'' if count == 1 else 's'}, {names[0] if names else platform.machine()}"
    )
