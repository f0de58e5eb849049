"""Pages of runs with several transfers: each has its curve and its row, and no two rows have one name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Opener
from made import LINKS
from test_page import inked

import unbloat
from unbloat.report import write_report
from unbloat.report.series import MAX_TRANSFERS
from unbloat.scenario.sweep import RunSet

HEAD = """
name = "several"
about = "Transfers side by side"
duration = "4 s"
"""
SWEEP = '[sweep]\n"flow.0.congestion" = ["cubic", "vegas"]\n'


def scenario(count: int) -> str:
    """Downloads that begin one after another: the last is the smallest."""
    return (
        HEAD
        + LINKS
        + "".join(
            f'[[flow]]\nname = "t{i}"\nfrom = "server"\ncongestion = "cubic"\nstart = "{200 * i} ms"\n'
            for i in range(count)
        )
    )


def labels(page: Any, chart: str) -> list[str]:
    return list(page.locator(f"#chart-{chart} .legend button").all_inner_texts())


@pytest.mark.parametrize("count", [3, MAX_TRANSFERS + 2])
def test_every_transfer_of_a_run_has_a_curve_and_a_row(
    count: int, tmp_path: Path, open_page: Opener
) -> None:
    run = unbloat.simulate(scenario(count))
    assert isinstance(run, unbloat.Run)
    page = open_page(write_report(run, tmp_path / "page.html").path)
    for chart in ("transfer-goodput", "transfer-rtt"):
        assert inked(page, chart) > 1000
        assert len(labels(page, chart)) == min(count, MAX_TRANSFERS)
        about = page.locator(f"#chart-{chart} .about").first.inner_text()
        assert (f"{count - MAX_TRANSFERS} more" in about) == (count > MAX_TRANSFERS)
    rows = page.locator("#simulated table").first.locator("tbody th").all_inner_texts()
    assert rows == [f"t{i}" for i in range(count)]


def test_a_run_with_one_transfer_has_no_charts_of_all(tmp_path: Path, open_page: Opener) -> None:
    run = unbloat.simulate(scenario(1))
    assert isinstance(run, unbloat.Run)
    page = open_page(write_report(run, tmp_path / "page.html").path)
    assert page.locator("#chart-transfer-goodput").count() == 0
    assert page.locator("#chart-throughput").count() == 1


def test_a_comparison_shows_every_transfer_and_no_name_twice(
    tmp_path: Path, open_page: Opener
) -> None:
    runs = unbloat.simulate(scenario(3) + SWEEP)
    assert isinstance(runs, RunSet)
    page = open_page(runs.write_report(tmp_path / "page.html"))
    names = page.locator("#measures tbody th").all_inner_texts()
    assert len(names) == len(set(names)), names
    assert [name for name in names if name.startswith("goodput") and "CV" not in name] == [
        "goodput of t0",
        "goodput of all transfers",
    ]
    assert inked(page, "transfer-goodput") > 1000
    legend = page.locator("#chart-transfer-goodput .legend").inner_text().split("\n")
    assert {"t0", "t1", "t2", "cubic", "vegas"} <= set(legend), legend
    groups = page.locator("#scenario .group").all_inner_texts()
    assert groups == ["t0", "t1", "t2"]
