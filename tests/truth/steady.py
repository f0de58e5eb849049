"""Captures and logs of a testbed that no step of the wall clock, and no pause of the machine, has put a gap into."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import generate
import pytest
import relay_testbed
import starved
from relay_testbed import Scenario
from requirements import unavailable

# Of the relay of one scenario, in all: a hundredth of ten seconds, half of what tests of a rate permit. And at a time: of 24
# intervals for a buffer of 80 ms one was wider than 1.27 times its lower end, and met 20 ms of it; on a busy machine 7 of 60,
# which met 50 to 75 ms.
MAX_STOOD_STILL_S, MAX_AT_A_TIME_S = 0.1, 0.015
# Of one pair. What is judged does not decide whether it is made again.
ATTEMPTS = 3


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
        starved.made_again(f"the pairs of {name}", step)
        starved.calm()
        into = factory.mktemp(name)
        make(into)
    return into


def made_of(factory: pytest.TempPathFactory, name: str, scenarios: dict[str, Scenario]) -> Path:
    """A folder per scenario, as `pairs` has it."""

    def make(into: Path) -> None:
        relay_testbed.build_relay(into)
        for scenario in scenarios.values():
            generate.make(scenario, into, into)
            for _ in range(1, ATTEMPTS):
                late_s, longest_s = stood_still_s(into / scenario.name / "relay.log")
                if late_s <= MAX_STOOD_STILL_S and longest_s <= MAX_AT_A_TIME_S:
                    break
                why = f"the relay stood still for {late_s:.3f} s, {longest_s:.3f} s at a time"
                starved.made_again(
                    f"the pair {scenario.name}",
                    {"why": why, "late_s": round(late_s, 3), "longest_s": round(longest_s, 3)},
                )
                starved.calm()
                shutil.rmtree(into / scenario.name)
                generate.make(scenario, into, into)

    return made(factory, name, make)


def stood_still_s(log: Path) -> tuple[float, float]:
    """How late a relay was in all and at most, by itself. It has real-time priority, so the whole machine did something else
    meanwhile."""
    words = (line.split() for line in log.read_text().splitlines())
    late_us = [int(word[2]) for word in words if word[0] == "w"]
    return sum(late_us) / 1e6, max(late_us, default=0) / 1e6
