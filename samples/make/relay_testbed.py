"""A phone and a server joined by the relay, with captures and kernel counters at both ends.

A scenario says what the relay does to packets, what the kernels are set to, and which programs make traffic. A run leaves
`phone.pcap`, `server.pcap`, `relay.log`, `counters.json`, `sockets.json`, `traffic.json`.

The kernel's counters are read inside the namespaces before and after, `ss` twice a second. A capture that lost packets
and a TUN device that dropped some make the run fail: the relay's log would not be the truth.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from unbloat.lab.testbed import Testbed, run

HERE = Path(__file__).resolve().parent
PHONE, SERVER = "10.77.0.1", "10.77.0.2"
PHONE6, SERVER6 = "fd77::1", "fd77::2"
DEVICE = "rmnet0"
SNAP = 128  # bytes: IPv6 and TCP headers with all options are 100
# A program that listens may take seconds to begin on a busy machine; a refused connection would be in the capture.
LISTEN_TIMEOUT_S = 15.0
# Set in both namespaces unless the scenario says otherwise; the host's own values would decide the result.
SYSCTLS = {
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 8388608",
    "net.ipv4.tcp_no_metrics_save": "1",
}
# All IP packets but router solicitations (ICMPv6 type 133) and multicast reports, which are ICMPv6 of
# type 143, mostly behind a hop-by-hop header (next header 0). Byte 40 is a port in TCP: the next
# header is asked first.
WANTED = "ip or (ip6 and ip6[6]!=0 and not (ip6[6]=58 and (ip6[40]=133 or ip6[40]=143)))"


class RunError(RuntimeError):
    """The testbed could not be built, or the run's truth is in doubt."""


@dataclass(frozen=True)
class Traffic:
    """One program of a scenario: where it runs, what, and whether the run waits for its end."""

    host: str  # phone or server
    argv: tuple[str, ...]
    start_s: float = 0.0
    awaited: bool = True
    listens: int = 0  # the TCP port that it must have opened before anything else starts


@dataclass(frozen=True)
class Scenario:
    """What to build and what to send through it."""

    name: str
    about: str
    up: str
    down: str
    traffic: tuple[Traffic, ...]
    seconds: float  # upper bound of the whole run
    sysctls: dict[str, dict[str, str]] = field(
        default_factory=dict
    )  # phone or server → key → value
    veth: bool = False  # a veth pair with segmentation offload instead of the relay
    snap: int = SNAP


def missing_tools() -> str | None:
    """Why nothing can be run here, or None."""
    if os.geteuid() != 0:
        return "namespaces and TUN devices need root"
    for tool in ("ip", "ss", "tcpdump", "nsenter", "gcc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing"
    # root in a container often may not: try
    name = f"ub-try-{os.getpid()}-{os.urandom(2).hex()}"
    try:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "tuntap", "add", DEVICE, "mode", "tun")
    except AssertionError as refused:
        return f"no namespace can be made: {refused}"
    finally:
        with suppress(AssertionError):
            run("ip", "netns", "del", name, check=False)
    return None


def build_relay(into: Path) -> Path:
    """Compile the relay once per directory."""
    program = into / "relay"
    if not program.exists():
        into.mkdir(parents=True, exist_ok=True)
        command = [
            "gcc",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            str(program),
            str(HERE / "relay.c"),
        ]
        subprocess.run(command, check=True)
    return program


class RelayTestbed(Testbed):
    """Nodes `phone` and `server`, with a device each."""

    def __init__(self, scenario: Scenario, into: Path, tools: Path) -> None:
        super().__init__(into, "phone", "server", sysctls=SYSCTLS)
        self.scenario, self.tools = scenario, tools
        self.relay: subprocess.Popen[str] | None = None

    def build(self) -> None:
        """The relay between TUN devices, or a veth pair; addresses; the scenario's settings."""
        if self.scenario.veth:
            self.veth("phone", "server", DEVICE)
        else:
            self._start_relay()
        for node, own, own6 in (("phone", PHONE, PHONE6), ("server", SERVER, SERVER6)):
            # Duplicate address detection would stand in the captures.
            for name in ("all", DEVICE):
                self.sysctl(node, f"net.ipv6.conf.{name}.accept_dad", "0")
            self.address(node, DEVICE, f"{own}/24", f"{own6}/64")
            # A short device queue would drop behind the relay's back.
            self.ip(node, f"link set {DEVICE} txqueuelen 20000")
            for name, value in self.scenario.sysctls.get(node, {}).items():
                self.sysctl(node, name, value)

    def _start_relay(self) -> None:
        for node in self.nodes:
            self.ask(node, "ip", "tuntap", "add", DEVICE, "mode", "tun")
        phone, server = (f"{self.spaces[node]}:{DEVICE}" for node in self.nodes)
        argv = [str(build_relay(self.tools)), phone, server, str(self.folder / "relay.log")]
        argv += [str(self.scenario.seconds + 10)]
        argv += [f"up:{self.scenario.up}", f"down:{self.scenario.down}"]
        environment = self.session.environment
        self.relay = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)
        self.programs.append(self.relay)
        assert self.relay.stdout is not None  # asked for above
        if self.relay.stdout.readline() != "ready\n":
            raise RunError("the relay did not start")

    def all_counters(self, node: str) -> dict[str, int]:
        """The kernel's, and the packets that the device itself dropped."""
        link = json.loads(self.ask(node, "ip", "-s", "-j", "link", "show", DEVICE))[0]["stats64"]
        dropped = {f"device_{way}_dropped": int(link[way]["dropped"]) for way in ("rx", "tx")}
        return self.counters(node) | dropped


class Watcher(threading.Thread):
    """`ss` twice a second; the last line of every connection survives its end."""

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(daemon=True)
        self.testbed, self.over = testbed, threading.Event()
        self.last: dict[str, dict[str, str]] = {node: {} for node in testbed.nodes}

    def look(self) -> None:
        for node, last in self.last.items():
            argv = self.testbed.argv(node, "ss", "-tinmOH", "state", "connected")
            # state, queues, then both ends
            for line in run(*argv, check=False).splitlines():
                words = line.split()
                last[f"{words[3]} {words[4]}"] = line

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.look()


def capture(testbed: Testbed, node: str, to: Path, snap: int) -> subprocess.Popen[str]:
    """Start tcpdump and wait until it listens."""
    options = ("-s", str(snap), "-B", "65536", "-n", "-Z", "root", "--immediate-mode")
    process = testbed.start(node, "tcpdump", "-i", DEVICE, *options, "-w", str(to), WANTED)
    assert process.stderr is not None  # a pipe
    while "listening on" not in (line := process.stderr.readline()):
        if not line:
            raise RunError(f"tcpdump did not start on {node}")
    return process


def capture_losses(process: subprocess.Popen[str]) -> int:
    """End tcpdump and return how many packets it lost, those that it had not fetched yet included."""
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=20)
    found = {
        name: int(n) for n, name in re.findall(r"(\d+) packets? (captured|received|dropped)", text)
    }
    if found.keys() != {"captured", "received", "dropped"}:
        raise RunError(f"tcpdump did not say what it lost: {text.strip()}")
    return found["dropped"] + found["received"] - found["captured"]


def run_scenario(scenario: Scenario, into: Path, tools: Path) -> Path:
    """Run one scenario; returns the directory with the results."""
    into.mkdir(parents=True, exist_ok=True)
    with RelayTestbed(scenario, into, tools) as testbed:
        captures = {
            node: capture(testbed, node, into / f"{node}.pcap", scenario.snap)
            for node in testbed.nodes
        }
        before = {node: testbed.all_counters(node) for node in testbed.nodes}
        watcher = Watcher(testbed)
        watcher.start()
        try:
            if testbed.relay is not None:
                testbed.relay.send_signal(signal.SIGUSR1)
            results = play(scenario, testbed)
        finally:
            watcher.over.set()
            watcher.join(5)
        after = {node: testbed.all_counters(node) for node in testbed.nodes}
        drops = {node: capture_losses(process) for node, process in captures.items()}
        if testbed.relay is not None:
            testbed.relay.terminate()
            if testbed.relay.wait(5) != 0:
                raise RunError(f"the relay ended with {testbed.relay.returncode}")
    for node, counted in after.items():
        lost = {
            key: counted[key] - before[node][key]
            for key in ("device_rx_dropped", "device_tx_dropped")
        }
        if drops[node] or any(lost.values()):
            raise RunError(
                f"{scenario.name}: {node} lost packets outside the relay: tcpdump {drops[node]}, {lost}"
            )
    grown = {
        n: {k: v - before[n].get(k, 0) for k, v in after[n].items() if v != before[n].get(k, 0)}
        for n in after
    }
    (into / "counters.json").write_text(json.dumps(grown, indent=1))
    (into / "sockets.json").write_text(json.dumps(watcher.last, indent=1))
    (into / "traffic.json").write_text(json.dumps(results, indent=1))
    return into


def play(scenario: Scenario, testbed: Testbed) -> list[dict[str, object]]:
    """Start the programs in time, wait for the awaited ones, return what each of them reported."""
    zero = time.monotonic()
    running: list[tuple[Traffic, subprocess.Popen[str]]] = []
    for traffic in sorted(scenario.traffic, key=lambda t: t.start_s):
        time.sleep(max(0.0, zero + traffic.start_s - time.monotonic()))
        running.append((traffic, testbed.start(traffic.host, *traffic.argv, stderr=None)))
        if traffic.listens:
            try:
                testbed.listens(traffic.host, traffic.listens, LISTEN_TIMEOUT_S)
            except AssertionError as late:
                raise RunError(f"port {traffic.listens} of {traffic.host}: {late}") from late
        if not traffic.awaited and traffic.start_s == 0.0:
            time.sleep(0.2)  # let the listener bind
    deadline = zero + scenario.seconds
    results: list[dict[str, object]] = []
    for traffic, process in sorted(running, key=lambda pair: not pair[0].awaited):
        what = f"{scenario.name}: {' '.join(traffic.argv)}"
        if not traffic.awaited and process.poll() is None:
            process.terminate()
        try:
            left = max(0.1, deadline - time.monotonic()) if traffic.awaited else 5.0
            out, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired as late:
            raise RunError(f"{what} did not end in time") from late
        if traffic.awaited and process.returncode != 0:
            raise RunError(f"{what} ended with {process.returncode}: {out}")
        report = json.loads(out) if out.startswith("{") else {"text": out}
        results.append({"host": traffic.host, "argv": list(traffic.argv), "report": report})
    return results


def stop_on_signals() -> None:
    """Ctrl-C, TERM and HUP become exceptions, so that every namespace goes."""

    def stop(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
