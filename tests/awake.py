"""Keeps a guest's processors awake while tests run on real clocks.

signal: `/proc/cpuinfo` says that this machine is a guest, and a folder of `REAL_CLOCKS` is tested
model:  a virtual processor that has nothing to do halts. Its host then has to find it a processor again, behind those of other
        guests. A testbed sleeps for a millisecond thousands of times, so it waits each time; one that computes hardly waits
action: a loop per processor at the idle policy (`sched(7)`), which any other task interrupts at once. On a host with busy
        neighbours a relay stood still for 1.03 and 1.84 s of ten seconds without these loops, for 0.00 to 0.08 s with them

The loops end with the tests, and where their parent is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from starved import REAL_CLOCKS

# `getppid` changes where the parent has ended.
LOOP = """
import os, sys
cpu, parent = map(int, sys.argv[1:])
os.sched_setaffinity(0, {cpu})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print("", flush=True)
while os.getppid() == parent:
    for _ in range(1000):
        pass
"""
_loops = pytest.StashKey[list["subprocess.Popen[bytes]"]]()


def is_guest(cpuinfo: str) -> bool:
    """Whether a hypervisor runs below: a flag of x86, none of other machines."""
    flags = (line for line in cpuinfo.splitlines() if line.startswith("flags"))
    return any("hypervisor" in line.split() for line in flags)


def begin() -> list[subprocess.Popen[bytes]]:
    """A loop per processor; each has its policy when this returns."""
    loops = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LOOP, str(cpu), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        for cpu in sorted(os.sched_getaffinity(0))
    ]
    for loop in loops:
        assert loop.stdout is not None
        loop.stdout.readline()
    return loops


def end(loops: list[subprocess.Popen[bytes]]) -> None:
    """Ends loops that `begin` began."""
    for loop in loops:
        loop.kill()
        loop.communicate()


def pytest_configure(config: pytest.Config) -> None:
    """In the process that begins the others, once."""
    folders = {part for arg in config.args for part in Path(arg.split("::")[0]).resolve().parts}
    real = folders & set(REAL_CLOCKS) and not hasattr(config, "workerinput")
    if real and is_guest(Path("/proc/cpuinfo").read_text()):
        config.stash[_loops] = begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Where they were begun."""
    end(config.stash.get(_loops, []))
