"""A worker process: takes units as JSON lines from standard input, answers in JSON lines on standard output.

    python -m unbloat.corpus.worker      started by `pool.py`; ends with its parent

A fresh interpreter rather than a fork: threads of Arrow and of object stores do not survive one. Standard input is read
by a thread of its own, so that a worker whose parent was killed ends at once, in the middle of a unit.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

# Progress in between is not seen.
REPORT_EVERY_S = 0.2
# Of mallopt in malloc.h of glibc: a block from `LARGE_BYTES` on is mapped by itself and goes back when it is freed. Left
# alone, glibc raises that size to 32 MB, and the tables of a unit stay behind as holes in its heap.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 256 << 10


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


def lean_memory() -> Callable[[], object]:
    """Keeps what units leave behind small; before Arrow is imported. The result gives the rest back, after each unit."""
    # Arrow's own allocators keep the pages of one unit beside those of the native side.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):  # not glibc
        return lambda: None
    libc.mallopt(M_ARENA_MAX, 1)
    libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    libc.mallopt(M_TRIM_THRESHOLD, LARGE_BYTES)
    return lambda: libc.malloc_trim(0)


def limit_memory(more_bytes: int) -> None:
    """Address space beyond what libraries have mapped already."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + more_bytes, mapped + more_bytes))


if __name__ == "__main__":
    main()
