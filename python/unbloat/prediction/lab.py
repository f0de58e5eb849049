"""`what-if --lab`: the cures of a prediction on the kernel's own TCP, beside what the simulator says.

signal: a `WhatIf` · model: the links whose replays are nearest to the capture, each run by the lab on the real clock as it was and with
each cure; cures of the agent are run by unbloat-agent · action: outcomes by the name of the cure, or why there are none
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from unbloat.errors import ScenarioError
from unbloat.prediction.cures import AS_IT_WAS, Cure, Way
from unbloat.prediction.pairs import figures
from unbloat.prediction.predict import WhatIf
from unbloat.prediction.replay import InLab, Outcome, scenario, way_of
from unbloat.run.figures import Figures
from unbloat.scenario.simulate import RunOptions

# Runs of each cure: a kernel's run has more chance in it than one of the simulator.
RUNS = 5

Progress = Callable[[int, int], None]


def in_lab(found: WhatIf, runs: int = RUNS, progress: Progress | None = None) -> InLab:
    """Run the transfer as it was and each cure. Takes the duration of the transfer for each run, and needs root.

    Raises `LabError` where the lab cannot run here, or a run failed.
    """
    from unbloat.front.lab import part
    from unbloat.lab.requirements import need_root

    need_root()
    cures: list[Cure] = [AS_IT_WAS, *(one.cure for one in found.cures)]
    links, way = found.nearest(runs), way_of(found.fitted)
    whole = len(cures) * len(links)
    outcomes: dict[str, list[Outcome] | str] = {}
    for number, cure in enumerate(cures):
        made: list[Outcome] = []
        try:
            for at, link in enumerate(links):
                done = number * len(links) + at
                text = scenario((link, cure), way)
                made.append(one_run(text, cure, way, part(progress, done, whole)))
        except ScenarioError as error:
            # No kernel has it, or none in this direction.
            outcomes[cure.name] = str(error)
            continue
        outcomes[cure.name] = made
    return outcomes


def one_run(text: str, cure: Cure, way: Way, progress: Progress | None) -> Outcome:
    """One run of the lab."""
    from unbloat.lab.execute import lab_all

    # Captures have packets as they are on the link.
    given = [("lab.offload", "off"), *cure.lab_settings]
    with tempfile.TemporaryDirectory(prefix="unbloat-what-if-") as folder:
        [run] = lab_all(text, RunOptions(set=given, pcap=folder), progress=progress).runs
        of_client, of_server = (
            (Path(folder) / f"{end}.pcap").read_bytes() for end in ("client", "server")
        )
        ends = (of_client, of_server) if way == "up" else (of_server, of_client)
        goodput_bps, p50_ms, p95_ms = figures(ends[0], ends[1], run.info["duration_s"], way)
    (flow,) = Figures(run).flows("transfer")
    return Outcome(goodput_bps, p50_ms, p95_ms, flow["loss_rate"] or 0.0, flow["grade"])
