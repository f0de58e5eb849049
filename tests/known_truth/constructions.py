"""Scenarios in which every limit occurs by construction, and the share of each limit of their time.

signal: a construction and one of two networks · model: client → router → server; the simulator records what its sender
waited for · action: shares of time by limit, of the truth and of an analysis

There are two networks, chosen beforehand: rules may be tuned on the first; the second only judges them.
"""

from __future__ import annotations

from dataclasses import dataclass

import paths
from held import ALIKE, Row

from unbloat.text.format import LIMITS

WORDS = [word for word in LIMITS if word not in ALIKE]
# Every congestion control of the simulator but CUBIC, which "deep buffer" is about.
CONTROLS = (
    "newreno",
    "bic",
    "highspeed",
    "htcp",
    "westwood",
    "vegas",
    "lp",
    "ledbat",
    "bbr",
    "bbr3",
)


@dataclass(frozen=True)
class Network:
    """A path and the seed of its chances."""

    name: str
    seed: int
    mbit_s: int
    way_ms: int
    """One way of the bottleneck; the access has half of it, and the way back as much as both."""

    @property
    def bdp(self) -> int:
        """Rate times round trip, bytes."""
        return int(self.mbit_s * 1e6 / 8 * 3 * self.way_ms / 1e3)

    def links(self, more: str) -> str:
        """As `paths.links`, at this rate and delay."""
        rate, half, way = f'"{self.mbit_s} Mbit/s"', f"{self.way_ms / 2:g} ms", f"{self.way_ms} ms"
        return paths.ways(rate, half, way, more, "loss = 0")

    def queue(self, bdps: float) -> str:
        """A plain queue of so many BDP."""
        packets = max(4, round(bdps * self.bdp / 1500))
        return f'queue = {{ kind = "droptail", limit = "{packets} packets" }}'


NETWORKS = (Network("20 Mbit/s, 60 ms", 1, 20, 20), Network("8 Mbit/s, 90 ms", 7, 8, 30))
DEEP, SHALLOW = 3.0, 0.3


def outage(link: str, begin_s: int, end_s: int | None = None) -> str:
    """Everything on a link is lost for a time, or to the end."""
    changes = [(begin_s, 1)] + ([] if end_s is None else [(end_s, 0)])
    return "".join(
        f'[[change]]\nat = "{at} s"\n"link.{link}.loss" = {loss}\n' for at, loss in changes
    )


def window(size: int, more: str = "") -> str:
    """A receiver with a window of fixed size."""
    return f'[flow.receiver]\nwindow = {{ kind = "fixed", window = "{size} B" }}\n{more}'


def bodies(net: Network) -> dict[str, str]:
    """The constructions on a network."""
    deep, shallow = net.links(net.queue(DEEP)), net.links(net.queue(SHALLOW))
    lossless = net.links(net.queue(DEEP) + "\nloss = 0")
    rate = net.mbit_s

    def app(text: str) -> str:
        return deep + paths.flow(f"app = {{ {text} }}")

    def reader(profile: str, slot: str) -> str:
        read = f'read = {{ profile = {profile}, unit = "Mbit/s", slot = "{slot}", tick = "10 ms" }}'
        return deep + paths.flow(window(2 * net.bdp, read))

    made = {
        "deep buffer": deep + paths.flow(),
        "shallow buffer": shallow + paths.flow(),
        "random loss": net.links(net.queue(DEEP) + "\nloss = 0.003") + paths.flow(),
        "small window": deep + paths.flow(window(net.bdp // 3)),
        "window of a BDP and a half": deep + paths.flow(window(net.bdp * 3 // 2)),
        "slow reader": reader(f"[{0.6 * rate:g}, 0]", "1500 ms"),
        "steady slow reader": reader(f"[{0.3 * rate:g}]", "1 s"),
        "application at two rates": app(
            f'kind = "rate-profile", profile = [{0.3 * rate:g}, {0.15 * rate:g}], '
            'unit = "Mbit/s", slot = "2 s"'
        ),
        "application with pauses": app(
            f'kind = "rate-profile", profile = [{0.6 * rate:g}, 0], unit = "Mbit/s", slot = "1 s"'
        ),
        "file of 2 MB": app('kind = "file", bytes = "2 MB"'),
        "outage": lossless + paths.flow(window(net.bdp // 3)) + outage("bottleneck", 6, 11),
        "ACKs lost": lossless + paths.flow(window(net.bdp // 3)) + outage("back", 6, 11),
        "silent peer": lossless + paths.flow(window(net.bdp // 3)) + outage("back", 12),
        "short transfer": app('kind = "file", bytes = "8 KB"'),
    }
    return made | {f"{name}": deep + paths.flow(congestion=name) for name in CONTROLS}


NAMES = list(bodies(NETWORKS[0]))


def scenario(name: str, net: Network) -> str:
    """The scenario file."""
    head = paths.HEAD.format(name=name).replace("\n[[node]]", f"\nseed = {net.seed}\n[[node]]", 1)
    return head + bodies(net)[name]


def shares(row: Row) -> dict[str, float] | None:
    """The share of each limit of a flow's time, in percent; `None` for a transfer too short to judge."""
    if row["share_unknown"] is None:
        return None
    found = dict.fromkeys(WORDS, 0.0)
    for word in LIMITS:
        found[ALIKE.get(word, word)] += 100 * (row[f"share_{word}"] or 0.0)
    return found
