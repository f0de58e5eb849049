"""The lab's applications: real programs that mean what the simulator's applications mean.

`commands(plan, folder)` writes one specification per process and says what must be started where. Each process is
started in its node's network namespace, with standard input and output as pipes, as `argv` says:

    ready\\n   on standard output: listening, browser started, whatever it needs is there
    T0\\n      on standard input: time zero of the scenario, nanoseconds of CLOCK_MONOTONIC; from then on it works
               and ends by itself at the scenario's end; at once at SIGTERM, or when standard input ends

Exit status 0, or 1 with a line on standard error. What it measured is in JSON lines (see log.py), in `FOLDER/flows` and
`FOLDER/probes`.

| role | one process per | what it does |
|---|---|---|
| `streams` | node | bulk, file, rates and requests, over our own TCP ends |
| `datagrams` | node | voice, isochronous probes, pings with a list of intervals |
| `nginx` | serving node | pages and video segments |
| `iperf3` | flow and side | bulk, where the scenario asks for iperf3 |
| `ping` | node | the system's ping |
| `browser` | web flow | headless Chromium |
| `player` | video flow | adaptive video over HTTP |

All must have said `ready` before time zero is announced. Servers come before clients in the list,
but the order of starting does not matter: no program connects before time zero.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from unbloat.lab.traffic.deviations import notes
from unbloat.lab.traffic.sockets import kernel_name

__all__ = ["FLOW_PORT", "PROBE_PORT", "Started", "commands", "kernel_name", "needed_programs"]

# Flow number i uses 5001 + i, at the side that does not open; probe number i uses 6001 + i.
FLOW_PORT = 5001
PROBE_PORT = 6001

_STREAMS = ("bulk", "file", "rates", "requests")
_PROGRAM = Path(__file__).with_name("__main__.py")

_PING_LEAST_S = 0.05

Json = dict[str, Any]


class Started(NamedTuple):
    """A process to start: `argv` in the namespace of node number `node`."""

    node: int
    role: str
    name: str
    argv: list[str]
    spec: Path


def needed_programs(plan: Json) -> list[str]:
    """Programs that this plan's traffic needs, beside Python."""
    kinds = {flow["app"]["kind"] for flow in plan["flows"]}
    needed = []
    if kinds & {"web", "video"}:
        needed.append("nginx")
    if "web" in kinds:
        needed.append("chromium")
    if plan["lab"]["bulk"] == "iperf3" and "bulk" in kinds:
        needed.append("iperf3")
    if any(_is_plain_ping(probe) for probe in plan["probes"]):
        needed.append("ping")
    return needed


def commands(plan: Json, folder: Path, groups: Mapping[int, int] | None = None) -> list[Started]:
    """Writes the specifications below `folder` and lists the processes, servers first.

    `groups`: of each flow whose reader its processor limits, a descriptor by which processes enter its group.
    """
    # Browsers and nginx work in directories of their own, so paths must not depend on where one stands.
    folder = folder.resolve()
    for name in ("specs", "flows", "probes", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    common = {key: plan[key] for key in ("duration_s", "warmup_s", "bin_ms")}
    work = _Work(plan, folder, common, groups or {})
    for index, flow in enumerate(plan["flows"]):
        kind = flow["app"]["kind"]
        if kind == "bulk" and plan["lab"]["bulk"] == "iperf3":
            work.iperf3(index, flow)
        elif kind in _STREAMS:
            work.streams(index, flow)
        elif kind == "voip":
            work.voice(index, flow)
        else:
            work.fetched(index, flow)
    for index, probe in enumerate(plan["probes"]):
        work.probe(index, probe)
    return work.started()


def _is_plain_ping(probe: Json) -> bool:
    # The system's ping counts in the kernel's ticks, several milliseconds: it cannot keep short intervals.
    return (
        probe["kind"] == "ping"
        and len(probe["every_s"]) == 1
        and probe["every_s"][0] >= _PING_LEAST_S
    )


class _Work:
    """Collects what each process has to do."""

    def __init__(self, plan: Json, folder: Path, common: Json, groups: Mapping[int, int]) -> None:
        self._plan, self._folder, self._common, self._groups = plan, folder, common, groups
        self._specs: dict[tuple[str, str], Json] = {}

    def _address(self, node: int) -> str:
        return str(self._plan["nodes"][node]["address"])

    def _spec(self, role: str, name: str, node: int) -> Json:
        return self._specs.setdefault(
            (role, name),
            {"role": role, "node": node, "address": self._address(node), **self._common},
        )

    def _per_node(self, role: str, node: int) -> Json:
        return self._spec(role, str(self._plan["nodes"][node]["name"]), node)

    def _out(self, flow: Json, what: str) -> str:
        return str(self._folder / "flows" / f"{flow['name']}.{what}.jsonl")

    def _changes(self, index: int) -> list[Json]:
        return [
            {"at_s": change["at_s"], "what": what["kind"], "to": what["to"]}
            for change in self._plan["changes"]
            for what in change["what"]
            if what["kind"] in ("congestion", "window") and what["flow"] == index
        ]

    def streams(self, index: int, flow: Json) -> None:
        """Both ends."""
        for side, node, peer in (
            ("sender", flow["from"], flow["to"]),
            ("receiver", flow["to"], flow["from"]),
        ):
            self._per_node("streams", node).setdefault("ends", []).append(
                {
                    "flow": flow,
                    "side": side,
                    "opens": (side == "sender") == flow["sender_opens"],
                    "peer": self._address(peer),
                    "port": FLOW_PORT + index,
                    "out": self._out(flow, side),
                    "changes": self._changes(index),
                    "procs": self._groups.get(index) if side == "receiver" else None,
                }
            )

    def iperf3(self, index: int, flow: Json) -> None:
        """Server where the opener connects to, client at the opener."""
        opener, other = (
            (flow["from"], flow["to"]) if flow["sender_opens"] else (flow["to"], flow["from"])
        )
        for part, node, peer in (("server", other, opener), ("client", opener, other)):
            side = "sender" if node == flow["from"] else "receiver"
            self._spec("iperf3", f"{flow['name']}.{part}", node).update(
                flow=flow,
                part=part,
                side=side,
                peer=self._address(peer),
                port=FLOW_PORT + index,
                out=self._out(flow, side),
                json=str(self._folder / "flows" / f"{flow['name']}.{side}.iperf3.json"),
                notes=notes(flow, "iperf3") if side == "sender" else [],
            )

    def voice(self, index: int, flow: Json) -> None:
        """Both ends speak."""
        for side, node, peer in (
            ("from", flow["from"], flow["to"]),
            ("to", flow["to"], flow["from"]),
        ):
            self._per_node("datagrams", node).setdefault("calls", []).append(
                {
                    "flow": flow,
                    "side": side,
                    "peer": self._address(peer),
                    "port": FLOW_PORT + index,
                    "out": self._out(flow, side),
                }
            )

    def fetched(self, index: int, flow: Json) -> None:
        """Web or video: nginx at the data's side, browser or player at the other."""
        kind = flow["app"]["kind"]
        web = self._per_node("nginx", flow["from"])
        web["work"] = str(
            self._folder / "work" / f"nginx-{self._plan['nodes'][flow['from']]['name']}"
        )
        web.setdefault("sites", []).append(
            {"flow": flow, "port": FLOW_PORT + index, "out": self._out(flow, "sender")}
        )
        role = "browser" if kind == "web" else "player"
        self._spec(role, flow["name"], flow["to"]).update(
            flow=flow,
            peer=self._address(flow["from"]),
            port=FLOW_PORT + index,
            out=self._out(flow, "receiver"),
            work=str(self._folder / "work" / f"{role}-{flow['name']}"),
            notes=notes(flow, role),
        )

    def probe(self, index: int, probe: Json) -> None:
        """The system's ping where it can do it; else our own packets."""
        task = {
            "probe": probe,
            "peer": self._address(probe["to"]),
            "port": PROBE_PORT + index,
            "out": str(self._folder / "probes" / f"{probe['name']}.jsonl"),
        }
        if _is_plain_ping(probe):
            self._per_node("ping", probe["from"]).setdefault("pings", []).append(task)
            return
        if probe["kind"] == "ping":
            self._per_node("datagrams", probe["from"]).setdefault("pings", []).append(task)
            return
        self._per_node("datagrams", probe["from"]).setdefault("sends", []).append(task)
        listens = {**task, "peer": self._address(probe["from"])}
        self._per_node("datagrams", probe["to"]).setdefault("listens", []).append(listens)

    def started(self) -> list[Started]:
        """The processes, servers first."""
        order = {"streams": 0, "datagrams": 0, "nginx": 0, "iperf3": 1}
        found = []
        for (role, name), spec in self._specs.items():
            path = self._folder / "specs" / f"{role}.{name}.json"
            path.write_text(json.dumps(spec), encoding="utf-8")
            rank = 0 if spec.get("part") == "server" else order.get(role, 2)
            # -I -S: neither the user's environment nor site packages; a third of the start-up time.
            argv = [sys.executable, "-I", "-S", str(_PROGRAM), role, str(path)]
            found.append((rank, Started(spec["node"], role, name, argv, path)))
        found.sort(key=lambda pair: pair[0])
        return [started for _, started in found]
