"""A TCP transfer with iperf3 through a path; plain figures come back."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass

from emulated_path import LinkPath

from unbloat.lab.instruments import cpu_seconds
from unbloat.lab.testbed import run

IPERF_PORT = 5201


@dataclass(frozen=True)
class Transfer:
    """A TCP transfer."""

    goodput_bps: float
    retransmits: int
    cpu: float


def listening(path: LinkPath, seconds: float = 5.0) -> None:
    """Waits until the iperf3 server takes connections."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if f":{IPERF_PORT} " in run(*path.to_receiver(["ss", "-Hltn"])):
            return
        time.sleep(0.05)
    raise RuntimeError("iperf3 -s does not listen")


def transfer(path: LinkPath, congestion: str, seconds: float) -> Transfer:
    """One TCP connection with iperf3; what arrived counts."""
    server = subprocess.Popen(
        path.to_receiver(["iperf3", "-s", "-1", "-p", str(IPERF_PORT)]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        listening(path)
        words = [
            "iperf3",
            "-c",
            path.address,
            "-p",
            str(IPERF_PORT),
            "-C",
            congestion,
            "-t",
            str(seconds),
            "-J",
        ]
        begin, cpu = time.monotonic(), cpu_seconds(path.pid)
        end = json.loads(run(*path.to_sender(words), timeout_s=seconds + 60))["end"]
        cpu = (cpu_seconds(path.pid) - cpu) / (time.monotonic() - begin)
    finally:
        server.terminate()
        server.wait()
    if end.get("sender_tcp_congestion") != congestion:
        raise RuntimeError(f"{congestion} was asked for, {end.get('sender_tcp_congestion')} ran")
    return Transfer(end["sum_received"]["bits_per_second"], end["sum_sent"]["retransmits"], cpu)
