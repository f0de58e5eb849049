"""A line of `target/test-summary.jsonl` for each run of pytest: passed, failed, failed as expected (a known miss), left out by reason, retried, judged
by the wider bounds of a starved machine.

`./check` prints these lines last. UNBLOAT_TEST_SUMMARY names another file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

SUMMARY = Path(__file__).resolve().parents[1] / "target" / "test-summary.jsonl"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """At the end, in the process that has all reports: a worker of xdist has a part of them, and would count them twice."""
    if hasattr(config, "workerinput"):
        return
    stats = terminalreporter.stats
    skipped: Counter[str] = Counter()
    for report in stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped[reason.removeprefix("Skipped: ")] += 1
    reports = [report for name in ("passed", "failed") for report in stats.get(name, [])]
    retried = {
        report.nodeid
        for report in reports
        if any(key == "retried" for key, _ in report.user_properties)
    }
    wider = {
        report.nodeid: str(value)
        for report in reports
        for key, value in report.user_properties
        if key == "wider"
    }
    row = {
        "folder": " ".join(config.args),
        "marks": config.getoption("markexpr"),
        "exit": int(exitstatus),
        "passed": len(stats.get("passed", [])),
        "failed": len(stats.get("failed", [])) + len(stats.get("error", [])),
        "known_misses": len(stats.get("xfailed", [])),
        "skipped": dict(skipped.most_common()),
        "retried": sorted(retried),
        "wider": wider,
    }
    path = Path(os.environ.get("UNBLOAT_TEST_SUMMARY", SUMMARY))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
