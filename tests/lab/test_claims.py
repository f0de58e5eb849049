"""One claim of the papers on the kernel's own TCP, as `unbloat reproduce --lab=quick` runs it."""

from __future__ import annotations

import pytest

from unbloat.claims.claim import Claim, claims
from unbloat.claims.reproduce_in_lab import AGREES, Laboratory, compared, simulated


@pytest.fixture
def claim() -> Claim:
    """CUBIC in front of an open buffer: half a minute."""
    (found,) = (one for one in claims() if one.id == "drwa-2-overbuffered")
    return found


@pytest.mark.usefixtures("machine")
def test_cubic_fills_an_open_buffer_for_seconds_on_linux_as_in_the_simulator(claim: Claim) -> None:
    steps: list[tuple[int, int]] = []
    laboratory = Laboratory([claim], True, None, lambda done, total: steps.append((done, total)))
    found = compared(claim, laboratory.measured(claim), simulated(claim, True, None))
    # What is in flight after three minutes is shown, without bounds.
    assert {name: one.within for name, one in found.items()} == {
        "bytes in flight, p95": None,
        "RTT, largest": True,
    }
    for outcome in found.values():
        assert outcome.state == AGREES, outcome
        assert outcome.kernel is not None
        assert outcome.late_ms is not None
    assert steps[-1][0] == steps[-1][1] > 0
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
