"""A path of one link through the emulator, and every packet that is lost on it: by its log, by counters, by name.

A path has a sender's side and a receiver's side. The benchmark has other paths of this shape (bench/emu/paths.py).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbloat.lab.testbed import NO_IPV6, Testbed

# A link of the emulator that shall not shape.
FREE = "1000 Gbit/s"

SYSCTLS = NO_IPV6 | {
    # A window of 2 Gbit/s × 40 ms has to fit.
    "net.ipv4.tcp_wmem": "4096 65536 134217728",
    "net.ipv4.tcp_rmem": "4096 131072 134217728",
    "net.ipv4.ip_forward": "1",
    # All users of a cell may live in one namespace: answers leave by another device than questions came.
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
}
# Counters of the kernel that mean lost packets.
LOSSES = (
    *(f"Ip{name}" for name in ("InDiscards", "OutDiscards", "InHdrErrors", "OutNoRoutes")),
    *(f"Udp{name}" for name in ("InErrors", "RcvbufErrors", "SndbufErrors", "InCsumErrors")),
    *(f"TcpExt{name}" for name in ("TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop")),
)


@dataclass(frozen=True)
class Setting:
    """What the path from the sender to the receiver does; the way back has the same delay and no limit."""

    delay_ms: float = 0.0
    rate_bps: int = 0  # 0: unlimited
    trace: Path | None = None
    buffer_bytes: int = 50_000_000
    offload: bool = False


@dataclass
class LinkPath:
    """A path on which packets can be sent now; its counters of lost packets are set at the end of its block."""

    name: str
    to_sender: Callable[[Sequence[str]], list[str]]
    to_receiver: Callable[[Sequence[str]], list[str]]
    address: str  # of the receiver, as the sender knows it
    pid: int  # of its process; 0: there is none that lasts
    origin_ns: int = 0  # CLOCK_MONOTONIC at which its time begins; 0: unknown
    named: Counter[str] = field(
        default_factory=Counter
    )  # packets that its own log says were lost, by reason
    summary: dict[str, Any] = field(default_factory=dict)  # its own summary
    kernel: Counter[str] = field(default_factory=Counter)  # what the kernel's counters say was lost
    delivered: dict[str, int] = field(
        default_factory=dict
    )  # packets handed over, by link, as it counts them
    queued: int = 0  # packets that still waited at the end

    def unnamed(self, sent: int, received: int, by_socket: int) -> int:
        """UDP packets lost that neither its log nor a counter of the kernel names."""
        log = sum(n for why, n in self.named.items() if " " not in why or why.startswith("udp "))
        return sent - received - by_socket - log - self.queued - sum(self.kernel.values())


@dataclass(frozen=True)
class Tools:
    """The programs."""

    floor: Path
    udp: Path
    emulator: Path | None  # None: it is not measured


def path_testbed(folder: Path, *nodes: str) -> Testbed:
    """Namespaces of a path."""
    return Testbed(folder, *nodes, sysctls=SYSCTLS)


def command_in(made: Testbed, node: str) -> Callable[[Sequence[str]], list[str]]:
    """How a command is run in a node."""
    return lambda command: made.argv(node, *command)


def softnet_losses() -> int:
    """Packets that the kernel's input queues of all processors refused: second column of /proc/net/softnet_stat."""
    rows = Path("/proc/net/softnet_stat").read_text().split("\n")
    return sum(int(row.split()[1], 16) for row in rows if row)


def kernel_losses(made: Testbed) -> Counter[str]:
    """All that the kernel lost in these namespaces since they exist, by name; empty where it lost nothing."""
    found: Counter[str] = Counter()
    for node in made.nodes:
        counters = made.counters(node)
        found += made.device_losses(node)
        found += Counter({name: counters[name] for name in LOSSES if name in counters})
    return +found


def scenario(setting: Setting) -> str:
    """A setting as a scenario: client → server is measured."""
    medium = f'rate = "{setting.rate_bps} bit/s"' if setting.rate_bps else f'rate = "{FREE}"'
    if setting.trace:
        medium = 'trace = "measured"'
    queue = f'{{ kind = "droptail", limit = "{setting.buffer_bytes} B" }}'
    return f"""
name = "bench"
duration = "600 s"
[link.up]
{medium}
delay = "{setting.delay_ms} ms"
queue = {queue}
[link.down]
rate = "{FREE}"
delay = "{setting.delay_ms} ms"
queue = {{ kind = "droptail", limit = "50 MB" }}
[[flow]]
from = "client"
[lab]
offload = "{"on" if setting.offload else "off"}"
"""


def address(node: int) -> str:
    """The address of a node by its number."""
    return f"10.0.{(node + 1) >> 8}.{(node + 1) & 255}"


def losses(folder: Path) -> Counter[str]:
    """What the log names, by protocol and reason."""
    found: Counter[str] = Counter()
    with (folder / "losses.jsonl").open() as file:
        for line in file:
            row = json.loads(line)
            found[f"{row['proto']} {row['why']}"] += 1
    return found


@contextlib.contextmanager
def emulated(
    made: Testbed,
    text: str,
    places: Mapping[str, str],
    name: str = "unbloat-emu",
    options: Sequence[str] = (),
) -> Iterator[LinkPath]:
    """`unbloat-emu` on a scenario in a testbed; `places`: node of the scenario → node of the testbed. The path goes from
    the first to the last."""
    before, nodes = softnet_losses(), list(places.values())
    for device in made.emulate(text, *options, nodes=places):
        own, other = address(device.node), address(device.peer)
        made.ip(
            nodes[device.node],
            f"addr add {own}/32 dev {device.name}",
            f"route append {other}/32 dev {device.name} src {own}",
        )
    origin_ns = made.go()
    assert made.emulator is not None
    pid = made.emulator.child.process.pid
    ends = (command_in(made, nodes[0]), command_in(made, nodes[-1]))
    path = LinkPath(name, *ends, address(len(places) - 1), pid, origin_ns)
    yield path
    # Before the devices go away with the emulator.
    path.kernel = kernel_losses(made)
    path.kernel["softnet"] += softnet_losses() - before
    made.summary()
    path.summary = json.loads((made.out / "emu.json").read_text())
    path.named = losses(made.out)
    path.delivered = {link["link"]: link["arrived"] for link in path.summary["links"]}
    path.queued = sum(link["held"] for link in path.summary["links"])
    for what in ("early", "oversize"):
        path.named[what] = sum(link[what] for link in path.summary["links"])


@contextlib.contextmanager
def emulator(folder: Path, setting: Setting) -> Iterator[LinkPath]:
    """`unbloat-emu` between two namespaces."""
    options = ["--trace", f"measured={setting.trace}"] if setting.trace else []
    places = {"client": "a", "server": "b"}
    with (
        path_testbed(folder, "a", "b") as made,
        emulated(made, scenario(setting), places, options=options) as path,
    ):
        yield path


class Lines:
    """Lines that a process prints, read as they come, so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._thread.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, word: str, seconds: float = 20.0) -> str:
        """The first line that contains the word."""

        def found() -> bool:
            return self._ended or any(word in line for line in self.lines)

        with self._news:
            self._news.wait_for(found, timeout=seconds)
            for line in self.lines:
                if word in line:
                    return line
        raise RuntimeError(f"no {word!r} within {seconds:.0f} s: {''.join(self.lines)[-400:]}")
