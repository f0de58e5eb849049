"""Trace files for scenarios: where the text of a trace comes from, since the native side opens no file.

A trace is `NAME`, or `NAME.csv`, in the given directory or one of its folders; a path of the scenario's `[traces]` also beside the scenario
file. What is not there is left out: the runs that name it are refused, the others go on.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path

# mahimahi's files have no ending of their own (`NAME.up`, `NAME.down`); rates over time are CSV.
ENDINGS = ("", ".csv", ".txt", ".gz", ".csv.gz")


def trace_texts(
    names: Iterable[str], places: Iterable[str | os.PathLike[str] | None]
) -> dict[str, str]:
    """The text of each trace that is found, in the first place that has it."""
    directories = [Path(place) for place in places if place is not None]
    found: dict[str, str] = {}
    for name in names:
        path = trace_path(name, directories)
        if path is not None:
            found[name] = trace_text(path)
    return found


def with_folders(directory: str | os.PathLike[str] | None) -> list[Path]:
    """A directory of traces and its folders: collections are kept in a folder each."""
    if directory is None:
        return []
    place = Path(directory)
    return [place, *sorted(entry for entry in place.glob("*") if entry.is_dir())]


def trace_text(path: Path) -> str:
    """A trace file's text, unpacked where it is packed."""
    packed = path.read_bytes()
    return (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode(errors="replace")


def trace_path(name: str, directories: Iterable[Path]) -> Path | None:
    """The file of a trace."""
    for directory in directories:
        for ending in ENDINGS:
            path = directory / f"{name}{ending}"  # an absolute name stays what it is
            if path.is_file():
                return path
    return None
