"""A client that its host stops for a moment in the midst of a load measures for a moment longer, and has its grade."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from path import Link, MeasuredPath, ended

from unbloat.lab.testbed import TIMEOUT_S, until

pytestmark = pytest.mark.usefixtures("machine")

# 100 ms of queue up.
UP, DOWN = Link(8, 100), Link(50, 500)
BEGUN_BYTES = 200_000
# Of the quick load of 3.4 s the first 1.2 s are not measured. Without the stop 220 probes follow, of which a grade needs 200.
MEASURED_S, STOPPED_S = 1.6, 0.3


def sent(made: MeasuredPath) -> int:
    """Bytes that the client's namespace has sent."""
    lines = made.ask("client", "cat", "/proc/self/net/dev").splitlines()
    rows = [line.split() for line in lines if ":" in line and "lo:" not in line]
    return sum(int(row[9]) for row in rows)


def test_a_stop_in_the_measured_time_costs_no_grade(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        made.serve()
        client = made.client("--quick", "--phases", "up")
        until(lambda: sent(made) > BEGUN_BYTES, TIMEOUT_S, every_s=0.02)
        time.sleep(MEASURED_S)
        client.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        client.send_signal(signal.SIGCONT)
        _, result = ended(client)
    (phase,) = result["phases"]
    assert "too few" not in (phase["grade"]["why"] or ""), phase["grade"]
    assert phase["delay_up"]["probes"] >= 200
