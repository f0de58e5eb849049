"""`simulate`: from a scenario to its runs.

A scenario is a file, text, a dictionary or an object. The native engine is called once per run, the interpreter lock free
meanwhile, so that threads use all processors. Any executor of `concurrent.futures` may take their place, since a `Job`
and its result can be pickled. The result is a `Run`, or a `RunSet` where the scenario sweeps.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.errors import ScenarioError, TraceMissing, UnbloatError
from unbloat.run.arrow import SERIES
from unbloat.run.run import Run
from unbloat.run.tables import only_flows, pair
from unbloat.scenario.expectations import checked, label_text
from unbloat.scenario.job import Failed, Job, Result
from unbloat.scenario.run_jobs import Progress, run_all, run_away
from unbloat.scenario.scenario import Scenario, Source, source_of, value_text
from unbloat.scenario.sweep import Labels, RunSet, Skipped
from unbloat.scenario.traces import trace_texts, with_folders
from unbloat.text.names import file_name

if TYPE_CHECKING:
    import pyarrow as pa

Given = str | os.PathLike[str] | Mapping[str, Any] | Scenario | Source
Settings = Mapping[str, object] | Sequence[tuple[str, str]]
Only = Sequence[Mapping[str, str]]
"""Runs of a sweep, by some of their labels: a run is meant where it has all labels of one of these."""

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class RunOptions:
    """How the runs of a scenario are made, in the simulator as in the lab."""

    set: Settings = ()
    """Keys of the scenario with other values."""
    seed: int | None = None
    seeds: int | None = None
    """Repetitions, each with a seed of its own."""
    pcap: PathLike | None = None
    """Where captures go, one per node."""
    traces: PathLike | None = None
    """Where the scenario's trace files are, beside its own directory."""
    only: Only = ()
    events: bool = True
    """False leaves out the rows of losses and marks."""
    trace_texts: Mapping[str, str] | None = None
    """The text of each trace, where no file is to be looked for."""


def simulate(
    scenario: Given,
    *,
    set: Settings = (),
    seed: int | None = None,
    seeds: int | None = None,
    pcap: str | os.PathLike[str] | None = None,
    traces: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    events: bool = True,
    progress: Progress | None = None,
) -> Run | RunSet:
    """Run a scenario in virtual time: one `Run`, or a `RunSet` where it sweeps or repeats.

    `set` gives keys other values (`{"flow.0.congestion": "bbr"}`), `seed` another random seed, `seeds` the number of repetitions,
    `pcap` a directory for one capture per node, `traces` the directory of trace files. `dask` has the runs made on the workers
    of a Dask scheduler at an address, or on `jobs` processes where it is `local`. Raises `ScenarioError` for what
    cannot be run, with the line, `UnbloatError` for a cluster that cannot be used, and `FileNotFoundError`.
    """
    options = RunOptions(set, seed, seeds, pcap, traces, events=events)
    runs = simulate_all(
        scenario, options, executor=executor, jobs=jobs, dask=dask, progress=progress
    )
    return runs.runs[0] if len(runs) == 1 and not runs.labels[0] else runs


def simulate_all(
    scenario: Given,
    options: RunOptions,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    progress: Progress | None = None,
) -> RunSet:
    """As `simulate`, but always a `RunSet`."""
    work = prepared(scenario, options)
    outcomes = (
        run_all(work.jobs, executor, jobs, progress)
        if dask is None
        else run_away(work.jobs, dask, jobs, progress)
    )
    return gathered_runs(
        work,
        [
            outcome_of(job, outcome, work.source)
            for job, outcome in zip(work.jobs, outcomes, strict=True)
        ],
    )


def outcome_of(job: Job, outcome: Result | TraceMissing | Failed, source: Source) -> Run | Skipped:
    """A run, or why there is none."""
    if isinstance(outcome, TraceMissing):
        return Skipped(job.labels, str(outcome))
    if isinstance(outcome, Failed):
        return Skipped(job.labels, outcome.reason, failed=True)
    return finished(job, outcome, source)


@dataclass(frozen=True)
class Prepared:
    """A scenario, and the runs that it asks for."""

    name: str
    source: Source
    expectations: list[dict[str, Any]]
    jobs: list[Job]


def prepared(scenario: Given, options: RunOptions) -> Prepared:
    """Reads a scenario and lists its runs."""
    import unbloat._native as _native

    source = source_of(scenario)
    given = pairs(options.set)
    if options.seed is not None:
        given.append(("seed", str(options.seed)))
    if options.seeds is not None:
        given.append(("sweep.seeds", str(options.seeds)))
    try:
        specs = _native.scenario_runs(source.text, set=given)
        expectations = _native.scenario_expectations(source.text, set=given)
        name, _ = _native.scenario_about(source.text)
    except _native.ScenarioError as error:
        raise ScenarioError(f"{source.prefix}{error}") from None
    texts = options.trace_texts
    if texts is None:
        texts = texts_of(source, options.traces, given)
    made = [
        Job(
            source.text,
            source.prefix,
            tuple((key, value) for key, value in labels),
            (*(item for item in given if not item[0].startswith("sweep.")), *overrides),
            run_seed,
            dict(texts),
            None
            if options.pcap is None
            else str(Path(options.pcap) / file_name(label_text(labels))),
            options.events,
        )
        for labels, overrides, run_seed in specs
        if is_meant(labels, options.only)
    ]
    if not made:
        raise ScenarioError(
            f"{source.prefix}no run has these labels: {', '.join(map(named_labels, options.only))}"
        )
    return Prepared(name, source, expectations, made)


def texts_of(
    source: Source, traces: PathLike | None, given: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """The text of each trace that a scenario names and that is found."""
    import unbloat._native as _native

    try:
        named = _native.scenario_traces(source.text, set=list(given))
    except _native.ScenarioError as error:
        raise ScenarioError(f"{source.prefix}{error}") from None
    return trace_texts(named, (*with_folders(traces), source.directory))


def is_meant(labels: Sequence[tuple[str, str]], only: Only) -> bool:
    """Whether a run is one of those that are asked for."""
    return not only or any(wanted.items() <= dict(labels).items() for wanted in only)


def named_labels(labels: Mapping[str, str]) -> str:
    """In words."""
    return label_text([*labels.items()])


def gathered_runs(work: Prepared, outcomes: Sequence[Run | Skipped]) -> RunSet:
    """All runs with the checks of what the scenario expects; an error where no run was made."""
    runs: list[Run] = []
    labels: list[Labels] = []
    skipped: list[Skipped] = []
    checks = []
    for job, outcome in zip(work.jobs, outcomes, strict=True):
        if isinstance(outcome, Skipped):
            skipped.append(outcome)
            continue
        runs.append(outcome)
        labels.append(job.labels)
        own = checked(outcome, job.labels, work.expectations)
        outcome.info["checks"] = [
            f"{'held' if check.passed else 'not held'}: {check.text}" for check in own
        ]
        checks += own
    if not runs:
        if (lost := next((one for one in skipped if one.failed), None)) is not None:
            raise UnbloatError(f"{work.source.prefix}{lost.text}")
        raise TraceMissing(skipped[0].reason)
    return RunSet(work.name, runs, labels, checks, skipped)


def pairs(settings: Settings) -> list[tuple[str, str]]:
    """Settings as dotted keys and TOML values; text is given as it is, so that `"4 Mbit/s"` needs no quotes of its own."""
    items = settings.items() if isinstance(settings, Mapping) else settings
    return [
        (key, value if isinstance(value, str) else value_text(value, key)) for key, value in items
    ]


def finished(job: Job, result: Result, source: Source) -> Run:
    """The tables of a job as a `Run` that knows its scenario."""
    info, tables = result
    info = info | described(job, source)
    return Run(
        info,
        {name: table for name, table in tables.items() if name not in SERIES},
        Kept(tables, info),
    )


def described(job: Job, source: Source) -> dict[str, Any]:
    """What a run says of the scenario that it comes from."""
    return {
        "files": [] if source.path is None else [str(source.path)],
        "labels": [f"{key}={value}" for key, value in job.labels],
        "set": [f"{key}={value}" for key, value in job.overrides],
        "scenario": job.text,
    }


class Kept:
    """The series of a simulated run, which are there from the beginning."""

    def __init__(self, tables: dict[str, pa.Table], info: Mapping[str, Any]) -> None:
        self.tables = {name: table for name, table in tables.items() if name in SERIES}
        self.bin_ms = float(info["bin_ms"])

    def fetch(
        self, kinds: Sequence[str], connections: list[int] | None, bin_ms: float, max_segments: int
    ) -> dict[str, pa.Table]:
        """The rows of some connections."""
        if "samples" in kinds and bin_ms != self.bin_ms:
            raise UnbloatError(
                f"this run was simulated in bins of {self.bin_ms:g} ms, not {bin_ms:g}"
            )
        for kind in kinds:
            if kind not in self.tables:
                raise UnbloatError(
                    f"a simulated run has no {kind}; analyse its capture (pcap) for them"
                )
        tables = {kind: self.tables[kind] for kind in kinds}
        if connections is None:
            return tables
        flows: set[int] = set().union(*map(pair, connections))
        return {kind: only_flows(table, flows) for kind, table in tables.items()}
