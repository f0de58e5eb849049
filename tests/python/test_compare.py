"""Transfers side by side: which flows take part, which value is better, and the sentence about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbloat
from unbloat.comparison.compare import directions
from unbloat.comparison.flow_measures import MEASURES, Value, best_and_worst, variation
from unbloat.comparison.sides import Side, against
from unbloat.run.run import Run
from unbloat.text.names import distinct


def test_the_verdict_names_the_same_rate_with_less_delay(capture: Path, calm: Path) -> None:
    verdict = unbloat.compare(capture, calm, labels=["a", "b"]).verdict
    assert verdict.startswith(
        "b: 4.0 Mbit/s, as a, but RTT p95 75 ms instead of 2.1 s (grade A instead of F); "
    )
    assert "window full 0 % of the time instead of 63 %" in verdict
    assert "held back by the rate of the bottleneck rather than the receive window" in verdict


def test_a_directory_of_runs_is_refused_with_the_names_of_the_runs(
    capture: Path, tmp_path: Path
) -> None:
    run = unbloat.analyze(capture)
    sweep = tmp_path / "sweep"
    for number in range(6):
        run.write(sweep / f"rate={number}")
    with pytest.raises(unbloat.CaptureError) as printed:
        unbloat.compare(sweep, capture)
    named = ", ".join(f"{sweep}/rate={number}" for number in range(4))
    assert str(printed.value) == f"{sweep}: holds runs of its own, name those: {named} and 2 more"
    (tmp_path / "empty").mkdir()
    with pytest.raises(unbloat.CaptureError, match="is a directory, not a capture"):
        unbloat.compare(tmp_path / "empty", capture)


def test_equal_transfers_are_called_equal(capture: Path) -> None:
    comparison = unbloat.compare(capture, capture)
    assert comparison.verdict == "cubic-2: 4.0 Mbit/s, as cubic."
    assert not any(line.best or line.worst for line in comparison.lines)


def test_the_better_value_is_marked_and_small_differences_are_not(
    capture: Path, calm: Path
) -> None:
    lines = {line.measure.name: line for line in unbloat.compare(capture, calm).lines}
    assert (lines["rtt_ms_p95"].best, lines["rtt_ms_p95"].worst) == ({1}, {0})
    assert (lines["grade"].best, lines["grade"].worst) == ({1}, {0})
    assert lines["goodput_bps"].best == set()
    assert lines["share_receive_window"].best == set()


def test_measures_that_no_side_has_are_left_out(capture: Path) -> None:
    names = [line.measure.name for line in unbloat.compare(capture, flows=[1, 5]).lines]
    assert "rtt_ms_p95" not in names
    assert "bytes" in names


def test_runs_stored_runs_and_captures_may_be_mixed(
    capture: Path, calm: Path, tmp_path: Path
) -> None:
    stored = unbloat.analyze(calm).write(tmp_path / "after")
    comparison = unbloat.compare(capture, stored, unbloat.analyze(calm))
    assert comparison.labels == ["cubic", "after", "bbr"]


def test_it_is_a_table_a_dictionary_and_html(capture: Path, calm: Path) -> None:
    comparison = unbloat.compare(capture, calm)
    assert comparison.table.column_names == ["measure", "cubic", "bbr"]
    assert comparison.to_dict()["measures"][1]["values"] == {"cubic": 4010000, "bbr": 3980000}
    assert "<b>75 ms</b>" in comparison._repr_html_()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"labels": ["a"]}, "2 sides need 2 labels"),
        ({"flows": [0]}, "2 captures need 2 flows"),
        ({"flows": [0, 77]}, "no flow 77"),
    ],
)
def test_wrong_numbers_of_things_are_refused(
    capture: Path, calm: Path, how: dict[str, Any], reason: str
) -> None:
    with pytest.raises(unbloat.UnbloatError, match=reason):
        unbloat.compare(capture, calm, **how)


def test_one_direction_alone_cannot_be_compared(capture: Path) -> None:
    with pytest.raises(unbloat.UnbloatError, match="one direction only"):
        unbloat.compare(capture)
    with pytest.raises(unbloat.UnbloatError, match="needs two flows"):
        unbloat.compare(capture, flows=[0])
    with pytest.raises(unbloat.UnbloatError, match="nothing to compare"):
        unbloat.compare()


def two_ways(ends: list[tuple[str, str]], payloads: list[int]) -> Run:
    """A run of nothing but addresses and payloads."""
    count = len(ends)
    connections = {
        "id": range(count),
        "proto": ["tcp"] * count,
        "a_addr": [a for a, _ in ends],
        "b_addr": [b for _, b in ends],
    }
    flows = {
        "id": range(2 * count),
        "connection": [place // 2 for place in range(2 * count)],
        "payload_bytes": payloads,
        "bytes": payloads,
    }
    empty = pa.table({"rule": pa.array([], pa.utf8())})
    return Run(
        {"files": ["x.pcap"]},
        {"connections": pa.table(connections), "flows": pa.table(flows), "findings": empty},
    )


def test_the_other_direction_may_be_another_connection_between_the_same_hosts() -> None:
    run = two_ways(
        [("phone", "server"), ("phone", "other"), ("phone", "server")], [900, 1, 0, 800, 2, 500]
    )
    assert directions(run) == [0, 5]


def test_a_host_that_talks_to_itself_is_compared_within_its_connection() -> None:
    assert directions(two_ways([("me", "me"), ("me", "me")], [900, 10, 800, 700])) == [0, 1]


@given(st.lists(st.sampled_from(["a", "b", "a-2"]), min_size=1, max_size=6))
def test_labels_are_always_distinct(names: list[str]) -> None:
    assert len(set(distinct(names))) == len(names)


@given(st.lists(st.none() | st.floats(0, 1e9), min_size=2, max_size=5))
def test_no_value_is_best_and_worst_at_once(values: list[Value]) -> None:
    for measure in MEASURES:
        best, worst = best_and_worst(measure, values)
        assert not best & worst
        assert all(values[place] is not None for place in best | worst)


def test_variation_counts_bins_without_a_row_as_zero() -> None:
    def samples(bins: dict[int, int]) -> pa.Table:
        return pa.table(
            {"t_s": [place / 10 for place in bins], "delivered_bytes": list(bins.values())}
        )

    assert variation(samples({0: 10, 1: 10, 2: 10})) == pytest.approx(0.0)
    assert variation(samples({0: 10, 3: 10})) == pytest.approx(1.0)
    assert variation(samples({0: 10})) is None


def test_more_goodput_at_less_delay_has_no_but(capture: Path, calm: Path) -> None:
    slow, fast = unbloat.compare(capture, calm).sides
    better = Side("new", fast.run, fast.flow, fast.values | {"goodput_bps": 12_000_000})
    assert against(slow, better).startswith(
        "new: 12.0 Mbit/s, 3.0 times cubic's 4.0 Mbit/s, and RTT p95 75 ms"
    )
    assert against(better, slow).startswith(
        "cubic: 4.0 Mbit/s, 1/3.0 of new's 12.0 Mbit/s, and RTT p95 2.1 s"
    )
