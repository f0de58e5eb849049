"""The page of `unbloat what-if` in a browser: a mark for each cure, labels that do not cover each other, a table that scrolls."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Opener
from test_page import inked

import unbloat
from unbloat.prediction.page import write_what_if_page

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
# Pairs of labels that share more than a pixel.
COVERED = """() => {
  const boxes = [...document.querySelectorAll('svg.chart g text')].map(e => e.getBoundingClientRect());
  return boxes.flatMap((a, at) => boxes.slice(0, at).filter(b =>
    a.left + 1 < b.right && b.left + 1 < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)).length;
}"""


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_has_a_mark_and_a_row_for_each_cure(
    tmp_path: Path, open_page: Opener, width: int
) -> None:
    found = unbloat.what_if(SAMPLES / "lte-with-web.pcapng.zst", draws=5)
    path = tmp_path / "what-if.html"
    write_what_if_page(found, path)
    page = open_page(path, width=width)
    page.wait_for_selector("html[data-shown]")
    count = 1 + len(found.cures)
    assert page.locator("svg.chart circle").count() == count
    assert page.locator(".cures tbody tr").count() == count
    commands = sum(bool(one.cure.command) for one in found.cures)
    assert page.locator(".cures tbody code").count() == commands == count - 2, "AFC is in no kernel"
    assert page.evaluate(COVERED) == 0
    said = page.locator("svg.chart").get_attribute("aria-label")
    assert said is not None
    assert all(one.cure.name in said for one in found.cures)
    assert inked(page, "fitted-rate") > 1000
    assert inked(page, "replayed-rtt") > 1000
    filled = "() => [...document.querySelectorAll('.panel')].map(e => e.querySelector('.plot').clientWidth / e.querySelector('.body').clientWidth)"
    assert page.evaluate(filled) == [1, 1]
    assert page.locator("h1").inner_text().startswith("The shortest queue: ")
    wide = "() => [...document.querySelectorAll('li, .card, .panel')].some(e => e.scrollWidth > e.clientWidth + 1)"
    assert not page.evaluate(wide)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
