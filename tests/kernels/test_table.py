"""The page of the agent on other kernels: cells, and what a test program said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "guest"))

import laws
import run
import table

OUTPUT = """
running 3 tests
test a_law ... ok
test another ... FAILED
test streams ... ok

successes:

---- a_law stdout ----
4 windows

---- streams stdout ----
left out: bpf: the kernel does not take it (needs Linux 5.17)


successes:
    a_law
    streams

failures:

---- another stdout ----
left out: never mind
assertion failed

failures:
    another

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
"""
FIGURES: dict[str, Any] = {"p50_ms": 90, "p95_ms": 99, "mbps": 7.9}


def test_what_each_test_said() -> None:
    assert laws.said(OUTPUT) == {
        "a_law": "same",
        "another": "failed",
        "streams": "left out: bpf: the kernel does not take it (needs Linux 5.17)",
    }
    assert laws.said("") == {}


def test_tests_that_did_not_run_are_counted() -> None:
    tests = {"a: x": "same", "b: y": "left out: bpf: old", "c: z": "failed: exit code 1"}
    assert table.conformance(tests) == "1 of 3 pass, 1 left out, 1 failed"


def test_a_cell_of_one_run_and_of_several() -> None:
    assert table.cell("download", []) == "not run"
    assert table.cell("download", [FIGURES]) == "90/99 ms, 7.90"
    several = [FIGURES, FIGURES | {"p95_ms": 120}, FIGURES | {"mbps": 7.5, "p95_ms": 97}]
    assert table.cell("download", several) == "90 (90–90)/99 (97–120) ms, 7.90 (7.50–7.90)"


def test_a_figure_with_the_hosts_clock_is_marked() -> None:
    line = {
        "family": "6.1",
        "kernel": "6.1.0",
        "case": "download",
        "run": 1,
        "date": "",
        "commit": "",
    }
    for clock in ({}, {"clock": "host"}):
        page = table.page([{**line, "result": FIGURES | clock}])
        assert ("ms, 7.90 \\* |" in page) == ("with the host's clock" in page) == bool(clock)


def test_runs_without_a_result_are_named() -> None:
    assert table.cell("download", [{"failed": "no result"}]) == "failed"
    assert (
        table.cell("download", [FIGURES, {"refused": "no such program"}])
        == "refused in 1 of 2 runs"
    )
    assert table.cell("download", [FIGURES, {"mbps": 7.0}]).startswith("?/? ms")


def test_what_one_run_left_counts_for_all() -> None:
    clean, other = FIGURES | {"left": {}}, FIGURES | {"left": {"maps": [0, 1]}}
    assert table.cell("download-cured", [clean, clean]).endswith("nothing left")
    assert table.cell("download-cured", [clean, other]).endswith("something left")


def test_congestion_control_is_named_before_with_and_after() -> None:
    result = {"untreated": ["cubic"], "treated": ["bbr"], "after_off": ["cubic"], "left": {}}
    assert table.cell("congestion", [result]) == "cubic, bbr, cubic; nothing left"


def test_every_case_is_in_one_group_and_repeated_ones_run_as_often() -> None:
    assert sorted(case for group in run.GROUPS for case in group) == sorted(table.CASES)
    once = [case for number, cases in run.guests("5.10", list(table.CASES)) for case in cases]
    assert sorted(once) == sorted(table.CASES)
    five = [case for _, cases in run.guests("6.12", list(table.CASES)) for case in cases]
    assert {five.count(case) for case in run.REPEATED["6.12"]} == {table.RUNS}


def test_the_committed_page_is_made_of_the_committed_lines() -> None:
    lines = run.read()
    assert lines
    assert table.LINES.with_suffix(".md").read_text() == table.page(lines)
