"""Two namespaces with a pair of devices between them, the agent in one of them, and what both cost.

Costs are read from /proc/stat of the whole host, the agent's own times, and run_time_ns of its programs. What others use is
measured before and subtracted.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "agent"))

from agent_program import AgentProgram
from bench.emu.costs import memory_mb

from unbloat.lab.instruments import cpu_seconds
from unbloat.lab.testbed import NO_IPV6, Testbed, run

TICK = os.sysconf("SC_CLK_TCK")
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
SERVER, HOST = "10.7.0.2", "10.7.0.1"
TIMEOUT_S = 120.0
# Ten thousand connections, and a window of 2 Gbit/s × 40 ms.
SYSCTLS = NO_IPV6 | {
    "net.ipv4.tcp_wmem": "4096 65536 134217728",
    "net.ipv4.tcp_rmem": "4096 131072 134217728",
}


@dataclass(frozen=True)
class Cpu:
    """Seconds of all processors together."""

    user: float
    system: float
    """With interrupts and soft interrupts: where the kernel receives."""
    at: float

    @staticmethod
    def now() -> Cpu:
        """Since the host was started."""
        line = Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        user, nice, system, _, _, hard, soft, _ = (int(word) / TICK for word in line)
        return Cpu(user + nice, system + hard + soft, time.monotonic())

    def since(self, before: Cpu, others: float) -> float:
        """What was used between two times, without `others`, processors that other programs use."""
        used = self.user + self.system - before.user - before.system
        return used - others * (self.at - before.at)


def others(seconds: float = 1.0) -> float:
    """Processors that are in use although nothing is measured."""
    before = Cpu.now()
    time.sleep(seconds)
    now = Cpu.now()
    return now.since(before, 0) / (now.at - before.at)


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """The kernel takes the time of BPF programs; as it was, afterwards."""
    was = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(was)


class Pair(Testbed):
    """Nodes `host` and `server`; the host's programs are in a cgroup."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "host", "server", sysctls=SYSCTLS)

    def build(self) -> None:
        """A device `veth` each."""
        self.make_cgroup("host")
        self.veth("host", "server", "veth")
        self.address("host", "veth", f"{HOST}/24")
        self.address("server", "veth", f"{SERVER}/24")


class Agent(AgentProgram):
    """The agent in the host's namespace, for its cgroup and its device only; it runs from the beginning."""

    def __init__(self, testbed: Pair, settings: Sequence[str]) -> None:
        scope = (f"scope.cgroup={testbed.cgroups['host']}", "scope.device=veth")
        super().__init__(testbed, [*scope, "trial.enabled=false", *settings], "host")
        self.process = self.serve()

    def cpu(self) -> float:
        """Seconds that it has used itself."""
        return cpu_seconds(self.process.pid)

    def memory_mb(self) -> float:
        """Its resident set."""
        return memory_mb(self.process.pid)

    def programs(self) -> dict[str, tuple[int, int]]:
        """Of each of its programs: nanoseconds, and how often it ran."""
        links = Path(f"/proc/{self.process.pid}/fdinfo").glob("*")
        numbers = set()
        for link in links:
            with contextlib.suppress(OSError):
                for line in link.read_text().splitlines():
                    if line.startswith("prog_id:"):
                        numbers.add(int(line.split()[1]))
        shown = json.loads(run("bpftool", "-j", "prog", "show"))
        return {
            f"{one.get('name', '')}": (one.get("run_time_ns", 0), one.get("run_cnt", 0))
            for one in shown
            if one["id"] in numbers and one.get("run_cnt")
        }
