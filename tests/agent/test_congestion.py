"""Congestion control by cgroup, beside that by destination, on connections that run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from download import Agent, Download

from unbloat.lab.testbed import end, until

pytestmark = pytest.mark.usefixtures("machine")


@contextlib.contextmanager
def uploads(testbed: Download, group: Path) -> Iterator[None]:
    """One from a cgroup (port 5201), one from the testbed's own (port 5202), both with cubic; iperf3's other connections are the host's."""
    group.mkdir()
    for port in (5201, 5202):
        testbed.iperf_server(port)
    client = ("iperf3", "-c", "10.0.0.2", "-t", "60", "-C", "cubic", "-p")
    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    argv = ["sh", "-c", enter, "sh", "ip", "netns", "exec", testbed.spaces["host"], *client, "5201"]
    inside = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    testbed.start("host", *client, "5202")
    try:
        time.sleep(2)
        yield
    finally:
        end(inside)
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def test_a_cgroup_has_its_own_congestion_control_and_gives_it_back(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed:
        group = testbed.cgroup / "bulk"
        named = f'congestion.cgroups={{ "{group}" = "bbr" }}'
        with uploads(testbed, group), Agent(testbed, "receive.enabled=false", named) as agent:
            before = testbed.congestion(5201), testbed.congestion(5202)
            assert all("cubic" in names for names in before)
            agent.serve()
            assert testbed.congestion(5201) == {"bbr"}
            assert testbed.congestion(5202) == before[1], "who is not in it stays"
            # A destination is for all, a cgroup counts more.
            agent.set('congestion.routes={ "10.0.0.0/8" = "reno" }')
            assert testbed.congestion(5201) == {"bbr"}
            assert testbed.congestion(5202) == {"reno"}
            agent.do("off")
            assert (testbed.congestion(5201), testbed.congestion(5202)) == before
            agent.nothing_left()


# An upload that goes on; a line on its input is a congestion control that it chooses.
CHOOSER = """
import socket, sys, threading
s = socket.create_connection((sys.argv[1], 5201))
def send():
    while True: s.sendall(bytes(1000)); threading.Event().wait(0.05)
threading.Thread(target=send, daemon=True).start()
for line in sys.stdin:
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, line.strip().encode())
    print("chosen", flush=True)
"""
SINK = """
import socket
with socket.create_server(("", 5201)) as listening:
    print("listens", flush=True)
    s, _ = listening.accept()
    while s.recv(65536): pass
"""


@pytest.mark.parametrize("new", [True, False], ids=["new-connection", "existing-connection"])
@pytest.mark.parametrize("chooses", [True, False])
def test_what_an_application_chose_meanwhile_stays(
    tmp_path: Path, new: bool, chooses: bool
) -> None:
    named = 'congestion.routes={ "10.0.0.0/8" = "reno" }'
    with Download(tmp_path) as testbed, Agent(testbed, "receive.enabled=false", named) as agent:
        before = testbed.ask("host", "sysctl", "-n", "net.ipv4.tcp_congestion_control").strip()
        chosen = "cubic" if before != "cubic" else "bbr"
        sink = testbed.start("server", sys.executable, "-c", SINK)
        assert sink.stdout is not None
        sink.stdout.readline()
        if new:
            agent.serve()
        argv = (sys.executable, "-c", CHOOSER, "10.0.0.2")
        upload = testbed.start("host", *argv, stdin=subprocess.PIPE)
        assert upload.stdin is not None
        assert upload.stdout is not None
        until(lambda: testbed.congestion(5201), 5)
        if not new:
            assert testbed.congestion(5201) == {before}
            agent.serve()
        assert testbed.congestion(5201) == {"reno"}
        if chooses:
            upload.stdin.write(f"{chosen}\n")
            upload.stdin.flush()
            upload.stdout.readline()
        agent.do("off")
        assert testbed.congestion(5201) == {chosen if chooses else before}
        agent.nothing_left()


def test_a_cgroup_that_is_none_and_a_name_that_the_kernel_lacks_are_refused(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed:
        for group, name, word in (
            (tmp_path, "bbr", "is no cgroup"),
            (testbed.cgroup, "nosuch", "this kernel has"),
        ):
            named = f'congestion.cgroups={{ "{group}" = "{name}" }}'
            with Agent(testbed, "receive.enabled=false", named) as agent:
                words = agent.argv("serve", *agent.sets())
                refused = subprocess.run(words, capture_output=True, text=True, timeout=60)
                assert refused.returncode == 1
                assert word in refused.stderr
                assert str(group) in refused.stderr
                agent.nothing_left()
