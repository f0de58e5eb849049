"""Captures and logs of a testbed that no step of the wall clock has put a gap into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import generate
import pytest
import relay_testbed
import starved
from relay_testbed import Scenario
from requirements import unavailable


def made(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder into which `make` wrote. Where the wall clock stepped meanwhile, captures and the relay's log have a gap that no packet
    saw: then made again, once, as for a test that was starved."""
    if reason := relay_testbed.missing_tools():
        unavailable("root", f"the pairs cannot be made here: {reason}")
    into = factory.mktemp(name)
    watch = starved.Watch()
    make(into)
    watch.end()
    if step := watch.clock_step():
        starved.record(f"tests/truth: {name}", step, "the pairs were made again")
        into = factory.mktemp(name)
        make(into)
    return into


def made_of(factory: pytest.TempPathFactory, name: str, scenarios: dict[str, Scenario]) -> Path:
    """A folder per scenario, as `pairs` has it."""

    def make(into: Path) -> None:
        relay_testbed.build_relay(into)
        for scenario in scenarios.values():
            generate.make(scenario, into, into)

    return made(factory, name, make)
