"""Two namespaces with a veth pair between them, and traffic programs running there: what the traffic tests share.

No emulator: where a rate matters, the programs themselves are the slow part.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unbloat.lab.traffic import Started, commands

CLIENT, SERVER = 0, 1
ADDRESSES = ("10.0.0.1", "10.0.0.2")


def missing(*programs: str) -> str:
    """Why a test cannot run here; empty where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [program for program in ("ip", *programs) if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips, with the reason, where root or a program is missing."""
    reason = missing(*programs)
    return pytest.mark.skipif(bool(reason), reason=reason)


class Bed:
    """See the module text."""

    def __init__(self, name: str) -> None:
        self.spaces = [f"ub-traffic-{name}-{side}" for side in "ab"]

    def __enter__(self) -> Bed:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        for space in self.spaces:
            _ip("netns", "add", space)
        a, b = self.spaces
        _ip("link", "add", "net", "netns", a, "type", "veth", "peer", "name", "net", "netns", b)
        for space, own, other in zip(self.spaces, ADDRESSES, reversed(ADDRESSES), strict=True):
            _ip("-n", space, "address", "add", f"{own}/32", "dev", "net")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "link", "set", "net", "up")
            _ip("-n", space, "route", "add", f"{other}/32", "dev", "net", "src", own)

    def __exit__(self, *_: object) -> None:
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    def start(self, node: int, *argv: str, **options: Any) -> subprocess.Popen[str]:
        """A process in a node's namespace."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.spaces[node], *argv],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,
        )

    def counter(self, node: int, name: str) -> int:
        """A counter of the kernel in a node's namespace."""
        argv = ["ip", "netns", "exec", self.spaces[node], "nstat", "-asz", name]
        said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        return sum(int(line.split()[1]) for line in said.splitlines() if line.startswith(name))

    def run(self, plan: dict[str, Any], folder: Path, **meanwhile: Any) -> Told:
        """Runs a plan's traffic to its end; `during` is called with the bed half-way."""
        with Traffic(self, plan, folder) as traffic:
            traffic.go()
            during = meanwhile.get("during")
            if during is not None:
                time.sleep(meanwhile.get("after", plan["duration_s"] / 2))
                during(self)
            traffic.wait(plan["duration_s"] + 10)
        return Told(folder)


class Traffic:
    """The processes of one run."""

    def __init__(self, bed: Bed, plan: dict[str, Any], folder: Path) -> None:
        self.bed, self.started = bed, commands(plan, folder)
        self.processes: list[tuple[Started, subprocess.Popen[str]]] = []
        self.t0 = 0

    def __enter__(self) -> Traffic:
        try:
            for started in self.started:
                self.processes.append((started, self.bed.start(started.node, *started.argv)))
            for started, process in self.processes:
                assert process.stdout is not None
                said = process.stdout.readline()
                assert said == "ready\n", f"{started.role} {started.name} said {said!r}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def go(self) -> None:
        """Tells time zero, which is a little ahead."""
        self.t0 = time.monotonic_ns() + 20_000_000
        for _, process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{self.t0}\n")
            process.stdin.flush()

    def wait(self, timeout: float) -> None:
        """All end by themselves, without complaint."""
        for started, process in self.processes:
            assert process.wait(timeout) == 0, f"{started.role} {started.name}"

    def __exit__(self, *_: object) -> None:
        for _, process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


class Told:
    """What the programs of a run told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, path: str, kind: str = "") -> list[dict[str, Any]]:
        """Lines of one file, of one kind."""
        with open(self.folder / path, encoding="utf-8") as file:
            found = [json.loads(line) for line in file]
        return [row for row in found if not kind or row["kind"] == kind]

    def values(self, path: str, name: str) -> list[float]:
        """Figures of an application."""
        return [row["value"] for row in self.rows(path, "app") if row["name"] == name]

    def errors(self) -> list[str]:
        """All that was said to the user."""
        return [
            row["text"]
            for path in sorted(self.folder.glob("*/*.jsonl"))
            for row in self.rows(str(path.relative_to(self.folder)), "error")
        ]


def _ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True)


def bed(name: str) -> Iterator[Bed]:
    """A bed that is gone afterwards; skips, with the reason, where there can be none."""
    if reason := missing():
        pytest.skip(reason)
    with Bed(f"{name}-{os.getpid()}") as made:
        yield made


# ------------------------------------------------------------------------------------------------------------ plans


def flow(
    name: str, app: dict[str, Any] | str = "bulk", *, upload: bool = False, **changes: Any
) -> dict[str, Any]:
    """A flow of a plan with the scenario's defaults: a download from the server unless told otherwise."""
    sender = {
        "congestion": {"kind": "cubic"},
        "initial_window": 10,
        "mss_bytes": 1448,
        "buffer_bytes": 4 << 20,
        "tsq_bytes": 131072,
        "pacing": False,
        "sack": True,
        "timestamps": True,
        "ecn": False,
        "class": 1,
        "slow_start_after_idle": True,
    }
    receiver = {
        "window": {"kind": "autotune", "initial": 131072, "max": 32 << 20, "ratio": 0.5},
        "read": None,
        "window_update": "linux",
        "ack_every": 2,
        "ack_delay_ms": 40.0,
        "ack_class": 1,
    }
    made: dict[str, Any] = {
        "name": name,
        "from": CLIENT if upload else SERVER,
        "to": SERVER if upload else CLIENT,
        "sender_opens": upload,
        "start_s": 0.0,
        "stop_s": None,
        "sender": sender,
        "receiver": receiver,
        "app": {"kind": app} if isinstance(app, str) else app,
    }
    for key, value in changes.items():
        place = made
        *parents, last = key.split("__")
        for parent in parents:
            place = place[parent]
        place[last] = value
    return made


def probe(
    name: str,
    kind: str = "ping",
    every: tuple[float, ...] = (0.05,),
    priority: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """A probe of a plan, from the client to the server."""
    return {
        "name": name,
        "kind": kind,
        "from": CLIENT,
        "to": SERVER,
        "start_s": 0.0,
        "every_s": list(every),
        "bytes": 84,
        "class": priority,
        **more,
    }


def plan(
    *flows: dict[str, Any],
    duration: float = 1.0,
    probes: tuple[dict[str, Any], ...] = (),
    changes: tuple[dict[str, Any], ...] = (),
    bulk: str = "own",
    warmup: float = 0.0,
) -> dict[str, Any]:
    """A plan as `scenario_plan` gives it, as far as traffic is concerned."""
    return {
        "name": "traffic",
        "duration_s": duration,
        "warmup_s": warmup,
        "bin_ms": 100.0,
        "nodes": [
            {"name": "client", "address": ADDRESSES[0]},
            {"name": "server", "address": ADDRESSES[1]},
        ],
        "flows": list(flows),
        "probes": list(probes),
        "changes": list(changes),
        "lab": {"offload": "auto", "bulk": bulk, "capture": "none"},
    }
