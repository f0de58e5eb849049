"""Pages of the docs that a test makes: compared with what comes out, written with UNBLOAT_BLESS=1."""

from __future__ import annotations

import os
from pathlib import Path


def same(path: Path, text: str) -> None:
    """Fails if the page differs from `text`."""
    if os.environ.get("UNBLOAT_BLESS") == "1":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, (
        "UNBLOAT_BLESS=1 renews it, after a look at the change"
    )
