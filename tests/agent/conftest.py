"""What tests of the agent share: what they need of the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import require, unavailable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def machine() -> None:
    """Root, BPF, the agent, the emulator and the judges."""
    require("root", "tun", "bpf", "bpffs", "cgroup", "unbloat-emu", "unbloat-agent")
    require("ip", "nsenter", "ss", "tc", "ping", "iperf3", "tcpdump", "tshark")


def built(name: str) -> str:
    """An example program of the agent."""
    from agent_program import example

    return example(name) or unavailable("cargo", f"the example {name} of the agent is not built")


@pytest.fixture(scope="session")
def gate_program(machine: None) -> str:
    """The gate alone."""
    return built("gate")


@pytest.fixture(scope="session")
def acks_program(machine: None) -> str:
    """ACK-window rewriting alone."""
    return built("acks")


@pytest.fixture(scope="session")
def shaper_program(machine: None) -> str:
    """The shaper alone."""
    return built("shaper")


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """One for each testbed."""
    return (tmp_path / str(i) for i in range(100))
