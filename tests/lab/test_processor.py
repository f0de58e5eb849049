"""A reader that its processor limits: what its process and the busy ones beside it really get, and that nothing is left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import starved
from requirements import unavailable
from traffic_testbed import CLIENT, Logs, Pair, flow, needs, plan

from unbloat.lab.setup import processor

FIXED = {"kind": "fixed", "window": 262_144, "rmem_max": 6 << 20, "ratio": 0.5}


def reading(work_us: int, cpu: float, background: int) -> dict[str, Any]:
    """A download to such a reader."""
    read = {"work_per_kb_ns": work_us * 1_000, "cpu": cpu, "background": background}
    return flow("down", receiver__window=FIXED, receiver__read=read)


def read_between(logs: Logs, since_s: float, until_s: float) -> float:
    """Bytes per second that the application took."""
    rows = [
        row
        for row in logs.rows("flows/down.receiver.jsonl", "sample")
        if since_s <= row["t_s"] <= until_s
    ]
    taken = [row["bytes_received"] - row["unread_bytes"] for row in (rows[0], rows[-1])]
    return float((taken[1] - taken[0]) / (rows[-1]["t_s"] - rows[0]["t_s"]))


@pytest.fixture
def groups() -> None:
    if processor.root() is None:
        unavailable("cgroup", "no controller `cpu` is there for groups")


@needs()
@pytest.mark.measured
@pytest.mark.parametrize(("background", "expected"), [(0, 500_000), (3, 125_000)])
def test_a_reader_gets_its_part_of_the_processor(
    groups: None, tmp_path: Path, background: int, expected: float
) -> None:
    group = cpu_ns = 0
    with Pair(tmp_path / "pair") as pair:

        def look(_: Pair) -> None:
            nonlocal group, cpu_ns
            (path,) = map(Path, pair.session.state["cgroups"])
            group = len((path / "cgroup.procs").read_text().split())
            before = used_ns(path)
            begun = time.monotonic_ns()
            time.sleep(1.5)
            cpu_ns = round((used_ns(path) - before) * 1e9 / (time.monotonic_ns() - begun))

        made = plan(reading(200, 0.1, background), duration=5.0)
        logs = pair.run(made, tmp_path, during=look, after=2.0)
        (path,) = map(Path, pair.session.state["cgroups"])
        assert (path / "cgroup.procs").read_text() == "", "a process stayed in the group"
    assert not path.exists()
    assert logs.errors() == []
    assert group == background + 1
    # The quota's own account first: a machine that is busy otherwise does not give it.
    if cpu_ns < 0.095e9:
        starved.measured(
            f"the group had {cpu_ns / 1e6:.0f} ms of 100 ms of the processor per second"
        )
    assert cpu_ns == pytest.approx(0.1e9, rel=0.15)
    assert read_between(logs, 1.0, 4.9) == pytest.approx(expected, rel=0.15)


def used_ns(group: Path) -> int:
    """The processor time of a group, by the kernel's own account."""
    stat = group / "cpu.stat"
    words = dict(line.split() for line in stat.read_text().splitlines())
    if "usage_usec" in words:
        return int(words["usage_usec"]) * 1_000
    # cgroup v1: the controller cpuacct counts, and it may be mounted elsewhere; the processes' own clocks then.
    ticks = 0
    for pid in (group / "cgroup.procs").read_text().split():
        fields = Path(f"/proc/{pid}/schedstat").read_text().split()
        ticks += int(fields[0])
    return ticks


def test_a_stream_ends_in_order_where_another_process_reads_it(
    groups: None, tmp_path: Path
) -> None:
    read = {"work_per_kb_ns": 10_000, "cpu": 0.5, "background": 1}
    app = {"kind": "file", "bytes": 1_000_001, "every_s": None}
    made = flow("down", app, receiver__window=FIXED, receiver__read=read)
    with Pair(tmp_path / "pair") as pair:
        logs = pair.run(plan(made, duration=2.0), tmp_path)
    assert logs.errors() == []
    (took_ms,) = logs.values("flows/down.receiver.jsonl", "file_ms")
    # 10 ms of work, of a quarter of the processor.
    assert 10 < took_ms < 1_000


def test_where_groups_with_a_processor_can_be_made(tmp_path: Path) -> None:
    unified = tmp_path / "unified"
    unified.mkdir()
    mounts = f"cgroup2 {unified} cgroup2 rw 0 0\n"
    assert processor.root(mounts) is None
    (unified / "cgroup.subtree_control").write_text("memory pids\n")
    assert processor.root(mounts) is None
    (unified / "cgroup.subtree_control").write_text("cpu memory\n")
    assert processor.root(mounts) == (unified, 2)
    one = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n"
    assert processor.root(one + "cgroup /c cgroup rw,cpuset 0 0\n") == (
        Path("/sys/fs/cgroup/cpu"),
        1,
    )
    assert processor.root("cgroup /c cgroup rw,cpuset 0 0\n") is None


def test_what_no_group_can_limit_is_refused(tmp_path: Path) -> None:
    upload = flow("up", {"kind": "file", "bytes": 1_000, "every_s": None}, upload=True)
    upload["receiver"]["read"] = reading(20, 0.2, 0)["receiver"]["read"]
    found = processor.unsupported_processor(plan(upload), [])
    assert "up: read.cpu: the receiver of an uploaded file reads by itself" in found
    other = processor.unsupported_processor(plan(reading(20, 0.2, 0), bulk="iperf3"), [CLIENT])
    assert other[:2] == [
        "down: read.cpu: only our own receiver of a stream has a processor",
        "down: read.cpu: its node's programs are in the cgroup of unbloat-agent",
    ]
