"""One claim of the papers on the kernel's own TCP, as `unbloat reproduce --lab=quick` runs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unbloat.claims import Claim, claims
from unbloat.reproduce_lab import AGREES, Laboratory, compared, simulated

# The window is full after some eight seconds; what comes then is the same for as long as it goes on.
SETTINGS = {"duration": "20 s", "warmup": "10 s"}


@pytest.fixture
def claim() -> Claim:
    """CUBIC in front of an open buffer."""
    (found,) = (one for one in claims() if one.id == "drwa-2-overbuffered")
    assert found.lab is not None
    return replace(found, lab=replace(found.lab, set=SETTINGS))


@pytest.mark.usefixtures("machine")
def test_cubic_keeps_over_800_kb_in_flight_on_linux_as_in_the_simulator(claim: Claim) -> None:
    steps: list[tuple[int, int]] = []
    laboratory = Laboratory([claim], True, None, lambda done, total: steps.append((done, total)))
    found = compared(claim, laboratory.measured(claim), simulated(claim, True, None))
    assert set(found) == {
        "bytes in flight, p95",
        "RTT, largest",
        "queueing delay at the first hop over all of the delay above the base RTT",
    }
    for outcome in found.values():
        assert (outcome.state, outcome.within) == (AGREES, True), outcome
        assert outcome.kernel is not None
        assert outcome.late_ms is not None
    assert steps[-1][0] == steps[-1][1] > 0
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
