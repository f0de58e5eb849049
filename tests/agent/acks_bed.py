"""Windows on passing ACKs between a phone's uplink and the server: the program, and what captures tell of its work."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uplink_bed import PATIENCE_S, Bed, Ping, ip

ROOT = Path(__file__).resolve().parents[2]
ADDRESSES_6 = {"phone": "fd00::1", "server": "fd00::2"}


def program(name: str = "acks") -> str | None:
    """An example program of the agent: named by the environment (`UNBLOAT_ACKS`), or built here."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [str(target / kind / "examples" / name) for kind in ("release", "debug")]
    named = [os.environ.get(f"UNBLOAT_{name.upper()}", ""), *built]
    return next((path for path in named if path and shutil.which(path)), None)


class Acks:
    """The program on a device; what it says twice a second goes to a file, so that nobody has to read it."""

    def __init__(self, bed: Bed, *options: str, node: str = "phone", device: str = "") -> None:
        self.said = bed.folder / f"acks-{time.monotonic_ns()}.jsonl"
        self.journal = bed.folder / "journal.jsonl"
        argv = [program() or "", device or bed.device, f"journal={self.journal}", *options]
        line = f"exec {shlex.join(argv)} > {self.said}"
        self.process = bed.start(node, "sh", "-c", line, stdin=subprocess.PIPE)
        deadline = time.monotonic() + PATIENCE_S
        while not self.lines():
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            assert time.monotonic() < deadline, "it says nothing"
            time.sleep(0.05)

    def lines(self) -> list[dict[str, Any]]:
        """All it said, as far as it is complete."""
        whole = self.said.read_text().rpartition("\n")[0] if self.said.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def last(self) -> dict[str, Any]:
        """Its last word on flows."""
        return [line for line in self.lines() if "flows" in line][-1]

    def trials(self) -> list[str]:
        """What was tried."""
        return [line["trial"] for line in self.lines() if "trial" in line]

    def off(self) -> dict[str, Any]:
        """Ends it as it should end."""
        _, errors = self.process.communicate("", timeout=PATIENCE_S)
        assert self.process.returncode == 0, errors
        return self.last()


def six(bed: Bed) -> None:
    """IPv6 on the phone's link."""
    for node, other in (("phone", "server"), ("server", "phone")):
        space = bed.spaces[node]
        links = json.loads(bed_ask(bed, node, "ip", "-j", "link", "show"))
        device = next(link["ifname"] for link in links if link["ifname"] not in ("lo", "lan"))
        bed.sysctl(space, f"ipv6/conf/{device}/disable_ipv6", "0")
        ip("-n", space, "address", "add", f"{ADDRESSES_6[node]}/128", "dev", device, "nodad")
        ip("-n", space, "route", "add", f"{ADDRESSES_6[other]}/128", "dev", device)


def bed_ask(bed: Bed, node: str, *argv: str) -> str:
    """What a program says there."""
    said, errors = bed.start(node, *argv).communicate(timeout=PATIENCE_S)
    assert not errors, errors
    return said


@contextlib.contextmanager
def capture(bed: Bed, node: str, device: str, name: str) -> Iterator[Path]:
    """Headers of all TCP segments that pass a device there."""
    path = bed.folder / f"{name}.pcap"
    dump = bed.start(
        node, "tcpdump", "-i", device, "-s", "128", "-U", "--immediate-mode", "-w", str(path), "tcp"
    )
    time.sleep(1.0)
    yield path
    time.sleep(0.5)
    dump.terminate()
    dump.wait(PATIENCE_S)


@dataclass
class Told:
    """A segment that tells a window."""

    stream: str
    number: int
    seq: int
    ack: int
    window: int
    bad: bool


def told(path: Path, source: str) -> list[Told]:
    """Pure ACKs from an address, in order; checksums by tshark."""
    fields = (
        "tcp.stream",
        "ip.id",
        "tcp.seq_raw",
        "tcp.ack_raw",
        "tcp.window_size",
        "tcp.checksum.status",
    )
    argv = [
        "tshark",
        "-r",
        str(path),
        "-o",
        "tcp.check_checksum:TRUE",
        "-T",
        "fields",
        "-E",
        "separator=,",
    ]
    argv += [word for field in fields for word in ("-e", field)]
    wanted = f"tcp.len == 0 && tcp.flags.ack == 1 && tcp.flags.syn == 0 && tcp.flags.reset == 0 && ip.src == {source}"
    run = subprocess.run([*argv, "-Y", wanted], capture_output=True, text=True, check=True)
    found = []
    for line in run.stdout.splitlines():
        stream, number, seq, ack, window, status = line.split(",")
        found.append(
            Told(stream, int(number, 16), int(seq), int(ack), int(window), status in ("0", "Bad"))
        )
    return found


def retractions(all_told: list[Told]) -> int:
    """How often a right edge went back."""
    edges: dict[str, int] = {}
    count = 0
    for one in all_told:
        edge = one.ack + one.window
        count += edge < edges.get(one.stream, edge)
        edges[one.stream] = max(edge, edges.get(one.stream, edge))
    return count


def changed(before: list[Told], after: list[Told]) -> tuple[int, int]:
    """Windows that became smaller, and larger, between two places of the same path."""
    original = {(one.number, one.seq, one.ack): one.window for one in before}
    pairs = [
        (original[key], one.window)
        for one in after
        if (key := (one.number, one.seq, one.ack)) in original
    ]
    assert len(pairs) > 0.9 * len(after), "the same segments in both"
    return sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)


def between(ping: Ping, begin_s: float, end_s: float, share: float) -> float:
    """A percentile of the answers between two times after the first, ms."""
    first = ping.rtts[0][0]
    some = sorted(ms for at, ms in ping.rtts if begin_s <= at - first < end_s)
    return some[min(int(share * len(some)), len(some) - 1)]
