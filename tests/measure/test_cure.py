"""What `unbloat measure` advises cures what it measured: the printed command of the agent, then the same measurement."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from path import Link, MeasuredPath
from requirements import requires

from unbloat.lab.requirements import AGENT, found

pytestmark = pytest.mark.usefixtures("machine")
# A full queue is 300 ms: the middle of D, which is 200 to 400, so that no interval reaches a limit.
CASES = {
    "up": (Link(8, 300), Link(40, 400)),
    "down": (Link(20, 200), Link(20, 750)),
}


def graded(made: MeasuredPath, way: str) -> tuple[dict[str, Any], list[str]]:
    """One phase, and the commands that are printed for this host."""
    _, result = made.measure("--phases", way)
    (phase,) = result["phases"]
    return phase, [cure["command"] for cure in result["cures"] if cure["on"] == "this host"]


@requires("unbloat-agent", "bpf", "bpffs", "cgroup")
@pytest.mark.parametrize("way", CASES)
def test_the_printed_command_makes_a_d_an_a_at_the_same_goodput(tmp_path: Path, way: str) -> None:
    with MeasuredPath(tmp_path, *CASES[way]) as made:
        made.serve()
        # The agent's uplink is the device of the default route.
        made.ip("client", "route add default dev up")
        before, (command, *_) = graded(made, way)
        sudo, unbloat, agent, *words = shlex.split(command)
        assert (sudo, unbloat, agent) == ("sudo", "unbloat", "agent")
        inside = ("ip", "netns", "exec", made.spaces["client"], found(AGENT) or "")
        pins = Path("/sys/fs/bpf") / made.name
        places = ("--runtime", str(tmp_path / "run"), "--pins", str(pins))
        # Its trials would switch the cure off for moments.
        made.ask("client", *inside, *places, *words, "--set", "trial.enabled=false")
        try:
            after, advised = graded(made, way)
        finally:
            made.ask("client", *inside, *places, "off")
    delay, goodput = f"delay_{way}", f"goodput_{way}_bps"
    assert before["grade"]["grades"] == ["D"]
    assert after["grade"]["grades"] in (["A"], ["A+"], ["A+", "A"]), after["grade"]["why"]
    assert before[delay]["p95_ms"][0] > 200
    assert after[delay]["p95_ms"][0] < 30
    # What a lost segment held back is read at once when it comes again: without the cure more than the link carries.
    full_bps = CASES[way][way == "down"].mbps * 1e6 * (1448 / 1500)
    assert after[goodput] > 0.95 * min(before[goodput], full_bps)
    assert advised == []
