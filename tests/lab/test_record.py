"""`unbloat record FILE` on a bloated path: the capture that it leaves shows the queue, and so does its ping.

client ── router ── server. The router's queue towards the server is long; the capture is taken at the client.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import require

from unbloat import analyze
from unbloat.lab.testbed import Testbed

SERVER = "10.9.2.2"
PORT = 5300
SINK = f"""
import socket
with socket.create_server(("0.0.0.0", {PORT})) as listening:
    peer, _ = listening.accept()
    while peer.recv(1 << 16):
        pass
"""
UPLOAD = f"""
import socket, time
end = time.monotonic() + 10
with socket.create_connection(("{SERVER}", {PORT})) as peer:
    # CUBIC's HyStart would leave slow start before the queue is long; Reno fills it at once.
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    while time.monotonic() < end:
        peer.sendall(bytes(1 << 14))
    peer.close()
"""


class Path3(Testbed):
    """Three nodes in a row; 4 Mbit/s and a queue of 400 kB, 0.8 s, from the router to the server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "client", "router", "server", sysctls={"net.ipv4.ip_forward": "1"})

    def build(self) -> None:
        """Addresses, routes, the queue."""
        self.veth("client", "router", "near")
        self.veth("router", "server", "far")
        self.address("client", "near", "10.9.1.1/24")
        self.address("router", "near", "10.9.1.2/24")
        self.address("router", "far", "10.9.2.1/24")
        self.address("server", "far", f"{SERVER}/24")
        self.ip("client", "route add default via 10.9.1.2")
        self.ip("server", "route add default via 10.9.2.1")
        bucket = ("tbf", "rate", "4mbit", "burst", "3000", "limit", "400000")
        self.ask("router", "tc", "qdisc", "add", "dev", "far", "root", *bucket)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path3]:
    require("root", "ip", "nsenter", "tcpdump", "ping", "tc", "ss")
    with Path3(tmp_path_factory.mktemp("path")) as made:
        yield made


def recording(path: Path3, *words: str) -> subprocess.Popen[str]:
    """The command, on the client."""
    return path.start("client", sys.executable, "-m", "unbloat", "record", *words)


def says(program: subprocess.Popen[str], wanted: str) -> str:
    """The line on standard error that holds these words."""
    assert program.stderr is not None
    for line in iter(program.stderr.readline, ""):
        if wanted in line:
            return line
    raise AssertionError(f"never said {wanted!r}; ended with {program.wait()}")


def test_a_recording_shows_the_queue_in_capture_and_ping(path: Path3, tmp_path: Path) -> None:
    file = tmp_path / "lag.pcap"
    sink = path.start("server", sys.executable, "-c", SINK)
    path.listens("server", PORT)
    program = recording(path, str(file), "--for", "18s", "--ping", SERVER)
    assert "near" in says(program, "recording")  # found by the route
    says(program, "now start")
    path.ask("client", sys.executable, "-c", UPLOAD, timeout_s=60)
    printed, _ = program.communicate(timeout=60)
    assert program.returncode == 0
    assert sink.wait(10) == 0

    # The figures of the ping take two lines where the full queue dropped some.
    first, *paragraph, last = printed.splitlines()
    ping = " ".join(paragraph)
    assert "few packets" not in ping
    assert first.startswith(f"{file}: ")
    assert "none dropped" in first
    assert last == f"next: unbloat analyze {file} --report lag.html"
    assert ping.startswith("ping: ")
    assert "before the transfer" in ping
    assert "medians" in ping
    # 400 kB at 4 Mbit/s are 0.8 s. Before the transfer there are two veth pairs and nothing else.
    before, during = (part.strip() for part in ping.removeprefix("ping: ").split(",")[:2])
    assert (before.split()[1], during.split()[1]) == ("ms", "ms"), ping
    assert float(before.split()[0]) < 50, ping
    assert 300 < float(during.split()[0]) < 1000, ping

    run = analyze(file)
    assert {"tcp", "icmp"} <= set(run.connections.column("proto").to_pylist())
    assert run.main_flow is not None
    flow = run.flow(run.main_flow)
    assert flow["grade"] in ("D", "F")
    assert flow["queue_ms_p95"] > 300
    assert flow["bytes"] > 2_000_000
    assert run.connection(flow["connection"])["syn_seen"]


def test_an_interrupt_ends_a_recording_with_what_was_captured(path: Path3, tmp_path: Path) -> None:
    file = tmp_path / "short.pcap"
    program = recording(path, str(file), "--for", "60s", "--ping", SERVER)
    says(program, "recording")
    time.sleep(2)
    program.send_signal(signal.SIGINT)
    printed, _ = program.communicate(timeout=20)
    assert program.returncode == 0
    assert "did not begin" in printed
    assert "few packets" in printed
    assert analyze(file).info["packets"] > 4


def test_nothing_is_left_running_where_the_program_is_killed(path: Path3, tmp_path: Path) -> None:
    file = tmp_path / "killed.pcap"
    program = recording(path, str(file), "--for", "60s", "--ping", SERVER)
    says(program, "recording")
    time.sleep(1)
    program.kill()
    program.wait(5)
    deadline = time.monotonic() + 5
    while children(path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert children(path) == []


def children(path: Path3) -> list[str]:
    """Captures and pings in the client's namespace."""
    own = path.ask("client", "readlink", "/proc/self/ns/net").strip()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            name = (process / "comm").read_text().strip()
            if name in ("tcpdump", "ping") and os.readlink(process / "ns/net") == own:
                found.append(name)
        except OSError:  # it has ended meanwhile
            continue
    return found


def test_what_cannot_be_recorded_leaves_no_file(path: Path3, tmp_path: Path) -> None:
    for words, reason in (
        (("--ping", "no-such-host.invalid"), "--ping no-such-host.invalid"),
        (("--ping", "192.0.2.1", "--interface", "none0"), "none0"),
    ):
        file = tmp_path / "none.pcap"
        program = recording(path, str(file), *words)
        _, errors = program.communicate(timeout=30)
        assert program.returncode == 2
        assert reason in errors
        assert not file.exists()
