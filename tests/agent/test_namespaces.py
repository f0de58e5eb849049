"""The agent below `ip netns exec`, in a network namespace, and in containers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from agent_program import AgentProgram, agent_path
from download import Download
from reader import Reader, Sender
from test_receive_safety import LEASE_S, holding, lifted

from unbloat.lab.testbed import TIMEOUT_S

pytestmark = pytest.mark.usefixtures("machine")
SETTINGS = ("uplink.mode=off", "trial.enabled=false", "receive.lambda=4")


class Inside(AgentProgram):
    """The agent in the namespace of a testbed's host, with the scope that it selects itself."""

    def __init__(self, testbed: Download, *entering: str) -> None:
        super().__init__(testbed, SETTINGS)
        self.entering = entering

    def argv(self, *words: str) -> list[str]:
        """A command line in the namespace."""
        return [*self.entering, *super().argv(*words)]


def below_ip(testbed: Download) -> Inside:
    """Below `ip netns exec`: the file systems of /sys are not mounted there."""
    return Inside(testbed, "ip", "netns", "exec", testbed.spaces["host"])


def mounts() -> list[str]:
    """Those of cgroups and BPF in this mount namespace."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if line.split()[2] in ("cgroup2", "bpf")]


def test_below_ip_netns_exec_downloads_are_held_and_nothing_is_left(tmp_path: Path) -> None:
    before = mounts()
    with Download(tmp_path) as testbed, below_ip(testbed) as agent:
        Sender(testbed)
        # Also a check of the exit code: 0, so every cure that is wanted is in place.
        assert agent.do("on", *agent.sets()).startswith("on;")
        assert agent.status()["problems"] == []
        reader, held = holding(testbed, agent)
        agent.do("off")
        assert reader.clamp() > 1.5 * held
        agent.nothing_left()
        assert not agent.pins.with_name(f"{agent.pins.name}-lock").exists()
    assert mounts() == before


@pytest.mark.parametrize("supervisor", [False, True], ids=["daemon", "both"])
def test_below_ip_netns_exec_a_killed_agent_is_undone(tmp_path: Path, supervisor: bool) -> None:
    before = mounts()
    with Download(tmp_path) as testbed, below_ip(testbed) as agent:
        Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        agent.kill(supervisor)
        assert lifted(reader, held, 5) < LEASE_S + 0.5, "the lease, and an ACK"
        if supervisor:
            agent.do("off")
        agent.nothing_left(TIMEOUT_S)
    assert mounts() == before


def test_a_connection_in_another_network_namespace_is_left_alone(tmp_path: Path) -> None:
    # Both are below the root of the cgroups, to which the agent attaches its program.
    with Download(tmp_path / "one") as one, Download(tmp_path / "other", net6="fd00:2") as other:
        enter = ("nsenter", f"--net=/run/netns/{one.spaces['host']}")
        with Inside(one, *enter) as agent:
            Sender(one)
            Sender(other)
            early = Reader(other)
            agent.serve()
            assert "for this network namespace" in agent.log()
            late = Reader(other)
            _, held = holding(one, agent)
            # A walk over existing sockets has happened by now, too.
            assert len(agent.status()["flows"]) == 1
            assert min(early.clamp(), late.clamp()) > 1.5 * held


def test_an_agent_of_another_network_namespace_is_not_set_by_mistake(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, below_ip(testbed) as agent:
        agent.serve()
        assert agent.daemon is not None
        argv = AgentProgram.argv(agent, "on", *agent.sets())
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 1
        assert f"nsenter --net=/proc/{agent.daemon.pid}/ns/net unbloat-agent on" in done.stderr


def test_in_a_user_namespaces_container_one_line_names_the_command(tmp_path: Path) -> None:
    container = ("unshare", "--user", "--map-root-user", "--net", "--mount")
    for command in ("on", "serve", "off"):
        argv = (*container, agent_path(), "--runtime", str(tmp_path / "run"), command)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert "nsenter --target PID --net unbloat-agent on" in line


def test_a_container_with_its_own_processes_mounts_what_it_needs(tmp_path: Path) -> None:
    # No ancestor is visible there, as in systemd-nspawn: the mounts are the agent's own.
    script = """
    while umount /sys/fs/bpf 2>/dev/null; do :; done
    while umount -t cgroup2 -a 2>/dev/null && grep -q cgroup2 /proc/self/mounts; do :; done
    "$@" on --set uplink.mode=off; echo "on $?"
    "$@" --json status; ls /sys/fs/bpf
    "$@" off; echo "off $?"
    grep -E 'cgroup2|/sys/fs/bpf' /proc/self/mounts
    """
    container = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    agent = (agent_path(), "--runtime", str(tmp_path / "run"), "--pins", "/sys/fs/bpf/own")
    argv = (*container, "sh", "-c", script, "sh", *agent)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
    lines = done.stdout.splitlines()
    assert "on 0" in lines, done
    assert "own" in lines
    assert lines[-1] == "off 0", "and no mount below it"
