"""Jain's index of fairness, and the time until it holds.

signal: goodputs of the flows in each second · model: Jain's index (Σx)² / (n · Σx²) is 1 where all are equal, and 1/n where
one has everything (Jain, Chiu, Hawe 1984) · action: the index of each second, and the first second from which on it holds
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from unbloat.run.figures import jain_index

HOLDS = 0.9
"""The index that the goal asks for: of two flows the smaller has half of the other's goodput."""
SMOOTH_S = 5
"""Seconds over which goodputs are added before the index is judged: a window of four segments at 50 ms varies by a quarter from
one second to the next without being unfair."""


def per_second(series: Sequence[Sequence[float]], smooth_s: int = 1) -> list[float | None]:
    """The index of each second, from goodputs per flow and second; each over the seconds up to it."""
    seconds = min(map(len, series))
    return [
        jain_index([math.fsum(flow[max(at + 1 - smooth_s, 0) : at + 1]) for flow in series])
        for at in range(seconds)
    ]


def holds_after(series: Sequence[Sequence[float]], begin: int, bound: float = HOLDS) -> int | None:
    """Seconds from `begin` (when the last flow started) until the smoothed index holds to the end; None: never.

    A window of `SMOOTH_S` that holds began as many seconds before its end, but not before `begin`.
    """
    # Windows that lie wholly after the start.
    indices = per_second([flow[begin:] for flow in series], SMOOTH_S)[SMOOTH_S - 1 :]
    last_bad = next(
        (at for at in range(len(indices) - 1, -1, -1) if (indices[at] or 0.0) < bound), -1
    )
    return None if last_bad == len(indices) - 1 else last_bad + 1
