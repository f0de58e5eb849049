"""Values in a claim: keys that are known, bounds with units, times.

A value of TOML is a number, or text with a unit; the unit is converted into the one that metric names end in. What is
wrong is a KeyError with one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def known(entry: Mapping[str, Any], keys: set[str], place: str) -> None:
    """Refuses what is not known."""
    for key in entry:
        if key not in keys:
            raise KeyError(f"{place}.{key}: no such key; there are {', '.join(sorted(keys))}")


# Text form of a bound → factor into the unit that metric names end in.
UNITS = {
    "bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "B": 1.0, "KB": 1e3, "MB": 1e6, "KiB": 1024.0, "MiB": 1048576.0,
    "ms": 1.0, "s": 1e3, "%": 0.01,
}  # fmt: skip


def number(value: object, place: str) -> float | None:
    """A bound: a plain number, or text with a unit (times in ms, shares in %)."""
    if value is None or isinstance(value, int | float):
        return None if value is None else float(value)
    match = re.fullmatch(r"([-+]?[0-9.]+) ?([A-Za-z/%]+)", str(value))
    if not match or match[2] not in UNITS:
        raise KeyError(
            f"{place}: {value!r} is no bound; write a number, or one with {', '.join(UNITS)}"
        )
    return float(match[1]) * UNITS[match[2]]


def seconds(value: object, place: str) -> float:
    """A time of `between`."""
    found = number(value, place)
    if found is None:
        raise KeyError(f'{place}.between: expected two times such as ["10 s", "60 s"]')
    return found / 1000 if isinstance(value, str) else found


def span(value: object, place: str) -> tuple[float, float]:
    """`between`: two times."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise KeyError(f'{place}.between: expected two times such as ["10 s", "60 s"]')
    return seconds(value[0], place), seconds(value[1], place)
