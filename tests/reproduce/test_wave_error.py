"""The difference between a reader's sine and the goodput, on goodputs of known truth."""

from __future__ import annotations

import math
from typing import Any

import pytest

from unbloat.claims.measure import wave_error

PERIOD_S, BIN_S, BEGIN_S, END_S = 2.0, 0.02, 1.0, 9.0
MEAN_BYTES = 10_000.0


def goodput(share: float, lag_deg: float) -> list[dict[str, Any]]:
    """Bins of a goodput of 4 Mbit/s that swings by so much of it, so late."""
    rows = []
    for place in range(round((END_S - BEGIN_S) / BIN_S)):
        begin = BEGIN_S + place * BIN_S
        phase = 2 * math.pi * (begin + BIN_S / 2 - BEGIN_S) / PERIOD_S - math.radians(lag_deg)
        delivered = MEAN_BYTES * (1 + share * math.sin(phase))
        rows.append({"t_s": begin, "span_s": BIN_S, "delivered_bytes": delivered})
    return rows


@pytest.mark.parametrize(
    ("share", "lag_deg", "error_bps"),
    [
        (0.8, 0.0, 0.0),
        (0.0, 0.0, 3.2e6),
        (0.8, 180.0, 6.4e6),
        # An integrator: 0.8 cos θ, θ late; what is missing is 0.8 sin θ.
        (0.8 * math.cos(math.radians(45)), 45.0, 3.2e6 * math.sin(math.radians(45))),
    ],
)
def test_the_amplitude_of_what_the_goodput_misses(
    share: float, lag_deg: float, error_bps: float
) -> None:
    found = wave_error(goodput(share, lag_deg), PERIOD_S, 0.8, (BEGIN_S, END_S))
    assert found == pytest.approx(error_bps, abs=1e3)


def test_nothing_delivered_has_no_error() -> None:
    assert wave_error([], PERIOD_S, 0.8, (BEGIN_S, END_S)) is None
