"""Units on several processes of this machine. A process that dies takes one unit with it, never the run.

That unit runs once more, by itself, when all others are done, in a fresh process with a limit on its memory: a capture that
fills the memory must not have others killed for it. A packed archive whose process dies goes on without the member it died
of. What dies again is `failed`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from unbloat.corpus.ledger import Ledger
from unbloat.corpus.unit import FAILED, Receipt, Unit
from unbloat.corpus.work import make_receipt

# After Ctrl-C, s: most captures are done by then.
LAST_S = 10.0
# The worker ends a unit in time by itself; one that does not answer at all is killed so much later, s.
GRACE_S = 5.0
# A fresh interpreter loads its libraries within this even on a busy machine, s; the unit's own time begins afterwards.
START_S = 120.0
# Of the second attempt, beyond what libraries need.
MEMORY_BYTES = 2 << 30
# Members of one archive that may kill a process before the whole archive is given up.
MAX_SKIPPED = 16
# Between two looks at the deadlines, s.
TICK_S = 0.25


class Worker:
    """A process, and what it works on."""

    def __init__(self, options: dict[str, Any], memory_bytes: int = 0) -> None:
        self.options, self.memory_bytes = options, memory_bytes
        # The same modules as here, wherever they came from.
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "unbloat.corpus.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C of the terminal is not for it
        )
        self.unit: Unit | None = None
        self.begin = 0.0
        self.begun = False
        self.done_bytes = 0
        self.member: str | None = None
        self.rest = b""

    def give(self, unit: Unit) -> None:
        """Starts a unit."""
        self.unit, self.begin, self.done_bytes, self.member = unit, time.monotonic(), 0, None
        self.begun = False
        order = {
            "unit": unit,
            "options": self.options | {"timeout_s": unit["timeout_s"]},
            "memory_bytes": self.memory_bytes,
        }
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it died: its end of the other pipe shows that
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()

    def deadline(self) -> float:
        """When it is killed. The wait for the libraries of a fresh process is not the unit's."""
        assert self.unit is not None
        allowed_s: float = self.unit["timeout_s"] + GRACE_S
        return self.begin + (allowed_s if self.begun else allowed_s + START_S)

    def messages(self) -> list[dict[str, Any]] | None:
        """What it answered since; None when it died."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """Ends it."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Lets it end, and waits for that."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.process.wait()


@dataclass
class Pool:
    """Runs units; each gives one receipt, in whatever order they end."""

    ledger: Ledger
    jobs: int
    options: dict[str, Any]
    finished: Callable[[Receipt], None]
    progress: Callable[[int], None]
    """Bytes that running units have read."""
    waiting: Iterator[Unit] = field(default_factory=lambda: iter(()))
    suspects: deque[Unit] = field(default_factory=deque)
    workers: list[Worker] = field(default_factory=list)
    stopping: float | None = None
    """When running units are killed, after Ctrl-C."""

    def run(self, units: Iterable[Unit]) -> None:
        """All units. Raises `KeyboardInterrupt` after Ctrl-C, when the running ones have ended."""
        self.waiting = iter(units)
        # A worker that dies closes its pipe; a write to it is an error, not the end of this process.
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGPIPE, signal.SIG_IGN) if main else None
        try:
            with selectors.DefaultSelector() as selector:
                while True:
                    try:
                        self.assign(selector)
                        if not any(worker.unit for worker in self.workers):
                            break
                        self.wait(selector)
                    except KeyboardInterrupt:
                        if self.stopping is not None:
                            raise
                        self.stopping = time.monotonic() + LAST_S
            if self.stopping is not None:
                raise KeyboardInterrupt
        finally:
            for worker in self.workers:
                worker.kill()
            if main:
                signal.signal(signal.SIGPIPE, before)

    def assign(self, selector: selectors.BaseSelector) -> None:
        """Gives every free worker a unit."""
        if self.stopping is not None:
            return
        for worker in self.workers:
            if worker.unit is None and (unit := next(self.waiting, None)):
                worker.give(unit)
        while len(self.workers) < self.jobs and (unit := next(self.waiting, None)):
            self.start(selector, unit)
        if self.suspects and not any(worker.unit for worker in self.workers):
            for worker in list(self.workers):
                self.dismiss(selector, worker)
            self.start(selector, self.suspects.popleft(), MEMORY_BYTES)

    def start(self, selector: selectors.BaseSelector, unit: Unit, memory_bytes: int = 0) -> None:
        """A new worker with its first unit."""
        worker = Worker(self.options, memory_bytes)
        self.workers.append(worker)
        assert worker.process.stdout is not None
        selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        worker.give(unit)

    def dismiss(self, selector: selectors.BaseSelector, worker: Worker) -> None:
        """A worker that is not needed any more, or dead."""
        assert worker.process.stdout is not None
        selector.unregister(worker.process.stdout)
        self.workers.remove(worker)
        worker.kill()

    def wait(self, selector: selectors.BaseSelector) -> None:
        """Takes what the workers answer; kills those whose time is over."""
        for event, _ in selector.select(TICK_S):
            worker: Worker = event.data
            messages = worker.messages()
            if messages is None:
                self.dismiss(selector, worker)
                self.died(worker)
                continue
            for message in messages:
                self.take(selector, worker, message)
        now = time.monotonic()
        for worker in list(self.workers):
            if worker.unit is None:
                continue
            if self.stopping is not None and now > self.stopping:
                self.dismiss(selector, worker)
                worker.unit = None
            elif now > worker.deadline():
                self.dismiss(selector, worker)
                self.give_up(worker, "took too long and was stopped")
        self.progress(sum(worker.done_bytes for worker in self.workers if worker.unit))

    def take(
        self, selector: selectors.BaseSelector, worker: Worker, message: dict[str, Any]
    ) -> None:
        """One answer."""
        if "begun" in message:
            worker.begin, worker.begun = time.monotonic(), True
        elif "bytes" in message:
            worker.done_bytes = message["bytes"]
        elif "member" in message:
            worker.member = message["member"]
        else:
            worker.unit = None
            self.finished(message["receipt"])
            if worker.memory_bytes:  # its limit is for this unit alone
                self.dismiss(selector, worker)

    def died(self, worker: Worker) -> None:
        """A worker ended by itself, or was killed: by the kernel, or by a defect of a library."""
        unit = worker.unit
        if unit is None:
            return
        if self.stopping is not None:
            return  # it is run again next time
        if not worker.memory_bytes:
            self.suspects.append(unit | {"tries": unit.get("tries", 1) + 1})
            return
        code = worker.process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        why = f"its analysis was ended by {how}, twice"
        skip = unit.get("skip", {})
        if worker.member is not None and len(skip) < MAX_SKIPPED:
            self.suspects.append(unit | {"skip": skip | {worker.member: why}})
            return
        self.give_up(worker, why)

    def give_up(self, worker: Worker, why: str) -> None:
        """The receipt of a unit whose worker cannot write one."""
        unit, worker.unit = worker.unit, None
        assert unit is not None
        took_s = time.monotonic() - worker.begin
        receipt = make_receipt(unit, FAILED, f"{unit['file']}: {why}", [], took_s)
        self.ledger.write_receipt(receipt)
        self.finished(receipt)
