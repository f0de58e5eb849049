"""What tests of `unbloat measure` share: what they need of the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from requirements import require

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture
def machine() -> None:
    """Root, TUN devices and the programs."""
    require("root", "tun", "unbloat-emu", "unbloat-measure", "ip", "nsenter", "ss")
