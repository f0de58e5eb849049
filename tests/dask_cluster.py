"""Dask clusters that tests start: programs on this machine, or in two network namespaces; and their processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from unbloat.tasks.cluster import Cluster

# A command of a worker that sees an empty folder in place of the first argument.
WITHOUT_FOLDER = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs none "$1" && shift && exec "$@"',
)
# Python's own start file of a worker that has another version of unbloat.
OTHER_VERSION = "import unbloat.version\nunbloat.version.__version__ = '0.0.1'\n"


def with_this(folder: Path) -> str:
    """Where Python looks for modules: a folder first, then as here."""
    return os.pathsep.join([str(folder), *(path for path in sys.path if path)])


def without_folder(folder: Path) -> list[str]:
    """Begins a command that sees an empty folder in place of this one; needs root."""
    return [*WITHOUT_FOLDER, "sh", str(folder)]


def dask_scheduler(
    env: dict[str, str], host: str = "127.0.0.1", wrapped: Sequence[str] = ()
) -> tuple[subprocess.Popen[str], str]:
    """A scheduler, and its address, which it prints when it listens."""
    program = [*wrapped, sys.executable, "-m", "dask", "scheduler", "--host", host]
    process = subprocess.Popen(
        [*program, "--port", "0", "--no-dashboard"],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "Scheduler at:" in line:
            return process, line.split()[-1]
    raise AssertionError("the scheduler ended")


@contextlib.contextmanager
def cluster(
    folder: Path,
    *wrapped: str,
    workers: int = 1,
    host: str = "127.0.0.1",
    scheduler_in: Sequence[str] = (),
    **environment: str,
) -> Iterator[str]:
    """A scheduler and workers as programs, which look for modules in a folder first; gives the scheduler's address.

    Commands of workers begin with `wrapped`, that of the scheduler with `scheduler_in`.
    """
    env = os.environ | {"PYTHONPATH": with_this(folder)}
    scheduler, address = dask_scheduler(env, host, scheduler_in)
    started = [scheduler]
    own = ["--host", host] if host == "127.0.0.1" else []
    try:
        for _ in range(workers):
            program = [*wrapped, sys.executable, "-m", "dask", "worker", address]
            started.append(
                subprocess.Popen(
                    [*program, "--nthreads", "1", "--no-dashboard", *own],
                    env=env | environment,
                    cwd=folder,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=60)


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[list[str], list[str]]]:
    """Prefixes of commands that run in two network namespaces with a cable between them: 10.9.8.1 and 10.9.8.2. Needs root."""
    names = [f"unbloat-dask-{end}-{os.getpid()}" for end in "ab"]
    inside = [["ip", "netns", "exec", name] for name in names]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        cable = ["ip", "-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name"]
        subprocess.run([*cable, "cable", "netns", names[1]], check=True)
        for number, name in enumerate(names, 1):
            for words in (
                f"addr add 10.9.8.{number}/24 dev cable",
                "link set cable up",
                "link set lo up",
            ):
                subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield inside[0], inside[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def killed_at(monkeypatch: pytest.MonkeyPatch, moments: random.Random, moment: int) -> list[str]:
    """Has any worker of this process killed when so many tasks have ended; the tasks that ended."""
    take = Cluster.take
    ended: list[str] = []

    def killing(self: Cluster, key: str, future: object) -> None:
        ended.append(key)
        if len(ended) == moment:
            os.kill(moments.choice(workers_of(os.getpid())), signal.SIGKILL)
        take(self, key, future)

    monkeypatch.setattr(Cluster, "take", killing)
    return ended


def workers_of(parent: int) -> list[int]:
    """Workers of a local cluster that the nannies of a process started."""
    return child_processes(parent, b"spawn_main")


def child_processes(parent: int, word: bytes) -> list[int]:
    """Processes that a process started with a word in their command."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text()
            words = (entry / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if int(status.rpartition(")")[2].split()[1]) == parent and word in words:
            found.append(int(entry.name))
    return sorted(found)
