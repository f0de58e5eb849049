"""MkDocs hook: links from a page to files outside docs/ (sources, bench/RESULTS.md) lead to the repository.

The target must exist in the checkout, so a link that leads nowhere fails the strict build like one between pages.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/unbloat/unbloat/blob/main"
LINK = re.compile(r"\]\((\.\.?/[^)#\s]+)(#[^)\s]*)?\)")
log = logging.getLogger("mkdocs.hooks.site_links")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs with the text of each page."""
    folder = (DOCS / page.file.src_path).parent

    def outside(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        if not target.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_path, link[1])
        return f"]({REPOSITORY}/{target.relative_to(ROOT)}{link[2] or ''})"

    return LINK.sub(outside, markdown)
