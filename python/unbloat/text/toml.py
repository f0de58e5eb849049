"""TOML text of plain values, by tomlkit: a line per key. Tables and lists stand in line, where the order of the keys is kept:
the axes of a sweep are in the order in which they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import tomlkit
from tomlkit.items import Item


class TomlError(ValueError):
    """A value that TOML cannot hold, with its key."""


def toml(table: Mapping[str, object]) -> str:
    """A dictionary as TOML; what is None is left out. Raises `TomlError`."""
    document = tomlkit.document()
    for key, value in table.items():
        if value is not None:
            document.append(key, inline(value, key))
    return tomlkit.dumps(document)


def inline(value: object, key: str) -> Item:
    """One value."""
    if isinstance(value, float) and not math.isfinite(value):
        raise TomlError(f"{key}: {value} is no figure")
    if isinstance(value, bool | int | float | str):
        return tomlkit.item(value)
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for name, part in value.items():
            if part is not None:
                table.append(name, inline(part, f"{key}.{name}"))
        return table
    if isinstance(value, Sequence):
        array = tomlkit.array()
        for part in value:
            array.append(inline(part, key))
        return array
    raise TomlError(f"{key}: {type(value).__name__} has no form in TOML")
