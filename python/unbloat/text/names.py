"""Names of files and of what stands side by side: without endings, made distinct, safe for a file system."""

from __future__ import annotations

from collections.abc import Sequence


def stems(names: Sequence[str]) -> list[str]:
    """File names without their endings."""
    return [name.split(".")[0] or name for name in names]


def distinct(names: Sequence[str]) -> list[str]:
    """Distinct names: the second of the same becomes `name-2`."""
    result: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in result:
            number += 1
            candidate = f"{name}-{number}"
        result.append(candidate)
    return result


def file_name(text: str) -> str:
    """A text as the name of a file: `congestion=cubic, rate=2 Mbit/s` → `congestion=cubic_rate=2-Mbit-s`."""
    return "".join(
        char if char.isalnum() or char in "=.+_" else "-" for char in text.replace(", ", "_")
    ).strip("-.")[:200]
