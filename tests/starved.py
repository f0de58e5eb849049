"""The one layer of retries: a failed test runs again only where its own run measured that the machine starved it.

While a test runs, a thread sleeps for moments on end and measures by how much it wakes up late: so do the senders,
readers and judges of a testbed. It also measures by how much the wall clock stepped: a virtual machine that was paused for
three seconds has captures with a gap that no packet saw. The emulator measures late packets. A test may add a measurement of
its own with `measured`. Without such a measurement a failure is a failure. There is one retry, with new fixtures and a new folder,
and each is a line of `target/retries.jsonl` (UNBLOAT_RETRIES names another file). It begins when the machine is calm again: other guests
of a host take its processors for minutes. A test of medians (`measured.py`) asks with
`so_far`, and has wider bounds on a starved machine instead of a retry.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

REAL_CLOCKS = ("acceptance", "agent", "lab", "measure", "truth")
"""Folders whose tests run on real clocks."""
RETRIES = Path(__file__).resolve().parents[1] / "target" / "retries.jsonl"

NAP_S = 0.01
LATE_S = 0.02
"""A wake-up later than this counts: a ping of 90 ms may be wrong by a tenth."""
MAX_LATE_SHARE = 0.01
MAX_LATE_S = 0.05
"""One stall of both processors by 0.1 s leaves a window that is too large: the RTT of a download, 180 ms, was above 200 ms
for 0.7 s after it (4 of 4 runs). That decides a p95 of six seconds."""
CALM_S, TIMEOUT_S = 2.0, 60.0
"""A machine is calm that woke up in time for two seconds. A process waits for a minute in all; what follows may be starved as well."""
MAX_STEP_S = 0.02
"""Time servers slew by at most 500 ppm (adjtimex), which is 0.005 ms in a nap; a thread that is interrupted between its two
readings of the clocks is late as well."""
MAX_LINK_LATE_US = {"p99": 5_000, "max": 50_000}
"""Without a stall the latest packet of 24 runs, three at a time beside a busy loop, was late by at most 13 ms."""

_FOLDER = pytest.StashKey[Path]()
_own: list[str] = []
_wider: list[str] = []
_waits_s: list[float] = []
"""For a calm machine, of this process."""
_running: list[tuple[Watch, pytest.Item]] = []
"""The test that runs: one at most in a process."""


def measured(what: str) -> None:
    """Called by a test whose run measured itself that the machine was too slow for it."""
    _own.append(what)


def so_far() -> str | None:
    """What starvation the run of this test has measured up to now; None: none, or no test of this plugin's runs."""
    found = [watch.starvation(item.stash.get(_FOLDER, None)) for watch, item in _running]
    return next((str(one["why"]) for one in found if one), None)


def judged_wider(why: str) -> None:
    """Called by a test whose bounds were widened: a line of the summary."""
    _wider.append(why)


def calm() -> bool:
    """Waits until the machine wakes up in time, or until `TIMEOUT_S` are used up; whether it did."""
    while sum(_waits_s) < TIMEOUT_S:
        watch = Watch()
        time.sleep(CALM_S)
        watch.end()
        _waits_s.append(CALM_S)
        if watch.worst_s <= LATE_S:
            return True
    return False


class Watch:
    """The thread that measures late wake-ups."""

    def __init__(self) -> None:
        self.late_s, self.worst_s, self.begun = 0.0, 0.0, time.monotonic()
        self.stepped_s = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._nap, daemon=True)
        self.thread.start()

    def _nap(self) -> None:
        before, wall_before = time.monotonic(), time.time()
        while not self.over.wait(NAP_S):
            now, wall = time.monotonic(), time.time()
            step = abs((wall - wall_before) - (now - before))
            self.stepped_s = max(self.stepped_s, step)
            wall_before = wall
            late, before = now - before - NAP_S, now
            self.worst_s = max(self.worst_s, late)
            self.late_s += late if late > LATE_S else 0.0

    def end(self) -> str:
        """Ends the thread: what it has measured."""
        self.over.set()
        self.thread.join()
        return (
            f"wake-ups were late by {self.late_s:.3f} s in all and {self.worst_s:.3f} s at most, "
            f"the wall clock stepped by {self.stepped_s:.3f} s"
        )

    def clock_step(self) -> dict[str, Any] | None:
        """A step of the wall clock, which is not part of any run; None: there was none."""
        if self.stepped_s <= MAX_STEP_S:
            return None
        why = f"the machine's wall clock stepped by {self.stepped_s:.3f} s"
        return {"why": why, "stepped_s": round(self.stepped_s, 3)}

    def starvation(self, folder: Path | None) -> dict[str, Any] | None:
        """What was measured, by this thread, the test, or emulators with files below the folder; None: nothing."""
        if _own:
            return {"why": "; ".join(_own)}
        if step := self.clock_step():
            return step
        share = self.late_s / (time.monotonic() - self.begun)
        if share > MAX_LATE_SHARE or self.worst_s > MAX_LATE_S:
            return {
                "why": f"wake-ups were late for {share:.1%} of the time, by up to {self.worst_s:.3f} s",
                "late_share": round(share, 4),
                "late_max_s": round(self.worst_s, 3),
            }
        for path in sorted(folder.rglob("emu.json")) if folder is not None else ():
            lateness_us = json.loads(path.read_text())["lateness_us"]
            for name, max_us in MAX_LINK_LATE_US.items():
                late_us = lateness_us[name]
                if late_us is not None and late_us > max_us:
                    why = f"the emulator's packets were late by {late_us / 1000:.1f} ms ({name})"
                    return {"why": why, f"emulator_late_{name}_us": late_us}
        return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test, and once more where it failed starved."""
    if item.path.parent.name not in REAL_CLOCKS:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    watch, reports, lateness = run(item, nextitem)
    failed = next((report for report in reports if report.failed), None)
    if failed:
        failed.sections.append(("Machine", lateness))
    starvation = failed and watch.starvation(item.stash.get(_FOLDER, None))
    if failed and starvation:
        record(item.nodeid, starvation, message(failed))
        calm()
        item._initrequest()  # type: ignore[attr-defined]  # new fixtures, as pytest-rerunfailures does
        _, reports, lateness = run(item, nextitem)
        for report in reports:
            report.user_properties.append(("retried", starvation["why"]))
            if report.failed:
                report.sections.append(("Machine, at the second time", lateness))
    for report in reports:
        report.user_properties += [("wider", why) for why in _wider]
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def run(
    item: pytest.Item, nextitem: pytest.Item | None
) -> tuple[Watch, list[pytest.TestReport], str]:
    """Runs a test beside its watch, which has ended; its reports; how late wake-ups were."""
    _own.clear()
    _wider.clear()
    watch = Watch()
    _running[:] = [(watch, item)]
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    _running.clear()
    return watch, reports, watch.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Notes the test's folder, which fixtures forget at their end."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if isinstance(folder, Path):
        item.stash[_FOLDER] = folder
    return (yield)


def message(failed: pytest.TestReport) -> str:
    """What a failed test says."""
    crash = getattr(failed.longrepr, "reprcrash", None)
    return crash.message if crash is not None else str(failed.longrepr)


def record(test: str, starvation: dict[str, Any], failure: str) -> None:
    """A line of the file of retries: a test that failed."""
    _append({"test": test, "starvation": starvation, "failure": (failure.splitlines() or [""])[0]})


def made_again(what: str, starvation: dict[str, Any]) -> None:
    """A line of that file: captures that no test had judged were made again. No limit is on these."""
    _append({"made_again": what, "starvation": starvation})


def _append(row: dict[str, Any]) -> None:
    path = Path(os.environ.get("UNBLOAT_RETRIES", RETRIES))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
