"""A local network has no queue that is worth a millisecond: the agent leaves it its rate."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from download import Agent, Download

from unbloat.lab.testbed import output

pytestmark = pytest.mark.usefixtures("machine")
GBITS = 1.0


def test_a_download_in_a_local_network_keeps_its_rate(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=1.5") as agent:
        testbed.veth("host", "server", "lan")
        testbed.address("host", "lan", "10.9.0.1/24")
        testbed.address("server", "lan", "10.9.0.2/24")
        testbed.iperf_server()
        agent.serve()
        argv = ("iperf3", "-c", "10.9.0.2", "-R", "-t", "6", "-b", f"{GBITS}G", "-C", "cubic", "-J")
        download = testbed.start("host", *argv)
        time.sleep(4)
        flows = [flow for flow in agent.status()["flows"] if flow["bytes"] > 1_000_000]
        end = json.loads(output(download))["end"]
    assert [flow["rtt_min_ms"] for flow in flows] == [1.0], (
        "the handshake of some 50 µs does not count"
    )
    assert flows[0]["wanted_bytes"] > 1.4e-3 * flows[0]["rate_bps"] / 8
    assert end["sum_received"]["bits_per_second"] > 0.9 * GBITS * 1e9
