"""The cases of fairness: how many flows, which way, when they start, over which round trips, under which control.

The bottleneck is 20 Mbit/s down and 8 Mbit/s up with 2 MB in front of it, between the client and a router; servers are near
(50 ms base RTT) or far (100 ms). Flows send as much as goes, from their start to the end, a minute after the last start.
"""

from __future__ import annotations

from dataclasses import dataclass

from unbloat.front.controls import ADAPTIVE, BUFFER, OPEN, law
from unbloat.front.links import WAYS, Way

FLOWS = (2, 4, 8)
STAGGER_S = 10
"""From one start to the next, where flows do not start together."""
AFTER_S = 60
"""From the last start to the end."""
RATE_MBIT = {"down": 20.0, "up": 8.0}
NEAR_MS, FAR_MS = 50.0, 100.0
"""Base RTTs."""
# Of it, between client and router, both ways; the rest is between router and server.
RADIO_MS = 40.0


@dataclass(frozen=True)
class Sharing:
    """A control of several flows."""

    name: str
    window: dict[Way, str]
    """The law of the receiver for downloads; on ACKs that reach the client for uploads."""
    bound: dict[Way, float]
    """λ: the RTT that the control allows, in base RTTs; empty where it allows none."""
    queue: str = OPEN


# λ of the published law, and with a constant λ: receive window down, ACK-window rewriting up.
BOUND: dict[Way, float] = {"down": 3.0, "up": 1.75}
# The largest λ of the agent.
LARGEST: dict[Way, float] = {"down": 1.75, "up": 1.75}


def windows(bound: dict[Way, float], more: str) -> dict[Way, str]:
    """The agent's law."""
    return {way: law("agent", bound[way], more) for way in WAYS}


def published() -> dict[Way, str]:
    """The paper's law, with its constants but for λ."""
    return {way: f'{{ kind = "drwa", lambda = {BOUND[way]:g} }}' for way in WAYS}


# A new form of the window law is one line here. An increment is the other known way to equal shares.
SHARINGS = (
    Sharing("nothing", {}, {}),
    Sharing("DRWA, paper", published(), BOUND),
    Sharing("constant λ, increment", windows(BOUND, ", increment = 1"), BOUND),
    Sharing("constant λ, fair", windows(BOUND, ", fair = true"), BOUND),
    Sharing("window law, agent", windows(LARGEST, ADAPTIVE), LARGEST),
    Sharing("fq_codel", {}, {}, '"fq_codel"'),
)


@dataclass(frozen=True)
class Case:
    """Some flows under one control."""

    way: Way
    flows: int
    staggered: bool
    unequal: bool
    """Every other flow goes to the far server."""
    sharing: Sharing

    @property
    def key(self) -> tuple[str, ...]:
        """Its names in the store."""
        starts = "10 s apart" if self.staggered else "together"
        rtts = "50 and 100 ms" if self.unequal else "50 ms"
        return (self.way, str(self.flows), starts, rtts, self.sharing.name)

    @property
    def last_start_s(self) -> int:
        """When the last flow starts."""
        return (self.flows - 1) * STAGGER_S if self.staggered else 0

    @property
    def duration_s(self) -> int:
        """Of the run."""
        return self.last_start_s + AFTER_S

    def base_ms(self, flow: int) -> float:
        """Round trip of a flow's empty path."""
        return FAR_MS if self.unequal and flow % 2 else NEAR_MS

    def scenario(self) -> str:
        """The scenario file."""
        window = self.sharing.window.get(self.way, "")
        text = f'name = "fairness"\nduration = "{self.duration_s} s"\nbin = "1 s"\n'
        rates = {way: f"{RATE_MBIT[way] if way == self.way else 20.0:g} Mbit/s" for way in WAYS}
        text += node("client", window if self.way == "up" else "") + node("router")
        text += link("down", "router", "client", rates["down"], RADIO_MS / 2, self.queue("down"))
        text += link("up", "client", "router", rates["up"], RADIO_MS / 2, self.queue("up"))
        for server, base in (("server-near", NEAR_MS), ("server-far", FAR_MS)):
            wire = (base - RADIO_MS) / 2
            text += node(server)
            text += link(f"{server}-down", server, "router", "1 Gbit/s", wire, OPEN)
            text += link(f"{server}-up", "router", server, "1 Gbit/s", wire, OPEN)
        for flow in range(self.flows):
            server = "server-far" if self.base_ms(flow) == FAR_MS else "server-near"
            ends = (server, "client") if self.way == "down" else ("client", server)
            start = flow * STAGGER_S if self.staggered else 0
            text += f"""[[flow]]
name = "flow{flow}"
from = "{ends[0]}"
to = "{ends[1]}"
start = "{start} s"
tsq = false
"""
            if window and self.way == "down":
                text += f"[flow.receiver]\nwindow = {window}\n"
        return text

    def queue(self, way: Way) -> str:
        """In front of a direction of the bottleneck."""
        return self.sharing.queue if way == self.way else OPEN


def node(name: str, window: str = "") -> str:
    """A node of the scenario."""
    law = f"window = {window}\n" if window else ""
    return f'[[node]]\nname = "{name}"\n{law}'


def link(name: str, start: str, end: str, rate: str, delay_ms: float, queue: str) -> str:
    """A link of the scenario."""
    return (
        f'[[link]]\nname = "{name}"\nfrom = "{start}"\nto = "{end}"\nrate = "{rate}"\n'
        f'delay = "{delay_ms:g} ms"\nqueue = {queue}\n'
    )


CASES: tuple[Case, ...] = tuple(
    Case(way, flows, staggered, unequal, sharing)
    for way in WAYS
    for flows in FLOWS
    for staggered in (False, True)
    for unequal in (False, True)
    for sharing in SHARINGS
)
# A flow alone: what the control costs it.
ALONE: tuple[Case, ...] = tuple(
    Case(way, 1, False, False, sharing) for way in WAYS for sharing in SHARINGS
)


@dataclass(frozen=True)
class BothWays:
    """A download beside an upload of the same client, as in `scenarios/agent-both-ways.toml`, or the upload alone."""

    name: str
    download: bool
    gate: str = ""
    acks: str = ""
    """The law on ACKs that reach the client."""
    receive: str = ""
    """The law of the download's receive window."""

    @property
    def key(self) -> tuple[str, ...]:
        """Its names in the store."""
        flows = "upload and download" if self.download else "upload alone"
        return ("both ways", "2" if self.download else "1", flows, "60 ms", self.name)

    def scenario(self) -> str:
        """The scenario file."""
        gate = f"gate = {self.gate}" if self.gate else ""
        window = f"window = {self.acks}" if self.acks else ""
        text = f"""name = "both ways"
duration = "{BOTH_S} s"
bin = "1 s"
[lab]
gate = "agent"
[link.up]
rate = "2 Mbit/s"
delay = "30 ms"
[link.down]
rate = "8 Mbit/s"
delay = "30 ms"
queue = {{ kind = "droptail", limit = "{BUFFER}" }}
[device]
qdisc = "fq_codel"
{gate}
{window}
firmware = {{ buffer = "1 MB", report_every = "5 ms", report_delay = "100 ms" }}
[[probe]]
name = "ping"
every = "100 ms"
[[flow]]
name = "upload"
from = "client"
congestion = {{ kind = "cubic", rules = "linux", hystart = "linux" }}
tsq = false
"""
        if self.download:
            text += """[[flow]]
name = "download"
from = "server"
congestion = { kind = "cubic", rules = "linux", hystart = "linux" }
start = "2 s"
"""
            if self.receive:
                text += f"[flow.receiver]\nwindow = {self.receive}\n"
        return text


BOTH_S, BOTH_FROM_S = 40, 10
"""Length of a run, and from when on it is measured: both flows have started by then."""
# The agent's: it has no queue, and what does not pass stays in its socket.
GATE = '{ kind = "qcut_d", target = "20 ms", hold = true, slack = "150 ms", refuse = true }'
# Its own connections paced, as by default in the agent.
PACED = GATE.replace(" }", ", pace = true }")
BOTH_WAYS: tuple[BothWays, ...] = tuple(
    BothWays(name, download, gate, acks, receive)
    for name, gate, acks, receive in (
        ("nothing", "", "", ""),
        ("gate", GATE, "", law("agent", LARGEST["down"], ADAPTIVE)),
        ("gate, paced", PACED, "", law("agent", LARGEST["down"], ADAPTIVE)),
        (
            "ACKs",
            "",
            law("agent", LARGEST["up"], ADAPTIVE),
            law("agent", LARGEST["down"], ADAPTIVE),
        ),
    )
    for download in (False, True)
)
