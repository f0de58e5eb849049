"""The page of a simulated run: queues by stage, probes, the congestion window; and several runs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Opener
from made import LINKS
from test_page import inked

import unbloat
from unbloat.charts import CHARTS
from unbloat.charts.spec import Line
from unbloat.report import write_report
from unbloat.scenario.sweep import RunSet

SCENARIO = (
    """
name = "page"
about = "An upload beside pings"
duration = "8 s"
"""
    + LINKS
    + """
[device]
firmware = { buffer = "30 KB" }
qdisc = { kind = "droptail", limit = "60 packets" }
[[flow]]
name = "upload"
from = "client"
congestion = "cubic"
[[probe]]
kind = "ping"
every = "50 ms"
[[expect]]
probe_rtt_ms = { p50 = { min = 50 } }
"""
)


@pytest.fixture(scope="module")
def run() -> unbloat.Run:
    made = unbloat.simulate(SCENARIO)
    assert isinstance(made, unbloat.Run)
    return made


def test_every_column_that_a_chart_of_a_simulated_run_names_is_in_its_tables(
    run: unbloat.Run,
) -> None:
    tables = {"samples": run.samples(), "events": run.events(), **run.extra}
    for chart in CHARTS:
        for need in chart.needs:
            table, column = need.split(".")
            # Curves made of samples, see test_transfers.py; and those of a modem's log, see test_modem.py.
            if table.startswith(("transfer_", "modem_")):
                continue
            assert table == "segments" or column in tables[table].column_names, need
        for _, figure in chart.figures:
            assert figure in run.flows.column_names, figure
        for mark in chart.marks:
            if (
                isinstance(mark, Line)
                and isinstance(mark.column, str)
                and not mark.column.endswith("_bps")
            ):
                assert mark.column in run.samples().column_names


def test_the_page_of_a_simulated_run_draws_queues_and_probes(
    run: unbloat.Run, tmp_path: Path, open_page: Opener
) -> None:
    page = open_page(write_report(run, tmp_path / "page.html").path)
    for chart in CHARTS:
        # A simulated run has no segments, no timestamps and no modem's log, and this one a single transfer.
        absent = ("time-sequence", "directions")
        if chart.name in absent or chart.name.startswith(("transfer-", "modem-")):
            assert page.locator(f"#chart-{chart.name}").count() == 0
        else:
            assert inked(page, chart.name) > 1000, chart.name
    labels = page.locator("#chart-queue .legend button").all_inner_texts()
    assert labels[:2] == ["up qdisc", "up firmware"]
    assert "congestion window" in page.locator("#chart-in-flight .legend").inner_text()
    assert "upload" in page.locator("#simulated").inner_text()
    assert page.locator(".checks").inner_text().startswith("pass: probe0: probe_rtt_ms p50 ")


def test_a_page_of_a_stored_simulated_run_is_the_same_page(
    run: unbloat.Run, tmp_path: Path
) -> None:
    stored = unbloat.open_run(run.write(tmp_path / "run"))
    first = write_report(run, tmp_path / "a.html").path.read_text()
    assert write_report(stored, tmp_path / "b.html").path.read_text() == first


def test_the_runs_of_a_sweep_are_laid_side_by_side(tmp_path: Path, open_page: Opener) -> None:
    runs = unbloat.simulate(
        SCENARIO + '[sweep]\n"flow.0.congestion" = ["cubic", "vegas", "newreno"]\n'
    )
    assert isinstance(runs, RunSet)
    page = open_page(runs.write_report(tmp_path / "compare.html"))
    for name in ("limits", "throughput", "rtt", "queue", "probe-rtt", "in-flight"):
        assert inked(page, name) > 1000, name
    heads = page.locator("#measures thead th").all_inner_texts()
    assert heads == ["Measure", "cubic", "vegas", "newreno"]
    assert any("probe" in text for text in page.locator("#measures tbody th").all_inner_texts())
