"""A client and a server of `unbloat measure` at the ends of an emulated path, and the true queues of that path.

The truth is the emulator's decision log: of each packet when it arrived, started on the link, or was dropped. From it
follows, for any moment, how long a packet that arrives then would wait. No packet of the measurement is needed for that.
"""

from __future__ import annotations

import bisect
import json
import math
import os
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from requirements import unavailable

from unbloat.lab.requirements import found
from unbloat.lab.testbed import TIMEOUT_S, Testbed, quantile

ROOT = Path(__file__).resolve().parents[2]
ADDRESSES = {"client": "10.0.0.1", "server": "10.0.0.2"}
PORT = 26_110
TOKEN = "0123456789abcdef"
# Of a full packet, with TCP's timestamps.
PAYLOAD = 1448 / 1500
PROBE_BYTES = 20 + 8 + 88
# Of each record of a decision log its LEB128 numbers, and the single bytes after them (crates/emu/src/log.rs).
FIELDS = {0: (5, 0), 1: (3, 1), 2: (2, 1), 3: (2, 0), 4: (5, 0), 5: (3, 0), 6: (1, 0), 7: (2, 0)}
# Between two moments at which the true queue is looked at.
GRID_S = 0.005


@dataclass(frozen=True)
class Link:
    """One direction: a drop-tail queue before a fixed rate."""

    mbps: float
    queue_kb: int
    delay_ms: float = 10.0
    loss: float = 0.0
    medium: str = ""
    """Instead of the rate, `trace = "NAME"`; `mbps` is then its mean."""
    queue: str = ""
    """A discipline instead of drop-tail, one that gives sparse flows a queue of their own."""

    def text(self, name: str) -> str:
        """As a section of a scenario."""
        loss = f"loss = {self.loss}\n" if self.loss else ""
        medium = self.medium or f'rate = "{self.mbps} Mbit/s"'
        queue = self.queue or f'{{ kind = "droptail", limit = "{self.queue_kb} KB" }}'
        return f'[link.{name}]\n{medium}\ndelay = "{self.delay_ms} ms"\n{loss}queue = {queue}\n'


@dataclass
class Queue:
    """What a link's queue did: of every packet that it took, when it arrived, started and had left."""

    link: Link
    arrived: list[float] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    flow: list[int] = field(default_factory=list)
    """Of each packet the hash of its flow."""
    started: dict[int, float] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)

    def waits_ms(self, from_s: float, until_s: float) -> list[float]:
        """Of a probe that arrives at each moment of a grid; infinite where it finds no room. Where sparse flows have a queue
        of their own, what the probes themselves waited."""
        if self.link.queue:
            return self.waits_of_probes_ms(from_s, until_s)
        taken = [n for n in range(len(self.arrived)) if n in self.started]
        arrivals = [self.arrived[n] for n in taken]
        starts = [self.started[n] for n in taken]
        sums = [0]
        for n in taken:
            sums.append(sums[-1] + self.size[n])
        waits = []
        for step in range(int((until_s - from_s) / GRID_S)):
            at = from_s + step * GRID_S
            had, gone = bisect.bisect_right(arrivals, at), bisect.bisect_right(starts, at)
            queued = sums[had] - sums[gone]
            if queued + PROBE_BYTES > self.link.queue_kb * 1000:
                waits.append(float("inf"))
            elif had == 0:
                waits.append(0.0)
            else:
                # The link is free when the packet after the last one starts, if that one had to wait.
                free = starts[had - 1] + self.size[taken[had - 1]] * 8 / (self.link.mbps * 1e6)
                if had < len(starts) and (starts[had] > arrivals[had] or free > starts[had]):
                    free = starts[had]
                waits.append(max(0.0, free - at) * 1e3)
        return waits

    def carried_mbps(self, from_s: float, until_s: float, flow_bytes: int = 0) -> float:
        """What the link carried between two moments, of flows with more than so many bytes in that time."""
        flows: Counter[int] = Counter()
        for n, at in self.started.items():
            if from_s <= at < until_s:
                flows[self.flow[n]] += self.size[n]
        carried = sum(size for size in flows.values() if size > flow_bytes)
        return carried * 8e-6 / (until_s - from_s)

    def waits_of_probes_ms(self, from_s: float, until_s: float) -> list[float]:
        """Of packets as long as a probe; infinite where one was lost."""
        return [
            (self.started.get(n, float("inf")) - at) * 1e3
            for n, (at, size) in enumerate(zip(self.arrived, self.size, strict=True))
            if size == PROBE_BYTES and from_s <= at < until_s
        ]


def read_log(path: Path, link: Link) -> Queue:
    """A decision log."""
    log, at, now, queue = path.read_bytes(), 8, 0, Queue(link)

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = log[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(log):
        tag = log[at]
        at += 1
        numbers, single = FIELDS[tag]
        values = [number() for _ in range(numbers)]
        last, at = log[at : at + single], at + single
        now += values[0]
        if tag == 0:
            queue.arrived.append(now / 1e9)
            queue.size.append(values[1])
            queue.flow.append(values[2])
        elif tag == 1:
            queue.started[len(queue.arrived) - values[1]] = now / 1e9
        elif tag == 2:
            why = ("overflow", "aqm", "link")[last[0]]
            queue.lost[len(queue.arrived) - values[1]] = why
    return queue


class Measured(Testbed):
    """A testbed whose namespaces `client` and `server` have both ends of a measurement."""

    def __init__(
        self, folder: Path, *names: str, server: str, sysctls: dict[str, str] | None = None
    ) -> None:
        super().__init__(folder, *names, sysctls=sysctls)
        self.server = server
        """Its address."""
        # Of no server, until one runs.
        self.pin = "0" * 20
        self.program = found("unbloat-measure") or ""

    def serve(self, *words: str, other: str | None = None) -> subprocess.Popen[str]:
        """A server that listens, ours with more words or `other`; its token is TOKEN."""
        file = self.folder / "token"
        file.write_text(f"{TOKEN}\n")
        ours = (self.program, "serve", "--token-file", str(file), *words)
        server = self.start("server", *((other, TOKEN) if other else ours))
        self.pin = printed_pin(server)
        return server

    @property
    def target(self) -> tuple[str, ...]:
        """The words by which a client finds and trusts the server."""
        return (self.server, "--token", TOKEN, "--pin", self.pin)

    def client(self, *words: str) -> subprocess.Popen[str]:
        """A client that runs."""
        return self.start("client", self.program, *self.target, "--json", *words)

    def measure(self, *words: str, timeout_s: float = TIMEOUT_S) -> tuple[int, dict[str, Any]]:
        """Exit code and result of a client."""
        return ended(self.client(*words), timeout_s)


class MeasuredPath(Measured):
    """Client and server with a link each way."""

    def __init__(
        self,
        folder: Path,
        up: Link,
        down: Link,
        more: str = "",
        options: tuple[str, ...] = (),
        duration_s: int = 100,
        ports: str | None = None,
    ) -> None:
        sysctls = {"net.ipv6.conf.default.disable_ipv6": "1"}
        if ports is not None:
            sysctls["net.ipv4.ip_local_port_range"] = ports
        super().__init__(folder, *ADDRESSES, server=ADDRESSES["server"], sysctls=sysctls)
        self.links = {"up": up, "down": down}
        self.more, self.options, self.duration_s = more, options, duration_s
        self.zero_unix_s = 0.0

    def build(self) -> None:
        """Addresses, routes, the emulator's clock."""
        text = f'name = "measured"\nduration = "{self.duration_s} s"\n'
        text += self.links["up"].text("up")
        text += f'{self.links["down"].text("down")}[[flow]]\nfrom = "client"\n{self.more}'
        for device in self.emulate(text, *self.options):
            node, peer = (list(ADDRESSES)[end] for end in (device.node, device.peer))
            own, other = ADDRESSES[node], ADDRESSES[peer]
            self.address(node, device.name, f"{own}/32")
            self.ip(node, f"route add {other}/32 dev {device.name} src {own}")
        zero = self.go()
        self.zero_unix_s = time.time() - (time.monotonic() - zero / 1e9)

    def queues(self) -> dict[str, Queue]:
        """Ends the emulation: what its queues did."""
        self.summary()
        return {
            name: read_log(self.out / f"{name}.decisions", link)
            for name, link in self.links.items()
        }

    def span_s(self, phase: dict[str, Any]) -> tuple[float, float]:
        """Between which moments of the emulator's clock a phase was measured."""
        begin, end = (phase[key] - self.zero_unix_s for key in ("from_unix_s", "until_unix_s"))
        return begin, end

    def waits_ms(self, queue: Queue, phase: dict[str, Any]) -> list[float]:
        """True waits while a phase was measured."""
        return queue.waits_ms(*self.span_s(phase))


def ended(client: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> tuple[int, Any]:
    """Exit code and result of a client, when it ends."""
    out, errors = client.communicate(timeout=timeout_s)
    assert out, errors
    return client.returncode, json.loads(out)


def printed_pin(server: subprocess.Popen[str]) -> str:
    """The pin in the line of a server, which it prints when it listens."""
    assert server.stdout is not None
    words = server.stdout.readline().split()
    assert "--pin" in words, words
    return words[words.index("--pin") + 1]


@cache
def other_clock() -> str:
    """The server of the crate's tests whose clock differs: UNBLOAT_OTHER_CLOCK names it, or cargo builds it."""
    if named := os.environ.get("UNBLOAT_OTHER_CLOCK"):
        return named
    if shutil.which("cargo") is None:
        unavailable("cargo", "the example other_clock of unbloat-measure is not built")
    # As the workspace's tests build it: a package alone has other features of its dependencies, and a build beside tests on the real
    # clock disturbs them.
    argv = ["cargo", "build", "--message-format=json", "--workspace", "--example"]
    done = subprocess.run([*argv, "other_clock"], cwd=ROOT, capture_output=True, text=True)
    for message in map(json.loads, done.stdout.splitlines()):
        if message.get("target", {}).get("name") == "other_clock" and message.get("executable"):
            return str(message["executable"])
    raise AssertionError(done.stderr)


def near(measured: float | str, true_ms: float) -> bool:
    """Within 5 ms or 10 %; a lost probe is near nothing but a lost probe."""
    value = float("inf") if measured == "lost" else float(measured)
    if math.isinf(value) or math.isinf(true_ms):
        return value == true_ms
    return abs(value - true_ms) <= max(5.0, 0.1 * true_ms)


def held_mbit(link: Link) -> float:
    """The most that a lost segment holds back, which is counted at once when it comes again: slow start overshoots by a factor of two
    (RFC 5681 section 3.1), so twice a full buffer and the path's capacity."""
    return 2 * (link.queue_kb * 8e-3 + link.mbps * 2 * link.delay_ms / 1e3)


def most_mbps(link: Link, phase: dict[str, Any]) -> float:
    """The most that a phase's goodput can be: payload of a full link, and what was held back before its time."""
    length_s = float(phase["until_unix_s"] - phase["from_unix_s"])
    return link.mbps * PAYLOAD + held_mbit(link) / length_s


def p95(waits: list[float]) -> float:
    """As the program's quantile."""
    return quantile(waits, 0.95)
