"""ping and iperf3 in a testbed, and the processor time of a process: the judges of tests and benchmarks."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbloat.lab.testbed import TIMEOUT_S, Testbed, output, quantile

TICK = os.sysconf("SC_CLK_TCK")
# Of an iperf3 whose last acknowledgements come through a queue of seconds.
END_TIMEOUT_S = 120.0


@dataclass
class Ping:
    """A ping that runs until `stop`, or until it has run its time; then its answers."""

    process: subprocess.Popen[str]
    rtts: list[tuple[float, float]] = field(default_factory=list)
    """When each answer came, s since the epoch, and its RTT, ms."""
    sent: int = 0

    @staticmethod
    def start(
        testbed: Testbed, node: str, to: str, every_s: float = 0.1, seconds: float = 0
    ) -> Ping:
        """Pings from a node; without `seconds` until it is stopped."""
        bound = ("-w", str(int(seconds))) if seconds else ()
        argv = ("ping", "-n", "-D", "-i", str(every_s), *bound, to)
        return Ping(testbed.start(node, *argv, grouped=False))

    def stop(self) -> Ping:
        """Ends it."""
        self.process.send_signal(signal.SIGINT)
        return self.done()

    def done(self) -> Ping:
        """Waits for its end."""
        text, _ = self.process.communicate(timeout=TIMEOUT_S)
        answers = re.findall(r"\[([\d.]+)\].*time=([\d.]+) ms", text)
        self.rtts = [(float(at), float(ms)) for at, ms in answers]
        counted = re.search(r"(\d+) packets transmitted", text)
        self.sent = int(counted[1]) if counted else 0
        return self

    def between(self, begin_s: float, end_s: float = 1e9) -> list[float]:
        """RTTs of the answers between two times after the first, ms."""
        first = self.rtts[0][0] if self.rtts else 0.0
        return [ms for at, ms in self.rtts if begin_s <= at - first < end_s]

    def p(self, share: float, after_s: float = 5.0, before_s: float = 1e9) -> float:
        """A percentile, ms, of the answers between two times after the first; infinite without any."""
        some = self.between(after_s, before_s)
        return quantile(some, share) if some else float("inf")

    def lost(self) -> int:
        """Not answered; what was under way at the end counts."""
        return self.sent - len(self.rtts)


@dataclass
class Transfer:
    """An iperf3 client that runs; `node` sends, or receives with `-R`."""

    process: subprocess.Popen[str]

    @staticmethod
    def start(
        testbed: Testbed,
        node: str,
        server_node: str,
        to: str,
        port: int,
        seconds: float,
        *more: str,
    ) -> Transfer:
        """A server for this one transfer, and the client."""
        testbed.start(server_node, "iperf3", "-s", "-1", "-J", "-p", str(port))
        testbed.listens(server_node, port)
        argv = ("iperf3", "-c", to, "-p", str(port), "-t", str(seconds), "-J", *more)
        return Transfer(testbed.start(node, *argv))

    def done(self) -> dict[str, Any]:
        """Waits for its end: its report."""
        report: dict[str, Any] = json.loads(output(self.process, END_TIMEOUT_S))
        return report

    def seconds(self) -> list[float]:
        """Mbit/s in each second."""
        return [one["sum"]["bits_per_second"] / 1e6 for one in self.done()["intervals"]]

    def mbps(self) -> float:
        """Goodput at the receiver, Mbit/s."""
        end = self.done()["end"]
        return float((end.get("sum_received") or end["sum"])["bits_per_second"]) / 1e6


@dataclass
class Goodput:
    """Of an iperf3 that has ended, Mbit/s."""

    mean: float
    """Without the first second, which is slow start's."""
    seconds: list[float]

    @staticmethod
    def of(transfer: subprocess.Popen[str]) -> Goodput:
        """Waits for its end."""
        seconds = Transfer(transfer).seconds()
        return Goodput(statistics.fmean(seconds[1:]), seconds)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process and its threads have used; no process, no figure."""
    if not pid:
        return math.nan
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK
