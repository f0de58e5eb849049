"""Runs of a scenario on the workers of a Dask cluster, which share no folder with this machine.

The text of the scenario and of its traces travels with each task. Tables come back as Arrow streams and captures as bytes;
they are stored here, under the names that they have in a run on this machine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.errors import ScenarioError, TraceMissing
from unbloat.scenario.expectations import label_text
from unbloat.scenario.job import Failed, Job, Result, run_job
from unbloat.tasks.cluster import Cluster, Task

if TYPE_CHECKING:
    import pyarrow as pa


def simulate_task(given: dict[str, Any]) -> dict[str, Any]:
    """At the worker: one run, from the fields of its `Job`."""
    job = Job(**given)
    with tempfile.TemporaryDirectory(prefix="unbloat-sim-") as directory:
        folder = Path(directory)
        try:
            outcome = run_job(job if job.pcap is None else replace(job, pcap=directory))
        except ScenarioError as error:
            return {"refused": str(error)}
        if isinstance(outcome, TraceMissing):
            return {"missing": str(outcome)}
        info, tables = outcome
        names = [str(Path(path).relative_to(folder)) for path in info["captures"]]
        return {
            "run": info | {"captures": names},
            "tables": {name: stream_bytes(table) for name, table in tables.items()},
            "captures": {name: (folder / name).read_bytes() for name in names},
        }


def run_on_cluster(
    made: Sequence[Job], address: str, processes: int | None, done: Callable[[int], None]
) -> list[Result | TraceMissing | Failed]:
    """All jobs, and their outcomes in their order; `done` is called with a count.

    Raises `ScenarioError` for what the simulator refuses, and `UnbloatError` for a cluster that cannot be used.
    """
    outcomes: dict[str, Result | TraceMissing | Failed] = {}

    def finished(task: Task, result: dict[str, Any]) -> Sequence[Task]:
        if "refused" in result:
            raise ScenarioError(result["refused"])
        job = made[int(task.key)]
        outcomes[task.key] = (
            TraceMissing(result["missing"]) if "missing" in result else received(job, result)
        )
        done(len(outcomes))
        return ()

    def failed(task: Task, line: str) -> None:
        outcomes[task.key] = Failed(line)
        done(len(outcomes))

    tasks = [
        Task(str(place), label_text(job.labels), fields(job)) for place, job in enumerate(made)
    ]
    jobs = min(processes or os.cpu_count() or 1, len(made))
    Cluster(address, jobs, simulate_task, finished, failed).run(tasks)
    return [outcomes[task.key] for task in tasks]


def fields(job: Job) -> dict[str, Any]:
    """A job as a plain dictionary."""
    return asdict(job)


def received(job: Job, result: dict[str, Any]) -> Result:
    """A run as it would be here, with its captures stored."""
    info = dict(result["run"])
    if job.pcap is not None:
        folder = Path(job.pcap)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in result["captures"].items():
            (folder / name).write_bytes(data)
        info["captures"] = [str(folder / name) for name in info["captures"]]
    return info, {name: read_stream(data) for name, data in result["tables"].items()}


def stream_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_stream(data: bytes) -> pa.Table:
    """The table of an Arrow stream."""
    import pyarrow as pa

    return pa.ipc.open_stream(pa.BufferReader(data)).read_all()
