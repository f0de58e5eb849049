"""What neither a stock kernel nor unbloat-agent can do, said before anything is started.

signal: a plan, the congestion controls of this kernel · model: the laws that only the simulator has ·
action: `unsupported_in_plan`, one line each with the key and the reason: a run that has one is skipped; `plan_warnings`, what it
does in another way.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from unbloat.lab.agent.config import (
    cures,
    gated,
    nodes_with_cgroup,
    unsupported_cures,
    unsupported_law,
)
from unbloat.lab.setup.processor import unsupported_processor
from unbloat.lab.setup.tcp_settings import (
    MSS_BYTES,
    Flow,
    Plan,
    advmss,
    disagreements,
    has_own_sockets,
    is_tcp,
)
from unbloat.lab.traffic.sockets import kernel_name

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")

# Choices of the simulator's CUBIC between the RFC and Linux: the kernel is Linux.
RULES = {"cubic": {"rules", "hystart", "limit", "clamp"}}
# What the receiving kernel does by itself: an ACK for two segments, or after 40 ms.
ACK_EVERY, ACK_DELAY_MS = 2, 40.0
# That of packets which carry none.
USUAL_CLASS = 1


def unsupported_in_plan(plan: Plan) -> list[str]:
    """Why a plan cannot be run on this kernel; empty where it can."""
    found = [
        reason
        for flow in plan["flows"]
        if is_tcp(flow)
        for reason in unsupported_in_flow(flow, plan)
    ]
    found += [
        f"{probe['name']}: ttl {probe['ttl']}: Linux answers expired packets once a second (icmp_ratelimit)"
        for probe in plan["probes"]
        if probe.get("ttl") is not None
    ]
    for change in plan["changes"]:
        found += [
            f"at {change['at_s']:g} s: {reason}"
            for what in change["what"]
            for reason in unsupported_change(what, plan)
        ]
    found += unsupported_processor(plan, nodes_with_cgroup(cures(plan)))
    return [*dict.fromkeys([*found, *unsupported_cures(plan), *disagreements(plan)])]


def unsupported_in_flow(flow: Flow, plan: Plan) -> list[str]:
    """Of one flow."""
    name, sender, receiver = flow["name"], flow["sender"], flow["receiver"]
    found = [f"{name}: {reason}" for reason in unsupported_congestion(sender["congestion"])]
    found += [f"{name}: {reason}" for reason in unsupported_window(receiver["window"])]
    if advmss(flow) > MSS_BYTES:
        found.append(
            f"{name}: mss {sender['mss_bytes']} does not fit the TUN devices' MTU of 1500 bytes"
        )
    if sender["pacing"] and not has_own_sockets(flow, plan):
        found.append(
            f"{name}: pacing of {maker(flow)} needs the queue discipline fq, which the lab does not have"
        )
    kind = flow["app"]["kind"]
    if kind in ("web", "video") and sender["class"] != USUAL_CLASS:
        found.append(f"{name}: class {sender['class']}: what nginx sends carries none")
    if kind == "web" and receiver["ack_class"] != USUAL_CLASS:
        found.append(
            f"{name}: ack_class {receiver['ack_class']}: what a browser sends carries none"
        )
    if receiver["window_update"] != "linux":
        found.append(
            f"{name}: window_update {receiver['window_update']}: Linux sends window updates by its own rule"
        )
    if receiver["ack_every"] not in (1, ACK_EVERY):
        found.append(
            f"{name}: ack_every {receiver['ack_every']}: Linux acknowledges every {ACK_EVERY} segments, or each"
        )
    if receiver["ack_delay_ms"] != ACK_DELAY_MS and receiver["ack_every"] != 1:
        found.append(
            f"{name}: ack_delay {receiver['ack_delay_ms']:g} ms: Linux waits {ACK_DELAY_MS:g} ms"
        )
    return found


def maker(flow: Flow) -> str:
    """The program that makes a flow's traffic."""
    return "iperf3" if flow["app"]["kind"] == "bulk" else "nginx"


def unsupported_congestion(congestion: dict[str, Any]) -> list[str]:
    """Of a congestion control."""
    name = kernel_name(congestion)
    available = AVAILABLE.read_text().split()
    if name not in available:
        return [
            f"congestion {congestion['kind']} is not in this kernel (it has {', '.join(available)})"
        ]
    if congestion.get("hystart") == "off":
        return [f"congestion.hystart off: it is on in this kernel's {name}, for all connections"]
    return unlike_default("congestion", congestion, RULES.get(congestion["kind"], set()))


def unsupported_window(law: dict[str, Any]) -> list[str]:
    """Of a window law."""
    return [] if law["kind"] in ("fixed", "autotune") else unsupported_law(law)


def unsupported_change(what: dict[str, Any], plan: Plan) -> list[str]:
    """Of something that changes in mid-run."""
    if what["kind"] == "node_window":
        return [
            f"{plan['nodes'][what['node']]['name']}: a window law on forwarded ACKs holds from beginning to end"
        ]
    if what["kind"] == "gate" and gated(plan):
        return [
            f"{plan['nodes'][what['node']]['name']}: a gate of unbloat-agent holds from beginning to end"
        ]
    if what["kind"] not in ("congestion", "window"):
        return []
    flow = plan["flows"][what["flow"]]
    if not has_own_sockets(flow, plan):
        return [
            f"{flow['name']}: {what['kind']} of a live connection of {maker(flow)} cannot be changed"
        ]
    if what["kind"] == "congestion":
        reasons = unsupported_congestion(what["to"])
    elif "drwa" in (what["to"]["kind"], flow["receiver"]["window"]["kind"]):
        reasons = ["window drwa of unbloat-agent holds from beginning to end"]
    else:
        reasons = unsupported_window(what["to"])
    return [f"{flow['name']}: {reason}" for reason in reasons]


def unlike_default(key: str, algorithm: dict[str, Any], free: set[str]) -> list[str]:
    """Parameters that are not the published ones: the kernel's own cannot be set for one connection."""
    usual = defaults(algorithm["kind"])
    return [
        f"{key}.{name} = {value}: this kernel's {algorithm['kind']} has no setting for it"
        for name, value in algorithm.items()
        if name not in free and value != usual.get(name, value)
    ]


@cache
def defaults(kind: str) -> dict[str, Any]:
    """A congestion control with its published values, as a plan has it."""
    import unbloat._native as _native

    text = (
        'link.up = { rate = "1 Mbit/s", delay = "1 ms" }\nlink.down = { rate = "1 Mbit/s", delay = "1 ms" }\n'
        f'flow = [{{ from = "client", congestion = "{kind}" }}]\n'
    )
    plan: Plan = json.loads(_native.scenario_plan(text))
    found: dict[str, Any] = plan["flows"][0]["sender"]["congestion"]
    return found


def plan_warnings(plan: Plan) -> list[str]:
    """What is done in another way than the scenario says."""
    found = []
    for node in plan["nodes"]:
        if node["device"] is None:
            continue
        held = [
            flow["name"]
            for flow in plan["flows"]
            if plan["nodes"][flow["from"]] is node
            and is_tcp(flow)
            and flow["sender"]["tsq_bytes"] is not None
        ]
        if held:
            found.append(
                f"{', '.join(held)}: tsq has no effect in the lab: TUN devices take packets out of TCP's account, "
                f"so that the whole window may wait in the queue of {node['name']}"
            )
    return found
