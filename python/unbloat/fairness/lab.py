"""`reproduce fairness --lab`: some of the cases on the kernel's own TCP, with unbloat-agent in place of the simulated law.

signal: cases and controls that were fixed before the first run · model: the scenario of the simulated case, run by the lab
on the real clock; a run is stored as soon as it is over, with commit, date, kernel and what the simulator gave then. It is
made again where the law has changed · action: the judge of the simulated cases on each run
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbloat.fairness.cases import BOTH_WAYS, CASES, BothWays, Case
from unbloat.fairness.fairness import NAMES, Both, Shared, measured, paired, settings
from unbloat.fairness.judge import BothVerdict, SharedVerdict, judge_shared
from unbloat.front.case import simulated
from unbloat.front.lab import ROUNDING, LabRun, commit, origin, part
from unbloat.lab.execute import lab_all
from unbloat.lab.requirements import need_root
from unbloat.run.store import Store
from unbloat.scenario.simulate import RunOptions

# Latecomers, which a window law is worst for. With eight flows a run of the lab takes more than two minutes.
LAB_FLOWS = (2, 4)
# The law as the agent runs it by default, and its control.
LAB_SHARINGS = ("nothing", "window law, agent")
LAB_CASES: tuple[Case, ...] = tuple(
    case
    for case in CASES
    if case.flows in LAB_FLOWS and case.staggered and case.sharing.name in LAB_SHARINGS
)
LabCase = Case | BothWays


@dataclass(frozen=True)
class SharedInLab:
    """A case of several flows: every run of the lab, and the simulator's."""

    runs: list[SharedVerdict]
    simulator: SharedVerdict


@dataclass(frozen=True)
class BothInLab:
    """A control of both ways at once: every pair of runs of the lab, and the simulator's."""

    runs: list[BothVerdict]
    simulator: BothVerdict


@dataclass(frozen=True)
class FairnessInLab:
    """All that the lab measured."""

    shared: list[SharedInLab]
    both: list[BothInLab]
    runs: list[LabRun]
    """As stored, each with its case."""


def fairness_in_lab(
    repeat: int = 1,
    *,
    store: Path | None = None,
    cases: Sequence[Case] = LAB_CASES,
    both_ways: Sequence[BothWays] = BOTH_WAYS,
    only_stored: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> FairnessInLab:
    """Run what is missing of so many repetitions. With `only_stored` nothing is run."""
    kept = Store(store, NAMES)
    every: list[LabCase] = [*cases, *both_ways]
    if only_stored:
        every = [case for case in every if stored(kept, case)]
    now = {case.key: measured(case, simulated(case.scenario())) for case in every}
    if not only_stored:
        need_root()
        code = commit()  # of what was imported; a later change of the tree is not what runs
        # All cases once, then all a second time: the machine's load differs least within a repetition.
        missing = [
            case
            for number in range(repeat)
            for case in every
            if len(present(stored(kept, case), now[case.key])) <= number
        ]
        for done, case in enumerate(missing):
            runs = present(stored(kept, case), now[case.key])
            run = in_lab(case, len(runs) + 1, part(progress, done, len(missing)))
            run |= {"commit": code, "simulator": compared(now[case.key])}
            kept.put(case.key, settings(case), [*runs, run])
    return FairnessInLab(
        [
            SharedInLab(
                [judge_shared(Shared(case, *run["found"])) for run in stored(kept, case)],
                judge_shared(Shared(case, *now[case.key])),
            )
            for case in every
            if isinstance(case, Case)
        ],
        both_in_lab([case for case in every if isinstance(case, BothWays)], kept, now),
        [
            {key: value for key, value in run.items() if key != "found"}
            | {"case": ", ".join(case.key)}
            for case in every
            for run in stored(kept, case)
        ],
    )


def both_in_lab(
    cases: Sequence[BothWays], kept: Store, now: dict[tuple[str, ...], list[Any]]
) -> list[BothInLab]:
    """The upload alone and beside the download, of each repetition."""
    simulator = paired(cases, now)
    repeats = max((len(stored(kept, case)) for case in cases), default=0)
    found: dict[str, list[Both]] = {}
    for number in range(repeats):
        ran = [case for case in cases if len(stored(kept, case)) > number]
        for one in paired(ran, {case.key: stored(kept, case)[number]["found"] for case in ran}):
            found.setdefault(one.name, []).append(one)
    return [
        BothInLab([BothVerdict(both) for both in found[one.name]], BothVerdict(one))
        for one in simulator
        if one.name in found
    ]


def stored(kept: Store, case: LabCase) -> list[LabRun]:
    """The runs of a case under its present settings."""
    return kept.runs(case.key, settings(case)) or []


def compared(found: list[Any]) -> list[float]:
    """Of the simulator's figures what says whether a stored run is of the present law."""
    if isinstance(found[0], list):
        return [*(float(sum(series)) for series in found[0]), *found[1]]
    return [float(figure) for figure in found]


def present(runs: Sequence[LabRun], now: list[Any]) -> list[LabRun]:
    """The runs of the present law; the others are made again."""
    figures = compared(now)
    return [
        run
        for run in runs
        if all(
            abs(then - figure) <= ROUNDING * abs(figure)
            for then, figure in zip(run["simulator"], figures, strict=True)
        )
    ]


def in_lab(case: LabCase, seed: int, progress: Callable[[int, int], None] | None) -> LabRun:
    """One run of the lab."""
    run = lab_all(case.scenario(), RunOptions(seed=seed), progress=progress).runs[0]
    came_from = origin(run.info, ", ".join(case.key), treated(case))
    return {"found": measured(case, run)} | came_from


def treated(case: LabCase) -> bool:
    """Whether an agent works in it."""
    if isinstance(case, Case):
        return bool(case.sharing.window)
    return bool(case.gate or case.acks)
