"""The paths of `never_worse.py`: what is transferred on each, and where the agent is.

A path is a testbed on this host, or a link of a guest (`guests.py`) whose kernel has what this host's lacks: VLAN, WireGuard,
a driver with byte queue limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.agent.pair import SERVER as PAIR_SERVER
from bench.agent.pair import Pair
from uplink import CUBIC, NOTEBOOK, SERVER, SERVER6, Uplink, scenario

from unbloat.lab.testbed import Testbed

KB, MB = 1_000, 1_000_000
# Pairs on a path whose runs differ little, on one with random numbers, and where connections compete or the host's speed counts.
PAIRS, PAIRS_SEEDED, PAIRS_NOISY, PAIRS_HOST = 5, 12, 20, 50


@dataclass(frozen=True)
class File:
    """What a client transfers."""

    way: str
    size: int
    connections: int = 1
    idle_s: float = 0.0

    @property
    def label(self) -> str:
        size = f"{self.size // MB} MB" if self.size >= MB else f"{self.size // KB} KB"
        many = f"{self.connections} x " if self.connections > 1 else ""
        resumed = f", resumed after {self.idle_s:g} s" if self.idle_s else ""
        return f"{many}{size} {self.way}{resumed}"


@dataclass(frozen=True)
class PathCase:
    """A path, who sends on it, and where the agent is."""

    label: str
    testbed: Callable[[Path, int], Testbed]
    """In a folder, with random numbers of a seed."""
    files: tuple[File, ...]
    agent_on: str = "phone"
    client: str = "phone"
    server: str = SERVER
    pairs: int = PAIRS
    upgrade_s: float = 0.0
    """Seconds after the beginning of each file at which another agent takes over (`serve --take-over`); 0: none does."""
    seeded: bool = False
    """A testbed of its own for each file and run. Both runs of a pair then lose or delay the same packets, so the pair's
    difference is the agent's. Runs with other random numbers differ by a factor of two."""


@dataclass(frozen=True)
class GuestCase:
    """A path in a guest; `link`: one of `guest_paths.py`."""

    label: str
    link: str
    files: tuple[File, ...]
    pairs: int = PAIRS_NOISY


def uplink(
    up: str, down: str, buffer: str, delay: str = "30 ms", layers: str = "", **more: bool
) -> Callable[[Path, int], Testbed]:
    """The emulated link; `delay`: of each direction."""
    text = scenario(f'rate = "{up}"\n{layers}', f'rate = "{down}"\n{layers}', buffer=buffer)
    text = text.replace('delay = "30 ms"', f'delay = "{delay}"')
    options = ("--offload", "on") if more.get("offload") else ()
    six = more.get("six", False)
    return lambda folder, seed: Uplink(folder, text, "--seed", str(seed), *options, six=six)


class Bridged(Uplink):
    """The notebook's address is that of a bridge, whose port is its Ethernet."""

    def build(self) -> None:
        super().build()
        self.ip("notebook", "link add br0 type bridge")
        self.ip("notebook", "address flush dev lan")
        self.ip("notebook", "link set lan master br0")
        self.address("notebook", "br0", f"{NOTEBOOK}/24")
        self.ip("notebook", f"route add default via 10.0.1.1 {CUBIC}")


def files(*sizes: int, ways: tuple[str, ...] = ("up", "down")) -> tuple[File, ...]:
    """Each size in each direction."""
    return tuple(File(way, size) for way in ways for size in sizes)


TWENTY = uplink("20 Mbit/s", "20 Mbit/s", "300 KB")
CASES: tuple[PathCase | GuestCase, ...] = (
    PathCase("TUN, 20 Mbit/s, 60 ms", TWENTY, files(10 * KB, 300 * KB, 3 * MB)),
    PathCase(
        "TUN, 20 Mbit/s, ten connections",
        TWENTY,
        (File("up", 300 * KB, 10), File("down", 300 * KB, 10)),
        pairs=PAIRS_NOISY,
    ),
    PathCase(
        "TUN, 20 Mbit/s, resumed",
        TWENTY,
        (File("up", 1 * MB, 1, 5.0), File("down", 1 * MB, 1, 5.0)),
    ),
    PathCase(
        "TUN, 20 Mbit/s, an upload after a download",
        TWENTY,
        (File("down", 3 * MB), File("up", 3 * MB)),
    ),
    PathCase(
        "TUN, 20 Mbit/s, an upgrade (--take-over) in each file",
        TWENTY,
        # Long enough for another agent to start.
        (File("up", 20 * MB), File("down", 20 * MB)),
        upgrade_s=0.6,
    ),
    PathCase(
        "TUN, 20 Mbit/s, segmentation offload",
        uplink("20 Mbit/s", "20 Mbit/s", "300 KB", offload=True),
        files(300 * KB, 3 * MB),
    ),
    PathCase(
        "TUN, 20 Mbit/s, IPv6",
        uplink("20 Mbit/s", "20 Mbit/s", "300 KB", six=True),
        files(300 * KB, 3 * MB),
        server=SERVER6,
    ),
    PathCase(
        "veth (noqueue), 20 Mbit/s behind it",
        TWENTY,
        files(300 * KB, 3 * MB),
        "notebook",
        "notebook",
    ),
    PathCase(
        "bridge (noqueue), 20 Mbit/s behind it",
        lambda folder, seed: Bridged(
            folder, scenario('rate = "20 Mbit/s"', 'rate = "20 Mbit/s"', buffer="300 KB")
        ),
        files(300 * KB, 3 * MB),
        "notebook",
        "notebook",
    ),
    PathCase(
        "forwarding for a client, 20 Mbit/s", TWENTY, files(300 * KB, 3 * MB), "phone", "notebook"
    ),
    PathCase(
        "TUN, 200 Mbit/s, 10 ms",
        uplink("200 Mbit/s", "200 Mbit/s", "500 KB", "5 ms"),
        files(1 * MB, 30 * MB),
        pairs=PAIRS_NOISY,
    ),
    PathCase(
        "TUN, 1 Mbit/s, 300 ms",
        uplink("1 Mbit/s", "1 Mbit/s", "150 KB", "150 ms"),
        files(10 * KB, 300 * KB),
    ),
    PathCase(
        "TUN, 20 Mbit/s, 0.5 % loss",
        uplink("20 Mbit/s", "20 Mbit/s", "300 KB", layers="loss = 0.005"),
        files(300 * KB, 3 * MB),
        pairs=PAIRS_SEEDED,
        seeded=True,
    ),
    PathCase(
        "TUN, 20 Mbit/s, 0 to 20 ms of jitter",
        uplink(
            "20 Mbit/s",
            "20 Mbit/s",
            "300 KB",
            layers='jitter = { mean = "10 ms", spread = "10 ms" }',
        ),
        files(300 * KB, 3 * MB),
        pairs=PAIRS_SEEDED,
        seeded=True,
    ),
    PathCase(
        "veth, as fast as the host",
        lambda folder, seed: Pair(folder),
        files(30 * MB, 300 * MB),
        "host",
        "host",
        PAIR_SERVER,
        pairs=PAIRS_HOST,
    ),
    GuestCase("VLAN, 5 Mbit/s behind it", "vlan", files(100 * KB, 1 * MB)),
    GuestCase("WireGuard, 5 Mbit/s behind it", "wireguard", files(100 * KB, 1 * MB)),
    GuestCase("driver with byte queue limits, 5 Mbit/s behind it", "bql", files(100 * KB, 1 * MB)),
)
