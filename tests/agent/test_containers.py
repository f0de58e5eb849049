"""The agent in systemd-nspawn, and where podman would have started it: it works, or one line says what to type."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from agent_program import agent_path
from container import Nspawn, podman
from download import Download
from reader import READER, Reader, Sender, next_line
from requirements import require
from test_receive_safety import LEASE_S, lifted

from unbloat.lab.testbed import TIMEOUT_S, until

pytestmark = pytest.mark.usefixtures("machine")
FROM_THE_HOST = "nsenter --target PID --net unbloat-agent on"
PINS = "ub-contained"
"""Begin of the names of these tests' pins."""
# On, status, off; "$@" is the agent.
SCRIPT = """
"$@" on --set uplink.mode=off --set trial.enabled=false; echo "on $?"
"$@" --json status
"$@" off; echo "off $?"
ls -A /sys/fs/bpf; cat "$3/journal.jsonl"; echo over
"""


@pytest.fixture
def nspawn(tmp_path: Path) -> Nspawn:
    """A container for each test."""
    require("systemd-nspawn")
    return Nspawn(tmp_path)


def in_nspawn(nspawn: Nspawn, *options: str) -> str:
    """What the agent says there."""
    agent = f"/opt/unbloat-agent --runtime /run/ub --pins /sys/fs/bpf/{PINS}"
    return nspawn.run(f"set -- {agent}; {SCRIPT}", *options)


def status_of(said: str) -> dict[str, Any]:
    """The status among the lines."""
    line = next(line for line in said.splitlines() if line.startswith('{"'))
    status: dict[str, Any] = json.loads(line)
    return status


def nothing_left(said: str) -> None:
    """No pins of these tests, and an empty journal or none."""
    left = said.rpartition("\noff ")[2]
    assert left.endswith("over\n"), said
    assert PINS not in left, said
    assert '"change"' not in left, said


def works(said: str) -> None:
    """On, with no problem, and nothing left."""
    assert "\non 0\n" in said, said
    assert "\noff 0\n" in said, said
    status = status_of(said)
    assert status["state"] == "on", said
    assert status["problems"] == [], said
    assert "for this network namespace" in status["log"][0], said
    nothing_left(said)


def refused(said: str, why: str) -> None:
    """One line with the reason and the way from the host, and nothing begun."""
    assert "on 1\n" in said, said
    assert status_of(said) == {"ok": True, "state": "off", "pending": 0}, said
    line = said.splitlines()[0]
    assert why in line, said
    assert FROM_THE_HOST in line, said
    nothing_left(said)


def test_in_nspawn_with_a_network_of_its_own_and_the_call_bpf_it_mounts_what_is_missing(
    nspawn: Nspawn,
) -> None:
    # Without a user namespace; /sys/fs/bpf is not even a directory there, and /sys is read-only.
    works(in_nspawn(nspawn, "--private-network", "--system-call-filter=bpf"))


def test_in_nspawn_with_the_hosts_bpf_file_system_it_works(nspawn: Nspawn) -> None:
    options = ("--private-network", "--system-call-filter=bpf", "--bind=/sys/fs/bpf")
    works(in_nspawn(nspawn, *options))
    assert not list(Path("/sys/fs/bpf").glob(f"{PINS}*"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "lacks CAP_NET_ADMIN"),
        (("--private-network",), "the system call bpf is refused"),
        (("--private-users=pick", "--private-users-ownership=chown"), "a user namespace"),
    ],
    ids=["plain", "network", "users"],
)
def test_in_nspawn_without_rights_one_line_says_what_to_type(
    nspawn: Nspawn, options: tuple[str, ...], why: str
) -> None:
    refused(in_nspawn(nspawn, *options), why)


AGENT = 'agent() { /opt/unbloat-agent --runtime /run/ub "$@"; }'
DOWNLOAD = (
    "mkfifo /run/words; python3 /opt/reader 10.0.0.2 5301 pass </run/words >/run/said & "
    "exec 3>/run/words; touch /run/said"
)


class Inside(Reader):
    """A shell in a container that is in the network namespace of a testbed's host, and a download there."""

    def __init__(self, nspawn: Nspawn, testbed: Download) -> None:
        (nspawn.root / "opt/reader").write_text(READER)
        space = f"--network-namespace-path=/run/netns/{testbed.spaces['host']}"
        given = ("--capability=CAP_NET_ADMIN", "--system-call-filter=bpf")
        argv = nspawn.argv(space, *given, "--pipe")
        loop = f'{AGENT}; while read -r line; do eval "$line" 2>&1; echo "ended $?"; done'
        self.process = subprocess.Popen(
            [*argv, "sh", "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, line: str) -> str:
        """What a line of shell says, which has to work."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        said = [next_line(self.process)]
        while not said[-1].startswith("ended "):
            said.append(next_line(self.process))
        assert said[-1] == "ended 0", (line, said)
        return "\n".join(said[:-1])

    def ask(self, word: str) -> str:
        """The answer of the download."""
        before = len(self.do("cat /run/said").splitlines())
        self.do(f"echo {word} >&3")
        until(lambda: len(self.do("cat /run/said").splitlines()) > before)
        return self.do("tail -n 1 /run/said")

    def end(self) -> None:
        """The container ends with its shell."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(TIMEOUT_S)


def test_a_download_in_nspawn_is_held_and_lifted_by_the_kernel_if_all_are_killed(
    nspawn: Nspawn, tmp_path: Path
) -> None:
    with Download(tmp_path / "testbed") as testbed:
        Sender(testbed)
        inside = Inside(nspawn, testbed)
        try:
            sets = "--set uplink.mode=off --set trial.enabled=false --set receive.lambda"
            assert inside.do(f"agent on {sets}=4").startswith("on;")
            inside.do(DOWNLOAD)
            time.sleep(4)
            inside.do(f"agent on {sets}=1.5")
            time.sleep(2)
            held = inside.clamp()
            assert held < 150_000
            status = json.loads(inside.do("agent --json status"))
            assert status["problems"] == []
            assert [flow["remote_port"] for flow in status["flows"]] == [5301]
            pid = status["pid"]
            inside.do(f"kill -9 $(cat /proc/{pid}/task/{pid}/children) {pid}")
            assert lifted(inside, held, 5) < LEASE_S + 0.5, "the lease, and an ACK"
            assert "gave" in inside.do("agent off")
            assert inside.do("ls -A /sys/fs/bpf") == "", "its mount is gone"
        finally:
            inside.end()


@pytest.mark.parametrize("bpf", [False, True], ids=["mounts", "volume"])
def test_where_podman_gives_two_capabilities_it_works(tmp_path: Path, bpf: bool) -> None:
    # podman run --cap-add SYS_ADMIN,NET_ADMIN; and with --volume /sys/fs/bpf:/sys/fs/bpf
    works(podman(SCRIPT, *agent(tmp_path), add=("sys_admin", "net_admin"), bpf=bpf))
    assert not list(Path("/sys/fs/bpf").glob(f"{pins(tmp_path).name}*"))


@pytest.mark.parametrize(
    ("add", "why"),
    [
        ((), "lacks CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN"),
        (("net_admin",), "lacks CAP_BPF, CAP_PERFMON;"),
        (("net_admin", "bpf", "perfmon"), "the system call bpf is refused"),
    ],
    ids=["plain", "net-admin", "filter"],
)
def test_where_podman_gives_too_little_one_line_says_what_to_type(
    tmp_path: Path, add: tuple[str, ...], why: str
) -> None:
    refused(podman(SCRIPT, *agent(tmp_path), add=add, bpf=True), why)


def pins(tmp_path: Path) -> Path:
    """A place of this test's own."""
    return Path("/sys/fs/bpf") / f"{PINS}-{tmp_path.name[-20:]}"


def agent(tmp_path: Path) -> tuple[str, ...]:
    """The agent with places of this test's own."""
    return (agent_path(), "--runtime", str(tmp_path / "run"), "--pins", str(pins(tmp_path)))
