"""`make link-fits`: the stored page, a fixed sample of its runs made again, what it says, and its truth on known input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.what_if.findings import ENDS
from bench.what_if.fits import (
    HIDDEN,
    PAGE,
    SEEN,
    STORE,
    capacity,
    measured,
    page,
    settings,
    stored_runs,
    summary,
    way_s,
)
from bench.what_if.links import LINKS, STEP_S, TEST, TUNING, Link, scenario
from bench.what_if.stored import NAMES, cases, key
from requirements import SHARED, require

from unbloat.run.store import Store

TRACES = SHARED / "traces"
# A constant rate, held ACKs, a step and a rival; a trace below.
SAMPLE = (
    ("10M-256K", "cubic", 0),
    ("4M-1M-held-600ms", "bbr", 2),
    ("10M-then-4M", "cubic", 1),
    ("10M-256K-rival", "newreno", 0),
)


def test_the_page_is_that_of_the_stored_runs() -> None:
    runs = stored_runs(STORE)
    assert len(runs) == len(cases()), "make link-fits"
    assert page(runs) == PAGE.read_text(encoding="utf-8"), "make link-fits"


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_a_sample_of_the_page_is_what_a_run_gives(case: tuple[str, str, int]) -> None:
    again(case)


def test_a_run_over_a_trace_is_what_is_stored() -> None:
    require("traces")
    again(("att-lte-up", "cubic", 0))


def again(case: tuple[str, str, int]) -> None:
    name, by, run = case
    [link] = [link for link in LINKS if link.name == name]
    whole = (link, by, run)
    assert Store(STORE, NAMES).runs(key(whole), settings(whole)) == [measured(whole, TRACES)]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of nine in ten, on links that nothing was made by. Where a queue stood more are allowed: errors of slots are bounds."""
    runs = [row for case, row in stored_runs(STORE) if case[0].half == TEST]
    for end in ENDS:
        for kind in (SEEN, HIDDEN, "all"):
            judged = [row[end][kind] for row in runs if kind in row[end]]
            count, inside = (sum(one[name] for one in judged) for name in ("count", "inside"))
            assert inside >= 0.85 * count > 60, (end, kind)


def test_the_truth_of_a_step_is_late_by_the_way_to_the_receiver(tmp_path: Path) -> None:
    step = Link("step", TUNING, 10, then_mbps=4)
    text = scenario(step, "cubic", 0, TRACES, tmp_path)
    assert 0.01 <= way_s(text) <= 0.06
    bits = capacity(step, tmp_path, 0.05)
    assert bits(STEP_S + 0.05) == pytest.approx(10e6 * (STEP_S + 0.05))
    assert bits(STEP_S + 1.05) - bits(STEP_S + 0.05) == pytest.approx(4e6)


def test_an_interval_beside_the_truth_is_counted_as_wrong() -> None:
    rows = [(1e6, 0.9e6, 1.0e6, 1.1e6, 0.5e6), (1e6, 1.1e6, 1.2e6, 1.3e6, 0.5e6)]
    found: dict[str, Any] = summary(rows)
    assert (found["count"], found["inside"]) == (2, 1)
    assert found["arrivals"] == pytest.approx(0.5)
    assert summary([(0.0, 0.0, 0.0, 1e4, 0.0)])["error"] is None
