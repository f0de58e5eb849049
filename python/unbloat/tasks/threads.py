"""Work on several things side by side, on threads of this process: native code that releases the interpreter's lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Made = TypeVar("Made")


def side_by_side(
    one: Callable[[int, threading.Event], Made], count: int, jobs: int | None = None
) -> list[Made]:
    """What `one` makes of each place below `count`, in order; `jobs` at a time, or as many as processors.

    Once one of them raises, or Ctrl-C comes, the event is set: those that run are to end, none begins, and the error is raised.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        futures = [pool.submit(one, place, stop) for place in range(count)]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
