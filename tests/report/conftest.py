"""Pages written once per session, and a browser to open them in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from requirements import CHROMIUM, require, require_module

sys.path.insert(0, str(Path(__file__).parent))

import made

from unbloat.comparison.compare import compare
from unbloat.comparison.page import write_compare
from unbloat.report import write_report

SWITCHES = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    bloated, bbr = made.bloated(), made.with_bbr()
    paths = {
        name: folder / f"{name}.html" for name in ("bloated", "bbr", "million", "empty", "compare")
    }
    write_report(bloated, paths["bloated"])
    write_report(bbr, paths["bbr"])
    write_report(made.million(), paths["million"])
    write_report(made.empty(), paths["empty"])
    write_compare(compare(bloated, bbr, labels=["CUBIC", "BBR"]), paths["compare"])
    return paths


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = require_module("playwright.sync_api")
    require("chromium")
    with playwright.sync_playwright() as driver:
        program = driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield program
        program.close()


Opener = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opener]:
    """Opens a page from disk; at the end of the test nothing may have been complained about or loaded from anywhere."""
    contexts: list[Any] = []
    complaints: list[str] = []
    loaded: list[str] = []

    def opener(path: Path, *, fragment: str = "", width: int = 1280, theme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda said: (
                complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: loaded.append(request.url))
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("html[data-shown]", timeout=20_000)
        return page

    yield opener
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in loaded if not url.startswith(("file:", "blob:", "data:"))] == []
