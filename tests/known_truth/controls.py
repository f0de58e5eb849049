"""Runs whose congestion control is known: each on links that differ in buffer, loss, marks and rate.

signal: a congestion control and a link · model: client → router → server, one upload of 30 s, its bottleneck behind the
router · action: the text of a scenario, and the answers that are right for it
"""

from __future__ import annotations

import random
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
# Drawn before they were looked at, one of each kind. What decides was tuned by the links above alone.
HELD_OUT_SEED = 411


def held_out_links() -> dict[str, Link]:
    """A link of each kind, its figures drawn from ranges around those above."""
    draw = random.Random(HELD_OUT_SEED)

    def path() -> tuple[str, int, int]:
        rate, rtt = draw.randint(6, 45), draw.randint(25, 110)
        return f'"{rate} Mbit/s"', rtt, max(1, round(rate * 1e3 * rtt / 8 / 1500))

    found = {}
    rate, rtt, bdp = path()
    found["deep buffer, drawn"] = Link(rate, rtt, droptail(round(bdp * draw.uniform(2, 6))))
    rate, rtt, bdp = path()
    found["shallow buffer, drawn"] = Link(rate, rtt, droptail(round(bdp * draw.uniform(0.3, 0.9))))
    rate, rtt, bdp = path()
    found["CoDel, drawn"] = Link(rate, rtt, 'queue = "codel"')
    rate, rtt, bdp = path()
    loss = f"\nloss = {draw.uniform(0.001, 0.006):.4f}"
    found["random loss, drawn"] = Link(rate, rtt, droptail(2 * bdp) + loss)
    rate, rtt, bdp = path()
    found["ECN, drawn"] = Link(rate, rtt, MARKS, "ecn = true")
    rate, rtt, bdp = path()
    rates = ", ".join(str(draw.randint(6, 30)) for _ in range(3))
    varying = f'{{ profile = [{rates}], unit = "Mbit/s", slot = "{draw.randint(3, 6)} s" }}'
    found["varying rate, drawn"] = Link(varying, rtt, droptail(bdp))
    rate, rtt, bdp = path()
    window = f'[flow.receiver]\nwindow = {{ kind = "fixed", window = "{max(20, bdp)} KB" }}'
    found["receive window, drawn"] = Link(rate, rtt, droptail(2 * bdp), window)
    rate, rtt, bdp = path()
    app = f'app = {{ kind = "rate-profile", profile = [{draw.randint(2, 5)}, 3], unit = "Mbit/s", slot = "2 s" }}'
    found["application, drawn"] = Link(rate, rtt, droptail(2 * bdp), app)
    return found


TUNING = tuple(LINKS)
LINKS |= held_out_links()
# Where something else sets the bytes in flight: only what probes by itself can be known.
HELD = tuple(name for name in LINKS if name.startswith(("receive window", "application")))
NAMES = {"cubic": "cubic", "newreno": "reno", "bbr": "bbr", "bbr3": "bbr"}
OTHERS = ("bic", "highspeed", "htcp", "vegas", "westwood", "ledbat", "lp")
# They answer the delay before a loss.
BY_DELAY = ("vegas", "ledbat", "lp")
FEW = tuple(
    name for name in LINKS if name.startswith(("deep buffer", "CoDel", "random loss", "receive"))
)
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
    """Whether `answer` asserts of `control` what is not so."""
    if answer == "loss-based":
        return NAMES.get(control) == "bbr" or control in BY_DELAY
    if answer == "delay-based":
        return control not in BY_DELAY
    return answer not in (None, NAMES.get(control))
