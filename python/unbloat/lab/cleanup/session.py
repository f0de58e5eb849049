"""The session of a lab or a testbed: its id, its state file, its janitor.

One state file in /run names everything before it is made; a janitor process outlives this process. At the end, however
it comes, the janitor removes everything. Where the janitor was killed, this process does.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from unbloat.errors import LabError
from unbloat.lab.cleanup import janitor

# The bpf file system, where agents pin.
PINS = Path("/sys/fs/bpf")
MOUNTS = Path("/proc/self/mounts")
# Timeout of the janitor: killing processes and deleting namespaces take a second.
CLEAN_S = 30.0


class Session:
    """`with Session() as lab:` everything that it names is removed at the end."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        own = os.getpid()
        self.state: janitor.State = {
            "id": self.id,
            "owner": [own, janitor.started(own)],
            "janitor": None,
            "namespaces": [],
            "processes": [],
            "folder": None,
            "cgroups": [],
            "leftovers": [],
        }
        self.janitor: subprocess.Popen[str] | None = None

    def __enter__(self) -> Session:
        janitor.write(self.state)
        # A file of its own, without unbloat's imports: it is there within a few milliseconds and needs little memory.
        argv = [
            sys.executable,
            "-I",
            "-S",
            str(Path(janitor.__file__).resolve()),
            str(janitor.state_path(self.id)),
        ]
        try:
            self.janitor = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self.state["janitor"] = [self.janitor.pid, janitor.started(self.janitor.pid)]
            janitor.write(self.state)
            said = self.janitor.stdout.readline() if self.janitor.stdout else ""
            if said.strip() != "ready":
                raise LabError(f"the lab's janitor did not start: {said.strip() or 'no output'}")
        except BaseException:
            self.clean()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        problems = self.clean()
        if problems:
            text = f"lab {self.id} could not be cleaned: {'; '.join(problems)} (see `unbloat lab clean`)"
            raise LabError(text) from error

    @property
    def environment(self) -> dict[str, str]:
        """For every process of the lab: it says whose it is."""
        return os.environ | {janitor.MARK: self.id}

    def namespaces(self, nodes: list[str]) -> list[str]:
        """Names for the namespaces of nodes, known to the janitor from now on."""
        self.state["namespaces"] = [f"ub-{self.id}-{node}" for node in nodes]
        janitor.write(self.state)
        return list(self.state["namespaces"])

    def folder(self) -> Path:
        """A new temporary folder."""
        path = Path(tempfile.gettempdir()).resolve() / f"unbloat-lab-{self.id}"
        self.state["folder"] = str(path)
        janitor.write(self.state)
        path.mkdir(mode=0o700)
        return path

    def cgroup(self, name: str, root: Path | None = None) -> Path:
        """A new cgroup, for a node's programs where cgroup v2 is mounted, or below another root."""
        path = (root or cgroup_root()) / f"ub-{self.id}-{name}"
        self.state["cgroups"].append(str(path))
        janitor.write(self.state)
        path.mkdir()
        return path

    def agent(self, node: str) -> tuple[Path, Path]:
        """Where the agent of a node keeps what it needs, and where it pins; it makes both itself."""
        runtime, pins = janitor.STATES / f"{self.id}-{node}", PINS / f"ub-{self.id}-{node}"
        self.state["leftovers"] += [str(runtime), str(pins)]
        janitor.write(self.state)
        return runtime, pins

    def process(self, pid: int) -> None:
        """A process of the lab, just started."""
        self.state["processes"].append([pid, janitor.started(pid)])
        janitor.write(self.state)

    def clean(self) -> list[str]:
        """Has everything removed; what could not be, in words."""
        if self.janitor is not None:
            try:
                self.janitor.communicate("", timeout=CLEAN_S)
            except subprocess.TimeoutExpired:
                self.janitor.kill()
                self.janitor.communicate()
            if self.janitor.returncode == 0:
                return []
            self.state["janitor"] = None
        return janitor.clean(self.state)


def cgroup_root() -> Path:
    """Where cgroup v2 is mounted."""
    for line in MOUNTS.read_text().splitlines():
        _, path, kind, *_ = line.split(" ")
        if kind == "cgroup2":
            return Path(path)
    raise LabError("unbloat-agent needs cgroup v2, which is not mounted here")
