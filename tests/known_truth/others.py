"""The captures of others that can be read, each with its analysis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from requirements import SHARED

import unbloat
from unbloat.run.run import Run


def analysed() -> Iterator[tuple[Path, Run]]:
    """Each file below ../shared/captures, but for texts and formats that are refused: tests/truth counts those."""
    for path in sorted((SHARED / "captures").rglob("*")):
        if path.is_file():
            try:
                run = unbloat.analyze(path)
            except unbloat.UnbloatError:
                continue
            yield path, run
