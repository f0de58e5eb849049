"""What packets can travel through: the floor, the emulator, and other emulators where they are installed.

A road has a sending side and a receiving side. For ours these are two namespaces; mahimahi and rattan make one of their
own around the sender, inside a namespace of ours.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.emu import bed

# The length of the transmit queue of the floor's devices: as the emulator's.
TXQUEUELEN = 10_000
# The links of the emulator that shall not shape.
FREE = "1000 Gbit/s"


@dataclass(frozen=True)
class Setting:
    """What the way from the sender to the receiver does; the way back has the same delay and nothing else."""

    delay_ms: float = 0.0
    rate_bps: int = 0  # 0: unlimited
    trace: Path | None = None
    buffer_bytes: int = 50_000_000
    offload: bool = False


@dataclass
class Road:
    """A way on which packets can be sent now. What was lost stands in it when its block has ended."""

    name: str
    to_sender: Callable[[Sequence[str]], list[str]]
    to_receiver: Callable[[Sequence[str]], list[str]]
    address: str  # of the receiver, as the sender knows it
    pid: int  # of its process; 0: there is none that lasts
    origin_ns: int = 0  # CLOCK_MONOTONIC at which its time begins; 0: unknown
    named: Counter[str] = field(
        default_factory=Counter
    )  # packets that its own log says were lost, by reason
    told: dict[str, Any] = field(default_factory=dict)  # its own summary
    kernel: Counter[str] = field(default_factory=Counter)  # what the kernel's counters say was lost
    delivered: dict[str, int] = field(
        default_factory=dict
    )  # packets handed over, by link, as it counts them
    held: int = 0  # packets that still waited at the end

    def unnamed(self, sent: int, received: int, by_socket: int) -> int:
        """UDP packets lost that neither its log nor a counter of the kernel names."""
        log = sum(n for why, n in self.named.items() if " " not in why or why.startswith("udp "))
        return sent - received - by_socket - log - self.held - sum(self.kernel.values())


@dataclass(frozen=True)
class Tools:
    """The programs."""

    floor: Path
    udp: Path
    emulator: Path | None


Maker = Callable[[Tools, Setting], AbstractContextManager[Road]]


def in_namespace(name: str) -> Callable[[Sequence[str]], list[str]]:
    """How a command is run in a namespace."""
    return lambda command: [*bed.inside(name), *command]


def pair(a: str, b: str, device_a: str, device_b: str) -> None:
    """Addresses and routes of two namespaces with a device each."""
    bed.batch(
        a,
        [
            f"addr add 10.0.0.1/32 dev {device_a}",
            f"route add 10.0.0.2/32 dev {device_a} src 10.0.0.1",
        ],
    )
    bed.batch(
        b,
        [
            f"addr add 10.0.0.2/32 dev {device_b}",
            f"route add 10.0.0.1/32 dev {device_b} src 10.0.0.2",
        ],
    )


def end(process: subprocess.Popen[str]) -> None:
    """Asks a process of ours to stop, and makes sure that it does."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def floor(tools: Tools, setting: Setting, fifo: bool = False) -> Iterator[Road]:
    """Our own minimal forwarder."""
    with bed.namespaces("a", "b") as (a, b):
        before = bed.softnet_losses()
        figures = (
            setting.delay_ms * 1000,
            setting.rate_bps,
            setting.buffer_bytes,
            TXQUEUELEN,
            setting.offload,
            fifo,
        )
        command = [str(tools.floor), a, "up", b, "down", *(str(int(f)) for f in figures)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            told = bed.Told(process)
            told.wait_for("ready")
            pair(a, b, "up", "down")
            road = Road(
                "floor, SCHED_FIFO" if fifo else "floor",
                in_namespace(a),
                in_namespace(b),
                "10.0.0.2",
                process.pid,
            )
            yield road
            road.kernel = bed.kernel_losses([a, b])
            road.kernel["softnet"] += bed.softnet_losses() - before
            process.terminate()
            road.told = json.loads(told.wait_for("packets"))
            road.named["dropped"] = sum(road.told["dropped"])
            road.named["refused"] = sum(road.told["refused"])
        finally:
            end(process)


def fast_floor(tools: Tools, setting: Setting) -> AbstractContextManager[Road]:
    """The same before all others."""
    return floor(tools, setting, fifo=True)


def scenario(setting: Setting) -> str:
    """What the emulator is told about a setting: client → server is the way that is measured."""
    medium = f'rate = "{setting.rate_bps} bit/s"' if setting.rate_bps else f'rate = "{FREE}"'
    if setting.trace:
        medium = 'trace = "measured"'
    queue = f'{{ kind = "droptail", limit = "{setting.buffer_bytes} B" }}'
    return f"""
name = "bench"
duration = "600 s"
[link.up]
{medium}
delay = "{setting.delay_ms} ms"
queue = {queue}
[link.down]
rate = "{FREE}"
delay = "{setting.delay_ms} ms"
queue = {{ kind = "droptail", limit = "50 MB" }}
[[flow]]
from = "client"
[lab]
offload = "{"on" if setting.offload else "off"}"
"""


def address(node: int) -> str:
    """The address of a node by its number."""
    return f"10.0.{(node + 1) >> 8}.{(node + 1) & 255}"


def configure(devices: Sequence[dict[str, Any]]) -> None:
    """Addresses of all devices, routes to all neighbours."""
    lines: dict[str, list[str]] = {}
    for device in devices:
        own, other, name = address(device["node"]), address(device["peer"]), device["name"]
        several = lines.setdefault(device["namespace"], [])
        several += [
            f"addr add {own}/32 dev {name}",
            f"route append {other}/32 dev {name} src {own}",
        ]
    for namespace, several in lines.items():
        bed.batch(namespace, several)


def losses(folder: Path) -> Counter[str]:
    """What the log names, by protocol and reason."""
    found: Counter[str] = Counter()
    with (folder / "losses.jsonl").open() as file:
        for line in file:
            row = json.loads(line)
            found[f"{row['proto']} {row['why']}"] += 1
    return found


@contextlib.contextmanager
def emulated(
    tools: Tools,
    text: str,
    places: dict[str, str],
    name: str = "unbloat-emu",
    options: Sequence[str] = (),
) -> Iterator[Road]:
    """`unbloat-emu` on a scenario; the namespaces exist. The way goes from the first to the last node."""
    if tools.emulator is None:
        raise RuntimeError("unbloat-emu is not built")
    spaces = list(dict.fromkeys(places.values()))
    before = bed.softnet_losses()
    with tempfile.TemporaryDirectory() as scratch:
        file, out = Path(scratch, "scenario.toml"), Path(scratch, "out")
        file.write_text(text)
        there = [word for node, space in places.items() for word in ("--netns", f"{node}={space}")]
        command = [str(tools.emulator), "run", str(file), "--out", str(out), *there, *options]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        try:
            told = bed.Told(process)
            devices = json.loads(told.wait_for('"devices"'))["devices"]
            configure(devices)
            process.stdin.write("go\n")
            process.stdin.flush()
            origin = json.loads(told.wait_for('"started"'))["t0_monotonic_ns"]
            time.sleep(max(0.0, (origin - time.monotonic_ns()) / 1e9))
            sender, receiver = in_namespace(spaces[0]), in_namespace(spaces[-1])
            road = Road(name, sender, receiver, address(len(places) - 1), process.pid, origin)
            yield road
            # Before the devices go away with the emulator.
            road.kernel = bed.kernel_losses(spaces)
            road.kernel["softnet"] += bed.softnet_losses() - before
            process.stdin.write("stop\n")
            process.stdin.flush()
            told.wait_for('"done"')
            if process.wait(20) != 0:
                raise RuntimeError(f"unbloat-emu ended with {process.returncode}")
            road.told = json.loads((out / "emu.json").read_text())
            road.named = losses(out)
            road.delivered = {link["link"]: link["arrived"] for link in road.told["links"]}
            road.held = sum(link["held"] for link in road.told["links"])
            for what in ("early", "oversize"):
                road.named[what] = sum(link[what] for link in road.told["links"])
        finally:
            end(process)


@contextlib.contextmanager
def emulator(tools: Tools, setting: Setting) -> Iterator[Road]:
    """`unbloat-emu` between two namespaces."""
    with bed.namespaces("a", "b") as (a, b):
        options = ["--trace", f"measured={setting.trace}"] if setting.trace else []
        places = {"client": a, "server": b}
        with emulated(tools, scenario(setting), places, options=options) as road:
            yield road


def as_nobody() -> list[str]:
    """mahimahi refuses to be started by root."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def shell_of(wrapper: Sequence[str], variable: str) -> Callable[[Sequence[str]], list[str]]:
    """A command inside another emulator's shell; `ADDRESS` in it becomes what the emulator's variable says."""

    def wrapped(command: Sequence[str]) -> list[str]:
        inner = " ".join(
            f'"${variable}"' if word == "ADDRESS" else shlex.quote(word) for word in command
        )
        return [*wrapper, "sh", "-c", inner]

    return wrapped


def mahimahi_command(setting: Setting, scratch: Path) -> list[str]:
    """The nested shells of a setting."""
    command = ["mm-delay", str(round(setting.delay_ms))] if setting.delay_ms else []
    if setting.trace:
        queue = f"--uplink-queue=droptail --uplink-queue-args=bytes={setting.buffer_bytes}".split()
        command += ["mm-link", str(setting.trace), str(back_trace(scratch)), *queue, "--"]
    return command or ["mm-delay", "0"]


def back_trace(scratch: Path) -> Path:
    """The way back of mm-link needs a trace, too: the same gigabit for all."""
    path = scratch / "back.trace"
    path.write_text("".join("1\n" for _ in range(83)))
    return path


def rattan_command(setting: Setting) -> list[str]:
    """rattan's command line of a setting."""
    delay = f"{setting.delay_ms:g}ms"
    command = ["rattan", "link", "--uplink-delay", delay, "--downlink-delay", delay]
    if setting.trace:
        command += ["--uplink-trace", str(setting.trace)]
    elif setting.rate_bps:
        command += ["--uplink-bandwidth", f"{setting.rate_bps}bps"]
    return [*command, "--"]


@contextlib.contextmanager
def other(name: str, variable: str, command: list[str]) -> Iterator[Road]:
    """Another emulator: it starts anew with each sender, so its processor time is not taken."""
    with bed.namespaces("m") as (m,):
        before = bed.softnet_losses()
        wrapped = shell_of([*bed.inside(m), *command], variable)
        road = Road(name, wrapped, in_namespace(m), "ADDRESS", 0)
        yield road
        road.kernel = bed.kernel_losses([m])
        road.kernel["softnet"] += bed.softnet_losses() - before


@contextlib.contextmanager
def mahimahi(tools: Tools, setting: Setting) -> Iterator[Road]:
    """mm-delay and mm-link (setuid root, started by nobody)."""
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        command = [*as_nobody(), *mahimahi_command(setting, Path(scratch))]
        with other("mahimahi", "MAHIMAHI_BASE", command) as road:
            yield road


@contextlib.contextmanager
def rattan(tools: Tools, setting: Setting) -> Iterator[Road]:
    """`rattan link`."""
    with other("rattan", "RATTAN_BASE", rattan_command(setting)) as road:
        yield road


def makers(tools: Tools) -> dict[str, Maker]:
    """All that can be measured here, by name; a line says what cannot."""
    known: dict[str, Maker] = {"floor": floor, "floor, SCHED_FIFO": fast_floor}
    if tools.emulator:
        known["unbloat-emu"] = emulator
    for name, program, maker in (("mahimahi", "mm-delay", mahimahi), ("rattan", "rattan", rattan)):
        if shutil.which(program):
            known[name] = maker
        else:
            print(f"{name} is left out: {program} is not on the PATH", flush=True)
    return known
