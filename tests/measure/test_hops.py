"""The place of the queue: three links in a row, one of them slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from series import Series

pytestmark = pytest.mark.usefixtures("machine")

DEVICES = {
    "up": (
        "this host, or its Wi-Fi or cable",
        "the home router's uplink, or the modem",
        "the provider's network, or beyond",
    ),
    "down": (
        "the router or access point in front of this host",
        "the provider's end of the access line",
        "the provider's network, or beyond",
    ),
}


@pytest.mark.parametrize(
    ("slow", "six"),
    [(0, False), (1, False), (2, False), (1, True)],
    ids=["first", "second", "third", "second, IPv6"],
)
def test_the_link_in_front_of_which_the_queue_stands_is_named(
    tmp_path: Path, slow: int, six: bool
) -> None:
    with Series(tmp_path, slow, six) as made:
        made.serve()
        _, result = made.measure("--quick", "--phases", "down,up")
    assert [hop["address"] for hop in result["hops"]] == made.hops
    assert [hop["hop"] for hop in result["hops"]] == [1, 2]
    assert all(
        true <= hop["rtt_min_ms"] < true + 3
        for hop, true in zip(result["hops"], (2, 14), strict=True)
    )
    for phase in result["phases"]:
        way, place = phase["phase"], phase["place"]
        assert place is not None, phase["place_why"]
        before = slow + 1 if slow < 2 else None
        assert (place["after"], place["before"]) == (slow, before), way
        assert place["device"] == DEVICES[way][slow]
        assert place["share"] >= 0.9
        # The probes that expire are none that the server counts.
        assert phase["delay_up"]["loss"] < 0.05
