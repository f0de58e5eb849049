"""Bytes in flight by the number of the ACK, on segments of known truth and on a simulated capture."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from unbloat.capture.analyze import analyze
from unbloat.claims.at_ack import at_ack, in_flight_by_ack
from unbloat.run.run import Run
from unbloat.scenario.simulate import RunOptions, simulate_all

DATA, AGAIN, ACK = 0, 1, 2
SEGMENT = 1_448
# Two segments per round of 100 ms: nothing queues, and the window never changes.
SCENARIO = f"""
name = "two-segments"
duration = "2 s"
[link.down]
rate = "100 Mbit/s"
delay = "50 ms"
[link.up]
rate = "100 Mbit/s"
delay = "50 ms"
[[flow]]
name = "download"
from = "server"
[flow.receiver]
window = {{ kind = "fixed", window = "{2 * SEGMENT} B" }}
ack_every = 1
"""


class Capture:
    """A run of which only the segments matter; one of its own, whatever it holds."""

    def __init__(self, main_flow: int, segments: Any) -> None:
        self.main_flow, self.segments = main_flow, segments


def captured(*rows: tuple[int, int, int]) -> Run:
    """A capture whose main transfer has these segments: kind, from, to."""
    table = pa.Table.from_pylist(
        [{"kind": kind, "from_seq": begin, "to_seq": end} for kind, begin, end in rows]
    )
    segments: Any = lambda **_: table  # noqa: E731
    return cast("Run", Capture(main_flow=0, segments=segments))


def test_what_was_sent_and_not_acknowledged_is_in_flight_at_each_ack() -> None:
    run = captured((DATA, 0, 100), (DATA, 100, 300), (ACK, 100, 900), (ACK, 300, 900))
    assert in_flight_by_ack(run) == [200, 0]


def test_acks_before_the_first_data_are_not_counted_and_a_retransmission_adds_nothing() -> None:
    run = captured(
        (ACK, 0, 900), (DATA, 0, 100), (DATA, 100, 300), (AGAIN, 0, 100), (ACK, 100, 900)
    )
    assert in_flight_by_ack(run) == [200]


def test_the_most_up_to_an_ack_may_be_that_of_an_earlier_one() -> None:
    run = captured((DATA, 0, 900), (ACK, 100, 0), (ACK, 600, 0), (DATA, 900, 1000), (ACK, 900, 0))
    assert (at_ack(run, 2, False), at_ack(run, 2, True)) == (300.0, 800.0)


def test_where_fewer_acks_came_there_is_no_number() -> None:
    assert at_ack(captured((DATA, 0, 100), (ACK, 100, 0)), 2, False) is None


def test_a_window_of_two_segments_has_one_in_flight_at_each_ack(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    simulate_all(path, RunOptions(pcap=tmp_path, events=False), jobs=1)
    (capture,) = tmp_path.rglob("server.pcapng")
    found = in_flight_by_ack(analyze(capture))
    assert len(found) == pytest.approx(2 * 19, abs=2)
    # Both segments are sent at once, and come back one after the other.
    assert set(found[2:-2]) <= {0, SEGMENT, 2 * SEGMENT}
    assert SEGMENT in found
