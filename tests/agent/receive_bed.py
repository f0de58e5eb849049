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
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
ADDRESSES = {4: ("10.0.0.1", "10.0.0.2"), 6: ("fd00:1::1", "fd00:1::2")}
"""Of host and server, by IP version."""

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
    changes = "\n".join(f'[[change]]\nat = "{at}"\n"link.down.rate" = "{rate}"' for at, rate in steps)
    return SCENARIO.format(down=down, up=up, delay=delay, queue=queue, changes=changes, duration=300)


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


def cgroups() -> Path:
    """Where cgroup v2 is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind = line.split()[:3]
        if kind == "cgroup2":
            return Path(where)
    raise FileNotFoundError("no cgroup v2 is mounted")


class Bed:
    """Two namespaces, the emulator between them, a cgroup for the host's programs."""

    def __init__(self, folder: Path, text: str = "") -> None:
        self.folder = folder
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
            for ip, addresses in ADDRESSES.items():
                bits, more = (24, ()) if ip == 4 else (64, ("nodad",))
                run("ip", "-n", space, "address", "add", f"{addresses[own]}/{bits}", "dev", device, *more)
        self._say("go")
        self._event("started")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            ended(process)
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

    def start(self, where: str, *argv: str, inside: bool = True) -> subprocess.Popen[str]:
        """A program in a namespace, and in the bed's cgroup unless told otherwise."""
        process = subprocess.Popen(
            self.words(where, *argv, inside=inside),
            stdin=subprocess.DEVNULL,
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
        argv = (
            "tcpdump",
            "-i",
            device,
            "-n",
            "-s",
            "120",
            "-B",
            "32768",
            "-U",
            "-Z",
            "root",
            "-w",
            str(path),
        )
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
        server = ADDRESSES[version][1]
        argv = (
            "iperf3",
            "-c",
            server,
            "-p",
            str(port),
            "-R",
            "-t",
            str(seconds),
            "-C",
            "cubic",
            "-J",
            "-i",
            "1",
        )
        return self.start(self.host, *argv, *more)

    def ping(self, seconds: float, version: int = 4) -> subprocess.Popen[str]:
        """Ten pings a second."""
        server = ADDRESSES[version][1]
        return self.start(self.host, "ping", "-n", "-i", "0.1", "-w", str(int(seconds)), server, inside=False)


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


def quantile(values: list[float], q: float) -> float:
    """Of a list that is not empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


class Agent:
    """The program, for one bed."""

    def __init__(self, bed: Bed, *settings: str) -> None:
        self.runtime, self.pins = bed.folder / "run", Path("/sys/fs/bpf") / bed.name
        # Nothing on the uplink of the machine that tests: only the bed's own connections.
        self.settings = [f"scope.cgroup={bed.cgroup}", "uplink.mode=off", *settings]
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
                self.argv("serve", *words, *self.sets()), stdout=subprocess.PIPE, stderr=log, text=True
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

    def supervisor(self) -> int:
        """The process of its supervisor."""
        assert self.daemon is not None
        children = Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()
        (child,) = [int(pid) for pid in children if b"supervise" in Path(f"/proc/{pid}/cmdline").read_bytes()]
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

    def nothing_left(self) -> None:
        """Neither pins nor anything in the journal."""
        assert not self.pins.exists(), list(self.pins.rglob("*"))
        journal = self.runtime / "journal.jsonl"
        assert not journal.exists() or journal.read_text() == ""


TCP_WINDOW_CLAMP = 10


# A reader that can be asked: `clamp`, `buffer`, `bytes`, `sum`, `set N`; it downloads from a `SENDER` until that one closes.
READER = f"""
import hashlib, socket, sys, threading
family, address, port, setup = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, *sys.argv[1:4]
s = socket.socket(family, socket.SOCK_STREAM)
exec(setup)
s.connect((address, int(port)))
total, seen, over = hashlib.sha256(), [0], threading.Event()
def read():
    while data := s.recv(1 << 20):
        total.update(data)
        seen[0] += len(data)
    over.set()
threading.Thread(target=read, daemon=True).start()
for word in sys.stdin:
    match word.split():
        case ["set", clamp]: s.setsockopt(socket.IPPROTO_TCP, {TCP_WINDOW_CLAMP}, int(clamp)); print("set", flush=True)
        case ["clamp"]: print(s.getsockopt(socket.IPPROTO_TCP, {TCP_WINDOW_CLAMP}), flush=True)
        case ["buffer"]: print(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), flush=True)
        case ["bytes"]: print(seen[0], flush=True)
        case ["port"]: print(s.getsockname()[1], flush=True)
        case ["sum"]: over.wait(); print(total.hexdigest(), flush=True)
        case ["close"]: s.shutdown(socket.SHUT_RDWR); break
"""
# Sends so many bytes to everyone who comes, made from a seed, and says their sum.
SENDER = """
import hashlib, random, socket, sys, threading
port, size = int(sys.argv[1]), int(sys.argv[2])
data = random.Random(1).randbytes(size)
print(hashlib.sha256(data).hexdigest(), flush=True)
def serve(s):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    try:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        s.recv(1)
    except OSError:
        pass
    s.close()
with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
    while True:
        s, _ = listening.accept()
        threading.Thread(target=serve, args=(s,), daemon=True).start()
"""


class Reader:
    """A download whose socket can be looked at."""

    def __init__(
        self, bed: Bed, port: int = 5301, version: int = 4, setup: str = "", inside: bool = True
    ) -> None:
        argv = (sys.executable, "-c", READER, ADDRESSES[version][1], str(port), setup or "pass")
        self.process = subprocess.Popen(
            bed.words(bed.host, *argv, inside=inside),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        bed.processes.append(self.process)

    def ask(self, word: str) -> str:
        """Its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def clamp(self) -> int:
        """TCP_WINDOW_CLAMP of its socket, now."""
        return int(self.ask("clamp"))

    def bytes(self) -> int:
        """Received so far."""
        return int(self.ask("bytes"))


def sender(bed: Bed, size: int, port: int = 5301) -> str:
    """A `SENDER` in the server's namespace: the sum of what it sends."""
    process = bed.start(bed.server, sys.executable, "-c", SENDER, str(port), str(size), inside=False)
    assert process.stdout is not None
    total = process.stdout.readline().strip()
    for _ in range(100):
        if f":{port} " in bed.ask(bed.server, "ss", "-Hltn"):
            return total
        time.sleep(0.05)
    raise AssertionError("the sender does not listen")


def right_edges(capture: Path, port: int) -> list[int]:
    """The right edge of the window in every ACK that went to a server's port, scaled by tshark from the SYN."""
    fields = ("-e", "tcp.ack", "-e", "tcp.window_size", "-e", "tcp.flags.syn")
    where = f"tcp.dstport == {port}"
    out = run("tshark", "-r", str(capture), "-Y", where, "-T", "fields", *fields)
    rows = [line.split() for line in out.splitlines()]
    return [int(ack) + int(window) for ack, window, syn in rows if syn in ("0", "False")]
