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

from unbloat.lab.cleanup.session import Session
from unbloat.lab.process import Child
from unbloat.lab.requirements import found
from unbloat.lab.setup.namespaces import Device
from unbloat.lab.setup.tcp_settings import Plan

# The kernel's buffers in KiB, of one capture and of all: some tenths of a second of small packets at a gigabit per second;
# the memory is locked, so that many captures have to share.
BUFFER_KIB, BUFFERS_KIB, MIN_BUFFER_KIB = 32_768, 262_144, 2_048
READY_S = 10.0
# How often tcpdump is asked for its counts in the end, and for how long.
ASK_S, WRITTEN_S = 0.1, 2.0

COUNTED = re.compile(r"(tcpdump: )?(\d+ packets? |listening on )")
COUNTS = re.compile(r"(\d+) packets? captured, (\d+) packets? received by filter")
LOST = re.compile(r"(\d+) packets? dropped by (kernel|interface)")


class Capture:
    """One tcpdump."""

    def __init__(
        self,
        session: Session,
        name: str,
        namespace: str,
        device: str,
        raw: Path,
        snap: int,
        buffer_kib: int,
    ) -> None:
        self.name = name
        path = raw / "captures" / f"{name}.pcap"
        argv = [found("tcpdump") or "tcpdump", "-i", device, "-n", "--time-stamp-precision=nano"]
        argv += ["-s", str(snap), "-B", str(buffer_kib), "-Z", "root", "-w", str(path)]
        self.child = Child(session, f"tcpdump-{name}", argv, raw / "logs", namespace)
        self.child.endless, self.child.noise = True, COUNTED

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
        return [
            f"capture {self.name}: {count} packets dropped by {where}"
            for where, count in lost.items()
        ]


def stop_captures(captures: Sequence[Capture]) -> list[str]:
    """Ends captures when everything that they have seen is written: the kernel hands packets over once a second, and
    tcpdump ends at once on a signal. Warnings."""
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
    return sorted(
        {node for one in [*plan["flows"], *plan["probes"]] for node in (one["from"], one["to"])}
    )


def start_captures(
    session: Session,
    plan: Plan,
    namespaces: Sequence[str],
    devices: Sequence[Device],
    raw: Path,
    snap: int,
) -> list[Capture]:
    """All captures, listening."""
    (raw / "captures").mkdir()
    wanted = []
    for node in captured_nodes(plan):
        own = [device for device in devices if device.node == node]
        for device in own:
            name = plan["nodes"][node]["name"]
            wanted.append(
                (f"{name}.{device.name}" if len(own) > 1 else name, namespaces[node], device.name)
            )
    share = min(BUFFER_KIB, max(MIN_BUFFER_KIB, BUFFERS_KIB // max(len(wanted), 1)))
    made = [
        Capture(session, name, where, device, raw, snap, share) for name, where, device in wanted
    ]
    for capture in made:
        capture.wait_until_listening()
    return made
