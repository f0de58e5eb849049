"""Plain tasks on the workers of a Dask cluster: of this machine, or of a scheduler at an address.

A task is a plain dictionary for one function, and so is its result. What a worker needs travels with the task: it may run
on a machine that shares no folder with this one. Few tasks are in flight, in the order in which they are given. A task whose
worker is lost runs again elsewhere. One that ends whatever worker it is given to fails by its name, and the others go on.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from unbloat.errors import UnbloatError
from unbloat.tasks.client import connected
from unbloat.tasks.worker import (
    Function,
    UnfitWorker,
    perform,
    version_fault,
    version_here,
)
from unbloat.version import __version__

# For the first worker, and for another one when all are gone, s.
FIRST_WORKER_S, NO_WORKER_S = 30.0, 60.0
# Between two looks at the workers and at tasks that take too long, s.
TICK_S = 1.0
# For a worker that does not answer to be ended and started again, s.
RESTART_S = 30.0
# How often Dask may blame a task for lost workers: another one beside it may have ended them.
MAX_BLAMED = 2


@dataclass(frozen=True)
class Task:
    """What one call of the function gets."""

    key: str
    """No other task of the run has it."""
    name: str
    """What messages call it: its parameters."""
    given: dict[str, Any]
    timeout_s: float | None = None
    """Its worker is ended so long after it was seen to begin."""


@dataclass
class Cluster:
    """Runs tasks; each ends in `finished` or `failed`, in whatever order they end."""

    address: str
    """`local`, or where a scheduler listens."""
    jobs: int
    """Processes of a local cluster."""
    function: Function
    finished: Callable[[Task, dict[str, Any]], Iterable[Task]]
    """Called with a result; gives the tasks that follow from it. What it raises ends the run."""
    failed: Callable[[Task, str], None]
    """Called with the line about a task that has no result."""
    progress: Callable[[], None] | None = None
    """Called about every second."""
    goes_on: str = ""
    """What a line about a run that broke off says of a next one."""
    waiting: deque[Task] = field(default_factory=deque)
    in_flight: dict[str, tuple[Task, Any]] = field(default_factory=dict)
    """Tasks that were submitted and their futures, by key."""
    since: dict[str, float] = field(default_factory=dict)
    """When a task was first seen to run."""
    blamed: Counter[str] = field(default_factory=Counter)
    ended: queue.SimpleQueue[tuple[str, Any]] = field(default_factory=queue.SimpleQueue)
    cores: int = 0
    looked: float = 0.0
    seen_worker: float = 0.0
    stopping: float | None = None
    """When running tasks are given up, after Ctrl-C."""

    # Tasks in flight per core: one that waits at a worker would be blamed for the end of that worker.
    per_core: ClassVar[int] = 1
    # For running tasks to end after Ctrl-C, s.
    last_s: ClassVar[float] = 0.0

    def run(self, tasks: Iterable[Task]) -> None:
        """All tasks. Raises `KeyboardInterrupt` after Ctrl-C, `UnbloatError` for a cluster that cannot be used."""
        with connected(self.address, self.jobs) as client:
            self.refuse_unfit(client)
            self.waiting.extend(tasks)
            self.work(client)
        if self.stopping is not None:
            raise KeyboardInterrupt

    def refuse_unfit(self, client: Any) -> None:
        """Every worker before the start; one that comes later is looked at with its first task."""
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER_S)
        except TimeoutError:
            raise UnbloatError(f"{self.address}: the scheduler has no workers") from None
        for worker, answer in sorted(self.ask(client).items()):
            if isinstance(answer, BaseException):
                fault: str | None = f"cannot use unbloat: {answer}"
            else:
                fault = self.fault(answer)
            if fault is not None:
                raise UnbloatError(f"{worker}: this worker {fault}")

    def ask(self, client: Any) -> dict[str, Any]:
        """What every worker says of itself."""
        answers: dict[str, Any] = client.run(version_here, on_error="return")
        return answers

    def fault(self, answer: Any) -> str | None:
        """Why a worker with this answer cannot take part."""
        return version_fault(answer, __version__)

    def work(self, client: Any) -> None:
        """Submits tasks and takes what ends, until nothing is left."""
        from distributed import CancelledError
        from distributed.comm.core import CommClosedError

        self.seen_worker = time.monotonic()
        while True:
            try:
                self.look_after(client)
                self.submit(client)
                if not self.in_flight:
                    return
                with contextlib.suppress(queue.Empty):
                    self.take(*self.ended.get(timeout=TICK_S))
            except (CommClosedError, CancelledError):
                raise UnbloatError(self.lost("lost its scheduler")) from None
            except KeyboardInterrupt:
                if self.stopping is not None or not self.last_s:
                    raise
                self.stopping = time.monotonic() + self.last_s
                self.waiting.clear()
                self.cancel_queued(client)

    def submit(self, client: Any) -> None:
        """Fills up what is in flight."""
        while self.waiting and len(self.in_flight) < self.per_core * max(self.cores, 1):
            task = self.waiting.popleft()
            # Never a name that was used before: the scheduler would answer with what it remembers of it.
            name = f"unbloat-{secrets.token_hex(4)}-{task.key}"
            words = (perform, self.function, task.given, __version__)
            future = client.submit(*words, key=name, pure=True, retries=1)
            self.in_flight[task.key] = task, future
            self.watch(task.key, future)

    def watch(self, key: str, future: Any) -> None:
        """Has the end of a task taken."""
        future.add_done_callback(lambda future: self.ended.put((key, future)))

    def take(self, key: str, future: Any) -> None:
        """A task that ended, in whatever way."""
        from distributed import KilledWorker

        if key not in self.in_flight or self.in_flight[key][1] is not future:
            return  # it was given up before
        task, _ = self.in_flight[key]
        if future.status == "finished":
            result = future.result()
            self.forget(key)
            if self.stopping is None:
                self.waiting.extendleft(reversed([*self.finished(task, result)]))
            else:
                self.finished(task, result)
            return
        if future.status in ("pending", "lost"):
            # Its result was lost with the worker that kept it, and is made again.
            self.watch(key, future)
            return
        if future.status != "error":
            raise UnbloatError(self.lost("lost its scheduler"))
        error = future.exception()
        self.forget(key)
        if isinstance(error, UnfitWorker):
            raise UnbloatError(str(error))
        if not isinstance(error, KilledWorker):
            text = str(error).splitlines()
            self.failed(task, f"{type(error).__name__}: {text[0] if text else 'no reason given'}")
        elif (line := self.ends_workers(task, error)) is not None:
            self.failed(task, line)
        elif self.stopping is None:
            self.waiting.appendleft(task)

    def ends_workers(self, task: Task, error: Any) -> str | None:
        """The line about a task that ends its workers; None for one that runs again."""
        self.blamed[task.key] += 1
        if self.blamed[task.key] < MAX_BLAMED:
            return None
        return f"its worker was ended, {MAX_BLAMED * (error.allowed_failures + 1)} times"

    def forget(self, key: str) -> None:
        """What is known of a task in flight."""
        _, future = self.in_flight.pop(key)
        self.since.pop(key, None)
        future.release()

    def begun(self, key: str) -> bool:
        """Whether a worker has begun with a task in flight, as far as is known."""
        return key in self.in_flight

    def look_after(self, client: Any) -> None:
        """Counts cores; ends what takes too long."""
        now = time.monotonic()
        if now - self.looked < TICK_S:
            return
        self.looked = now
        if self.progress is not None:
            self.progress()
        try:
            self.cores = sum(client.nthreads().values())
        except (OSError, RuntimeError):  # a time-out of the network is one, too
            raise UnbloatError(self.lost("lost its scheduler")) from None
        if self.cores:
            self.seen_worker = now
        elif now - self.seen_worker > NO_WORKER_S:
            raise UnbloatError(self.lost("has lost all its workers"))
        if self.stopping is not None and now > self.stopping:
            for key in list(self.in_flight):
                self.cancel(client, key)
            return
        for key, (task, _) in list(self.in_flight.items()):
            if task.timeout_s is None:
                continue
            if key not in self.since and self.begun(key):
                self.since[key] = now
            if now - self.since.get(key, now) > task.timeout_s:
                self.end(client, task)

    def lost(self, what: str) -> str:
        """A line about a run that cannot go on."""
        return f"{self.address}: {what}{self.goes_on}"

    def end(self, client: Any, task: Task) -> None:
        """A task that does not answer at all: its worker is started again, where a nanny does so."""
        _, future = self.in_flight[task.key]
        workers = [worker for worker, names in client.processing().items() if future.key in names]
        self.cancel(client, task.key)
        with contextlib.suppress(Exception):  # without a nanny, a thread of that worker stays busy
            client.restart_workers(workers, timeout=RESTART_S, raise_for_error=False)
        self.failed(task, "took too long and was stopped")

    def cancel(self, client: Any, key: str) -> None:
        """Takes a task back."""
        client.cancel([self.in_flight[key][1]], force=True)
        self.forget(key)

    def cancel_queued(self, client: Any) -> None:
        """Takes back what no worker has begun."""
        for key in list(self.in_flight):
            if not self.begun(key):
                self.cancel(client, key)
