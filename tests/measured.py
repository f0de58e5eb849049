"""The measured tier: figures with tight bounds, of a number of runs fixed beforehand, judged by their median.

A test with these figures is marked `measured` and runs with no other test beside it. Every run counts: none is repeated
because its figures were bad.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

RUNS = 3
AT_ONCE = 4
"""Testbeds side by side. They mostly wait for their links; more than these would compete for two processors."""

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
    """Fails where a median is not within its bound; the medians."""
    found = medians(plays, count)
    beyond = {
        name: wrong
        for name, figures in found.items()
        if (
            wrong := {key: bounds[key] for key in figures if not _within(figures[key], bounds[key])}
        )
    }
    assert not beyond, f"{beyond} of {found}"
    return found


def _within(value: float, bound: tuple[str, float]) -> bool:
    return value <= bound[1] if bound[0] == "<=" else value >= bound[1]
