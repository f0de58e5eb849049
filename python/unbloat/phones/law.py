"""Distributions by a few of their quantiles, drawn by one random number each: the same number gives the same value anywhere."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True)
class Law:
    """(share, x) with both ascending, from share 0 to 1. Between two points the logarithm of x is linear in the share."""

    points: tuple[tuple[float, float], ...]

    def at(self, share: float) -> float:
        """The quantile of a share, 0 to 1; in the unit of x."""
        place = min(max(bisect_right(self.points, (share, math.inf)), 1), len(self.points) - 1)
        (low, a), (high, b) = self.points[place - 1], self.points[place]
        return a * math.exp(math.log(b / a) * (share - low) / (high - low))


def law(*points: tuple[float, float]) -> Law:
    """A law by its quantiles."""
    return Law(points)


def always(x: float) -> Law:
    """No choice."""
    return Law(((0.0, x), (1.0, x)))


# Quantiles of the standard normal distribution, for laws that are log-normal between them.
NORMAL = (
    (0.0, -3.2), (0.01, -2.326), (0.05, -1.645), (0.1, -1.2816), (0.25, -0.6745), (0.5, 0.0), (0.75, 0.6745),
    (0.9, 1.2816), (0.95, 1.645), (0.99, 2.326), (1.0, 3.2),
)  # fmt: skip


def log_normal(median: float, sigma: float) -> Law:
    """A log-normal law, cut off at 3.2 σ."""
    return Law(tuple((share, median * math.exp(sigma * z)) for share, z in NORMAL))
