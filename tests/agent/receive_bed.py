"""A host that downloads through the emulator, the agent on it, iperf3 and ping as judges: what the tests of DRWA share.

The agent runs with a cgroup, a runtime directory and pins of its own, so that it sees no connection but the bed's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0

SCENARIO = """
name = "download"
duration = "{duration} s"
[link.up]
rate = "{up}"
delay = "{delay}"
queue = {{ kind = "droptail", limit = "1 MB" }}
[link.down]
rate = "{down}"
delay = "{delay}"
queue = {{ kind = "droptail", limit = "{queue}" }}
[[flow]]
from = "client"
{changes}
"""


def scenario(
    down: str = "8 Mbit/s",
    up: str = "2 Mbit/s",
    delay: str = "30 ms",
    queue: str = "2 MB",
    steps: tuple[tuple[str, str], ...] = (),
) -> str:
    """A link; `steps` change the rate downwards at their times."""
    changes = "\n".join(
        f'[[change]]\nat = "{at}"\n"link.down.rate" = "{rate}"' for at, rate in steps
    )
    return SCENARIO.format(
        down=down, up=up, delay=delay, queue=queue, changes=changes, duration=300
    )


def program(name: str, variable: str) -> str | None:
    """A program of the tree: the variable's, the one that cargo built last, or the one on the path."""
    if variable in os.environ:
        return os.environ[variable]
    tree = Path(__file__).resolve().parents[2]
    built = [tree / "target" / kind / name for kind in ("release", "debug")]
    there = sorted((path for path in built if path.exists()), key=lambda path: path.stat().st_mtime)
    return str(there[-1]) if there else shutil.which(name)


def run(*argv: str, check: bool = True) -> str:
    """What a program says."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0 or not check, f"{argv}: {done.stderr}"
    return done.stdout


def until(what: Callable[[], bool], patience_s: float = PATIENCE_S) -> float:
    """Waits for something that has to happen: how long it took, s."""
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < patience_s, f"not within {patience_s} s"
        time.sleep(0.02)
    return time.monotonic() - begun


def cgroups() -> Path:
    """Where cgroup v2 is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind = line.split()[:3]
        if kind == "cgroup2":
            return Path(where)
    raise FileNotFoundError("no cgroup v2 is mounted")


class Bed:
    """Two namespaces, the emulator between them, a cgroup for the host's programs; `net6` begins its IPv6 addresses."""

    def __init__(self, folder: Path, text: str = "", net6: str = "fd00:1") -> None:
        self.folder = folder
        # Of host and server, by IP version.
        self.addresses = {4: ("10.0.0.1", "10.0.0.2"), 6: (f"{net6}::1", f"{net6}::2")}
        self.name = f"ub-agent-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
        self.host, self.server = f"{self.name}-h", f"{self.name}-s"
        self.cgroup = cgroups() / self.name
        self.processes: list[subprocess.Popen[str]] = []
        file = folder / "scenario.toml"
        file.write_text(text or scenario())
        self.cgroup.mkdir()
        for space in (self.host, self.server):
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        emulator = program("unbloat-emu", "UNBLOAT_EMU") or "unbloat-emu"
        there = ("--netns", f"client={self.host}", "--netns", f"server={self.server}")
        self.emulator = subprocess.Popen(
            [emulator, "run", str(file), "--out", str(folder / "emu"), *there],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "emu.err").open("w"),
            text=True,
        )

    def __enter__(self) -> Bed:
        self._event("devices")
        for own, (space, device) in enumerate(((self.host, "up"), (self.server, "down"))):
            for ip, addresses in self.addresses.items():
                bits, more = (24, ()) if ip == 4 else (64, ("nodad",))
                run(
                    "ip",
                    "-n",
                    space,
                    "address",
                    "add",
                    f"{addresses[own]}/{bits}",
                    "dev",
                    device,
                    *more,
                )
        self._say("go")
        self._event("started")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            ended(process)
        # In order, so that it says how late it was.
        with contextlib.suppress(OSError, AssertionError):
            self._say("stop")
            self._event("done")
        assert self.emulator.stdin is not None
        with contextlib.suppress(OSError):
            self.emulator.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.emulator.wait(5)
        self.emulator.kill()
        self.emulator.wait(PATIENCE_S)
        for space in (self.host, self.server):
            run("ip", "netns", "del", space, check=False)
        # Processes leave their cgroup when they have been waited for.
        for _try in range(50):
            with contextlib.suppress(OSError):
                self.cgroup.rmdir()
                break
            time.sleep(0.1)

    def _say(self, word: str) -> None:
        assert self.emulator.stdin is not None
        self.emulator.stdin.write(f"{word}\n")
        self.emulator.stdin.flush()

    def _event(self, kind: str) -> dict[str, Any]:
        assert self.emulator.stdout is not None
        for line in self.emulator.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == kind:
                return event
        raise AssertionError(f"no {kind}: {(self.folder / 'emu.err').read_text()}")

    def words(self, where: str, *argv: str, inside: bool) -> list[str]:
        """A command line that enters cgroup and namespace; the cgroup first, since `ip netns exec` hides it."""
        enter = f'echo $$ > {self.cgroup}/cgroup.procs && exec "$@"' if inside else 'exec "$@"'
        return ["sh", "-c", enter, "sh", "ip", "netns", "exec", where, *argv]

    def start(
        self, where: str, *argv: str, inside: bool = True, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        """A program in a namespace, and in the bed's cgroup unless told otherwise."""
        process = subprocess.Popen(
            self.words(where, *argv, inside=inside),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def ask(self, where: str, *argv: str) -> str:
        """What a program says in a namespace."""
        return told(self.start(where, *argv))

    @contextlib.contextmanager
    def capture(self, device: str = "up") -> Iterator[Path]:
        """What passes the host's device, in a file."""
        path = self.folder / f"{device}.pcap"
        options = ("-n", "-s", "120", "-B", "32768", "-U", "-Z", "root")
        argv = ("tcpdump", "-i", device, *options, "-w", str(path))
        process = self.start(self.host, *argv, inside=False)
        assert process.stderr is not None
        process.stderr.readline()
        yield path
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)

    def iperf_server(self, port: int = 5201) -> None:
        """An iperf3 that sends when it is asked to."""
        self.start(self.server, "iperf3", "-s", "-p", str(port), inside=False)
        for _ in range(100):
            if f":{port} " in self.ask(self.server, "ss", "-Hltn"):
                return
            time.sleep(0.05)
        raise AssertionError("iperf3 does not listen")

    def download(
        self, seconds: float, *more: str, version: int = 4, port: int = 5201
    ) -> subprocess.Popen[str]:
        """A download that runs; `finished` tells how it went."""
        server = self.addresses[version][1]
        options = ("-R", "-t", str(seconds), "-C", "cubic", "-J", "-i", "1")
        argv = ("iperf3", "-c", server, "-p", str(port), *options)
        return self.start(self.host, *argv, *more)

    def ping(self, seconds: float, version: int = 4) -> subprocess.Popen[str]:
        """Ten pings a second."""
        server = self.addresses[version][1]
        return self.start(
            self.host, "ping", "-n", "-i", "0.1", "-w", str(int(seconds)), server, inside=False
        )


@dataclass
class Goodput:
    """What an iperf3 measured."""

    mean: float
    """Mbit/s, over all of it but the first second: the first is slow start's."""
    seconds: list[float]


def finished(download: subprocess.Popen[str]) -> Goodput:
    """Waits for a download."""
    report = json.loads(told(download))
    seconds = [interval["sum"]["bits_per_second"] / 1e6 for interval in report["intervals"]]
    return Goodput(statistics.fmean(seconds[1:]), seconds)


def told(process: subprocess.Popen[str]) -> str:
    """Waits for a program: what it said."""
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"{process.args!r}: {errors} {out[-500:]}"
    return out


def ended(process: subprocess.Popen[str]) -> None:
    """Ends a program that may still run."""
    if process.poll() is None:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=PATIENCE_S)


def rtts(ping: subprocess.Popen[str], after_s: float = 5.0) -> list[float]:
    """The RTTs of pings that were sent later than that, ms."""
    out, _ = ping.communicate(timeout=PATIENCE_S)
    found = re.findall(r"icmp_seq=(\d+) .*time=([\d.]+) ms", out)
    return [float(ms) for number, ms in found if int(number) * 0.1 > after_s]


def uses(bed: Bed, port: int = 5201) -> set[str]:
    """The congestion controls of the host's connections to a port, as ss tells them."""
    said = bed.ask(bed.host, "ss", "-Htin", "dport", "=", f":{port}")
    return set(re.findall(r"^\s+(\w+) ", said, re.MULTILINE)) - {"ESTAB"}


def quantile(values: list[float], q: float) -> float:
    """Of a list that is not empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def rtt_now(bed: Bed) -> float:
    """The median of two seconds of pings, ms; for ever, where none is answered."""
    found = rtts(bed.ping(2), after_s=0)
    return quantile(found, 0.5) if found else float("inf")


class Agent:
    """The program, for one bed."""

    def __init__(self, bed: Bed, *settings: str) -> None:
        self.runtime, self.pins = bed.folder / "run", Path("/sys/fs/bpf") / bed.name
        # Nothing but downloads, unless told otherwise: the uplink's device would be this machine's own.
        others = ("uplink.mode=off", "trial.enabled=false")
        named = {setting.partition("=")[0] for setting in settings}
        defaults = [setting for setting in others if setting.partition("=")[0] not in named]
        self.settings = [f"scope.cgroup={bed.cgroup}", *defaults, *settings]
        self.daemon: subprocess.Popen[str] | None = None

    def argv(self, *words: str) -> list[str]:
        """A command line."""
        name = program("unbloat-agent", "UNBLOAT_AGENT") or "unbloat-agent"
        return [name, "--runtime", str(self.runtime), "--pins", str(self.pins), *words]

    def sets(self, *settings: str) -> list[str]:
        """Settings as words of a command line."""
        return [word for setting in (*self.settings, *settings) for word in ("--set", setting)]

    def serve(self, *words: str) -> subprocess.Popen[str]:
        """A daemon that can be killed; returns when its cures are attached."""
        with (self.runtime.parent / "agent.log").open("a") as log:
            self.daemon = subprocess.Popen(
                self.argv("serve", *words, *self.sets()),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.daemon.stdout is not None
        said = self.daemon.stdout.readline().strip()
        assert said == "on", f"{said}: {self.log()}"
        return self.daemon

    def log(self) -> str:
        """What it said."""
        return (self.runtime.parent / "agent.log").read_text()

    def kill(self) -> None:
        """kill -9, the supervisor lives."""
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait(PATIENCE_S)

    def supervisors(self) -> list[int]:
        """The processes that supervise it: one, but for the moment after it was killed."""
        assert self.daemon is not None
        children = (
            Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()
        )
        return [
            int(pid)
            for pid in children
            if b"supervise" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def supervisor(self) -> int:
        """The process of its supervisor."""
        (child,) = self.supervisors()
        return child

    def do(self, *words: str) -> str:
        """A subcommand that has to work."""
        return run(*self.argv(*words))

    def set(self, *settings: str) -> None:
        """Other settings for the daemon that runs."""
        self.do("on", *self.sets(*settings))

    def status(self) -> dict[str, Any]:
        """`status --json`."""
        answer: dict[str, Any] = json.loads(self.do("--json", "status"))
        return answer

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        run(*self.argv("off"), check=False)
        if self.daemon is not None:
            ended(self.daemon)

    def nothing_left(self, patience_s: float = 0.0) -> None:
        """Neither pins nor anything in the journal; where somebody else tidies up, after a while."""
        journal = self.runtime / "journal.jsonl"
        if patience_s:
            until(lambda: not self.pins.exists() and journal.read_text() == "", patience_s)
        assert not self.pins.exists(), list(self.pins.rglob("*"))
        assert not journal.exists() or journal.read_text() == ""
