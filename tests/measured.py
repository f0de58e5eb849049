"""The measured tier: figures with tight bounds, of a number of runs fixed beforehand, judged by their median.

A test with these figures is marked `measured` and runs with no other test beside it. Every run counts: none is repeated
because its figures were bad. Where the machine was measured to be starved meanwhile (`starved.py`), which its figures do not
decide, wider bounds apply, and the test is named in the last lines of `./check`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import starved

RUNS = 3
AT_ONCE = 4
"""Testbeds side by side. They mostly wait for their links; more than these would compete for two processors."""

WIDER = {"<=": 1.5, ">=": 0.9}
"""What a bound is multiplied by on a starved machine. On one whose wake-ups were late by 4.5 s of 200 s, and by up to 0.11 s, the
worst median of nine was 1.29 times its bound of delay; without a cure these delays are 20 times their bound, and more."""

Figures = dict[str, float]
Bounds = Mapping[str, tuple[str, float]]


def medians(plays: Mapping[str, Callable[[], Figures]], count: int = RUNS) -> dict[str, Figures]:
    """The median of each figure of each play, of `count` runs."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [(name, pool.submit(play)) for _ in range(count) for name, play in plays.items()]
        done = [(name, future.result()) for name, future in running]
    runs = {name: [figures for other, figures in done if other == name] for name in plays}
    # pytest shows it where the test fails, and with -rP
    print(*(f"{name}: {figures}" for name in plays for figures in runs[name]), sep="\n")
    return {
        name: {key: statistics.median(one[key] for one in figures) for key in figures[0]}
        for name, figures in runs.items()
    }


def judged(
    plays: Mapping[str, Callable[[], Figures]], bounds: Bounds, count: int = RUNS
) -> dict[str, Figures]:
    """Fails where a median is not within its bound, or not within the wider one of a starved machine; the medians."""
    found = medians(plays, count)
    if (beyond := _beyond(found, bounds)) and (why := starved.so_far()):
        wider = {key: (sign, bound * WIDER[sign]) for key, (sign, bound) in bounds.items()}
        if not _beyond(found, wider):
            starved.judged_wider(f"{why}: {beyond}")
            return found
    assert not beyond, f"{beyond} of {found}"
    return found


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
