"""Draws `docs/img/report.png` again: the report of the demo's bloated upload, as headless Chromium shows it.

    python3 docs/img/make.py        # with the Python that has unbloat[test] installed

Three parts of the page, one below the other, in the light theme at 1,280 pixels: the verdict, the RTT, the time-sequence.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import unbloat
from unbloat.report import write_report

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parents[1] / "samples" / "bloated-cubic-upload.pcapng.zst"
CHROMIUM = os.environ.get("UNBLOAT_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
PARTS = ("section.head", "#chart-rtt", "#chart-time-sequence")
WIDTH = 1280
GAP = 10  # pixels between the parts
MAX_BYTES = 300_000


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        page_path = Path(scratch) / "report.html"
        write_report(unbloat.analyze(SAMPLE), page_path)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
            page.goto(page_path.as_uri())
            page.wait_for_selector("html[data-shown]")
            shots = []
            for n, part in enumerate(PARTS):
                shot = Path(scratch) / f"{n}.png"
                page.locator(part).first.screenshot(path=str(shot))
                shots.append(Image.open(shot).convert("RGB"))
            browser.close()
    whole = Image.new("RGB", (WIDTH, GAP + sum(shot.height + GAP for shot in shots)), "#f3f5f9")
    top = GAP
    for shot in shots:
        whole.paste(shot, ((WIDTH - shot.width) // 2, top))
        top += shot.height + GAP
    target = HERE / "report.png"
    # a palette of 256 colours is enough for a page and keeps the file small
    whole.quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
    size = target.stat().st_size
    print(f"{target.name}: {whole.width} × {whole.height}, {size:,} bytes")
    if size > MAX_BYTES:
        sys.exit(f"more than {MAX_BYTES:,} bytes")


if __name__ == "__main__":
    main()
