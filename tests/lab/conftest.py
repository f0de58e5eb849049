"""What tests of the lab share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture
def machine() -> None:
    """Root, TUN devices and the lab's programs; else the test is left out, with the reason."""
    from unbloat.errors import UnbloatError
    from unbloat.lab.requirements import found, need_root

    try:
        need_root()
    except UnbloatError as error:
        pytest.skip(str(error))
    missing = [
        name for name in ("unbloat-emu", "ip", "tcpdump", "setpriv", "ss") if found(name) is None
    ]
    if missing or not os.path.exists("/dev/net/tun"):
        pytest.skip(f"the lab cannot run here: no {', '.join(missing) or '/dev/net/tun'}")


@pytest.fixture
def agent(machine: None) -> None:
    """unbloat-agent as well, on a kernel that it can work with."""
    from unbloat.errors import UnbloatError
    from unbloat.lab.agent.config import Cure
    from unbloat.lab.agent.process import need_agent
    from unbloat.lab.requirements import AGENT, found

    if found(AGENT) is None:
        pytest.skip("the lab cannot run an agent here: no unbloat-agent")
    try:
        need_agent([Cure(0, receive={})])
    except UnbloatError as error:
        pytest.skip(str(error))
