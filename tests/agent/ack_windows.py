"""The example program that rewrites ACK windows on a phone's uplink, and what captures show of its work."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_program import example
from uplink import PHONE6, SERVER6, Uplink

from unbloat.lab.testbed import TIMEOUT_S, run, until


class Acks:
    """The program on a device; the state that it writes twice a second goes to a file, so that no pipe fills."""

    def __init__(
        self,
        testbed: Uplink,
        *options: str,
        node: str = "phone",
        device: str = "",
        without_types: bool = False,
    ) -> None:
        self.states = testbed.folder / f"acks-{time.monotonic_ns()}.jsonl"
        self.journal = testbed.folder / "journal.jsonl"
        argv = [
            example("acks") or "",
            device or testbed.device,
            f"journal={self.journal}",
            *options,
        ]
        if without_types:
            hidden = 'mount -t tmpfs none /sys/kernel/btf; exec "$@"'
            argv = ["unshare", "--mount", "sh", "-c", hidden, "sh", *argv]
        line = f"exec {shlex.join(argv)} > {self.states}"
        self.process = testbed.start(node, "sh", "-c", line, stdin=subprocess.PIPE)
        until(lambda: self.lines() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()

    def lines(self) -> list[dict[str, Any]]:
        """All states so far."""
        whole = self.states.read_text().rpartition("\n")[0] if self.states.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def last(self) -> dict[str, Any]:
        """The last state with flows."""
        return [line for line in self.lines() if "flows" in line][-1]

    def trials(self) -> list[str]:
        """The trials so far."""
        return [line["trial"] for line in self.lines() if "trial" in line]

    def off(self) -> dict[str, Any]:
        """Ends it as it should end."""
        _, errors = self.process.communicate("", timeout=TIMEOUT_S)
        assert self.process.returncode == 0, errors
        return self.last()


def six(testbed: Uplink) -> None:
    """IPv6 on the phone's link."""
    for node, device, own, other in (
        ("phone", testbed.device, PHONE6, SERVER6),
        ("server", testbed.far, SERVER6, PHONE6),
    ):
        testbed.sysctl(node, f"net.ipv6.conf.{device}.disable_ipv6", "0")
        testbed.address(node, device, f"{own}/128")
        testbed.ip(node, f"route add {other}/128 dev {device}")


@contextmanager
def capture(testbed: Uplink, node: str, device: str, name: str) -> Iterator[Path]:
    """Headers of all TCP segments that pass a device there."""
    with testbed.capture(node, device, testbed.folder / f"{name}.pcap", "tcp") as path:
        yield path


@dataclass
class Ack:
    """A pure ACK."""

    stream: str
    number: int
    seq: int
    ack: int
    window: int
    bad: bool


def pure_acks(path: Path, source: str) -> list[Ack]:
    """Pure ACKs from an address, in order; checksums by tshark.

    Linux writes a computed checksum of 0 as 0xffff, in TCP too (`skb_checksum_help`,
    net/core/dev.c). Receivers take both for the same (RFC 1624); tshark calls it bad and names the
    case. It is one segment in 65,536.
    """
    fields = (
        "tcp.stream",
        "ip.id",
        "tcp.seq_raw",
        "tcp.ack_raw",
        "tcp.window_size",
        "tcp.checksum.status",
        "tcp.checksum.ffff",
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
    text = run(*argv, "-Y", wanted)
    found = []
    for line in text.splitlines():
        stream, number, seq, ack, window, status, only_ffff = line.split(",", 6)
        bad = status in ("0", "Bad") and not only_ffff
        found.append(Ack(stream, int(number, 16), int(seq), int(ack), int(window), bad))
    return found


def payloads(path: Path, source: str) -> list[int]:
    """Bytes in each segment of the largest connection from an address."""
    wanted = f"tcp.len > 0 && ip.src == {source}"
    argv = ("tshark", "-r", str(path), "-Y", wanted, "-T", "fields", "-e", "tcp.stream", "-e")
    of: dict[str, list[int]] = {}
    for line in run(*argv, "tcp.len").splitlines():
        stream, size = line.split()
        of.setdefault(stream, []).append(int(size))
    return max(of.values(), key=len)


def retractions(acks: list[Ack]) -> int:
    """How often a right edge went back."""
    edges: dict[str, int] = {}
    count = 0
    for one in acks:
        edge = one.ack + one.window
        count += edge < edges.get(one.stream, edge)
        edges[one.stream] = max(edge, edges.get(one.stream, edge))
    return count


def changed(before: list[Ack], after: list[Ack]) -> tuple[int, int]:
    """Windows that became smaller, and larger, between two places of the same path."""
    original = {(one.number, one.seq, one.ack): one.window for one in before}
    pairs = [
        (original[key], one.window)
        for one in after
        if (key := (one.number, one.seq, one.ack)) in original
    ]
    assert len(pairs) > 0.9 * len(after), "the same segments in both"
    return sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
