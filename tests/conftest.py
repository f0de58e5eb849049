"""What the tests of all folders share: what they need of the machine, the one layer of retries, the summary."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import requirements
import starved
import summary
from hypothesis import settings

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the plugins of this folder, once."""
    for plugin in (requirements, starved, summary):
        if not config.pluginmanager.is_registered(plugin):
            config.pluginmanager.register(plugin)
