"""What tests of the lab share: what they need of the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from requirements import require, unavailable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def machine() -> None:
    """Root, TUN devices and the lab's programs."""
    require("root", "tun", "unbloat-emu", "ip", "nsenter", "tcpdump", "setpriv", "ss")


@pytest.fixture
def agent(machine: None) -> None:
    """unbloat-agent as well, on a kernel that it can work with."""
    from unbloat.errors import UnbloatError
    from unbloat.lab.agent.config import Cure
    from unbloat.lab.agent.process import need_agent

    require("unbloat-agent", "bpf", "cgroup")
    try:
        need_agent([Cure(0, receive={})])
    except UnbloatError as error:
        unavailable("bpf", str(error))
