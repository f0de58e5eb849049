"""Hosts that lack something: one line names it and what works all the same, and nothing is left behind.

A lack is made in a mount namespace: the kernel's types hidden below an empty file system, cgroup v2 taken away."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_program import AgentProgram, agent_path
from container import refusing
from daemon import Daemon, reports
from uplink import Uplink
from uplink import scenario as uplink_scenario

from unbloat.lab.cleanup.session import cgroup_root

pytestmark = pytest.mark.usefixtures("machine")
NO_TYPES = "mount -t tmpfs none /sys/kernel/btf"
NO_PINS = "while umount /sys/fs/bpf 2>/dev/null; do :; done"
REMOUNTED = f'umount {cgroup_root()}; mount -t cgroup2 none {cgroup_root()}; exec "$@"'
UNPRIVILEGED = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
SOCKETS, ACKS, GATE, HTB = "download-windows", "ack-windows", "gate", "htb"


# What mounts something: a container may not.
MOUNTING = "mount,open_tree,fsopen"


def no_cgroups() -> str:
    """Until none is mounted."""
    return f"while umount {cgroup_root()} 2>/dev/null; do :; done"


@pytest.fixture
def agent() -> Iterator[str]:
    """The program where every user may run it, in a folder that every user may write."""
    with tempfile.TemporaryDirectory(prefix="ub-missing-") as folder:
        Path(folder).chmod(0o777)
        yield shutil.copy(agent_path(), folder)


def without(lack: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """What a program says where something is missing."""
    confined = refusing(MOUNTING, *argv) if "umount" in lack else argv
    words = ["unshare", "--mount", "sh", "-c", f'{lack}; exec "$@"', "sh", *confined]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def features(lack: str, *argv: str) -> tuple[dict[str, str | None], list[str]]:
    """What is missing of each feature, and the lines below."""
    done = without(lack, *argv, "--json", "features")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert all(feature["works"] == (feature["missing"] is None) for feature in answer["features"])
    assert all(feature["since"][0].isdigit() for feature in answer["features"])
    return {feature["id"]: feature["missing"] for feature in answer["features"]}, answer["without"]


def ended(lack: str, agent: str, *settings: str, before: tuple[str, ...] = ()) -> str:
    """The one line with which an agent ends that has nothing to do here."""
    folder = Path(agent).parent
    where = (f"--runtime={folder}/run", f"--pins=/sys/fs/bpf/{folder.name}")
    words = [word for setting in settings for word in ("--set", setting)]
    done = without(lack, *before, agent, *where, "serve", *words)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = {
        line.partition(" UTC ")[2] or line.partition(": ")[2] for line in done.stderr.splitlines()
    }
    assert not Path(f"/sys/fs/bpf/{folder.name}").exists()
    journal = folder / "run/journal.jsonl"
    assert not journal.exists() or journal.read_text() == "", "nothing to undo"
    return line


def test_here_everything_works_but_what_this_kernel_was_built_without(agent: str) -> None:
    missing, below = features("true", agent)
    assert below == []
    assert len(missing) == 15
    assert {missing[name] for name in (SOCKETS, ACKS, GATE)} == {None}
    for name, why in missing.items():
        assert why is None or "nor a module of it" in why, name


def test_without_the_kernels_types_the_uplinks_cures_work(agent: str) -> None:
    missing, below = features(NO_TYPES, agent)
    assert missing[SOCKETS] == "no /sys/kernel/btf/vmlinux"
    assert {missing[ACKS], missing[GATE], missing["cgroup-v2"]} == {None}
    assert missing[HTB] is None or "nor a module of it" in str(missing[HTB])
    (line,) = below
    assert "CONFIG_DEBUG_INFO_BTF" in line
    assert "what works without: the uplink's cures" in line
    assert line in ended(NO_TYPES, agent, "uplink.mode=off"), (
        "with its cures off there is nothing to do"
    )


class Untyped(Daemon):
    """The agent where the kernel's types are hidden, or in a file alone."""

    types = ""

    def argv(self, *words: str) -> list[str]:
        """A command line behind what hides them."""
        argv = AgentProgram.argv(self, *words)
        at = argv.index(agent_path())
        hidden = f'{NO_TYPES}; exec "$@"'
        named = ["env", f"UNBLOAT_BTF={self.types}"] if self.types else []
        return [*argv[:at], "unshare", "--mount", "sh", "-c", hidden, "sh", *named, *argv[at:]]


@contextmanager
def untyped(folder: Path, *settings: str) -> Iterator[tuple[Uplink, Untyped]]:
    """A phone whose agent has no types."""
    with Uplink(folder / "testbed", uplink_scenario('rate = "4 Mbit/s"')) as testbed:
        testbed.ip("phone", f"route add default dev {testbed.device}")
        telemetry = f"uplink.telemetry={folder / 'modem.sock'}"
        with Untyped(testbed, "phone", telemetry, "trial.enabled=false", *settings) as daemon:
            yield testbed, daemon


@pytest.mark.parametrize("clsact", ["false", "true"])
def test_without_the_kernels_types_the_gate_holds_uploads(tmp_path: Path, clsact: str) -> None:
    # ACK-window rewriting: test_acks.py.
    settings = ("uplink.mode=gate", f"uplink.clsact={clsact}")
    with untyped(tmp_path, *settings) as (testbed, agent):
        agent.serve()
        with reports(testbed, tmp_path):
            ping, transfer = testbed.ping(), testbed.iperf("phone", 16, "-C", "cubic")
            goodput = transfer.mbps()
            ping.stop()
            gate = agent.status()["cures"]["gate"]
            assert agent.status()["problems"] == []
        agent.do("off")
        agent.nothing_left()
    assert gate["refused_own"] > 0
    # 1 MB of the modem's buffer would be 2 s.
    assert ping.p(0.95, 5, 15) <= 150
    assert goodput >= 0.8 * 4


def test_without_the_kernels_types_but_with_a_file_sockets_are_cured(
    tmp_path: Path, agent: str
) -> None:
    types = Path(agent).parent / "types"
    types.write_bytes(Path("/sys/kernel/btf/vmlinux").read_bytes())
    with untyped(tmp_path, "receive.enabled=true", "uplink.mode=off") as (_, daemon):
        daemon.types = str(types)
        daemon.serve()
        assert daemon.status()["cures"].keys() == {"receive"}
        assert daemon.status()["cures"]["receive"]["walk_ms"] > 0, "the walk reads them, too"
        daemon.do("off")
        daemon.types = ""
        assert "no /sys/kernel/btf/vmlinux" in daemon.do("on", *daemon.sets(), works=False)


def test_types_may_come_from_a_file(agent: str) -> None:
    """A container may not show /sys/kernel."""
    types = Path(agent).parent / "types"
    types.write_bytes(Path("/sys/kernel/btf/vmlinux").read_bytes())
    missing, below = features(NO_TYPES, "env", f"UNBLOAT_BTF={types}", agent)
    used = (SOCKETS, "live-download-windows", "congestion-control", "live-congestion-control")
    assert {missing[name] for name in used} == {None}
    assert below == []
    missing, _ = features("true", "env", "UNBLOAT_BTF=/nowhere", agent)
    assert missing[SOCKETS] == "no /nowhere"


def test_without_cgroups_the_uplinks_cures_work(agent: str) -> None:
    missing, below = features(no_cgroups(), agent)
    assert missing[SOCKETS] == "no cgroup v2 is mounted"
    assert {missing[ACKS], missing[GATE]} == {None}
    (line,) = below
    assert "what works without: the uplink's cures" in line
    assert line in ended(no_cgroups(), agent, "uplink.mode=off"), (
        "with its cures off there is nothing to do"
    )


def test_a_cgroup_mount_that_another_file_system_covers_is_none(agent: str) -> None:
    covered = f"mount -t tmpfs none {cgroup_root()}"
    missing, _ = features(covered, *refusing(MOUNTING, agent))
    assert missing["cgroup-v2"] == "no cgroup v2 is mounted"
    missing, _ = features(covered, agent)
    assert missing["cgroup-v2"] is None, "where it may mount one, it does"


def test_without_a_bpf_file_system_the_uplinks_cures_work(agent: str) -> None:
    missing, below = features(NO_PINS, agent)
    assert missing[SOCKETS] == "/sys/fs/bpf is no bpf file system"
    assert {missing[ACKS], missing[GATE]} == {None}
    (line,) = below
    assert "mount -t bpf bpf /sys/fs/bpf" in line
    assert "what works without: the uplink's cures" in line
    assert "is not on a bpf file system" in ended(NO_PINS, agent, "uplink.mode=off")


def test_pins_in_a_wrong_place_are_refused_and_leave_nothing_to_undo(agent: str) -> None:
    folder = Path(agent).parent
    where = (f"--runtime={folder}/run", f"--pins={folder}/pins")
    done = without("true", agent, *where, "serve", "--set", "uplink.mode=off")
    assert done.returncode == 1
    assert f"{folder}/pins is not on a bpf file system" in done.stderr
    assert not (folder / "pins").exists()
    # What such an agent left that noted it before it asked.
    (folder / "pins/2").mkdir(parents=True)
    (folder / "run/journal.jsonl").write_text(f'{{"change":"sockets","pins":"{folder}/pins"}}\n')
    done = without("true", agent, *where, "off")
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "run/journal.jsonl").read_text() == ""
    assert not (folder / "pins").exists()


def test_a_part_of_a_containers_cgroups_is_refused_and_all_of_them_are_not(agent: str) -> None:
    group = Path(cgroup_root()) / Path(agent).parent.name / "part"
    group.mkdir(parents=True)
    try:
        # A container: its cgroup is the root of all that it sees.
        enter = f"echo $$ > {group.parent}/cgroup.procs"
        line = ended(
            enter,
            agent,
            "uplink.mode=off",
            f'scope.cgroup="{cgroup_root()}/part"',
            before=("unshare", "--cgroup", "sh", "-c", REMOUNTED, "sh"),
        )
        assert "a part of the cgroups cannot be chosen from within a container" in line
    finally:
        group.rmdir()
        group.parent.rmdir()


def test_without_rights_captures_are_planned_with(agent: str) -> None:
    missing, below = features("true", *UNPRIVILEGED, agent)
    assert {name for name, why in missing.items() if why is None} >= {
        "cgroup-v2",
        "kernel-types",
    }
    assert str(missing[SOCKETS]).startswith("no rights: ")
    (line,) = below
    assert "this process lacks CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN" in line
    assert line == ended("true", agent, before=UNPRIVILEGED)


def test_a_container_that_may_not_use_bpf_has_no_rights(agent: str) -> None:
    # Root of a user namespace of its own: all capabilities, and none that counts.
    done = without("true", "unshare", "--user", "--map-root-user", agent, "--json", "features")
    answer = json.loads(done.stdout)
    (sockets,) = [feature["missing"] for feature in answer["features"] if feature["id"] == SOCKETS]
    assert sockets.startswith("no rights: ")


def test_lacking_two_things_is_two_lines(agent: str) -> None:
    _, below = features(f"{NO_TYPES}; {no_cgroups()}", agent)
    assert len(below) == 2


@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_a_full_disk_is_the_reason_that_on_gives_and_off_works(tmp_path: Path, blocks: int) -> None:
    """With so many blocks of the runtime directory's file system that are free."""
    pins = Path("/sys/fs/bpf") / f"ub-{tmp_path.name}-{blocks}"
    script = f"""
    mount -t tmpfs -o size=16k,mode=700 none {tmp_path} || exit 99
    ip link set lo up
    dd if=/dev/zero of={tmp_path}/full bs=4k count={4 - blocks} 2>/dev/null || exit 99
    {agent_path()} on --runtime {tmp_path} --pins {pins}; echo "on: $?"
    {agent_path()} off --runtime {tmp_path} --pins {pins}; echo "off: $?"
    """
    done = subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "No space left on device" in done.stdout + done.stderr, done
    # Without room for a line of its log it does not start, without room for its journal it changes nothing.
    assert f"on: {4 if blocks else 1}\n" in done.stdout, done
    assert done.stdout.splitlines()[-1] == "off: 0", done
    assert not pins.exists()
