"""Network namespaces, what joins them, and programs in them: the testbed of tests, benchmarks and samples.

It stands on what a run of the lab stands on: a `Session` whose janitor removes everything, however the process ends, and
`Emulator` for links. A description of a testbed is a subclass whose `build` joins the nodes; it adds addresses and routes.

Programs enter a namespace by `nsenter`: `ip netns exec` would hide the mounts of cgroup v2 and of the bpf file system.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from unbloat.errors import LabError
from unbloat.lab.cleanup import janitor
from unbloat.lab.cleanup.session import Session
from unbloat.lab.emulator import Emulator, Event
from unbloat.lab.requirements import found
from unbloat.lab.setup.namespaces import Device, batch, set_sysctls

# For one program or one event: a machine under load takes tens of seconds to start a browser.
TIMEOUT_S = 60.0
# Between two looks at something that has to happen.
POLL_S = 0.02
# After the end of a measurement tcpdump's ring still holds packets; the kernel hands a block over within this time.
CAPTURE_TAIL_S = 0.3

NO_IPV6 = {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}
"""Neighbour discovery and router solicitations would count among the packets."""

T = TypeVar("T", bound="Testbed")


class Testbed:
    """Nodes, each a network namespace; `with` makes them, and removes everything at the end of the block."""

    __test__ = False  # pytest takes classes named Test… for tests

    def __init__(self, folder: Path, *nodes: str, sysctls: Mapping[str, str] | None = None) -> None:
        self.folder, self.nodes, self.sysctls = folder, nodes, dict(sysctls or {})
        self.session = Session()
        self.name = f"ub-{self.session.id}"
        """Begins the name of everything that this testbed makes."""
        self.spaces: dict[str, str] = {}
        """The namespace of each node."""
        self.cgroups: dict[str, Path] = {}
        """Of the nodes that have one; their programs enter it."""
        self.programs: list[subprocess.Popen[str]] = []
        self.emulator: Emulator | None = None
        self.out = folder / "emu"
        """The emulator's files."""
        self.logs = folder
        """Where its errors go."""

    def __enter__(self: T) -> T:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.session.__enter__()
        try:
            names = self.session.namespaces(list(self.nodes))
            self.spaces = dict(zip(self.nodes, names, strict=True))
            batch(None, [f"netns add {name}" for name in names])
            for name in names:
                batch(name, ["link set lo up"])
                set_sysctls(name, self.sysctls)
            self.build()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def build(self) -> None:
        """Joins the nodes; a description of a testbed overrides it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for program in reversed(self.programs):
            end(program)
        # In order where it still runs: it writes how late its packets were.
        if self.emulator is not None and not self.emulator.child.has_ended():
            with contextlib.suppress(LabError):
                self.emulator.stop()
        self.session.__exit__(kind, error, trace)

    # ------------------------------------------------------------------------------------------------- network

    def ip(self, node: str, *lines: str) -> None:
        """Commands of iproute2 in a node's namespace."""
        batch(self.spaces[node], lines)

    def sysctl(self, node: str, name: str, value: str) -> None:
        """Sets one, where this kernel has it."""
        set_sysctls(self.spaces[node], {name: value})

    def address(self, node: str, device: str, *addresses: str) -> None:
        """Gives a device addresses and brings it up."""
        lines = [
            f"address add {one} dev {device}{' nodad' if ':' in one else ''}" for one in addresses
        ]
        self.ip(node, *lines, f"link set dev {device} up")

    def veth(self, one: str, other: str, device: str) -> None:
        """Joins two nodes by a pair of Ethernet devices of the same name."""
        a, b = self.spaces[one], self.spaces[other]
        batch(None, [f"link add {device} netns {a} type veth peer name {device} netns {b}"])

    def emulate(
        self, text: str, *options: str, nodes: Mapping[str, str] | None = None
    ) -> list[Device]:
        """Starts the emulator on a scenario, at time zero as yet; `nodes`: scenario's node → node of the testbed."""
        file = self.folder / "scenario.toml"
        file.write_text(text)
        nodes = nodes or {node: node for node in self.nodes}
        places = {name: self.spaces[node] for name, node in nodes.items()}
        self.emulator = Emulator(self.session, file, self.out, places, self.logs, options)
        return self.emulator.devices()

    def go(self) -> int:
        """Starts the emulator's clock, and waits for time zero: CLOCK_MONOTONIC, ns."""
        assert self.emulator is not None
        zero, _ = self.emulator.go()
        time.sleep(max(0.0, (zero - time.monotonic_ns()) / 1e9))
        return zero

    def summary(self) -> Event:
        """Stops the emulator: what it counted."""
        assert self.emulator is not None
        return self.emulator.stop()

    def losses(self) -> list[dict[str, Any]]:
        """Every packet loss that the emulator logged."""
        return [json.loads(line) for line in (self.out / "losses.jsonl").read_text().splitlines()]

    # ------------------------------------------------------------------------------------------------ programs

    def make_cgroup(self, node: str) -> Path:
        """Makes a cgroup that the node's programs enter from now on."""
        self.cgroups[node] = self.session.cgroup(node)
        return self.cgroups[node]

    def argv(self, node: str, *words: str, grouped: bool = True) -> list[str]:
        """A command line that runs in a node's namespace, and in its cgroup unless `grouped` is false."""
        group = self.cgroups.get(node) if grouped else None
        enter = [
            found("nsenter") or "nsenter",
            f"--net={janitor.NAMESPACES / self.spaces[node]}",
            "--",
        ]
        if group is None:
            return [*enter, *words]
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{group}/cgroup.procs", *enter, *words]

    def start(
        self, node: str, *words: str, grouped: bool = True, **options: Any
    ) -> subprocess.Popen[str]:
        """A program in a node; killed with the testbed."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        argv = self.argv(node, *words, grouped=grouped)
        program: subprocess.Popen[str] = subprocess.Popen(
            argv, text=True, env=self.session.environment, **(pipes | options)
        )
        self.programs.append(program)
        return program

    def ask(self, node: str, *words: str, timeout_s: float = TIMEOUT_S) -> str:
        """Output of a program that has to succeed."""
        return output(self.start(node, *words), timeout_s)

    def listens(self, node: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        """Returns when a program listens on a TCP port of the node."""
        listed = ("ss", "-Hltn", f"sport = :{port}")
        until(lambda: self.ask(node, *listed), timeout_s, every_s=0.05)

    @contextlib.contextmanager
    def capture(
        self, node: str, device: str, path: Path, *wanted: str, snap: int = 128
    ) -> Iterator[Path]:
        """What passes a device, in a file; `wanted` is a filter of tcpdump's."""
        options = ("-n", "-U", "--immediate-mode", "-B", "32768", "-Z", "root", "-s", str(snap))
        argv = ("tcpdump", "-i", device, *options, "-w", str(path), *wanted)
        dump = self.start(node, *argv, grouped=False)
        assert dump.stderr is not None
        lines = iter(dump.stderr.readline, "")
        assert any("listening on" in line for line in lines), f"tcpdump ended: {dump.wait()}"
        yield path
        time.sleep(CAPTURE_TAIL_S)
        dump.send_signal(signal.SIGINT)
        dump.communicate(timeout=TIMEOUT_S)

    # ------------------------------------------------------------------------------------------------ counters

    def counters(self, node: str) -> dict[str, int]:
        """/proc/net/snmp and netstat as one table: `TcpRetransSegs`, `TcpExtTCPTimeouts` …"""
        table: dict[str, int] = {}
        lines = self.ask(node, "cat", "/proc/net/snmp", "/proc/net/netstat").splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            group, *keys = names.split()
            pairs = zip(keys, values.split()[1:], strict=True)
            table |= {group.rstrip(":") + key: int(value) for key, value in pairs}
        return table

    def counter(self, node: str, name: str) -> int:
        """One counter of the kernel's TCP, UDP, IP or ICMP there."""
        return self.counters(node)[name]

    def device_losses(self, node: str) -> Counter[str]:
        """Drops and errors of all devices. `tx` of a TUN: its reader was late; `rx`: what it wrote was refused."""
        lost: Counter[str] = Counter()
        for link in json.loads(self.ask(node, "ip", "-j", "-s", "link", "show")):
            for direction, stats in link["stats64"].items():
                for what, count in stats.items():
                    if what not in ("bytes", "packets", "multicast"):
                        lost[f"device {direction} {what}"] += count
        return lost

    def congestion_controls(self, node: str, *wanted: str) -> set[str]:
        """Those of the node's TCP connections, by `ss`; `wanted` is a filter of its."""
        shown = self.ask(node, "ss", "-Htin", *wanted)
        return set(re.findall(r"^\s+(\w+) ", shown, re.MULTILINE)) - {"ESTAB"}


def until(
    happened: Callable[[], object], timeout_s: float = TIMEOUT_S, every_s: float = POLL_S
) -> float:
    """Waits for something that has to happen: how long it took, s."""
    begun = time.monotonic()
    while not happened():
        assert time.monotonic() - begun < timeout_s, f"did not happen within {timeout_s:g} s"
        time.sleep(every_s)
    return time.monotonic() - begun


def run(*argv: str, check: bool = True, timeout_s: float = TIMEOUT_S) -> str:
    """Output of a program outside of any testbed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0 or not check, f"{argv}: {done.stderr}"
    return done.stdout


def output(program: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> str:
    """Waits for a program that has to succeed: its output."""
    out, errors = program.communicate(timeout=timeout_s)
    assert program.returncode == 0, f"{program.args!r}: {errors} {out[-500:]}"
    return out


def end(program: subprocess.Popen[str]) -> None:
    """Kills a program that may still run, and closes its pipes."""
    if program.poll() is None:
        program.kill()
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
        program.communicate(timeout=TIMEOUT_S)


def quantile(values: Sequence[float], share: float) -> float:
    """Of values of which there is at least one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
