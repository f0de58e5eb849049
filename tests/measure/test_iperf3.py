"""`unbloat measure --protocol iperf3` against a real server of iperf3: the added delay is that of the emulator's queues, and the
server serves on afterwards."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from path import ADDRESSES, Link, MeasuredPath, ended, most_mbps, near, p95
from requirements import require

from unbloat.lab.testbed import TIMEOUT_S, until

pytestmark = pytest.mark.usefixtures("machine")

# 300 ms up, 100 ms down.
UP, DOWN = Link(10, 375), Link(30, 375)
PORT = 5201
MAX_S = 90


def listens(made: MeasuredPath) -> bool:
    """Whether a server waits for clients."""
    return f":{PORT}" in made.ask("server", "ss", "-Htln")


def serve(made: MeasuredPath) -> subprocess.Popen[str]:
    """A server of iperf3."""
    require("iperf3")
    server = made.start("server", "iperf3", "-s")
    until(lambda: listens(made), TIMEOUT_S, every_s=0.1)
    return server


def client(made: MeasuredPath, *words: str) -> subprocess.Popen[str]:
    """A client that runs."""
    return made.start("client", made.program, made.server, "--protocol", "iperf3", "--json", *words)


def test_the_added_delay_of_each_phase_is_that_of_the_queues(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        server = serve(made)
        code, result = ended(client(made, "--cc", "cubic"), MAX_S)
        assert server.poll() is None, "the server is alive"
        until(lambda: listens(made), TIMEOUT_S, every_s=0.1)
        queues = made.queues()
    assert code in (0, 5), result
    assert result["complete"], result
    assert result["rtt_min_ms"] == pytest.approx(20, abs=2)
    assert [phase["phase"] for phase in result["phases"]] == ["down", "up", "both"]
    for phase, ways in zip(result["phases"], (("down",), ("up",), ("down", "up")), strict=True):
        waits = {way: made.waits_ms(queues[way], phase) for way in ("down", "up")}
        found = phase["delay_rtt"]
        if len(ways) == 1:
            (way,) = ways
            assert near(found["p95_ms"][0], p95(waits[way])), phase
            link = {"down": DOWN, "up": UP}[way]
            goodput = phase[f"goodput_{way}_bps"] / 1e6
            assert 0.85 * link.mbps <= goodput <= most_mbps(link, phase), phase
        else:
            # Both queues, as far as both are full.
            assert found["p95_ms"][0] >= 0.9 * p95(waits["up"])
        assert phase["grade"]["of"] == "rtt"
        assert (phase["delay_down"], phase["delay_up"], phase["place"]) == (None, None, None)
        streams = phase["streams"]
        assert {stream["direction"] for stream in streams} == set(ways)
        assert {stream["congestion_control"] for stream in streams} == {"cubic"}
        # What only the sender's kernel knows.
        assert all((one["cwnd"] is None) == (one["direction"] == "down") for one in streams)
    assert {cure["direction"] for cure in result["cures"]} == {"down", "up"}


def test_a_server_that_dies_ends_it_with_what_it_has(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        server = serve(made)
        process = client(made, "--phases", "up", "--streams", "2")
        time.sleep(9)
        assert process.poll() is None
        died = time.monotonic()
        server.kill()
        code, result = ended(process)
        took_s = time.monotonic() - died
    assert took_s < 4
    assert code == 5
    assert not result["complete"]
    (phase,) = result["phases"]
    assert phase["delay_rtt"]["probes"] > 20


def test_a_link_that_dies_ends_it_with_what_it_has(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made)
        process = client(made, "--phases", "down")
        time.sleep(9)
        died = time.monotonic()
        made.ip("server", f"route del {ADDRESSES['client']}/32")
        code, result = ended(process)
        took_s = time.monotonic() - died
    assert took_s < 4
    assert code == 5
    assert result["ended"] == "nothing came through for 3 s"


def test_a_busy_server_and_one_of_another_kind_are_named(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made)
        other = made.start("client", "iperf3", "-c", made.server, "-t", "20")
        until(lambda: "ESTAB" in made.ask("client", "ss", "-Htn"), TIMEOUT_S, every_s=0.1)
        time.sleep(0.5)
        out, errors = client(made).communicate(timeout=TIMEOUT_S)
        assert (out, errors) == (
            "",
            "unbloat-measure: the server refuses: another client measures\n",
        )
        assert other.poll() is None, "and goes on"
        made.serve("--listen", f"{made.server}:26110")
        words = (made.program, f"{made.server}:26110", "--protocol", "iperf3")
        process = made.start("client", *words)
        out, errors = process.communicate(timeout=TIMEOUT_S)
        assert (out, process.returncode) == ("", 3)
        assert "is no server of iperf3" in errors
        quick = made.start("client", *words, "--quick")
        assert quick.wait(TIMEOUT_S) == 2
