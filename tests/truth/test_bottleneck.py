"""The rate of the bottleneck and the size of its buffer, at both ends, against the emulator: its settings, and its log.

signal: uploads over links of known rates and queues, of a rate or a size that changes, without a queue
model:  while a queue stands, a link delivers its rate; without a queue nothing shows it. A full queue drops what comes
action: the true rate within 2 % of the value and within the interval widened by 0.5 %; without a queue no value. Headers
        of segments that are not full, delayed ACKs and ticks at the ends of runs are below that. The true size within the
        interval and within 5 % of the value; a lower bound, no size, where nothing or anything was lost
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import generate
import pytest
from generate import CLEAN, upload
from relay_testbed import Scenario
from steady import made_of

import unbloat

BULK = upload("--seconds", "9")
# The last two have no queue: a program that sends 2 Mbit/s, and random loss that keeps the window small.
SCENARIOS = {
    # CUBIC fills 100 kB at 1.8, 4.2 and 9.6 s. Where it ends at the third, that queue drains within the 20 ms of a round trip.
    "small": Scenario(
        "small", "", "rate=10e6,queue=100000,delay=20", CLEAN, upload("--seconds", "7"), 40
    ),
    "large": Scenario("large", "", "rate=10e6,queue=400000,delay=20", CLEAN, BULK, 40),
    "slow": Scenario("slow", "", "rate=2e6,queue=200000,delay=20", CLEAN, BULK, 40),
    "slowest": Scenario("slowest", "", "rate=1e6,queue=120000,delay=20", CLEAN, BULK, 40),
    "held-acks": Scenario(
        "held-acks", "", "rate=6e6,queue=400000,delay=20", f"{CLEAN},burst=1/200", BULK, 40
    ),
    "changing": Scenario(
        "changing", "", "rate=10e6,queue=200000,delay=20,step=4.5/4e6", CLEAN, BULK, 40
    ),
    "paced": Scenario(
        "paced", "", f"{CLEAN}", CLEAN, upload("--seconds", "9", "--rate", "2000000"), 40
    ),
    "lossy": Scenario("lossy", "", f"{CLEAN},loss=0.02,seed=3", CLEAN, BULK, 40),
    # For the size alone: it shrinks, is never full, and loses at random as well. CUBIC needs 4.2 s until 300 kB are full.
    "shrinking": Scenario(
        "shrinking", "", "rate=10e6,queue=300000,delay=20,deep=6/100000", CLEAN, BULK, 40
    ),
    "never-full": Scenario(
        "never-full",
        "",
        "rate=10e6,queue=4000000,delay=20",
        CLEAN,
        BULK,
        40,
        sysctls={"server": {"net.ipv4.tcp_rmem": "4096 131072 400000"}},
    ),
    "random": Scenario(
        "random", "", "rate=10e6,queue=400000,delay=20,loss=0.0006,seed=5", CLEAN, BULK, 40
    ),
}
# Of the buffer, bytes of IP packets.
SIZES = {
    "small": 100_000,
    "large": 400_000,
    "slow": 200_000,
    "slowest": 120_000,
    "held-acks": 400_000,
    "changing": 200_000,
}
SIZE_TOLERANCE = 0.05
# Of an interval of the size: a tick and a millisecond at both ends, four packets, the spread of the moments, and above a part
# of 20 ms: 35 to 45 % with five to seven losses, which is 9 to 11 % of the smallest size here.
WIDEST = 1.3
RATES = {"small": 10e6, "large": 10e6, "slow": 2e6, "slowest": 1e6, "held-acks": 6e6}
TOLERANCE = 0.02
# Of a mean over 3 s at least: what the interval of the rule does not contain, see `action`.
BEYOND = 0.005
NO_QUEUE = ("paced", "lossy")
# Rates of `samples/make/make.py`, with ACKs that are held, a small queue, web requests beside, and at the receiver.
SAMPLES = {
    "bloated-cubic-upload": 4e6,
    "bloated-bbr-upload": 4e6,
    "bloated-download-at-receiver": 4e6,
    "lte-with-web": 3e6,
}
ENDS = ("phone", "server")


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per scenario, as `pairs` has it."""
    return made_of(tmp_path_factory, "bottleneck", SCENARIOS)


def found(capture: Path, rule: str = "bottleneck-rate") -> dict[str, Any] | None:
    """Evidence of a rule on the largest flow, if it has a finding."""
    run = unbloat.analyze(capture)
    flow = max(run.flows.to_pylist(), key=lambda row: row["payload_bytes"])["id"]
    for row in run.findings.to_pylist():
        if row["rule"] == rule and row["flow"] == flow:
            values: dict[str, Any] = json.loads(row["values"])
            return values
    return None


def left(log: Path, rate: float) -> float:
    """What left the queue in the middle half of the upload, bit/s: the emulator itself keeps its rate."""
    sent: dict[str, int] = {}
    out = []
    for line in log.read_text().splitlines():
        word = line.split()
        if word[0] == "+" and word[3] == "u" and word[5] == "6" and int(word[12]):
            sent[word[1]] = int(word[13])
        elif word[0] == "-" and word[1] in sent:
            out.append((int(word[2]), sent.pop(word[1])))
    start, end = out[0][0], out[-1][0]
    quarter = (end - start) / 4
    inside = [(us, n) for us, n in out if start + quarter <= us <= end - quarter]
    bps = 8e6 * sum(n for _, n in inside[1:]) / (inside[-1][0] - inside[0][0])
    assert bps == pytest.approx(rate, rel=TOLERANCE)
    return bps


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", RATES)
def test_the_rate_of_a_link_is_found_while_a_queue_stands(links: Path, name: str, end: str) -> None:
    rate = RATES[name]
    left(links / name / "relay.log", rate)
    link = found(links / name / f"{end}.pcap")
    assert link
    assert link["bottleneck_bps"] == pytest.approx(rate, rel=TOLERANCE)
    assert link["bottleneck_bps_low"] <= rate * (1 + BEYOND)
    assert link["bottleneck_bps_high"] >= rate * (1 - BEYOND)
    # The control: an interval that says nothing would contain the rate as well.
    assert link["bottleneck_bps_high"] < link["bottleneck_bps_low"] * 1.05


@pytest.mark.parametrize("end", ENDS)
def test_a_rate_that_changes_is_a_span_and_not_one_number(links: Path, end: str) -> None:
    link = found(links / "changing" / f"{end}.pcap")
    assert link
    # Half seconds hold some tens of packets of one end more or less.
    assert link["bottleneck_bps_min"] == pytest.approx(4e6, rel=0.05)
    assert link["bottleneck_bps_max"] == pytest.approx(10e6, rel=0.05)
    assert link["bottleneck_bps_low"] < link["bottleneck_bps"] * 0.9


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", NO_QUEUE)
def test_without_a_queue_the_rate_is_withheld(links: Path, name: str, end: str) -> None:
    assert found(links / name / f"{end}.pcap") is None


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_have_the_rates_that_they_were_made_with(name: str) -> None:
    link = found(generate.ROOT / "samples" / f"{name}.pcapng.zst")
    assert link
    assert link["bottleneck_bps"] == pytest.approx(SAMPLES[name], rel=TOLERANCE)


@pytest.mark.parametrize("name", ["lossy", "slow-reader"])
def test_samples_without_a_queue_have_no_rate(name: str) -> None:
    assert found(generate.ROOT / "samples" / f"{name}.pcapng.zst") is None


def full(log: Path) -> list[int]:
    """What the queue of the upload had, bytes, each time that the emulator dropped a packet for want of space."""
    words = (line.split() for line in log.read_text().splitlines())
    return [int(w[14]) for w in words if w[0] == "+" and w[3:5] == ["u", "queue"]]


def largest(log: Path) -> int:
    """The longest queue of the upload, bytes."""
    words = (line.split() for line in log.read_text().splitlines())
    return max(int(w[14]) + int(w[13]) for w in words if w[0] == "+" and w[3] == "u")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", SIZES)
def test_the_size_of_a_buffer_is_what_stood_in_it_at_losses(
    links: Path, name: str, end: str
) -> None:
    size = SIZES[name]
    dropped = full(links / name / "relay.log")
    # The emulator itself: a packet that did not fit.
    assert all(size - 1500 < queue <= size for queue in dropped)
    buffer = found(links / name / f"{end}.pcap", "buffer-size")
    assert buffer
    assert buffer["buffer_bytes"] == pytest.approx(size, rel=SIZE_TOLERANCE)
    assert buffer["buffer_bytes_low"] <= size <= buffer["buffer_bytes_high"]
    # The control: an interval that says nothing would contain the size as well.
    assert buffer["buffer_bytes_high"] < buffer["buffer_bytes_low"] * WIDEST
    assert buffer["limit"] == ("bytes" if name == "changing" else "bytes or time")


@pytest.mark.parametrize("end", ENDS)
def test_a_buffer_that_shrinks_has_two_sizes(links: Path, end: str) -> None:
    buffer = found(links / "shrinking" / f"{end}.pcap", "buffer-size")
    assert buffer
    assert buffer["buffer_bytes_before"] == pytest.approx(300_000, rel=SIZE_TOLERANCE)
    assert buffer["buffer_bytes"] == pytest.approx(100_000, rel=SIZE_TOLERANCE)
    assert 5.5 < buffer["changed_s"] < 6.5


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", ["never-full", "random"])
def test_a_buffer_that_was_not_full_has_a_lower_bound(links: Path, name: str, end: str) -> None:
    log = links / name / "relay.log"
    assert not full(log)
    buffer = found(links / name / f"{end}.pcap", "buffer-size")
    assert buffer
    assert buffer["limit"] == "not reached"
    assert "buffer_bytes" not in buffer
    # The emulator's queue has the packet that is on the link, the bound does not.
    most = largest(log)
    assert 0.8 * (most - 1500) < buffer["buffer_bytes_low"] <= most


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", NO_QUEUE)
def test_without_a_queue_no_size_is_known(links: Path, name: str, end: str) -> None:
    assert found(links / name / f"{end}.pcap", "buffer-size") is None


def test_a_link_of_one_megabit_has_its_round_trips_at_both_ends(links: Path) -> None:
    # Its full segments are 12 ms apart, which is no pause of the sender.
    rows = []
    for end in ENDS:
        run = unbloat.analyze(links / "slowest" / f"{end}.pcap")
        rows.append(max(run.flows.to_pylist(), key=lambda row: row["payload_bytes"]))
        assert "bufferbloat" in run.findings["rule"].to_pylist()
    phone, server = rows
    assert server["rtt_ms_count"] > 0.8 * phone["rtt_ms_count"]
    for name in ("queue_ms_p95", "data_queue_ms_p95", "data_queue_ms_max"):
        # The 12 ms of a segment, and ticks.
        assert server[name] == pytest.approx(phone[name], abs=15)
