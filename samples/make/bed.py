"""A phone and a server, as network namespaces joined by the relay, with captures and kernel counters at both ends.

signal: a scenario (relay arguments, sysctls, traffic)
model:  two namespaces, one TUN device each, `relay` between them; names are unique per run, so runs go side by side
action: runs the traffic, leaves `phone.pcap`, `server.pcap`, `relay.log`, `counters.json`, `sockets.json`, `traffic.json`

The kernel's counters are read inside the namespaces before and after, `ss` twice a second. A capture that lost packets
and a TUN device that dropped some make the run fail: the truth log would not be the truth.
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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
PHONE, SERVER = "10.77.0.1", "10.77.0.2"
PHONE6, SERVER6 = "fd77::1", "fd77::2"
SNAP = 128  # bytes: IPv6 and TCP headers with all options are 100
# Set in both namespaces unless the scenario says otherwise; the host's own values would decide the result.
SYSCTLS = {
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 8388608",
    "net.ipv4.tcp_no_metrics_save": "1",
}


class BedError(RuntimeError):
    """The bed could not be built, or the run's truth is in doubt."""


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
    """Why a bed cannot be built here, or None."""
    if os.geteuid() != 0:
        return "namespaces and TUN devices need root"
    for tool in ("ip", "ss", "tcpdump", "gcc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing"
    # root in a container often may not: try
    name = f"ub-{os.getpid()}-{os.urandom(2).hex()}-phone"
    try:
        sh("ip", "netns", "add", name)
        sh("ip", "netns", "exec", name, "ip", "tuntap", "add", "rmnet0", "mode", "tun")
    except BedError as refused:
        return f"no namespace can be made: {refused}"
    finally:
        with suppress(BedError):
            sh("ip", "netns", "del", name, check=False)
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


def sh(*argv: str, check: bool = True) -> str:
    """Run a command, return what it printed."""
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired as late:
        raise BedError(f"{' '.join(argv)}: no answer within 30 s") from late
    if check and done.returncode != 0:
        raise BedError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def end(process: subprocess.Popen[str], grace_s: float = 5.0) -> None:
    """End a program that this run started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Host:
    """One namespace."""

    def __init__(self, name: str, tag: str) -> None:
        self.name = name
        self.ns = f"ub-{tag}-{name}"

    def run(self, *argv: str, check: bool = True) -> str:
        return sh("ip", "netns", "exec", self.ns, *argv, check=check)

    def start(self, *argv: str, stderr: int | None = None) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", self.ns, *argv]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True
        )

    def counters(self) -> dict[str, int]:
        """/proc/net/snmp and netstat as one table: `TcpRetransSegs`, `TcpExtTCPTimeouts` …"""
        table: dict[str, int] = {}
        lines = self.run("cat", "/proc/net/snmp", "/proc/net/netstat").splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            prefix, *keys = names.split()
            table |= {
                prefix.rstrip(":") + key: int(v)
                for key, v in zip(keys, values.split()[1:], strict=True)
            }
        return table

    def lost(self, device: str) -> dict[str, int]:
        """Packets that the device itself dropped."""
        stats = json.loads(self.run("ip", "-s", "-j", "link", "show", device))[0]["stats64"]
        return {f"device_{way}_dropped": int(stats[way]["dropped"]) for way in ("rx", "tx")}


@contextmanager
def namespaces(tag: str) -> Iterator[tuple[Host, Host]]:
    """Both namespaces; gone again whatever happens."""
    phone, server = Host("phone", tag), Host("server", tag)
    with ExitStack() as stack:
        for host in (phone, server):
            sh("ip", "netns", "add", host.ns)
            stack.callback(sh, "ip", "netns", "del", host.ns, check=False)
            host.run("ip", "link", "set", "lo", "up")
        yield phone, server


def sweep() -> None:
    """Remove the namespaces of runs that were killed before they could: their process is gone."""
    for line in sh("ip", "netns").splitlines():
        found = re.fullmatch(r"(ub-(\d+)-[0-9a-f]{4}-(?:phone|server))(?: .*)?", line)
        if found and not Path(f"/proc/{found[2]}").exists():
            sh("ip", "netns", "del", found[1], check=False)


def address(host: Host, device: str) -> None:
    """Give the device its addresses and bring it up."""
    own, own6 = (PHONE, PHONE6) if host.name == "phone" else (SERVER, SERVER6)
    host.run(
        "sysctl",
        "-qw",
        "net.ipv6.conf.all.accept_dad=0",
        f"net.ipv6.conf.{device}.accept_dad=0",
        check=False,
    )
    host.run("ip", "addr", "add", f"{own}/24", "dev", device)
    host.run("ip", "-6", "addr", "add", f"{own6}/64", "dev", device, "nodad")
    # A short device queue would drop behind the relay's back.
    host.run("ip", "link", "set", device, "up", "txqueuelen", "20000")


class Watcher(threading.Thread):
    """`ss` twice a second; the last line of every connection survives its end."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        super().__init__(daemon=True)
        self.hosts, self.over = hosts, threading.Event()
        self.last: dict[str, dict[str, str]] = {host.name: {} for host in hosts}

    def look(self) -> None:
        for host in self.hosts:
            lines = host.run("ss", "-tinmOH", "state", "connected", check=False).splitlines()
            for line in lines:
                words = line.split()
                # state, queues, then both ends
                self.last[host.name][f"{words[3]} {words[4]}"] = line

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.look()


def capture(host: Host, device: str, to: Path, snap: int) -> subprocess.Popen[str]:
    """Start tcpdump and wait until it listens."""
    process = host.start(
        *(
            "tcpdump",
            "-i",
            device,
            "-s",
            str(snap),
            "-B",
            "65536",
            "-n",
            "-Z",
            "root",
            "--immediate-mode",
            "-w",
            str(to),
        ),
        *(
            "ip",
            "or",
            "(ip6",
            "and",
            "not",
            "ip6[40]=133",
            "and",
            "not",
            "ip6[40]=143",
            "and",
            "not",
            "ip6[40]=0)",
        ),
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None  # asked for in start()
    while "listening on" not in (line := process.stderr.readline()):
        if not line:
            raise BedError(f"tcpdump did not start on {host.name}")
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
        raise BedError(f"tcpdump did not say what it lost: {text.strip()}")
    return found["dropped"] + found["received"] - found["captured"]


def run(scenario: Scenario, into: Path, tools: Path) -> Path:
    """Run one scenario; returns the directory with the results."""
    into.mkdir(parents=True, exist_ok=True)
    sweep()
    tag = f"{os.getpid()}-{os.urandom(2).hex()}"
    with ExitStack() as stack:
        phone, server = stack.enter_context(namespaces(tag))
        hosts = {"phone": phone, "server": server}
        relay: subprocess.Popen[str] | None = None
        device = "rmnet0"
        if scenario.veth:
            sh(
                "ip",
                "link",
                "add",
                device,
                "netns",
                phone.ns,
                "type",
                "veth",
                "peer",
                "name",
                device,
                "netns",
                server.ns,
            )
        else:
            for host in hosts.values():
                host.run("ip", "tuntap", "add", device, "mode", "tun")
            argv = [
                str(build_relay(tools)),
                f"{phone.ns}:{device}",
                f"{server.ns}:{device}",
                str(into / "relay.log"),
            ]
            argv += [str(scenario.seconds + 10), f"up:{scenario.up}", f"down:{scenario.down}"]
            relay = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            stack.callback(end, relay)
            assert relay.stdout is not None  # asked for above
            if relay.stdout.readline() != "ready\n":
                raise BedError("the relay did not start")
        for host in hosts.values():
            address(host, device)
            for key, value in {**SYSCTLS, **scenario.sysctls.get(host.name, {})}.items():
                host.run("sysctl", "-qw", f"{key}={value}")
        captures = {
            name: capture(host, device, into / f"{name}.pcap", scenario.snap)
            for name, host in hosts.items()
        }
        for process in captures.values():
            stack.callback(end, process)
        before = {name: host.counters() | host.lost(device) for name, host in hosts.items()}
        watcher = Watcher(list(hosts.values()))
        stack.callback(watcher.over.set)
        watcher.start()
        if relay is not None:
            relay.send_signal(signal.SIGUSR1)
        results = play(scenario, hosts, stack)
        watcher.over.set()
        watcher.join(5)
        after = {name: host.counters() | host.lost(device) for name, host in hosts.items()}
        drops = {name: capture_losses(process) for name, process in captures.items()}
        if relay is not None:
            end(relay)
            if relay.returncode != 0:
                raise BedError(f"the relay ended with {relay.returncode}")
    for name in hosts:
        lost = {
            key: after[name][key] - before[name][key]
            for key in ("device_rx_dropped", "device_tx_dropped")
        }
        if drops[name] or any(lost.values()):
            raise BedError(
                f"{scenario.name}: {name} lost packets outside the relay: tcpdump {drops[name]}, {lost}"
            )
    grown = {
        n: {k: v - before[n].get(k, 0) for k, v in after[n].items() if v != before[n].get(k, 0)}
        for n in hosts
    }
    (into / "counters.json").write_text(json.dumps(grown, indent=1))
    (into / "sockets.json").write_text(json.dumps(watcher.last, indent=1))
    (into / "traffic.json").write_text(json.dumps(results, indent=1))
    return into


def wait_for_listener(host: Host, port: int, patience_s: float = 15.0) -> None:
    """A program may take seconds to begin on a busy machine, and a refused connection would be in the capture."""
    until = time.monotonic() + patience_s
    while not host.run("ss", "-Hltn", f"sport = :{port}"):
        if time.monotonic() > until:
            raise BedError(f"nobody listens on {host.name}, port {port}")
        time.sleep(0.05)


def play(scenario: Scenario, hosts: dict[str, Host], stack: ExitStack) -> list[dict[str, object]]:
    """Start the programs in time, wait for the awaited ones, return what each of them reported."""
    zero = time.monotonic()
    running: list[tuple[Traffic, subprocess.Popen[str]]] = []
    for traffic in sorted(scenario.traffic, key=lambda t: t.start_s):
        time.sleep(max(0.0, zero + traffic.start_s - time.monotonic()))
        process = hosts[traffic.host].start(*traffic.argv)
        stack.callback(end, process)
        running.append((traffic, process))
        if traffic.listens:
            wait_for_listener(hosts[traffic.host], traffic.listens)
        if not traffic.awaited and traffic.start_s == 0.0:
            time.sleep(0.2)  # let the listener bind
    deadline = zero + scenario.seconds
    results: list[dict[str, object]] = []
    for traffic, process in sorted(running, key=lambda pair: not pair[0].awaited):
        if not traffic.awaited:
            end(process)
        try:
            out, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as late:
            raise BedError(
                f"{scenario.name}: {' '.join(traffic.argv)} did not end in time"
            ) from late
        if traffic.awaited and process.returncode != 0:
            raise BedError(
                f"{scenario.name}: {' '.join(traffic.argv)} ended with {process.returncode}: {out}"
            )
        report = json.loads(out) if out.startswith("{") else {"text": out}
        results.append({"host": traffic.host, "argv": list(traffic.argv), "report": report})
    return results


def stop_on_signals() -> None:
    """Ctrl-C, TERM and HUP become exceptions, so that every namespace goes."""

    def stop(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
