"""Trace files for scenarios: where the text of a trace comes from, since the native side opens no file.

signal: the names that a scenario uses, a directory · model: `NAME`, or `NAME.csv`, in that directory; a path of the
scenario's `[traces]` also beside the scenario file · action: name → text. What is not there is left out: the runs that
name it are refused, the others go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

# mahimahi's files have no ending of their own (`NAME.up`, `NAME.down`); rates over time are CSV.
ENDINGS = ("", ".csv", ".txt")


def trace_texts(names: Iterable[str], places: Iterable[str | os.PathLike[str] | None]) -> dict[str, str]:
    """The text of each trace that is found, in the first place that has it."""
    directories = [Path(place) for place in places if place is not None]
    found: dict[str, str] = {}
    for name in names:
        path = trace_path(name, directories)
        if path is not None:
            found[name] = path.read_text(encoding="utf-8", errors="replace")
    return found


def trace_path(name: str, directories: Iterable[Path]) -> Path | None:
    """The file of a trace."""
    for directory in directories:
        for ending in ENDINGS:
            path = directory / f"{name}{ending}"  # an absolute name stays what it is
            if path.is_file():
                return path
    return None
