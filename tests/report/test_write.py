"""What is written into the page: encoded columns that read back equal, hostile text that stays text, bounded size."""

from __future__ import annotations

import base64
import json
import re
import zlib
from array import array
from pathlib import Path
from typing import Any

import made
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbloat.charts import CHARTS
from unbloat.report import downsample, write_report
from unbloat.report.encode import Encoded, encode, floats, seconds, steps
from unbloat.report.write import EVENT_KINDS, only_certain

CODES = {"i1": "b", "i2": "h", "i4": "i", "f4": "f", "f8": "d", "u1": "B"}


def decoded(encoded: Encoded, name: str) -> list[float]:
    """A column as the page reads it."""
    about = next(column for column in encoded.columns if column["name"] == name)
    data = zlib.decompress(base64.b64decode(encoded.data))
    values = array(CODES[about["type"]])
    values.frombytes(data[about["offset"] : about["offset"] + encoded.rows * values.itemsize])
    if "first" not in about:
        return [value / about.get("divide", 1) for value in values]
    total, read = about["first"], []
    for step in values:
        total += step
        read.append(total / about.get("divide", 1))
    return read


@given(st.lists(st.integers(0, 2**50), max_size=60))
def test_counts_read_back_as_they_were(values: list[int]) -> None:
    encoded = encode({"x": steps(pa.array(values, pa.uint64()))}, len(values))
    assert decoded(encoded, "x") == values


@given(st.lists(st.floats(0, 1e6), max_size=60))
def test_times_read_back_within_a_microsecond(values: list[float]) -> None:
    encoded = encode({"t": seconds(pa.array(values, pa.float64()))}, len(values))
    assert decoded(encoded, "t") == pytest.approx(values, abs=6e-7)


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6, width=32)), max_size=60))
def test_gaps_read_back_as_gaps(values: list[float | None]) -> None:
    encoded = encode({"x": floats(pa.array(values, pa.float32()))}, len(values))
    read = decoded(encoded, "x")
    assert [None if value != value else value for value in read] == values


def test_columns_of_a_slice_are_those_of_the_slice() -> None:
    values = pa.array(range(100), pa.uint64())
    encoded = encode({"a": steps(values.slice(40, 5)), "b": floats(values.slice(7, 5))}, 5)
    assert decoded(encoded, "a") == [40, 41, 42, 43, 44]
    assert decoded(encoded, "b") == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("cap", [10, 1000, 30_000])
def test_downsampled_segments_stay_under_the_cap_and_keep_their_outline(cap: int) -> None:
    whole = made.bloated().segments(flow=0)
    parts = downsample.segments(whole, cap)
    assert sum(part.table.num_rows for part in parts.values()) <= cap
    rows = whole.to_pylist()
    data = parts["data"].table.to_pylist()
    assert min(row["from_seq"] for row in data) == min(
        row["from_seq"] for row in rows if row["kind"] == 0
    )
    assert max(row["to_seq"] for row in data) == max(
        row["to_seq"] for row in rows if row["kind"] == 0
    )


def test_downsampled_bins_keep_bytes_and_extremes() -> None:
    whole = made.bloated().samples(flow=0)
    part = downsample.samples(whole, 100)
    assert part.factor == 6
    assert part.table.num_rows == 100
    for name, verb in (("sent_bytes", sum), ("delivered_bytes", sum), ("in_flight_bytes", max)):
        assert verb(part.table[name].to_pylist()) == verb(whole[name].to_pylist())


HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\u2028\udce4'\"&.pcap"


def test_hostile_names_stay_text(tmp_path: Path, open_page: Any) -> None:
    run = made.bloated(HOSTILE, warnings=[f"{HOSTILE} <b>bold</b>"], interfaces=[HOSTILE])
    path = tmp_path / "hostile.html"
    write_report(run, path)
    text = path.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "<script>document.title" not in text
    page = open_page(path)
    assert page.title() != "taken"
    assert "<img src=x" in page.locator(".connection").inner_text()
    assert page.locator("img").count() == 0


def test_the_facts_are_strict_json(tmp_path: Path) -> None:
    run = made.bloated()
    place = run.flows.schema.get_field_index("loss_rate")
    broken = [float("nan"), float("inf"), *([None] * (run.flows.num_rows - 2))]
    run.flows = run.flows.set_column(place, "loss_rate", pa.array(broken, pa.float64()))
    path = tmp_path / "page.html"
    write_report(run, path)
    found = re.search(r'id="facts">(.*?)</script>', path.read_text(encoding="utf-8"), re.S)
    assert found

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    facts = json.loads(found.group(1), parse_constant=refuse)
    assert facts["flows"]["loss_rate"][:2] == [None, None]


def test_only_the_largest_connections_are_drawn_and_the_rest_is_counted(tmp_path: Path) -> None:
    run = made.bloated()
    rows = [made.connection_row(10 + i, packets=2, bytes=100 + i) for i in range(1500)]
    run.connections = pa.concat_tables(
        [run.connections, pa.Table.from_pylist(rows, schema=run.connections.schema)]
    )
    info = write_report(run, tmp_path / "many.html", top=1)
    assert (info.listed, info.charted) == (1000, 2)  # one TCP, and one that is merely counted
    text = (tmp_path / "many.html").read_text(encoding="utf-8")
    assert '"unlisted": {"bytes": ' in text
    assert '"connections": 504' in text


def test_a_stored_run_without_segments_is_written_without_them(tmp_path: Path) -> None:
    run = made.bloated()
    run.write(tmp_path / "run")
    from unbloat import open_run

    info = write_report(open_run(tmp_path / "run"), tmp_path / "page.html")
    text = info.path.read_text(encoding="utf-8")
    assert 'id="0→-samples"' in text
    assert 'id="0→-data"' not in text


def test_no_full_window_is_drawn_of_a_transfer_that_the_capture_lacks(tmp_path: Path) -> None:
    run = made.bloated()
    lacks = ["data"] + [None] * (run.flows.num_rows - 1)
    run.flows = run.flows.drop_columns(["capture_lacks"]).append_column(
        "capture_lacks", pa.array(lacks, pa.string())
    )
    incomplete = run.flows["id"][0].as_py()
    rows = [
        {"flow": flow, "t_s": 1.0, "kind": kind, "value": 0.0, "seq": 1}
        for flow in (incomplete, incomplete + 1)
        for kind in ("window_full", "idle")
    ]
    kept = only_certain(run, pa.Table.from_pylist(rows))
    assert kept is not None
    assert [(row["flow"], row["kind"]) for row in kept.to_pylist()] == [
        (incomplete, "idle"),
        (incomplete + 1, "window_full"),
        (incomplete + 1, "idle"),
    ]


def test_names_of_charts_differ_and_rules_belong_to_one_chart() -> None:
    names = [chart.name for chart in CHARTS]
    assert len(set(names)) == len(names)
    rules = [rule for chart in CHARTS for rule in chart.rules]
    assert len(set(rules)) == len(rules)


def test_every_column_that_a_chart_names_is_in_the_tables() -> None:
    run = made.bloated()
    tables = {"samples": run.samples(), "events": run.events(), "segments": run.segments()}
    flow_columns = set(run.flows.column_names)
    for chart in CHARTS:
        if chart.needs_more:
            continue  # test_simulated.py
        for need in chart.needs:
            table, column = need.split(".")
            assert column in tables[table].column_names, need
        for _, figure in chart.figures:
            assert figure in flow_columns, figure
        for mark in chart.marks:
            kinds = getattr(mark, "kinds", ())
            assert set(kinds) <= set(EVENT_KINDS)
            if getattr(mark, "figure", None):
                assert mark.figure in flow_columns  # type: ignore[union-attr]


def test_a_million_packets_are_written_quickly(tmp_path: Path) -> None:
    run = made.million()
    info = write_report(run, tmp_path / "million.html")
    print(f"\nmillion packets: written in {info.seconds:.2f} s, {info.bytes / 1e6:.2f} MB")
    assert info.seconds < 10  # 0.6 s on two idle cores; a row-by-row loop would take minutes
    assert info.bytes < 8e6


def test_a_page_names_a_direction_by_its_connection_and_an_arrow(tmp_path: Path) -> None:
    path = write_report(made.bloated(), tmp_path / "page.html").path
    found = re.search(r'id="facts">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    facts = json.loads(found[1])
    directions = {
        f"{connection}{arrow}" for connection in facts["connections"]["id"] for arrow in "→←"
    }
    assert set(facts["flows"]["direction"]) <= directions
    assert not {"id", "connection"} & set(facts["flows"])
    assert "flow" not in facts["findings"]
    assert set(facts["findings"]["direction"]) <= {*directions, None}
    tables = [name.rsplit("-", 1)[0] for name in facts["tables"]]
    assert tables
    assert set(tables) <= directions
