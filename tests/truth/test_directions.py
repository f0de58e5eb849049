"""What data and ACKs waited, each on its way, by timestamps: against the relay's log of both directions, at both ends.

signal: one upload behind a queue, and the same with a link that delivers ACKs every 200 ms
model:  a packet waited what the relay held it longer than the fastest of its direction
action: each bin of 20 ms within the waits of the packets that left in it, by 1 ms and a tick. The control is the delay
        by round trips: it takes held ACKs for a queue of the data
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import truth
from generate import CLEAN, upload
from relay_testbed import Scenario
from steady import made_of

import unbloat

QUEUED = "rate=6e6,queue=400000,delay=20"
HELD_MS = 200
SCENARIOS = {
    "even-acks": Scenario("even-acks", "", QUEUED, CLEAN, upload("--seconds", "8"), 40),
    "held-acks": Scenario(
        "held-acks", "", QUEUED, f"{CLEAN},burst=1/{HELD_MS}", upload("--seconds", "8"), 40
    ),
}
BIN_MS = 20.0
TICK_MS = 1.0
TOLERANCE_MS = 1.0 + TICK_MS
# One in thirty: on a busy machine the relay or the capture stands still for some milliseconds now and then.
WITHIN = 0.967

Waits = dict[int, list[float]]


@pytest.fixture(scope="module")
def directed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per scenario, as `pairs` has it."""
    return made_of(tmp_path_factory, "directions", SCENARIOS)


def held(log: Path) -> dict[str, Waits]:
    """What packets of the upload waited: `data` and `acks` by the bin in which the relay got them."""
    sent: dict[str, tuple[str, int]] = {}
    waited: dict[str, list[tuple[int, float]]] = {"data": [], "acks": []}
    for line in log.read_text().splitlines():
        word = line.split()
        if word[0] == "+" and word[5] == "6" and not int(word[11]) & truth.SYN:
            if (way := "data" if word[3] == "u" else "acks") == "acks" or int(word[12]):
                sent[word[1]] = (way, int(word[2]))
        elif word[0] == "-" and word[1] in sent:
            way, us = sent.pop(word[1])
            waited[way].append((us, (int(word[2]) - us) / 1e3))
    found: dict[str, Waits] = {}
    for way, packets in waited.items():
        base = min(ms for _, ms in packets)
        bins: Waits = defaultdict(list)
        for us, ms in packets:
            bins[int(us / 1e3 / BIN_MS)].append(ms - base)
        found[way] = bins
    return found


def measured(capture: Path) -> tuple[dict[str, Any], dict[str, dict[int, float]]]:
    """Our flow, and what both ways waited by bin."""
    run = unbloat.analyze(capture)
    flow = max(run.flows.to_pylist(), key=lambda row: row["payload_bytes"])
    start_ms = run.info["start_s"] * 1e3
    found: dict[str, dict[int, float]] = {"data": {}, "acks": {}}
    for row in run.samples(flow=flow["id"], bin_ms=BIN_MS).to_pylist():
        at = int((start_ms + row["t_s"] * 1e3) / BIN_MS)
        for way, column in (("data", "data_queue_ms"), ("acks", "ack_queue_ms")):
            if row[column] is not None:
                found[way][at] = row[column]
    return flow, found


def errors_ms(ours_: dict[int, float], true: Waits) -> list[float]:
    """How far each bin of ours lies outside of the true waits in it and beside it; bins begin at other times."""
    found = []
    for at, ms in ours_.items():
        beside = [wait for near in (at, at + 1) for wait in true.get(near, ())]
        if beside:
            found.append(max(min(beside) - ms, ms - max(beside), 0.0))
    return sorted(found)


@pytest.mark.parametrize("way", ["data", "acks"])
@pytest.mark.parametrize("end", ["phone", "server"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_direction_has_its_own_delay(directed: Path, name: str, end: str, way: str) -> None:
    true = held(directed / name / "relay.log")[way]
    flow, found = measured(directed / name / f"{end}.pcap")
    assert flow["timestamp_tick_ms"] == TICK_MS
    errors = errors_ms(found[way], true)
    # A window that leaves at once, each time that ACKs come, is data of two bins.
    assert len(errors) > 50
    assert errors[int(WITHIN * len(errors))] <= TOLERANCE_MS


@pytest.mark.parametrize("end", ["phone", "server"])
def test_round_trips_take_held_acks_for_a_queue_and_timestamps_do_not(
    directed: Path, end: str
) -> None:
    """Medians over time of what the data waited; the control is `queue_ms`, of the same round trips."""
    data = truth.read(directed / "held-acks" / "relay.log", "u")
    base = min(data.transit_ms)
    flow, _ = measured(directed / "held-acks" / f"{end}.pcap")
    stands = [ms - base for ms in data.transit_ms]
    assert flow["data_queue_ms_max"] == pytest.approx(max(stands), abs=TOLERANCE_MS + BIN_MS)
    assert flow["queue_ms_p50"] > flow["data_queue_ms_p50"] + HELD_MS / 3
    assert abs(flow["ack_queue_ms_max"] - HELD_MS) <= TOLERANCE_MS
