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

import unbloat
from unbloat.errors import LabError
from unbloat.phones.upload import packets as pcapng_packets
from unbloat.prediction.pairs import (
    FILE_BYTES,
    RECORD_BYTES,
    SYN,
    figures,
    packets,
    unique_bytes,
    waits,
)
from unbloat.run.figures import Figures

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

SLOW = """
name = "slow"
duration = "20 s"
[link.up]
rate = { profile = [6, 0.3], unit = "Mbit/s", slot = "3 s" }
delay = "20 ms"
queue = "QUEUE"
[link.down]
rate = "100 Mbit/s"
delay = "20 ms"
[[flow]]
name = "upload"
from = "client"
to = "server"
congestion = "bbr"
"""
OPENED = packet(0, 0, 0, 0, SYN)


def test_a_wait_is_that_of_the_packet_that_arrived_and_not_of_the_lost_one() -> None:
    arrived = [one for one in packets(RECEIVER_SIDE) if one.ip_id != 9]
    found = waits(list(packets(SENDER_SIDE)), arrived)
    assert [one.wait_ns / 1e6 for one in found] == pytest.approx([5, 10, 30, 0, 2])


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
    # 0, 2, 5, 10 and 30 ms stand for 45, 10, 3.5, 14 and 25.5 ms of time.
    assert p50_ms == 2
    assert p95_ms == 30


@pytest.mark.parametrize("queue", ["droptail", "fq_codel"])
def test_a_slow_time_counts_by_its_length_as_in_the_simulator(tmp_path: Path, queue: str) -> None:
    """Half of the time, in which one packet of twenty passes."""
    scenario = tmp_path / "slow.toml"
    scenario.write_text(SLOW.replace("QUEUE", queue))
    run = unbloat.simulate(scenario, pcap=tmp_path)
    assert isinstance(run, unbloat.Run)
    true = Figures(run).transfer_queue_ms("upload")
    assert true is not None
    ends = [classic(next(tmp_path.rglob(f"{end}.pcapng"))) for end in ("client", "server")]
    _, p50_ms, p95_ms = figures(ends[0], ends[1], 20.0)
    # A packet's own time on the slow link is no queue in the simulator, whose quantiles are to 2 %.
    own_ms = 1500 * 8 / 0.3e6 * 1000
    assert true.p50 - 1 <= p50_ms <= 1.02 * true.p50 + own_ms + 1
    assert true.p95 - 1 <= p95_ms <= 1.02 * true.p95 + own_ms + 1
    # The control: by packets the slow time hardly counts.
    by_packets = sorted(one.wait_ns for one in waits(*(list(packets(end)) for end in ends)))
    if queue == "fq_codel":
        assert by_packets[int(0.95 * len(by_packets))] / 1e6 < p95_ms / 3


def classic(path: Path) -> bytes:
    """A capture of the simulator in the older format."""
    records = [
        struct.pack("<IIII", ns // 1_000_000_000, ns % 1_000_000_000, len(data), wire) + data
        for ns, data, wire in pcapng_packets(path.read_bytes())
    ]
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65_535, 101) + b"".join(records)


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
