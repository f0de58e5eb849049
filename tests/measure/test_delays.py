"""Delay per direction, loss per direction and grades, against the emulator's own log of its queues.

p95 of the loaded direction and of the other one within max(5 ms, 10 %) of the truth; see path.py for what the truth is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from path import PAYLOAD, PROBE_BYTES, Link, MeasuredPath, held_mbit, near, other_clock, p95

from unbloat.lab.testbed import quantile

pytestmark = pytest.mark.usefixtures("machine")

FAST = Link(40, 400)
DEEP_UP = Link(8, 300)
DEEP_DOWN = Link(20, 600)


def compared(made: MeasuredPath, result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Checks p95 of both directions in every phase; true p95 per phase and direction."""
    queues = made.queues()
    true: dict[str, dict[str, float]] = {}
    for phase in result["phases"]:
        true[phase["phase"]] = {}
        for direction in ("down", "up"):
            truth = p95(made.waits_ms(queues[direction], phase))
            measured = phase[f"delay_{direction}"]["p95_ms"]
            true[phase["phase"]][direction] = truth
            assert near(measured[0], truth), f"{phase['phase']} {direction}: {measured} {truth}"
    return true


def one_phase(result: dict[str, Any]) -> dict[str, Any]:
    """The only phase."""
    (phase,) = result["phases"]
    assert isinstance(phase, dict)
    return phase


@pytest.mark.parametrize("clock", ["the same", "another"])
def test_a_bloated_uplink_is_measured_graded_and_cured(tmp_path: Path, clock: str) -> None:
    with MeasuredPath(tmp_path, DEEP_UP, FAST) as made:
        made.serve(other=other_clock() if clock == "another" else None)
        code, result = made.measure("--phases", "up")
        true = compared(made, result)
    phase = one_phase(result)
    assert code == 0
    assert 250 < true["up"]["up"] < 400, "a queue of 300 KB at 8 Mbit/s, CUBIC"
    assert true["up"]["down"] < 5
    assert phase["grade"]["grades"] == ["D"]
    length_s = phase["until_unix_s"] - phase["from_unix_s"]
    wrong_mbps = phase["goodput_up_bps"] / 1e6 - DEEP_UP.mbps * PAYLOAD
    assert abs(wrong_mbps) * length_s < held_mbit(DEEP_UP)
    assert phase["goodput_down_bps"] is None
    assert 20 <= result["rtt_min_ms"] < 25
    around = result["surroundings"]
    assert around["kernel"] == os.uname().release
    assert around["device"], "the device that leads to the server"
    assert abs(result["clock_skew_ppm"] - (100 if clock == "another" else 0)) < 15
    commands = [cure["command"] for cure in result["cures"]]
    assert "sudo unbloat agent on" in commands
    assert all(cure["direction"] == "up" for cure in result["cures"])


def test_a_queue_in_the_downlink_only_is_found_there(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, FAST, DEEP_DOWN) as made:
        made.serve()
        _, result = made.measure("--phases", "down", "--cc", "reno", "--streams", "8")
        true = compared(made, result)
    phase = one_phase(result)
    assert true["down"]["down"] > 150
    assert true["down"]["up"] < 5
    assert {stream["congestion_control"] for stream in phase["streams"]} == {"reno"}
    assert len(phase["streams"]) == 8
    assert {cure["direction"] for cure in result["cures"]} == {"down"}


def test_losses_up_and_down_are_separated(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, Link(20, 150, loss=0.05), FAST) as made:
        made.serve()
        code, result = made.measure("--phases", "up")
        phase, queues = one_phase(result), made.queues()
        waits = made.waits_ms(queues["up"], phase)
        begin, end = (phase[key] - made.zero_unix_s for key in ("from_unix_s", "until_unix_s"))
        lost = [
            row
            for row in map(json.loads, (made.out / "losses.jsonl").read_text().splitlines())
            # QUIC probes are longer, and are not in these figures.
            if (row["proto"], row["bytes"]) == ("udp", PROBE_BYTES) and begin <= row["t_s"] < end
        ]
    up, down = phase["delay_up"], phase["delay_down"]
    assert {row["link"] for row in lost} <= {0}, "the way down loses nothing"
    # A probe at the edge of the window may be counted on one side only.
    assert abs(up["loss"] * up["probes"] - len(lost)) <= 1.5
    assert 0.005 < up["loss"] < 0.15
    assert down["loss"] == 0
    # What arrived: a lost probe takes a rank, so the rank of the truth is that much lower.
    arrived = quantile(waits, 0.9 / (1 - up["loss"]))
    assert near(up["p90_ms"], arrived), (up, arrived)
    # At five in a hundred p95 is a lost probe or not by chance. Beyond that by a probe it is one: no grade, or the last one.
    grades = phase["grade"]["grades"]
    if up["loss"] * up["probes"] > 0.05 * up["probes"] + 1:
        assert grades in ([], ["F"])
    assert code == (0 if grades else 5)


def test_congestion_controls_are_compared_in_one_run(tmp_path: Path) -> None:
    # A server without root's rights may use these alone; reno is always among them, and the default.
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    names = ["reno", *(name for name in allowed if name != "reno")][:2]
    with MeasuredPath(tmp_path, FAST, DEEP_DOWN) as made:
        made.serve()
        words = ("--streams", "2", "--phases", "down", "--cc", ",".join([*names, "none-such"]))
        _, result = made.measure("--quick", *words)
        queues = made.queues()
        true = [p95(made.waits_ms(queues["down"], phase)) for phase in result["phases"]]
    assert [one["congestion_control"] for one in result["phases"]] == [*names, "none-such"]
    for phase, truth in zip(result["phases"], true, strict=True):
        used = {stream["congestion_control"] for stream in phase["streams"]}
        why = {stream["congestion_control_why"] for stream in phase["streams"]}
        if phase["congestion_control"] in names:
            assert (used, why) == ({phase["congestion_control"]}, {None})
        else:
            assert None not in why
        assert near(phase["delay_down"]["p95_ms"][0], truth)
    cures = [(cure["direction"], cure["name"]) for cure in result["cures"]]
    assert len(cures) == len(set(cures))
