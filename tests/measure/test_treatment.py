"""A network that lets UDP pass its queue: the probes' grade is good, and TCP handshakes show that it is of UDP alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from requirements import require
from series import Series

pytestmark = pytest.mark.usefixtures("machine")

# 200 packets of 1500 bytes at 8 Mbit/s.
FULL_MS = 300


@pytest.mark.parametrize("prefers_udp", [True, False], ids=["UDP passes", "one queue"])
def test_a_network_that_prefers_udp_is_found_and_one_queue_for_all_is_not(
    tmp_path: Path, prefers_udp: bool
) -> None:
    require("tc")
    with Series(tmp_path, None) as made:
        made.shape_uploads(prefers_udp)
        made.serve()
        _, result = made.measure("--quick", "--phases", "up")
    (phase,) = result["phases"]
    found = phase["handshakes"]
    assert found["handshakes"] >= 8, found
    # Wherever the queue of the load stands, handshakes wait in it.
    assert 0.5 * FULL_MS < found["added_p50_ms"] < 1.2 * FULL_MS, found
    assert found["differs"] == prefers_udp, found
    probes_ms = phase["delay_rtt"]["p50_ms"][0]
    if prefers_udp:
        assert probes_ms < 10
        assert found["later_ms"] > 0.5 * FULL_MS
    else:
        assert probes_ms > 0.5 * FULL_MS
        assert abs(found["later_ms"]) < 10
