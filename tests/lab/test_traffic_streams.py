"""Our own TCP ends: what really runs is what the scenario says, as `ss`, tcpdump and the kernel's counters see it."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import starved
from traffic_testbed import CLIENT, SERVER, Logs, Pair, Traffic, flow, needs, pair_of, plan, probe

from unbloat.lab.traffic import commands, iperf3
from unbloat.lab.traffic.tcp_info import parse


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    yield from pair_of(tmp_path_factory)


def captured(pair: Pair, made: dict[str, Any], folder: Path, what: str) -> Path:
    """Runs a plan under tcpdump at the client."""
    path = folder / "client.pcap"
    with (
        Traffic(pair, made, folder) as traffic,
        pair.capture("client", "net", path, what, snap=120),
    ):
        traffic.go()
        traffic.wait(made["duration_s"] + 10)
    return path


def fields(path: Path, wanted: str, *names: str) -> list[list[str]]:
    """What tshark reads in a capture."""
    argv = ["tshark", "-r", str(path), "-Y", wanted, "-T", "fields"]
    for name in names:
        argv += ["-e", name]
    out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return [line.split("\t") for line in out.splitlines()]


def sockets(pair: Pair, node: str, port: int) -> str:
    """What ss shows of a node's connections with that local port."""
    shown = ("ss", "-tinH", "state", "established", "sport", "=", f":{port}")
    return pair.ask(node, *shown)


def last_sample(logs: Logs, path: str) -> dict[str, Any]:
    return logs.rows(path, "sample")[-1]


@needs("ss")
def test_each_flow_runs_the_congestion_control_that_it_is_given(pair: Pair, tmp_path: Path) -> None:
    # bbr is this host's default, cubic may not be set by a namespace's sysctl.
    flows = [
        flow(f"{kind}-{way}", upload=way == "up", sender__congestion={"kind": kind})
        for kind in ("cubic", "newreno")
        for way in ("up", "down")
    ]
    for one in flows:
        one["app"] = {"kind": "rates", "rates_bps": [10e6], "slot_s": 1.0}
    seen: dict[str, str] = {}

    def look(_: Pair) -> None:
        for index, one in enumerate(flows):
            # The side that does not open has the flow's port: the server, in both ways.
            text = sockets(pair, "server", 5001 + index)
            seen[one["name"]] = " ".join(re.findall(r"\b(cubic|reno|bbr)\b", text))

    logs = pair.run(plan(*flows, duration=1.0), tmp_path, during=look)
    assert seen == {
        "cubic-up": "cubic",
        "cubic-down": "cubic",
        "newreno-up": "reno",
        "newreno-down": "reno",
    }
    for name, kernel in seen.items():
        for side in ("sender", "receiver"):
            (connection,) = logs.rows(f"flows/{name}.{side}.jsonl", "connection")
            assert connection["congestion"] == kernel
            assert connection["data"] == ("local" if side == "sender" else "remote")
    assert logs.errors() == []


def test_a_route_does_not_override_what_a_flow_is_given(pair: Pair, tmp_path: Path) -> None:
    route = "route replace 10.0.0.1/32 dev net"
    pair.ip("server", f"{route} congctl reno")
    try:
        made = flow("down", sender__congestion={"kind": "cubic"})
        logs = pair.run(plan(made, duration=0.3), tmp_path)
    finally:
        pair.ip("server", f"{route} src 10.0.0.2")
    assert logs.rows("flows/down.sender.jsonl", "connection")[0]["congestion"] == "cubic"


def test_a_congestion_control_that_the_kernel_does_not_have_is_said_and_its_flow_does_not_run(
    pair: Pair, tmp_path: Path
) -> None:
    made = flow("down", sender__congestion={"kind": "bbr3"})
    logs = pair.run(plan(made, duration=0.3), tmp_path)
    assert set(logs.errors()) == {
        "congestion control bbr3 is not in this kernel; this flow does not run",
    }
    assert logs.rows("flows/down.receiver.jsonl", "connection") == []


@needs("ss")
def test_congestion_control_and_window_change_in_mid_run(pair: Pair, tmp_path: Path) -> None:
    made = flow(
        "up",
        upload=True,
        receiver__window={"kind": "fixed", "window": 200_000, "rmem_max": 110_208},
    )
    made["app"] = {"kind": "rates", "rates_bps": [20e6], "slot_s": 1.0}
    window = {"kind": "fixed", "window": 50_000, "rmem_max": 110_208, "ratio": 0.5}
    changes = (
        {"at_s": 0.3, "what": [{"kind": "congestion", "flow": 0, "to": {"kind": "newreno"}}]},
        {
            "at_s": 0.6,
            "what": [{"kind": "window", "flow": 0, "to": window}, {"kind": "link", "link": 0}],
        },
    )
    logs = pair.run(plan(made, duration=1.2, changes=changes), tmp_path)
    assert [row["congestion"] for row in logs.rows("flows/up.sender.jsonl", "congestion")] == [
        "reno"
    ]
    windows = {
        round(row["t_s"], 1): row["send_window_bytes"]
        for row in logs.rows("flows/up.sender.jsonl", "sample")
    }
    assert 190_000 <= windows[0.5] <= 200_064
    assert 45_000 <= windows[1.1] <= 50_064


@needs("tcpdump", "tshark")
@pytest.mark.parametrize("window", [30_000, 110_000, 800_000])
def test_the_window_advertised_is_the_fixed_window(pair: Pair, tmp_path: Path, window: int) -> None:
    law = {"kind": "fixed", "window": window, "rmem_max": 110_208, "ratio": 0.5}
    app = {"kind": "rates", "rates_bps": [100e6], "slot_s": 1.0}
    made = flow("down", app, receiver__window=law)
    path = captured(pair, plan(made, duration=0.5), tmp_path, "tcp and src 10.0.0.1")
    rows = fields(
        path, "tcp.flags.syn == 0 && tcp.flags.fin == 0 && tcp.flags.reset == 0", "tcp.window_size"
    )
    sizes = [int(row[0]) for row in rows]
    # Steps of the window scale; the kernel rounds up.
    step = 1 << max(window.bit_length() - 16, 0)
    assert max(sizes) <= window + step
    # It opens within the first segments and stays; without a window scale the kernel counts in segments.
    assert sorted(sizes)[len(sizes) // 2] > (0.97 * window if window > 65_535 else window - 1448)


def test_a_fixed_buffer_is_the_kernels_buffer_and_never_grows(pair: Pair, tmp_path: Path) -> None:
    law = {"kind": "fixed", "window": None, "rmem_max": 110_208, "ratio": 0.5}
    made = flow(
        "down", {"kind": "rates", "rates_bps": [100e6], "slot_s": 1.0}, receiver__window=law
    )
    logs = pair.run(plan(made, duration=0.5), tmp_path)
    windows = [row["send_window_bytes"] for row in logs.rows("flows/down.sender.jsonl", "sample")]
    # Half of it to begin with; the kernel's measured ratio is between that and all of it.
    assert 0.4 * 110_208 < max(windows) <= 110_208


def pruned(pair: Pair) -> int:
    """How often the client's kernel has thrown away what it had received."""
    return pair.counter("client", "TcpExtRcvPruned")


@needs()
@pytest.mark.measured
def test_a_slow_reader_reads_by_its_profile_and_the_buffer_stays_full(
    pair: Pair, tmp_path: Path
) -> None:
    made = flow(
        "down",
        receiver__window={"kind": "fixed", "window": 300_000, "rmem_max": 110_208, "ratio": 0.5},
        receiver__read={"rates_bps": [8e6, 0, 16e6], "slot_s": 0.2, "tick_s": 0.02},
    )
    before = pruned(pair)
    logs = pair.run(plan(made, duration=2.41), tmp_path)
    # On a busy machine segments are small, and the kernel counts their overhead against the buffer, too. Then it drops data
    # that its window had allowed, and the reader finds nothing until the sender's timer has expired.
    if times := pruned(pair) - before:
        starved.measured(f"the client's kernel dropped data from its receive buffer {times} times")
    final = last_sample(logs, "flows/down.receiver.jsonl")
    # Slots count from the opening: 10 ticks at 8 Mbit/s, 10 at none, 10 at 16.
    (connection,) = logs.rows("flows/down.receiver.jsonl", "connection")
    ticks = int((2.41 - connection["t_s"]) / 0.02)
    read = sum((20_000, 0, 40_000)[tick // 10 % 3] for tick in range(ticks))
    assert final["bytes_received"] - final["unread_bytes"] == pytest.approx(read, rel=0.02)

    def stalled(end: str) -> list[dict[str, Any]]:
        """The samples of an end in the second slots, where nothing is read."""
        rows = logs.rows(f"flows/down.{end}.jsonl", "sample")
        return [row for row in rows if round(row["t_s"] % 0.6, 1) in (0.3, 0.4)]

    # The buffer is full there, from the second time on. How much fits is up to the kernel's account of each segment.
    full = [row["unread_bytes"] for row in stalled("receiver") if row["t_s"] > 0.6]
    assert len(full) >= 5
    assert full == pytest.approx([300_000] * len(full), rel=0.5)
    # The window closes.
    assert any(row["send_window_bytes"] < 20_000 for row in stalled("sender"))


def test_data_made_at_a_rate_keeps_it(pair: Pair, tmp_path: Path) -> None:
    app = {"kind": "rates", "rates_bps": [8e6, 40e6], "slot_s": 0.5}
    flows = [flow("up", app, upload=True), flow("down", app)]
    logs = pair.run(plan(*flows, duration=2.0), tmp_path)
    for name in ("up", "down"):
        received = last_sample(logs, f"flows/{name}.receiver.jsonl")["bytes_received"]
        (connection,) = logs.rows(f"flows/{name}.sender.jsonl", "connection")
        # Half a second of 1 MB/s, half a second of 5, and so on, from the opening on.
        late = connection["t_s"]
        assert received == pytest.approx(6_000_000 - 5_000_000 * late, rel=0.02)


def test_files_come_whole_one_after_another(pair: Pair, tmp_path: Path) -> None:
    often = {"kind": "file", "bytes": 300_000, "every_s": 0.2}
    flows = [
        flow("up", often, upload=True),
        flow("down", often, start_s=0.1),
        flow("once", {"kind": "file", "bytes": 5, "every_s": None}, upload=True),
        flow("large", {"kind": "file", "bytes": 10_000_000, "every_s": None}, stop_s=0.001),
    ]
    logs = pair.run(plan(*flows, duration=0.95), tmp_path)
    assert len(logs.values("flows/up.receiver.jsonl", "file_ms")) == 5
    assert len(logs.values("flows/down.receiver.jsonl", "file_ms")) == 5
    assert len(logs.values("flows/once.receiver.jsonl", "file_ms")) == 1
    assert logs.values("flows/large.receiver.jsonl", "file_ms") == []
    for path in ("flows/up.sender.jsonl", "flows/down.sender.jsonl"):
        # The kernel counts the FIN as well, once it is acknowledged.
        final = {
            row["remote"] + row["local"]: row["bytes_acked"] for row in logs.rows(path, "sample")
        }
        assert len(final) == 5
        assert all(300_000 <= acked <= 300_002 for acked in final.values())
    starts = [row["t_s"] for row in logs.rows("flows/up.sender.jsonl", "connection")]
    assert starts == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8], abs=0.1)
    assert logs.errors() == []


def test_requests_are_answered_one_after_another(pair: Pair, tmp_path: Path) -> None:
    app = {"kind": "requests", "request_bytes": 700, "responses_bytes": [20_000], "thinks_s": [0.1]}
    logs = pair.run(plan(flow("down", app), duration=1.0, warmup=0.5), tmp_path)
    answers = logs.values("flows/down.receiver.jsonl", "response_ms")
    # One every 100 ms and a little; none is logs of the warm-up.
    assert 3 <= len(answers) <= 5
    final = last_sample(logs, "flows/down.receiver.jsonl")
    # A FIN counts as a byte.
    assert final["bytes_received"] % 20_000 <= 1
    assert final["bytes_received"] // 20_000 >= 8
    # Questions sent, SYN and FIN.
    assert final["bytes_acked"] % 700 <= 2


def test_responses_and_pauses_are_gone_through_again_and_again(pair: Pair, tmp_path: Path) -> None:
    sizes, thinks_s = [20_000, 5_000], [0.05, 0.15]
    app = {"kind": "requests", "request_bytes": 700, "responses_bytes": sizes, "thinks_s": thinks_s}
    logs = pair.run(plan(flow("down", app), duration=1.0), tmp_path)
    got = last_sample(logs, "flows/down.receiver.jsonl")["bytes_received"]
    # A FIN counts as a byte; the last response may have been on its way.
    assert got % sum(sizes) in (0, 1, sizes[0], sizes[0] + 1)
    assert 3 <= got // sum(sizes) <= 5


def test_an_application_stops_at_its_stop_time(pair: Pair, tmp_path: Path) -> None:
    logs = pair.run(plan(flow("up", upload=True, stop_s=0.3), duration=0.8), tmp_path)
    rows = logs.rows("flows/up.receiver.jsonl", "sample")
    # Closed from both sides, so nothing is left to be measured.
    assert max(row["t_s"] for row in rows) == pytest.approx(0.3, abs=0.15)


@needs("tcpdump", "tshark")
def test_classes_travel_as_dscp(pair: Pair, tmp_path: Path) -> None:
    app = {"kind": "rates", "rates_bps": [5e6], "slot_s": 1.0}
    flows = [
        flow("urgent", app, sender__class=0, receiver__ack_class=2),
        flow("plain", app),
        flow("late", app, upload=True, sender__class=7, receiver__ack_class=0),
    ]
    path = captured(pair, plan(*flows, duration=0.3), tmp_path, "tcp")
    seen: dict[tuple[int, bool], set[str]] = {}
    for port, source, size, dscp in fields(
        path, "tcp.flags.syn == 0", "tcp.port", "ip.src", "tcp.len", "ip.dsfield.dscp"
    ):
        ends = {int(p) for p in port.split(",")}
        number = next(p for p in (5001, 5002, 5003) if p in ends)
        server = source == "10.0.0.2"
        if int(size) > 0 or number == 5003 or not server:
            seen.setdefault((number, server), set()).add(dscp)
    assert seen == {
        (5001, True): {"46"},
        (5001, False): {"8"},
        (5002, True): {"0"},
        (5002, False): {"0"},
        (5003, False): {"8"},
        (5003, True): {"46"},
    }


@needs("tcpdump", "tshark")
def test_a_segment_has_the_payload_that_the_scenario_says(pair: Pair, tmp_path: Path) -> None:
    app = {"kind": "rates", "rates_bps": [20e6], "slot_s": 1.0}
    path = captured(
        pair, plan(flow("down", app, sender__mss_bytes=512), duration=0.3), tmp_path, "tcp"
    )
    # The MSS option counts the timestamps, which this figure does not.
    assert {row[0] for row in fields(path, "tcp.flags.syn == 1", "tcp.options.mss_val")} == {"524"}
    # One packet on the veth is several segments: segmentation is put off.
    sizes = {int(row[0]) for row in fields(path, "tcp.len > 0", "tcp.len")}
    assert any(size % 512 == 0 for size in sizes)


@needs("iperf3", "tcpdump", "tshark")
def test_iperf3_makes_the_bulk_where_the_scenario_asks_for_it(pair: Pair, tmp_path: Path) -> None:
    # A small buffer keeps the capture small.
    small = {"kind": "fixed", "window": None, "rmem_max": 20_000, "ratio": 0.5}
    flows = [
        flow(
            "down", sender__congestion={"kind": "newreno"}, sender__class=0, receiver__window=small
        ),
        flow("up", upload=True, stop_s=0.9, receiver__window=small),
    ]
    path = captured(pair, plan(*flows, duration=1.2, bulk="iperf3"), tmp_path, "tcp and port 25001")
    logs = Logs(tmp_path)
    assert logs.errors() == []
    for name, kernel in (("down", "reno"), ("up", "cubic")):
        for side in ("sender", "receiver"):
            (connection,) = logs.rows(f"flows/{name}.{side}.jsonl", "connection")
            assert connection["congestion"] == kernel
            assert connection["data"] == ("local" if side == "sender" else "remote")
            report = json.loads((tmp_path / f"flows/{name}.{side}.iperf3.json").read_text())
            assert report["intervals"]
        received = last_sample(logs, f"flows/{name}.receiver.jsonl")["bytes_received"]
        assert received > 100_000
    assert max(row["t_s"] for row in logs.rows("flows/up.sender.jsonl", "sample")) < 1.15
    # EF, as class 0 travels.
    assert {
        row[0] for row in fields(path, "tcp.len > 0 && ip.src == 10.0.0.2", "ip.dsfield.dscp")
    } == {"46"}


@pytest.mark.parametrize(
    ("errors", "lasted", "own"),
    [
        ([], True, []),
        (["the client has terminated"], False, []),
        # Statistics were due just as the peer ended: in either order.
        (["the client has terminated", "getsockopt - Bad file descriptor"], False, []),
        (["getsockopt - Bad file descriptor", "interrupt - the client has terminated"], False, []),
        (["unable to read from stream socket: Connection reset by peer"], True, []),
        (
            ["unable to read from stream socket: Connection reset by peer"],
            False,
            ["unable to read from stream socket: Connection reset by peer"],
        ),
        (["getsockopt - Bad file descriptor"], True, ["getsockopt - Bad file descriptor"]),
        (["unable to set TCP/SCTP MSS", "interrupt"], True, ["unable to set TCP/SCTP MSS"]),
    ],
)
def test_errors_of_iperf3_that_follow_from_the_end_are_not_its_own(
    tmp_path: Path, errors: list[str], lasted: bool, own: list[str]
) -> None:
    # One object may have the key several times, as iperf3 writes it.
    pairs = ['"start": {}', '"intervals": []', *(f'"error": {json.dumps(e)}' for e in errors)]
    report = tmp_path / "report.json"
    report.write_text("{" + ", ".join(pairs) + "}")
    assert iperf3.errors_of_its_own(str(report), lasted) == own


def test_an_iperf3_without_a_report_is_an_error(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    for text in ("", "{", "3", "[1]"):
        report.write_text(text)
        assert iperf3.errors_of_its_own(str(report), True) == ["no report"]


def test_many_flows_of_a_node_share_one_process(tmp_path: Path) -> None:
    made = plan(*(flow(f"f{i}") for i in range(20)), probes=(probe("p"), probe("q")))
    started = commands(made, tmp_path)
    assert sorted((one.role, one.node) for one in started) == [
        ("ping", CLIENT),
        ("streams", CLIENT),
        ("streams", SERVER),
    ]


def test_a_program_ends_at_once_when_its_parent_is_gone(pair: Pair, tmp_path: Path) -> None:
    made = plan(
        flow("up", upload=True),
        flow(
            "call",
            {
                "kind": "voip",
                "every_s": 0.02,
                "bytes": 200,
                "jitter_buffer_s": 0.06,
                "jitter_min_s": None,
            },
        ),
        duration=60.0,
        probes=(probe("p"),),
    )
    with Traffic(pair, made, tmp_path) as traffic:
        traffic.go()
        time.sleep(0.3)
        for _, process in traffic.processes:
            assert process.stdin is not None
            process.stdin.close()
        for started, process in traffic.processes:
            assert process.wait(3) == 0, started.role
        # What was measured until then is there.
        assert Logs(tmp_path).rows("probes/p.jsonl", "probe")
        assert Logs(tmp_path).rows("flows/up.sender.jsonl", "sample")


def test_older_kernels_report_less() -> None:
    info = bytearray(104)
    struct.pack_into("=I", info, 80, 17)
    row = parse(bytes(info))
    assert row["cwnd_segments"] == 17
    assert row["retransmits"] == 0
    assert [
        row[name] for name in ("pacing_bps", "rtt_min_ms", "delivery_bps", "send_window_bytes")
    ] == [None] * 4
