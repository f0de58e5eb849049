"""What the tests of all folders share: what they need of the machine, the one layer of retries, the summary."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import awake
import requirements
import starved
import summary
from hypothesis import settings

# How long an example takes says something about the machine, nothing about the code: no deadline. The examples are the
# same in every run; tests/random_tests.py asks for new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None, max_examples=1_000)
settings.load_profile("same")

# A shell starts its background jobs with SIGINT ignored, and programs inherit that: Ctrl-C would have no effect on the
# programs that the tests start. A handler, in contrast, becomes the default when a program is executed.
if threading.current_thread() is threading.main_thread() and (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the plugins of this folder, once."""
    for plugin in (requirements, starved, awake, summary):
        if not config.pluginmanager.is_registered(plugin):
            config.pluginmanager.register(plugin)
