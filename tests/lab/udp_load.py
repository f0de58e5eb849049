"""UDP at a rate through a path, and what of it arrived; recorded traces, and what they would let pass."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulated_path import Lines, LinkPath, Setting, Tools

from unbloat.lab.instruments import cpu_seconds
from unbloat.lab.testbed import run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PORT = 7000
FULL = 1500  # bytes of an IP packet
# Of the sender: minutes at the slowest rates.
TIMEOUT_S = 600.0


def compiled(source: Path, into: Path) -> Path:
    """A C program of one file."""
    program = into / source.stem
    argv = ["gcc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(source)]
    subprocess.run(argv, check=True)
    return program


@dataclass(frozen=True)
class Stream:
    """A UDP stream: what was sent and what arrived."""

    sent: int
    received: int
    rate_bps: float  # IP bytes after the first packet over the time from the first to the last
    delay_ms: dict[str, float]
    histogram_us: list[tuple[int, int]]
    per_flow: list[int]
    per_ms: list[int]
    socket_drops: int
    overtaken: int
    late_ms: float  # how long the sender itself was absent
    cpu: float  # share of a core that the path's process used while packets were sent


def receiver(
    path: LinkPath, tools: Tools, idle: float, longest: float
) -> tuple[subprocess.Popen[str], Lines]:
    """A receiver that listens."""
    own = [str(tools.udp), "receive", str(PORT), str(idle), str(longest), str(path.origin_ns)]
    process = subprocess.Popen(path.to_receiver(own), stdout=subprocess.PIPE, text=True)
    lines = Lines(process)
    lines.wait_for("ready")
    return process, lines


def send_udp(
    path: LinkPath,
    tools: Tools,
    packets_per_s: float,
    ip_bytes: int,
    seconds: float,
    burst: int = 0,
    to: Sequence[str] = (),
    idle: float = 1.0,
    drain: float = 5.0,
) -> Stream:
    """Sends at a rate for a time, `burst` packets at once before that. It ends after a pause of `idle`, or `drain` after the sender."""
    process, lines = receiver(path, tools, idle, seconds + drain)
    try:
        addresses = ",".join(to) if to else path.address
        own = [
            str(tools.udp),
            "send",
            addresses,
            str(PORT),
            str(packets_per_s),
            str(ip_bytes),
            str(seconds),
            str(burst),
        ]
        begin, cpu = time.monotonic(), cpu_seconds(path.pid)
        sent = json.loads(run(*path.to_sender(own), timeout_s=TIMEOUT_S).splitlines()[-1])
        cpu = (cpu_seconds(path.pid) - cpu) / (time.monotonic() - begin)
        got = json.loads(lines.wait_for('"received"', seconds + drain + 20))
    finally:
        process.terminate()
        process.wait()
    return stream(sent, got, cpu)


def stream(sent: dict[str, Any], got: dict[str, Any], cpu: float) -> Stream:
    """Both halves put together."""
    took = (got["last_ns"] - got["first_ns"]) / 1e9
    return Stream(
        sent=sent["sent"],
        received=got["received"],
        rate_bps=(got["bytes"] - got["first_bytes"]) * 8 / took if took > 0 else 0.0,
        delay_ms=got["delay_ms"],
        histogram_us=[(us, count) for us, count in got["histogram_us"]],
        per_flow=got["per_flow"],
        per_ms=got["per_ms"],
        socket_drops=got["socket_drops"],
        overtaken=got["overtaken"],
        late_ms=sent["late_ms"],
        cpu=cpu,
    )


def rate_setting(rate_bps: int, ip_bytes: int) -> Setting:
    """A link with a buffer of half a second, so that it stays busy while a sender is kept waiting."""
    return Setting(0, rate_bps, None, max(200 * ip_bytes, rate_bps // 16))


def saturated(rate_bps: int, ip_bytes: int, packets: int, path: LinkPath, tools: Tools) -> Stream:
    """A sender well above the rate until the link has sent so many packets: twice the rate where a sender can."""
    per_s = rate_bps / 8 / ip_bytes
    offered = max(per_s * 1.15, min(per_s * 2, 60_000))
    return send_udp(path, tools, offered, ip_bytes, packets / per_s, burst=50)


def opportunities(trace: Path) -> list[int]:
    """The times of a mahimahi trace in ms."""
    return [int(line) for line in trace.read_text().split()]


def ideal(trace: Path, until_ms: int) -> list[int]:
    """Bytes that a trace offers in each millisecond, looped: its last value is its period."""
    times, offered = opportunities(trace), [0] * until_ms
    period = times[-1]
    for turn in range(until_ms // period + 1):
        for t in times:
            if turn * period + t < until_ms:
                offered[turn * period + t] += FULL
    return offered


def traces(scratch: Path) -> list[Path]:
    """The 13 recorded traces of mahimahi, unpacked; none where they are not there."""
    shared = Path(os.environ.get("UNBLOAT_SHARED", ROOT.parent / "shared")) / "traces" / "mahimahi"
    found = []
    for path in sorted(shared.glob("*.gz")):
        plain = scratch / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        found.append(plain)
    return found
