"""An application whose processor limits its reading: a process that really computes, beside others that really compute.

signal: data on the connection · model: a group of processes (`lab/setup/processor.py`) with a share of one processor, and in
it the reader and the busy processes, all of the same priority on one processor · action: the reader takes up to `CHUNK_BYTES`,
burns `work_per_kb` for them by its own clock (CLOCK_THREAD_CPUTIME_ID), and reports to the parent how much it took.

Differences from the simulator:
- The calls' own processor time is part of the work. A work below some microseconds per KB is what the calls take.
- Other processes of the machine take time, too, so that the group may get less than its share.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from contextlib import suppress
from typing import Any, NoReturn

from unbloat.lab.traffic.subprocesses import dies_with_us

# What a program asks for in one read, as in the simulator: curl's buffer, CURL_MAX_WRITE_SIZE.
CHUNK_BYTES = 16_384
# A count of bytes in the pipe to the parent.
COUNT = struct.Struct("=q")
# Between two looks at the clock, in turns of an empty loop: some ten microseconds.
_TURNS = 400


class Group:
    """The group of one application, which others enter by a descriptor."""

    def __init__(self, read: dict[str, Any], procs: int) -> None:
        self._procs = procs
        self._work_ns = read["work_per_kb_ns"] / 1_000
        self._background: int = read["background"]
        # One for all, since busy processes on several would have more than their part. The last one:
        # the first has the machine's interrupts.
        self._processor = max(os.sched_getaffinity(0))
        self._pids: set[int] = set()

    def begin(self) -> None:
        """The busy processes begin."""
        for _ in range(self._background):
            pid = os.fork()
            if pid == 0:
                self._enter(set())
                while True:
                    pass
            self._pids.add(pid)

    def reader(self, sock: socket.socket) -> tuple[int, int]:
        """A process that reads this connection: its number, and a pipe of counts."""
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        pid = os.fork()
        if pid == 0:
            os.set_blocking(theirs, True)
            self._enter({sock.fileno(), theirs})
            self._read(sock, theirs)
        os.close(theirs)
        self._pids.add(pid)
        return pid, ours

    def end(self, pid: int) -> None:
        """One of its processes ends now."""
        if pid in self._pids:
            self._pids.remove(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def finish(self) -> None:
        """All of them end."""
        for pid in list(self._pids):
            self.end(pid)

    def _enter(self, kept: set[int]) -> None:
        """In the child: into the group; what it has from the parent is closed, since it would keep connections open."""
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            dies_with_us()()
            os.sched_setaffinity(0, {self._processor})
            # The parent may have come before others; these are ordinary processes.
            os.setpriority(os.PRIO_PROCESS, 0, 0)
            # 0: the process that writes it.
            os.write(self._procs, b"0")
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd > 2 and fd not in kept:
                    with suppress(OSError):
                        os.close(fd)
        except OSError:
            os._exit(1)

    def _read(self, sock: socket.socket, counts: int) -> NoReturn:
        into = bytearray(CHUNK_BYTES)
        clock = time.CLOCK_THREAD_CPUTIME_ID
        # When the work is done, by the process's own clock. What one piece took too long the next has less.
        done = float(time.clock_gettime_ns(clock))
        try:
            while True:
                # The socket does not block: that is a property of the connection, which the parent shares.
                select.select([sock], [], [])
                with suppress(BlockingIOError):
                    count = sock.recv_into(into)
                    os.write(counts, COUNT.pack(count))
                    if count == 0:
                        os._exit(0)
                    done = max(done + count * self._work_ns, time.clock_gettime_ns(clock))
                    while time.clock_gettime_ns(clock) < done:
                        for _ in range(_TURNS):
                            pass
        except (OSError, KeyboardInterrupt):
            os._exit(1)
