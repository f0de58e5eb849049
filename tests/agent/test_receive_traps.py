"""Traps of the kernel for a program that sets other programs' windows (docs/agent-traps.md), each
one tried."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from download import Agent, Download, rtts, scenario
from reader import Reader, Sender, right_edges
from requirements import unavailable

from unbloat.lab.instruments import Goodput
from unbloat.lab.testbed import TIMEOUT_S, end, quantile, run, until

pytestmark = pytest.mark.usefixtures("machine")
HERE = Path(__file__).resolve().parent
BASE_MS = 60.0
LINK = 7.72
"""What TCP carries of 8 Mbit/s, Mbit/s: 1,448 of 1,500 bytes."""


def test_a_connection_that_exists_already_is_treated_within_seconds(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=3") as agent:
        Sender(testbed)
        reader = Reader(testbed)
        # The queue is there before the agent comes.
        until(lambda: testbed.rtt_now() > 400)
        agent.serve()
        until(lambda: "downloads: attached to" in agent.log(), 10)
        # The handshake's RTT is the socket's smallest: that of the empty path, although the queue
        # stands.
        until(lambda: testbed.rtt_now() < 3.3 * BASE_MS, 30)
        begun, before = time.monotonic(), reader.bytes()
        assert testbed.rtt_now() == pytest.approx(3 * BASE_MS, rel=0.2)
        time.sleep(3)
        assert (reader.bytes() - before) * 8e-6 / (time.monotonic() - begun) > 0.9 * LINK


def test_a_latecomer_knows_the_empty_path_from_the_flow_before_it(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=3") as agent:
        testbed.iperf_server()
        testbed.iperf_server(5202)
        agent.serve()
        ping, first = testbed.ping(20), testbed.download(20)
        time.sleep(6)
        second = testbed.download(13, port=5202)
        time.sleep(8)
        flows = [flow for flow in agent.status()["flows"] if flow["bytes"] > 200_000]
        one, two = Goodput.of(first), Goodput.of(second)
        found = rtts(ping, after_s=12)
        assert len(flows) == 2
        assert all(flow["rtt_min_ms"] == pytest.approx(BASE_MS, rel=0.1) for flow in flows), flows
        assert quantile(found, 0.5) < 4 * BASE_MS, "the queue is that of λ, not of λ²"
        both = [a + b for a, b in zip(one.seconds[11:18], two.seconds[5:12], strict=True)]
        assert min(both) > 0.85 * LINK


def test_windows_are_found_without_timestamps(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=3") as agent:
        for space in ("host", "server"):
            testbed.ask(space, "sysctl", "-qw", "net.ipv4.tcp_timestamps=0")
        testbed.iperf_server()
        agent.serve()
        ping, download = testbed.ping(12), testbed.download(12)
        goodput, found = Goodput.of(download), rtts(ping)
        assert quantile(found, 0.5) == pytest.approx(3 * BASE_MS, rel=0.2)
        assert goodput.mean >= 0.99 * LINK


def test_the_clamp_comes_back_whenever_autotuning_moves_it(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=3") as agent:
        Sender(testbed)
        agent.serve()
        reader = Reader(testbed)
        time.sleep(6)
        wanted = agent.status()["flows"][0]["wanted_bytes"]
        assert reader.clamp() == pytest.approx(wanted, rel=0.2)
        # A smaller λ leaves the kernel with more buffer than it needs, a larger one makes it grow the buffer and move the clamp.
        agent.set("receive.lambda=6")
        until(lambda: agent.status()["cures"]["receive"]["reapplied"] > 0, 20)
        time.sleep(2)
        status = agent.status()
        assert status["cures"]["receive"]["refused"] == 0
        assert reader.clamp() == pytest.approx(status["flows"][0]["wanted_bytes"], rel=0.2)


@pytest.mark.parametrize("shrink", [False, True])
def test_the_right_edge_of_the_window_never_moves_back(tmp_path: Path, shrink: bool) -> None:
    """But where an administrator has allowed the kernel to take windows back, it does; no byte may be lost by that."""
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=6") as agent:
        testbed.ask("host", "sysctl", "-qw", f"net.ipv4.tcp_shrink_window={int(shrink)}")
        sender = Sender(testbed)
        agent.serve()
        with testbed.captured() as capture:
            reader = Reader(testbed)
            time.sleep(3)
            # Down and up, in mid-flow.
            for factor in ("1.5", "4", "1", "3"):
                agent.set(f"receive.lambda={factor}")
                time.sleep(1.5)
            assert reader.bytes() > 4_000_000
        sender.end()
        assert reader.ask("sum") == sender.sum()
        assert testbed.ask("host", "sysctl", "-n", "net.ipv4.tcp_shrink_window").strip() == str(
            int(shrink)
        )
        edges = right_edges(capture, 5301)
        assert len(edges) > 1_000
        # A window is a multiple of the scale's unit; rounding is not retraction.
        back = [a - b for a, b in itertools.pairwise(edges) if b < a]
        if not shrink:
            assert not back, (
                f"RFC 9293 section 3.8.6.2.1: {len(back)} of {len(edges)}, at most {max(back)}"
            )
        # The callback is only the moment: no option is added to what is sent. 20 bytes, timestamps, blocks of SACK.
        fields = ("-T", "fields", "-e", "tcp.hdr_len", "-e", "tcp.options.sack.count")
        where = (
            "tcp.dstport == 5301 && tcp.flags.syn == 0 && tcp.len == 0 && !tcp.options.sack.count"
        )
        lengths = set(run("tshark", "-r", str(capture), "-Y", where, *fields).split())
        assert lengths == {"32"}


def test_a_clamp_of_the_application_is_not_exceeded_and_comes_back(tmp_path: Path) -> None:
    own = 40_000
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=6") as agent:
        Sender(testbed)
        # A locked buffer: else autotuning takes the application's clamp away by itself.
        reader = Reader(testbed, setup="s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 400_000)")
        # The kernel takes it away once more when it has learnt how full segments are.
        time.sleep(2)
        reader.ask(f"set {own}")
        agent.serve()
        until(lambda: any(flow["wanted_bytes"] > own for flow in agent.status()["flows"]))
        assert reader.clamp() == own
        agent.do("off")
        assert reader.clamp() == own


def test_a_socket_stays_in_the_cgroup_in_which_it_was_made(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=1.5") as agent:
        Sender(testbed)
        ours, theirs = Reader(testbed), Reader(testbed, inside=False)
        until(lambda: min(ours.bytes(), theirs.bytes()) > 100_000)
        # Both processes change places; neither of the sockets does.
        elsewhere = testbed.cgroup.parent
        (testbed.cgroup / "cgroup.procs").write_text(str(theirs.process.pid))
        (elsewhere / "cgroup.procs").write_text(str(ours.process.pid))
        agent.serve()
        until(lambda: ours.clamp() < 150_000)
        time.sleep(3)
        (flow,) = agent.status()["flows"]
        assert flow["bytes"] <= ours.bytes()
        assert theirs.clamp() > 2 * ours.clamp()


@contextmanager
def another(
    testbed: Download, source: str = "another", cgroup: Path | None = None
) -> Iterator[Path]:
    """Another program on the testbed's sockets, or on those of a cgroup; where its maps are. The usual one sets and
    counts callbacks of its own."""
    clang = shutil.which("clang-14") or shutil.which("clang")
    if clang is None or shutil.which("bpftool") is None or not Path("/usr/include/bpf").exists():
        unavailable(
            "clang", "clang, libbpf's headers and bpftool make another program on the same sockets"
        )
    compiled, pins = (
        testbed.folder / f"{source}.bpf.o",
        Path("/sys/fs/bpf") / f"{testbed.name}-{source}",
    )
    include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    options = ("-O2", "-g", "-target", "bpf", include, "-c", str(HERE / f"{source}.bpf.c"))
    run(clang, *options, "-o", str(compiled))
    pins.mkdir()
    try:
        run("bpftool", "prog", "load", str(compiled), str(pins / "program"), "pinmaps", str(pins))
        place = (str(cgroup or testbed.cgroup), "sock_ops", "pinned", str(pins / "program"))
        run("bpftool", "cgroup", "attach", *place, "multi")
        try:
            yield pins
        finally:
            run("bpftool", "cgroup", "detach", *place)
    finally:
        shutil.rmtree(pins)


def counted(pins: Path) -> int:
    """How often the other program was called for an RTT."""
    said = run("bpftool", "-j", "map", "dump", "pinned", str(pins / "calls"))
    return sum(int(value) for value in re.findall(r'"value":\s*(\d+)', said))


def test_flags_that_another_program_replaced_are_set_again(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=3") as agent:
        Sender(testbed)
        agent.serve()
        with another(testbed):
            reader = Reader(testbed)
            said = r"another sock_ops program had replaced the callback flags of \d+ connection"
            # A walk over a host's many namespaces is repeated the more rarely.
            until(lambda: re.search(said, agent.log()) is not None, 2 * TIMEOUT_S)
            until(lambda: 0 < reader.clamp() < 300_000)
            # What stands in the queue by then drains.
            time.sleep(6)
            assert quantile(rtts(testbed.ping(3), after_s=0), 0.5) == pytest.approx(180, rel=0.15)


def test_flags_of_another_program_stay_while_the_agent_comes_and_goes(tmp_path: Path) -> None:
    # An uplink on which RTT is measured often: its callback comes once a round trip.
    fast = scenario(up="20 Mbit/s")
    with (
        Download(tmp_path, fast) as testbed,
        Agent(testbed, "receive.lambda=3") as agent,
        another(testbed) as pins,
    ):
        for port in (5201, 5202):
            testbed.iperf_server(port)

        def upload(port: int) -> subprocess.Popen[str]:
            # Its own data has to be acknowledged for that callback.
            return testbed.start(
                "host", "iperf3", "-c", "10.0.0.2", "-p", f"{port}", "-t", "60", "-C", "cubic"
            )

        def called() -> None:
            before = counted(pins)
            until(lambda: counted(pins) > before + 5)

        old = upload(5201)
        called()
        agent.serve()
        called()
        assert old.poll() is None
        end(old)
        # One that begins under both: the agent's program sets its flag after the other has set its own.
        new = upload(5202)
        called()
        agent.do("off")
        called()
        assert new.poll() is None
