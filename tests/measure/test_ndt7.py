"""`unbloat measure --protocol ndt7`: goodput is that of the emulated link, the RTT under load that of its queue.

The server is one of the package websockets. UNBLOAT_NDT_SERVER may name the program of m-lab/ndt-server instead, as
`go build` of its repository makes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from path import ADDRESSES, PAYLOAD, Link, MeasuredPath, ended, most_mbps, near, p95
from requirements import require_module

from unbloat.lab.testbed import TIMEOUT_S, quantile, until

pytestmark = pytest.mark.usefixtures("machine")

RTT_MS = 20
# 200 ms up, 100 ms down.
UP, DOWN = Link(10, 250), Link(30, 375)
PORT, TLS_PORT = 8080, 8443
MAX_S = 40


def serve(made: MeasuredPath, *words: str) -> subprocess.Popen[str]:
    """A server of ndt7 that listens."""
    if real := os.environ.get("UNBLOAT_NDT_SERVER"):
        data = made.folder / "ndt"
        data.mkdir()
        closed = ("-ndt5_addr", "127.0.0.1:0", "-ndt5_ws_addr", "127.0.0.1:0")
        more = ("-prometheusx.listen-address", "127.0.0.1:0", "-health_addr", "127.0.0.1:0")
        listen = ("-ndt7_addr", f":{TLS_PORT}", "-ndt7_addr_cleartext", f":{PORT}")
        argv = (real, *closed, *more, *listen, "-datadir", str(data), *words)
    else:
        require_module("websockets")
        program = Path(__file__).with_name("ndt7_server.py")
        argv = (sys.executable, str(program), made.server, str(PORT))
    server = made.start("server", *argv)
    until(lambda: f":{PORT}" in made.ask("server", "ss", "-Htln"), TIMEOUT_S, every_s=0.1)
    return server


def client(made: MeasuredPath, *words: str) -> subprocess.Popen[str]:
    """A client that runs."""
    url = f"ws://{made.server}:{PORT}"
    return made.start("client", made.program, url, "--protocol", "ndt7", "--json", *words)


def test_goodput_is_that_of_the_link_and_the_rtt_that_of_the_queue(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        server = serve(made)
        code, result = ended(client(made), MAX_S)
        assert server.poll() is None, "the server is alive"
        queues = made.queues()
    assert code == 0, result
    assert result["complete"], result
    assert result["rtt_min_ms"] == pytest.approx(RTT_MS, abs=2)
    assert [phase["phase"] for phase in result["phases"]] == ["down", "up"]
    for phase, link in zip(result["phases"], (DOWN, UP), strict=True):
        way = phase["phase"]
        goodput = phase[f"goodput_{way}_bps"] / 1e6
        assert 0.95 * PAYLOAD * link.mbps <= goodput <= most_mbps(link, phase), (way, goodput)
        waits = [ms for ms in made.waits_ms(queues[way], phase) if ms != float("inf")]
        found, least = phase["delay_rtt"], result["rtt_min_ms"]
        print(way, goodput, found, quantile(waits, 0.5), p95(waits))
        assert near(least + found["p50_ms"][0], RTT_MS + quantile(waits, 0.5)), phase
        assert near(least + found["p95_ms"][0], RTT_MS + p95(waits)), phase
        # Ten a second of this end, about four a second of the server's.
        seconds = phase["until_unix_s"] - phase["from_unix_s"]
        assert found["probes"] >= (8 if way == "up" else 2) * seconds
        assert (phase["grade"]["grades"], phase["place"], phase["delay_down"]) == ([], None, None)
        (stream,) = phase["streams"]
        assert stream["direction"] == way
        assert 0 <= stream["retransmitted_share"] < 0.2
        assert stream["share_rwnd"] is not None


def test_the_quick_form_and_one_phase_take_less_time(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made)
        begun = time.monotonic()
        code, result = ended(client(made, "--quick", "--phases", "up"))
        took_s = time.monotonic() - begun
    assert code == 0, result
    assert 4.5 < took_s < 7
    (phase,) = result["phases"]
    assert phase["phase"] == "up"


def test_a_server_that_dies_ends_it_with_what_it_has(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        server = serve(made)
        process = client(made)
        time.sleep(6)
        assert process.poll() is None
        died = time.monotonic()
        server.kill()
        code, result = ended(process)
        took_s = time.monotonic() - died
    assert took_s < 4
    assert code == 5
    assert not result["complete"]
    (phase,) = result["phases"]
    assert phase["goodput_down_bps"] > 20e6


@pytest.mark.parametrize("way", ["down", "up"])
def test_a_link_that_dies_ends_it_with_what_it_has(tmp_path: Path, way: str) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made)
        process = client(made, "--phases", way)
        time.sleep(5)
        died = time.monotonic()
        made.ip("server", f"route del {ADDRESSES['client']}/32")
        code, result = ended(process)
        took_s = time.monotonic() - died
    assert took_s < 4
    assert code == 5
    assert result["ended"] == "nothing came through for 3 s"
    assert len(result["phases"]) == 1


def test_the_limit_of_data_a_server_of_another_kind_and_wrong_usage(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        serve(made)
        code, result = ended(client(made, "--phases", "down", "--max-data", "20 MB"))
        assert (code, result["ended"]) == (5, "the limit of data (--max-data) was reached")
        made.serve("--listen", f"{made.server}:26110")
        words = ("--protocol", "ndt7")
        other = made.start("client", made.program, f"ws://{made.server}:26110", *words)
        out, errors = other.communicate(timeout=TIMEOUT_S)
        assert (out, other.returncode) == ("", 3)
        assert "is no server of ndt7" in errors
        for more in (("--streams", "2"), ("--phases", "both"), ("--cc", "bbr")):
            wrong = made.start("client", made.program, made.server, *words, *more)
            assert wrong.wait(TIMEOUT_S) == 2
