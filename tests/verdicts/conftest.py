"""The flows of the tuning half beside their labels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import labelled
from requirements import SHARED, require


@pytest.fixture(scope="session")
def judged() -> list[labelled.Judged]:
    """The tuning half."""
    require("captures")
    return list(labelled.judge_all(SHARED / "captures" / "real", "tuning"))
