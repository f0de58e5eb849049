"""Other people's clients of RPM, where they are installed, measure a path to our server: their figure has to be possible there.

A round trip under load takes the path's own 20 ms and what the packet waits in the queue, whose truth is the emulator's log.
No figure may be above that of the empty path. One that is far below that of the queue would mean a queue at the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from path import ADDRESSES, Link, MeasuredPath
from requirements import require

from unbloat.lab.testbed import TIMEOUT_S, output, quantile

pytestmark = pytest.mark.usefixtures("machine")

RTT_MS = 20
# 100 ms each.
LINKS = (Link(10, 125), Link(30, 375))
URL = f"https://{ADDRESSES['server']}:8443/.well-known/nq"


def of_go(out: str) -> float:
    """RPM of the download in the text of goresponsiveness."""
    found = re.search(r"Download:.*?RPM: +(\d+) \(Single-Sided", out, re.DOTALL)
    assert found, out
    return float(found[1])


def of_mach(out: str) -> float:
    """RPM of the download in the JSON of networkquality-rs."""
    return float(json.loads(out)["download"]["rpm"])


@pytest.mark.parametrize(
    ("words", "rpm_of"),
    [
        (("networkQuality", "-rpm.timeout", "10", "-url", URL), of_go),
        (("mach", "rpm", "--insecure", "--disable-aim-scores", "--config", URL), of_mach),
    ],
    ids=["goresponsiveness", "networkquality-rs"],
)
def test_another_client_finds_the_responsiveness_of_the_path(
    tmp_path: Path, words: tuple[str, ...], rpm_of: Callable[[str], float]
) -> None:
    require(words[0])
    with MeasuredPath(tmp_path, *LINKS) as made:
        server = made.serve("--nq", "8443")
        rpm = rpm_of(output(made.start("client", *words), 2 * TIMEOUT_S))
        assert server.poll() is None
        down = made.queues()["down"]
    # While the queue was filled, by whatever part of the test.
    waits_ms = [wait for wait in down.waits_ms(0, down.arrived[-1]) if 10 < wait < float("inf")]
    truth = 60_000 / (RTT_MS + quantile(waits_ms, 0.5))
    assert 0.2 * truth < rpm < 1.5 * truth, (rpm, truth)
