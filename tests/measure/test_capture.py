"""One test, three views: the measurement, the analysis of its own capture, and the emulator's true queue.

Compared is the same statistic of the same time: p95 of the added delay while the phase was measured. The measurement takes it
over probes, the analysis over the round trips of the data in bins of 100 ms.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from path import Link, MeasuredPath, near, p95
from requirements import require

import unbloat
from unbloat.run.figures import statistics

pytestmark = pytest.mark.usefixtures("machine")

FAST = Link(40, 400)
DEEP = {"up": Link(8, 300), "down": Link(20, 600)}
SERVER_PORT = 26_110
FEW_PORTS = "36000 36031"
"""For connections of a client: each is used again within a second, also that of a stream whose last data is still queued."""


def measured(
    made: MeasuredPath, folder: Path, *words: str
) -> tuple[dict[str, Any], unbloat.Run, str]:
    """The result, the run of its capture, and what was written on standard error."""
    capture = folder / "test.pcapng"
    argv = ("measure", *made.target, "--json", "--capture", str(capture))
    client = made.start("client", sys.executable, "-m", "unbloat", *argv, *words)
    out, errors = client.communicate(timeout=100)
    assert client.returncode in (0, 5), errors
    return json.loads(out), unbloat.analyze(capture), errors


def bins_ms(run: unbloat.Run, phase: dict[str, Any]) -> list[float]:
    """RTT above the smallest one of all, bin by bin, of the data of the streams while a phase was measured."""
    begin, end = (phase[key] - run.info["start_s"] for key in ("from_unix_s", "until_unix_s"))
    flows = run.flows.to_pylist()
    least = min(row["rtt_ms_min"] for row in flows if row["rtt_ms_min"])
    # The control connection and the first bytes of a stream are smaller.
    loads = {row["id"] for row in flows if (row["payload_bytes"] or 0) > 100_000}
    return [
        row["rtt_ms"] - least
        for row in run.samples().to_pylist()
        if row["flow"] in loads
        and row["rtt_ms"] is not None
        and row["sent_bytes"] > 0
        and begin <= row["t_s"]
        and row["t_s"] + row["span_s"] <= end
    ]


@pytest.mark.parametrize("way", ["up", "down"])
def test_the_analysis_of_the_very_test_agrees_with_it(tmp_path: Path, way: str) -> None:
    other = "down" if way == "up" else "up"
    links = {way: DEEP[way], other: FAST}
    with MeasuredPath(tmp_path, links["up"], links["down"], ports=FEW_PORTS) as made:
        made.serve()
        store = ("--out", str(tmp_path / "run.unbloat"), "--report", str(tmp_path / "page.html"))
        result, run, errors = measured(made, tmp_path, "--phases", way, *store)
        (phase,) = result["phases"]
        truth = p95(made.waits_ms(made.queues()[way], phase))
    probes = phase[f"delay_{way}"]["p95_ms"][0]
    assert near(probes, truth), (probes, truth)
    found = statistics(bins_ms(run, phase))
    assert found is not None
    assert found.count > 20
    print(f"{way}: true {truth:.1f} ms, probes {probes:.1f}, capture {found.p95:.1f}")
    assert near(found.p95, probes), (found, probes)
    kept = result["capture"]
    assert kept["packets"] > 5000
    assert (kept["dropped"], kept["left_out"], kept["failed"]) == (0, 0, None)
    assert run.info["packets"] == kept["packets"]
    assert run.info["reported_drops"] == 0
    assert all(SERVER_PORT in (row["a_port"], row["b_port"]) for row in run.connections.to_pylist())
    # Each stream is in the stored run and in the capture, with the same bytes.
    stored = unbloat.open_run(tmp_path / "run.unbloat")
    assert "report:" in errors
    assert (tmp_path / "page.html").stat().st_size > 50_000
    port = "a_port" if way == "up" else "b_port"
    by_kernel = {row[port]: row["bytes"] for row in stored.connections.to_pylist()}
    tcp = [row for row in run.connections.to_pylist() if row["proto"] == "tcp"]
    assert len({row["a_port"] for row in tcp}) < len(tcp), "ports were used again"
    by_packets: dict[int, int] = {}
    for row in tcp:
        for flow in (run.flow(2 * row["id"] + end) for end in (0, 1)):
            # Nothing is missing from this capture, and each segment is of one connection.
            assert flow["bytes"] <= flow["payload_bytes"]
            if row["a_port"] in by_kernel:
                most = by_packets.get(row["a_port"], 0)
                by_packets[row["a_port"]] = max(most, flow["bytes"])
    assert set(by_packets) == set(by_kernel)
    for one, count in by_kernel.items():
        # The kernel is asked ten times a second; what came after the last time is missing.
        assert 0.9 * by_packets[one] - 300_000 <= count <= by_packets[one] + 2
    again = [
        float("inf") if row["lost_on"] == way else row[f"added_{way}_ms"]
        for row in stored.probes.to_pylist()
        if row["probe"] == way and row["lost_on"] in (None, way)
    ]
    assert p95(again) == pytest.approx(probes, abs=0.01)
    # The control: the same probes without load.
    idle = [row["added_ms"] for row in stored.probes.to_pylist() if row["probe"] == "idle"]
    assert not near(p95([one for one in idle if one is not None]), found.p95)


def test_without_the_right_nothing_is_measured(tmp_path: Path) -> None:
    require("setpriv")
    with MeasuredPath(tmp_path, FAST, FAST) as made:
        made.serve()
        bare = ("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw")
        file = str(tmp_path / "test.pcapng")
        argv = (made.program, *made.target, "--capture", file)
        client = made.start("client", *bare, *argv)
        _, errors = client.communicate(timeout=30)
    assert client.returncode == 1
    assert errors == "unbloat-measure: --capture needs root or CAP_NET_RAW: use sudo\n"
    assert not Path(file).exists()
