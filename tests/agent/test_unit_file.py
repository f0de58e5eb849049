"""The systemd unit: what it allows is enough, and no more than is needed. systemd itself does not run here; what it would
do is done by hand: capabilities, the read-only cgroup tree, words on its socket, the filter of system calls."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from agent_program import agent_path
from download import Agent, Download
from modem import steady
from reader import Reader, Sender
from requirements import require
from unit_file import UNIT, capabilities, value, with_only

from unbloat.lab.cleanup.session import cgroup_root
from unbloat.lab.testbed import run, until

BITS = {
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""Numbers of linux/capability.h."""
FREE = 1 << 20
"""No clamp of the agent is above this: the links here carry 60 kB in an RTT."""


class Confined(Agent):
    """An agent with some capabilities only, and with cgroups read-only."""

    def __init__(self, testbed: Download, *settings: str, held: list[str]) -> None:
        super().__init__(testbed, *settings)
        self.held = held

    def argv(self, *words: str) -> list[str]:
        """A command line behind what confines it."""
        read_only = 'mount -o remount,bind,ro "$1" && shift && exec "$@"'
        confine = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            read_only,
            "sh",
            str(cgroup_root()),
            *with_only(*self.held),
        ]
        return [*confine, *super().argv(*words)]


class ConfinedHost(Confined):
    """The same on the testbed's host, whose uplink is the emulator's."""

    def argv(self, *words: str) -> list[str]:
        """A command line in the namespace."""
        return self.testbed.argv("host", *super().argv(*words), grouped=False)


def clamp_soon(reader: Reader, small: bool, timeout_s: float = 12.0) -> int:
    """The clamp, when it has become small or large."""
    end = time.monotonic() + timeout_s
    while True:
        clamp = reader.clamp()
        if (clamp < FREE) == small or time.monotonic() > end:
            return clamp
        time.sleep(0.1)


@pytest.mark.usefixtures("machine")
def test_with_the_units_capabilities_clamps_are_set_and_undone_in_other_namespaces_too(
    tmp_path: Path,
) -> None:
    with (
        Download(tmp_path) as testbed,
        Confined(testbed, "uplink.mode=off", held=capabilities()) as agent,
    ):
        Sender(testbed, 60_000_000)
        reader = Reader(testbed)
        time.sleep(1)
        free = clamp_soon(reader, small=False, timeout_s=5)
        daemon = agent.serve()
        effective = re.search(r"CapEff:\s*(\w+)", Path(f"/proc/{daemon.pid}/status").read_text())
        assert effective is not None
        assert int(effective[1], 16) == sum(1 << BITS[name] for name in capabilities()), (
            "these and no others"
        )
        assert clamp_soon(reader, small=True) < FREE, agent.log()
        assert "downloads: attached to" in agent.log(), "and the walk saw it in its namespace"
        agent.do("off")
        assert clamp_soon(reader, small=False) >= min(free, FREE), "given back"
        agent.nothing_left()


@pytest.mark.usefixtures("machine")
def test_with_them_the_uplinks_cures_begin_and_reports_reach_the_kernel(tmp_path: Path) -> None:
    reports = tmp_path / "modem.sock"
    settings = (
        "scope.device=up",
        "uplink.mode=gate",
        f"uplink.telemetry={reports}",
        "receive.enabled=false",
    )
    with (
        Download(tmp_path / "testbed") as testbed,
        ConfinedHost(testbed, *settings, held=capabilities()) as agent,
        steady(reports, 3_000, 10_000),
    ):
        agent.serve()
        until(lambda: agent.status()["cures"]["gate"]["reports"] > 10)
        status = agent.status()
        assert status["problems"] == []
        agent.set("uplink.mode=acks")
        status = agent.status()
        assert status["problems"] == []
        assert "acks" in status["cures"]
        agent.do("off")
        agent.nothing_left()


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("name", ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"])
def test_without_one_of_them_nothing_begins_and_the_line_names_it(
    tmp_path: Path, name: str
) -> None:
    # CAP_SYS_ADMIN stands for the first two, as it did before Linux 5.8.
    held = [one for one in capabilities() if one not in (name, "CAP_SYS_ADMIN")]
    agent = agent_path()
    argv = [*with_only(*held), agent, "--runtime", str(tmp_path / "run"), "serve"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert f"this process lacks {name};" in line
    assert "what works without" in line
    assert not (tmp_path / "run").exists(), "nothing was begun"


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("name", ["CAP_SYS_ADMIN", "CAP_SYS_PTRACE"])
def test_without_the_other_two_containers_are_not_reached_and_the_log_says_so(
    tmp_path: Path, name: str
) -> None:
    held = [one for one in capabilities() if one != name]
    with Download(tmp_path) as testbed, Confined(testbed, "uplink.mode=off", held=held) as agent:
        agent.serve()
        assert f"no {name}" in agent.log()


def test_the_unit_is_valid_and_exposes_little(tmp_path: Path) -> None:
    require("systemd-analyze", "unbloat-agent")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/unbloat-agent", agent_path()))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    # It warns of other units of the machine, too.
    about = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, about) == (0, [])
    # 3.1 of 10: what is left is what it is for (BPF, devices, other namespaces). 9.6 is a unit that says nothing.
    words = (
        "systemd-analyze",
        "security",
        "--offline=yes",
        "--no-pager",
        "--threshold=32",
        str(unit),
    )
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-300:]


def test_what_the_unit_runs_is_what_the_program_understands() -> None:
    require("unbloat-agent")
    agent = agent_path()
    for key in ("ExecStart", "ExecStopPost"):
        name, *words = value(key).split()
        assert Path(name).name == "unbloat-agent"
        usage = run(agent, words[0], "--help")
        assert all(word in usage for word in words[1:] if word.startswith("--"))
    assert value("ExecReload").endswith("-HUP $MAINPID")
    # Runtime directory and control socket are where `status` looks for them.
    assert f"/run/{value('RuntimeDirectory')}" in run(agent, "--help")


@pytest.mark.usefixtures("machine")
def test_systemd_learns_when_it_is_ready_lives_reloads_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert value("Type") == "notify"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening,
        Download(tmp_path) as testbed,
    ):
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv(
            "WATCHDOG_USEC", str(int(float(value("WatchdogSec").removesuffix("s")) * 1e6))
        )
        with Agent(testbed, "uplink.mode=off") as agent:
            daemon = agent.serve()
            assert listening.recv(4096) == b"READY=1"
            assert listening.recv(4096) == b"WATCHDOG=1"
            daemon.send_signal(signal.SIGHUP)
            messages = [listening.recv(4096) for _ in range(6)]
            reloading = next(
                n
                for n, said in enumerate(messages)
                if said.startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            )
            assert messages[reloading + 1] == b"READY=1"
            daemon.terminate()
            daemon.wait(20)
            said = listening.recv(4096)
            while said == b"WATCHDOG=1":
                said = listening.recv(4096)
            assert said == b"STOPPING=1"


@pytest.mark.usefixtures("machine")
def test_the_filter_of_system_calls_lets_pass_what_the_agent_calls(tmp_path: Path) -> None:
    require("systemd-analyze", "strace")

    def calls(group: str) -> set[str]:
        words = run("systemd-analyze", "syscall-filter", "--no-pager", group).split("\n")
        names = [
            word.strip() for word in words[1:] if word.strip() and not word.strip().startswith("#")
        ]
        return {
            call for name in names for call in (calls(name) if name.startswith("@") else {name})
        }

    allowed: set[str] = set()
    for word in value("SystemCallFilter").split():
        allowed |= calls(word) if word.startswith("@") else {word}
    with Download(tmp_path) as testbed:
        agent = Agent(testbed, "uplink.mode=off", "metrics.listen=127.0.0.1:0")
        trace = tmp_path / "calls"
        argv = ["strace", "-f", "-qq", "-o", str(trace), *agent.argv("serve", *agent.sets())]
        with (tmp_path / "agent.log").open("w") as log, agent:
            daemon = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == "on\n", agent.log()
            agent.status()
            time.sleep(1)
            agent.do("off")
            daemon.wait(30)
        text = trace.read_text()
    made = set(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    assert {"bpf", "setns", "poll"} <= made, "the trace has seen it work"
    # rseq, set_robust_list and their kin are of every process; the groups have them all.
    assert made - allowed == set()


def test_root_is_who_these_tests_are_for() -> None:
    require("root")
    assert set(capabilities()) == set(BITS), "a capability more or less is another text of the docs"
