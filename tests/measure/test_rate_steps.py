"""A load whose link gets slower while it is measured, twice, goes on until it has a grade, and that is the one of the last rate."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from path import ended
from series import Series

from unbloat.lab.testbed import TIMEOUT_S, until

pytestmark = pytest.mark.usefixtures("machine")

QUEUE_BYTES = 120_000
# The queue lasts for 60, 120 and 240 ms: a C, then a D.
RATES_MBPS = (16, 8, 4)
# What the queue can hold of the rate before the last one, and of the last one with what other devices hold.
BEFORE_MS, LAST_MS = 120, 260
BEGUN_BYTES = 400_000
# A steady load is measured after 5 s at the latest, for 4 s at least. The second step comes so late that less than that is left of its 12 s.
STEPS_S = (5.5, 10.0)


class Stepped(Series):
    """The shaper of the home router's uplink, whose rate is changed."""

    def build(self) -> None:
        """The row of links, and the first rate."""
        super().build()
        self.shape(RATES_MBPS[0])

    @property
    def uplink(self) -> str:
        """The home router's device towards its provider."""
        return self.devices["home", "provider"]

    def shape(self, rate_mbps: int) -> None:
        """Sets the rate; what waits is kept."""
        shaper = ("tbf", "rate", f"{rate_mbps}mbit", "burst", "5kb", "limit", str(QUEUE_BYTES))
        self.ask("home", "tc", "qdisc", "replace", "dev", self.uplink, "root", *shaper)

    def sent_bytes(self) -> int:
        """What the uplink has sent."""
        (link,) = json.loads(self.ask("home", "ip", "-s", "-j", "link", "show", self.uplink))
        return int(link["stats64"]["tx"]["bytes"])


def stepped(made: Stepped, client: subprocess.Popen[str]) -> None:
    """Changes the rate while the client loads the link."""
    until(lambda: made.sent_bytes() > BEGUN_BYTES, TIMEOUT_S, every_s=0.02)
    begun = time.monotonic()
    for after_s, rate_mbps in zip(STEPS_S, RATES_MBPS[1:], strict=True):
        time.sleep(max(0.0, begun + after_s - time.monotonic()))
        assert client.poll() is None, "the load ended before the link changed"
        made.shape(rate_mbps)


def test_a_link_that_changes_late_has_the_grade_of_its_last_rate(tmp_path: Path) -> None:
    with Stepped(tmp_path, None) as made:
        made.serve()
        client = made.client("--phases", "up")
        stepped(made, client)
        _, result = ended(client)
    (phase,) = result["phases"]
    # F where one of twenty probes is lost: many streams share a short queue.
    assert phase["grade"]["grades"] in (["D"], ["D", "F"], ["F"]), phase["grade"]
    # A median that the rates before cannot have, with its whole interval: streams that cut together empty the queue now and then.
    median, low, _ = phase["delay_up"]["p50_ms"]
    assert low > BEFORE_MS, phase["delay_up"]
    assert median < LAST_MS, phase["delay_up"]
