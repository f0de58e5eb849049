"""Captures of a run: tcpdump on the devices of the nodes that are asked for, in nanoseconds.

signal: tcpdump's standard error · model: it is ready when it says `listening`; its counters at the end say what it lost ·
action: CAPTURES/NODE.pcap (NODE.DEVICE.pcap where a node has several devices), warnings about drops.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from unbloat.lab.child import Child
from unbloat.lab.custody import Custody
from unbloat.lab.needs import found
from unbloat.lab.netns import Device
from unbloat.lab.stacks import Plan

# Headers, options and a little more: enough for the analysis, and a tenth of the bytes.
SNAP_BYTES = 120
# The kernel's buffer in KiB: some tenths of a second of small packets at a gigabit per second.
BUFFER_KIB = 32_768
READY_S = 10.0
# How often tcpdump is asked for its counts in the end, and for how long.
ASK_S, WRITTEN_S = 0.1, 2.0

COUNTS = re.compile(r"(\d+) packets? captured, (\d+) packets? received by filter")
LOST = re.compile(r"(\d+) packets? dropped by (kernel|interface)")


class Capture:
    """One tcpdump."""

    def __init__(
        self, custody: Custody, name: str, namespace: str, device: str, folder: Path, snap: int, logs: Path
    ) -> None:
        self.name = name
        self.path = folder / f"{name}.pcap"
        argv = [found("tcpdump") or "tcpdump", "-i", device, "-n", "--time-stamp-precision=nano"]
        argv += ["-s", str(snap), "-B", str(BUFFER_KIB), "-Z", "root", "-w", str(self.path)]
        self.child = Child(custody, f"tcpdump-{name}", argv, logs, namespace)

    def wait_until_listening(self) -> None:
        """It captures from now on."""
        deadline = time.monotonic() + READY_S
        while b"listening on" not in self.child.errors.read_bytes():
            if self.child.has_ended():
                raise self.child.failure(self.child.status())
            if time.monotonic() > deadline:
                raise self.child.failure(f"does not listen after {READY_S:g} s")
            time.sleep(0.01)

    def counts(self) -> tuple[int, int] | None:
        """Packets written and packets seen, as it last said."""
        said = COUNTS.findall(self.child.errors.read_text(errors="replace"))
        return (int(said[-1][0]), int(said[-1][1])) if said else None

    def ask(self) -> None:
        """Has it say its counts."""
        if self.child.has_ended():
            raise self.child.failure(self.child.status())
        self.child.process.send_signal(signal.SIGUSR1)

    def stop(self) -> list[str]:
        """Ends it; warnings about what is missing."""
        if self.child.has_ended():
            raise self.child.failure(self.child.status())
        self.child.end(signal.SIGINT)
        if self.child.process.returncode != 0:
            raise self.child.failure(self.child.status())
        said = self.child.errors.read_text(errors="replace")
        lost = {where: int(count) for count, where in LOST.findall(said) if int(count) > 0}
        return [f"capture {self.name}: {count} packets dropped by {where}" for where, count in lost.items()]


def stop(captures: Sequence[Capture]) -> list[str]:
    """Ends captures when everything that they have seen is written: the kernel hands packets over once a second, and
    tcpdump leaves at once when it is told to. Warnings."""
    seen: dict[str, int] = {}
    deadline = time.monotonic() + WRITTEN_S
    behind = list(captures)
    while behind and time.monotonic() < deadline:
        for capture in behind:
            capture.ask()
        time.sleep(ASK_S)
        for capture in list(behind):
            counts = capture.counts()
            if counts is not None and counts[0] >= seen.setdefault(capture.name, counts[1]):
                behind.remove(capture)
    warnings = [f"capture {capture.name} misses its last packets" for capture in behind]
    return [*warnings, *(warning for capture in captures for warning in capture.stop())]


def captured_nodes(plan: Plan) -> list[int]:
    """The nodes whose packets are captured."""
    if plan["lab"]["capture"] == "none":
        return []
    if plan["lab"]["capture"] == "all":
        return list(range(len(plan["nodes"])))
    return sorted({node for one in [*plan["flows"], *plan["probes"]] for node in (one["from"], one["to"])})


def start(
    custody: Custody, plan: Plan, namespaces: Sequence[str], devices: Sequence[Device], raw: Path, snap: int
) -> list[Capture]:
    """All captures, listening."""
    folder = raw / "captures"
    folder.mkdir()
    made = []
    for node in captured_nodes(plan):
        own = [device for device in devices if device.node == node]
        for device in own:
            name = plan["nodes"][node]["name"]
            if len(own) > 1:
                name += f".{device.name}"
            made.append(Capture(custody, name, namespaces[node], device.name, folder, snap, raw / "logs"))
    for capture in made:
        capture.wait_until_listening()
    return made
