"""The agent on the archive's kernels, in guests: its features, one cure with its control, and its conformance tests.

Two guests run at a time, since each takes one core; all within six minutes, the fetching of packages
included. Their clocks count instructions, so that a busy host changes no figure. A kernel whose package
cannot be fetched is left out, by name. One that is fetched and does not boot fails.
"""

from __future__ import annotations

import platform
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import archive
import conformance
import judge
import machine
import prepare
import pytest
import run
from requirements import require, unavailable

from unbloat.lab.requirements import AGENT, found

ALL_S = 360.0
AT_A_TIME = 2
MIN_BOOTED = 2
# Where the agent's conformance tests run as well; `make kernels` runs them everywhere.
COMPARED = "6.12"
FILES = conformance.CASES["conformance"]
# Of the guests' random numbers.
SEED = 1
# Downloads without a cure put most delay on a path; 5.10 has no cure for them.
CURES = dict.fromkeys(archive.FAMILIES, "download-cured") | {"5.10": "upload-acks"}


@dataclass
class Guests:
    """What came of each family: a run, or why its package could not be fetched."""

    runs: dict[str, machine.Run] = field(default_factory=dict)
    unfetched: dict[str, str] = field(default_factory=dict)
    # Names of the conformance tests.
    tests: frozenset[str] = frozenset()

    def of(self, family: str) -> dict[str, dict[str, Any]]:
        """The results of a family."""
        if family in self.unfetched:
            pytest.skip(f"no kernel of family {family}: {self.unfetched[family]}")
        ran = self.runs[family]
        if not ran.booted:
            pytest.fail(f"did not boot; the end of its console:\n{ran.console}", pytrace=False)
        return run.results(ran, cases(family))


def cases(family: str) -> list[str]:
    """The cases that a guest runs: features, the control, the cure; in one of them the tests."""
    tests = ["conformance"] if family == COMPARED else []
    return ["features", judge.CONTROLS[CURES[family]], CURES[family], *tests]


@pytest.fixture(scope="module")
def guests() -> Guests:
    """Runs all guests. The next is fetched while others run."""
    require("unbloat-agent", *run.PROGRAMS)
    if platform.machine() != "x86_64":
        unavailable("kernels", "guests need the programs of an x86-64 host")
    agent = Path(found(AGENT) or AGENT)
    tests = conformance.compiled(prepare.CACHE / "tests")
    until = time.monotonic() + ALL_S
    every, running = Guests(tests=tests.names), dict[str, Future[machine.Run]]()
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for family in archive.FAMILIES:
            try:
                if time.monotonic() > until:
                    raise archive.Unavailable(f"{ALL_S:.0f} s were over before it was fetched")
                programs = tests.programs if family == COMPARED else ()
                guest = prepare.guest(family, agent, programs=programs)
            except archive.Unavailable as why:
                every.unfetched[family] = str(why)
                continue
            running[family] = threads.submit(guest.run, cases(family), until, seed=SEED)
        every.runs = {family: future.result() for family, future in running.items()}
    return every


def test_at_least_two_kernels_boot(guests: Guests) -> None:
    booted = sorted(family for family, ran in guests.runs.items() if ran.booted)
    if len(booted) < MIN_BOOTED:
        unavailable("kernels", f"booted: {booted or 'none'}; not fetched: {guests.unfetched}")


@pytest.mark.parametrize("family", archive.FAMILIES)
def test_features(guests: Guests, family: str) -> None:
    assert judge.features(family, guests.of(family)["features"]) == []


def test_programs_in_the_kernel_decide_as_the_laws_in_rust(guests: Guests) -> None:
    result = guests.of(COMPARED)["conformance"]
    expected = {test for test in guests.tests if test.split(":")[0] in FILES}
    assert judge.conformance(COMPARED, result, expected) == []


@pytest.mark.parametrize("family", archive.FAMILIES)
def test_a_cure(guests: Guests, family: str) -> None:
    results = guests.of(family)
    name = CURES[family]
    assert judge.cure(name, results[name], results[judge.CONTROLS[name]]) == []
