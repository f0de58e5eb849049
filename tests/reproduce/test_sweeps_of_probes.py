"""Which pause a radio sleeps after, and at which hop a queue stands, from pings of known truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from unbloat.claims.of_probes import hop_of, pause_step, queue_hop
from unbloat.run.figures import Figures


def seen(rows: Iterable[dict[str, Any]], *names: str) -> Figures:
    """A run with these probes."""
    run = SimpleNamespace(probes=pa.Table.from_pylist([*rows]))
    return cast("Figures", SimpleNamespace(run=run, probes=[*names], warmup_s=0.0))


def pinged(pauses_s: Iterable[float], rtt_ms: Callable[[float], float]) -> Figures:
    """Pings after these pauses, whose round trip depends on the pause."""
    rows, t_s, before = [], 0.0, 0.0
    for pause in (0.0, *pauses_s):
        t_s += before / 1000 + pause
        before = rtt_ms(pause)
        rows.append({"probe": "ping", "t_s": t_s, "rtt_ms": before})
    return seen(rows, "ping")


# 1 to 15 s, every half second, twice, in an order that does not rise.
PAUSES = [1 + (7 * n % 29) / 2 for n in range(58)]


@pytest.mark.parametrize("threshold", [3.3, 7.2, 11.9])
def test_a_step_is_found_between_the_pauses_around_the_threshold(threshold: float) -> None:
    figures = pinged(PAUSES, lambda pause: 160.0 + (450.0 if pause > threshold else 0.0))
    begin, until = pause_step(figures, "ping", "from"), pause_step(figures, "ping", "until")
    assert begin is not None
    assert until is not None
    assert begin <= threshold < until
    assert until - begin == pytest.approx(0.5)
    assert pause_step(figures, "ping", "middle") == pytest.approx((begin + until) / 2)
    assert pause_step(figures, "ping", "extra") == pytest.approx(450.0)


def test_a_radio_that_never_sleeps_has_no_step() -> None:
    figures = pinged(PAUSES, lambda _: 160.0)
    assert pause_step(figures, "ping", "count") == 0
    assert pause_step(figures, "ping", "middle") is None


def test_a_lost_ping_makes_no_pause() -> None:
    figures = seen([{"probe": "ping", "t_s": float(t), "rtt_ms": None} for t in range(9)], "ping")
    assert pause_step(figures, "ping", "count") is None


@pytest.mark.parametrize("hop", [1, 2, 3, 4])
def test_the_queue_is_at_the_first_hop_from_which_on_all_answers_are_late(hop: int) -> None:
    names = [f"hop-{n}" for n in range(1, 5)]
    rows = [
        {
            "probe": name,
            "t_s": float(t),
            "rtt_ms": 10.0 * n + (300.0 if t >= 10 and n >= hop else 0.0),
        }
        for n, name in enumerate(names, 1)
        for t in range(20)
    ]
    assert queue_hop(seen(rows, *names), (10.0, 20.0)) == hop


def test_a_router_that_is_slow_to_answer_is_no_queue() -> None:
    assert hop_of([280.0, 2.0, 300.0, 310.0]) == 3


def test_without_an_added_delay_there_is_no_queue() -> None:
    assert hop_of([3.0, 4.0, 9.0]) is None
