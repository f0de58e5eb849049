"""Pages of real captures: the samples of the project, and those that UNBLOAT_SHARED lends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Opener
from requirements import require_module
from test_page import inked, settle

import unbloat
from unbloat.charts import CHARTS
from unbloat.report import write_report

native = require_module("unbloat._native")

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("UNBLOAT_SHARED", ROOT.parent / "shared"))
CAPTURES = sorted(
    [*(ROOT / "samples").glob("*.pcapng.zst"), *(SHARED / "captures" / "made").glob("*.pcap.gz")]
)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_every_chart_is_drawn_for_every_direction_that_carried_data(
    capture: Path, tmp_path: Path, open_page: Opener
) -> None:
    run = unbloat.analyze(capture)
    info = write_report(run, tmp_path / "page.html", top=3)
    assert info.charted > 0
    page = open_page(info.path)
    drawn = 0
    for connection in page.evaluate("[...charted]"):
        for way in ("ab", "ba"):
            page.evaluate(f"unbloat.page.go({connection}, {1 if way == 'ba' else 0})")
            page.wait_for_selector(f"html[data-shown='{connection}/{1 if way == 'ba' else 0}']")
            settle(page)
            for chart in CHARTS:
                panel = page.locator(f"#chart-{chart.name}")
                # A chart without its columns says so in words instead.
                if panel.count() == 0 or panel.locator("canvas").count() == 0:
                    continue
                assert inked(page, chart.name) > 500, (connection, way, chart.name)
                drawn += 1
    assert drawn >= sum(not chart.needs_more for chart in CHARTS)


@pytest.mark.parametrize("capture", CAPTURES[:1], ids=lambda path: path.name)
def test_the_crosshair_reads_what_the_analysis_measured(
    capture: Path, tmp_path: Path, open_page: Opener
) -> None:
    run = unbloat.analyze(capture)
    info = write_report(run, tmp_path / "page.html")
    assert run.main_flow is not None
    rows = run.samples(flow=run.main_flow).to_pylist()
    row = rows[len(rows) // 2]
    page = open_page(info.path)
    page.evaluate("(t) => unbloat.page.view.cross(t)", row["t_s"] + row["span_s"] / 2)
    settle(page)
    said: Any = page.evaluate(
        "[...document.querySelectorAll('#chart-in-flight .read span[data-column]')].map((s) => ({...s.dataset}))"
    )
    read = {one["column"]: float(one["value"]) for one in said if one["column"].endswith("_bytes")}
    assert read["in_flight_bytes"] == row["in_flight_bytes"]
    assert read["rwnd_bytes"] == row["rwnd_bytes"]


def test_every_rule_has_a_chart_beside_which_it_is_shown() -> None:
    claimed = {rule for chart in CHARTS for rule in chart.rules}
    # The quality of the capture concerns all charts: it stands above them.
    assert {rule[0] for rule in native.rules()} - claimed <= {"capture-quality"}
    assert claimed <= {rule[0] for rule in native.rules()}
