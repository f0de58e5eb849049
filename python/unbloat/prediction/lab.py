"""`what-if --lab`: the cures of a prediction on the kernel's own TCP, beside what the simulator says.

signal: a `WhatIf` · model: the links whose replays are nearest to the capture, each run by the lab on the real clock as it was and with
each cure; cures of the agent are run by unbloat-agent · action: outcomes by the name of the cure, or why there are none
"""

from __future__ import annotations

from collections.abc import Callable

from unbloat.errors import ScenarioError
from unbloat.prediction.cures import AS_IT_WAS, Cure
from unbloat.prediction.predict import WhatIf
from unbloat.prediction.replay import InLab, Outcome, outcome_of, scenario, way_of
from unbloat.run.figures import Figures
from unbloat.scenario.run_jobs import STEPS
from unbloat.scenario.simulate import RunOptions

# Runs of each cure: a kernel's run has more chance in it than one of the simulator.
RUNS = 5

Progress = Callable[[int, int], None]


def in_lab(found: WhatIf, runs: int = RUNS, progress: Progress | None = None) -> InLab:
    """Run the transfer as it was and each cure. Takes the duration of the transfer for each run, and needs root.

    Raises `LabError` where the lab cannot run here, or a run failed.
    """
    from unbloat.lab.requirements import need_root

    need_root()
    cures: list[Cure] = [AS_IT_WAS, *(one.cure for one in found.cures)]
    links = found.nearest(runs)
    whole = len(cures) * len(links)
    outcomes: dict[str, list[Outcome] | str] = {}
    for number, cure in enumerate(cures):
        made: list[Outcome] = []
        try:
            for at, link in enumerate(links):
                done = number * len(links) + at
                made.append(
                    one_run(
                        scenario((link, cure), way_of(found.fitted)), cure, done, whole, progress
                    )
                )
        except ScenarioError as error:
            # No kernel has it, or none in this direction.
            outcomes[cure.name] = str(error)
            continue
        outcomes[cure.name] = made
    return outcomes


def one_run(text: str, cure: Cure, done: int, whole: int, progress: Progress | None) -> Outcome:
    """One run of the lab, which is number `done` of so many."""
    from unbloat.lab.execute import lab_all

    def share(now: int, steps: int) -> None:
        if progress is not None:
            progress(int((done + now / max(steps, 1)) * STEPS), whole * STEPS)

    # Otherwise the emulator's own gate would run.
    agent = [("lab.gate", "agent")] if cure.gate else []
    return outcome_of(Figures(lab_all(text, RunOptions(set=agent), progress=share).runs[0]))
