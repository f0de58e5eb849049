"""`make link-findings`: the stored page, a fixed sample of its runs made again, and its truth and judge on known input."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
from bench.what_if.findings import (
    BIN_NS,
    ENDS,
    PAGE,
    RATE,
    SIZE,
    STORE,
    Judged,
    judged,
    measured,
    page,
    settings,
    stored_runs,
    true_rate,
)
from bench.what_if.links import DURATION_S, LINKS, STEP_S, TEST, TUNING, Link, opportunities
from bench.what_if.stored import NAMES, cases, key
from requirements import SHARED, require

from unbloat.run.store import Store

TRACES = SHARED / "traces"
# A constant rate, a fast one, held ACKs, a step, FQ-CoDel and a rival; a trace below.
SAMPLE = (
    ("10M-256K", "cubic", 0),
    ("50M-1M", "newreno", 1),
    ("4M-1M-held-600ms", "bbr", 2),
    ("10M-then-4M", "cubic", 1),
    ("10M-fq-codel", "cubic", 2),
    ("4M-1M-rival", "newreno", 0),
)
# Of the links and their halves: a link that moves to the other half is no longer held out.
HALVES = "f7bacb965043361b"


def link(name: str) -> Link:
    return next(one for one in LINKS if one.name == name)


def test_the_links_and_their_halves_are_those_of_the_first_figure() -> None:
    names = "\n".join(f"{one.name} {one.half}" for one in LINKS)
    assert hashlib.sha256(names.encode()).hexdigest()[:16] == HALVES
    assert len({one.name for one in LINKS}) == len(LINKS)
    assert {one.half for one in LINKS} == {TUNING, TEST}


def test_the_page_is_what_is_stored() -> None:
    runs = stored_runs(STORE)
    assert len(runs) == len(cases()), "make link-findings"
    assert page(runs) == PAGE.read_text(encoding="utf-8"), "make link-findings"


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_a_sample_of_the_page_is_what_a_run_gives(case: tuple[str, str, int]) -> None:
    again(case)


def test_a_run_over_a_trace_is_what_is_stored() -> None:
    require("traces")
    again(("att-lte-up", "cubic", 0))


def again(case: tuple[str, str, int]) -> None:
    name, by, run = case
    whole = (link(name), by, run)
    assert Store(STORE, NAMES).runs(key(whole), settings(whole)) == [measured(whole, TRACES)]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of nine in ten, on links that no rule was made by. More are allowed: an interval is never narrower than what the tick and
    the headers leave open."""
    found, _ = judged(stored_runs(STORE))
    for end in ENDS:
        for rule in (RATE, SIZE):
            one = found[rule, end, TEST]
            assert one.inside >= 0.85 * one.valued > 40, (rule, end)
            assert one.wrong_bounds == 0, (rule, end)


def queue(*bins: tuple[int, float]) -> list[dict[str, Any]]:
    """The log of a queue: bin and mean wait."""
    return [
        {"link": "up", "t_s": at * BIN_NS / 1e9, "bytes": 15_000, "delay_ms": ms} for at, ms in bins
    ]


def test_the_true_rate_is_that_of_the_bins_with_a_queue(tmp_path: Path) -> None:
    step = Link("step", TUNING, 10, then_mbps=4)
    at_step = STEP_S * 10
    around = queue(*((at, 20.0) for at in range(at_step - 11, at_step + 10)))
    assert true_rate(step, tmp_path, around, b"") == pytest.approx(7e6)
    # The first bin has no queue at its beginning; short queues and other links do not count.
    assert true_rate(step, tmp_path, around[:12], b"") == pytest.approx((10 * 10 + 4) / 11 * 1e6)
    short = queue(*((at, 7.0) for at in range(at_step + 10, at_step + 100)))
    assert true_rate(step, tmp_path, around + short, b"") == pytest.approx(7e6)
    down = [{**row, "link": "down"} for row in around]
    assert true_rate(step, tmp_path, down, b"") is None
    assert true_rate(step, tmp_path, around[:10], b"") is None


def test_a_trace_has_a_packet_for_each_1500_bytes() -> None:
    # 12 Mbit/s for a second, nothing for another one, 6 Mbit/s for a third.
    times_ms = opportunities([(0.0, 12e6), (1.0, 0.0), (2.0, 6e6), (3.0, 6e6)])
    assert len(times_ms) == 1500
    assert times_ms[:2] == pytest.approx([1.0, 2.0])
    assert times_ms[1000] == pytest.approx(2002.0)


def row(rate: float | None, found: dict[str, Any]) -> dict[str, Any]:
    return {"rate_bps": rate, "client": found, "server": {}}


def test_what_is_not_right_is_named_and_what_is_not_known_is_not_judged() -> None:
    steady, codel, shared = link("10M-256K"), link("10M-fq-codel"), link("10M-256K-rival")
    size = {"buffer_bytes": 255e3, "buffer_bytes_low": 250e3, "buffer_bytes_high": 260e3}
    low = {"bottleneck_bps": 9e6, "bottleneck_bps_low": 8.9e6, "bottleneck_bps_high": 9.1e6}
    bound = {"buffer_bytes_low": 300e3}
    runs = [
        ((steady, "cubic", 0), row(10e6, {RATE: low, SIZE: size})),
        ((steady, "cubic", 1), row(9e6, {RATE: low, SIZE: bound})),
        ((codel, "cubic", 0), row(10e6, {SIZE: size})),
        ((shared, "cubic", 0), row(None, {RATE: low, SIZE: size})),
    ]
    found, wrong = judged(runs)
    rate, sizes = found[RATE, "client", TEST], found[SIZE, "client", TEST]
    assert (rate.runs, rate.withheld, rate.valued, rate.inside) == (3, 1, 2, 1)
    assert (sizes.runs, sizes.valued, sizes.inside) == (3, 2, 1)
    assert (sizes.bounds, sizes.wrong_bounds) == (1, 1)
    assert [line.split(" | ")[:4] for line in wrong] == [
        ["| bottleneck-rate", "10M-256K", "cubic", "0"],
        ["| buffer-size", "10M-256K", "cubic", "1"],
        ["| buffer-size", "10M-fq-codel", "cubic", "0"],
    ]
    assert found[RATE, "server", TEST].withheld == 3


def test_errors_are_relative_and_a_lower_bound_has_none() -> None:
    one = Judged()
    assert one.add(100.0, 90.0, 104.0, 110.0)
    assert not one.add(100.0, 101.0, 104.0, 110.0)
    assert one.add(100.0, 50.0, None, None)
    assert one.ratios == [1.04, 1.04]
    assert one.widths == pytest.approx([20 / 104, 9 / 104])
    assert math.isclose(one.inside / one.valued, 0.5)
    assert DURATION_S > STEP_S
