"""The page of a measurement, in a browser: its grades, charts with phases, place and cures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import measured_result as made
import pytest
from conftest import Opener
from test_page import inked, settle

import unbloat
from unbloat.charts.measured_run import CHARTS
from unbloat.measured.page import write_page
from unbloat.measured.run import run_of


def written(result: dict[str, Any], folder: Path) -> Path:
    """The page of a result that was stored and read back."""
    stored = run_of(result).write(folder / "run.unbloat")
    return write_page(unbloat.open_run(stored), folder / "page.html").path


def test_the_page_has_grades_charts_place_and_cures(tmp_path: Path, open_page: Opener) -> None:
    page = open_page(written(made.result(), tmp_path))
    for chart in CHARTS:
        assert inked(page, chart.name) > 1000, chart.name
    badges = page.locator(".badge").all_inner_texts()
    assert [one.split() for one in badges] == [["B", "download"], ["D", "upload"]]
    rows = page.locator("#grades tbody tr").all_inner_texts()
    assert rows[0].split("\t")[:4] == ["download", "B", "50 ms", "50 ms (50 ms – 50 ms)"]
    assert rows[1].split("\t")[4:7] == ["lost", "–", "8.0 Mbit/s"]
    assert rows[1].split("\t")[8] == "2.5 %"
    # Text of the result is text on the page.
    assert "<with noticeable>" in page.locator("#grades").inner_text()
    places = page.locator("#places").inner_text()
    assert "hop 1 (192.168.1.1) and hop 2 (100.64.0.1)" in places
    assert "download: unknown, no router on the way answers." in places
    assert page.locator("#cures code").inner_text() == "sudo unbloat agent on"


def test_the_page_names_the_radio(tmp_path: Path, open_page: Opener) -> None:
    result = made.result()
    result["surroundings"] |= {
        "kind": "wifi",
        "wifi": {"signal_dbm": -71, "retries_per_packet": 0.234, "channel_busy_share": 0.61},
        "modem": {"technologies": ["lte"], "signal_percent": 70.0},
    }
    text = open_page(written(result, tmp_path)).locator("body").inner_text()
    assert "-71 dBm · 0.23 retries per packet · channel busy 61 % · lte · signal 70 %" in text


def test_the_crosshair_reads_delay_and_goodput_of_one_moment(
    tmp_path: Path, open_page: Opener
) -> None:
    page = open_page(written(made.result(), tmp_path))

    def read(chart: str, label: str) -> float:
        place = page.locator(f"#chart-{chart} .read [data-column='{label}']")
        return float(place.get_attribute("data-value"))

    page.evaluate("unbloat.page.view.cross(9.01)")
    settle(page)
    assert read("measure-delay", "↑ to the server") == pytest.approx(250, abs=1)
    assert read("measure-delay", "↓ to this host") == pytest.approx(0, abs=1)
    assert read("measure-goodput", "↑ to the server") == pytest.approx(made.RATE_BPS, rel=0.01)
    page.evaluate("unbloat.page.view.cross(3.01)")
    settle(page)
    assert read("measure-delay", "↓ to this host") == pytest.approx(50, abs=1)


def test_phases_are_marked_and_distributed(tmp_path: Path, open_page: Opener) -> None:
    page = open_page(written(made.result(), tmp_path))
    legend = page.locator("#chart-measure-delay .legend").inner_text()
    assert "download, measured" in legend
    assert "probe lost ↑" in legend
    assert "both ways, measured" not in legend, "it was not measured"
    assert "answer lost ↓" not in legend, "none was"
    layers = page.locator("#chart-measure-distribution .legend .key").all_inner_texts()
    assert layers == ["idle", "download", "upload"]


def test_a_network_that_treats_tcp_or_quic_differently_is_named_in_its_phase(
    tmp_path: Path, open_page: Opener
) -> None:
    text = open_page(written(made.result(), tmp_path)).locator("#grades").inner_text()
    assert "upload: TCP handshakes take 40 ms longer than the probes" in text
    assert "upload: none of 15 QUIC probes was answered, but the other probes were" in text
    assert "download: TCP handshakes" not in text
    assert "QUIC probes take" not in text


def test_a_measurement_without_any_grade_has_a_page(tmp_path: Path, open_page: Opener) -> None:
    result = made.result() | {"ended": "the server closed the connection", "cures": []}
    for phase in result["phases"]:
        phase["grade"] |= {"grades": [], "why": "20 probes are too few: a grade needs 200"}
    page = open_page(written(result, tmp_path))
    assert page.locator(".badge").count() == 0
    assert "the measurement ended early" in page.locator(".warnings").first.inner_text()
    assert "too few" in page.locator("#grades").inner_text()
    assert page.locator("#cures").count() == 0


def test_a_stored_measurement_has_the_report_of_every_run(
    tmp_path: Path, open_page: Opener
) -> None:
    from unbloat.report import write_report

    page = open_page(write_report(run_of(made.result()), tmp_path / "report.html").path)
    for chart in ("probe-rtt", "transfer-goodput", "throughput", "rtt"):
        assert inked(page, chart) > 1000, chart
