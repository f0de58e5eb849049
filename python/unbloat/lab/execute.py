"""`lab`: from a scenario to its runs on the kernel's own TCP, one after another.

signal: a scenario as `simulate` takes it · model: a plan per run; one that this kernel cannot do is skipped with the
reason, as one without its trace is · action: a `Run`, or a `RunSet` where the scenario sweeps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from unbloat.errors import ScenarioError, TraceMissing, UnbloatError
from unbloat.lab.requirements import need_machine, need_root

# `import unbloat` brings this file along: what only a run needs is imported by the run.
from unbloat.run.run import Run
from unbloat.scenario.expectations import label_text
from unbloat.scenario.job import Job
from unbloat.scenario.run_jobs import STEPS, Progress
from unbloat.scenario.simulate import (
    Given,
    RunOptions,
    Settings,
    described,
    gathered_runs,
    pairs,
    prepared,
)
from unbloat.scenario.sweep import RunSet, Skipped
from unbloat.text.names import file_name

Captured = Literal["ends", "all", "none"]
Plan = dict[str, Any]

SNAP_BYTES = 120
"""Captured of each packet: headers, options and a little more, enough for the analysis, and a tenth of the bytes."""


@dataclass(frozen=True)
class LabOptions:
    """What only a run of the lab has options for."""

    keep: str | os.PathLike[str] | None = None
    """Where raw files stay; None: they go."""
    capture: Captured | None = None
    """Where packets are captured; None: as the scenario says."""
    snap: int = SNAP_BYTES


# What comes before and after a run: namespaces, programs that get ready, captures that are read.
AROUND_S = 3.0


def lab(
    scenario: Given,
    *,
    set: Settings = (),
    seed: int | None = None,
    seeds: int | None = None,
    pcap: str | os.PathLike[str] | None = None,
    keep: str | os.PathLike[str] | None = None,
    capture: Captured | None = None,
    snap: int = SNAP_BYTES,
    traces: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Run | RunSet:
    """Run a scenario on the kernel's own TCP, on the real clock: one `Run`, or a `RunSet` where it sweeps or repeats.

    As `simulate`; besides, `keep` is a directory for the raw files, `capture` says where packets are captured and `snap`
    how many bytes of each, `pcap` where the captures go. Needs root. Raises `ScenarioError` for what cannot be run,
    `LabError` for a run that failed.
    """
    options = RunOptions(set, seed, seeds, pcap, traces)
    runs = lab_all(scenario, options, LabOptions(keep, capture, snap), progress)
    return runs.runs[0] if len(runs) == 1 and not runs.labels[0] else runs


def lab_all(
    scenario: Given,
    options: RunOptions,
    lab_options: LabOptions | None = None,
    progress: Progress | None = None,
) -> RunSet:
    """As `lab`, but always a `RunSet`."""
    from unbloat.lab.agent.config import cures
    from unbloat.lab.agent.process import need_agent

    need_root()
    lab_options = lab_options or LabOptions()
    if lab_options.capture is not None:
        given = [*pairs(options.set), ("lab.capture", lab_options.capture)]
        options = replace(options, set=given)
    work = prepared(scenario, options)
    plans = [plan_or_reason(job) for job in work.jobs]
    possible = [plan for plan in plans if isinstance(plan, dict)]
    if not possible:
        raise (
            plans[0]
            if isinstance(plans[0], TraceMissing)
            else ScenarioError(f"{work.source.prefix}{plans[0]}")
        )
    need_machine(possible)
    need_agent([cure for plan in possible for cure in cures(plan)])
    if options.pcap is not None and all(plan["lab"]["capture"] == "none" for plan in possible):
        raise UnbloatError("no capture is taken, so there is none to write: capture none")
    outcomes: list[Run | Skipped] = []
    for place, (job, plan) in enumerate(zip(work.jobs, plans, strict=True)):
        if not isinstance(plan, dict):
            outcomes.append(Skipped(job.labels, str(plan)))
            continue

        def share(done: float, place: int = place) -> None:
            if progress is not None:
                progress(int((place + done) * STEPS), len(plans) * STEPS)

        run = run_job(job, plan, lab_options, share)
        run.info |= described(job, work.source)
        outcomes.append(run)
    return gathered_runs(work, outcomes)


def seconds_needed(scenario: Given, options: RunOptions) -> float:
    """How long `lab_all` is going to take; what cannot be run takes no time."""
    work = prepared(scenario, options)
    plans = [plan for plan in map(plan_or_reason, work.jobs) if isinstance(plan, dict)]
    return sum(float(plan["duration_s"]) + AROUND_S for plan in plans)


def plan_of(job: Job) -> Plan:
    """The resolved scenario of a run."""
    import unbloat._native as _native

    try:
        text = _native.scenario_plan(
            job.text, overrides=list(job.overrides), seed=job.seed, traces=job.traces
        )
    except _native.TraceMissing as error:
        raise TraceMissing(f"{job.prefix}{error}") from None
    except _native.ScenarioError as error:
        raise ScenarioError(f"{job.prefix}{error}") from None
    plan: Plan = json.loads(text)
    return plan


def plan_or_reason(job: Job) -> Plan | TraceMissing | str:
    """The plan of a run, or why it is left out."""
    from unbloat.lab.setup.unsupported import unsupported_in_plan

    try:
        plan = plan_of(job)
    except TraceMissing as error:
        return error
    return "; ".join(unsupported_in_plan(plan)) or plan


def run_job(
    job: Job,
    plan: Plan,
    options: LabOptions,
    share: Callable[[float], None],
) -> Run:
    """One run: its raw files come and go, or stay where they are asked for."""
    from unbloat.lab.cleanup.session import Session
    from unbloat.lab.result.run import run_of
    from unbloat.lab.run import Order, copied, run_order

    with Session() as session:
        raw = session.folder() if options.keep is None else kept_folder(Path(options.keep), job)
        order = Order(plan, job.text, job.overrides, job.traces, raw, options.snap, share)
        run_order(session, order)
        run = run_of(raw)
        if job.pcap is not None:
            run.info["captures"] = copied(raw, Path(job.pcap))
        elif options.keep is None:
            run.info["captures"] = []
        return run


def kept_folder(keep: Path, job: Job) -> Path:
    """Where the raw files of a run stay: DIR, or DIR/LABELS of a sweep."""
    raw = keep / file_name(label_text(job.labels))
    if (raw / "plan.json").exists():
        raise UnbloatError(f"{raw}: holds the raw files of another run already")
    raw.mkdir(parents=True, exist_ok=True)
    return raw.resolve()
