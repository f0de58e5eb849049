"""`unbloat-agent` for one testbed, with a runtime directory and pins of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from unbloat.lab.requirements import AGENT, found
from unbloat.lab.testbed import TIMEOUT_S, Testbed, end, until

ROOT = Path(__file__).resolve().parents[2]
A = TypeVar("A", bound="AgentProgram")
PINS = Path("/sys/fs/bpf")


@cache
def example(name: str) -> str | None:
    """An example program of the agent: named by the environment (`UNBLOAT_ACKS` …), or built by cargo."""
    if named := os.environ.get(f"UNBLOAT_{name.upper()}"):
        return shutil.which(named)
    if shutil.which("cargo") is None:
        return None
    # As the workspace's tests build it: a package alone has other features of its dependencies, and a build beside tests on the real
    # clock disturbs them.
    argv = ("cargo", "build", "--message-format=json", "--workspace", "--example", name)
    lines = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    for message in map(json.loads, lines):
        if message.get("target", {}).get("name") == name and message.get("executable"):
            return str(message["executable"])
    return None


def agent_path() -> str:
    """The program: named by UNBLOAT_AGENT, beside the interpreter, or on the path."""
    return found(AGENT) or AGENT


class AgentProgram:
    """A daemon that can be started, asked, upgraded and killed; `node`: in that namespace, else in the machine's."""

    def __init__(self, testbed: Testbed, settings: Sequence[str], node: str = "") -> None:
        self.testbed, self.node, self.folder = testbed, node, testbed.folder
        self.runtime, self.pins = self.folder / "run", PINS / testbed.name
        self.settings = list(settings)
        self.daemon: subprocess.Popen[str] | None = None
        self.started: list[subprocess.Popen[str]] = []

    def argv(self, *words: str) -> list[str]:
        """A command line."""
        places = ("--runtime", str(self.runtime), "--pins", str(self.pins))
        argv = [agent_path(), *places, *words]
        return self.testbed.argv(self.node, *argv, grouped=False) if self.node else argv

    def sets(self, *settings: str) -> list[str]:
        """Settings as words of a command line."""
        return [word for setting in (*self.settings, *settings) for word in ("--set", setting)]

    def serve(self, *words: str) -> subprocess.Popen[str]:
        """Starts it; returns when its cures are attached."""
        with (self.folder / "agent.log").open("a") as log:
            argv = self.argv("serve", *words, *self.sets())
            self.daemon = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
        self.started.append(self.daemon)
        assert self.daemon.stdout is not None
        line = self.daemon.stdout.readline().strip()
        assert line == "on", f"{line}: {self.log()}"
        return self.daemon

    def log(self) -> str:
        """What it wrote on standard error."""
        return (self.folder / "agent.log").read_text()

    def do(self, *words: str, works: bool = True) -> str:
        """Output of a subcommand, which has to work, or to fail."""
        done = subprocess.run(self.argv(*words), capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (done.returncode == 0) == works, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout if works else done.stdout + done.stderr

    def set(self, *settings: str) -> None:
        """Other settings for the daemon that runs."""
        self.do("on", *self.sets(*settings))

    def status(self) -> dict[str, Any]:
        """`status --json`."""
        answer: dict[str, Any] = json.loads(self.do("--json", "status"))
        return answer

    def active(self) -> str:
        """The cure that limits uploads."""
        return str(self.status()["uplink"]["active"])

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """On the control socket."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.runtime / "control.sock"))
            client.sendall(json.dumps(question).encode() + b"\n")
            answer: dict[str, Any] = json.loads(client.makefile().readline())
            return answer

    def supervisors(self) -> list[int]:
        """The processes that supervise it: one, except for the moment after it was killed."""
        assert self.daemon is not None
        pid = self.daemon.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [
            int(child)
            for child in children
            if b"supervise" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]

    def supervisor(self) -> int:
        """The process of its supervisor."""
        (child,) = self.supervisors()
        return child

    def kill(self, supervisor: bool = False) -> None:
        """kill -9 of the daemon, and of its supervisor before it if asked for."""
        assert self.daemon is not None
        if supervisor:
            os.kill(self.supervisor(), signal.SIGKILL)
        self.daemon.kill()
        self.daemon.wait(TIMEOUT_S)

    def pending(self) -> str:
        """The changes that the journal says are not undone."""
        journal = self.runtime / "journal.jsonl"
        return journal.read_text() if journal.exists() else ""

    def __enter__(self: A) -> A:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(self.argv("off"), check=False, capture_output=True, timeout=TIMEOUT_S)
        for process in self.started:
            end(process)
        # pytest shows it where the test fails.
        if self.started:
            print(self.log())

    def nothing_left(self, timeout_s: float = 0.0) -> None:
        """Neither pins nor anything in the journal; where another process tidies up, after a while."""
        if timeout_s:
            until(lambda: not self.pins.exists() and self.pending() == "", timeout_s)
        assert not self.pins.exists(), list(self.pins.rglob("*"))
        assert self.pending() == ""
