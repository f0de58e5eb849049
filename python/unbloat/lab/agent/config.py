"""What unbloat-agent does in a lab: at which node which cure, with the scenario's parameters.

signal: a plan · model: a receiver's `drwa` is the agent's [receive] at that node; the same law on
ACKs that a node forwards is its [uplink] for data that leaves by the uplink and its [forward] for
data that comes in for others; a gate of a device, where `[lab] gate = "agent"`, its [uplink] with
the emulated modem's reports · action: `cures`, `unsupported_cures`, and of each cure the agent's
configuration. Everything that the scenario does not ask for is switched off.

Differences from the simulator:
- The first window is Linux's, as `tcp_rmem` says; `initial` means nothing.
- On forwarded ACKs a window below four segments is a segment larger than the law wants, whatever
  `increment` says.
- RTTmin is shared by connections to one address: what `rtt_min_seed` is in the simulator the agent finds by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbloat.lab.setup.routes import path
from unbloat.lab.setup.tcp_settings import Flow, Plan, is_tcp

Law = dict[str, Any]

# A weight of the law is in sixteenths, with the agent a number below one.
SIXTEENTHS = 16
# Where packets of a node go out: as in `opens`, the far end is called so.
FAR = "server"
# Parameters of a law on forwarded ACKs.
FORWARDED = ("lambda", "lambda_min", "average", "quick", "fair", "start")


@dataclass
class Cure:
    """What the agent of one node does."""

    node: int
    receive: Law | None = None
    only: list[str] = field(default_factory=list)
    """Hosts whose downloads are limited; empty: all hosts."""
    acks: Law | None = None
    forward: Law | None = None
    gate: Law | None = None
    link: int | None = None
    """The uplink."""

    def said(self) -> list[str]:
        """In words, for the result."""
        parts = [
            (self.receive, "windows of its downloads"),
            (self.acks, "windows on ACKs of its uploads"),
            (self.forward, "windows on ACKs of forwarded downloads"),
        ]
        words = [f"{what} (λ {law['lambda']:g}, {law['form']})" for law, what in parts if law]
        if self.gate is not None:
            paced = ", its own connections paced" if self.gate.get("pace") else ""
            words.append(f"a gate of {self.gate['target'] * 1000:g} ms{paced}")
        return words


def cures(plan: Plan) -> list[Cure]:
    """Of every node that needs an agent."""
    found: dict[int, Cure] = {}
    for flow in plan["flows"]:
        law = flow["receiver"]["window"]
        if is_tcp(flow) and law["kind"] == "drwa":
            cure = found.setdefault(flow["to"], Cure(flow["to"]))
            cure.receive = law
    for number, node in enumerate(plan["nodes"]):
        law, device = node["window"], node["device"]
        if law is not None and law["kind"] == "drwa":
            out, through = passing(plan, number)
            if out or through:
                cure = found.setdefault(number, Cure(number))
                cure.acks, cure.forward = law if out else None, law if through else None
                cure.link = uplink(plan, number)
        if device is not None and gated(plan) and device["gate"]["kind"] == "qcut_d":
            cure = found.setdefault(number, Cure(number))
            cure.gate, cure.link = device["gate"], device["link"]
    for cure in found.values():
        cure.only = limited_to(plan, cure.node) if cure.receive else []
    return [found[node] for node in sorted(found)]


def gated(plan: Plan) -> bool:
    """Whether gates are the agent's."""
    return bool(plan["lab"]["gate"] == "agent")


def downloads(plan: Plan, node: int, drwa: bool) -> list[Flow]:
    """What arrives at a node, with the law or without it."""
    return [
        flow
        for flow in plan["flows"]
        if is_tcp(flow)
        and flow["to"] == node
        and (flow["receiver"]["window"]["kind"] == "drwa") == drwa
    ]


def limited_to(plan: Plan, node: int) -> list[str]:
    """The hosts whose data is held, where data of others is not."""
    if not downloads(plan, node, False):
        return []
    return sorted(
        {f"{plan['nodes'][flow['from']]['address']}/32" for flow in downloads(plan, node, True)}
    )


def uplink(plan: Plan, node: int) -> int | None:
    """The link by which a node's packets go out: that of its device, or the way to a server."""
    device = plan["nodes"][node]["device"]
    if device is not None:
        return int(device["link"])
    far = (number for number, one in enumerate(plan["nodes"]) if str(one["name"]).startswith(FAR))
    ways = (path(plan, node, number) for number in far if number != node)
    return next((way[0] for way in ways if way), None)


def passing(plan: Plan, node: int) -> tuple[list[Flow], list[Flow]]:
    """Flows whose ACKs pass a node or arrive at it: of data that leaves by the uplink, and of data that comes in."""
    link = uplink(plan, node)
    out: list[Flow] = []
    through: list[Flow] = []
    for flow in filter(is_tcp, plan["flows"]):
        way = path(plan, flow["from"], flow["to"]) or []
        leaves = next((number for number in way if plan["links"][number]["from"] == node), None)
        if leaves is None:
            continue
        (out if leaves == link else through).append(flow)
    return out, through


def unsupported_cures(plan: Plan) -> list[str]:
    """What an agent cannot do of what a plan asks for."""
    found = []
    for number, node in enumerate(plan["nodes"]):
        name, law, device = node["name"], node["window"], node["device"]
        laws = {
            json.dumps(one["receiver"]["window"]): one["name"]
            for one in downloads(plan, number, True)
        }
        if len(laws) > 1:
            names = ", ".join(laws.values())
            found.append(f"{name}: {names} want different laws of their windows; an agent has one")
        near = {flow["from"] for flow in downloads(plan, number, True)}
        for flow in downloads(plan, number, False):
            if flow["from"] in near:
                found.append(
                    f"{flow['name']}: window {flow['receiver']['window']['kind']} beside drwa from the same host: "
                    "unbloat-agent knows downloads by where they come from"
                )
        if law is not None:
            found += [
                f"{name}: {reason}"
                for reason in (*unsupported_law(law), *unsupported_in_forwarded_acks(law))
            ]
            if uplink(plan, number) is None:
                found.append(
                    f"{name}: window: no way leads to a node called {FAR}…, so that it has no uplink"
                )
        if device is not None and gated(plan) and device["gate"]["kind"] not in ("none", "qcut_d"):
            found.append(
                f"{name}: gate {device['gate']['kind']} is none of unbloat-agent's (qcut_d is)"
            )
        if device is not None and not gated(plan) and device["gate"].get("refuse"):
            found.append(
                f"{name}: gate.refuse: the emulator has a queue above its gate; unbloat-agent has none (lab.gate)"
            )
        if (
            device is not None
            and gated(plan)
            and device["gate"]["kind"] == "qcut_d"
            and law is not None
        ):
            found.append(f"{name}: gate and window: an agent holds uploads in one way")
    return found


def unsupported_law(law: Law) -> list[str]:
    """Of a window law, at a receiver or on the way."""
    if law["kind"] != "drwa":
        return [
            f"window {law['kind']} is no law of a stock kernel, nor of unbloat-agent (fixed, autotune and drwa are)"
        ]
    found = []
    if law["lambda"] < 1:
        found.append(f"window.lambda = {law['lambda']:g}: unbloat-agent wants 1 at least")
    if law["estimator"] != "timestamps":
        found.append(
            "window.estimator window: unbloat-agent measures by timestamps where there are any"
        )
    return found


def unsupported_in_forwarded_acks(law: Law) -> list[str]:
    """What a law on forwarded ACKs does not support in addition."""
    if law["kind"] != "drwa":
        return []
    found = []
    if form(law) != "rate":
        found.append(f"window.form = {law['form']}: on forwarded ACKs unbloat-agent has rate")
    if law["rtt_min_age"] is not None:
        found.append(
            f"window.rtt_min_age = {law['rtt_min_age']}: on forwarded ACKs unbloat-agent has none"
        )
    return found


def configuration(cure: Cure, device: str, cgroup: Path | None, telemetry: Path | None) -> str:
    """The agent's file. `device`: that of the uplink."""
    lines = section("scope", cgroup=str(cgroup or ""), device=device)
    lines += section(
        "receive", enabled=cure.receive is not None, only=cure.only, **law_keys(cure.receive)
    )
    lines += uplink_section(cure, telemetry)
    lines += section(
        "forward", enabled=cure.forward is not None, **some(law_keys(cure.forward), *FORWARDED)
    )
    lines += section("trial", enabled=False)
    return "".join(f"{line}\n" for line in lines)


def uplink_section(cure: Cure, telemetry: Path | None) -> list[str]:
    """How uploads are held."""
    if cure.gate is not None:
        gate = cure.gate
        return section(
            "uplink",
            mode="gate",
            telemetry=str(telemetry or ""),
            driver=False,
            target=seconds(gate["target"]),
            slack=seconds(gate.get("slack", 0)),
            floor=gate["floor"],
            patience=seconds(gate["patience"]),
            hold=gate["hold"],
            pace=gate.get("pace", False),
        )
    if cure.acks is not None:
        keys = some(law_keys(cure.acks), *FORWARDED)
        return section("uplink", mode="acks", telemetry="", driver=False, **keys)
    return section("uplink", mode="off")


def form(law: Law) -> str:
    """Which average the agent takes. What a scenario calls its whole law, beside the published one, averages the rate."""
    return "rate" if law["form"] == "agent" else str(law["form"])


def law_keys(law: Law | None) -> dict[str, object]:
    """A law in the agent's words. Nothing is waited for: the scenario's law holds from the first round trip on."""
    if law is None:
        return {}
    ages = law["rtt_min_age"] is not None
    return {
        "lambda": law["lambda"],
        "lambda_min": law["lambda"] if law["lambda_min"] is None else law["lambda_min"],
        "form": form(law),
        "average": law["alpha"] / SIXTEENTHS,
        "quick": law["quick"],
        # An RTTmin that ages is that of one connection.
        "fair": law["fair"] and not ages,
        **({"shared_minimum": False} if ages else {}),
        "floor": law["min_window"],
        "increment": law["increment"],
        "largest": f"{law['max']} B",
        "start": "0 B",
        "rtt_min_age": seconds(law["rtt_min_age"] or 0),
    }


def some(keys: dict[str, object], *names: str) -> dict[str, object]:
    """Of these keys those."""
    return {name: keys[name] for name in names if name in keys}


def seconds(span_s: float) -> str:
    """As the agent reads it."""
    return f"{round(span_s * 1e6)} us"


def section(name: str, **keys: object) -> list[str]:
    """A table of TOML: its scalars and lists are written as JSON's."""
    return [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]


def nodes_with_cgroup(found: Iterable[Cure]) -> list[int]:
    """Where programs belong to a cgroup, by which the agent knows their connections."""
    return [cure.node for cure in found if cure.receive is not None]


def said(plan: Plan, found: Sequence[Cure]) -> list[str]:
    """Who does what, one line per agent."""
    return [f"{plan['nodes'][cure.node]['name']}: {', '.join(cure.said())}" for cure in found]
