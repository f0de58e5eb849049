"""A network that treats TCP, QUIC and other UDP differently. The grade is that of the probes, which are other UDP; TCP handshakes and
QUIC probes beside them show what a queue, or a rule of a firewall, does to the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from requirements import require
from series import Series

pytestmark = pytest.mark.usefixtures("machine")

# 200 packets of 1500 bytes at 8 Mbit/s.
FULL_MS = 300


def uploaded(folder: Path, passes: str = "", *, blocks_quic: bool = False) -> dict[str, Any]:
    """An upload through the home router's queue, which a kind of packets passes."""
    require("tc")
    with Series(folder, None) as made:
        made.shape_uploads(passes, blocks_quic=blocks_quic)
        made.serve()
        # Not --quick: of ten round trips in two seconds a full queue may drop half.
        _, result = made.measure("--phases", "up")
    (phase,) = result["phases"]
    assert phase["handshakes"]["sent"] >= 8, phase
    assert phase["quic_probes"]["sent"] >= 8, phase
    return dict(phase)


def check(found: dict[str, Any], *, waits: bool, differs: bool) -> None:
    """Whether round trips waited in the queue, unlike the probes."""
    assert (found["differs"], found["blocked"]) == (differs, False), found
    # A full queue drops some of them.
    assert found["lost"] < found["sent"] / 2, found
    if waits:
        assert 0.5 * FULL_MS < found["added_p50_ms"] < 1.2 * FULL_MS, found
    else:
        assert found["added_p50_ms"] < 10, found
    if differs:
        assert found["later_ms"] > 0.5 * FULL_MS, found
    else:
        assert abs(found["later_ms"]) < 10, found


@pytest.mark.parametrize("passes", ["udp", "other udp", ""])
def test_what_passes_the_queue_and_what_does_not_is_found_and_one_queue_for_all_is_no_difference(
    tmp_path: Path, passes: str
) -> None:
    phase = uploaded(tmp_path, passes)
    probes_ms = phase["delay_rtt"]["p50_ms"][0]
    assert probes_ms < 10 if passes else probes_ms > 0.5 * FULL_MS
    # Wherever the queue of the load stands, handshakes wait in it.
    check(phase["handshakes"], waits=True, differs=passes != "")
    check(phase["quic_probes"], waits=passes != "udp", differs=passes == "other udp")


def test_a_path_that_drops_quic_is_named(tmp_path: Path) -> None:
    phase = uploaded(tmp_path, blocks_quic=True)
    found = phase["quic_probes"]
    assert (found["lost"], found["added_p50_ms"], found["later_ms"]) == (found["sent"], None, None)
    assert found["blocked"]
    assert found["differs"]
    check(phase["handshakes"], waits=True, differs=False)
