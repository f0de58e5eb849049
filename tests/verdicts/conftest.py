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
    """The tuning half. Each test half is looked at once, when the rules are final."""
    require("captures")
    return list(labelled.judge_all((SHARED / "captures" / "real",), "tuning"))


@pytest.fixture(scope="session")
def judged_again() -> list[labelled.Judged]:
    """The first test half, as the rules of today judge it. It is no longer blind."""
    require("captures")
    return list(labelled.judge_all((SHARED / "captures" / "real",), "test"))
