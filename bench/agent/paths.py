"""The paths of `never_worse.py`: what is transferred on each, and where the agent is.

Each is in a guest (`guests.py`): the link of `unbloat-emu` between TUN devices (`guest/emulated.py`), or a link of the guest's kernel
(`guest/guest_links.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uplink import SERVER, SERVER6, scenario

KB, MB = 1_000, 1_000_000
# The guest's clock counts instructions, so runs differ by their start phase and by the packets before alone. More pairs where that
# matters: random numbers, connections that compete, a rate near what the guest's processor can carry.
PAIRS, PAIRS_SEEDED, PAIRS_NOISY = 5, 12, 20
# Of the emulator; longer than any run.
DURATION_S = 36_000


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
    files: tuple[File, ...]
    link: str = "emulated"
    """Or one of `guest/guest_links.py`."""
    scenario: str = ""
    """Of the emulated link."""
    options: tuple[str, ...] = ()
    """Of the emulator."""
    six: bool = False
    bridge: bool = False
    """The notebook's address is that of a bridge, whose port is its Ethernet."""
    agent_on: str = "phone"
    client: str = "phone"
    server: str = SERVER
    pairs: int = PAIRS
    upgrade_s: float = 0.0
    """Seconds after the beginning of each file at which another agent takes over (`serve --take-over`); 0: none does."""
    apart: bool = False
    """A run of its own for each file. Both runs of a pair then lose or delay the same packets, so the pair's difference is the
    agent's. Runs with other random numbers differ by a factor of two."""


def link(up: str, down: str, buffer: str, delay: str = "30 ms", layers: str = "") -> str:
    """The scenario of an emulated link; `delay`: of each direction."""
    up, down = (f'rate = "{rate}"\n{layers}' for rate in (up, down))
    text = scenario(up, down, buffer=buffer, duration=DURATION_S)
    return text.replace('delay = "30 ms"', f'delay = "{delay}"')


def files(*sizes: int, ways: tuple[str, ...] = ("up", "down")) -> tuple[File, ...]:
    """Each size in each direction."""
    return tuple(File(way, size) for way in ways for size in sizes)


TWENTY = link("20 Mbit/s", "20 Mbit/s", "300 KB")
SHORT_AND_LONG = files(300 * KB, 3 * MB)
# Of the guest's own links.
BEHIND: dict[str, Any] = {"agent_on": "c", "client": "c", "server": "10.0.2.2"}
CASES: tuple[PathCase, ...] = (
    PathCase("TUN, 20 Mbit/s, 60 ms", files(10 * KB, 300 * KB, 3 * MB), scenario=TWENTY),
    PathCase(
        "TUN, 20 Mbit/s, ten connections",
        (File("up", 300 * KB, 10), File("down", 300 * KB, 10)),
        scenario=TWENTY,
        pairs=PAIRS_NOISY,
    ),
    PathCase(
        "TUN, 20 Mbit/s, resumed",
        (File("up", 1 * MB, 1, 5.0), File("down", 1 * MB, 1, 5.0)),
        scenario=TWENTY,
    ),
    PathCase(
        "TUN, 20 Mbit/s, an upload after a download",
        (File("down", 3 * MB), File("up", 3 * MB)),
        scenario=TWENTY,
    ),
    PathCase(
        "TUN, 20 Mbit/s, an upgrade (--take-over) in each file",
        # Long enough for another agent to start.
        (File("up", 40 * MB), File("down", 40 * MB)),
        scenario=TWENTY,
        upgrade_s=0.6,
    ),
    PathCase(
        "TUN, 20 Mbit/s, segmentation offload",
        SHORT_AND_LONG,
        scenario=TWENTY,
        options=("--offload", "on"),
    ),
    PathCase("TUN, 20 Mbit/s, IPv6", SHORT_AND_LONG, scenario=TWENTY, six=True, server=SERVER6),
    PathCase(
        "veth (noqueue), 20 Mbit/s behind it",
        SHORT_AND_LONG,
        scenario=TWENTY,
        agent_on="notebook",
        client="notebook",
    ),
    PathCase(
        "bridge (noqueue), 20 Mbit/s behind it",
        SHORT_AND_LONG,
        scenario=TWENTY,
        bridge=True,
        agent_on="notebook",
        client="notebook",
    ),
    PathCase(
        "forwarding for a client, 20 Mbit/s", SHORT_AND_LONG, scenario=TWENTY, client="notebook"
    ),
    PathCase(
        "TUN, 200 Mbit/s, 10 ms",
        files(1 * MB, 10 * MB),
        scenario=link("200 Mbit/s", "200 Mbit/s", "500 KB", "5 ms"),
        pairs=PAIRS_NOISY,
    ),
    PathCase(
        "TUN, 1 Mbit/s, 300 ms",
        files(10 * KB, 300 * KB),
        scenario=link("1 Mbit/s", "1 Mbit/s", "150 KB", "150 ms"),
    ),
    PathCase(
        "TUN, 20 Mbit/s, 0.5 % loss",
        SHORT_AND_LONG,
        scenario=link("20 Mbit/s", "20 Mbit/s", "300 KB", layers="loss = 0.005"),
        pairs=PAIRS_SEEDED,
        apart=True,
    ),
    PathCase(
        "TUN, 20 Mbit/s, 0 to 20 ms of jitter",
        SHORT_AND_LONG,
        scenario=link(
            "20 Mbit/s",
            "20 Mbit/s",
            "300 KB",
            layers='jitter = { mean = "10 ms", spread = "10 ms" }',
        ),
        pairs=PAIRS_SEEDED,
        apart=True,
    ),
    PathCase("veth, as fast as the guest", files(30 * MB, 100 * MB), "veth", **BEHIND),
    PathCase("VLAN, 5 Mbit/s behind it", files(100 * KB, 1 * MB), "vlan", **BEHIND),
    PathCase("WireGuard, 5 Mbit/s behind it", files(100 * KB, 1 * MB), "wireguard", **BEHIND),
    PathCase(
        "driver with byte queue limits, 5 Mbit/s behind it",
        files(100 * KB, 1 * MB),
        "bql",
        **BEHIND,
    ),
)
