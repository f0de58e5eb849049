"""The page of a capture with a modem's log: its charts, and a page without a log as before."""

from __future__ import annotations

import sys
from pathlib import Path

from conftest import Opener
from requirements import require_module
from test_page import inked, settle

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import modem_pair

import unbloat
from unbloat.report import write_report

require_module("unbloat._native")

SECONDS = 15


def test_charts_show_buffer_and_grants_of_the_modem(tmp_path: Path, open_page: Opener) -> None:
    pair = modem_pair.make(tmp_path, SECONDS, lost=[100])
    run = unbloat.analyze(pair.capture, modem=pair.log)
    write_report(run, tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    settle(page)
    for name in ("modem-rates", "modem-buffer"):
        assert inked(page, name) > 500, name
    text = page.locator("#chart-modem-rates").inner_text()
    for curve in ("grants less padding", "padding", "packets that the host sent"):
        assert curve in text
    curves = page.evaluate("unbloat.page.data.series.map((one) => [one.table, one.rows])")
    rows = dict(map(tuple, curves))
    assert rows["modem_rates"] == run.modem["modem_rates"].num_rows
    assert rows["modem_buffer"] > 1_000

    write_report(unbloat.analyze(pair.capture), tmp_path / "plain.html")
    plain = open_page(tmp_path / "plain.html")
    settle(plain)
    assert plain.locator("#chart-throughput").count() == 1
    assert plain.locator("#chart-modem-rates").count() == 0
