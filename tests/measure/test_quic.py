"""Loads by QUIC: the added delay is that of the emulator's queues, the link is full, and the result is that of TCP where both fill
the buffer. What strangers and dead servers do to it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from path import ADDRESSES, Link, MeasuredPath, ended, most_mbps, near, p95

from unbloat.lab.testbed import TIMEOUT_S

pytestmark = pytest.mark.usefixtures("machine")

# 300 ms each: also after a backoff by CUBIC's 0.7 (RFC 9438 section 4.6) all quantiles are those of grade D, from 200 to 400 ms.
UP, DOWN = Link(8, 300), Link(20, 750)
FAST = Link(40, 400)
MAX_S = 110


def check(made: MeasuredPath, result: dict[str, Any]) -> None:
    """p95 of both directions of every phase is that of the queues, and the link is full."""
    queues = made.queues()
    for phase in result["phases"]:
        for way, link in made.links.items():
            truth = p95(made.waits_ms(queues[way], phase))
            assert near(phase[f"delay_{way}"]["p95_ms"][0], truth), (phase, way, truth)
            if (goodput := phase[f"goodput_{way}_bps"]) is not None:
                assert 0.9 * link.mbps <= goodput / 1e6 <= most_mbps(link, phase), phase


@pytest.mark.parametrize("way", ["down", "up"])
def test_quic_fills_the_link_and_its_delay_and_grade_are_those_of_tcp(
    tmp_path: Path, way: str
) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        made.serve()
        code, result = made.measure(
            "--phases", way, "--transport", "tcp,quic", "--cc", "cubic", timeout_s=MAX_S
        )
        check(made, result)
    assert code == 0, [phase["grade"] for phase in result["phases"]]
    tcp, quic = result["phases"]
    assert (tcp["transport"], quic["transport"]) == ("tcp", "quic")
    assert quic["grade"]["grades"] == tcp["grade"]["grades"] == ["D"]
    for stream in quic["streams"]:
        assert (stream["congestion_control"], stream["direction"]) == ("cubic", way)
        assert 20 <= stream["rtt_min_ms"] < 400
        assert stream["rtt_ms"] > 100
        assert (stream["retransmissions"], stream["share_rwnd"]) == (None, None)
    # All together still fill most of the buffer when half of them have just backed off by CUBIC's 0.7 (RFC 9438 section 4.6).
    link = {"down": DOWN, "up": UP}[way]
    assert sum(stream["cwnd"] for stream in quic["streams"]) > 0.7 * link.queue_kb * 1e3 / 1500
    # QUIC probes wait as the others do, also where a load by QUIC has a socket of its own at their port.
    for phase in (tcp, quic):
        found = phase["quic_probes"]
        assert found["sent"] >= 8, found
        assert found["lost"] < found["sent"] / 2, found
        assert not found["differs"], found
    assert sum(stream["lost_packets"] for stream in quic["streams"]) > 0
    assert sum(stream["congestion_events"] for stream in quic["streams"]) > 0


def test_both_directions_at_once_and_each_congestion_control_of_quic(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, FAST, DOWN) as made:
        made.serve()
        _, both = made.measure("--phases", "both", "--transport", "quic", "--quick")
        words = ("--phases", "down", "--streams", "2", "--cc", "newreno,bbr,dctcp", "--quick")
        _, each = made.measure("--transport", "quic", *words)
        queues = made.queues()
        for phase in [*both["phases"], *each["phases"]]:
            truth = p95(made.waits_ms(queues["down"], phase))
            # Four seconds hold a part of NewReno's sawtooth: its interval is wide, and so is its grade.
            value, low, high = phase["delay_down"]["p95_ms"]
            assert low <= truth <= high or near(value, truth), phase
    (phase,) = both["phases"]
    assert {stream["direction"] for stream in phase["streams"]} == {"down", "up"}
    assert phase["goodput_down_bps"] > 0.85 * DOWN.mbps * 1e6
    assert phase["goodput_up_bps"] > 0.5 * FAST.mbps * 1e6
    used = [{stream["congestion_control"] for stream in one["streams"]} for one in each["phases"]]
    assert used == [{"newreno"}, {"bbr"}, {"cubic"}]
    why = {stream["congestion_control_why"] for stream in each["phases"][2]["streams"]}
    assert why == {"dctcp: QUIC has cubic, newreno, bbr here"}
    assert all(
        stream["congestion_control_why"] is None
        for one in each["phases"][:2]
        for stream in one["streams"]
    )


@pytest.mark.parametrize("what", ["server", "link"])
def test_a_server_or_link_that_dies_ends_it_with_what_it_has(tmp_path: Path, what: str) -> None:
    with MeasuredPath(tmp_path, Link(20, 100), Link(20, 100)) as made:
        server = made.serve()
        words = ("--phases", "up", "--streams", "4", "--quick", "--transport", "quic")
        client = made.client(*words)
        # Idle for 1 s; measured after at most 1.2 s more, for 2.2 s.
        time.sleep(3.4)
        assert client.poll() is None
        died = time.monotonic()
        if what == "server":
            server.kill()
        else:
            made.ip("server", f"route del {ADDRESSES['client']}/32")
        code, result = ended(client)
        took_s = time.monotonic() - died
    assert took_s < 4
    assert code == 5
    assert result["complete"] is False
    (phase,) = result["phases"]
    assert phase["transport"] == "quic"
    assert phase["delay_up"]["probes"] > 20
    assert phase["delay_up"]["p50_ms"][0] > 5
    assert phase["delay_rtt"]["loss"] < 0.1


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("at", ["client", "server"])
def test_the_limit_of_data_holds(tmp_path: Path, way: str, at: str) -> None:
    limit = ("--max-data", "5 MB")
    with MeasuredPath(tmp_path, Link(20, 100), Link(20, 100)) as made:
        made.serve(*(limit if at == "server" else ()))
        words = limit if at == "client" else ()
        code, result = made.measure("--phases", way, "--quick", "--transport", "quic", *words)
        queue = made.queues()[way]
    assert code == 5
    assert "the limit of data" in result["ended"] or "limit of bytes" in result["ended"]
    passed = sum(queue.size[n] for n in queue.started)
    # A receiver counts no headers; a look each tenth of a second, and what was on the way then.
    assert 4.5e6 < passed < 1.06 * 5e6 + 20e6 / 8 * 0.3 + 100e3


def test_samples_hold_what_quic_knows_and_nothing_that_it_does_not(tmp_path: Path) -> None:
    file = tmp_path / "samples.json"
    with MeasuredPath(tmp_path / "run", UP, DOWN) as made:
        made.serve()
        words = ("--phases", "down,up", "--transport", "quic", "--quick", "--samples", str(file))
        made.measure(*words)
    samples = json.loads(file.read_text())["samples"]
    for stream in samples["streams"]:
        assert stream["transport"] == "quic"
        sender, receiver = (
            stream[end]
            for end in (
                ("at_client", "at_server")
                if stream["direction"] == "up"
                else ("at_server", "at_client")
            )
        )
        rows = [row for row in sender if row["t_s"] > sender[0]["t_s"] + 0.5]
        # Ten times a second.
        assert len(rows) > 5 * (rows[-1]["t_s"] - rows[0]["t_s"])
        for row in rows:
            assert row["rtt_ms"] >= row["rtt_min_ms"] >= 20
            assert row["cwnd_segments"] > 0
            assert 1200 <= row["mss_bytes"] <= 1452
            assert row["acked_bytes"] is row["busy_s"] is row["retransmissions"] is None
        assert rows[-1]["lost_packets"] >= 0
        assert rows[-1]["congestion_events"] >= 0
        counts = [row["received_bytes"] for row in receiver]
        assert counts == sorted(counts)
        assert counts[-1] > 1e4


def test_words_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, FAST, FAST) as made:
        for words in (
            ("--transport", "udp"),
            ("--transport", "tcp,quic", "--cc", "a,b"),
            ("--protocol", "iperf3", "--transport", "quic"),
            ("--protocol", "irtt", "--transport", "quic"),
            ("--protocol", "ndt7", "--transport", "quic"),
        ):
            process: subprocess.Popen[str] = made.client(*words)
            _, errors = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 2, errors
