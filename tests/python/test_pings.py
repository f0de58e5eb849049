"""Pings in a capture: their RTT is that of tshark, in IPv4 and IPv6, and the words say what it means for a transfer."""

from __future__ import annotations

import io
import subprocess
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from made_capture import echo, write
from requirements import ROOT, SHARED, requires

from unbloat import analyze
from unbloat.capture.file_text import file_screen
from unbloat.run.pings import ping_flows, ping_texts
from unbloat.run.verdict import verdict
from unbloat.text.terminal import Terminal

# Captures of others with more than a handful of pings, and how many replies tshark pairs with a request there.
CAPTURES = {
    "pcapplusplus/gtp-u.pcap": 51,
    "spindump/trace_tunnel_interface_ping.pcap": 1000,
    "tcpreplay/test.pcap": 11,
    "zeek/pppoe.pcap": 5,
    "zeek/timeout-with-pings.pcap": 6,
}
# Histograms of the analysis err by less than this; tshark prints microseconds.
WITHIN = 0.01
FIELDS = {
    "icmp": ("ip.src", "ip.dst", "icmp.ident", "icmp.resptime"),
    "icmpv6": ("ipv6.src", "ipv6.dst", "icmpv6.echo.identifier", "icmpv6.resptime"),
}

Key = tuple[str, str, int]


def by_tshark(path: Path) -> dict[Key, list[float]]:
    """Response times in ms by host that was pinged, host that pinged, and identifier."""
    times: dict[Key, list[float]] = defaultdict(list)
    for protocol, fields in FIELDS.items():
        names = [arg for field in fields for arg in ("-e", field)]
        argv = ["tshark", "-r", str(path), "-Y", f"{protocol}.resptime", "-T", "fields", *names]
        argv += ["-E", "occurrence=l"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            pinged, source, identifier, time = line.split("\t")
            times[source, pinged, int(identifier, 0)].append(float(time))
    return dict(times)


def by_us(path: Path) -> dict[Key, dict[str, Any]]:
    """Our flows of pings with the same keys."""
    run = analyze(path)
    found = {}
    for flow in ping_flows(run):
        connection = run.connection(flow["connection"])
        a, b = ("a", "b") if flow["id"] % 2 == 0 else ("b", "a")
        key = (connection[f"{a}_addr"], connection[f"{b}_addr"], connection["a_port"])
        found[key] = flow
    return found


def agree(path: Path) -> int:
    """Compares both; returns the number of replies."""
    judge, ours = by_tshark(path), by_us(path)
    assert set(ours) == set(judge)
    for key, times in judge.items():
        flow = ours[key]
        ordered = sorted(times)
        assert flow["rtt_ms_count"] == len(times), key
        assert flow["rtt_ms_min"] == pytest.approx(ordered[0], rel=WITHIN, abs=0.002), key
        assert flow["rtt_ms_max"] == pytest.approx(ordered[-1], rel=WITHIN, abs=0.002), key
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            low, high = (
                ordered[max(min(round(share * len(times)) + step, len(times) - 1), 0)]
                for step in (-1, 0)
            )
            middle = flow[f"rtt_ms_{name}"]
            assert low * (1 - WITHIN) - 0.002 <= middle <= high * (1 + WITHIN) + 0.002, (key, name)
    replies: int = sum(len(times) for times in judge.values())
    return replies


@requires("captures", "tshark")
@pytest.mark.parametrize("name", CAPTURES)
def test_round_trips_of_pings_are_those_of_tshark(name: str) -> None:
    assert agree(SHARED / "captures" / "real" / name) == CAPTURES[name]


def written(path: Path, v6: bool) -> Path:
    """Twenty pings of 40 ms and more, of which the fifth is not answered and the last is cut off by the end."""
    packets = []
    for i in range(20):
        packets.append((i * 1.0, echo(v6, False, i)))
        if i not in (5, 19):
            packets.append((i * 1.0 + 0.04 + i / 1000, echo(v6, True, i)))
    return write(path, packets)


@pytest.mark.parametrize("v6", [False, True])
def test_replies_and_losses_are_counted_in_both_versions_of_ip(tmp_path: Path, v6: bool) -> None:
    path = written(tmp_path / "ping.pcap", v6)
    [flow] = by_us(path).values()
    assert (flow["rtt_ms_count"], flow["loss_rate"]) == (18, pytest.approx(1 / 19))
    assert (flow["rtt_ms_min"], flow["rtt_ms_max"]) == (pytest.approx(40.0), pytest.approx(58.0))
    run = analyze(path)
    [text] = ping_texts(run)
    assert "18 replies, 5.3 % of the requests without one; RTT 40 ms at least" in text
    assert text in verdict(run)


@requires("tshark")
@pytest.mark.parametrize("v6", [False, True])
def test_the_judge_reads_the_same_from_a_made_capture(tmp_path: Path, v6: bool) -> None:
    assert agree(written(tmp_path / "ping.pcap", v6)) == 18


def test_the_first_screen_has_the_pings_within_its_width(tmp_path: Path) -> None:
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.width = 80
    file_screen(terminal, analyze(written(tmp_path / "ping.pcap", False)), top=10, sort="bytes")
    lines = stream.getvalue().splitlines()
    [row] = [line for line in lines if line.endswith("ping")]
    assert "40 → 58 ms" in row
    assert any(line.startswith("Ping 10.0.0.1 → 10.0.0.2: 18 replies") for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_recorded_ping_waits_in_the_queue_of_the_upload() -> None:
    """The bundled sample has a ping beside its upload, as `unbloat record` makes one."""
    run = analyze(ROOT / "samples" / "bloated-cubic-upload.pcapng.zst")
    [text] = ping_texts(run)
    assert text.endswith("both wait in the same queue."), text


@pytest.mark.parametrize(
    ("ping", "transfer", "queue", "words"),
    [
        (1000.0, 1100.0, 900.0, "both wait in the same queue."),
        (60.0, 1100.0, 900.0, "the ping does not wait in that queue"),
        (900.0, 120.0, 60.0, "the ping waits longer"),
        (50.0, 52.0, 4.0, "without a standing queue."),
        (None, 52.0, 4.0, "p95."),
    ],
)
def test_the_ping_is_compared_with_the_loaded_transfer(
    ping: float | None, transfer: float, queue: float, words: str
) -> None:
    pinged = {
        "id": 2,
        "connection": 1,
        "rtt_method": "echo",
        "loss_rate": 0.0,
        "rtt_ms_count": 50,
        "rtt_ms_min": 40.0,
        "answer_ms_count": None,
        "rtt_ms_p50": ping or 50.0,
        "rtt_ms_p95": 1200.0,
        "loaded_rtt_ms_count": 40 if ping else None,
        "loaded_rtt_ms_p50": ping,
    }
    main = {"id": 0, "rtt_method": "seq_ack", "loaded_rtt_ms_p50": transfer, "queue_ms_p50": queue}
    run: Any = SimpleNamespace(
        flows=pa.Table.from_pylist([pinged]),
        main_flow=0,
        flow=lambda _: main,
        connection=lambda _: {"a_addr": "10.0.0.1", "b_addr": "10.0.0.2"},
    )
    [text] = ping_texts(run)
    assert words in text
