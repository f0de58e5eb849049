"""A phone behind the emulator's modem, a server, and a notebook tethered to the phone: what the tests of the uplink's gate share."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
PHONE, SERVER, NOTEBOOK = "10.0.0.1", "10.0.0.2", "10.0.1.2"
PHONE6, SERVER6, NOTEBOOK6 = "fd00::1", "fd00::2", "fd00:1::2"

CUBIC = ("congctl", "cubic")
"""From a connection's first packet on: one that was BBR's for a moment, before its program chose another, stays paced for ever."""

SCENARIO = """
name = "uplink"
duration = "{duration} s"
[link.up]
{up}
delay = "30 ms"
[link.down]
{down}
delay = "30 ms"
queue = {{ kind = "droptail", limit = "2 MB" }}
[device]
gate = {gate}
firmware = {{ buffer = "{buffer}", report_every = "5 ms", report_delay = "100 ms" }}
[[flow]]
from = "client"
{changes}
"""
OUTAGE = (("4 s", "1 kbit/s"), ("7 s", "1 Mbit/s"))
"""Three seconds in which no packet gets through."""
STEPS = (("10 s", "0.5 Mbit/s"), ("20 s", "4 Mbit/s"), ("30 s", "2 Mbit/s"))


def scenario(
    up: str = 'rate = "2 Mbit/s"',
    down: str = 'rate = "8 Mbit/s"',
    gate: str = '"none"',
    buffer: str = "1 MB",
    duration: int = 120,
    steps: tuple[tuple[str, str], ...] = (),
    more: str = "",
) -> str:
    """A phone's link; `steps` change the rate of the uplink at their times."""
    changes = [f'[[change]]\nat = "{at}"\n"link.up.rate" = "{rate}"' for at, rate in steps]
    return SCENARIO.format(
        up=up,
        down=down,
        gate=gate,
        buffer=buffer,
        duration=duration,
        changes="\n".join([*changes, more]),
    )


class Bed:
    """See the module text; `folder` takes the emulator's files. With `six` pings and transfers go by IPv6."""

    def __init__(
        self, folder: Path, text: str, emulator: str, *options: str, six: bool = False
    ) -> None:
        self.folder, self.out, self.six = folder, folder / "emu", six
        self.server = SERVER6 if six else SERVER
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "scenario.toml"
        self.file.write_text(text)
        run = f"{os.getpid() % 100_000}{time.monotonic_ns() % 100_000}"
        self.spaces = {node: f"ub-gate-{run}-{node[0]}" for node in ("phone", "server", "notebook")}
        self.command = [emulator, "run", str(self.file), "--out", str(self.out), *options]
        self.process: subprocess.Popen[str] | None = None
        self.device = self.far = ""
        self.programs: list[subprocess.Popen[str]] = []
        self.port = 5200

    def __enter__(self) -> Bed:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        for space in self.spaces.values():
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            self.sysctl(space, "ipv6/conf/default/disable_ipv6", "1")
        phone, server, notebook = self.spaces.values()
        self.process = subprocess.Popen(
            [*self.command, "--netns", f"client={phone}", "--netns", f"server={server}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for device in self.event("devices")["devices"]:
            space, own, other = (
                (phone, PHONE, SERVER) if device["node"] == 0 else (server, SERVER, PHONE)
            )
            ip("-n", space, "address", "add", f"{own}/32", "dev", device["name"])
            ip(
                "-n",
                space,
                "route",
                "add",
                f"{other}/32",
                "dev",
                device["name"],
                "src",
                own,
                *CUBIC,
            )
            if device["node"] == 0:
                self.device = device["name"]
            else:
                self.far = device["name"]
                ip(
                    "-n",
                    space,
                    "route",
                    "add",
                    f"{NOTEBOOK}/32",
                    "dev",
                    device["name"],
                    "src",
                    own,
                    *CUBIC,
                )
        ip(
            "link",
            "add",
            "lan",
            "netns",
            phone,
            "type",
            "veth",
            "peer",
            "name",
            "lan",
            "netns",
            notebook,
        )
        for space, address in ((phone, "10.0.1.1/24"), (notebook, f"{NOTEBOOK}/24")):
            ip("-n", space, "address", "add", address, "dev", "lan")
            ip("-n", space, "link", "set", "lan", "up")
        ip("-n", notebook, "route", "add", "default", "via", "10.0.1.1", *CUBIC)
        self.sysctl(phone, "ipv4/ip_forward", "1")
        if self.six:
            self._six(*self.spaces.values())
        self.say("go")
        zero = self.event("started")["t0_monotonic_ns"]
        time.sleep(max(0.0, (zero - time.monotonic_ns()) / 1e9))

    def _six(self, phone: str, server: str, notebook: str) -> None:
        """The same addresses once more, by IPv6."""
        devices = ((phone, self.device), (server, self.far), (phone, "lan"), (notebook, "lan"))
        own = (PHONE6, SERVER6, "fd00:1::1", NOTEBOOK6)
        for (space, device), address in zip(devices, own, strict=True):
            self.sysctl(space, f"ipv6/conf/{device}/disable_ipv6", "0")
            ip("-n", space, "-6", "address", "add", f"{address}/64", "dev", device, "nodad")
        ip("-n", server, "-6", "route", "add", "fd00:1::/64", "dev", self.far, *CUBIC)
        ip("-n", notebook, "-6", "route", "add", "default", "via", "fd00:1::1", *CUBIC)
        self.sysctl(phone, "ipv6/conf/all/forwarding", "1")

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            if program.poll() is None:
                program.kill()
            program.wait(PATIENCE_S)
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(OSError, AssertionError):
                self.say("stop")
                self.event("done")
                assert self.process.stdin is not None
                self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(PATIENCE_S)
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    def sysctl(self, space: str, name: str, value: str) -> None:
        """Sets one, where the kernel has it."""
        path = f"/proc/sys/net/{name}"
        ip("netns", "exec", space, "sh", "-c", f"[ ! -e {path} ] || echo {value} > {path}")

    def say(self, word: str) -> None:
        """A word to the emulator."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def event(self, kind: str) -> dict[str, Any]:
        """The emulator's next event of a kind."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == kind:
                return event
        raise AssertionError(f"no {kind}: {self.process.stderr and self.process.stderr.read()}")

    def start(self, node: str, *argv: str, **more: Any) -> subprocess.Popen[str]:
        """A program in a node's namespace; killed with the bed."""
        program = subprocess.Popen(
            ["ip", "netns", "exec", self.spaces[node], *argv],
            stdin=more.pop("stdin", subprocess.DEVNULL),
            stdout=more.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )
        self.programs.append(program)
        return program

    def ping(self, node: str = "phone", every_s: float = 0.1) -> Ping:
        """Pings the server from a node until told to stop."""
        return Ping(self.start(node, "ping", "-n", "-D", "-i", str(every_s), self.server))

    def iperf(self, node: str, seconds: float, *options: str, server: str = "") -> Transfer:
        """iperf3 between a node and the server."""
        self.port += 1
        listening = self.start("server", "iperf3", "-s", "-1", "-J", "-p", str(self.port))
        self.listens(self.port)
        argv = [
            "iperf3",
            "-c",
            server or self.server,
            "-p",
            str(self.port),
            "-t",
            str(seconds),
            "-J",
            *options,
        ]
        return Transfer(self.start(node, *argv), listening)

    def listens(self, port: int) -> None:
        """Returns when somebody at the server listens there."""
        deadline = time.monotonic() + PATIENCE_S
        while (
            f":{port} "
            not in self.start("server", "ss", "-Hltn").communicate(timeout=PATIENCE_S)[0]
        ):
            assert time.monotonic() < deadline, f"nobody listens at port {port}"
            time.sleep(0.05)

    def gate(self, program: str, *options: str) -> Gate:
        """The gate on the phone's uplink, with the lab's telemetry unless told otherwise."""
        if not any(option.startswith("socket=") for option in options):
            options = (f"socket={self.out / 'telemetry.sock'}", *options)
        journal = self.folder / "journal.jsonl"
        argv = [program, self.device, f"journal={journal}", *options]
        gate = Gate(self.start("phone", *argv, stdin=subprocess.PIPE))
        gate.line(PATIENCE_S)
        return gate

    def firmware_ms(self, after_s: float = 0.0, before_s: float = 1e9) -> float:
        """Mean delay in the firmware buffer, from the emulator's own books; after its end."""
        rows = [json.loads(line) for line in (self.out / "queues.jsonl").read_text().splitlines()]
        found = [
            row["delay_ms"]
            for row in rows
            if row.get("stage") == "firmware"
            and row.get("delay_ms") is not None
            and after_s <= row["t_s"] < before_s
        ]
        return statistics.fmean(found)


@dataclass
class Ping:
    """A ping that runs, and what it measured."""

    process: subprocess.Popen[str]
    rtts: list[tuple[float, float]] = field(default_factory=list)
    sent: int = 0

    def stop(self) -> Ping:
        """Ends it; the times of its answers are known then."""
        self.process.send_signal(2)
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        self.rtts = [
            (float(at), float(ms)) for at, ms in re.findall(r"\[([\d.]+)\].*time=([\d.]+) ms", said)
        ]
        told = re.search(r"(\d+) packets transmitted", said)
        self.sent = int(told[1]) if told else 0
        return self

    def p(self, share: float, after_s: float = 5.0) -> float:
        """A percentile, in ms, of what was answered later than so long after the first answer."""
        begin = self.rtts[0][0] + after_s
        late = sorted(ms for at, ms in self.rtts if at >= begin)
        return late[min(int(share * len(late)), len(late) - 1)]

    def lost(self) -> int:
        """Not answered; what is under way at the end counts."""
        return self.sent - len(self.rtts)


@dataclass
class Transfer:
    """An iperf3 that runs."""

    process: subprocess.Popen[str]
    listening: subprocess.Popen[str]

    def done(self) -> dict[str, Any]:
        """What it says at its end."""
        said, errors = self.process.communicate(timeout=PATIENCE_S + 60)
        assert self.process.returncode == 0, f"iperf3: {said[-500:]} {errors}"
        result: dict[str, Any] = json.loads(said)
        return result

    def mbps(self) -> float:
        """Goodput at the receiver."""
        ended = self.done()["end"]
        return float((ended.get("sum_received") or ended["sum"])["bits_per_second"]) / 1e6


@dataclass
class Gate:
    """The gate's program; it says how it is twice a second."""

    process: subprocess.Popen[str]

    def line(self, patience_s: float = 5.0) -> dict[str, Any]:
        """Its next word."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], patience_s)
        said = self.process.stdout.readline() if ready else ""
        assert said, f"the gate says nothing: {self.process.poll()} {self._errors()}"
        status: dict[str, Any] = json.loads(said)
        return status

    def _errors(self) -> str:
        if self.process.poll() is None or self.process.stderr is None:
            return ""
        return self.process.stderr.read()

    def off(self) -> dict[str, Any]:
        """Ends it as it should end; its last word."""
        assert self.process.stdin is not None
        said, errors = self.process.communicate("", timeout=PATIENCE_S)
        assert self.process.returncode == 0, errors
        last: dict[str, Any] = json.loads(said.splitlines()[-1])
        return last


def undone(bed: Bed, node: str, journal: Path) -> None:
    """Undoes in a node what a journal tells, by the agent's own `off`; nothing is left in it."""
    agent = os.environ.get("UNBLOAT_AGENT") or shutil.which("unbloat-agent") or "unbloat-agent"
    off = [agent, "--runtime", str(journal.parent), "off"]
    subprocess.run(
        ["ip", "netns", "exec", bed.spaces[node], *off], check=True, capture_output=True, text=True
    )
    assert not journal.read_text()


def ip(*argv: str) -> None:
    """iproute2."""
    subprocess.run(["ip", *argv], check=True, capture_output=True, text=True)


Figures = dict[str, float]
Bounds = dict[str, tuple[str, float]]


def measured(plays: Mapping[str, Callable[[], Figures]], bounds: Bounds) -> None:
    """Figures of beds, two side by side, all within their bounds. What is not may try twice more,
    alone: the machine may have been busy elsewhere for a moment."""
    with ThreadPoolExecutor(2) as pool:
        running = {name: pool.submit(play) for name, play in plays.items()}
        found = {name: future.result() for name, future in running.items()}
    for left in (2, 1, 0):
        late = {
            name: wrong for name, figures in found.items() if (wrong := beyond(figures, bounds))
        }
        if not late:
            return
        assert left, f"{late} of {found}"
        found = {name: plays[name]() for name in late}


def beyond(figures: Figures, bounds: Bounds) -> Bounds:
    """Those that are not within their bounds."""
    return {
        name: bound
        for name, bound in bounds.items()
        if name in figures
        and not (figures[name] <= bound[1] if bound[0] == "<=" else figures[name] >= bound[1])
    }
