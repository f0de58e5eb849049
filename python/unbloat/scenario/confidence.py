"""Repeated runs: their mean and its 95 % confidence interval.

The interval is Student's t with n − 1 degrees of freedom, since the variance is estimated from the same few runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom (any table of it).
T_975 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
    2.042,
)
Z_975 = 1.959964


@dataclass(frozen=True)
class Spread:
    """A figure over several runs."""

    mean: float
    half: float | None
    """Half the width of the 95 % confidence interval of the mean; None for a single run."""
    count: int


def t_975(freedom: int) -> float:
    """97.5 % quantile of Student's t; beyond the table by Hill's expansion, right to four places there."""
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z = Z_975
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def spread(values: Sequence[float]) -> Spread:
    """Mean and interval of at least one value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Spread(mean, None, count)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Spread(mean, t_975(count - 1) * math.sqrt(variance / count), count)
