"""The page of `unbloat fit` in a browser: the chart is drawn, the parameters can be read on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Opener
from test_page import inked

import unbloat
from unbloat.link.page import write_link_page

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_of_a_fit_has_its_chart_and_parameters_that_fit(
    tmp_path: Path, open_page: Opener, width: int
) -> None:
    fitted = unbloat.fit(SAMPLES / "bloated-bbr-upload.pcapng.zst")
    path = tmp_path / "fit.html"
    write_link_page(fitted, path)
    page = open_page(path, width=width)
    page.wait_for_selector("html[data-shown]")
    assert inked(page, "fitted-rate") > 1000
    for name in ("rate", "known", "delay", "buffer"):
        assert page.locator(f"li strong:text-is('{name}')").count() == 1
    # Nothing is wider than the screen, whole cards included.
    wide = "() => [...document.querySelectorAll('li, .card, .panel')].some(e => e.scrollWidth > e.clientWidth + 1)"
    assert not page.evaluate(wide)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
