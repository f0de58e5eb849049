"""Figures that `bench/what_if/netem_runs.py` reads from two captures of one upload, on captures whose delays are known; no guest runs."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from bench.what_if import netem_runs
from bench.what_if.kernel_runs import CURES_RUN, SENDER
from bench.what_if.links import RTT_MS, TEST, Link
from bench.what_if.netem_runs import CURES, LINKS, cases, described, guest_name, refusal, rtt_ms

from unbloat.errors import LabError
from unbloat.prediction.pairs import (
    FILE_BYTES,
    RECORD_BYTES,
    SYN,
    figures,
    packets,
    unique_bytes,
    waits_ms,
)

PORT = 5001
# Payload of a full packet, with timestamps in its header.
FULL, ACK = 1448, 16
HEADERS = 20 + 32
BEGIN_S = 1_000
# A sequence number that passes 2³² after three packets.
FIRST = 2**32 - 3 * FULL


def packet(ms: float, ip_id: int, sequence: int, size: int, flags: int = ACK) -> bytes:
    """A packet to the server, captured so many ms after `BEGIN_S`: its headers alone, as the guest captures them."""
    ip = struct.pack("!BBHHHBBH8x", 0x45, 0, HEADERS + size, ip_id, 0, 64, 6, 0)
    tcp = struct.pack("!HHIIBBHHH12x", 40_000, PORT, sequence % 2**32, 0, 8 << 4, flags, 0, 0, 0)
    frame = bytes(12) + b"\x08\x00" + ip + tcp
    us = round(ms * 1000)
    seconds, units = BEGIN_S + us // 1_000_000, us % 1_000_000
    return struct.pack("<IIII", seconds, units, len(frame), len(frame) + size) + frame


def capture(*records: bytes, magic: int = 0xA1B2C3D4) -> bytes:
    """A file of them."""
    return struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 96, 1) + b"".join(records)


# SYN, then four packets, the second of which is lost and sent again, and a short one.
SENDER_SIDE = capture(
    packet(0, 1, FIRST - 1, 0, SYN),
    packet(100, 2, FIRST, FULL),
    packet(101, 3, FIRST + FULL, FULL),
    packet(102, 4, FIRST + 2 * FULL, FULL),
    packet(103, 5, FIRST + 3 * FULL, FULL),
    packet(300, 6, FIRST + FULL, FULL),
    packet(301, 7, FIRST + 4 * FULL, 100),
    # The first one again, though it arrived.
    packet(400, 8, FIRST, FULL),
    packet(29_999, 9, FIRST + 4 * FULL + 100, FULL),
)
# The fastest takes 20 ms; the first waits 5 ms, the fourth 30 ms. The short one is faster than all.
RECEIVER_SIDE = capture(
    packet(20, 1, FIRST - 1, 0, SYN),
    packet(125, 2, FIRST, FULL),
    packet(132, 4, FIRST + 2 * FULL, FULL),
    packet(153, 5, FIRST + 3 * FULL, FULL),
    packet(320, 6, FIRST + FULL, FULL),
    packet(311, 7, FIRST + 4 * FULL, 100),
    packet(422, 8, FIRST, FULL),
    # After the end of the run.
    packet(30_019, 9, FIRST + 4 * FULL + 100, FULL),
)


OPENED = packet(0, 0, 0, 0, SYN)


def test_a_wait_is_that_of_the_packet_that_arrived_and_not_of_the_lost_one() -> None:
    arrived = [one for one in packets(RECEIVER_SIDE) if one.ip_id != 9]
    assert waits_ms(list(packets(SENDER_SIDE)), arrived) == pytest.approx([5, 10, 30, 0, 2])


def test_what_arrived_twice_counts_once_across_the_end_of_sequence_numbers() -> None:
    assert unique_bytes(list(packets(RECEIVER_SIDE))) == 5 * FULL + 100


def test_what_overlaps_counts_once() -> None:
    merged = capture(
        OPENED,
        packet(1, 1, 1000, FULL),
        packet(2, 2, 1000 + FULL, 600),
        packet(3, 3, 1000, FULL + 700),
    )
    assert unique_bytes(list(packets(merged))) == FULL + 700


def test_figures_are_of_what_arrived_within_the_run() -> None:
    goodput_bps, p50_ms, p95_ms = figures(SENDER_SIDE, RECEIVER_SIDE, 30.0)
    assert goodput_bps == pytest.approx((4 * FULL + 100) * 8 / 30)
    # Of 0, 2, 5, 10 and 30 ms.
    assert p50_ms == 5
    assert p95_ms == pytest.approx(10 + 0.8 * 20)


def test_nothing_but_the_first_connection_counts_and_each_direction_for_itself() -> None:
    assert not list(packets(capture(packet(1, 1, 7, FULL)))), "without a SYN there is none"
    assert len(list(packets(SENDER_SIDE))) == 9
    assert not list(packets(SENDER_SIDE, "down")), "no packet is on its way back"
    with pytest.raises(LabError, match="delivered nothing"):
        figures(SENDER_SIDE, capture(OPENED), 30.0)


def test_captures_of_nanoseconds_are_read_as_well() -> None:
    _, one = packets(capture(OPENED, packet(0.5, 1, 7, FULL), magic=0xA1B23C4D))
    assert one.at_ns == BEGIN_S * 1_000_000_000 + 500


def test_a_record_that_was_cut_off_ends_a_capture() -> None:
    whole = capture(OPENED, packet(2, 2, 8, FULL))
    one = (len(whole) - FILE_BYTES) // 2
    for kept_bytes in (0, RECORD_BYTES - 1, RECORD_BYTES, one - 1):
        assert len(list(packets(whole[: FILE_BYTES + one + kept_bytes]))) == 1


def test_the_links_are_a_part_of_the_test_half_and_the_gate_is_not_run() -> None:
    assert {link.half for link in LINKS} == {TEST}
    assert len(LINKS) == 4
    assert {cure.name for cure in CURES_RUN} - {cure.name for cure in CURES} == {"gate"}
    assert len(cases(2)) == 2 * len(LINKS) * len(CURES)


def test_the_guest_reads_rate_shaper_buffer_and_the_rtt_of_the_other_testbed() -> None:
    link = Link("10M-256K", TEST, 10)
    drawn_ms = Random(f"10M-256K/{SENDER}/1").uniform(*RTT_MS)
    assert rtt_ms(link, 1) == drawn_ms
    assert described(link, 1) == f"10M-256K:10000:8500:256000:{round(1000 * drawn_ms)}"
    assert guest_name((link, CURES[0], 1)) == "10M-256K:as-it-was"


def test_a_run_counts_only_with_whole_captures_and_an_agent_that_held_the_upload() -> None:
    ends = (b"one", b"other")
    good = {"missed": [], "agent": {"applied": True, "problems": []}}
    assert refusal(good, ends) == refusal(good | {"agent": {}}, ends) == ""
    assert "agent" in refusal(good | {"agent": {"applied": False, "problems": []}}, ends)
    assert "agent" in refusal(good | {"agent": {"applied": True, "problems": ["x"]}}, ends)
    assert "captures" in refusal(good, (b"", b"other"))
    assert "captures" in refusal(good | {"missed": ["3 packets dropped by kernel"]}, ends)
    assert refusal({"failed": "why"}, ends) == "why"


def test_a_host_that_cannot_run_guests_says_why_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(netem_runs, "STORE", tmp_path / "runs.jsonl")
    monkeypatch.setattr(netem_runs, "PROGRAMS", ("no-such-program",))
    monkeypatch.setattr("sys.argv", ["netem_runs.py"])
    assert netem_runs.main() == 2
    assert capsys.readouterr().err == "nothing was run: missing: no-such-program\n"
