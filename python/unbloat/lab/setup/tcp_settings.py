"""Settings with which Linux's TCP is the scenario's: sysctls of a node's namespace, options of its routes.

signal: the flows of a plan · model: the traffic programs set what a socket can be set to
(congestion control, MSS, buffers, pacing), flow by flow; the rest belongs to a namespace or to a
route, and flows that share one must agree ·
action: `sysctls`, `route_options`, and the `disagreements` that make a plan impossible.

Differences from the simulator:
- `autotune` with its default ratio is set as it stands: `max` is `tcp_rmem`'s third value, and the
  kernel measures its own ratio (0.5 at first, about 0.63 with full segments over a TUN device). A
  ratio of one's own is kept by setting the buffer that gives the same window.
- `buffer` is `tcp_wmem`'s third value, made larger by what the kernel counts of its own overhead (1.28 with full segments).
- `tsq` does nothing: a TUN device takes packets out of TCP's account at once, so that all of a window may wait in the
  emulated queue (the run says so where a phone's queue is emulated).
- `initial_window` is a route's, for all connections between two nodes; so is the congestion control of web servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from unbloat.lab.traffic.sockets import kernel_name, send_memory

Plan = dict[str, Any]
Flow = dict[str, Any]

# Payload per byte of buffer: the default of the window laws, and what full segments over a TUN device measure at
# (1,448 bytes in an skb of 2,304: 160/256).
OWN_RATIO, MEASURED_RATIO = 0.5, 160 / 256
# Bytes of the timestamps option in every segment, padded.
TIMESTAMPS_BYTES = 12
# Payload of a full segment over an MTU of 1,500 bytes without options.
MSS_BYTES = 1_460
# Linux's defaults: least buffer, first receive buffer, its maximum (6.18); first send buffer.
LEAST, RMEM, RMEM_MAX, WMEM = 4_096, 131_072, 33_554_432, 16_384
WMEM_MAX = 4_194_304

ANY_NODE = {
    # Else every connection would begin with what the one before it learnt.
    "net.ipv4.tcp_no_metrics_save": "1",
    # Packets of a node come and go by different devices.
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    # No router solicitations among the packets.
    "net.ipv6.conf.default.disable_ipv6": "1",
}


def is_tcp(flow: Flow) -> bool:
    """Voice is UDP; everything else a TCP connection or several."""
    return bool(flow["app"]["kind"] != "voip")


def has_own_sockets(flow: Flow, plan: Plan) -> bool:
    """Whether both ends are our programs, which set each socket as its flow asks; web servers,
    browsers and iperf3 take what their namespace and their routes give them."""
    kind = flow["app"]["kind"]
    return kind not in ("web", "video") and not (kind == "bulk" and plan["lab"]["bulk"] == "iperf3")


def sysctls(plan: Plan) -> list[dict[str, str]]:
    """Of each node, name and value."""
    return [node_sysctls(plan, node) for node in range(len(plan["nodes"]))]


def node_sysctls(plan: Plan, node: int) -> dict[str, str]:
    """Of one node."""
    own = dict(ANY_NODE)
    neighbours = {link["to"] for link in plan["links"] if link["from"] == node}
    neighbours |= {link["from"] for link in plan["links"] if link["to"] == node}
    own["net.ipv4.ip_forward"] = "1" if len(neighbours) > 1 else "0"
    for name, (value, _) in shared(plan, node).items():
        own[name] = value
    return own


Shared = dict[str, tuple[str, dict[str, list[str]]]]
"""Of each sysctl its value, and which flows want which."""


def shared(plan: Plan, node: int) -> Shared:
    """The sysctls on which flows of a node must agree."""
    tcp = [flow for flow in plan["flows"] if is_tcp(flow)]
    ends = [flow for flow in tcp if node in (flow["from"], flow["to"])]
    sent = [flow for flow in tcp if flow["from"] == node]
    received = [flow for flow in tcp if flow["to"] == node]
    by_route = [flow for flow in sent if not has_own_sockets(flow, plan)]
    largest = max((flow["sender"]["buffer_bytes"] for flow in sent), default=WMEM_MAX)
    wanted: dict[str, tuple[str, dict[str, list[str]]]] = {}

    def ask(
        name: str, flows: Iterable[Flow], value: Callable[[Flow], str | None], default: str
    ) -> None:
        by_value: dict[str, list[str]] = {}
        for flow in flows:
            own = value(flow)
            if own is not None:
                by_value.setdefault(own, []).append(flow["name"])
        wanted[f"net.ipv4.{name}"] = (next(iter(by_value), default), by_value)

    ask("tcp_sack", ends, lambda flow: flag(flow["sender"]["sack"]), "1")
    ask("tcp_timestamps", ends, lambda flow: flag(flow["sender"]["timestamps"]), "1")
    ask("tcp_ecn", ends, lambda flow: flag(flow["sender"]["ecn"]), "0")
    ask(
        "tcp_slow_start_after_idle",
        sent,
        lambda flow: flag(flow["sender"]["slow_start_after_idle"]),
        "1",
    )
    ask("tcp_rmem", received, lambda flow: rmem(flow, plan), f"{LEAST} {RMEM} {RMEM_MAX}")
    ask("tcp_wmem", by_route, lambda flow: wmem(flow["sender"]["buffer_bytes"]), wmem(largest))
    return wanted


def flag(value: bool) -> str:
    """As a sysctl."""
    return "1" if value else "0"


def wmem(most: int) -> str:
    """`tcp_wmem` for a send buffer of so much payload at most."""
    memory = max(send_memory(most), LEAST)
    return f"{LEAST} {min(WMEM, memory)} {memory}"


def rmem(flow: Flow, plan: Plan) -> str | None:
    """`tcp_rmem` for the window law of a flow; None where the socket itself is set, or the kernel
    lacks the law."""
    law = flow["receiver"]["window"]
    if law["kind"] == "autotune":
        most = max(buffer(law["max"], law["ratio"]), LEAST)
        return f"{LEAST} {min(max(law['initial'], LEAST), most)} {most}"
    if law["kind"] == "drwa":
        most = max(round(law["max"] / OWN_RATIO), RMEM)
        return f"{LEAST} {RMEM} {most}"
    if law["kind"] == "fixed" and not has_own_sockets(flow, plan):
        window = law["window"]
        most = buffer(law["rmem_max"], law["ratio"]) if window is None else buffer(window, 1.0)
        return f"{LEAST} {max(most, LEAST)} {max(most, LEAST)}"
    return None


def buffer(size: int, ratio: float) -> int:
    """The buffer that gives, with the kernel's measured ratio, the window of `size` × `ratio`."""
    return size if ratio == OWN_RATIO else round(size * ratio / MEASURED_RATIO)


def route_options(plan: Plan, node: int, to: int) -> list[str]:
    """What the route from one node to another says about connections."""
    options: list[str] = []
    sent = [f for f in plan["flows"] if is_tcp(f) and (f["from"], f["to"]) == (node, to)]
    both = [f for f in plan["flows"] if is_tcp(f) and {f["from"], f["to"]} == {node, to}]
    received = [f for f in both if f["to"] == node]
    initial = {flow["sender"]["initial_window"] for flow in sent}
    if len(initial) == 1:
        options += ["initcwnd", str(*initial)]
    # Our own programs set their sockets one by one.
    by_route = [flow for flow in sent if not has_own_sockets(flow, plan)]
    if by_route:
        options += ["congctl", kernel_name(by_route[0]["sender"]["congestion"])]
    advertised = {advmss(flow) for flow in both}
    if len(advertised) == 1 and advertised != {MSS_BYTES}:
        options += ["advmss", str(*advertised)]
    if received and all(flow["receiver"]["ack_every"] == 1 for flow in received):
        options += ["quickack", "1"]
    return options


def advmss(flow: Flow) -> int:
    """The MSS option for the payload that a flow's segments are to have."""
    return int(flow["sender"]["mss_bytes"]) + (
        TIMESTAMPS_BYTES if flow["sender"]["timestamps"] else 0
    )


PER_WAY: tuple[tuple[str, bool, Callable[[Flow], str]], ...] = (
    ("initial_window", False, lambda flow: str(flow["sender"]["initial_window"])),
    ("congestion", True, lambda flow: kernel_name(flow["sender"]["congestion"])),
    ("mss", True, lambda flow: str(flow["sender"]["mss_bytes"])),
    ("ack_every", False, lambda flow: str(flow["receiver"]["ack_every"])),
)
"""What all flows from one node to another share; whether a socket of our own programs can differ."""


def disagreements(plan: Plan) -> list[str]:
    """What flows want of a namespace or a route that they share."""
    found: list[str] = []
    for node, described in enumerate(plan["nodes"]):
        for name, (_, wishes) in shared(plan, node).items():
            if len(wishes) > 1:
                found.append(
                    f"{name.removeprefix('net.ipv4.')} on {described['name']}: {against(wishes)}"
                )
    tcp = [flow for flow in plan["flows"] if is_tcp(flow)]
    for start, end in dict.fromkeys((flow["from"], flow["to"]) for flow in tcp):
        where = f"{plan['nodes'][start]['name']} to {plan['nodes'][end]['name']}"
        sent = [flow for flow in tcp if (flow["from"], flow["to"]) == (start, end)]
        for name, can_differ, value in PER_WAY:
            wishes = {}
            for flow in sent:
                if not (can_differ and has_own_sockets(flow, plan)):
                    wishes.setdefault(value(flow), []).append(flow["name"])
            if len(wishes) > 1:
                found.append(f"{name} from {where}: {against(wishes)}")
    return found


def against(by_value: dict[str, list[str]]) -> str:
    """Who wants what."""
    wishes = (f"{names[0]} wants {value}" for value, names in by_value.items())
    return f"{', '.join(wishes)}; Linux has one value for all of them"
