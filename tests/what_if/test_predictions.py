"""`make what-if`: the stored page, a fixed sample of its runs made again, and its judge on known input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.what_if.findings import ENDS
from bench.what_if.judge import (
    GOODPUT,
    OURS,
    QUEUE,
    as_good,
    at_end,
    best_of,
    error,
    judged,
    kendall,
    passed,
)
from bench.what_if.links import LINKS, TEST, scenario
from bench.what_if.predictions import PAGE, RUNS, STORE, measured, page, settings, stored_runs
from bench.what_if.stored import NAMES, cases, key
from requirements import SHARED

from unbloat.prediction.cures import AS_IT_WAS, CURES
from unbloat.prediction.replay import congestion_text
from unbloat.run.store import Store

TRACES = SHARED / "traces"
# A steady link of each half, by a sender that fills it and by one that does not.
SAMPLE = (("4M-64K", "newreno", 0), ("2M-64K", "bbr", 0))
WAS = AS_IT_WAS.name
TRUTH = {WAS: [4e6, 100.0, 200.0], "bbr": [3.9e6, 10.0, 30.0], "cake": [3.2e6, 5.0, 10.0]}


def test_the_page_is_that_of_the_stored_runs() -> None:
    runs = stored_runs(STORE)
    assert len(runs) == len(cases(RUNS)), "make what-if"
    assert page(runs) == PAGE.read_text(encoding="utf-8"), "make what-if"


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_a_sample_of_the_page_is_what_a_run_gives(case: tuple[str, str, int]) -> None:
    name, by, run = case
    [link] = [link for link in LINKS if link.name == name]
    whole = (link, by, run)
    assert Store(STORE, NAMES).runs(key(whole), settings(whole)) == [measured(whole, TRACES)]


def test_steady_links_that_were_held_out_are_predicted_within_the_goals() -> None:
    """Without traces, rivals, random loss and held ACKs: what the page says of all is on the page."""
    steady = [
        (case, row)
        for case, row in stored_runs(STORE)
        if case[0].half == TEST
        and not (case[0].trace or case[0].rivals or case[0].loss or case[0].hold_ms)
    ]
    for kind, most in ((GOODPUT, 0.10), (QUEUE, 0.20)):
        rows = list(judged(at_end(steady, passed), ENDS, kind))
        assert len(rows) > 100
        assert sorted(error(one, kind) for one in rows)[len(rows) // 2] < most
        assert sum(low <= true <= high for true, low, _, high in rows) >= 0.85 * len(rows)


def row(truth: dict[str, list[float]], **p95_ms: float) -> dict[str, Any]:
    """A run that predicts these queues, and goodput exactly."""
    ours = {
        name: [truth[name][0]] * 3 + [at * 0.9, at, at * 1.1, 1.0, False]
        for name, at in p95_ms.items()
    }
    return {"truth": truth} | {end: {OURS: ours} for end in ENDS}


def test_errors_and_intervals_are_those_of_the_cures_alone() -> None:
    case = (LINKS[0], "bbr", 0)
    known = row(TRUTH, bbr=60.0, cake=10.5)
    [one] = judged([(case, known)], ("client",), QUEUE)
    assert one == pytest.approx((10.0, 9.45, 10.5, 11.55)), "BBR is what the capture shows"
    assert error(one, QUEUE) == pytest.approx(0.05)
    assert error((2.0, 0.0, 7.0, 9.0), QUEUE) == pytest.approx(0.5), "of ten milliseconds"
    known["client"][OURS]["cake"][-1] = True
    assert not list(judged([(case, known)], ("client",), QUEUE))
    assert len(list(judged([(case, known)], ("client",), QUEUE, beyond=True))) == 1


def test_the_best_cure_keeps_goodput_and_shortens_the_queue() -> None:
    assert best_of(TRUTH, TRUTH[WAS]) == "bbr", "the shaper costs a fifth"
    assert as_good(TRUTH, "bbr")
    assert not as_good(TRUTH, "cake")
    assert not as_good(TRUTH, None)
    alone = {WAS: [4e6, 1.0, 2.0]}
    assert as_good(alone, None)


def test_the_rank_correlation_has_its_sign() -> None:
    truth = TRUTH | {"acks": [4e6, 1.0, 100.0]}
    right, wrong = (
        row(truth, bbr=30.0, cake=10.0, acks=90.0),
        row(truth, bbr=90.0, cake=99.0, acks=9.0),
    )
    assert kendall(right["client"], truth) == 1.0
    assert kendall(wrong["client"], truth) == -1.0


def test_a_cure_changes_nothing_else_of_a_link(tmp_path: Path) -> None:
    [link] = [link for link in LINKS if link.name == "10M-256K"]
    texts = {
        cure.name: scenario(link, "cubic", 0, TRACES, tmp_path, cure, 10e6)
        for cure in (AS_IT_WAS, *CURES)
    }
    assert texts["cubic"] == texts[WAS]
    assert texts["bbr"].replace('"bbr"', congestion_text("cubic")) == texts[WAS]
    assert 'rate = "8500 kbit/s"' in texts["cake"]
    assert len(set(texts.values())) == len(CURES)
