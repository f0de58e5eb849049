"""The loop of a traffic program: sockets, timers, and the parent's word.

One `epoll` and one heap of timers. `epoll` itself waits in whole milliseconds, which is too coarse for a packet every
20 ms, so the waiting is done by `select` on the epoll descriptor, which counts in microseconds.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush

now_ns = time.monotonic_ns

READ = select.EPOLLIN
WRITE = select.EPOLLOUT


# Above what only computes, below the emulator, whose threads are real-time ones.
_NICE = -10


def hurry() -> None:
    """This process and those that it starts from now on come before others: a late answer would be a measured delay."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)


class Loop:
    """Runs until the scenario's end, `stop`, a signal, or the end of standard input."""

    def __init__(self) -> None:
        self.t0 = 0
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._going = True

    def wait_for_start(self) -> bool:
        """Says `ready`; waits for time zero. False where the parent went away instead."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        # A reader that went away is seen by the write that fails.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        line = b""
        while self._going and not line.endswith(b"\n"):
            if not select.select([0], [], [], 0.2)[0]:
                continue
            piece = os.read(0, 64)
            if not piece:
                return False
            line += piece
        if not self._going:
            return False
        self.t0 = int(line)
        self.watch(0, READ, self._on_stdin)
        return True

    def _on_stdin(self, _events: int) -> None:
        if not os.read(0, 4096):
            self.stop()

    def seconds(self, at_ns: int | None = None) -> float:
        """Scenario time."""
        return ((now_ns() if at_ns is None else at_ns) - self.t0) / 1e9

    def ns(self, seconds: float) -> int:
        """CLOCK_MONOTONIC of a scenario time."""
        return self.t0 + round(seconds * 1e9)

    def watch(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Calls `handler(events)` when the descriptor can be read or written."""
        if fd in self._handlers:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def forget(self, fd: int) -> None:
        """No more calls for this descriptor."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def at(self, when_ns: int, call: Callable[[], None]) -> None:
        """Calls `call` at that time, or at once where it has passed."""
        self._count += 1
        heappush(self._timers, (when_ns, self._count, call))

    def every(self, first_ns: int, step_ns: int, call: Callable[[], None]) -> None:
        """Calls `call` at `first_ns` and after every step, without drift; what was missed is left out."""
        due = first_ns

        def again() -> None:
            nonlocal due
            call()
            due += step_ns
            late = now_ns() - due
            if late > 0:
                due += late // step_ns * step_ns
            self.at(due, again)

        self.at(due, again)

    def stop(self) -> None:
        """Ends the loop after the call under way."""
        self._going = False

    def run(self, until_ns: int) -> None:
        """Works until then."""
        poll, handlers, timers = self._epoll.poll, self._handlers, self._timers
        epoll_fd = [self._epoll.fileno()]
        while self._going:
            now = now_ns()
            # Late is better than never: what was due before the end is still done.
            while timers and timers[0][0] <= min(now, until_ns - 1):
                heappop(timers)[2]()
            if now >= until_ns:
                return
            ready = poll(0)
            if not ready and self._going:
                until = min(timers[0][0], until_ns) if timers else until_ns
                wait = (until - now_ns()) / 1e9
                if wait > 0:
                    select.select(epoll_fd, [], [], wait)
                    continue
            for fd, events in ready:
                handler = handlers.get(fd)
                if handler is not None:
                    handler(events)
