"""The measured tier: figures with tight bounds, of a number of runs fixed beforehand, judged by their median.

A test with these figures is marked `measured` and runs with no other test beside it. Every run counts. Where a median of the
first runs is beyond its bound, twice as many runs follow, and the median of all of them decides: few runs of a distribution with
two modes have their median in the rarer one too often. Where the machine was measured to be starved meanwhile (`starved.py`),
which its figures do not decide, wider bounds apply, and the test is named in the last lines of `./check`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import starved

RUNS = 3
MORE = 2
"""How many more runs follow, for each of the first, where a median is beyond its bound. Where one run of five is beyond it, the
median of three is in 10 % of all tests, and that of nine in 2 %."""
AT_ONCE = 4
"""Testbeds side by side. They mostly wait for their links; more than these would compete for two processors."""

WIDER = {"<=": 1.5, ">=": 0.9}
"""What a bound is multiplied by on a starved machine. On one whose wake-ups were late by 4.5 s of 200 s, and by up to 0.11 s, the
worst median of nine was 1.29 times its bound of delay; without a cure these delays are 20 times their bound, and more."""

Figures = dict[str, float]
Bounds = Mapping[str, tuple[str, float]]


Plays = Mapping[str, Callable[[], Figures]]


def medians(plays: Plays, count: int = RUNS) -> dict[str, Figures]:
    """The median of each figure of each play, of `count` runs."""
    return {name: _median(runs) for name, runs in _runs(plays, count).items()}


def judged(plays: Plays, bounds: Bounds, count: int = RUNS) -> dict[str, Figures]:
    """Fails where a median is not within its bound, or not within the wider one of a starved machine; the medians."""
    runs = _runs(plays, count)
    found = {name: _median(of) for name, of in runs.items()}
    if beyond := _beyond(found, bounds):
        more = _runs({name: plays[name] for name in beyond}, count * MORE)
        found |= {name: _median(runs[name] + of) for name, of in more.items()}
    if (beyond := _beyond(found, bounds)) and (why := starved.so_far()):
        wider = {key: (sign, bound * WIDER[sign]) for key, (sign, bound) in bounds.items()}
        if not _beyond(found, wider):
            starved.judged_wider(f"{why}: {beyond}")
            return found
    assert not beyond, f"{beyond} of {found}"
    return found


def _runs(plays: Plays, count: int) -> dict[str, list[Figures]]:
    """The figures of `count` runs of each play, some of them side by side."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [(name, pool.submit(play)) for _ in range(count) for name, play in plays.items()]
        done = [(name, future.result()) for name, future in running]
    # pytest shows it where the test fails, and with -rP
    print(
        *(f"{name}: {figures}" for name, figures in sorted(done, key=lambda one: one[0])), sep="\n"
    )
    return {name: [figures for other, figures in done if other == name] for name in plays}


def _median(runs: list[Figures]) -> Figures:
    """The median of each figure."""
    return {key: statistics.median(one[key] for one in runs) for key in runs[0]}


def _beyond(found: Mapping[str, Figures], bounds: Bounds) -> dict[str, Bounds]:
    """The bounds that figures of a play are not within, by play."""
    return {
        name: wrong
        for name, figures in found.items()
        if (
            wrong := {key: bounds[key] for key in figures if not _within(figures[key], bounds[key])}
        )
    }


def _within(value: float, bound: tuple[str, float]) -> bool:
    return value <= bound[1] if bound[0] == "<=" else value >= bound[1]
