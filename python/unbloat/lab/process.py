"""A process of the lab: started in its namespace, known to the janitor, dead when this process dies.

signal: lines on its standard output · model: none · action: lines within a time limit; what it said last on standard
error, as the reason when it fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from unbloat.errors import LabError
from unbloat.lab.cleanup.session import Session
from unbloat.lab.requirements import found

# A program that is asked to end gets this long.
END_S = 3.0
# Read of its standard error: the last line gives the reason.
TAIL_BYTES = 4096


class Child:
    """One process; its standard error goes to LOGS/NAME.err."""

    def __init__(
        self,
        session: Session,
        name: str,
        argv: list[str],
        logs: Path,
        namespace: str | None = None,
        cgroup: Path | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.endless = False
        """It has to live until the run ends it."""
        self.noise = re.compile(r"(?!)")
        """Lines on standard error that are no error."""
        self.errors = logs / f"{name}.err"
        # A session of its own: Ctrl-C is for the lab, which ends its processes in order.
        outer = [found("setpriv") or "setpriv", "--pdeathsig", "KILL", "--"]
        if cgroup is not None:
            # Before the namespace, whose mounts hide cgroups.
            outer += ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(cgroup / "cgroup.procs")]
        if namespace is not None:
            outer += [found("ip") or "ip", "netns", "exec", namespace]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*outer, *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=session.environment,
                start_new_session=True,
                bufsize=0,
                pass_fds=descriptors,
            )
        session.process(self.process.pid)
        assert self.process.stdout is not None, "it is a pipe"
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.output, False)
        self.partial = b""
        self.waiting: list[str] = []
        self.ended = False

    def say(self, line: str) -> None:
        """A line to its standard input."""
        assert self.process.stdin is not None, "it is a pipe"
        # Gone already: who waits for its answer will say so, with the reason.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n".encode())

    def let_go(self) -> None:
        """The end of its standard input."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def read_lines(self) -> list[str]:
        """The lines that it has said since."""
        while not self.ended:
            try:
                piece = os.read(self.output, 1 << 16)
            except BlockingIOError:
                break
            self.ended = not piece
            *lines, self.partial = (self.partial + piece).split(b"\n")
            self.waiting += [line.decode(errors="replace") for line in lines]
        said, self.waiting = self.waiting, []
        return said

    def line(self, within_s: float, what: str) -> str:
        """The next line; an error where none comes in time, or the process ends before."""
        deadline = time.monotonic() + within_s
        while True:
            said = self.read_lines()
            if said:
                self.waiting = said[1:] + self.waiting
                return said[0]
            if self.ended:
                self.process.wait()
                raise self.failure(f"ended before {what}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.failure(f"said nothing for {within_s:g} s, waiting for {what}")
            select.select([self.output], [], [], left)

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def has_failed(self) -> bool:
        """Whether it is gone before its time: a program may end early, a capture may not, and none with an error."""
        return self.has_ended() and (self.endless or self.process.returncode != 0)

    def wait_a_little(self, within_s: float) -> None:
        """Until it ends, or the time is over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)

    def status(self) -> str:
        """How it ended, in words."""
        code = self.process.poll()
        if code is None:
            return "is running"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def last_words(self) -> str:
        """The last line on its standard error that says something."""
        with self.errors.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
        said = (line.strip() for line in reversed(lines) if not self.noise.match(line))
        return next((line for line in said if line), "")

    def failure(self, what: str) -> LabError:
        """An error with its reason."""
        words = self.last_words()
        return LabError(f"{self.name} {what}{f': {words}' if words else ''}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> bool:
        """Asks it to end, and kills it where it does not; whether it ended by itself."""
        if not self.has_ended():
            self.process.send_signal(number)
        return self.wait(END_S)

    def end_with_timeout(self, timeout_s: float) -> bool:
        """As `end`, with a longer timeout."""
        if not self.has_ended():
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, within_s: float) -> bool:
        """Waits, and kills it when that was too long; whether it ended by itself."""
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False
        return True
