"""A worker process: takes units as JSON lines from standard input, answers in JSON lines on standard output.

    python -m unbloat.corpus.worker      started by `pool.py`; ends with its parent

A fresh interpreter rather than a fork: threads of Arrow and of object stores do not survive one. Standard input is read
by a thread of its own, so that a worker whose parent was killed ends at once, in the middle of a unit.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import signal
import sys
import threading
import time
from typing import Any

from unbloat.tasks.memory import lean_memory

# Progress in between is not seen.
REPORT_EVERY_S = 0.2


def main() -> None:
    """Answers until standard input ends."""
    # Ctrl-C is for the parent; a reader that went away is an error like any other.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=listen, args=(orders,), daemon=True).start()

    give_back = lean_memory()
    from unbloat.corpus.work import work

    last = 0.0

    def report(kind: str, value: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if kind != "bytes" or now - last >= REPORT_EVERY_S:
            last = now
            answer({kind: value})

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    while True:
        order = orders.get()
        if order.get("memory_bytes"):
            limit_memory(order["memory_bytes"])
        answer({"begun": True})
        answer({"receipt": work(order["unit"], order["options"], report)})
        give_back()


def listen(orders: queue.Queue[dict[str, Any]]) -> None:
    """Orders from the parent; without one there is nothing left to do."""
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)


def limit_memory(more_bytes: int) -> None:
    """Address space beyond what libraries have mapped already."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + more_bytes, mapped + more_bytes))


if __name__ == "__main__":
    main()
