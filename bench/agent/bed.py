"""Two namespaces with a pair of devices between them, the agent in one of them, and what both cost.

signal: /proc/stat of the whole host, the agent's own times, run_time_ns of its programs · model: what others use is measured before and
        taken off · action: figures. Namespaces, cgroup and pins are named `ub-bench-…` and removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.emu.bed import batch, cpu_seconds, inside, memory_mb, namespaces, run

TICK = os.sysconf("SC_CLK_TCK")
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
SERVER, HOST = "10.7.0.2", "10.7.0.1"
SHOW_AFTER_S = 120.0


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
        """What was used between two times, without `others`, processors that somebody else uses."""
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


@dataclass
class Pair:
    """Two ends of a pair of devices."""

    host: str
    server: str
    folder: Path
    cgroup: Path

    def words(self, space: str, *argv: str) -> list[str]:
        """A command line; the host's programs are in the cgroup, which `ip netns exec` would hide."""
        enter = f"echo $$ > {self.cgroup}/cgroup.procs && " if space == self.host else ""
        return ["sh", "-c", f'{enter}exec "$@"', "sh", *inside(space), *argv]

    def start(self, space: str, *argv: str, **more: Any) -> subprocess.Popen[str]:
        """A program there."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.words(space, *argv), stdout=pipe, stderr=pipe, text=True, **more
        )


@contextlib.contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """For the time of the block."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    root = next(Path(words[1]) for words in mounts if words[2] == "cgroup2")
    cgroup = root / f"ub-bench-{os.getpid()}"
    cgroup.mkdir(exist_ok=True)
    try:
        with namespaces("host", "server") as (host, server):
            run(
                "ip",
                "link",
                "add",
                "veth",
                "netns",
                host,
                "type",
                "veth",
                "peer",
                "name",
                "veth",
                "netns",
                server,
            )
            for space, address in ((host, HOST), (server, SERVER)):
                batch(space, [f"address add {address}/24 dev veth", "link set veth up"])
            yield Pair(host, server, folder, cgroup)
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                cgroup.rmdir()
                break
            time.sleep(0.1)


class Modem:
    """Reports of an empty modem of 40 Gbit/s, a hundred a second: the gate is at work, and holds nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(str(path))
        self.listening.listen()
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self.ended.is_set():
            with contextlib.suppress(OSError):
                client, _ = self.listening.accept()
                threading.Thread(target=self._report, args=(client,), daemon=True).start()

    def _report(self, client: socket.socket) -> None:
        number = 0
        with contextlib.suppress(OSError), client:
            while not self.ended.wait(0.01):
                number += 1
                now = time.monotonic_ns()
                client.send(struct.pack("<4sHHQQQQQ", b"UBTM", 1, 0, number, now, 0, 50_000_000, 0))

    def end(self) -> None:
        """No reports any more."""
        self.ended.set()
        self.listening.close()
        self.path.unlink(missing_ok=True)


class Agent:
    """The agent in the host's namespace, for its cgroup and its device only."""

    def __init__(self, program: str, bed: Pair, settings: Sequence[str]) -> None:
        self.pins = Path("/sys/fs/bpf") / f"ub-bench-{os.getpid()}"
        self.runtime = bed.folder / "agent"
        self.words = [program, "--runtime", str(self.runtime), "--pins", str(self.pins)]
        scope = (f"scope.cgroup={bed.cgroup}", "scope.device=veth", "trial.enabled=false")
        sets = [word for setting in (*scope, *settings) for word in ("--set", setting)]
        # Not `ip netns exec`: it would hide the bpf file system and the cgroups.
        enter = ["nsenter", f"--net=/run/netns/{bed.host}"]
        self.log = (bed.folder / "agent.log").open("a")
        self.process = subprocess.Popen(
            [*enter, *self.words, "serve", *sets],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "on":
            raise RuntimeError(
                f"the agent does not start: {(bed.folder / 'agent.log').read_text()[-500:]}"
            )

    def status(self) -> dict[str, Any]:
        """`status`, as it tells programs."""
        told: dict[str, Any] = json.loads(run(*self.words, "--json", "status"))
        return told

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
        told = json.loads(run("bpftool", "-j", "prog", "show"))
        return {
            f"{one.get('name', '')}": (one.get("run_time_ns", 0), one.get("run_cnt", 0))
            for one in told
            if one["id"] in numbers and one.get("run_cnt")
        }

    def end(self) -> None:
        """Everything as it was."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=SHOW_AFTER_S)
        self.log.close()
        subprocess.run([*self.words, "off"], capture_output=True, check=False)
