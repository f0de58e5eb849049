"""Labs as processes, which can be stopped in every way, and what must not be there afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from unbloat.lab.cleanup import janitor

SHORT = """
name = "short"
duration = "2 s"
[link.up]
rate = "10 Mbit/s"
delay = "5 ms"
[link.down]
rate = "10 Mbit/s"
delay = "5 ms"
[[flow]]
from = "client"
[[probe]]
every = "100 ms"
"""

TIMEOUT_S = 30.0


class Lab:
    """`unbloat lab` as a process of its own."""

    def __init__(
        self, folder: Path, *args: str, text: str = SHORT, before: tuple[str, ...] = (), **env: str
    ) -> None:
        self.file = folder / f"scenario-{time.monotonic_ns()}.toml"
        self.file.write_text(text)
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "unbloat", "lab", str(self.file), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | env,
            start_new_session=True,  # so that a Ctrl-C for it does not reach the tests
        )
        self.state: janitor.State = {}

    def under_way(self, processes: int = 6) -> Lab:
        """Waits until so many of its processes run: emulator, two captures, two ends, a ping."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for path in janitor.STATES.glob("*.json") if janitor.STATES.is_dir() else ():
                state = janitor.read(path)
                if state is not None and state["owner"][0] == self.process.pid:
                    self.state = state
            if self.state and len(self.state["processes"]) >= processes:
                time.sleep(0.5)
                return self
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self.process.communicate()}")
            time.sleep(0.02)
        raise AssertionError(f"not under way after {TIMEOUT_S} s: {self.state}")

    @property
    def id(self) -> str:
        """Of a lab that was under way."""
        return str(self.state["id"])

    def interrupt(self) -> None:
        """Ctrl-C: a signal to everything that the terminal sees."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Waits for its end: exit code, output, errors."""
        out, errors = self.process.communicate(timeout=TIMEOUT_S * 2)
        return self.process.returncode, out, errors

    def left(self) -> list[str]:
        """What is still there of it."""
        found = [f"process {pid}" for pid in sorted(janitor.members(self.state))]
        found += [name for name in self.state["namespaces"] if (janitor.NAMESPACES / name).exists()]
        found += [str(path) for path in (janitor.state_path(self.id),) if path.exists()]
        places = [*self.state["leftovers"], *self.state["cgroups"]]
        found += [place for place in places if Path(place).exists()]
        folder = self.state["folder"]
        return found + ([folder] if folder is not None and Path(folder).exists() else [])

    def gone(self) -> bool:
        """Whether everything of it goes away within a few seconds."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.left()


def unbloat(*args: str) -> subprocess.CompletedProcess[str]:
    """A command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "unbloat", *args], capture_output=True, text=True, timeout=TIMEOUT_S
    )


def inside(namespace: str, *argv: str) -> str:
    """What a command says in a namespace."""
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, *argv], capture_output=True, text=True, check=True
    )
    return done.stdout


def plan_of(text: str) -> dict[str, Any]:
    """A scenario, resolved."""
    import json

    from unbloat import _native

    plan: dict[str, Any] = json.loads(_native.scenario_plan(text))
    return plan
