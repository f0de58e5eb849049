"""Runs whose congestion control is known: each on links that differ in buffer, loss, marks and rate.

signal: a congestion control and a link · model: client → router → server, one upload of 30 s, its bottleneck behind the
router · action: the text of a scenario, and the answers that are right for it
"""

from __future__ import annotations

from dataclasses import dataclass

import paths

HEAD = """
name = "{name}"
duration = "30 s"
seed = 21
"""
FLOW = """
[[flow]]
name = "upload"
from = "client"
to = "server"
opens = "sender"
start = "0 s"
congestion = "{congestion}"
{more}
"""


@dataclass(frozen=True)
class Link:
    """A bottleneck, and what else the flow has."""

    rate: str
    rtt_ms: int
    bottleneck: str
    flow: str = ""


def droptail(packets: int) -> str:
    return f'queue = {{ kind = "droptail", limit = "{packets} packets" }}'


VARYING = '{ profile = [15, 25, 8], unit = "Mbit/s", slot = "4 s" }'
MARKS = 'queue = { kind = "codel", ecn = true }'
WINDOW = '[flow.receiver]\nwindow = { kind = "fixed", window = "90 KB" }'
APPLICATION = 'app = { kind = "rate-profile", profile = [6, 3], unit = "Mbit/s", slot = "2 s" }'
LINKS = {
    "deep buffer": Link('"10 Mbit/s"', 30, droptail(200)),
    "shallow buffer": Link('"40 Mbit/s"', 80, droptail(120)),
    "CoDel": Link('"30 Mbit/s"', 50, 'queue = "codel"'),
    "random loss": Link('"10 Mbit/s"', 100, droptail(200) + "\nloss = 0.004"),
    "ECN": Link('"40 Mbit/s"', 30, MARKS, "ecn = true"),
    "varying rate": Link(VARYING, 70, droptail(150)),
    "receive window": Link('"40 Mbit/s"', 30, droptail(300), WINDOW),
    "application": Link('"15 Mbit/s"', 40, droptail(100), APPLICATION),
}
# Where something else sets the bytes in flight: only what probes by itself can be known.
HELD = ("receive window", "application")
NAMES = {"cubic": "cubic", "newreno": "reno", "bbr": "bbr", "bbr3": "bbr"}
OTHERS = ("bic", "highspeed", "htcp", "vegas", "westwood", "ledbat", "lp")
FEW = ("deep buffer", "CoDel", "receive window")
CASES = [(control, link) for control in NAMES for link in LINKS] + [
    (control, link) for control in OTHERS for link in FEW
]


def scenario(control: str, name: str) -> str:
    """The scenario file."""
    link = LINKS[name]
    links = paths.ways(link.rate, "1 ms", f"{link.rtt_ms / 2 - 1:g} ms", link.bottleneck)
    flow = FLOW.format(congestion=control, more=link.flow)
    return HEAD.format(name=f"{control}, {name}") + paths.NODES + links + flow


def wrong(control: str, answer: str | None) -> bool:
    """Whether `answer` asserts of `control` what is not so. A cut at a loss is no assertion about growth."""
    if answer == "loss-based":
        return NAMES.get(control) == "bbr"
    return answer not in (None, NAMES.get(control))
