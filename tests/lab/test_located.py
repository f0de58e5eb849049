"""Captures of real kernels at every node, segmentation offload and all, laid beside each other: the queue and the losses are
where the emulator made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import unbloat as run

import unbloat
from unbloat.path.tables import BACKWARD, FORWARD

pytestmark = pytest.mark.usefixtures("machine")

SCENARIO = """
name = "located"
duration = "7 s"
[[node]]
name = "notebook"
[[node]]
name = "router"
[[node]]
name = "server"
[[link]]
name = "lan"
from = "notebook"
to = "router"
rate = "500 Mbit/s"
delay = "2 ms"
[[link]]
name = "up"
from = "router"
to = "server"
rate = "20 Mbit/s"
delay = "10 ms"
loss = 0.0005
queue = { kind = "droptail", limit = "120 packets" }
[[link]]
name = "down"
from = "server"
to = "router"
rate = "100 Mbit/s"
delay = "10 ms"
[[link]]
name = "lan-back"
from = "router"
to = "notebook"
rate = "500 Mbit/s"
delay = "2 ms"
[[flow]]
name = "upload"
from = "notebook"
to = "server"
congestion = "cubic"
stop = "5 s"
[[probe]]
name = "ping"
from = "notebook"
to = "server"
every = "50 ms"
"""
POINTS = ("notebook", "router.lan-back", "router.up", "server")
Row = dict[str, Any]


def test_queue_and_losses_are_found_where_the_emulator_made_them(tmp_path: Path) -> None:
    file = tmp_path / "located.toml"
    file.write_text(SCENARIO)
    done = run(
        "lab",
        str(file),
        "--capture",
        "all",
        "--pcap",
        str(tmp_path / "pcap"),
        "--out",
        str(tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    links: dict[str, Row] = {
        row["link"]: row for row in unbloat.open_run(tmp_path / "out").stages.to_pylist()
    }
    # Not in the order of the path: it is found.
    files = [
        tmp_path / "pcap" / f"{name}.pcap"
        for name in ("notebook", "server", "router.up", "router.lan-back")
    ]
    found = unbloat.locate(files)
    assert found.names == list(POINTS)
    assert found.info["order_by"] == "hops"
    assert all(row["one_clock"] for row in found.clocks)
    up, down = found.segments(FORWARD), found.segments(BACKWARD)
    for link, row in (
        ("lan", up[0].row),
        ("up", up[2].row),
        ("down", down[0].row),
        ("lan-back", down[2].row),
    ):
        stage = links[link]
        made = stage["drops_overflow"] + stage["drops_aqm"] + stage["lost_on_link"]
        # A packet that the kernel took back from the device before the emulator had it would be a loss of neither.
        assert row["lost_packets"] == made, link
    assert up[1].row["lost_packets"] == down[1].row["lost_packets"] == 0
    assert found.verdict.startswith("The queue stands between router.up and server, upstream: p95 ")
    assert up[2].row["share"] > 0.8
    # What the emulator says its queue held, the packet's own sending (0.6 ms) and its lateness in waking up apart.
    assert abs(up[2].row["queue_ms_p50"] - links["up"]["delay_ms_p50"]) < 10
