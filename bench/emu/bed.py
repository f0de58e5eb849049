"""Network namespaces for one measurement, what the kernel counts in them, and what a process costs.

Namespaces are named `ub-bench-PID-…`, made for one measurement and removed after it. Nothing is sent outside of them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

# A window of 2 Gbit/s × 40 ms has to fit; forwarding for those who route inside; all users of a cell may live in one
# namespace, where answers do not go back the way that the question came.
SYSCTLS = {
    "net/ipv4/tcp_wmem": "4096 65536 134217728",
    "net/ipv4/tcp_rmem": "4096 131072 134217728",
    "net/ipv4/ip_forward": "1",
    # Its neighbour discovery would stand among the packets counted.
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
}
# Lines of /proc/net/snmp and /proc/net/netstat that mean lost packets.
LOSSES = {
    "Ip": ("InDiscards", "OutDiscards", "InHdrErrors", "OutNoRoutes"),
    "Udp": ("InErrors", "RcvbufErrors", "SndbufErrors", "InCsumErrors"),
    "TcpExt": ("TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop"),
}
TICK = os.sysconf("SC_CLK_TCK")


def run(*command: str, text: str | None = None) -> str:
    """What a command printed; it has to succeed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command[:6])} … ended with {done.returncode}: {done.stderr[-400:]}"
        )
    return done.stdout


def inside(namespace: str) -> list[str]:
    """How a command is run in a namespace."""
    return ["ip", "netns", "exec", namespace]


def batch(namespace: str, lines: Sequence[str]) -> None:
    """Several `ip` commands at once."""
    run("ip", "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")


@contextlib.contextmanager
def namespaces(*names: str) -> Iterator[list[str]]:
    """Namespaces for the time of the block."""
    made: list[str] = []
    try:
        for name in names:
            full = f"ub-bench-{os.getpid()}-{name}"
            run("ip", "netns", "add", full)
            made.append(full)
            batch(full, ["link set lo up"])
            settings = " ".join(
                f"echo '{value}' > /proc/sys/{key};" for key, value in SYSCTLS.items()
            )
            run(*inside(full), "sh", "-c", settings)
        yield made
    finally:
        for full in made:
            subprocess.run(["ip", "netns", "del", full], check=False, capture_output=True)


def protocol_losses(text: str) -> Counter[str]:
    """The counters of `LOSSES` out of /proc/net/snmp and /proc/net/netstat: pairs of lines, names and values."""
    found: Counter[str] = Counter()
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        group = names.split(":")[0]
        for name, value in zip(names.split()[1:], values.split()[1:], strict=True):
            if name in LOSSES.get(group, ()):
                found[f"{group} {name}"] += int(value)
    return found


def device_losses(namespace: str) -> Counter[str]:
    """Drops and errors of all devices of a namespace. `tx` of a TUN: its reader was late; `rx`: what it wrote was refused."""
    found: Counter[str] = Counter()
    for link in json.loads(run("ip", "-n", namespace, "-j", "-s", "link", "show")):
        for way, stats in link["stats64"].items():
            for what, count in stats.items():
                if what not in ("bytes", "packets", "multicast"):
                    found[f"device {way} {what}"] += count
    return found


def softnet_losses() -> int:
    """Packets that the kernel's input queues of all processors refused: second column of /proc/net/softnet_stat."""
    rows = Path("/proc/net/softnet_stat").read_text().split("\n")
    return sum(int(row.split()[1], 16) for row in rows if row)


def kernel_losses(spaces: Sequence[str]) -> Counter[str]:
    """All that the kernel lost in these namespaces since they exist, by name; empty where it lost nothing."""
    found: Counter[str] = Counter()
    for space in spaces:
        found += device_losses(space)
        found += protocol_losses(run(*inside(space), "cat", "/proc/net/snmp", "/proc/net/netstat"))
    return +found


def cpu_seconds(pid: int) -> float:
    """Processor time that a process and its threads have used; no process, no figure."""
    if not pid:
        return math.nan
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def busy(seconds: float = 0.4) -> float:
    """Share of all processors in use for so long; before and after a run that is what others use."""

    def used() -> tuple[int, int]:
        # user nice system idle iowait irq softirq steal
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4], sum(fields)

    first, all_first = used()
    time.sleep(seconds)
    last, all_last = used()
    return (last - first) / max(1, all_last - all_first)


def memory_mb(pid: int) -> float:
    """Its resident set now, in MB of 10⁶ bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1.024e-3
    return 0.0


class Told:
    """Lines that a process prints, read as they come, so that it never waits for us."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._thread.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, word: str, seconds: float = 20.0) -> str:
        """The first line that contains the word."""

        def found() -> bool:
            return self._ended or any(word in line for line in self.lines)

        with self._news:
            self._news.wait_for(found, timeout=seconds)
            for line in self.lines:
                if word in line:
                    return line
        raise RuntimeError(
            f"no {word!r} was told within {seconds:.0f} s: {''.join(self.lines)[-400:]}"
        )
