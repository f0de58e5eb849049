"""What `unbloat measure` costs at 1 Gbit/s, and by how much its own load disturbs its delays, beside iperf3 in the same run.

    sudo PYTHONPATH=tests:tests/measure .venv/bin/python bench/measure/gigabit.py [--runs 3]

Client and server are two namespaces with a pair of Ethernet devices between them, each behind `tc tbf` of 1 Gbit/s with 5 MB of queue. The truth
of the delay is that queue's own backlog, which `tc` prints ten times a second. CPU time is that of both programs by /proc, for each GB that passed
the link; the ratio is to iperf3 with as many streams in the same run. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from path import Measured

from unbloat.lab.testbed import quantile

ADDRESSES = {"client": "10.0.0.1", "server": "10.0.0.2"}
RATE_BPS = 1_000_000_000
LIMIT = "5mb"
DEVICE = "lan"
STREAMS = "4"
CC = "cubic"
SECONDS = 15
MAX_S = 120
TICKS_S = os.sysconf("SC_CLK_TCK")
# Of the device that sends in a direction.
SENDER = {"down": "server", "up": "client"}


class Gigabit(Measured):
    """The link."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, *ADDRESSES, server=ADDRESSES["server"])

    def build(self) -> None:
        """Devices, addresses, shapers."""
        self.veth("client", "server", DEVICE)
        shaper = ("tbf", "rate", str(RATE_BPS), "burst", "64kb", "limit", LIMIT)
        for node, address in ADDRESSES.items():
            self.address(node, DEVICE, f"{address}/24")
            self.ask(node, "tc", "qdisc", "replace", "dev", DEVICE, "root", *shaper)

    def backlog_ms(self, node: str) -> float:
        """What a packet would wait in the queue of a node."""
        (found,) = json.loads(self.ask(node, "tc", "-s", "-j", "qdisc", "show", "dev", DEVICE))
        return float(found["backlog"]) * 8e3 / RATE_BPS

    def passed(self) -> int:
        """Bytes that both devices have sent."""
        links = [
            json.loads(self.ask(node, "ip", "-s", "-j", "link", "show", DEVICE))
            for node in ADDRESSES
        ]
        return sum(link[0]["stats64"]["tx"]["bytes"] for link in links)


def cpu_s(process: subprocess.Popen[str]) -> float:
    """CPU time of a program so far: nsenter has become it."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


@dataclass
class Cost:
    """Of one run of two programs."""

    cpu_s: float = 0.0
    gb: float = 0.0
    waits: list[tuple[float, float]] = field(default_factory=list)
    """Unix time, and the backlog as ms."""


@contextlib.contextmanager
def costs(
    made: Gigabit, server: subprocess.Popen[str], way: str
) -> Iterator[tuple[Cost, list[float]]]:
    """Counts until the block ends; the client is put in the list."""
    clients: list[float] = []
    cost, stop = Cost(), threading.Event()

    def look() -> None:
        while not stop.wait(0.1):
            cost.waits.append((time.time(), made.backlog_ms(SENDER[way])))

    before, passed = cpu_s(server), made.passed()
    looking = threading.Thread(target=look)
    looking.start()
    yield cost, clients
    stop.set()
    looking.join()
    cost.gb = (made.passed() - passed) / 1e9
    cost.cpu_s = cpu_s(server) - before + sum(clients)


def waited(client: subprocess.Popen[str]) -> tuple[str, float]:
    """Output of a client and the CPU time of all its threads, when it ends."""
    last = 0.0
    text: list[str] = []
    # Its exit code may be that of a phase without a grade.
    reading = threading.Thread(target=lambda: text.append(client.communicate(timeout=MAX_S)[0]))
    reading.start()
    while reading.is_alive():
        with contextlib.suppress(OSError, IndexError):
            last = cpu_s(client)
        time.sleep(0.02)
    reading.join()
    return "".join(text), last


def ours(made: Gigabit, way: str) -> tuple[Cost, float, float, float]:
    """Cost, the true and the measured p95 of the loaded direction, Mbit/s."""
    server = made.serve()
    with costs(made, server, way) as (cost, clients):
        load = ("--phases", way, "--streams", STREAMS, "--cc", CC, "--max-data", "20 GB")
        words = (*made.target, "--json", *load)
        out, used = waited(made.start("client", made.program, *words))
        clients.append(used)
    server.terminate()
    (phase,) = json.loads(out)["phases"]
    times = (phase["from_unix_s"], phase["until_unix_s"])
    truth = [ms for at, ms in cost.waits if times[0] <= at < times[1]]
    measured = float(phase[f"delay_{way}"]["p95_ms"][0])
    return cost, quantile(truth, 0.95), measured, phase[f"goodput_{way}_bps"] / 1e6


def iperf3(made: Gigabit, way: str) -> Cost:
    """The cost of as many streams of iperf3."""
    server = made.start("server", "iperf3", "-s")
    made.listens("server", 5201)
    with costs(made, server, way) as (cost, clients):
        words = ("-c", made.server, "-t", str(SECONDS), "-P", STREAMS, "-C", CC)
        _, used = waited(made.start("client", "iperf3", *words, *(["-R"] if way == "down" else [])))
        clients.append(used)
    server.terminate()
    return cost


def main() -> None:
    """Runs both so often."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="of each direction")
    runs = parser.parse_args().runs
    print(
        "| direction | Mbit/s | p95, true | p95, measured | CPU s/GB, both ends | iperf3 | ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for way in ("down", "up"):
        rows = []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as folder, Gigabit(Path(folder)) as made:
                cost, truth_ms, found_ms, mbps = ours(made, way)
                other = iperf3(made, way)
            own, its = cost.cpu_s / cost.gb, other.cpu_s / other.gb
            rows.append((mbps, truth_ms, found_ms, own, its, own / its))
            cells = f"{mbps:.0f} | {truth_ms:.1f} | {found_ms:.1f} | {own:.2f} | {its:.2f} | {own / its:.2f}"
            print(f"| {way} | {cells} |", flush=True)
        middle = [median(row[column] for row in rows) for column in range(6)]
        print(
            f"| {way}, median | {middle[0]:.0f} | "
            + " | ".join(f"{x:.2f}" for x in middle[1:])
            + " |"
        )


if __name__ == "__main__":
    main()
