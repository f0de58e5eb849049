"""A run: its tables, its series computed when asked for, and the data frames that take them as they are."""

from __future__ import annotations

from pathlib import Path

import duckdb
import fake_native
import pandas
import polars
import pyarrow as pa
import pytest

import unbloat


def passes() -> int:
    """How often the captures were read."""
    return len(fake_native.calls)


def test_one_path_gives_a_run_and_several_a_list(capture: Path, calm: Path) -> None:
    assert isinstance(unbloat.analyze(capture), unbloat.Run)
    runs = unbloat.analyze(capture, calm)
    assert [run.name for run in runs] == ["cubic.pcapng", "bbr.pcapng"]


def test_merged_files_are_read_as_one_capture(capture: Path, calm: Path) -> None:
    run = unbloat.analyze(capture, calm, merge=True)
    assert passes() == 1
    assert run.name == "cubic.pcapng and 1 more"


def test_the_main_flow_is_the_one_with_most_payload(capture: Path) -> None:
    assert unbloat.analyze(capture).main_flow == 0


def test_the_verdict_names_delay_grade_and_what_held_the_flow_back(capture: Path) -> None:
    verdict = unbloat.analyze(capture).verdict
    for part in (
        "15.0 MB",
        "4.0 Mbit/s",
        "from 50 ms to 2.1 s",
        "grade F",
        "the receive window for 63 %",
    ):
        assert part in verdict


def test_a_series_is_read_once_and_kept(capture: Path) -> None:
    run = unbloat.analyze(capture)
    assert passes() == 1
    first = run.samples(flow=0)
    assert run.samples(flow=0).equals(first)
    assert run.samples(connection=0).num_rows == first.num_rows
    assert passes() == 2
    assert fake_native.calls[1]["samples"] == [0]


def test_only_what_is_missing_is_read_again(capture: Path) -> None:
    run = unbloat.analyze(capture)
    run.samples(connection=0)
    both = run.samples(connection=[0, 1])
    assert fake_native.calls[2]["samples"] == [1]
    assert set(both.column("flow").to_pylist()) == {0, 3}
    assert set(both.column("limit").to_pylist()) == {"receive_window", "bottleneck"}


def test_another_bin_is_another_series(capture: Path) -> None:
    run = unbloat.analyze(capture)
    run.samples(flow=0)
    run.samples(flow=0, bin_ms=10.0)
    assert fake_native.calls[2]["bin_ms"] == 10.0


def test_load_takes_several_series_in_one_pass(capture: Path) -> None:
    run = unbloat.analyze(capture)
    run.load([0, 1], ("samples", "events", "segments"))
    assert run.events(flow=3).num_rows == 1
    assert run.segments(connection=0).num_rows == 1
    assert run.samples(flow=2).num_rows == 0
    assert passes() == 2


def test_after_everything_was_loaded_nothing_is_read_again(capture: Path) -> None:
    run = unbloat.analyze(capture)
    everything = run.samples()
    assert run.samples(flow=4).num_rows == 2
    assert everything.num_rows == 304
    assert passes() == 2


@pytest.mark.parametrize("ask", [{"flow": 99}, {"connection": 99}])
def test_an_id_that_does_not_exist_is_refused(capture: Path, ask: dict[str, int]) -> None:
    with pytest.raises(unbloat.UnbloatError, match="99; the capture has"):
        unbloat.analyze(capture).samples(**ask)


def test_a_series_of_another_name_is_refused(capture: Path) -> None:
    with pytest.raises(unbloat.UnbloatError, match="no series is called 'probes'"):
        unbloat.analyze(capture).load(None, ("probes",))


def test_what_was_never_measured_is_null(capture: Path) -> None:
    run = unbloat.analyze(capture)
    assert run.flow(1)["rtt_ms_min"] is None
    assert run.flow(1)["window_scale"] == 7
    assert run.connection(1)["initial_rtt_ms"] is None
    assert run.flows.column("rtt_ms_min").null_count == 5


def test_the_types_are_those_of_the_format(capture: Path) -> None:
    run = unbloat.analyze(capture)
    assert run.flows.schema.field("id").type == pa.uint32()
    assert run.flows.schema.field("window_scale").type == pa.uint8()
    assert run.connections.schema.field("syn_seen").type == pa.bool_()
    assert run.connections.column("a_port").to_pylist() == [40404, 50000, 6000]


def test_findings_come_with_the_most_severe_first(capture: Path) -> None:
    run = unbloat.analyze(capture)
    assert [row["severity"] for row in run.findings_of()] == ["serious", "warning", "info"]
    assert [row["rule"] for row in run.findings_of(connection=0)] == [
        "bufferbloat",
        "receive-window",
    ]
    assert run.findings_of(flow=3) == []


def test_polars_takes_a_table_without_copying(capture: Path) -> None:
    samples = unbloat.analyze(capture).samples(flow=0)
    frame = polars.from_arrow(samples.select(["t_s", "goodput_bps"]), rechunk=False)
    assert isinstance(frame, polars.DataFrame)
    back = frame.to_arrow().column("t_s")
    assert back.chunk(0).buffers()[1].address == samples.column("t_s").chunk(0).buffers()[1].address
    assert polars.from_arrow(samples).height == 300  # type: ignore[union-attr]


def test_duckdb_queries_the_tables_in_place(capture: Path) -> None:
    run = unbloat.analyze(capture)
    flows, connections = run.flows, run.connections
    query = "select c.b_addr, f.grade from flows f join connections c on f.connection = c.id where f.limit = 'receive_window'"
    database = duckdb.connect()
    database.register("flows", flows)
    database.register("connections", connections)
    assert database.sql(query.replace("f.limit", 'f."limit"')).fetchall() == [("10.77.0.2", "F")]


def test_pandas_keeps_the_columns_in_arrow(capture: Path) -> None:
    run = unbloat.analyze(capture)
    frame = run.to_pandas("flows")
    assert isinstance(frame["goodput_bps"].dtype, pandas.ArrowDtype)
    assert frame["rtt_ms_min"].isna().sum() == 5
    assert len(run.to_pandas("events")) == 3


def test_a_run_says_briefly_what_it_is(capture: Path) -> None:
    assert (
        repr(unbloat.analyze(capture))
        == "<unbloat.Run cubic.pcapng: 3 connections, 3 findings, 30.0 s>"
    )


def test_in_a_notebook_it_shows_verdict_and_chart_without_anything_loaded(capture: Path) -> None:
    html = unbloat.analyze(capture)._repr_html_()
    assert "grade F" in html
    assert html.count("<polyline") >= 2
    for outside in ("<script", "http://", "https://", "url("):
        assert outside not in html.replace("http://www.w3.org/2000/svg", "")


def test_a_name_that_looks_like_markup_stays_text(tmp_path: Path, fake: None) -> None:
    path = tmp_path / "<b>&.pcap"
    path.write_bytes(b"x")
    assert "<b>&.pcap" not in unbloat.analyze(path)._repr_html_()


def test_unreadable_is_a_capture_error_and_missing_a_file_not_found(
    tmp_path: Path, fake: None
) -> None:
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"bad")
    with pytest.raises(unbloat.CaptureError, match="unknown magic"):
        unbloat.analyze(bad)
    with pytest.raises(unbloat.CaptureError, match="is a directory"):
        unbloat.analyze(tmp_path)
    with pytest.raises(FileNotFoundError):
        unbloat.analyze(tmp_path / "none.pcap")
    with pytest.raises(unbloat.UnbloatError, match="no capture was given"):
        unbloat.analyze()  # type: ignore[call-overload]


def test_an_exception_in_the_progress_callback_stops_the_analysis(
    capture: Path, calm: Path
) -> None:
    def interrupted(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unbloat.analyze(capture, progress=interrupted)
    with pytest.raises(KeyboardInterrupt):
        unbloat.analyze(capture, calm, progress=interrupted)
