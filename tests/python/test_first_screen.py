"""The first screen of `analyze`: what it says where little can be said, and its form on every public capture."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from requirements import SHARED, requires

from unbloat import analyze
from unbloat.capture.file_text import (
    NO_GRADE,
    WHAT_TO_RECORD,
    file_screen,
    long_paths,
    what_to_record,
)
from unbloat.errors import UnbloatError
from unbloat.run.run import Run
from unbloat.run.verdict import verdict
from unbloat.text.format import ends_text, no_limit_text, rtt_range
from unbloat.text.terminal import Terminal, width

ACK, PSH = 0x10, 0x08


def screen(run: Run, columns: int = 80) -> list[str]:
    """Its lines."""
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.width = columns
    file_screen(terminal, run, top=10, sort="bytes")
    return stream.getvalue().splitlines()


def capture(path: Path, packets: list[tuple[float, bytes]]) -> Path:
    """A file of IPv4 packets without a link layer."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for at, packet in packets:
            whole = int(at)
            head = (whole, round((at - whole) * 1e6), len(packet), len(packet))
            file.write(struct.pack("<IIII", *head) + packet)
    return path


def segment(towards: int, seq: int, ack: int, flags: int, payload: bytes = b"") -> bytes:
    """A TCP segment between 10.0.0.1:5000 and 10.0.0.2:80."""
    ends = [(bytes([10, 0, 0, 1]), 5000), (bytes([10, 0, 0, 2]), 80)]
    (source, sport), (target, dport) = ends if towards else ends[::-1]
    tcp = struct.pack(">HHIIBBHHH", sport, dport, seq, ack, 0x50, flags, 8192, 0, 0) + payload
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + source + target
    return ip + tcp


def test_a_late_copy_of_an_answered_segment_makes_no_rate_and_no_limit(tmp_path: Path) -> None:
    request = segment(1, 1, 1, ACK | PSH, b"GET / HTTP/1.1\r\n\r\n")
    answer = segment(0, 1, 19, ACK)
    run = analyze(
        capture(tmp_path / "copy.pcap", [(0.0, request), (0.00001, answer), (300.0, request)])
    )
    flow = run.flow(0)
    assert flow["too_short"]
    assert flow["goodput_bps"] is None
    assert flow["limit"] is None
    assert any("too short to judge" in line for line in screen(run))


def test_a_connection_without_data_has_none_and_no_dash(tmp_path: Path) -> None:
    run = analyze(capture(tmp_path / "empty.pcap", [(0.0, segment(1, 1, 1, ACK))]))
    [row] = [line for line in screen(run) if line.endswith("no data")]
    assert row.split()[0] == "40"
    assert what_to_record(run) is None


def made_run(flows: list[dict[str, Any]]) -> Any:
    """A run of TCP connections with one direction of data each."""
    findings = [
        {"flow": 2 * id_, "severity": flow["found"], "rule": "no-answer"}
        for id_, flow in enumerate(flows)
        if flow.get("found")
    ]
    rows = [
        {
            "id": id_,
            "data_packets": flow.get("packets", 100),
            "payload_bytes": flow.get("bytes", 9000),
            "bytes": flow.get("bytes", 9000),
            "wire_bytes": 1,
            "too_short": flow.get("short", False),
            "grade": flow.get("grade"),
        }
        for number, flow in enumerate(flows)
        for id_, flow in ((2 * number, flow), (2 * number + 1, {"packets": 0, "bytes": 0}))
    ]
    needed = ("id", "payload_bytes", "wire_bytes", "too_short")
    return SimpleNamespace(
        connections=pa.table(
            {"id": list(range(len(flows))), "proto": [f.get("proto", "tcp") for f in flows]}
        ),
        flows=pa.Table.from_pylist(rows) if rows else pa.table({name: [] for name in needed}),
        flow=lambda id_: rows[id_],
        findings_of=lambda: findings,
    )


@pytest.mark.parametrize(
    ("flows", "said"),
    [
        ([{"short": True}, {"short": True}], WHAT_TO_RECORD),
        ([{"short": True}, {"packets": 0}, {"proto": "udp"}], WHAT_TO_RECORD),
        ([{"short": True}, {}], NO_GRADE),
        ([{"short": True}, {"grade": "A"}], None),
        ([{"short": True}, {"bytes": 2_000_000}], None),
        ([{}, {"found": "warning"}], None),
        ([{}, {"found": "info"}], NO_GRADE),
        ([{"proto": "udp"}], None),
        ([], None),
    ],
)
def test_where_nothing_can_be_graded_the_screen_says_what_to_record(
    flows: list[dict[str, Any]], said: str | None
) -> None:
    run = made_run(flows)
    assert what_to_record(run) == said
    if flows:
        run.flows = run.flows.drop(["too_short"])
        assert what_to_record(run) is None, "a result of an earlier version does not say"


@pytest.mark.parametrize(
    ("handshake", "bound", "text"),
    [(0.71, 105.0, "0.71 ms → ≤ 105 ms"), (48.1, 48.1, "48 ms"), (None, 300.0, "≤ 300 ms")],
)
def test_an_upper_bound_of_the_rtt_stands_behind_the_handshake(
    handshake: float | None, bound: float, text: str
) -> None:
    assert rtt_range({"rtt_bound_ms_p95": bound, "initial_rtt_ms": handshake}) == text


def test_an_identifier_of_icmp_is_no_port() -> None:
    ends = {"a_addr": "10.0.0.1", "a_port": 77, "b_addr": "10.0.0.2", "b_port": 77}
    assert ends_text({**ends, "proto": "icmp"}) == "10.0.0.1 → 10.0.0.2, id 77"
    assert ends_text({**ends, "proto": "udp"}) == "10.0.0.1:77 → 10.0.0.2:77"


FIGURES = re.compile(
    r" +[\d.]+ [KMG]?B +(–|[\d.]+ [kMG]?bit/s)  +(–|(≤ )?\S+ (ms|s)|(< )?\S+( m?s)? → (≤ )?\S+ m?s|< \S+ ms)"
    r"  +(–|A\+|[A-DF])  (too short to judge|no data|[a-z ]+)"
)
SPAN = re.compile(r"[\d,]+\.\d s to [\d,]+\.\d s$|at [\d,]+\.\d s$")


@requires("captures")
def test_every_public_capture_has_a_first_screen_of_one_form() -> None:
    seen = 0
    for path in sorted((SHARED / "captures").rglob("*")):
        if not path.is_file():
            continue
        try:
            run = analyze(path)
        except UnbloatError:
            continue
        seen += 1
        lines = screen(run)
        tcp = set(run.connections.column("proto").to_pylist()) & {"tcp"}
        for line in lines:
            assert width(line) <= 80, (path.name, line)
            assert " 0 bit/s" not in line, (path.name, line)
            assert " 0.0 s in all" not in line, (path.name, line)
            if line.startswith(("serious ", "warning ", "info ")) and " · " in line:
                assert SPAN.search(line) or line.count(" · ") == 1, (path.name, line)
            assert not re.match(r"(serious|warning|info) capture-quality ·", line), path.name
            if re.search(r"  (too short to judge|no data)$", line):
                assert FIGURES.fullmatch(line), (path.name, line)
        heads = [line for line in lines if re.match(r"(serious|warning|info) [a-z-]+", line)]
        named = [tuple(line.split()[:2]) for line in heads]
        assert len(named) == len(set(named)), (path.name, "a rule stands once per severity")
        assert not tcp or any(FIGURES.fullmatch(line) for line in lines), path.name
    assert seen >= 150


@pytest.mark.parametrize(
    ("flow", "words"),
    [
        ({"data_packets": 0}, "no data"),
        ({"data_packets": 9, "too_short": True}, "too short to judge"),
        ({"data_packets": 9, "too_short": False, "capture_lacks": "data"}, "data missing"),
        ({"data_packets": 9, "too_short": False, "capture_lacks": "acks"}, "ACKs missing"),
        ({"data_packets": 9, "too_short": False, "capture_lacks": None}, None),
        ({"data_packets": 9}, None),
    ],
)
def test_why_there_is_no_limit_is_said_in_its_place(
    flow: dict[str, Any], words: str | None
) -> None:
    assert no_limit_text(flow) == words


def test_a_good_grade_on_a_long_path_has_the_base_rtt_beside_it() -> None:
    def said(grade: str | None, base: float | None) -> str:
        return long_paths([({"id": 4}, {"grade": grade, "rtt_ms_min": base})])

    assert said("B", 560.4) == (
        "The grade is of the added delay alone. The path's own RTT is 560 ms on connection 4."
    )
    assert said("A+", 100.1)
    assert [said("B", 100.0), said(None, 560.0), said("A", None)] == ["", "", ""]
    assert said("F", 560.4) == "", "no good grade"


@requires("captures")
def test_a_transfer_that_was_hardly_captured_has_no_rtt_and_no_limit() -> None:
    """5.42 GB of it are missing. Its RTT was 13.3 s (p95), and its limit the application."""
    run = analyze(SHARED / "captures" / "real" / "zeek" / "bigtransfer.pcap")
    flow = run.flow(5)
    assert flow["capture_lacks"] == "data"
    assert [flow[name] for name in ("rtt_ms_p95", "limit", "grade", "peak_bps")] == [None] * 4
    assert flow["goodput_bps"] > 280e6, "by the ACKs"
    [row] = [line for line in screen(run) if line.endswith("data missing")]
    assert "288 Mbit/s" in row
    assert "the capture lacks most of its data" in verdict(run)
    [finding] = run.findings_of()
    assert finding["rule"] == "capture-quality"


@requires("captures")
def test_a_handshake_within_one_tick_of_the_clock_is_no_rtt_of_zero() -> None:
    run = analyze(SHARED / "captures" / "real" / "tcptrace" / "input" / "zwnd.dmp.gz")
    assert run.connection(1)["initial_rtt_ms"] is None
    assert not any("0 ms" in line.split("zero window")[0] for line in screen(run)[:6])
