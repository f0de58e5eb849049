"""`unbloat measure` against a real server of irtt: the round trip is that of irtt's own client, what the server restricts is kept, and
beside a load of iperf3 the added delay of each direction is that of the emulator's queues."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from path import ADDRESSES, Link, MeasuredPath, ended, most_mbps, near, p95
from requirements import require

from unbloat.lab.testbed import TIMEOUT_S, until

pytestmark = pytest.mark.usefixtures("machine")

# 300 ms up, 100 ms down.
UP, DOWN = Link(10, 375), Link(30, 375)
PORT = 2112


def serve(made: MeasuredPath, *words: str) -> subprocess.Popen[str]:
    """A server of irtt."""
    require("irtt")
    server = made.start("server", "irtt", "server", "-b", f"{made.server}:{PORT}", *words)
    until(lambda: f":{PORT}" in made.ask("server", "ss", "-Hlnu"), TIMEOUT_S, every_s=0.1)
    return server


def load(made: MeasuredPath) -> None:
    """A server of iperf3."""
    require("iperf3")
    made.start("server", "iperf3", "-s")
    until(lambda: ":5201" in made.ask("server", "ss", "-Htln"), TIMEOUT_S, every_s=0.1)


def client(made: MeasuredPath, *words: str) -> subprocess.Popen[str]:
    """A client that runs."""
    return made.start("client", made.program, made.server, "--protocol", "irtt", *words)


def refused(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and the one line of a client that measured nothing."""
    out, errors = process.communicate(timeout=TIMEOUT_S)
    assert (out, errors.count("\n")) == ("", 1)
    return process.returncode, errors


def test_the_round_trip_is_that_of_irtts_own_client_beside_a_load(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made, "--hmac=secret")
        load(made)
        # A queue that fills, stays, and drains, as both clients see it.
        made.start("client", "iperf3", "-c", made.server, "-t", "12", "-C", "cubic", "-P", "4")
        time.sleep(1)
        theirs = made.folder / "theirs.json"
        words = ("-i", "20ms", "-d", "20s", "-l", "88", "--hmac=secret", "-Q", "-o", str(theirs))
        judge = made.start("client", "irtt", "client", *words, made.server)
        code, result = ended(client(made, "--json", "--hmac-key", "secret"))
        assert judge.wait(TIMEOUT_S) == 0
    assert code == 0
    assert (result["complete"], result["phases"]) == (True, [])
    trips = json.loads(theirs.read_text())["round_trips"]
    rtts = [one["delay"]["rtt"] / 1e6 for one in trips if one["lost"] == "false"]
    rtts.sort()
    idle = result["idle"]
    assert near(idle["rtt"]["p95_ms"][0], rtts[int(0.95 * len(rtts))])
    assert near(idle["rtt"]["p50_ms"][0], rtts[len(rtts) // 2])
    assert result["rtt_min_ms"] == pytest.approx(20, abs=2)
    # The queue stood on the way up.
    assert idle["delay_up"]["p95_ms"][0] > 200
    assert idle["delay_down"]["p95_ms"][0] < 20
    assert idle["probes_per_s"] == 50


def test_what_the_server_restricts_is_kept(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        server = serve(made, "-i", "40ms", "-d", "3s", "-l", "60", "--tstamp=single")
        code, result = ended(client(made, "--json"))
        assert server.poll() is None
        text, errors = client(made, "--quick").communicate(timeout=TIMEOUT_S)
    assert code == 0
    idle = result["idle"]
    assert idle["probes_per_s"] == pytest.approx(20)
    assert idle["seconds"] == pytest.approx(3, abs=0.2)
    assert idle["rtt"]["loss"] == 0, "the server drops what comes too early or is too long"
    assert near(idle["rtt"]["p95_ms"][0], 20)
    assert idle["delay_up"] is not None, "one time between the two is enough"
    assert errors == ""
    assert "No grade: a server of irtt carries no load." in text


def test_losses_are_counted_in_their_direction(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, Link(10, 375, loss=0.1), DOWN) as made:
        serve(made)
        _, result = ended(client(made, "--json"))
    up, down = result["idle"]["delay_up"], result["idle"]["delay_down"]
    # Four standard deviations of 1000 probes.
    assert up["loss"] == pytest.approx(0.1, abs=0.04)
    assert down["loss"] == 0
    assert up["p95_ms"][0] == "lost"
    assert down["p95_ms"][0] < 5


def test_a_server_without_times_gives_the_round_trip_alone(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made, "--tstamp=none")
        code, result = ended(client(made, "--json", "--quick"))
    assert code == 0
    idle: dict[str, Any] = result["idle"]
    assert near(idle["rtt"]["p95_ms"][0], 20)
    assert (idle["delay_up"], idle["delay_down"], idle["server_ms"]) == (None, None, None)


def test_servers_that_are_dead_or_dying_end_it_in_time(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        code, line = refused(client(made))
        assert (code, "refused" in line) == (3, True)
        server = serve(made, "--hmac=secret")
        code, line = refused(client(made, "--hmac-key", "other"))
        assert (code, "its HMAC key is another" in line) == (3, True)
        code, line = refused(client(made))
        assert (code, "it wants an HMAC key" in line) == (3, True)
        kept = tmp_path / "kept.jsonl"
        process = client(made, "--json", "--hmac-key", "secret", "--keep", str(kept))
        time.sleep(4)
        assert process.poll() is None
        died = time.monotonic()
        server.kill()
        code, result = ended(process)
        assert time.monotonic() - died < 6
        assert code == 5
        assert result["ended"] == "the server of irtt answered nothing for 3 s"
        assert result["idle"]["rtt"]["loss"] == 0, "what the end cut off is no loss"
        assert json.loads(kept.read_text()) == result
        assert client(made, "--phases", "up").wait(TIMEOUT_S) == 2


def test_a_link_that_dies_and_a_limit_of_data_end_it(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made)
        code, result = ended(client(made, "--json", "--max-data", "20 KB"))
        assert (code, result["ended"]) == (5, "the limit of data (--max-data) was reached")
        process = client(made, "--json")
        time.sleep(3)
        made.ip("server", f"route del {ADDRESSES['client']}/32")
        code, result = ended(process)
    assert code == 5
    assert result["ended"] == "the server of irtt answered nothing for 3 s"


BESIDE = ("--protocol", "iperf3", "--probe", "irtt", "--cc", "cubic", "--json")


def test_the_added_delay_beside_a_load_of_iperf3_is_that_of_the_queue(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made, "--hmac=secret")
        load(made)
        words = (*BESIDE, "--hmac-key", "secret", "--phases", "down,up")
        process = made.start("client", made.program, made.server, *words)
        code, result = ended(process, 90)
        queues = made.queues()
    assert (code, result["complete"], result["ended"]) == (0, True, None)
    assert result["rtt_min_ms"] == pytest.approx(20, abs=2)
    assert not result["path_changed"]
    assert [phase["phase"] for phase in result["phases"]] == ["down", "up"]
    for phase, way in zip(result["phases"], ("down", "up"), strict=True):
        other = {"down": "up", "up": "down"}[way]
        for each in (way, other):
            truth = p95(made.waits_ms(queues[each], phase))
            assert near(phase[f"delay_{each}"]["p95_ms"][0], truth), (each, phase)
        assert phase["grade"]["of"] == way
        assert phase["grade"]["grades"]
        assert phase["delay_rtt"]["probes"] > 500
        link = {"down": DOWN, "up": UP}[way]
        goodput = phase[f"goodput_{way}_bps"] / 1e6
        assert 0.85 * link.mbps <= goodput <= most_mbps(link, phase), phase
        assert {stream["direction"] for stream in phase["streams"]} == {way}
        assert phase["handshakes"]["sent"] > 100
        assert not phase["handshakes"]["differs"]


def test_a_server_of_irtt_that_dies_beside_a_load_costs_no_grade(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        load(made)
        words = (made.program, made.server, *BESIDE, "--phases", "up")
        code, line = refused(made.start("client", *words))
        assert (code, "refused" in line) == (3, True)
        short = serve(made, "-d", "20s")
        code, line = refused(made.start("client", *words))
        assert (code, "fewer --phases or --cc" in line) == (4, True)
        short.kill()
        short.wait()
        server = serve(made)
        process = made.start("client", *words)
        time.sleep(16)
        assert process.poll() is None
        server.kill()
        code, result = ended(process)
    assert code == 5
    assert result["ended"] == "the server of irtt answered nothing for 3 s"
    (phase,) = result["phases"]
    # Probes of a dead server are no losses.
    assert phase["delay_down"]["loss"] == 0
