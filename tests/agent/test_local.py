"""A local network has no queue that is worth a millisecond: the agent leaves it its rate."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from receive_bed import Agent, Bed, run, told

pytestmark = pytest.mark.usefixtures("receiving")
GBITS = 1.0


def test_a_download_in_a_local_network_keeps_its_rate(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Agent(bed, "receive.lambda=1.5") as agent:
        run(
            "ip",
            "link",
            "add",
            "lan",
            "netns",
            bed.host,
            "type",
            "veth",
            "peer",
            "name",
            "lan",
            "netns",
            bed.server,
        )
        for space, address in ((bed.host, "10.9.0.1/24"), (bed.server, "10.9.0.2/24")):
            run("ip", "-n", space, "address", "add", address, "dev", "lan")
            run("ip", "-n", space, "link", "set", "lan", "up")
        bed.iperf_server()
        agent.serve()
        argv = ("iperf3", "-c", "10.9.0.2", "-R", "-t", "6", "-b", f"{GBITS}G", "-C", "cubic", "-J")
        download = bed.start(bed.host, *argv)
        time.sleep(4)
        flows = [flow for flow in agent.status()["flows"] if flow["bytes"] > 1_000_000]
        end = json.loads(told(download))["end"]
    assert [flow["rtt_min_ms"] for flow in flows] == [1.0], (
        "the handshake of some 50 µs does not count"
    )
    assert flows[0]["wanted_bytes"] > 1.4e-3 * flows[0]["rate_bps"] / 8
    assert end["sum_received"]["bits_per_second"] > 0.9 * GBITS * 1e9
