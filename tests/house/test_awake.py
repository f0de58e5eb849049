"""The loops that keep a guest's processors awake: one per processor, at the idle policy, gone with the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import awake
import pytest


def test_a_loop_per_processor_has_the_idle_policy_and_ends() -> None:
    loops = awake.begin()
    try:
        assert {os.sched_getscheduler(loop.pid) for loop in loops} == {os.SCHED_IDLE}
        processors = [os.sched_getaffinity(loop.pid) for loop in loops]
    finally:
        awake.end(loops)
    assert processors == [{cpu} for cpu in sorted(os.sched_getaffinity(0))]
    assert all(loop.poll() is not None for loop in loops)


def test_loops_end_where_their_parent_is_killed() -> None:
    # The pipe ends when the parent and all that inherited it have ended.
    code = f"""
import os, signal, subprocess, sys
read, write = map(int, sys.argv[1:])
sys.path.insert(0, {str(Path(awake.__file__).parent)!r})
subprocess.Popen = __import__("functools").partial(subprocess.Popen, pass_fds=(write,))
import awake
awake.begin()
os.kill(os.getpid(), signal.SIGKILL)
"""
    read, write = os.pipe()
    killed = subprocess.Popen(
        [sys.executable, "-c", code, str(read), str(write)], pass_fds=(write,)
    )
    os.close(write)
    killed.wait()
    assert os.read(read, 1) == b""
    os.close(read)


@pytest.mark.parametrize(
    ("cpuinfo", "guest"),
    [
        ("flags\t\t: fpu sse hypervisor lahf_lm\n", True),
        ("flags\t\t: fpu sse lahf_lm\n", False),
        ("Features\t: fp asimd\n", False),
    ],
)
def test_a_guest_is_recognised_by_its_flag(cpuinfo: str, guest: bool) -> None:
    assert awake.is_guest(cpuinfo) is guest
