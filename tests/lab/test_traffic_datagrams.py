"""Probes and voice: what is sent comes, what is lost is said, and a call has the score that the simulator gives it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traffic_testbed import CLIENT, SERVER, Logs, Pair, Traffic, flow, needs, pair_of, plan, probe

import unbloat
from unbloat import _native as native
from unbloat.lab.traffic.datagrams import times

VOIP = {
    "kind": "voip",
    "every_s": 0.02,
    "bytes": 200,
    "jitter_buffer_s": None,
    "jitter_min_s": 0.02,
}

BACKWARDS: dict[str, Any] = {"from": SERVER, "to": CLIENT}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    yield from pair_of(tmp_path_factory)


def outage(pair: Pair, node: str, after: float, length: float) -> None:
    """What a node sends goes nowhere for a while: a bucket into which no packet fits."""
    qdisc = ("tc", "qdisc")
    time.sleep(after)
    bucket = ("root", "tbf", "rate", "8kbit", "burst", "1", "limit", "1")
    pair.ask(node, *qdisc, "add", "dev", "net", *bucket)
    time.sleep(length)
    pair.ask(node, *qdisc, "del", "dev", "net", "root")


def on_schedule(rows: list[dict[str, Any]], planned: list[float]) -> bool:
    """A packet for each time, never early; how late a busy machine is, and whether it comes to the last, fails no test."""
    enough = len(planned) // 2 <= len(rows) <= len(planned)
    return enough and all(row["t_s"] >= due - 1e-4 for row, due in zip(rows, planned, strict=False))


@needs("ping")
def test_pings_are_answered(pair: Pair, tmp_path: Path) -> None:
    probes = (
        probe("system", every=(0.1,)),
        probe("quick", every=(0.01,), start_s=0.5),
        probe("list", every=(0.02, 0.06), bytes=1000),
    )
    logs = pair.run(plan(duration=1.0, probes=probes), tmp_path)
    # The system's ping waits some milliseconds longer than asked for.
    assert 5 <= len(logs.rows("probes/system.jsonl", "probe")) <= 10
    assert on_schedule(logs.rows("probes/quick.jsonl", "probe"), times(0.5, [0.01], 1.0))
    rows = logs.rows("probes/list.jsonl", "probe")
    assert on_schedule(rows, times(0.0, [0.02, 0.06], 1.0))
    for name in ("system", "quick", "list"):
        for row in logs.rows(f"probes/{name}.jsonl", "probe"):
            assert row["lost"] is False
            assert row["owd_ms"] is None
            assert row["rtt_ms"] is None or row["rtt_ms"] > 0
        assert sum(row["rtt_ms"] is None for row in logs.rows(f"probes/{name}.jsonl", "probe")) <= 1
    assert logs.errors() == []


@needs("tcpdump")
def test_probes_have_their_size_and_class(pair: Pair, tmp_path: Path) -> None:
    made = plan(
        flow("call", {**VOIP, "bytes": 160}, sender__class=0),
        duration=0.4,
        probes=(
            probe("system", every=(0.1,), bytes=100, priority=0),
            probe("list", every=(0.02, 0.06), bytes=1000, priority=2),
            probe("iso", "isochronous", every=(0.05,), bytes=300, priority=3),
        ),
    )
    with Traffic(pair, made, tmp_path) as traffic:
        argv = ("tcpdump", "--immediate-mode", "-U", "-lvnt", "-i", "net", "src", "10.0.0.1")
        dump = pair.start("client", *argv, stderr=subprocess.PIPE)
        assert dump.stderr is not None
        assert "listening" in dump.stderr.readline()
        traffic.go()
        traffic.wait(10)
        time.sleep(0.1)
        dump.terminate()
        text, _ = dump.communicate()
    lines = [line for line in text.splitlines() if line.startswith("IP ")]
    seen = {
        (line.split("tos ")[1].split(",")[0], line.split("length ")[1].rstrip(")"))
        for line in lines
    }
    assert seen >= {("0xb8", "160"), ("0xb8", "100"), ("0x20", "1000"), ("0x20", "300")}


def test_what_is_lost_is_said(pair: Pair, tmp_path: Path) -> None:
    probes = (
        probe("iso", "isochronous", every=(0.01,), **BACKWARDS),
        probe("quick", every=(0.01,)),
        probe("system", every=(0.05,)),
    )
    with Traffic(pair, plan(duration=2.5, probes=probes), tmp_path) as traffic:
        traffic.go()
        outage(pair, "server", 0.5, 0.5)
        traffic.wait(10)
    logs = Logs(tmp_path)
    for name, least in (("iso", 20), ("quick", 20), ("system", 3)):
        rows = logs.rows(f"probes/{name}.jsonl", "probe")
        lost = [row["t_s"] for row in rows if row["lost"]]
        assert len(lost) >= least
        assert all(t_s > 0.4 for t_s in lost)
        assert any(not row["lost"] for row in rows if row["t_s"] > max(lost))
        assert all(row["rtt_ms"] is None and row["owd_ms"] is None for row in rows if row["lost"])
        assert [row["t_s"] for row in rows] == sorted(row["t_s"] for row in rows)
    assert len(logs.rows("probes/iso.jsonl", "probe")) == 250


def test_an_isochronous_probe_goes_one_way(pair: Pair, tmp_path: Path) -> None:
    logs = pair.run(
        plan(duration=0.5, probes=(probe("iso", "isochronous", every=(0.01, 0.03)),)), tmp_path
    )
    rows = logs.rows("probes/iso.jsonl", "probe")
    assert on_schedule(rows, times(0.0, [0.01, 0.03], 0.5))
    assert all(row["lost"] is False and row["rtt_ms"] is None for row in rows)
    assert all(row["owd_ms"] > 0 for row in rows[:-1])


def test_a_call_on_a_good_line_scores_well_and_one_through_an_outage_does_not(
    pair: Pair, tmp_path: Path
) -> None:
    made = plan(flow("call", VOIP, upload=True), duration=1.5)
    with Traffic(pair, made, tmp_path) as traffic:
        traffic.go()
        outage(pair, "client", 0.5, 0.3)
        traffic.wait(10)
    logs = Logs(tmp_path)
    (there,) = logs.values("flows/call.to.jsonl", "mos")
    (back,) = logs.values("flows/call.from.jsonl", "mos_back")
    # 40 ms of packet and jitter buffer: R = 93.2 − 0.96; a fifth of the packets lost leaves about 50.
    assert back == pytest.approx(native.mos(40.0, 0.0), abs=0.1)
    assert there < 3.5


FIXED, ADAPTIVE = (0.06, None), (None, 0.02)


def simulated(delay_ms: int, loss: float, jitter_buffer: str) -> tuple[dict[str, float], int, int]:
    """Scores of a simulated call of nine seconds, packets sent each way, and packets that arrived, both ways."""
    run = unbloat.simulate(
        {
            "duration": "9.01 s",
            "link": {
                "up": {"rate": "1 Gbit/s", "delay": f"{delay_ms} ms", "loss": loss},
                "down": {"rate": "1 Gbit/s", "delay": "10 ms"},
            },
            "flow": [
                {
                    "name": "call",
                    "from": "client",
                    "app": {"kind": "voip", "jitter_buffer": jitter_buffer},
                }
            ],
        }
    )
    assert isinstance(run, unbloat.Run)
    scores = {row["kind"]: row["value"] for row in run.apps.to_pylist()}
    return scores, int(run.info["packets"]) // 2, int(run.info["delivered_packets"])


@pytest.mark.parametrize("buffer", [FIXED, ADAPTIVE])
@pytest.mark.parametrize(("delay_ms", "loss"), [(5, 0.0), (60, 0.02), (150, 0.1), (400, 0.3)])
def test_a_call_scores_as_in_the_simulator(
    delay_ms: int, loss: float, buffer: tuple[float | None, float | None]
) -> None:
    expected, sent, delivered = simulated(
        delay_ms, loss, "60 ms" if buffer == FIXED else "adaptive"
    )
    planned = times(0.0, [0.02], 9.01)
    assert len(planned) == sent
    on_the_way = 200 * 8 / 1e9

    def arrivals(delay_s: float, most: int) -> list[tuple[float, float]]:
        return [(t_s + delay_s, delay_s) for t_s in planned if t_s + delay_s <= 9.01][:most]

    back = arrivals(0.01 + on_the_way, sent)
    there = arrivals(delay_ms / 1e3 + on_the_way, delivered - len(back))
    scored = native.voice_scores(0.02, *buffer, planned, back)[1]
    assert scored == pytest.approx(expected["mos_back"], abs=1e-6)
    scored = native.voice_scores(0.02, *buffer, planned, there)[1]
    assert scored == pytest.approx(expected["mos"], abs=1e-6)


def test_packets_of_an_isochronous_probe_score_as_the_simulated_call_beside_it() -> None:
    # A queue that grows, drains and grows again, packet by packet: the probe's are those of the call.
    run = unbloat.simulate(
        {
            "duration": "30 s",
            "link": {
                "up": {"rate": "2 Mbit/s", "delay": "25 ms"},
                "down": {"rate": "20 Mbit/s", "delay": "25 ms"},
            },
            "flow": [
                {"name": "call", "from": "client", "app": "voip"},
                {
                    "name": "upload",
                    "from": "client",
                    "start": "3 s",
                    "app": {"kind": "file", "bytes": "300 KB", "every": "4 s"},
                },
            ],
            "probe": [{"kind": "isochronous", "every": "20 ms", "bytes": "200 B"}],
        }
    )
    assert isinstance(run, unbloat.Run)
    (expected,) = (row["value"] for row in run.apps.to_pylist() if row["kind"] == "mos")
    planned = times(0.0, [0.02], 30.0)
    rows = [row for row in run.probes.to_pylist() if row["owd_ms"] is not None]
    arrived = [(row["t_s"] + row["owd_ms"] / 1e3, row["owd_ms"] / 1e3) for row in rows]
    scored = native.voice_scores(0.02, *ADAPTIVE, planned, arrived)[1]
    assert max(delay for _, delay in arrived) > 0.3
    # The two share the queue: a packet's time apart.
    assert scored == pytest.approx(expected, abs=0.02)


def test_the_e_model_gives_the_simulators_figures() -> None:
    # Those of the test of crates/sim/src/apps/voip.rs.
    assert 4.40 < native.mos(0.0, 0.0) < 4.42
    assert native.mos(150.0, 0.0) > 4.2
    assert native.mos(600.0, 0.0) < 2.9
    assert 3.25 < native.mos(100.0, 0.1) < 3.35
    assert native.mos(5_000.0, 0.5) == 1.0


def test_ten_seconds_have_a_score_of_their_own() -> None:
    planned = times(0.0, [0.02], 25.0)
    arrived = [(t_s + 0.05, 0.05) for t_s in planned if not 10.0 <= t_s < 15.0]
    windows, total = native.voice_scores(0.02, 0.06, None, planned, arrived)
    assert [t_s for t_s, _ in windows] == [10.0, 20.0]
    assert windows[0][1] > 4.2
    assert windows[1][1] < 2.0
    assert total is not None
    assert windows[1][1] < total < windows[0][1]
