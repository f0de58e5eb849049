"""The page of claims: complete in itself, with every figure, and what is text stays text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made_claims import Writer
from requirements import CHROMIUM, require, require_module

from unbloat.claims.claim import read_claim
from unbloat.claims.page import write_page
from unbloat.claims.reproduce import examine


@pytest.fixture
def page(written: Writer, tmp_path: Path) -> Path:
    table = 'table = [{ name = "ping", metric = "probe_rtt_ms p95" }]\n'
    claim = read_claim(written("A deep queue delays", "A <deep> queue & its delay"))
    assert claim is not None
    claim.path.write_text(claim.text.replace('group = "made up"\n', f'group = "made up"\n{table}'))
    claim = read_claim(claim.path)
    assert claim is not None
    path = tmp_path / "claims.html"
    write_page(examine(claim), path)
    return path


def test_it_shows_counts_figures_runs_and_the_scenario(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "1 claim run again, 1 figure" in text
    assert "A &lt;deep&gt; queue &amp; its delay" in text
    assert "<deep>" not in text
    for words in (
        "a test",
        "it is made up",
        "≥\u00a0100\u00a0ms",
        "all 2 cases",
        "shallow",
        "duration = &#34;4 s&#34;",
    ):
        assert words in text, words


def test_it_loads_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?:src|href)=\"(?!#)[^\"]*\"|url\(|@import|https?://", text) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out_of_the_screen(page: Path, width: int) -> None:
    playwright = require_module("playwright.sync_api")
    require("chromium")
    complaints: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        sheet = browser.new_page(viewport={"width": width, "height": 900})
        sheet.on("console", lambda said: complaints.append(said.text))
        sheet.on("pageerror", lambda error: complaints.append(str(error)))
        sheet.goto(page.as_uri())
        assert sheet.evaluate("document.documentElement.scrollWidth") <= width
        before = sheet.evaluate("getComputedStyle(document.body).backgroundColor")
        sheet.click("#theme")
        assert sheet.evaluate("getComputedStyle(document.body).backgroundColor") != before
        browser.close()
    assert complaints == []
