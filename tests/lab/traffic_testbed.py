"""Two namespaces with a veth pair between them, and traffic programs running there: what the traffic tests share.

No emulator: where a rate matters, the programs themselves are the slow part.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from requirements import require, requires

from unbloat.lab.setup import processor
from unbloat.lab.testbed import NO_IPV6, Testbed
from unbloat.lab.traffic import Started, commands

CLIENT, SERVER = 0, 1
"""Nodes of a plan."""
NODES = ("client", "server")
ADDRESSES = ("10.0.0.1", "10.0.0.2")


def needs(*programs: str) -> pytest.MarkDecorator:
    """Leaves a test out where root or a program is missing."""
    return requires("root", "ip", "nsenter", *programs)


class Pair(Testbed):
    """Client and server, joined by a device `net` each."""

    def __init__(self, folder: Path) -> None:
        # A new IPv6 address is announced as usable a second or two later. Chromium takes that for a change of network and
        # closes its connections, within a page, too. The lab's namespaces have no IPv6 either.
        super().__init__(folder, *NODES, sysctls=NO_IPV6)

    def build(self) -> None:
        """Addresses as the lab's."""
        self.veth(*NODES, "net")
        for node, own, other in zip(NODES, ADDRESSES, reversed(ADDRESSES), strict=True):
            self.address(node, "net", f"{own}/32")
            self.ip(node, f"route add {other}/32 dev net src {own}")

    def run(self, plan: dict[str, Any], folder: Path, **meanwhile: Any) -> Logs:
        """Runs a plan's traffic to its end; `during` is called with the testbed half-way."""
        with Traffic(self, plan, folder) as traffic:
            traffic.go()
            during = meanwhile.get("during")
            if during is not None:
                time.sleep(meanwhile.get("after", plan["duration_s"] / 2))
                during(self)
            traffic.wait(plan["duration_s"] + 10)
        return Logs(folder)


class Traffic:
    """The processes of one run."""

    def __init__(self, testbed: Pair, plan: dict[str, Any], folder: Path) -> None:
        groups = {
            number: processor.make(
                testbed.session.cgroup, f"reads-{number}", one["receiver"]["read"]["cpu"]
            )
            for number, one in enumerate(plan["flows"])
            if processor.is_limited(one)
        }
        self.groups = tuple(groups.values())
        self.testbed, self.started = testbed, commands(plan, folder, groups)
        self.processes: list[tuple[Started, subprocess.Popen[str]]] = []
        self.t0 = 0

    def __enter__(self) -> Traffic:
        try:
            for started in self.started:
                program = self.testbed.start(
                    NODES[started.node],
                    *started.argv,
                    stdin=subprocess.PIPE,
                    stderr=None,
                    pass_fds=self.groups,
                )
                self.processes.append((started, program))
            for started, process in self.processes:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line == "ready\n", f"{started.role} {started.name}: {line!r}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def go(self) -> None:
        """Passes time zero, which is a little ahead."""
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
        for entry in self.groups:
            os.close(entry)
        for _, process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


class Logs:
    """What the programs of a run logged."""

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
        """All errors for the user."""
        return [
            row["text"]
            for path in sorted(self.folder.glob("*/*.jsonl"))
            for row in self.rows(str(path.relative_to(self.folder)), "error")
        ]


def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """For a fixture of a module's."""
    require("root", "ip", "nsenter")
    with Pair(tmp_path_factory.mktemp("pair")) as made:
        yield made


# ------------------------------------------------------------------------------------------------------------ plans


def flow(
    name: str, app: dict[str, Any] | str = "bulk", *, upload: bool = False, **changes: Any
) -> dict[str, Any]:
    """A flow of a plan with the scenario's defaults: a download from the server unless a change says otherwise."""
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
