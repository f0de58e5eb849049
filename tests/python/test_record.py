"""`unbloat record` without a file: the steps for each system, and how the output of ping is read."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unbloat.cli.arguments import app
from unbloat.cli.record import seconds
from unbloat.errors import UnbloatError
from unbloat.recording.guide import NAMES, SNAP, guide, this_system
from unbloat.recording.record import Pings, Recording, read_pings
from unbloat.recording.text import ping_text

PINGED = """PING 10.9.2.2 (10.9.2.2) 56(84) bytes of data.
[1764000000.000000] 64 bytes from 10.9.2.2: icmp_seq=1 ttl=63 time=20.0 ms
[1764000005.300000] 64 bytes from 10.9.2.2: icmp_seq=2 ttl=63 time=400 ms
[1764000006.000000] 64 bytes from 10.9.2.2: icmp_seq=4 ttl=63 time=500 ms

--- 10.9.2.2 ping statistics ---
5 packets transmitted, 3 received, 40% packet loss, time 802ms
"""


@pytest.mark.parametrize("name", NAMES)
def test_each_system_has_a_capture_a_ping_and_the_command_that_reads_it(name: str) -> None:
    lines = guide(name)
    commands = [line.strip() for line in lines if line.startswith("     ")]
    for command in commands:
        if command != "Ctrl-C":
            shlex.split(command)  # its quotes are closed
    text = "\n".join(commands)
    assert f"{SNAP}" in text
    assert "ping" in text
    assert commands[-1].startswith("unbloat analyze lag.pcap")


def test_the_steps_are_those_of_this_system_unless_another_is_named() -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["record"]).output
    assert shown == runner.invoke(app, ["record", "--on", this_system()]).output
    assert "pktmon" in runner.invoke(app, ["record", "--on", "windows"]).output


@pytest.mark.parametrize(
    ("text", "value"), [("40", 40.0), ("40s", 40.0), ("2min", 120.0), ("0.5min", 30.0)]
)
def test_a_length_of_time_has_a_unit(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "-3", "1h", "40 s"])
def test_another_length_is_refused(text: str) -> None:
    with pytest.raises(UnbloatError, match="expected seconds"):
        seconds(text)


def test_a_ping_belongs_to_the_time_at_which_it_was_sent() -> None:
    pings = read_pings(PINGED, loaded_from=1764000005.0)
    # The second was answered after the load began, and sent before it.
    assert (pings.before, pings.after) == ([20.0, 400.0], [500.0])
    assert (pings.sent, pings.lost) == (5, 1)


@pytest.mark.parametrize(
    ("pings", "length", "text"),
    [
        (
            Pings([20.0, 22.0, 24.0], [400.0, 500.0, 1200.0], 6),
            40.0,
            "ping: 22 ms before the transfer, 500 ms during it (medians), at most 1.2 s",
        ),
        (
            Pings([20.0], [400.0], 5),
            40.0,
            "ping: 20 ms before the transfer, 400 ms during it (medians), at most 400 ms; 2 of 5 without answer",
        ),
        (
            Pings([20.0], [], 9),
            40.0,
            "ping: 20 ms (median) before the transfer, no answer during it",
        ),
        (
            Pings([20.0], [], 2),
            3.0,
            "ping: 20 ms (median) before the transfer, which did not begin",
        ),
        (Pings([], [], 9), 40.0, "ping: no answer at all; choose another host with --ping"),
    ],
)
def test_the_ping_is_one_line(pings: Pings, length: float, text: str) -> None:
    assert ping_text(Recording(Path("lag.pcap"), "eth0", length, 1000, 0, pings)) == text
