"""Pauses: the link's radio is found by them, live and in a capture; other programs' packets are no pause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from path import ADDRESSES, Link, MeasuredPath
from requirements import require

from unbloat import analyze
from unbloat.lab.testbed import TIMEOUT_S

pytestmark = pytest.mark.usefixtures("machine")

FAST = Link(40, 400)
# Before and after the two seconds of the radio, three times each and not in order.
PINGED_S = (0.3, 2.25, 1.75, 2.25, 1.75, 0.3, 1.75, 2.25)


def ping_after_pauses(made: MeasuredPath) -> None:
    """A ping after each pause."""
    pings = [f"sleep {pause}; ping -c 1 -W 5 {ADDRESSES['server']}" for pause in PINGED_S]
    done = made.start("client", "sh", "-ec", f"ping -c 1 {ADDRESSES['server']}; {'; '.join(pings)}")
    out, errors = done.communicate(timeout=TIMEOUT_S)
    assert done.returncode == 0, out + errors


def steps_in(file: Path) -> list[dict[str, Any]]:
    """What `analyze` found of radios in the probes of a capture."""
    findings = analyze(file).findings.to_pylist()
    values = [json.loads(f["values"]) for f in findings if f["rule"] == "radio-promotion"]
    return [v for v in values if "gap_s_max_prompt" in v]


def radio(*layers: str) -> Link:
    """An uplink whose radio sleeps."""
    return Link(8, 300, medium=f'rate = "8 Mbit/s"\nlayers = [{", ".join(layers)}]')


def test_a_radio_that_is_woken_after_two_seconds_is_found(tmp_path: Path) -> None:
    up = radio('{ kind = "promotion", idle = "2 s", delay = "500 ms" }')
    require("tcpdump", "ping")
    with MeasuredPath(tmp_path, up, FAST) as made:
        made.serve()
        with made.capture("client", "any", tmp_path / "measure.pcap") as of_measure:
            code, found = made.measure("--idle-gaps", "0.2,1,3")
        with made.capture("client", "any", tmp_path / "ping.pcap") as of_ping:
            ping_after_pauses(made)
    assert code == 0, found
    found = found["idle_gaps"]
    (step,) = found["steps"]
    assert 1.5 <= step["from_s"] <= 2.0 <= step["until_s"] + 0.05 <= 2.5
    assert abs(step["extra_ms"] - 500) <= 20
    assert not step["cycle"]
    assert 20 <= found["rtt_ms"] < 25
    (again,) = steps_in(of_measure)
    assert abs(again["gap_s_max_prompt"] - step["from_s"]) <= 0.5
    assert abs(again["gap_s_min"] - step["until_s"]) <= 0.5
    assert abs(again["extra_ms_p50"] - step["extra_ms"]) <= 20
    (pinged,) = steps_in(of_ping)
    assert 1.5 <= pinged["gap_s_max_prompt"] <= 2.0 <= pinged["gap_s_min"] <= 2.5
    assert abs(pinged["extra_ms_p50"] - step["extra_ms"]) <= 20


def test_a_path_without_a_radio_has_no_step_and_a_busy_device_no_pause(tmp_path: Path) -> None:
    require("tcpdump", "ping")
    with MeasuredPath(tmp_path, Link(8, 300), FAST) as made:
        made.serve()
        with made.capture("client", "any", tmp_path / "measure.pcap") as of_measure:
            code, found = made.measure("--idle-gaps", "0.2,2")
        with made.capture("client", "any", tmp_path / "ping.pcap") as of_ping:
            ping_after_pauses(made)
        assert (steps_in(of_measure), steps_in(of_ping)) == ([], [])
        found = found["idle_gaps"]
        assert (code, found["steps"], found["discarded"]) == (0, [], 0)
        assert len(found["samples"]) == 6
        pings = made.start("client", "ping", "-i", "0.5", "10.0.0.2")
        code, found = made.measure("--idle-gaps", "0.2,1")
        pings.terminate()
        pings.wait(TIMEOUT_S)
    found = found["idle_gaps"]
    # Between two pings there are pauses of 0.2 s, and none of 1 s.
    assert (code, found["complete"], found["discarded"]) == (5, False, 3)
    assert {sample["gap_s"] for sample in found["samples"]} == {0.2}


@pytest.mark.parametrize("words", ["fast", "1,60", "0,1"])
def test_a_pause_that_is_none_is_wrong_usage(tmp_path: Path, words: str) -> None:
    with MeasuredPath(tmp_path, FAST, FAST) as made:
        client = made.client("--idle-gaps", words)
        _, errors = client.communicate(timeout=TIMEOUT_S)
    assert client.returncode == 2
    assert "0.05 to 45 s" in errors
