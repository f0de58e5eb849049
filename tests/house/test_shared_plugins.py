"""The plugins of all test folders: what is left out is counted and can be required; retries need a measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import starved
from totals import totals

TESTS = Path(__file__).resolve().parents[1]
NEVER_STARVED = "import starved\nstarved.MAX_LATE_SHARE = starved.MAX_LATE_S = 1e9\n"
FAILS_ONCE = """
from pathlib import Path
def test_it(tmp_path):
    marker = Path(__file__).with_name("ran")
    first = not marker.exists()
    marker.touch()
    {measured}
    assert not first, "the first time"
"""


def run(folder: Path, text: str, **env: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """A test file in a folder of real clocks: exit code, summary, retries."""
    where = folder / "agent"
    where.mkdir()
    (where / "test_it.py").write_text(NEVER_STARVED + text)
    files = {
        "UNBLOAT_RETRIES": str(folder / "retries"),
        "UNBLOAT_TEST_SUMMARY": str(folder / "summary"),
    }
    plugins = [word for name in ("requirements", "starved", "summary") for word in ("-p", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), *plugins, str(where)],
        cwd=folder,
        env=os.environ | files | {"PYTHONPATH": str(TESTS), "UNBLOAT_REQUIRE": ""} | env,
        capture_output=True,
        text=True,
    )
    (summary,) = map(json.loads, (folder / "summary").read_text().splitlines())
    retries = folder / "retries"
    lines = retries.read_text().splitlines() if retries.exists() else []
    return done.returncode, summary, [json.loads(line) for line in lines]


def test_what_is_missing_is_left_out_with_its_reason(tmp_path: Path) -> None:
    text = "import requirements\n@requirements.requires('nosuch')\ndef test_it(): pass\n"
    code, summary, _ = run(tmp_path, text)
    assert code == 0
    assert summary["skipped"] == {"nosuch: not installed": 1}


def test_what_is_required_and_missing_fails(tmp_path: Path) -> None:
    text = "import requirements\ndef test_it(): requirements.require('nosuch')\n"
    code, summary, _ = run(tmp_path, text, UNBLOAT_REQUIRE="root,nosuch")
    assert code == 1
    assert (summary["failed"], summary["skipped"]) == (1, {})


def test_a_failure_without_a_measurement_is_a_failure(tmp_path: Path) -> None:
    code, summary, retries = run(tmp_path, FAILS_ONCE.format(measured=""))
    assert (code, summary["failed"], retries) == (1, 1, [])


def test_a_failure_that_measured_starvation_is_tried_once_more_and_noted(tmp_path: Path) -> None:
    text = FAILS_ONCE.format(measured="starved.measured('3 packets were dropped')")
    code, summary, (retry,) = run(tmp_path, text)
    assert (code, summary["passed"]) == (0, 1)
    assert summary["retried"] == [retry["test"]]
    assert retry["starvation"] == {"why": "3 packets were dropped"}
    assert retry["failure"].startswith("AssertionError: the first time")


def test_a_test_that_fails_twice_fails(tmp_path: Path) -> None:
    text = "def test_it():\n    starved.measured('late')\n    assert False\n"
    code, summary, retries = run(tmp_path, text)
    assert (code, summary["failed"], len(retries)) == (1, 1, 1)


@pytest.mark.parametrize(("late_s", "calm"), [([0.3, 0.03, 0.001], True), ([0.3] * 9, False)])
def test_a_retry_waits_until_wake_ups_are_in_time(
    monkeypatch: pytest.MonkeyPatch, late_s: list[float], calm: bool
) -> None:
    left = list(late_s)

    class Late:
        worst_s = 0.0

        def end(self) -> None:
            self.worst_s = left.pop(0)

    monkeypatch.setattr(starved, "Watch", Late)
    monkeypatch.setattr(starved, "CALM_S", 0.01)
    monkeypatch.setattr(starved, "TIMEOUT_S", 0.045)
    monkeypatch.setattr(starved, "_waits_s", [])
    assert starved.calm() is calm
    # It looked five times, ten milliseconds each.
    assert len(left) == (0 if calm else len(late_s) - 5)


@pytest.mark.parametrize(("step_s", "retried"), [(0.0, 0), (3.3, 1)])
def test_a_step_of_the_wall_clock_is_a_measurement(
    tmp_path: Path, step_s: float, retried: int
) -> None:
    text = f"""
import time
def test_it(monkeypatch):
    time.sleep(0.1)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + {step_s})
    time.sleep(0.1)
    assert False
"""
    _, _, retries = run(tmp_path, text)
    assert len(retries) == retried
    assert all(3.2 < retry["starvation"]["stepped_s"] < 3.4 for retry in retries)


@pytest.mark.parametrize(("max_us", "retried"), [(13_000, 0), (90_000, 1)])
def test_one_late_packet_of_the_emulator_is_a_measurement(
    tmp_path: Path, max_us: int, retried: int
) -> None:
    text = f"""
import json
def test_it(tmp_path):
    late = {{"p50": 30, "p99": 100, "max": {max_us}}}
    (tmp_path / "emu.json").write_text(json.dumps({{"lateness_us": late}}))
    assert False
"""
    _, _, retries = run(tmp_path, text)
    assert len(retries) == retried


@pytest.mark.parametrize(
    ("late", "p95_ms", "failed", "wider"),
    [(False, 80, 0, 0), (False, 100, 1, 0), (True, 80, 0, 0), (True, 100, 0, 1), (True, 130, 1, 0)],
)
def test_medians_have_wider_bounds_where_the_machine_was_measured_to_be_starved(
    tmp_path: Path, late: bool, p95_ms: int, failed: int, wider: int
) -> None:
    text = f"""
import json, measured
def test_it(tmp_path):
    late = {{"p50": 30, "p99": {9_000 if late else 100}, "max": 10_000}}
    (tmp_path / "emu.json").write_text(json.dumps({{"lateness_us": late}}))
    measured.judged({{"one": lambda: {{"p95": {p95_ms}}}}}, {{"p95": ("<=", 85.0)}})
"""
    _, summary, _ = run(tmp_path, text)
    assert (summary["failed"], len(summary["wider"])) == (failed, wider)
    assert all("late by 9.0 ms (p99)" in why for why in summary["wider"].values())


@pytest.mark.parametrize(
    ("p95_ms", "failed", "ran"),
    [
        # The median of the first three decides where it is within its bound.
        ([80, 81, 120], 0, 3),
        # Else that of nine does, in which every run counts.
        ([120, 120, 80, 80, 80, 80, 80, 120, 120], 0, 9),
        ([120, 120, 80, 80, 80, 80, 120, 120, 120], 1, 9),
    ],
)
def test_more_runs_follow_where_a_median_is_beyond_its_bound(
    tmp_path: Path, p95_ms: list[int], failed: int, ran: int
) -> None:
    text = f"""
import measured
from pathlib import Path
def test_it():
    left = iter({p95_ms})
    ran = []
    def play():
        ran.append(next(left))
        return {{"p95": ran[-1]}}
    try:
        measured.judged({{"one": play}}, {{"p95": ("<=", 85.0)}})
    finally:
        Path({str(tmp_path / "ran")!r}).write_text(str(len(ran)))
"""
    _, summary, retries = run(tmp_path, text)
    assert (summary["failed"], retries) == (failed, [])
    assert (tmp_path / "ran").read_text() == str(ran)


@pytest.mark.parametrize(("tests", "pairs", "fine"), [(2, 9, True), (3, 0, False)])
def test_more_than_two_retries_are_a_failure_and_captures_made_again_are_listed(
    tmp_path: Path, tests: int, pairs: int, fine: bool
) -> None:
    late = {"starvation": {"why": "late"}}
    rows = [{"test": "t"} | late] * tests + [{"made_again": "the pair small"} | late] * pairs
    (tmp_path / "retries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines, within = totals(tmp_path)
    assert within is fine
    assert lines.count("retried t: late") == tests
    assert lines.count("made again the pair small: late") == pairs
    assert f"{tests} retried, {pairs} captures made again" in lines[-1]
