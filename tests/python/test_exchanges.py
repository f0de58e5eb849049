"""Requests and answers in a capture: each takes what is known of made captures, and what tshark reads in real ones."""

from __future__ import annotations

import io
import json
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_capture import echo, udp, write
from requirements import SHARED, requires

from unbloat import analyze
from unbloat.capture.connection_text import connection_screen
from unbloat.run.pings import ping_texts
from unbloat.text.terminal import Terminal

# tshark prints microseconds of what the file has in nanoseconds.
WITHIN_MS = 0.001


def times_ms(path: Path, proto: str | None = None) -> list[float]:
    """What each exchange of a capture took, in the order of answers."""
    run = analyze(path)
    rows = [row for row in run.events().to_pylist() if row["kind"] == "answer"]
    return [
        row["value"]
        for row in sorted(rows, key=lambda row: row["t_s"])
        if proto in (None, run.connection(row["flow"] // 2)["proto"])
    ]


@pytest.mark.parametrize("v6", [False, True])
def test_lost_reordered_and_repeated_answers_and_identifiers_used_again(
    tmp_path: Path, v6: bool
) -> None:
    def ask(sequence: int, identifier: int = 77) -> bytes:
        return echo(v6, False, sequence, identifier)

    def reply(sequence: int, identifier: int = 77) -> bytes:
        return echo(v6, True, sequence, identifier)

    packets = [
        (0.0, ask(1)),
        (0.040, reply(1)),
        # Its answer twice.
        (1.0, ask(2)),
        (1.050, reply(2)),
        (1.060, reply(2)),
        # Lost.
        (2.0, ask(3)),
        # Answers in the other order.
        (3.0, ask(4)),
        (3.1, ask(5)),
        (3.2, reply(5)),
        (3.3, reply(4)),
        # The request captured twice, and sent twice.
        (4.0, ask(6)),
        (4.001, ask(6)),
        (4.030, reply(6)),
        (5.0, ask(7)),
        (6.0, ask(7)),
        (6.020, reply(7)),
        # Another ping at the same time.
        (7.0, ask(8)),
        (7.001, ask(8, 78)),
        (7.031, reply(8, 78)),
        (7.040, reply(8)),
        # The identifier and the numbers once more, the lost one too.
        (20.0, ask(1)),
        (20.045, reply(1)),
        (22.0, ask(3)),
        (22.055, reply(3)),
        # No request.
        (23.0, reply(9)),
    ]
    path = write(tmp_path / "made.pcap", packets)
    assert times_ms(path) == pytest.approx([40, 50, 100, 300, 30, 30, 40, 45, 55])
    run = analyze(path)
    first, second = run.flow(0), run.flow(2)
    # Of ten requests the one sent again had an answer without a time, and one had none.
    assert (first["rtt_ms_count"], first["loss_rate"]) == (8, pytest.approx(0.1))
    assert (second["rtt_ms_count"], second["rtt_ms_min"]) == (1, pytest.approx(30))


@pytest.mark.parametrize(("ttl", "vantage"), [((64, 57), "a"), ((57, 64), "b"), ((64, 64), None)])
def test_beside_the_answering_host_it_is_the_time_of_its_answer(
    tmp_path: Path, ttl: tuple[int, int], vantage: str | None
) -> None:
    packets = [
        (i + 0.04 * reply, echo(False, reply, i, ttl=ttl[reply]))
        for i in range(8)
        for reply in (False, True)
    ]
    run = analyze(write(tmp_path / "made.pcap", packets))
    flow = run.flow(0)
    assert run.connection(0)["vantage"] == (vantage or "unknown")
    figures = [flow["rtt_ms_p50"], flow["answer_ms_p50"]]
    known = pytest.approx(40, rel=0.01)
    assert figures == ([None, known] if vantage == "b" else [known, None])
    [text] = ping_texts(run)
    assert ("The RTT is not known there" in text) == (vantage == "b")
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.width = 100
    connection_screen(terminal, run, 0, 100.0)
    assert ("answer took p50 / max" in stream.getvalue()) == (vantage == "b")
    assert ("RTT min / p50" in stream.getvalue()) == (vantage != "b")


# Captures of others with pings and DNS in UDP: how many exchanges tshark pairs. The files of `DIFFERENT` hold requests
# twice, some microseconds apart: tshark counts from the second, we from the first.
PINGS = {
    "pcapplusplus/gtp-u.pcap": 51,
    "spindump/trace_tunnel_interface_ping.pcap": 1000,
    "tcpdump/geneve.pcap": 3,
    "tcpreplay/test.pcap": 11,
    "tcptrace/input/ipopts.dmp.gz": 4,
    "wireshark/communityid.pcap.gz": 12,
    "zeek/erspan.pcap": 42,
    "zeek/gre-within-gre.pcap": 312,
    "zeek/icmp-payload-trunc.pcap": 2,
    "zeek/linux_dlt_sll2.pcap": 2,
    "zeek/pppoe.pcap": 5,
    "zeek/raw_packets.pcap": 1,
    "zeek/timeout-with-pings.pcap": 6,
}
DNS = {
    "ndpi/1kxun.pcap": 6,
    "ndpi/alexa-app.pcapng": 31,
    "ndpi/instagram.pcap": 3,
    "ndpi/netflix.pcap": 14,
    "pcapplusplus/example.pcap": 69,
    "pcapplusplus/many_interfaces-1.pcapng": 7,
    "pcapplusplus/raw_ip.pcap": 3,
    "pcapplusplus/sll.pcap": 10,
    "tcpreplay/test.pcap": 12,
    "wireshark/communityid.pcap.gz": 1,
    "zeek/Teredo.pcap": 5,
    "zeek/erspan.pcap": 5,
    "zeek/radiotap.pcap": 1,
    "zeek/wikipedia.pcap": 14,
    "zeek/wlanmon.pcap": 1,
}
DIFFERENT = {"wireshark/communityid.pcap.gz": 4}


def by_tshark(path: Path, shown: str, *fields: str) -> list[float]:
    """Times of answers in ms, in the order of the capture."""
    names = [arg for field in fields for arg in ("-e", field)]
    argv = ["tshark", "-r", str(path), "-Y", shown, "-T", "fields", *names, "-E", "occurrence=l"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def compare(path: Path, proto: str, judged: list[float], different: int) -> None:
    """Each exchange of a protocol takes what the judge says."""
    ours = times_ms(path, proto)
    assert len(ours) == len(judged)
    others = [pair for pair in zip(ours, judged, strict=True) if abs(pair[0] - pair[1]) > WITHIN_MS]
    assert len(others) == different, others
    assert all(first > second for first, second in others)


@requires("captures", "tshark")
@pytest.mark.parametrize("name", PINGS)
def test_each_ping_takes_what_tshark_says(name: str) -> None:
    path = SHARED / "captures" / "real" / name
    fields = ("icmp.resptime", "icmpv6.resptime")
    judged = by_tshark(path, " or ".join(fields), *fields)
    assert len(judged) == PINGS[name]
    compare(path, "icmp", judged, DIFFERENT.get(name, 0))


@requires("captures", "tshark")
@pytest.mark.parametrize("name", DNS)
def test_each_answer_of_dns_takes_what_tshark_says(name: str) -> None:
    path = SHARED / "captures" / "real" / name
    judged = [1e3 * s for s in by_tshark(path, "dns.time and udp", "dns.time")]
    assert len(judged) == DNS[name]
    compare(path, "udp", judged, 0)


def test_answers_of_dns_are_those_of_their_identifier(tmp_path: Path) -> None:
    def dns(number: int, answer: bool, port: int = 40_000) -> bytes:
        body = struct.pack(">HHHHHH", number, 0x8180 if answer else 0x0100, 1, 0, 0, 0)
        question = b"\x07example\x00" + struct.pack(">HH", 1, 1)
        ports, ends = ((53, port), (2, 1)) if answer else ((port, 53), (1, 2))
        return udp(ends, ports, body + question)

    packets = [
        (0.0, dns(1, False)),
        (0.001, dns(2, False)),
        # In the other order, one of them twice.
        (0.030, dns(2, True)),
        (0.040, dns(1, True)),
        (0.041, dns(1, True)),
        # Asked again after five seconds: which one was answered is not known.
        (1.0, dns(3, False)),
        (6.0, dns(3, False)),
        (6.030, dns(3, True)),
        # Lost, and the same identifier from another port.
        (7.0, dns(4, False)),
        (7.5, dns(4, False, 40_001)),
        (7.520, dns(4, True, 40_001)),
        # An identifier used again.
        (8.0, dns(1, False)),
        (8.050, dns(1, True)),
        # The end of the capture, long after the lost one.
        (30.0, dns(9, False, 40_002)),
    ]
    path = write(tmp_path / "dns.pcap", packets)
    assert times_ms(path) == pytest.approx([29, 40, 20, 50])
    flow = analyze(path).flow(0)
    assert (flow["rtt_method"], flow["rtt_ms_count"]) == ("answer", 3)
    assert flow["loss_rate"] == pytest.approx(1 / 5)


def test_udp_without_numbers_counts_where_answers_follow_irregular_requests(tmp_path: Path) -> None:
    """The same answers are none where they come by a timer of their own, or twice."""

    def flow(name: str, back: Callable[[int, float], list[float]]) -> dict[str, Any]:
        sent = [i + (i * i * 37 % 101) / 202 for i in range(20)]
        times = [(at, udp((1, 2), (40_000, 161), b"ask")) for at in sent]
        for i, at in enumerate(sent):
            times += [(answer, udp((2, 1), (161, 40_000), b"answer")) for answer in back(i, at)]
        return analyze(write(tmp_path / name, sorted(times))).flow(0)

    exchanges = flow("answers.pcap", lambda i, at: [at + 0.04 + i / 1e4])
    assert exchanges["rtt_ms_count"] == 20
    assert exchanges["rtt_ms_min"] == pytest.approx(40)
    assert flow("timer.pcap", lambda i, _: [i + 0.52])["rtt_ms_count"] is None
    assert flow("twice.pcap", lambda _, at: [at + 0.04, at + 0.05])["rtt_ms_count"] is None


def step_of(path: Path) -> dict[str, float] | None:
    """The figures of the finding about a radio, if there is one."""
    found = [row for row in analyze(path).findings.to_pylist() if row["rule"] == "radio-promotion"]
    assert len(found) <= 1
    return json.loads(found[0]["values"]) if found else None


PAUSES_S = [0.2, 5.0, 1.0, 3.0, 0.2, 2.5, 1.8, 6.0, 0.2, 1.0, 4.0, 1.5, 2.2, 0.5]


@pytest.mark.parametrize("v6", [False, True])
def test_pings_after_pauses_show_a_radio_that_sleeps(tmp_path: Path, v6: bool) -> None:
    def pings(name: str, others: bool, radio_ms: float, ttl: tuple[int, int] = (64, 57)) -> Path:
        at, packets = 0.0, []
        for i, pause in enumerate(PAUSES_S * 2):
            if others:
                # Another host is asked in the pause.
                packets += [
                    (at + 0.3 * n, echo(v6, False, 100 * i + n, 5, host=1, to=3))
                    for n in range(1, int(pause / 0.3) + 1)
                ]
            at += pause
            rtt = 0.04 + (radio_ms / 1e3 if pause > 2 else 0)
            packets.append((at, echo(v6, False, i, ttl=ttl[0])))
            at += rtt
            packets.append((at, echo(v6, True, i, ttl=ttl[1])))
        return write(tmp_path / name, sorted(packets))

    step = step_of(pings("radio.pcap", False, 500))
    assert step is not None
    assert (step["gap_s_max_prompt"], step["gap_s_min"]) == pytest.approx((1.8, 2.2), abs=0.001)
    assert step["extra_ms_p50"] == pytest.approx(500, abs=1)
    assert step_of(pings("none.pcap", False, 0)) is None
    assert step_of(pings("busy.pcap", True, 500)) is None
    assert step_of(pings("answerer.pcap", False, 500, (57, 64))) is None
