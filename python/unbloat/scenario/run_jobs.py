"""The runs of a scenario, side by side: on threads of this process, by an executor of the caller's, or on a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed

from unbloat.errors import TraceMissing
from unbloat.scenario.job import Failed, Job, Result, run_job
from unbloat.tasks.threads import side_by_side

Progress = Callable[[int, int], None]
"""Called with steps done and steps in all, about ten times a second; an exception stops the simulation."""

# Steps of the progress of one run.
STEPS = 1000


def run_all(
    made: Sequence[Job], executor: Executor | None, jobs: int | None, progress: Progress | None
) -> list[Result | TraceMissing]:
    """All jobs, side by side, in their order."""
    if executor is not None:
        return gathered([executor.submit(run_job, job) for job in made], progress)
    if len(made) == 1:  # in this thread, so that Ctrl-C reaches the progress callback itself

        def alone(share: float) -> None:
            if progress is not None:
                progress(int(share * STEPS), STEPS)

        return [run_job(made[0], alone)]
    done: dict[int, float] = {}

    def one(place: int, stop: threading.Event) -> Result | TraceMissing:
        def report_progress(share: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            done[place] = share
            if progress is not None:
                progress(int(sum(list(done.values())) * STEPS), len(made) * STEPS)

        outcome = run_job(made[place], report_progress)
        done[place] = 1.0
        return outcome

    return side_by_side(one, len(made), jobs)


def run_away(
    made: Sequence[Job], address: str, jobs: int | None, progress: Progress | None
) -> Sequence[Result | TraceMissing | Failed]:
    """All jobs on a cluster; progress counts runs that are done."""
    # Its modules are needed by few.
    from unbloat.scenario.cluster import run_on_cluster

    def done(count: int) -> None:
        if progress is not None:
            progress(count * STEPS, len(made) * STEPS)

    return run_on_cluster(made, address, jobs, done)


def gathered(
    futures: Sequence[Future[Result | TraceMissing]], progress: Progress | None
) -> list[Result | TraceMissing]:
    """What an executor of the caller's gives, in order; progress counts runs that are done."""
    try:
        for count, future in enumerate(as_completed(futures), 1):
            future.result()
            if progress is not None:
                progress(count * STEPS, len(futures) * STEPS)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [future.result() for future in futures]
