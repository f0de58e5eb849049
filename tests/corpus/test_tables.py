"""Tables that are made of the samples, against figures that are known: of the whole, and of flows written by hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from unbloat.corpus.sides import device_is_a
from unbloat.corpus.stream import analyse_path
from unbloat.corpus.tables import NAMES, burst_rows, corpus_tables, limit_rows, slot_rows

ABOUT = {"unit": "u", "device": "d", "file": "f", "t0_s": 100.0}


def silent(_done: int) -> None:
    """Without progress."""


def test_bytes_of_slots_bursts_limits_and_spans_are_those_of_the_flows(
    captures: list[Path],
) -> None:
    for capture in captures:
        info, tables = analyse_path(str(capture), "f", silent)
        made = corpus_tables(info, tables, ABOUT)
        assert tuple(made) == NAMES
        sent = sum(tables["samples"]["sent_bytes"].to_pylist())
        slots, spans = made["slots"], made["spans"]
        assert sum(made["bursts"]["bytes"].to_pylist()) == sent
        assert sum(made["limits"]["bytes"].to_pylist()) == sent
        assert sum(slots["bytes_up"].to_pylist()) + sum(slots["bytes_down"].to_pylist()) == sent
        assert sum(spans["bytes_up"].to_pylist()) + sum(spans["bytes_down"].to_pylist()) == sent
        # The client uploads: next to nothing comes down.
        assert sum(slots["bytes_up"].to_pylist()) > 0.99 * sent


def samples(rows: list[tuple[int, float, float, int, float | None, str]]) -> pa.Table:
    """Bins: flow, time, length, bytes, RTT, limit."""
    flow, t_s, span_s, sent, rtt, limit = zip(*rows, strict=True) if rows else ((),) * 6
    return pa.table(
        {
            "flow": pa.array(flow, pa.uint32()),
            "t_s": pa.array(t_s, pa.float64()),
            "end_s": pa.array([a + b for a, b in zip(t_s, span_s, strict=True)], pa.float64()),
            "sent_bytes": pa.array(sent, pa.uint64()),
            "rtt_ms": pa.array(rtt, pa.float32()),
            "ack_delay_ms": pa.nulls(len(flow), pa.float32()),
            "limit": pa.array(limit, pa.utf8()),
            "upload": pa.array([number % 2 == 0 for number in flow], pa.bool_()),
            "connection": pa.array([number // 2 for number in flow], pa.uint32()),
        }
    )


FLOWS = pa.table(
    {
        "id": pa.array([0, 1, 2], pa.uint32()),
        "rtt_ms_min": pa.array([20.0, None, 30.0], pa.float64()),
        "vantage": pa.array(["sender", "receiver", "sender"], pa.utf8()),
    }
)


def test_a_second_of_silence_ends_a_burst_and_less_does_not() -> None:
    rows = burst_rows(
        samples(
            [
                (0, 0.0, 0.1, 10, 20.0, "application"),
                (0, 0.1, 0.9, 0, None, "application"),
                (0, 1.0, 0.1, 5, 20.0, "application"),  # 0.9 s later
                (0, 2.1, 0.1, 7, 20.0, "application"),  # 1.0 s later
                (1, 2.2, 0.1, 3, None, "application"),  # another flow
            ]
        )
    ).to_pylist()
    assert [(row["flow"], row["upload"], row["bytes"]) for row in rows] == [
        (0, True, 15),
        (0, True, 7),
        (1, False, 3),
    ]
    assert rows[0]["to_s"] == pytest.approx(1.1)


def test_slots_count_connections_with_data_and_the_rise_above_each_flow() -> None:
    rows = slot_rows(
        samples(
            [
                (0, 0.0, 0.1, 10, 25.0, "application"),
                (0, 0.5, 0.1, 0, 35.0, "application"),
                (1, 0.6, 0.1, 4, None, "application"),
                (2, 0.7, 0.1, 6, 90.0, "application"),
                (2, 3.2, 0.1, 0, None, "application"),
                (2, 5.0, 0.1, 1, 30.0, "application"),
            ]
        ),
        FLOWS,
    ).to_pylist()
    assert [row["from_s"] for row in rows] == [0.0, 5.0]
    assert (rows[0]["bytes_up"], rows[0]["bytes_down"], rows[0]["connections"]) == (16, 4, 2)
    assert rows[0]["rtt_ms"] == pytest.approx(50)
    assert rows[0]["rtt_rise_ms"] == pytest.approx((5 + 15 + 60) / 3)


def test_the_delay_of_acks_is_of_downloads_beside_the_device() -> None:
    rows = samples([(1, 0.0, 0.1, 9, None, "a"), (1, 0.5, 0.1, 0, None, "a"), (2, 0.6, 0.1, 5, 30.0, "a"),
                    (1, 1.0, 0.1, 0, None, "a")])  # fmt: skip
    place = rows.schema.get_field_index("ack_delay_ms")
    delays = pa.array([4.0, 8.0, 100.0, 50.0], pa.float32())
    rows = rows.set_column(place, "ack_delay_ms", delays)
    slots = slot_rows(rows, FLOWS).to_pylist()
    # An upload's time to its ACK is an RTT. A second may have an ACK alone.
    assert [(row["from_s"], row["bytes_down"], row["ack_delay_ms"]) for row in slots] == [
        (0.0, 9, 6.0),
        (1.0, 0, 50.0),
    ]
    elsewhere = FLOWS.set_column(2, "vantage", pa.array(["sender", "middle", "sender"]))
    assert [row["ack_delay_ms"] for row in slot_rows(rows, elsewhere).to_pylist()] == [None, None]


def test_limits_are_spans_of_one_word() -> None:
    rows = limit_rows(
        samples(
            [
                (0, 0.0, 0.1, 1, None, "slow_start"),
                (0, 0.1, 0.1, 2, None, "bottleneck"),
                (0, 0.2, 0.1, 3, None, "bottleneck"),
                (2, 0.0, 0.1, 4, None, "bottleneck"),
            ]
        )
    ).to_pylist()
    assert [(row["flow"], row["limit"], row["bytes"]) for row in rows] == [
        (0, "slow_start", 1),
        (0, "bottleneck", 5),
        (2, "bottleneck", 4),
    ]


def test_nothing_gives_tables_without_rows() -> None:
    assert burst_rows(samples([])).num_rows == 0
    assert limit_rows(samples([])).num_rows == 0
    assert slot_rows(samples([]), FLOWS).num_rows == 0


def test_the_device_is_the_end_beside_the_capture() -> None:
    rows = [
        ("10.0.0.2", "8.8.8.8", "a", True),
        ("8.8.4.4", "10.0.0.2", "b", False),
        ("9.9.9.9", "10.0.0.2", "unknown", False),  # known from the others
        ("9.9.9.9", "192.168.1.5", "middle", False),  # private
        ("9.9.9.9", "8.8.4.4", "middle", True),  # the one that began
    ]
    table = pa.table(
        {
            "a_addr": [row[0] for row in rows],
            "b_addr": [row[1] for row in rows],
            "vantage": [row[2] for row in rows],
        }
    )
    assert device_is_a(table).to_pylist() == [row[3] for row in rows]
