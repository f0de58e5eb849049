"""The traffic: `udp` and iperf3, through a road; plain figures come back."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.emu import bed
from bench.emu.roads import Road, Tools

PORT, IPERF_PORT = 7000, 5201


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
    cpu: float  # share of a core that the road's process used while packets were sent


@dataclass(frozen=True)
class Transfer:
    """A TCP transfer."""

    goodput_bps: float
    retransmits: int
    cpu: float


def receiver(
    road: Road, tools: Tools, idle: float, longest: float
) -> tuple[subprocess.Popen[str], bed.Told]:
    """A receiver that listens."""
    own = [str(tools.udp), "receive", str(PORT), str(idle), str(longest), str(road.origin_ns)]
    process = subprocess.Popen(road.to_receiver(own), stdout=subprocess.PIPE, text=True)
    told = bed.Told(process)
    told.wait_for("ready")
    return process, told


def send_udp(
    road: Road,
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
    process, told = receiver(road, tools, idle, seconds + drain)
    try:
        addresses = ",".join(to) if to else road.address
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
        begin, cpu = time.monotonic(), bed.cpu_seconds(road.pid)
        sent = json.loads(bed.run(*road.to_sender(own)).splitlines()[-1])
        cpu = (bed.cpu_seconds(road.pid) - cpu) / (time.monotonic() - begin)
        got = json.loads(told.wait_for('"received"', seconds + drain + 20))
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


def listening(road: Road, seconds: float = 5.0) -> None:
    """Waits until the iperf3 server takes connections."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if f":{IPERF_PORT} " in bed.run(*road.to_receiver(["ss", "-Hltn"])):
            return
        time.sleep(0.05)
    raise RuntimeError("iperf3 -s does not listen")


def transfer(road: Road, congestion: str, seconds: float) -> Transfer:
    """One TCP connection with iperf3; what arrived counts."""
    server = subprocess.Popen(
        road.to_receiver(["iperf3", "-s", "-1", "-p", str(IPERF_PORT)]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        listening(road)
        words = [
            "iperf3",
            "-c",
            road.address,
            "-p",
            str(IPERF_PORT),
            "-C",
            congestion,
            "-t",
            str(seconds),
            "-J",
        ]
        begin, cpu = time.monotonic(), bed.cpu_seconds(road.pid)
        end = json.loads(bed.run(*road.to_sender(words)))["end"]
        cpu = (bed.cpu_seconds(road.pid) - cpu) / (time.monotonic() - begin)
    finally:
        server.terminate()
        server.wait()
    if end.get("sender_tcp_congestion") != congestion:
        raise RuntimeError(f"{congestion} was asked for, {end.get('sender_tcp_congestion')} ran")
    return Transfer(end["sum_received"]["bits_per_second"], end["sum_sent"]["retransmits"], cpu)
