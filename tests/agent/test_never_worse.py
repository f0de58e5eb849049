"""Where no modem and no driver with byte queue limits reports, the default agent refuses no packet.

A refused packet ends slow start, or is a loss of a host behind this one. The table of completion
times and goodput with and without the agent comes from `bench/agent/never_worse.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from daemon import Daemon, within
from uplink import Uplink, scenario

pytestmark = pytest.mark.usefixtures("machine")

CARRIED = 20 * 1448 / 1500
"""Payload of 20 Mbit/s on the wire, Mbit/s."""


def gate(status: dict[str, Any]) -> dict[str, Any]:
    """Counters of the gate."""
    found: dict[str, Any] = status["cures"]["gate"]
    return found


@pytest.mark.parametrize(
    ("agent_on", "sender"),
    [("phone", "phone"), ("phone", "notebook"), ("notebook", "notebook")],
    ids=["tun", "tun-forwarded", "veth"],
)
def test_the_gate_of_a_device_without_byte_queue_limits_refuses_nothing(
    tmp_path: Path, agent_on: str, sender: str
) -> None:
    """veth has the queue discipline noqueue, whose counters stay at 0; TUN takes packets at once."""
    text = scenario('rate = "20 Mbit/s"', 'rate = "20 Mbit/s"', buffer="150 KB")
    with Uplink(tmp_path, text) as testbed:
        testbed.ip("phone", f"route add default dev {testbed.device}")
        with Daemon(testbed, agent_on) as agent:
            agent.serve()
            within(5, lambda: agent.status()["uplink"]["active"] == "acks")
            rate = testbed.iperf(sender, 8, "-C", "cubic").mbps()
            status = agent.status()
    found = gate(status)
    assert (found["refused_own"], found["refused_forwarded"]) == (0, 0)
    assert found["passed_bytes"] > 0.8e6 * CARRIED
    assert found["telemetry"]["state"] == "silent"
    assert rate > 0.8 * CARRIED, "a refused packet would have ended slow start"
